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

from simsched.cluster import LINKS, Device
from simsched.costmodel import roofline
from simsched.errors import FormatError, SimschedError
from simsched.graph import Operator
from simsched.units import GB_PER_S, MIB
from simsched.whatif import parse_change
from validation.realtraces_rows import Row
from workloads.formats.kineto_device import measured_device, traced_device
from workloads.formats.kineto_events import Activities, read_events
from workloads.formats.kineto_join import split_iterations
from workloads.formats.kineto_program import TracedProgram, read_kineto_program
from workloads.formats.kineto_replay import replay_traced
from workloads.formats.kineto_text import read_trace

_PINNED: Final = "Memcpy HtoD (Pinned -> Device)"
_LARGE: Final = 1 * MIB
_BUSES: Final = {"3": "pcie3", "7": "pcie3", "8": "pcie4"}  # by compute capability, what is later: the last
_LAST_BUS: Final = "pcie5"
# name in the row -> field of Device, and the constant of a device of which nothing is known
_COSTS: Final = {"call": ("launch", 4.0), "idle start": ("launch_latency", 4.0), "gap": ("gap", 0.9)}
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


def _off(time: float, replay: "object") -> float:
    return 100 * abs(time / replay.measured_us - 1)  # type: ignore[attr-defined,no-any-return]


def timing_rows(traces: Sequence[RealTrace]) -> Iterator[Row]:
    """Yield what a trace says of launches, and of copies from pinned memory, beside the preset."""
    for trace in traces:
        fields = {name: field for name, (field, _) in _COSTS.items()
                  if getattr(trace.measured, field) != getattr(trace.preset, field)}  # fmt: skip
        if fields:  # what a trace does not tell is left as the preset has it
            yield Row(
                "host and launches, presets", trace.name, len(trace.activities), "us",
                {name: getattr(trace.preset, field) for name, field in fields.items()},
                {f"measured {name}": getattr(trace.measured, field) for name, field in fields.items()}
                | {f"constant {name}": _COSTS[name][1] for name in fields},
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
                ours = roofline(Operator("copy", nbytes=traffic), trace.preset)
                us = median(measured)
                found[f"{kind}, {size}"].append((abs(ours / us - 1), abs(traffic / trace.preset.bandwidth / us - 1)))
    for of, errors in sorted(found.items()):
        ours, plain = zip(*errors, strict=True)
        yield Row("solo time", of, len(errors), "%", {"error": 100 * mean(ours), "median": 100 * median(ours)},
                  {"bytes over bandwidth": 100 * mean(plain)})  # fmt: skip


def copies(activities: Activities, *, alone: bool) -> Iterator[tuple[str, float, float]]:
    """Yield name, bytes and time in us of copies and memsets that took any; `alone`: of those beside nothing else."""
    order = np.lexsort((activities.start, activities.device))
    start, device = activities.start[order], activities.device[order]
    end = start + activities.duration[order]
    for k, row in enumerate(order.tolist()):
        kind = activities.kinds[int(activities.what[row])]
        us = float(activities.duration[row]) / 1e3
        if kind.nbytes is None or us <= 0:
            continue
        mine = device == device[k]
        if not alone or ((start < end[k]) & (end > start[k]) & mine).sum() == 1:
            yield kind.name, kind.nbytes, us
