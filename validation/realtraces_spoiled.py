"""Real traces spoiled: cut at a moment, and with records that are dropped, doubled, shifted, zeroed or merged.

    python -m validation.realtraces_spoiled FOLDER [--cuts 20] [--mutants 500] [--seed 0]

It prints, for the traces of torch.profiler in a folder:

- how far the replay of the first step is off if the recording begins at a random moment, while a device is busy;
- how many mutants replay or measure over 5 % off without a line that says so: those, and traces with ids of other
  records or with another clock of the device;
- the time of an import over that of ``json.loads``.
"""

import argparse
import copy
import json
import random
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, Final

from simsched.base.errors import FileError, SimschedError
from simsched.base.units import MIB
from validation.evidence import table
from workloads import read_kineto_program
from workloads.formats.kineto.facts import DOUBTED
from workloads.formats.kineto.replay import replay_traced
from workloads.formats.kineto.text import read_trace

Event = dict[str, Any]
Document = dict[str, Any]
Mutation = Callable[[list[Event], set[int], random.Random], list[Event]]

_ON_DEVICE: Final = ("kernel", "gpu_memcpy", "gpu_memset")
_MARK: Final = "ProfilerStep#"


def dropped(events: list[Event], rows: set[int], _: random.Random) -> list[Event]:
    """Return the events without some."""
    return [event for k, event in enumerate(events) if k not in rows]


def doubled(events: list[Event], rows: set[int], _: random.Random) -> list[Event]:
    """Return the events, some of them twice."""
    return [event for k, one in enumerate(events) for event in ([one, dict(one)] if k in rows else [one])]


def shifted(events: list[Event], rows: set[int], rng: random.Random) -> list[Event]:
    """Return the events, some of them up to 10 ms earlier or later."""
    for k in rows:
        events[k]["ts"] = max(0.0, events[k]["ts"] + rng.choice([-1, 1]) * 10 ** rng.uniform(0, 4))
    return events


def zeroed(events: list[Event], rows: set[int], rng: random.Random) -> list[Event]:
    """Return the events, some of them at time 0 or of no duration."""
    for k in rows:
        events[k] |= rng.choice([{"ts": 0}, {"dur": 0}, {"ts": 0, "dur": 0}])
    return events


def merged(events: list[Event], _: set[int], rng: random.Random) -> list[Event]:
    """Return the events and those of another rank, which ran the same at another time, shuffled."""
    other = copy.deepcopy(events)
    device = rng.choice([0, 1])
    later = rng.uniform(-1000, 1000)
    for event in other:
        event["ts"] = max(0.0, event["ts"] + later)
        on_device = "device" in event["args"]
        event["pid"] = device if on_device else f"{event['pid']} of another rank"
        if on_device:
            event["args"]["device"] = device
    together = events + other
    rng.shuffle(together)
    return together


def relinked(events: list[Event], rows: set[int], rng: random.Random) -> list[Event]:
    """Return the events, some of them with the correlation id of another one."""
    ids = [event["args"]["correlation"] for event in events if event["args"].get("correlation")]
    for k in sorted(rows):
        if ids and events[k]["args"].get("correlation"):
            events[k]["args"]["correlation"] = rng.choice(ids)
    return events


def unsynchronised(events: list[Event], _: set[int], rng: random.Random) -> list[Event]:
    """Return the events, all of the device up to 10 ms earlier or later."""
    later = rng.choice([-1, 1]) * 10 ** rng.uniform(0, 4)
    for event in events:
        if event.get("cat") in _ON_DEVICE:
            event["ts"] = max(0.0, event["ts"] + later)
    return events


MUTATIONS: Final[Sequence[Mutation]] = (dropped, doubled, shifted, zeroed, merged, relinked, unsynchronised)


def mutant(document: Document, mutate: Mutation, rng: random.Random) -> Document:
    """Return a trace of which one record, three, a 50th or a tenth of all are spoiled."""
    events = copy.deepcopy([event for event in document["traceEvents"] if event.get("ph") == "X"])
    for event in events:
        event.setdefault("args", {})
    n = min(len(events), rng.choice([1, 3, len(events) // 50, len(events) // 10]))
    rows = set(rng.sample(range(len(events)), n))
    return document | {"traceEvents": mutate(events, rows, rng)}


def is_silent(path: Path, truth: float) -> bool:
    """Return whether a trace measures or replays over 5 % off a makespan in us, and nothing says so."""
    program = read_kineto_program(path)
    replay = replay_traced(program)
    is_wrong = max(abs(replay.simulated_us / truth - 1), abs(replay.error)) > DOUBTED
    return is_wrong and not program.lines() and abs(replay.error) <= DOUBTED


def cut(document: Document, at: float) -> Document:
    """Return a trace as it would be if the recording had begun at a time: calls before it are missing.

    A step that had begun by then begins at that time.
    """
    events = []
    for event in document["traceEvents"]:
        if event.get("ph") != "X":
            continue
        start = event["ts"]
        end = start + event["dur"]
        if event.get("cat") in _ON_DEVICE:
            is_kept = start >= at
        else:
            is_kept = start >= at
            if str(event["name"]).startswith(_MARK) and start < at < end:
                event = event | {"ts": at, "dur": end - at}
                is_kept = True
        if is_kept:
            events.append(event)
    return document | {"traceEvents": events}


def busy_moment(document: Document, rng: random.Random) -> float | None:
    """Return a moment at which work waits on a device whose call was before, or None if the host is never ahead."""
    calls: dict[Any, float] = {}
    for event in document["traceEvents"]:
        if event.get("ph") == "X" and event.get("cat") in ("cuda_runtime", "cuda_driver"):
            calls.setdefault(event["args"].get("correlation"), event["ts"])
    pending = [
        (calls[event["args"]["correlation"]], event["ts"])
        for event in document["traceEvents"]
        if event.get("ph") == "X" and event.get("cat") in _ON_DEVICE and event["args"].get("correlation") in calls
    ]
    ahead = [(call, start) for call, start in pending if start - call > 100.0]
    if not ahead:
        return None
    call, start = rng.choice(ahead)
    return rng.uniform(call, start)


def first_step_error(path: Path) -> tuple[float, float]:
    """Return the error of the makespan and the mean error of starts of the first step of a trace."""
    whole = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    marks = sorted((e["ts"], e["name"]) for e in whole if str(e["name"]).startswith(_MARK))
    step = int(marks[0][1].removeprefix(_MARK)) if marks else "all"
    replay = replay_traced(read_kineto_program(path, step=step))
    return replay.error, replay.start_error


def import_ratio(path: Path) -> tuple[float, float, float]:
    """Return the size of a trace in bytes, and the times in s of an import and of ``json.loads``."""
    text = path.read_text(encoding="utf-8")
    best = {}
    for name, act in (("json", lambda: json.loads(text)), ("import", lambda: read_kineto_program(path, step="all"))):
        times = []
        for _ in range(2):
            start = perf_counter()
            act()
            times.append(perf_counter() - start)
        best[name] = min(times)
    return len(text), best["import"], best["json"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the three tables; return the exit status."""
    parser = argparse.ArgumentParser(description="Spoil traces of real GPUs, and see whether that is noticed.")
    parser.add_argument("folder", type=Path, help="where the traces are")
    parser.add_argument("--cuts", type=int, default=20, help="moments at which traces are cut")
    parser.add_argument("--mutants", type=int, default=500, help="mutants in all")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    try:
        documents = _documents(options.folder)
        with TemporaryDirectory() as folder:
            path = Path(folder, "trace.json")
            print(_cuts(documents, options.cuts, options.seed, path))
            print(_mutants(documents, options.mutants, options.seed, path))
            print(_imports(documents, path))
    except SimschedError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _documents(folder: Path) -> dict[str, Document]:
    """Return the traces of a folder, by name."""
    if not folder.is_dir():
        raise FileError(f"{folder}: no such folder")
    documents = {}
    for path in sorted(folder.iterdir()):
        if path.name.endswith((".json", ".json.gz")):
            document = json.loads(read_trace(path))
            if isinstance(document, dict) and "traceEvents" in document:
                documents[path.name] = document
    if not documents:
        raise FileError(f"{folder}: no trace of torch.profiler")
    return documents


def _cuts(documents: dict[str, Document], n: int, seed: int, path: Path) -> str:
    rng = random.Random(seed)
    rows: list[tuple[str, float, float, float]] = []
    names = [name for name, document in documents.items() if busy_moment(document, rng) is not None]
    for k in range(n if names else 0):
        name = names[k % len(names)]
        at = busy_moment(documents[name], rng)
        assert at is not None
        path.write_text(json.dumps(cut(documents[name], at)), encoding="utf-8")
        try:
            error, starts = first_step_error(path)
        except SimschedError:  # no work is left in the step
            continue
        rows.append((name, at, 100 * abs(error), 100 * starts))
    off = [row[2] for row in rows]
    late = [row[3] for row in rows]
    cells = [[name, f"{at:.0f}", f"{error:.2f}", f"{starts:.2f}"] for name, at, error, starts in rows]
    if rows:
        cells.append(["median", "", f"{median(off):.2f}", f"{median(late):.2f}"])
        cells.append(["worst", "", f"{max(off):.2f}", f"{max(late):.2f}"])
    lines = table(["trace", "recording from (us)", "makespan (%)", "starts (%)"], cells)
    return "\n".join(["## First step of a recording that begins while a device is busy", "", *lines, ""])


def _mutants(documents: dict[str, Document], n: int, seed: int, path: Path) -> str:
    truths = {}
    for name, document in documents.items():
        path.write_text(json.dumps(document), encoding="utf-8")
        truths[name] = read_kineto_program(path).measured_makespan
    names = sorted(documents, key=lambda name: len(documents[name]["traceEvents"]))
    counts: Counter[tuple[str, str]] = Counter()
    silent = []
    for seed_of in range(seed, seed + n):
        rng = random.Random(seed_of)
        mutate = MUTATIONS[seed_of % len(MUTATIONS)]
        name = names[rng.randrange(len(names))]
        path.write_text(json.dumps(mutant(documents[name], mutate, rng)), encoding="utf-8")
        try:
            outcome = "silent" if is_silent(path, truths[name]) else "right or told"
        except SimschedError:
            outcome = "refused"
        if outcome == "silent":
            silent.append(f"{name} {mutate.__name__} {seed_of}")
        counts[mutate.__name__, outcome] += 1
    outcomes = ("right or told", "refused", "silent")
    cells = [[m.__name__, *(str(counts[m.__name__, outcome]) for outcome in outcomes)] for m in MUTATIONS]
    return "\n".join(["## Mutants", "", *table(["mutation", *outcomes], cells), *silent, ""])


def _imports(documents: dict[str, Document], path: Path) -> str:
    cells = []
    for name, document in documents.items():
        path.write_text(json.dumps(document), encoding="utf-8")
        size, imported, parsed = import_ratio(path)
        cells.append([name, f"{size / MIB:.1f}", f"{imported:.3f}", f"{parsed:.3f}", f"{3 * parsed + 0.2:.3f}"])
    lines = table(["trace", "MiB", "import (s)", "json.loads (s)", "3 x json.loads + 0.2 s"], cells)
    return "\n".join(["## Import", "", *lines, ""])


if __name__ == "__main__":
    sys.exit(main())
