"""LIOS's claims: IEEE Transactions on Services Computing, 2024, doi:10.1109/TSC.2023.3345952; measured on an RTX 3080.

Times belong to the preset "rtx3080", batch 1, eight streams, networks by IOS's units. What rand1, rand2 and rand
choose at random (the operator, the stream, both) is our reading: the text was not at hand.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial
from statistics import fmean, median
from timeit import repeat
from typing import Any, Final

import numpy as np

import simsched as ss
import workloads
from simsched.base.units import MS
from simsched.schedulers.stage_costs import StageFormula
from validation.papers.claims import Measures, Run, Values, drawn_graph

GPU: Final = "rtx3080"
_SMALL, _BASE = "SqueezeNet", "Inception-v3"
NETWORKS: Final[Mapping[str, str]] = {
    _SMALL: "squeezenet",
    _BASE: "inception_v3",
    "RandWire": "randwire",
    "NASNet-A": "nasnet_a_large",
}
_STREAMS: Final = 8
_FEWER_WARPS: Final = 4.0  # that fill an SM; the preset's prior is 24
_DEARER: Final = 5.0
_JITTER: Final = 0.02


def example() -> ss.OpGraph:
    """Return the worked example of Table III; the latency of v6 follows from the sequential time of 73."""
    return drawn_graph("3 5 5 5 8 15 10 7 13 2", "1-2 1-3 1-4 1-5 3-6 4-7 5-8 2-9 6-9 7-9 8-9 9-10")


def _table_3(_run: Run) -> Values:
    """Return the table's values for the whole and for v6."""
    cluster = ss.Cluster.preset(GPU).without_overheads()
    trace = ss.simulate(ss.schedule(example(), cluster, "lios", streams=3), cluster)
    one = ss.simulate(ss.schedule(example(), cluster, "sequential"), cluster).makespan
    start, end = trace.operator_times()["v6"]
    return {"sequential": one, "LIOS": trace.makespan, "v6 starts": start, "v6 ends": end}


def _misprint(run: Run) -> Values:
    """Return when v6 ends, and the sequential time if it took so much less that it ended as printed."""
    shorter = [replace(op, time=5.0) if op.name == "v6" else op for op in example().operators]
    return {"v6 ends": _table_3(run)["v6 ends"], "sequential, v6 of 5": sum(op.time or 0.0 for op in shorter)}


@cache
def _graph(name: str) -> ss.OpGraph:
    return workloads.load(NETWORKS[name])


def _sizes(_run: Run) -> Values:
    """Return vertices and edges of each network."""
    graphs = {name: _graph(name) for name in NETWORKS}
    found = {f"{name}, V": float(len(graph)) for name, graph in graphs.items()}
    return found | {f"{name}, E": float(len(graph.edges)) for name, graph in graphs.items()}


def _plan(name: str, scheduler: str, cluster: ss.Cluster, **options: Any) -> ss.Schedule:
    if scheduler.startswith("lios"):
        options["streams"] = _STREAMS
    return ss.schedule(_graph(name), cluster, scheduler, **options)


def _makespan(name: str, scheduler: str, cluster: ss.Cluster | None = None, **options: Any) -> float:
    """Return the makespan of a schedule in us."""
    cluster = cluster or ss.Cluster.preset(GPU)
    return ss.simulate(_plan(name, scheduler, cluster, **options), cluster).makespan


def _each(value: Callable[[str], float]) -> Values:
    return {name: value(name) for name in NETWORKS}


def _gain(name: str, cluster: ss.Cluster | None = None) -> float:
    """Return the speedup of LIOS over one stream."""
    return _makespan(name, "sequential", cluster) / _makespan(name, "lios", cluster)


def _range_of_gains(_run: Run) -> Values:
    """Return the least and the greatest speedup where there is said to be one; also with SMs that fewer warps fill."""
    fewer = ss.Cluster.preset(GPU).replace_devices(saturating_warps=_FEWER_WARPS)
    found: dict[str, float] = {}
    for suffix, cluster in (("", None), (f", {_FEWER_WARPS:g} warps", fewer)):
        gains = [_gain(name, cluster) for name in NETWORKS if name != _SMALL]
        found |= {f"least{suffix}": min(gains), f"greatest{suffix}": max(gains)}
    return found


def _gain_on_squeezenet(_run: Run) -> Values:
    """Return the speedup of LIOS over one stream, also with dearer records, waits and hops."""
    cluster = ss.Cluster.preset(GPU)
    costs = {name: _DEARER * getattr(cluster.devices[0], name) for name in ("record", "wait", "hop")}
    return {_SMALL: _gain(_SMALL), f"{_SMALL}, events {_DEARER:g} x": _gain(_SMALL, cluster.replace_devices(**costs))}


def _draws(run: Run) -> range:
    return range(5 if run.quick else 20)


def _behind(ablation: str, run: Run) -> Values:
    """Return the mean makespan of draws of an ablation relative to LIOS's."""
    return _each(
        lambda name: fmean(_makespan(name, ablation, rng=seed) for seed in _draws(run)) / _makespan(name, "lios")
    )


def _scatter(run: Run) -> Values:
    """Return the standard deviation of makespans of random draws relative to LIOS's, each run with jitter."""
    cluster = ss.Cluster.preset(GPU)

    def deviation(*runs: tuple[ss.Schedule, int, int]) -> float:
        found = [ss.simulate_many(plan, cluster, n, jitter=_JITTER, rng=seed).values for plan, n, seed in runs]
        return float(np.std(np.concatenate(found)))

    return _each(
        lambda name: (
            deviation(*((_plan(name, "lios-rand", cluster, rng=seed), 1, seed) for seed in _draws(run)))
            / deviation((_plan(name, "lios", cluster), len(_draws(run)), 0))
        )
    )


@cache
def _search_ratios(run: Run) -> Values:
    """Return the time of IOS's search relative to LIOS's, with stages simulated or by a formula."""
    found, times = {}, 1 if run.quick else 3
    for name in NETWORKS:
        lios = _seconds(name, "lios", 3 if run.quick else 15)
        found[name] = _seconds(name, "ios", times) / lios
        found[f"{name}, formula"] = _seconds(name, "ios", times, stage_latency=StageFormula()) / lios
    return found


def _seconds(name: str, scheduler: str, times: int, **options: Any) -> float:
    """Return the median wall time of scheduling a network, in s, without compilation."""
    cluster = ss.Cluster.preset(GPU)
    _plan(_SMALL, scheduler, cluster, **options)
    return median(repeat(lambda: _plan(name, scheduler, cluster, **options), number=1, repeat=times))


def _simulated_ratios(run: Run) -> Values:
    return _each(lambda name: _search_ratios(run)[name])


MEASURES: Final[Measures] = {
    "lios-table3": _table_3,
    "lios-table3-step6": _misprint,
    "lios-table4": _sizes,
    "lios-table5-faster": _simulated_ratios,
    "lios-table5-order": _simulated_ratios,
    "lios-table5-ratio": _search_ratios,
    "lios-table7-order": lambda _: _each(lambda name: _makespan(name, "lios") / MS),
    "lios-table7-ratio": lambda _: _each(lambda name: _makespan(name, "lios") / MS / (_makespan(_BASE, "lios") / MS)),
    "lios-fig7-speedup": _range_of_gains,
    "lios-fig7-gain": lambda _: _each(_gain),
    "lios-fig7-squeezenet": _gain_on_squeezenet,
    "lios-fig7-loses": _gain_on_squeezenet,
    **{f"lios-fig8-{name}": partial(_behind, f"lios-{name}") for name in ("rand1", "rand2", "rand")},
    "lios-fig8-variance": _scatter,
}
