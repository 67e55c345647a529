"""What LIOS's claims are held against: its networks on an RTX 3080, scheduled, simulated and timed."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from statistics import fmean, median
from time import perf_counter
from types import MappingProxyType
from typing import Any, Final

import numpy as np

import simsched as ss
import workloads
from simsched.base.units import MS
from simsched.schedulers.stage_costs import StageFormula
from validation.papers.claims import Run, Values
from validation.published import lios_example

GPU: Final = "rtx3080"
NETWORKS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "SqueezeNet": "squeezenet",
        "Inception-v3": "inception_v3",
        "RandWire": "randwire",
        "NASNet-A": "nasnet_a_large",
    }
)
_SMALL: Final = "SqueezeNet"
CLAIMED_TO_GAIN: Final = tuple(name for name in NETWORKS if name != _SMALL)
ABLATIONS: Final[Mapping[str, str]] = MappingProxyType(
    {"lios-rand1": "the operator", "lios-rand2": "the stream", "lios-rand": "operator and stream"}
)
_STREAMS: Final = 8
_FEWER_WARPS: Final = 4.0  # that fill an SM; the preset's prior is 24
_DEARER: Final = 5.0
_JITTER: Final = 0.02


def example() -> Values:
    """Return what the table of the worked example says of the whole and of v6."""
    cluster = ss.Cluster.preset(GPU).without_overheads()
    trace = ss.simulate(ss.schedule(lios_example(), cluster, "lios", streams=3), cluster)
    one = ss.simulate(ss.schedule(lios_example(), cluster, "sequential"), cluster).makespan
    v6 = next(span for span in trace.spans if span.op == "v6")
    return {"sequential": one, "LIOS": trace.makespan, "v6 starts": v6.start, "v6 ends": v6.end}


def misprint() -> Values:
    """Return when v6 ends, and the sequential time if it took so much less that it ended as printed."""
    given = lios_example()
    shorter = ss.OpGraph(
        [replace(op, time=5.0) if op.name == "v6" else op for op in given.operators], given.edges, given.name
    )
    return {"v6 ends": example()["v6 ends"], "sequential, v6 of 5": float(shorter.time.sum())}


def sizes() -> Values:
    """Return vertices and edges of each network."""
    graphs = {name: _graph(name) for name in NETWORKS}
    found = {f"{name}, V": float(len(graph)) for name, graph in graphs.items()}
    return found | {f"{name}, E": float(len(graph.edges)) for name, graph in graphs.items()}


def latencies() -> Values:
    """Return the makespan of LIOS's schedules in ms."""
    return {name: _makespan(name, "lios") / MS for name in NETWORKS}


def to_inception() -> Values:
    """Return the makespan of LIOS's schedules over that of Inception-v3."""
    found = latencies()
    return {name: ms / found["Inception-v3"] for name, ms in found.items()}


def gains() -> Values:
    """Return the speedup of LIOS over one stream."""
    return _gains(ss.Cluster.preset(GPU))


def range_of_gains() -> Values:
    """Return the least and the greatest speedup where there is said to be one; also with SMs that fewer warps fill."""
    warps = f"{_FEWER_WARPS:g} warps"
    fewer = _gains(ss.Cluster.preset(GPU).replace_devices(saturating_warps=_FEWER_WARPS))
    return _ends(gains()) | {f"{name}, {warps}": value for name, value in _ends(fewer).items()}


def gain_on_squeezenet() -> Values:
    """Return the speedup of LIOS over one stream on SqueezeNet, also with dearer records, waits and hops."""
    cluster = ss.Cluster.preset(GPU)
    device = cluster.devices[0]
    dearer = cluster.replace_devices(
        record=_DEARER * device.record, wait=_DEARER * device.wait, hop=_DEARER * device.hop
    )
    return {_SMALL: _gain(_SMALL, cluster), f"{_SMALL}, events {_DEARER:g} x": _gain(_SMALL, dearer)}


def ahead_of(ablation: str, run: Run) -> Values:
    """Return the mean makespan of draws of an ablation over that of LIOS."""
    return {name: fmean(_drawn(name, ablation, run)) / _makespan(name, "lios") for name in NETWORKS}


def scatter(run: Run) -> Values:
    """Return the standard deviation of makespans of random draws over that of LIOS, each run with jitter."""
    cluster, draws = ss.Cluster.preset(GPU), _draws(run)
    found = {}
    for name in NETWORKS:
        once = [
            _with_jitter(ss.schedule(_graph(name), cluster, "lios-rand", streams=_STREAMS, rng=seed), 1, seed)[0]
            for seed in range(draws)
        ]
        always = _with_jitter(ss.schedule(_graph(name), cluster, "lios", streams=_STREAMS), draws, 0)
        found[name] = float(np.std(once) / np.std(always))
    return found


@cache
def search_ratios(run: Run) -> Values:
    """Return the time of IOS's search over that of LIOS, with stages simulated or by a formula."""
    found = {}
    for name in NETWORKS:
        lios = _seconds(name, "lios", 3 if run.quick else 15, streams=_STREAMS)
        found[name] = _seconds(name, "ios", 1 if run.quick else 3) / lios
        found[f"{name}, formula"] = _seconds(name, "ios", 1 if run.quick else 3, stage_latency=StageFormula()) / lios
    return found


def simulated_search_ratios(run: Run) -> Values:
    """Return the ratios of `search_ratios` with stages simulated."""
    return {name: search_ratios(run)[name] for name in NETWORKS}


def _seconds(name: str, scheduler: str, times: int, **options: Any) -> float:
    """Return the median wall time of scheduling a network, in s; what is compiled is compiled before."""
    cluster, graph = ss.Cluster.preset(GPU), _graph(name)
    ss.schedule(_graph(_SMALL), cluster, scheduler, **options)
    return median(_timed(lambda: ss.schedule(graph, cluster, scheduler, **options)) for _ in range(times))


def _timed(call: Callable[[], object]) -> float:
    start = perf_counter()
    call()
    return perf_counter() - start


def _drawn(name: str, ablation: str, run: Run) -> list[float]:
    """Return the makespans of draws of an ablation, in us."""
    cluster = ss.Cluster.preset(GPU)
    return [
        ss.simulate(ss.schedule(_graph(name), cluster, ablation, streams=_STREAMS, rng=seed), cluster).makespan
        for seed in range(_draws(run))
    ]


def _draws(run: Run) -> int:
    return 5 if run.quick else 20


def _with_jitter(plan: ss.Schedule, n: int, seed: int) -> list[float]:
    cluster = ss.Cluster.preset(GPU)
    found: list[float] = ss.simulate_many(plan, cluster, n, jitter=_JITTER, rng=seed).values.tolist()
    return found


@cache
def _graph(name: str) -> ss.OpGraph:
    return workloads.load(NETWORKS[name], device=GPU)


@cache
def _makespan(name: str, scheduler: str) -> float:
    return _simulated(name, scheduler, ss.Cluster.preset(GPU))


def _gains(cluster: ss.Cluster) -> dict[str, float]:
    return {name: _gain(name, cluster) for name in NETWORKS}


def _gain(name: str, cluster: ss.Cluster) -> float:
    return _simulated(name, "sequential", cluster) / _simulated(name, "lios", cluster)


def _ends(gains: Values) -> dict[str, float]:
    expected = [gains[name] for name in CLAIMED_TO_GAIN]
    return {"least": min(expected), "greatest": max(expected)}


def _simulated(name: str, scheduler: str, cluster: ss.Cluster) -> float:
    """Return the makespan of a schedule in us."""
    options: dict[str, Any] = {"streams": _STREAMS} if scheduler == "lios" else {}
    return ss.simulate(ss.schedule(_graph(name), cluster, scheduler, **options), cluster).makespan
