"""Traces and tables of kernels that real GPUs ran, beside what the simulator makes of them.

    python -m validation.realtraces FOLDER [--log validation/realtraces.json] [--page docs/background/real-gpus.md]

A folder may hold traces of torch.profiler (``.json``, ``.json.gz``), tables of pairs of kernels (``.csv``) and tables
of kernels alone and beside another (``.json``, a list), told by what is in them, not by their names; docs/measuring.md
says where such files are found and how to record one. What is asked of the tables is in `validation.realtraces_pairs`.

Of traces whole steps are replayed. Durations of operators are those measured in place; contention is simulated where
operators then start closer to when they were measured to (see `is_contended`), and in a column of its own; what
passes on the host between two calls is kept: a replay tests what waits for what, when the host issues it, and what a
device adds in between. Traces of one network on one stream and on several are told by `validation.realtraces_alone`.
"""

import argparse
import hashlib
import platform
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from importlib.metadata import version
from pathlib import Path
from statistics import mean, median
from typing import Any, Final

import numpy as np

from simsched.base.errors import FileError, FormatError, SimschedError
from simsched.base.io import decode_text, dump_json, read_bytes, read_text, write_file
from simsched.base.units import GB_PER_S, MIB
from simsched.experiments.whatif import parse_change
from simsched.model import Operator, roofline
from simsched.model.cluster import LINKS, Device
from validation.evidence import table
from validation.papers.claims import put_between
from validation.realtraces_alone import alone_rows
from validation.realtraces_pairs import Row, dispatch_rows, fair_rows, read_groups, read_pairs, slowdown_rows
from workloads.formats import format_of
from workloads.formats.kineto.device import measured_device, traced_device
from workloads.formats.kineto.events import Activities, read_events
from workloads.formats.kineto.join import split_iterations
from workloads.formats.kineto.pairs import ENDINGS
from workloads.formats.kineto.program import read_kineto_program
from workloads.formats.kineto.replay import TraceReplay, replay_traced
from workloads.formats.kineto.text import read_trace
from workloads.formats.kineto.traced import TracedProgram

_PINNED: Final = "Memcpy HtoD (Pinned -> Device)"
_LARGE: Final = 1 * MIB
_BUSES: Final = {"3": "pcie3", "7": "pcie3", "8": "pcie4"}  # by compute capability; later ones have the last
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
    events = read_events(read_trace(path), str(path), strict=False)
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
        f"{path.name.split('.')[0]} ({measured.model})",
        path,
        events.activities,
        tuple(steps) or (whole,),
        measured,
        traced_device(found, measured.name, {}, str(path)),
        _BUSES.get(capability[:1], _LAST_BUS),
    )


def replay_row(trace: RealTrace) -> Row:
    """Return the errors of the replays of all steps, in per cent of the measured values."""
    errors = []
    starts = []
    alone = []
    shared = []
    for step in trace.steps:
        replay = replay_traced(step)
        errors.append(_off(replay.simulated_us, replay))
        starts.append(100 * replay.start_error)
        alone.append(_off(float(np.sum(step.graph.time)), replay))
        try:
            shared.append(_off(replay_traced(step, [parse_change("contention=true")]).simulated_us, replay))
        except SimschedError:  # a kernel that fits on no SM of the preset
            continue
    beside = {"sequential": median(alone), "its worst": max(alone)}
    guessed, waits = (sum(getattr(step, name) for step in trace.steps) for name in ("guessed_waits", "n_waits"))
    return Row(
        "replay of whole steps" + (f", {guessed} of {waits} waits guessed" if waits else ", no waits"),
        trace.name,
        len(trace.steps),
        "%",
        {"makespan": median(errors), "worst": max(errors), "starts": median(starts), "worst starts": max(starts)},
        beside | ({"with contention": median(shared), "its worst with it": max(shared)} if shared else {}),
    )


def _off(time: float, replay: TraceReplay) -> float:
    return 100 * abs(time / replay.measured_us - 1)


def timing_rows(traces: Sequence[RealTrace]) -> Iterator[Row]:
    """Yield the presets' launches, and copies from pinned memory, beside what traces say; what they do not is equal."""
    for trace in traces:
        yield Row(
            "launch call, start on an idle device, gap back to back",
            trace.name,
            len(trace.activities),
            "us",
            {name: getattr(trace.preset, field) for name, field in _COSTS.items()},
            {f"measured {name}": getattr(trace.measured, field) for name, field in _COSTS.items()}
            | {"one constant for all launches": _ONE_LAUNCH},
        )
    for trace in traces:
        rates = [
            nbytes / us / GB_PER_S
            for name, nbytes, us in copies(trace.activities, alone=False)
            if name == _PINNED and nbytes >= _LARGE
        ]
        if rates:
            yield Row(
                "copies from pinned memory",
                trace.name,
                len(rates),
                "GB/s",
                {trace.bus: LINKS[trace.bus][1].bandwidth / GB_PER_S},
                {"measured": median(rates), "measured least": min(rates), "measured most": max(rates)},
            )


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
                plain = traffic / trace.preset.bandwidth
                us = median(measured)
                found[f"{kind}, {size}"].append((abs(ours / us - 1), abs(plain / us - 1)))
    for of, errors in sorted(found.items()):
        off = [error for error, _ in errors]
        yield Row(
            "solo time",
            of,
            len(errors),
            "%",
            {"error": 100 * mean(off), "median": 100 * median(off)},
            {"bytes over bandwidth": 100 * mean(error for _, error in errors)},
        )


def copies(activities: Activities, *, alone: bool) -> Iterator[tuple[str, float, float]]:
    """Yield name, bytes and time in us of copies and memsets that took any; `alone`: of those beside nothing else."""
    for device in np.unique(activities.device).tolist():
        mine = activities.take(np.flatnonzero(activities.device == device))
        mine = mine.take(np.argsort(mine.start, kind="stable"))
        end = mine.start + mine.duration
        is_alone = np.ones(len(mine), bool)
        is_alone[1:] = np.maximum.accumulate(end)[:-1] <= mine.start[1:]  # after the ends of all earlier ones
        is_alone[:-1] &= end[:-1] <= mine.start[1:]
        for row in np.flatnonzero(is_alone | (not alone)).tolist():
            kind = mine.kinds[int(mine.what[row])]
            us = float(mine.duration[row]) / 1e3
            if kind.nbytes is not None and us > 0:
                yield kind.name, kind.nbytes, us


def read_folder(folder: Path) -> tuple[list[Row], list[dict[str, Any]]]:
    """Return the rows of all that a folder holds, and the files that they are from.

    Raises
    ------
    FileError
        If there is no such folder, or nothing of the kind in it.
    FormatError
        If a table does not fit its suffix, or no file does. A trace that cannot be read is among the files, with the
        reason.
    """
    if not folder.is_dir():
        raise FileError(f"{folder}: no such folder")
    paths = [path for path in sorted(folder.iterdir()) if path.name.lower().endswith((*ENDINGS, ".csv"))]
    if not paths:
        raise FileError(f"{folder}: nothing to read: no file ends in {', '.join((*ENDINGS, '.csv'))}")
    traces: list[RealTrace] = []
    tables: list[Row] = []
    sources: list[dict[str, Any]] = []
    refused: list[FormatError] = []
    for path in paths:
        content = read_bytes(path)
        if path.suffix == ".csv":
            pairs = read_pairs(decode_text(content, str(path)), str(path))
            tables += dispatch_rows(pairs)
            tables += fair_rows(pairs)
            count = len(pairs)
        elif content.lstrip()[:1] == b"[" and format_of(path) != "kineto":
            groups = read_groups(decode_text(content, str(path)), str(path))
            tables += slowdown_rows(groups)
            count = len(groups)
        else:
            try:
                traces.append(read_real_trace(path))
            except FormatError as error:
                refused.append(error)
                sources.append({"file": path.name, "nbytes": len(content), "cases": 0, "error": str(error)})
                continue
            count = len(traces[-1].activities)
        digest = hashlib.sha256(content).hexdigest()
        sources.append({"file": path.name, "nbytes": len(content), "cases": count, "sha256": digest})
    if len(refused) == len(paths):
        raise refused[0]
    rows = [replay_row(trace) for trace in traces]
    rows += alone_rows([(trace.path.name.split(".")[0], step) for trace in traces for step in trace.steps])
    return [*rows, *tables, *timing_rows(traces), *solo_rows(traces)], sources


def tables(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return rows of the log as Markdown: a table for each question, our figures before their references."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(f"{row['asked'].partition(',')[0].capitalize()} ({row['unit']})", []).append(row)
    parts = []
    for title, group in groups.items():
        columns = ["of", "cases", *group[0]["ours"], *group[0]["beside"]]
        parts.append("\n".join((f"## {title}", "", *table(columns, map(_cells, group)), "")))
    return "\n".join(parts)


def _cells(row: Mapping[str, Any]) -> list[str]:
    targets = {name: f" (target {value:g})" for name, value in row["targets"].items()}
    figures = (row["ours"] | row["beside"]).items()
    return [row["of"], str(row["cases"]), *(f"{value:.2f}{targets.get(name, '')}" for name, value in figures)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; return the exit status."""
    parser = argparse.ArgumentParser(description="Hold the simulator against traces of real GPUs.")
    parser.add_argument("folder", type=Path, help="where the traces and tables are")
    parser.add_argument("--log", help="JSON file that is written")
    parser.add_argument("--page", help="page whose tables are written")
    options = parser.parse_args(arguments)
    try:
        rows, sources = read_folder(options.folder)
        document: dict[str, Any] = {
            "date": date.today().isoformat(),
            "versions": {name: version(name) for name in ("simsched", "numpy")} | {"python": platform.python_version()},
            "sources": sources,
            "rows": [asdict(row) for row in rows],
        }
        if options.log:
            write_file(options.log, dump_json(document))
        if options.page:
            write_file(options.page, put_between(read_text(options.page), "realtraces", tables(document["rows"])))
    except SimschedError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{options.folder}: {len(sources)} files\n")
    print(tables(document["rows"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
