"""What schedulers share: adjacency and ways as arrays, and schedules of one device or of others."""

from collections.abc import Iterable, Mapping, Sequence
from graphlib import TopologicalSorter
from itertools import pairwise
from math import isfinite
from typing import Any

import numpy as np
import numpy.typing as npt

from simsched.base.errors import SchedulerError
from simsched.model import Cluster, CostModel, OpGraph, Schedule, operator_times
from simsched.model.graph.columns import Floats, Indices, Ints, distinct


def require_finite(scheduler: str, makespan: float) -> float:
    """Return a makespan in us; refuse one that sums of the times given have made infinite."""
    if not isfinite(makespan):
        raise SchedulerError(
            f"{scheduler}: the times of operators and transfers add up to more than a float holds; give shorter ones"
        )
    return makespan


def ways(cluster: Cluster) -> tuple[Floats, Floats]:
    """Return latency in us and bytes per us from each device to each other one, shape (n_devices, n_devices) each.

    Without links both are infinite, so that nothing ever gets there.
    """
    n = len(cluster)
    src, dst = np.indices((n, n)).reshape(2, -1)
    found = cluster.routes(src, dst)
    rate = np.minimum(found.bandwidth, np.array([device.copy_rate for device in cluster.devices])[src])
    return found.latency.reshape(n, n), np.where(found.known, rate, np.inf).reshape(n, n)


def place_of(order: npt.NDArray[Any]) -> Ints:
    """Return the place of each operator in an order of all."""
    found = np.empty(len(order), np.int64)
    found[order] = np.arange(len(order))
    return found


def by_priority(graph: OpGraph, priority: Floats) -> Indices:
    """Return operators by falling priority, equal ones in topological order, shape (n_ops,)."""
    return graph.order_index[np.argsort(-priority[graph.order_index], kind="stable")]


def readers(graph: OpGraph) -> list[list[int]]:
    """Return the consumers of each operator in graph order, each once."""
    return _others(*graph.outgoing, graph.dst)


def sources(graph: OpGraph) -> list[list[int]]:
    """Return the producers that each operator reads from, in graph order, each once."""
    return _others(*graph.incoming, graph.src)


def turns(graph: OpGraph) -> TopologicalSorter[int]:
    """Return what gives the operators that are ready, one after the other, and is told of those that are done."""
    found = TopologicalSorter(dict(enumerate(sources(graph))))
    found.prepare()
    return found


def _others(ptr: Ints, edges: Indices, ends: Indices) -> list[list[int]]:
    others = ends[edges].tolist()
    return [sorted(set(others[a:b])) for a, b in pairwise(ptr.tolist())]


def reduced(n: int, edges: Iterable[tuple[int, int]]) -> tuple[list[list[int]], list[int]]:
    """Return the transitive reduction of a DAG that is numbered topologically, and its closure.

    Of each vertex its consumers, ascending; and as bits itself and all that it leads to, v by bit n - 1 - v, so that
    the masks of later vertices are shorter.
    """
    children: list[list[int]] = [[] for _ in range(n)]
    for u, v in edges:
        children[u].append(v)
    closed = [0] * n
    for u in range(n - 1, -1, -1):
        row, leads = children[u], 0
        if len(row) == 1:
            leads = closed[row[0]]
        elif row:
            kept = []
            for v in sorted(row):  # only an earlier consumer leads to a later one
                if not leads >> (n - 1 - v) & 1:
                    kept.append(v)
                    leads |= closed[v]
            children[u] = kept
        closed[u] = leads | 1 << (n - 1 - u)
    return children, closed


def captured(
    graph: OpGraph,
    cluster: Cluster,
    cost: CostModel,
    order: Sequence[int],
    streams: Sequence[int],
    *,
    scheduler: str,
    events: str,
    search: Mapping[str, Any],
) -> Schedule:
    """Return the schedule of a captured graph on the first device.

    Parameters
    ----------
    order
        Operators in launch order, a topological one.
    streams
        Of each operator, in graph order.
    search
        What is said of the search; ``"streams"`` and ``"waits"`` are added: streams in use, and distinct pairs of a
        consumer and a producer that are on two of them.

    Raises
    ------
    SchedulerError
        If the estimate is more than a float holds.

    Notes
    -----
    The estimate is the list evaluation: an operator starts when the one before it on its stream and all that it reads
    from are over, without contention, launches and waits. O(V + E log E).
    """
    device = cluster.devices[0]
    stream = np.asarray(streams, np.int64)
    crossing = stream[graph.src] != stream[graph.dst]
    pairs = distinct(graph.src[crossing].astype(np.int64) * len(graph) + graph.dst[crossing])
    makespan = _makespan(graph, operator_times(graph, device, cost).tolist(), order, streams)
    return Schedule.from_columns(
        graph, order, [device.name], stream=stream[np.asarray(order)], execution="graph", events=events,
        estimate=require_finite(scheduler, makespan), scheduler=scheduler,
        search={**search, "streams": len(set(streams)), "waits": len(pairs)},
    )  # fmt: skip


def _makespan(graph: OpGraph, times: list[float], order: Sequence[int], streams: Sequence[int]) -> float:
    """Return the latest finish in us if nothing but streams and dependencies holds operators up."""
    ptr, edges = graph.incoming
    bounds, producers = ptr.tolist(), graph.src[edges].tolist()
    finish = [0.0] * len(graph)
    free = [0.0] * (max(streams) + 1)
    for v in order:
        start = free[streams[v]]
        for p in producers[bounds[v] : bounds[v + 1]]:
            start = max(start, finish[p])
        finish[v] = free[streams[v]] = start + times[v]
    return max(finish)
