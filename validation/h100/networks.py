"""Networks on the H100 through the commands of the README, held against their measured times.

A network is an ONNX file of `NETWORKS`, read as ``simsched compare FILE --gpu h100 --dtype fp16`` reads it, or the name
in ``simsched list workloads`` where the network is the same. The files are exports of PyTorch without the values of
weights, which the reader skips; the folder's README says how they were made.
"""

import gzip
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import simsched as ss
from simsched.cli.options import Graph
from simsched.experiments.ranges import ranges
from validation.evidence import each
from validation.h100.figures import (
    Case,
    Figure,
    Section,
    bias,
    constant_score,
    held,
    largest_error,
    mean_error,
    number,
    score,
    wrong_signs,
)
from validation.hardware.truth import MEASURED, Network, networks

NETWORKS: Final = MEASURED / "networks"
NAMED: Final[Mapping[str, str]] = {
    "inception_v3": "inception_v3",
    "googlenet": "googlenet",
    "resnet50": "resnet50",
    "densenet121": "densenet121",
}
"""Names of workloads that are the same networks."""
EXPORTS: Final = ("default", "kept")
"""Exports: with the exporter's defaults, which fold batch norms into convolutions, and with batch norms kept."""
SAME: Final = "kept"
"""The export with the operators that were measured: PyTorch launched the batch norms."""
LIMITS: Final = (2, 4, 8, 32)


@dataclass(frozen=True, slots=True)
class Prediction:
    """Predicted times of a network in us.

    Parameters
    ----------
    key, path
        Of the measured network, and how its graph was read.
    operators
        Number of operators of the graph.
    captured
        Makespan of one captured stream, with the ends of its 90 % range.
    gains
        Speedups of the schedule that was measured, by the most streams.
    nimble
        Speedup of Nimble's schedule, with the ends of its 90 % range.
    """

    key: str
    path: str
    operators: int
    captured: tuple[float, float | None, float | None]
    gains: Mapping[int, float]
    nimble: tuple[float, float | None, float | None]


@contextmanager
def unpacked(folder: Path = NETWORKS) -> Iterator[Path]:
    """Unpack the ONNX files of a folder, each into the same place under a temporary one."""
    with TemporaryDirectory() as temporary:
        for source in sorted(folder.glob("*/*.onnx.gz")):
            target = Path(temporary, source.parent.name, source.name.removesuffix(".gz"))
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(gzip.decompress(source.read_bytes()))
        yield Path(temporary)


def sources(network: Network, folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the ways to read a network: a name of the way, and the GRAPH that a command takes."""
    for export in EXPORTS:
        file = folder / export / f"{network.name}-{network.batch}.onnx"
        if file.exists():
            yield export, str(file)
            yield f"{export}, operators", f"{file},granularity=operator"
    if network.name in NAMED:
        yield "name", f"{NAMED[network.name]},batch={network.batch}"


def takeover(graph: ss.OpGraph, limit: int, execution: str = "graph") -> ss.Schedule:
    """Return the schedule that was measured: an operator takes over the stream of its first input that is free.

    Operators come in the order of the graph. An input is free until an operator has taken over its stream. Without
    one an operator begins the next stream, the first one again after `limit` of them.

    >>> ops = [ss.Operator(name, time=1.0) for name in "abcd"]
    >>> edges = [ss.Edge("a", "b"), ss.Edge("a", "c"), ss.Edge("b", "d"), ss.Edge("c", "d")]
    >>> [row.stream for row in takeover(ss.OpGraph(ops, edges), 8).placements]
    [0, 0, 1, 0]
    """
    inputs: dict[str, list[str]] = {name: [] for name in graph.names}
    for edge in graph.edges:
        inputs[edge.dst].append(edge.src)
    streams: dict[str, int] = {}
    taken: set[str] = set()
    begun = 0
    for name in graph.order:
        free = next((source for source in inputs[name] if source not in taken), None)
        if free is None:
            streams[name] = begun % limit
            begun += 1
        else:
            streams[name] = streams[free]
            taken.add(free)
    return ss.Schedule(graph, [ss.Placement(name, stream=s) for name, s in streams.items()], execution=execution)


def predict(network: Network, path: str, source: str, *, ranged: bool = True) -> Prediction:
    """Return the predicted times of a network that is read from a GRAPH of the command line."""
    graph = Graph(source, None, network.dtype).read()
    cluster = ss.Cluster.preset("h100")
    one = ss.schedule(graph, cluster, "sequential").like(execution="graph").lower(cluster)
    nimble = ss.schedule(graph, cluster, "nimble").lower(cluster)
    base = ss.simulate(one, cluster).makespan
    fast = ss.simulate(nimble, cluster).makespan
    gains = {limit: base / ss.simulate(takeover(graph, limit), cluster).makespan for limit in LIMITS}
    captured: tuple[float, float | None, float | None] = (base, None, None)
    gain: tuple[float, float | None, float | None] = (base / fast, None, None)
    if ranged:
        by_name = ranges({"one": one, "nimble": nimble}, cluster, reference=one)[0]
        captured = base, by_name["one"].makespan_low_us, by_name["one"].makespan_high_us
        gain = base / fast, by_name["nimble"].speedup_low, by_name["nimble"].speedup_high
    return Prediction(network.key, path, len(graph), captured, gains, gain)


def predictions(workers: int = 1, typed: str = SAME) -> list[Prediction]:
    """Return the predictions of all networks by all ways to read them; ranges of the way that users type."""
    with unpacked() as folder:
        jobs = [
            (network, path, source, path in (typed, "name"))
            for network in networks().values()
            for path, source in sources(network, folder)
        ]
        jobs.sort(key=lambda job: "nasnet" not in job[0].name)  # the longest first
        rows = each(partial(_predicted), jobs, workers)
    order = list(networks())
    return sorted(rows, key=lambda row: order.index(row.key))


def _predicted(job: tuple[Network, str, str, bool]) -> Prediction:
    network, path, source, ranged = job
    return predict(network, path, source, ranged=ranged)


def captured_cases(rows: Sequence[Prediction], path: str) -> list[Case]:
    """Return times on one captured stream of the networks that were read in one way."""
    measured = networks()
    return [
        Case(row.key, row.captured[0], measured[row.key].captured, *row.captured[1:])
        for row in rows
        if row.path == path
    ]


def gain_cases(rows: Sequence[Prediction], path: str, *, captured: bool = False) -> list[Case]:
    """Return speedups by Nimble's schedule beside those measured on up to 32 streams.

    Measured ones are over the same calls on one captured stream, or over the network `captured` as it is.
    """
    known = networks()
    measured = {key: network.gains_over_captured if captured else network.gains for key, network in known.items()}
    return [Case(row.key, row.nimble[0], measured[row.key][32], *row.nimble[1:]) for row in rows if row.path == path]


def same_schedule_cases(rows: Sequence[Prediction], path: str) -> list[Case]:
    """Return speedups by the schedules that were measured, on up to 2, 4, 8 and 32 streams."""
    measured = networks()
    return [
        Case(f"{row.key} x{limit}", row.gains[limit], measured[row.key].gains[limit])
        for row in rows
        if row.path == path
        for limit in LIMITS
    ]


def one_stream_section(rows: Sequence[Prediction], typed: str = SAME) -> Section:
    """Return how well one captured stream is predicted."""
    cases = captured_cases(rows, typed)
    figures = [
        Figure("one captured stream: mean abs ln", mean_error(cases), most=0.15),
        Figure("one captured stream: bias", bias(cases), -0.08, 0.08),
        Figure("one captured stream: largest abs ln", largest_error(cases), most=0.40),
        *_folded(rows),
    ]
    paths = list(dict.fromkeys(row.path for row in rows))
    by_path = {path: {case.name: case for case in captured_cases(rows, path)} for path in paths}
    table = [
        (case.name, f"{case.measured:.1f}", *(_beside(by_path[path].get(case.name)) for path in paths))
        for case in cases
    ]
    for title, function in (("mean abs ln", mean_error), ("bias", bias), ("largest", largest_error)):
        table.append((title, "", *(number(function([*by_path[path].values()])) for path in paths)))
    return Section(
        "Networks on one captured stream, through README commands", figures, ("network", "measured us", *paths), table
    )


def _folded(rows: Sequence[Prediction]) -> list[Figure]:
    """Return how far files that fold batch norms, as PyTorch exports by default, are from the networks as they ran."""
    cases = captured_cases(rows, "default")
    return [
        Figure("batch norms folded by the exporter, beside the network with them: mean abs ln", mean_error(cases)),
        Figure("batch norms folded by the exporter: bias", bias(cases)),
    ]


def _beside(case: Case | None) -> str:
    return "" if case is None else f"{case.predicted:.0f} ({case.error:+.2f})"


def gain_section(rows: Sequence[Prediction], typed: str = SAME) -> Section:
    """Return how well the gain of streams over one captured stream is predicted."""
    cases = gain_cases(rows, typed)
    same = same_schedule_cases(rows, typed)
    captured = gain_cases(rows, typed, captured=True)
    figures = [
        Figure("gain of streams: mean abs ln", mean_error(cases), most=0.10),
        Figure("gain of streams: bias", bias(cases), -0.04, 0.04),
        Figure("gain of streams: sign wrong", len(wrong_signs(cases)), most=3),
        Figure("gain over the network captured as it is: mean abs ln", mean_error(captured)),
        Figure("gain over the network captured as it is: bias", bias(captured)),
        Figure("gain over the network captured as it is: sign wrong", len(wrong_signs(captured))),
        Figure("gain of the schedule that was measured, 2 to 32 streams: mean abs ln", mean_error(same)),
        Figure("gain of the schedule that was measured: bias", bias(same)),
        Figure("gain of the schedule that was measured: sign wrong", len(wrong_signs(same))),
    ]
    paths = list(dict.fromkeys(row.path for row in rows))
    table: list[tuple[object, ...]] = []
    for case in cases:
        limits = [each for each in same if each.name.startswith(f"{case.name} x")]
        shown = ", ".join(f"{each.predicted:.2f} / {each.measured:.2f}" for each in limits)
        wrong = "wrong" if case in wrong_signs(cases) else ""
        table.append((case.name, f"{case.measured:.2f}", f"{case.predicted:.2f}", f"{case.error:+.2f}", wrong, shown))
    notes = []
    for path in paths:
        nimble = gain_cases(rows, path)
        again = same_schedule_cases(rows, path)
        notes.append(
            f"Read as {path!r}: Nimble {number(mean_error(nimble))} ({number(bias(nimble))}), sign wrong "
            f"{len(wrong_signs(nimble))} of {len(nimble)}; schedules that were measured {number(mean_error(again))} "
            f"({number(bias(again))}), sign wrong {len(wrong_signs(again))} of {len(again)}."
        )
    columns = ("network", "measured, 32", "Nimble", "ln", "sign", "schedule as measured on 2, 4, 8, 32 / measured")
    return Section("Gain of streams over one captured stream", figures, columns, table, tuple(notes))


def range_section(rows: Sequence[Prediction], typed: str = SAME) -> Section:
    """Return how often the 90 % ranges of the networks hold, and their score beside the best constant range."""
    latencies = captured_cases(rows, typed)
    gains = gain_cases(rows, typed)
    figures = [
        Figure("ranges of one captured stream hold, %", held(latencies), 88, 96),
        Figure("ranges of one captured stream: score less the best constant", _less(latencies), most=0.0),
        Figure("ranges of gains hold, to 1 %, %", held(gains, 0.01), 88, 96),
        Figure("ranges of gains: score less the best constant", _less(gains), most=0.0),
        Figure("points outside their range", sum(_outside(case) for case in (*latencies, *gains)), most=0),
    ]
    table = [
        (case.name, f"{case.measured:.0f}", _range(case, ".0f"), f"{gain.measured:.2f}", _range(gain, ".2f", 0.01))
        for case, gain in zip(latencies, gains, strict=True)
    ]
    columns = ("network", "measured us", "one captured stream", "measured gain", "gain of Nimble")
    return Section("90 % ranges of the networks", figures, columns, table)


def _less(cases: Sequence[Case]) -> float | None:
    ours = score(cases)
    constant = constant_score(cases)
    return None if ours is None or constant is None else ours - constant


def _outside(case: Case) -> bool:
    return case.low is not None and case.high is not None and not case.low <= case.predicted <= case.high


def _range(case: Case, form: str, tolerance: float = 0.0) -> str:
    if case.low is None or case.high is None:
        return f"{case.predicted:{form}}"
    holds = "" if case.holds(tolerance) else " missed"
    return f"{case.predicted:{form}} ({case.low:{form}} to {case.high:{form}}){holds}"
