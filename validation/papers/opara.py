"""Opara's claims: IEEE Transactions on Computers 2024, doi:10.1109/TC.2024.3475589, and its version of 2023.

Heights of bars are read off the vector drawings in the published PDF; ratios are of such heights. Size and sign of a
gain are two claims: a ratio near 1 is within any tolerance of 1, so where the printed gain is small only its sign is
asked for, by half a per cent at least.

How their frameworks are stood for:

- *CUDA Graph*: one operator after the other in one stream, captured.
- *Nimble*: the released code's streams and waits, in topological order, captured. Nimble's other steps (kernel
  selection, folded normalisations, fused elementwise operators) are left out: both schedulers get the same operators.
- *Opara*: the journal's text; *conference*: the version of 2023, whose rule for streams and single queue differ.
- *PyTorch*: one operator after the other, launched by the host at the preset's cost of a launch. Eager PyTorch spends
  more on an operator, so this column shows the ordering alone.

SM efficiency is defined as in NVIDIA's profilers: the part of the SMs that hold at least one warp, averaged over the
run, which is `Trace.sm_efficiency`. (`Trace.sm_utilization` is of issue slots.)
"""

import timeit
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache, partial
from typing import Any, Final, NamedTuple

import numpy as np

import simsched as ss
import workloads
from simsched.base.units import MS, SECOND
from simsched.schedulers.nimble import assign_streams
from simsched.schedulers.opara import allocate_streams
from validation.papers.claims import Measures, Run, Values, drawn_graph

NETWORKS: Final[Mapping[str, tuple[str, str]]] = {
    "GoogLeNet": ("googlenet", "rtx2080super"),
    "Inception-v3": ("inception_v3", "rtx2080super"),
    "DeepFM": ("deepfm", "rtx2080super"),
    "NASNet": ("nasnet_a_large", "a100"),
    "T5": ("t5_small_encoder", "a100"),
    "BERT": ("bert_base", "a100"),
}
"""Name in the paper -> our workload, and the preset of the GPU on which it was measured at batch 1."""
PYTORCH, GRAPH, NIMBLE, OPARA = "PyTorch", "CUDA Graph", "Nimble", "Opara"
CONFERENCE, DEPTH_FIRST = "conference", "depth first"
_SCHEDULED: Final[Mapping[str, tuple[str, dict[str, Any]]]] = {
    PYTORCH: ("sequential", {}),
    GRAPH: ("sequential", {}),
    NIMBLE: ("nimble", {"mode": "impl"}),
    OPARA: ("opara", {}),
    CONFERENCE: ("opara", {"allocation": "conference", "classes": "none"}),
    DEPTH_FIRST: ("opara", {"order": "graph"}),
}
_A100, _TURING = "a100", "rtx2080super"
_BATCHES, _BATCHES_8, _BATCHES_9 = (1, 2, 4, 8), (1, 2, 4, 8, 16, 32), (2, 4, 16, 32)
_IN_2023: Final = ("GoogLeNet", "Inception-v3", "NASNet")
_MB: Final = 1e6  # bytes
_SIZES: Final = (1000, 2000, 4000, 8000)


class Ran(NamedTuple):
    """The result of a simulated run.

    Parameters
    ----------
    ms
        Makespan in ms.
    sm_efficiency
        In percent.
    """

    ms: float
    sm_efficiency: float


@cache
def network(name: str, batch: int = 1) -> ss.OpGraph:
    """Return a network by its name in the paper, as single operators."""
    return workloads.load(NETWORKS[name][0], granularity="operator", batch=batch)


def planned(graph: ss.OpGraph, cluster: ss.Cluster, framework: str) -> ss.Schedule:
    """Return the schedule of a framework."""
    scheduler, options = _SCHEDULED[framework]
    plan = ss.schedule(graph, cluster, scheduler, **options)
    return plan.like(execution="graph") if framework == GRAPH else plan


@cache
def ran(name: str, framework: str, *, gpu: str | None = None, batch: int = 1) -> Ran:
    """Return the result of a network under a framework; by default on the GPU on which the paper measured it."""
    gpu = gpu or NETWORKS[name][1]
    cluster = ss.Cluster.preset(gpu)
    trace = ss.simulate(planned(network(name, batch), cluster, framework), cluster)
    return Ran(trace.makespan / MS, 100.0 * trace.sm_efficiency())


def speedup(name: str, over: str, framework: str = OPARA, *, gpu: str | None = None, batch: int = 1) -> float:
    """Return by how much a framework is faster than another."""
    return ran(name, over, gpu=gpu, batch=batch).ms / ran(name, framework, gpu=gpu, batch=batch).ms


@cache
def what_if(
    name: str, over: str, framework: str = OPARA, *, gpu: str | None = None, apart: float | None = None, **fields: Any
) -> float:
    """Return by how much a framework is faster than another on a device that is changed.

    Parameters
    ----------
    name, over, framework, gpu
        As of `speedup`, at batch 1.
    apart
        If given, operators are not captured but issued one after the other, one each so many us; waits and events
        cost nothing. Unlike the nodes of a captured graph they pass the hardware queues (`connections`).
    **fields
        Of the device.
    """
    gpu = gpu or NETWORKS[name][1]
    serial = {} if apart is None else {"launch": apart, "record": 0.0, "wait": 0.0}
    cluster = ss.Cluster.preset(gpu).replace_devices(**serial, **fields)
    plans = [planned(network(name), cluster, each) for each in (over, framework)]
    if apart is not None:
        plans = [plan.like(execution="events") for plan in plans]
    slower, faster = (ss.simulate(plan, cluster).makespan for plan in plans)
    return slower / faster


def _by_batch(
    name: str, batches: Iterable[int], over: str, framework: str = OPARA, gpu: str = _TURING
) -> Callable[[Run], Values]:
    """Return the function that measures a speedup at each batch."""
    return lambda _run: {f"batch {b}": speedup(name, over, framework, gpu=gpu, batch=b) for b in batches}


def _each(value: Callable[..., float], names: Iterable[str] = NETWORKS, suffix: str = "", **options: Any) -> Values:
    """Return a value of each network."""
    return {f"{name}{suffix}": value(name, **options) for name in names}


def _each_of_both(value: Callable[[str, str], float]) -> Values:
    """Return a value of each network in a CUDA graph and under Opara."""
    return {f"{name} ({framework})": value(name, framework) for name in NETWORKS for framework in (GRAPH, OPARA)}


# Orders of launches, Fig. 1 to 3


def _fig_1(_run: Run) -> Values:
    points = [(name, batch) for name in ("GoogLeNet", "Inception-v3", "BERT") for batch in (1, 16)]
    return {f"{name} ({batch})": ran(name, PYTORCH, gpu=_A100, batch=batch).sm_efficiency for name, batch in points}


_gains = _by_batch("GoogLeNet", _BATCHES, DEPTH_FIRST)


def _gains_by_queues(run: Run) -> Values:
    """Return the gains, and at batch 1 those over so many hardware queues if operators are issued 1 us apart."""
    queues = {n: what_if("GoogLeNet", DEPTH_FIRST, apart=1.0, connections=n) for n in (32, 8, 4, 2, 1)}
    return {**_gains(run), **{f"batch 1 ({n} queues)": gain for n, gain in queues.items()}}


def _latencies(_run: Run) -> Values:
    """Return the latencies, and below which no order of launches can be."""
    cluster = ss.Cluster.preset(_TURING)
    orders = ((1, DEPTH_FIRST), (2, OPARA))
    found = {f"order {n} ({b})": ran("GoogLeNet", way, batch=b).ms for n, way in orders for b in _BATCHES}
    bounds = {f"bound ({b})": ss.lower_bound(network("GoogLeNet", b), cluster) / MS for b in _BATCHES}
    return {**found, **bounds}


def paired(beside: bool, **device: float) -> ss.Trace:
    """Return the run of two convolutions and two activations, independent of each other, in two streams.

    Both are GoogLeNet's, of batches at which either takes just under 0.1 ms alone on an RTX 2080 Super: a 1 x 1
    convolution of its first module, bound by FLOP, and the activation before, bound by bytes.

    Parameters
    ----------
    beside
        Whether the convolution of one stream runs beside the activation of the other, or like beside like.
    **device
        Fields of the device that are other than its preset's.
    """
    convolution = network("GoogLeNet", 32)["inception3a.branch1"]
    activation = network("GoogLeNet", 8)["stem.conv3.relu"]
    graph = ss.OpGraph([replace(op, name=f"{op.kind} {n}") for n in (0, 1) for op in (convolution, activation)], [])
    launches = ("conv 0", "relu 1", "relu 0", "conv 1") if beside else ("conv 0", "conv 1", "relu 0", "relu 1")
    plan = ss.Schedule(graph, [ss.Placement(name, stream=int(name[-1])) for name in launches], "graph")
    return ss.simulate(plan, ss.Cluster.preset(_TURING).replace_devices(**device))


def _overlap(_run: Run) -> Values:
    return {
        name: paired(beside=False, interleave=part).makespan / paired(beside=True, interleave=part).makespan
        for name, part in (("", 0.0), ("interleave 0.5", 0.5))
    }


# Six networks at batch 1, Fig. 5


def _over_graph(_run: Run) -> Values:
    """Return the speedups, and those if the blocks that fill an SM were fewer or if nodes were issued in turn."""
    apart = {"DeepFM (issued 1.5 us apart)": what_if("DeepFM", GRAPH, apart=1.5)}
    return {**_each(speedup, over=GRAPH), **_if_8_warps(), **apart}


def _if_8_warps(**options: Any) -> Values:
    """Return the speedups over a sequential graph if 8 warps, a block of 256 threads, fill the issue slots of an SM."""
    return _each(what_if, _IN_2023, " (8 warps fill an SM)", over=GRAPH, saturating_warps=8.0, **options)


def _over_nimble(_run: Run) -> Values:
    """Return the speedups, and those over two hardware queues if operators are issued 1 us apart."""
    names = ("GoogLeNet", "Inception-v3", "NASNet", "T5")
    return {
        **_each(speedup, over=NIMBLE),
        **_each(what_if, names, " (2 queues)", over=NIMBLE, apart=1.0, connections=2),
    }


def _conference(_run: Run) -> Values:
    options = {"over": GRAPH, "framework": CONFERENCE, "gpu": _TURING}
    return {**_each(speedup, _IN_2023, **options), **_if_8_warps(framework=CONFERENCE, gpu=_TURING)}


def _efficiency(name: str, framework: str) -> float:
    """Return the SM efficiency in per cent."""
    return ran(name, framework).sm_efficiency


def _efficiencies(name: str, _run: Run) -> Values:
    return {framework: _efficiency(name, framework) for framework in (PYTORCH, GRAPH, NIMBLE, OPARA)}


@cache
def _megabytes(name: str, framework: str) -> float:
    """Return the peak memory in MB: Opara's released code frees no output of an operator before the end."""
    graph, cluster = network(name), ss.Cluster.preset(NETWORKS[name][1])
    if framework == GRAPH:
        return max(ss.simulate(planned(graph, cluster, GRAPH), cluster).peak_memory().values()) / _MB
    outputs = zip(graph.operators, graph.output_nbytes, strict=True)
    kept = sum(op.weight_nbytes for op in graph.operators)
    return (kept + sum(float(nbytes) for op, nbytes in outputs if op.works)) / _MB


# Streams, and how long it takes to find them


def _streams_of_example(_run: Run) -> Values:
    """Return the stream of each operator of the paper's example, in the order in which the streams are opened."""
    edges = "1-2 1-3 1-4 2-5 3-6 5-7 6-8 4-8 7-9 7-10 8-11 8-12 9-13 10-13 11-13 12-13"  # 8 lists 6 before 4
    graph = drawn_graph("1 " * 13, edges)
    found = allocate_streams(graph, graph.order_index.tolist(), "journal")
    return {name: float(stream) for name, stream in zip(graph.names, found, strict=True)}


def _streams(name: str, _run: Run) -> Values:
    graph, cluster = network(name), ss.Cluster.preset(NETWORKS[name][1])
    return {framework: float(planned(graph, cluster, framework).n_streams) for framework in (OPARA, NIMBLE)}


def _streams_of_bert(run: Run) -> Values:
    streams = _streams("BERT", run)
    return {"difference": streams[OPARA] - streams[NIMBLE], **streams}


@cache
def _allocations(run: Run) -> Mapping[str, tuple[float, float]]:
    """Return the wall times in ms of Opara's and of Nimble's allocation by network."""
    names = ("BERT", "GoogLeNet", "NASNet", "Inception-v3", "T5")
    return {name: _allocation_ms(network(name), run, "reuse") for name in names}


def _allocation_times(run: Run, unit: str = "") -> Values:
    times = _allocations(run).items()
    return {f"{name} ({way}{unit})": ms for name, both in times for way, ms in zip((OPARA, NIMBLE), both, strict=True)}


def _allocation_ratios(run: Run) -> Values:
    """Return by how much longer Nimble's allocation takes than Opara's, and both in ms."""
    ratios = {name: nimble / opara for name, (opara, nimble) in _allocations(run).items()}
    return {**ratios, **_allocation_times(run, ", ms")}


def _exponents(run: Run) -> Values:
    """Return the slopes of wall time over operators, both as logarithms, on random layered graphs."""
    sizes = _SIZES[:2] if run.quick else _SIZES
    graphs = [workloads.load("random:layered", n_ops=n, n_layers=n // 14, seed=0) for n in sizes]
    times = np.log([_allocation_ms(graph, run, "chains") for graph in graphs])
    slopes = np.polyfit(np.log(sizes), times, 1)[0]
    return dict(zip((OPARA, NIMBLE), slopes.tolist(), strict=True))


def _allocation_ms(graph: ss.OpGraph, run: Run, streams: str) -> tuple[float, float]:
    """Return the shortest wall times in ms of Opara's and of Nimble's allocation of a graph, which makes `streams`."""
    order, repeats = graph.order_index.tolist(), 1 if run.quick else 7

    def shortest(call: Callable[[], object]) -> float:
        call()  # the graph is made once and kept
        return min(timeit.repeat(call, number=1, repeat=repeats)) * SECOND / MS

    opara = shortest(lambda: allocate_streams(graph, order, "journal"))
    return opara, shortest(lambda: assign_streams(graph, streams))


# Inception-v3 over batches, Fig. 8 and 9


def _images(_run: Run) -> Values:
    """Return images a second."""
    points = [(framework, b) for framework in (GRAPH, NIMBLE, OPARA) for b in _BATCHES_8]
    return {f"{way} ({b})": SECOND / MS * b / ran("Inception-v3", way, batch=b).ms for way, b in points}


_fig_8_graph = _by_batch("Inception-v3", _BATCHES_8, GRAPH)
_fig_9_graph = _by_batch("Inception-v3", _BATCHES_9, GRAPH, gpu=_A100)

MEASURES: Final[Measures] = {
    "opara-fig1-order": _fig_1,
    "opara-fig2-gain": _gains_by_queues,
    "opara-fig2-sign": _gains,
    "opara-fig2-falls": _gains,
    "opara-fig2-latency": _latencies,
    "opara-fig2-a100": lambda _: {"": speedup("GoogLeNet", DEPTH_FIRST, gpu=_A100)},
    "opara-fig3-overlap": _overlap,
    "opara-fig5a-graph": _over_graph,
    "opara-fig5a-graph-order": lambda _: _each(speedup, over=GRAPH),
    "opara-fig5a-nimble": _over_nimble,
    "opara-fig5a-bert": lambda _: {"BERT": speedup("BERT", NIMBLE)},
    "opara-fig5a-nimble-graph": lambda _: _each(speedup, over=GRAPH, framework=NIMBLE),
    "opara-text-most": lambda _: {
        f"over {framework}": max(_each(speedup, over=framework).values()) for framework in (GRAPH, NIMBLE)
    },
    "opara-readme": lambda _: {"": speedup("GoogLeNet", GRAPH)},
    **{f"opara-fig5b-{name.lower()}": partial(_efficiencies, name) for name in NETWORKS},
    "opara-fig5b-percent": lambda _: _each_of_both(_efficiency),
    "opara-fig5b-networks": lambda _: _each(_efficiency, framework=OPARA),
    "opara-fig5b-gain": lambda _: _each(lambda name: _efficiency(name, OPARA) / _efficiency(name, GRAPH)),
    "opara-fig5b-memory": lambda _: _each(lambda name: _megabytes(name, OPARA) / _megabytes(name, GRAPH)),
    "opara-fig5b-megabytes": lambda _: _each_of_both(_megabytes),
    "opara-2023-fig5a": _conference,
    "opara-example": _streams_of_example,
    "opara-streams-googlenet": partial(_streams, "GoogLeNet"),
    "opara-streams-t5": partial(_streams, "T5"),
    "opara-streams-bert": _streams_of_bert,
    "opara-fig7-t5": lambda _: {"": speedup("T5", NIMBLE)},
    "opara-table1-ratio": _allocation_ratios,
    "opara-table1-order": _allocation_times,
    "opara-table1-growth": _exponents,
    "opara-fig8-graph": _fig_8_graph,
    "opara-fig8-falls": _fig_8_graph,
    "opara-fig8-nimble": _by_batch("Inception-v3", _BATCHES_8, NIMBLE),
    "opara-fig8-images": _images,
    "opara-fig9-graph": _fig_9_graph,
    "opara-fig9-falls": _fig_9_graph,
    "opara-fig9-nimble": _by_batch("Inception-v3", _BATCHES_9, NIMBLE, gpu=_A100),
    "opara-2023-fig8": _by_batch("Inception-v3", _BATCHES, GRAPH, CONFERENCE, _A100),
}
