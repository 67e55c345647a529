"""Shared parts of schedulers: times of operators on devices and of transfers, as arrays; streams."""

from collections.abc import Iterable, Mapping, Sequence
from graphlib import TopologicalSorter
from itertools import pairwise
from math import isfinite
from typing import Any

import numpy as np
import numpy.typing as npt

from simsched.base.errors import SchedulerError
from simsched.base.jit import Column, Row, f8, i4, native
from simsched.model import Cluster, CostModel, Floats, Indices, Ints, OpGraph, Schedule, operator_times, times_by_device
from simsched.model.graph.columns import distinct, edges_by_end
from simsched.model.graph.opgraph import longest_from


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
    routes = cluster.routes(src, dst)
    rate = np.minimum(routes.bandwidth, np.array([device.copy_rate for device in cluster.devices])[src])
    return routes.latency.reshape(n, n), np.where(routes.known, rate, np.inf).reshape(n, n)


class EdgeEnd(Row):
    """An edge, as one of its ends sees it."""

    us: f8  # between any two devices, -1 where it depends on them
    nbytes: f8
    mean_us: f8  # over pairs of devices
    op: i4  # at the other end


@native
def transfer(edge: EdgeEnd, a: int, b: int, n_devices: int, latency: Column[f8], bandwidth: Column[f8]) -> float:
    """Return the us of an edge from a device to another, or to itself."""
    if a == b:
        return 0.0
    if edge.us >= 0.0:
        return edge.us
    return latency[a * n_devices + b] + edge.nbytes / bandwidth[a * n_devices + b]


class Instance:
    """Operators, linked devices, and the time of each operator on each device.

    Parameters
    ----------
    graph, cluster, cost
        As a scheduler has them.

    Attributes
    ----------
    devices
        Devices that are linked with all before them, by their indices in the cluster; all devices if every edge has an
        exact `transfer`.
    times
        Times by device and operator in us, shape (n_devices, n_ops).
    latency, bandwidth
        Latency and bandwidth from each device to each other in us and bytes per us, shape (n_devices, n_devices).
    transfer
        us of each edge between two devices, -1 where they depend on these, shape (n_edges,).
    mean_time, mean_transfer
        Means over devices, shape (n_ops,), and over pairs of devices, shape (n_edges,); of one device nothing is moved.
    """

    def __init__(self, graph: OpGraph, cluster: Cluster, cost: CostModel) -> None:
        self.graph = graph
        self.cluster = cluster
        self.devices: list[int] = []
        if np.isnan(graph.edge_transfer).any():
            latency, bandwidth = ways(cluster)
            linked = np.isfinite(latency)
            for d in range(len(cluster)):
                if linked[d, self.devices].all() and linked[self.devices, d].all():
                    self.devices.append(d)
        else:  # links are asked nothing
            latency = bandwidth = np.ones((len(cluster), len(cluster)))
            self.devices = list(range(len(cluster)))
        by_device = times_by_device(graph, cluster, cost)
        between = np.ix_(self.devices, self.devices)
        self.times = times = np.stack([by_device[d] for d in self.devices])
        self.latency = latency[between]
        self.bandwidth = bandwidth[between]
        self.transfer, self.mean_transfer = self._transfers(graph.edge_transfer, graph.edge_nbytes)
        with np.errstate(over="ignore"):  # the makespan is refused then
            if (times != times[0]).any():
                self.mean_time: Floats = times.mean(axis=0)
            else:
                self.mean_time = times[0]

    def _transfers(self, exact: Floats, nbytes: Floats) -> tuple[Floats, Floats]:
        n = len(self.devices)
        if n == 1:
            return (np.zeros(len(exact)),) * 2
        apart = ~np.eye(n, dtype=np.bool_)
        is_exact = ~np.isnan(exact)
        if is_exact.all():
            return (np.array(exact),) * 2
        latency = self.latency[apart]
        bandwidth = self.bandwidth[apart]
        if (latency == latency[0]).all() and (bandwidth == bandwidth[0]).all():
            return (np.where(is_exact, exact, latency[0] + nbytes / bandwidth[0]),) * 2
        with np.errstate(over="ignore"):
            mean = latency.mean() + nbytes * (1.0 / bandwidth).mean()
        return np.where(is_exact, exact, -1.0), np.where(is_exact, exact, mean)

    def upward_rank(self) -> Floats:
        """Return the longest path from each operator to an output in us, of means, shape (n_ops,)."""
        with np.errstate(over="ignore"):
            return longest_from(self.graph, self.mean_time, self.mean_transfer)

    def moving(self, edges: Any, src: Any, dst: Any) -> Floats:
        """Return the us of edges from devices to devices, each with each by numpy's rules."""
        us = self.transfer[edges]
        on_links = self.latency[src, dst] + self.graph.edge_nbytes[edges] / self.bandwidth[src, dst]
        return np.where(src == dst, 0.0, np.where(us < 0, on_links, us))

    def edges(self, ends: Indices, others: Indices) -> tuple[Ints, npt.NDArray[np.void]]:
        """Return the edges grouped by one of their ends, and where each group begins.

        `ends` and `others` are the operators at one end of each edge and at the other, in any numbers.
        """
        ptr, edges = edges_by_end(ends, len(self.graph))
        rows = np.zeros(len(edges), EdgeEnd.dtype)
        rows["us"] = self.transfer[edges]
        rows["mean_us"] = self.mean_transfer[edges]
        rows["nbytes"] = self.graph.edge_nbytes[edges]
        rows["op"] = others[edges]
        return ptr, rows


def place_of(order: npt.NDArray[Any]) -> Ints:
    """Return the place of each operator in an order of all."""
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    return places


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
    """Return an object that yields ready operators, one after the other, and takes the finished ones."""
    sorter = TopologicalSorter(dict(enumerate(sources(graph))))
    sorter.prepare()
    return sorter


def _others(ptr: Ints, edges: Indices, ends: Indices) -> list[list[int]]:
    others = ends[edges].tolist()
    return [sorted(set(others[a:b])) for a, b in pairwise(ptr.tolist())]


def reduce_edges(n: int, edges: Iterable[tuple[int, int]]) -> tuple[list[list[int]], list[int]]:
    """Return the transitive reduction of a DAG that is numbered topologically, and its closure.

    For each vertex its consumers, ascending; and as bits itself and all its descendants, v by bit n - 1 - v, so that
    the masks of later vertices are shorter.
    """
    children: list[list[int]] = [[] for _ in range(n)]
    for u, v in edges:
        children[u].append(v)
    closed = [0] * n
    for u in range(n - 1, -1, -1):
        row = children[u]
        leads = 0
        if len(row) == 1:
            leads = closed[row[0]]
        elif row:
            remaining = []
            for v in sorted(row):  # only an earlier consumer leads to a later one
                if not leads >> (n - 1 - v) & 1:
                    remaining.append(v)
                    leads |= closed[v]
            children[u] = remaining
        closed[u] = leads | 1 << (n - 1 - u)
    return children, closed


def captured_schedule(
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
        Stream of each operator, in graph order.
    search
        Statistics of the search; ``"streams"`` and ``"waits"`` are added: streams in use, and distinct pairs of a
        consumer and a producer on different streams.

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
    times = operator_times(graph, device, cost).tolist()
    ptr, edges = graph.incoming
    bounds = ptr.tolist()
    producers = graph.src[edges].tolist()
    finish = [0.0] * len(graph)
    free = [0.0] * (max(streams) + 1)
    for v in order:
        start = free[streams[v]]
        for p in producers[bounds[v] : bounds[v + 1]]:
            start = max(start, finish[p])
        finish[v] = free[streams[v]] = start + times[v]
    return Schedule.from_columns(
        graph,
        order,
        [device.name],
        stream=stream[np.asarray(order)],
        execution="graph",
        events=events,
        estimate=require_finite(scheduler, max(finish)),
        scheduler=scheduler,
        search={**search, "streams": len(set(streams)), "waits": len(pairs)},
    )
