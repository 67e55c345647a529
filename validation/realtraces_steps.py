"""Traces of whole steps: replayed, and what they say of hosts, links and solo times.

Durations of operators are those measured in place, contention is off, and what passes on the host between two calls is
kept: a replay tests what waits for what, when the host issues it, and what a device adds in between.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Final

import numpy as np

from simsched.base.errors import FormatError, SimschedError
from simsched.base.units import GB_PER_S, MIB
from simsched.experiments.whatif import parse_change
from simsched.model import Operator, roofline
from simsched.model.cluster import LINKS, Device
from validation.realtraces_rows import Row
from workloads.formats.kineto_device import measured_device, traced_device
from workloads.formats.kineto_events import Activities, read_events
from workloads.formats.kineto_join import split_iterations
from workloads.formats.kineto_program import read_kineto_program
from workloads.formats.kineto_replay import TraceReplay, replay_traced
from workloads.formats.kineto_text import read_trace
from workloads.formats.kineto_traced import TracedProgram

_PINNED: Final = "Memcpy HtoD (Pinned -> Device)"
_LARGE: Final = 1 * MIB
_BUSES: Final = {"3": "pcie3", "7": "pcie3", "8": "pcie4"}  # by compute capability, what is later: the last
_LAST_BUS: Final = "pcie5"
_COSTS: Final = {"call": "launch", "idle start": "launch_latency", "gap": "gap"}  # in the row, in `Device`
_ONE_LAUNCH: Final = 4.0
"""The `launch` of a `Device` of which nothing is known."""
_TRAFFIC: Final = {"memset": 1.0, "Memcpy DtoD (Device -> Device)": 2.0}  # bytes of DRAM traffic for each byte


@dataclass(frozen=True)
class RealTrace:
    """A trace, its steps as programs, and the device of it as the presets have it."""

    name: str
    path: Path
    activities: Activities
    steps: tuple[TracedProgram, ...]
    measured: Device
    preset: Device
    bus: str


def read_real_trace(path: Path) -> RealTrace:
    """Read all steps of a trace in which anything ran."""
    events = read_events(read_trace(path), str(path))
    whole = read_kineto_program(path, step="all")
    marks, _, _ = split_iterations(events, "ProfilerStep")
    steps = []
    for number in dict.fromkeys(n for n in marks.numbers if n is not None):
        try:
            steps.append(read_kineto_program(path, step=number))
        except FormatError:  # nothing was launched in it
            continue
    found = measured_device(events.header, int(events.activities.device[0]), str(path))
    capability = "" if found is None else found.compute_capability or ""
    measured = whole.cluster.devices[0]
    return RealTrace(
        f"{path.name.split('.')[0]} ({measured.model})", path, events.activities, tuple(steps) or (whole,), measured,
        traced_device(found, measured.name, {}, str(path)), _BUSES.get(capability[:1], _LAST_BUS),
    )  # fmt: skip


def replay_row(trace: RealTrace) -> Row:
    """Return how far the replays of all steps are off, in per cent of what was measured."""
    errors, starts, alone, shared = [], [], [], []
    for step in trace.steps:
        replay = replay_traced(step)
        errors.append(_off(replay.simulated_us, replay))
        starts.append(100 * replay.start_error)
        alone.append(_off(float(np.sum(step.graph.time)), replay))
        try:
            shared.append(_off(replay_traced(step, [parse_change("contention=1")]).simulated_us, replay))
        except SimschedError:  # a kernel that fits on no SM of the preset
            continue
    beside = {"sequential": median(alone), "its worst": max(alone)}
    guessed, waits = (sum(getattr(step, name) for step in trace.steps) for name in ("guessed_waits", "n_waits"))
    return Row(
        "replay of whole steps" + (f", {guessed} of {waits} waits guessed" if waits else ", no waits"), trace.name,
        len(trace.steps), "%",
        {"makespan": median(errors), "worst": max(errors), "starts": median(starts), "worst starts": max(starts)},
        beside | ({"with contention": median(shared)} if shared else {}),
    )  # fmt: skip


def _off(time: float, replay: TraceReplay) -> float:
    return 100 * abs(time / replay.measured_us - 1)


def timing_rows(traces: Sequence[RealTrace]) -> Iterator[Row]:
    """Yield the presets' launches, and copies from pinned memory, beside what traces say; what they do not is equal."""
    for trace in traces:
        yield Row(
            "launch call, start on an idle device, gap back to back", trace.name, len(trace.activities), "us",
            {name: getattr(trace.preset, field) for name, field in _COSTS.items()},
            {f"measured {name}": getattr(trace.measured, field) for name, field in _COSTS.items()}
            | {"one constant for all launches": _ONE_LAUNCH},
        )  # fmt: skip
    for trace in traces:
        rates = [nbytes / us / GB_PER_S for name, nbytes, us in copies(trace.activities, alone=False)
                 if name == _PINNED and nbytes >= _LARGE]  # fmt: skip
        if rates:
            yield Row(
                "copies from pinned memory", trace.name, len(rates), "GB/s",
                {trace.bus: LINKS[trace.bus][1].bandwidth / GB_PER_S},
                {"measured": median(rates), "measured least": min(rates), "measured most": max(rates)},
            )  # fmt: skip


def solo_rows(traces: Sequence[RealTrace]) -> Iterator[Row]:
    """Yield how far the roofline is off for memsets and copies on a device, each size of each trace counted once."""
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for trace in traces:
        times: dict[tuple[str, float], list[float]] = defaultdict(list)
        for name, nbytes, us in copies(trace.activities, alone=True):
            times[name, nbytes].append(us)
        for (name, nbytes), measured in times.items():
            kind = "memset" if name.startswith("Memset") else name
            if kind in _TRAFFIC:
                traffic = _TRAFFIC[kind] * nbytes
                size = "1 MiB or more" if nbytes >= _LARGE else "less than 1 MiB"
                ours, plain = roofline(Operator("copy", nbytes=traffic), trace.preset), traffic / trace.preset.bandwidth
                us = median(measured)
                found[f"{kind}, {size}"].append((abs(ours / us - 1), abs(plain / us - 1)))
    for of, errors in sorted(found.items()):
        off = [error for error, _ in errors]
        yield Row("solo time", of, len(errors), "%", {"error": 100 * mean(off), "median": 100 * median(off)},
                  {"bytes over bandwidth": 100 * mean(error for _, error in errors)})  # fmt: skip


def copies(activities: Activities, *, alone: bool) -> Iterator[tuple[str, float, float]]:
    """Yield name, bytes and time in us of copies and memsets that took any; `alone`: of those beside nothing else."""
    for device in np.unique(activities.device).tolist():
        mine = activities.take(np.flatnonzero(activities.device == device))
        mine = mine.take(np.argsort(mine.start, kind="stable"))
        end = mine.start + mine.duration
        is_alone = np.ones(len(mine), bool)
        is_alone[1:] = np.maximum.accumulate(end)[:-1] <= mine.start[1:]  # of what began before
        is_alone[:-1] &= end[:-1] <= mine.start[1:]
        for row in np.flatnonzero(is_alone | (not alone)).tolist():
            kind, us = mine.kinds[int(mine.what[row])], float(mine.duration[row]) / 1e3
            if kind.nbytes is not None and us > 0:
                yield kind.name, kind.nbytes, us
