"""What it takes to run operators on devices, and to move their tensors: what placing them on several rests on."""

from typing import Any

import numpy as np
import numpy.typing as npt

from simsched.base.jit import Column, Row, f8, i4
from simsched.model import Cluster, CostModel, Floats, Indices, Ints, OpGraph, times_by_device
from simsched.model.graph.ordering import grouped
from simsched.model.graph.structure import longest_from
from simsched.schedulers.listing import ways


class Edge(Row):
    """An edge, as one of its ends sees it."""

    us: f8  # between any two devices, -1 where that depends on them
    nbytes: f8
    mean_us: f8  # over pairs of devices
    op: i4  # at the other end


def transfer(edge: Edge, a: int, b: int, n_devices: int, latency: Column[f8], bandwidth: Column[f8]) -> float:
    """Return the us of an edge from a device to another, or to itself."""
    if a == b:
        return 0.0
    if edge.us >= 0.0:
        return edge.us
    return latency[a * n_devices + b] + edge.nbytes / bandwidth[a * n_devices + b]


class Instance:
    """Operators, devices that are linked, and what each of the one takes on each of the other.

    Parameters
    ----------
    graph, cluster, cost
        As a scheduler has them.

    Attributes
    ----------
    devices
        Those that are linked with all before them, by their places in the cluster; all of them if every edge has an
        exact `transfer`.
    times
        Of each device and operator in us, shape (n_devices, n_ops).
    latency, bandwidth
        From each device to each other in us and bytes per us, shape (n_devices, n_devices).
    transfer
        us of each edge between two devices, -1 where they depend on these, shape (n_edges,).
    mean_time, mean_transfer
        Means over devices, shape (n_ops,), and over pairs of devices, shape (n_edges,); of one device nothing is moved.
    """

    def __init__(self, graph: OpGraph, cluster: Cluster, cost: CostModel) -> None:
        self.graph, self.cluster = graph, cluster
        if np.isnan(graph.edge_transfer).any():
            latency, bandwidth = ways(cluster)
            self.devices = _linked_devices(np.isfinite(latency))
        else:  # links are asked nothing
            latency = bandwidth = np.ones((len(cluster), len(cluster)))
            self.devices = list(range(len(cluster)))
        by_device, between = times_by_device(graph, cluster, cost), np.ix_(self.devices, self.devices)
        self.times = times = np.stack([by_device[d] for d in self.devices])
        self.latency, self.bandwidth = latency[between], bandwidth[between]
        self.transfer, self.mean_transfer = self._transfers(graph.edge_transfer, graph.edge_nbytes)
        with np.errstate(over="ignore"):  # the makespan is refused then
            self.mean_time: Floats = times.mean(axis=0) if (times != times[0]).any() else times[0]

    def _transfers(self, exact: Floats, nbytes: Floats) -> tuple[Floats, Floats]:
        n = len(self.devices)
        if n == 1:
            return (np.zeros(len(exact)),) * 2
        apart, known = ~np.eye(n, dtype=np.bool_), ~np.isnan(exact)
        if known.all():
            return (np.array(exact),) * 2
        latency, bandwidth = self.latency[apart], self.bandwidth[apart]
        if (latency == latency[0]).all() and (bandwidth == bandwidth[0]).all():
            return (np.where(known, exact, latency[0] + nbytes / bandwidth[0]),) * 2
        with np.errstate(over="ignore"):
            mean = latency.mean() + nbytes * (1.0 / bandwidth).mean()
        return np.where(known, exact, -1.0), np.where(known, exact, mean)

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
        ptr, edges = grouped(ends, len(self.graph))
        rows = np.zeros(len(edges), Edge.dtype)
        rows["us"], rows["mean_us"] = self.transfer[edges], self.mean_transfer[edges]
        rows["nbytes"], rows["op"] = self.graph.edge_nbytes[edges], others[edges]
        return ptr, rows


def _linked_devices(linked: npt.NDArray[np.bool_]) -> list[int]:
    """Return devices of which any two are linked: the first, and in their order each linked with all before it.

    `linked` says whether links lead from one to another, shape (n_devices, n_devices).
    """
    taken: list[int] = []
    for d in range(len(linked)):
        if linked[d, taken].all() and linked[taken, d].all():
            taken.append(d)
    return taken
