"""Kernels beside each other on the H100, their times alone being given: networks on streams, pairs, fans.

The times alone are measured, so that only the rules of the simulator are judged. Times from event to event hold a
constant beside the nodes of a captured graph (`EDGES`), which stands for its launch here.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from statistics import fmean
from typing import Any, Final

import simsched as ss
from validation.h100.figures import Case, Figure, Section, bias, by, largest_error, mean_error, number
from validation.hardware.truth import MEASURED, TRUTH, median, read

EDGES: Final = 2.6
"""Time in us from event to event of a replay, without its nodes."""
NODE: Final = 0.3
"""Time in us of a node of a chain beside its kernel."""
CALLS: Final = 10
"""Calls in a row of a library routine, in pairs and fans."""
_SHORTEST: Final = 0.05
_HOST_BOUND: Final = {"gelu 2^14": 1.9}
"""Times alone in us of calls whose ten in a row are bound by the host that replays them: from longer chains."""
_EXCLUDED: Final = "rnn"  # its kernels are persistent, and wait for each other
_SYNTHETIC: Final[Mapping[str, tuple[float, float]]] = {"compute": (8000, 0), "memory": (0, 96), "mixed": (3000, 32)}
"""Multiply-adds of four lanes and 32-byte reads of each thread of a synthetic kernel, by kind."""
_SYNTHETIC_THREADS: Final = 256

Chain = Sequence[ss.Operator]


@dataclass(frozen=True, slots=True)
class Overlap:
    """A simulated and a measured makespan, and both makespans without overlap, in us."""

    case: Case
    alone: Case

    @property
    def gain(self) -> Case:
        """The speedup over no overlap."""
        return Case(
            self.case.name, self.alone.predicted / self.case.predicted, self.alone.measured / self.case.measured
        )


def device() -> ss.Cluster:
    """Return the H100 of the preset, replays of which are timed from event to event."""
    return ss.Cluster.preset("h100").replace_devices(graph_launch=EDGES)


def makespan(chains: Sequence[Chain], cluster: ss.Cluster) -> float:
    """Return the makespan in us of chains of operators, each on a stream of its own, captured."""
    edges = [ss.Edge(a.name, b.name) for chain in chains for a, b in pairwise(chain)]
    places = [ss.Placement(op.name, stream=i) for i, chain in enumerate(chains) for op in chain]
    graph = ss.OpGraph([op for chain in chains for op in chain], edges)
    return ss.simulate(ss.Schedule(graph, places, execution="graph"), cluster).makespan


# Networks


def network_cases(cluster: ss.Cluster) -> tuple[list[Case], list[Overlap]]:
    """Return makespans of networks on one stream, and on several, beside those on one."""
    one_stream: list[Case] = []
    several: list[Overlap] = []
    for row in read(MEASURED, "networks_on_streams.json.gz"):
        if row["key"].startswith(_EXCLUDED):
            continue
        ops = [_network_operator(f"k{i}", *kernel[:10]) for i, kernel in enumerate(row["kernels"])]
        cases = {
            limit: Case(f"{row['key']} x{limit}", _placed(ops, places, cluster), row["measured"][limit])
            for limit, places in row["streams"].items()
        }
        one_stream.append(cases["1"])
        several += [Overlap(case, cases["1"]) for limit, case in cases.items() if limit != "1"]
    return one_stream, several


def _network_operator(
    name: str,
    us: float,
    grid: Sequence[int] | None,
    block: Sequence[int],
    registers: int | None,
    shared: float | None,
    _symbol: str,
    _operator: str,
    flops: float,
    nbytes: float,
    unit: str,
) -> ss.Operator:
    """Return an operator that launches one measured kernel; copies have no grid."""
    kernels = (ss.Kernel(prod(grid), prod(block), max(1, registers or 32), int(shared or 0)),) if grid else ()
    dtype = "fp16" if unit == "tensor" else "fp32"
    return ss.Operator(name, time=us, flops=flops, nbytes=nbytes, dtype=dtype, kernels=kernels)


def _placed(ops: Chain, places: Iterable[tuple[int, int, Sequence[int]]], cluster: ss.Cluster) -> float:
    rows = list(places)
    edges = [ss.Edge(f"k{before}", f"k{kernel}") for kernel, _, waits in rows for before in waits]
    placements = [ss.Placement(f"k{kernel}", stream=stream) for kernel, stream, _ in rows]
    return ss.simulate(ss.Schedule(ss.OpGraph(ops, edges), placements, execution="graph"), cluster).makespan


# Calls of libraries


def library_calls() -> Mapping[str, Any]:
    """Return the kernels of the library calls in pairs and fans, by name of the call."""
    calls: Mapping[str, Any] = read(MEASURED, "library_kernels.json")
    return calls


def _calls_alone(pairs: Mapping[str, Any]) -> dict[str, float]:
    """Return the time in us of one call alone, from ten in a row."""
    times = {name: (median(quantiles) - EDGES) / CALLS for name, quantiles in pairs["alone"].items()}
    return times | _HOST_BOUND


def calls_in_a_row(call: Mapping[str, Any], us: float, tag: str) -> list[ss.Operator]:
    """Return ten calls of a library routine as operators, one for each kernel, since each is a node of the graph."""
    kernels = call["kernels"]
    ops = []
    longest = max(range(len(kernels)), key=lambda i: kernels[i]["share"])
    for i in range(CALLS):
        for k, shape in enumerate(kernels):
            time = max(_SHORTEST, (us - NODE * len(kernels)) * shape["share"])
            kernel = ss.Kernel(shape["blocks"], shape["threads"], shape["registers"], shape["shared_memory"])
            flops = call["flops"] if k == longest else 0.0
            ops.append(
                ss.Operator(
                    f"{tag}.{i}.{k}",
                    time=time,
                    flops=flops,
                    nbytes=call["nbytes"],
                    dtype=call["dtype"],
                    kernels=(kernel,),
                )
            )
    return ops


def pair_cases(cluster: ss.Cluster) -> list[Overlap]:
    """Return pairs of library calls, ten of each on two streams, beside all of them in a row."""
    measured = read(MEASURED, TRUTH)["pairs"]
    calls = library_calls()
    alone = _calls_alone(measured)
    overlaps = []
    for a, b, quantiles in measured["pairs"]:
        if not a.startswith(tuple(_HOST_BOUND)):
            chains = [calls_in_a_row(calls[name], alone[name], f"s{i}") for i, name in enumerate((a, b))]
            row = CALLS * (alone[a] + alone[b])
            name = f"{a} | {b}"
            overlaps.append(Overlap(Case(name, makespan(chains, cluster), median(quantiles)), Case(name, row, row)))
    return overlaps


def fan_cases(cluster: ss.Cluster) -> list[Overlap]:
    """Return fans: one library call, ten of them on each of 2 to 16 streams, beside all of them in a row."""
    measured = read(MEASURED, TRUTH)["pairs"]
    calls = library_calls()
    alone = _calls_alone(measured)
    overlaps = []
    for call, width, quantiles in measured["fans"]:
        if width > 1:
            chains = [calls_in_a_row(calls[call], alone[call], f"s{i}") for i in range(width)]
            row = CALLS * width * alone[call]
            name = f"{call} x{width}"
            overlaps.append(Overlap(Case(name, makespan(chains, cluster), median(quantiles)), Case(name, row, row)))
    return overlaps


# Synthetic kernels


def synthetic_kernel(kind: str, blocks: int, us: float, name: str) -> ss.Operator:
    """Return a synthetic kernel: it multiplies and adds, reads DRAM, or does both."""
    multiply_adds, reads = _SYNTHETIC[kind]
    threads = _SYNTHETIC_THREADS * blocks
    return ss.Operator(
        name,
        time=max(0.5, us - NODE),
        flops=8.0 * multiply_adds * threads,
        nbytes=32.0 * reads * threads,
        kernels=(ss.Kernel(blocks, _SYNTHETIC_THREADS, 32, 0),),
    )


def synthetic_cases(cluster: ss.Cluster) -> list[Overlap]:
    """Return pairs of synthetic kernels, one on each of two streams, beside one after the other."""
    overlaps = []
    for row in read(MEASURED, "first_look.json.gz")["sections"]["pairs"]:
        chains = [[synthetic_kernel(row[x], row[f"blocks_{x}"], row[f"alone_{x}"], x)] for x in ("a", "b")]
        name = f"{row['a']} {row['blocks_a']} | {row['b']} {row['blocks_b']}"
        both = row["alone_a"] + row["alone_b"]
        simulated = makespan(chains, cluster) - EDGES + NODE
        overlaps.append(Overlap(Case(name, simulated, row["together"]), Case(name, both, both)))
    return overlaps


# Tables


def sharing(cluster: ss.Cluster | None = None) -> Section:
    """Return how well makespans are predicted of kernels whose times alone are given."""
    cluster = device() if cluster is None else cluster
    one_stream, several = network_cases(cluster)
    groups = {
        "pairs": pair_cases(cluster),
        "fans": fan_cases(cluster),
        "synthetic pairs": synthetic_cases(cluster),
    }
    gains = [overlap.gain for overlap in several]
    cases = [overlap.case for overlap in several]
    figures = [
        Figure("networks on 2 to 32 streams: mean abs ln", mean_error(cases), most=0.045),
        Figure("networks on 2 to 32 streams, ln speedup: bias", bias(gains), -0.02, 0.02),
        Figure("networks on 2 to 32 streams, ln speedup: mean abs", mean_error(gains), most=0.04),
        Figure("networks on one stream: mean abs ln", mean_error(one_stream), most=0.02),
    ]
    targets = {"pairs": 0.085, "fans": 0.18, "synthetic pairs": 0.09}
    for name, overlaps in groups.items():
        figures.append(Figure(f"{name}: mean abs ln", mean_error([x.case for x in overlaps]), most=targets[name]))
    rows = [_row("networks, 1 stream", one_stream, [])]
    limits = by(cases, lambda case: f"networks, {case.name.rpartition('x')[2]} streams")
    rows += [_row(name, group, [x.gain for x in several if x.case in group]) for name, group in limits.items()]
    rows += [_row(name, [x.case for x in group], [x.gain for x in group]) for name, group in groups.items()]
    rows += list(_kinds(groups["synthetic pairs"]))
    columns = ("times alone given", "n", "mean abs ln", "bias", "largest", "ln speedup: bias", "mean abs", "worst case")
    return Section("Kernels beside each other, times alone given", figures, columns, rows)


def _row(name: str, cases: Sequence[Case], gains: Sequence[Case]) -> tuple[object, ...]:
    worst = max(cases, key=lambda case: abs(case.error))
    return (
        name,
        len(cases),
        number(mean_error(cases)),
        number(bias(cases)),
        number(largest_error(cases)),
        number(bias(gains)),
        number(mean_error(gains)),
        f"{worst.name} {worst.error:+.2f}",
    )


def _kinds(overlaps: Sequence[Overlap]) -> Iterator[tuple[object, ...]]:
    """Yield a row for each pair of kinds of synthetic kernels, in either order."""
    groups: dict[str, list[Overlap]] = {}
    for overlap in overlaps:
        kinds = sorted(part.split()[0] for part in overlap.case.name.split(" | "))
        groups.setdefault(" | ".join(kinds), []).append(overlap)
    for name, group in groups.items():
        yield _row(f"synthetic: {name}", [x.case for x in group], [x.gain for x in group])


# Peaks


def over_peak(cluster: ss.Cluster) -> float:
    """Return the FLOP rate over the device's peak of three kernels of two blocks an SM and seven more, side by side.

    Seven of the SMs hold three blocks of each kernel, all others two: their times, from the cost model, must leave the
    peak room for that.
    """
    gpu = cluster.without_overheads().devices[0]
    blocks = 2 * gpu.sms + 7
    flops = 1e6 * blocks * _SYNTHETIC_THREADS
    kernel = ss.Kernel(blocks, _SYNTHETIC_THREADS, 32, 0)
    chains = [[ss.Operator(name, flops=flops, nbytes=4.0, kernels=(kernel,))] for name in "abc"]
    return 3 * flops / makespan(chains, cluster.without_overheads()) / gpu.peak_rate("fp32")


def peaks() -> Section:
    """Return how far kernels that leave SMs unevenly loaded exceed the peak of a device."""
    rates = {name: over_peak(ss.Cluster.preset(name)) for name in ("h100", "a100", "v100", "k80")}
    figures = [Figure("three kernels of 2 x SMs + 7 blocks, over the peak: largest", max(rates.values()), most=1.0)]
    rows = [(name, number(rate)) for name, rate in rates.items()]
    mean = f"Mean of the devices: {fmean(rates.values()):.3f}."
    return Section("Peak rates", figures, ("device", "rate over the peak"), rows, (mean,))
