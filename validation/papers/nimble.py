"""Nimble's claims: NeurIPS 2020, arXiv:2012.02732, its released code, and measurements of a user."""

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import combinations, pairwise
from typing import Final

import simsched as ss
import workloads
from validation.papers.claims import Measures, Run, Values

_NETWORKS: Final = {
    "GoogLeNet": "googlenet",
    "Inception-v3": "inception_v3",
    "ResNet-50": "resnet50",
    "SqueezeNet 1.1": "squeezenet1_1",
    "DenseNet-121": "densenet121",
}
_TURING: Final = "rtx2080super"


@cache
def _graph(name: str) -> ss.OpGraph:
    return workloads.load(_NETWORKS[name], granularity="operator")


@cache
def _plan(name: str, mode: str) -> ss.Schedule:
    return ss.schedule(_graph(name), ss.Cluster.preset(_TURING), "nimble", mode=mode)


def _counted(key: str, mode: str) -> Values:
    return {name: float(_plan(name, mode).search[key]) for name in _NETWORKS}


def _multi(_run: Run) -> Values:
    """Return the makespan in one stream over that in Nimble's, both captured, of units as its fusions leave them."""
    cluster, found = ss.Cluster.preset(_TURING), {}
    for name, workload in {"Inception-v3": "inception_v3", "DenseNet": "densenet121"}.items():
        for batch in (1, 8):
            graph = workloads.load(workload, batch=batch)
            single = ss.simulate(ss.schedule(graph, cluster, "sequential").like(execution="graph"), cluster).makespan
            several = ss.simulate(ss.schedule(graph, cluster, "nimble", mode="impl"), cluster).makespan
            found[f"{name} ({batch})"] = single / several
    return found


def fewest_syncs(graph: ss.OpGraph) -> int:
    """Return by trial the fewest waits with which all that can run at once may, and nothing runs too early.

    Every partition into streams whose operators follow from each other, and every set of edges to wait for: streams and
    waits together must lead along each edge. For a handful of operators.
    """
    edges = list(dict.fromkeys(zip(graph.src.tolist(), graph.dst.tolist(), strict=True)))
    fewest = len(edges)
    for streams in _partitions(graph.order_index.tolist(), _closure(edges)):
        in_order = [pair for stream in streams for pair in pairwise(stream)]
        for count in range(fewest):
            if any(_closure([*in_order, *waits]).issuperset(edges) for waits in combinations(edges, count)):
                fewest = count
                break
    return fewest


def _partitions(order: list[int], leads: set[tuple[int, int]]) -> Iterator[list[list[int]]]:
    """Yield every partition into streams in which each operator leads to the next."""
    if not order:
        yield []
        return
    *earlier, last = order
    for streams in _partitions(earlier, leads):
        yield [*streams, [last]]
        for i, stream in enumerate(streams):
            if (stream[-1], last) in leads:
                yield [*streams[:i], [*stream, last], *streams[i + 1 :]]


def _closure(edges: Sequence[tuple[int, int]]) -> set[tuple[int, int]]:
    """Return all pairs of vertices of which one leads to the other."""
    found = set(edges)
    while more := {(a, d) for a, b in found for c, d in edges if b == c} - found:
        found |= more
    return found


def _theorem(run: Run) -> Values:
    """Return by how much the plan's waits differ at most from the fewest by trial, over random graphs."""
    graphs = [workloads.load("random:erdos-renyi", n_ops=6, seed=seed) for seed in range(2 if run.quick else 20)]
    plans = [ss.schedule(graph, ss.Cluster.preset(_TURING), "nimble") for graph in graphs]
    off = (abs(plan.search["syncs"] - fewest_syncs(graph)) for graph, plan in zip(graphs, plans, strict=True))
    return {"": float(max(off))}


MEASURES: Final[Measures] = {
    "nimble-theorem": _theorem,
    "nimble-nodes": lambda _: {name: len(_graph(name)) + 2 for name in _NETWORKS},
    "nimble-chains": lambda _: _counted("chains", "paper"),
    "nimble-streams": lambda _: _counted("streams", "impl"),
    "nimble-waits": lambda _: _counted("syncs", "impl"),
    "nimble-syncs": lambda _: _counted("syncs", "paper"),
    "nimble-multi-stream": _multi,
}
