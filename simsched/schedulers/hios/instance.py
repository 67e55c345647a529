"""A graph on a cluster as HIOS sees it, by columns for machine code."""

from typing import Any

import numpy as np
import numpy.typing as npt

from simsched.model.cluster import Cluster
from simsched.model.costmodel import CostModel, times_by_device
from simsched.model.graph import OpGraph
from simsched.model.graph.columns import Floats, Ints
from simsched.model.graph.ordering import grouped
from simsched.model.graph.structure import longest_from
from simsched.schedulers.hios.placement import NONE, Edge, Mapping, Operator, Step
from simsched.schedulers.listing import linked_devices

Small = npt.NDArray[np.int32]


class Instance:
    """Operators by falling priority, their times on each device, and what it takes to move their tensors.

    Parameters
    ----------
    graph, cluster, cost
        As a scheduler has them.

    Notes
    -----
    Devices to or from which no links lead are left out, in the cluster's order, unless every edge has an
    exact `transfer`. The priority of an operator is the longest path from it to an output, with the
    mean time over devices and the mean transfer over pairs of them; equal ones keep the topological order.
    """

    def __init__(self, graph: OpGraph, cluster: Cluster, cost: CostModel) -> None:
        self.graph, self.cluster = graph, cluster
        exact = graph.edge_transfer
        self.devices = _linked_devices(cluster, bool(np.isnan(exact).any()))  # positions in the cluster
        by_device = times_by_device(graph, cluster, cost)
        times = np.stack([by_device[d] for d in self.devices])  # (n_devices, n_ops)
        self._latency, self._bandwidth = _links(cluster, self.devices)
        self._transfer, mean_transfer = self._transfers(exact, graph.edge_nbytes)
        with np.errstate(over="ignore"):  # the makespan is refused then
            mean_time = times.mean(axis=0) if len(times) > 1 and (times != times[0]).any() else times[0]
            rank = longest_from(graph, mean_time, mean_transfer)
        topological = graph.order_index
        self.order = topological[np.argsort(-rank[topological], kind="stable")]  # operators by falling priority
        number = np.empty(len(graph), np.int32)
        number[self.order] = np.arange(len(graph), dtype=np.int32)
        self._src, self._dst = number[graph.src], number[graph.dst]
        self.times = np.ascontiguousarray(times[:, self.order])  # (n_devices, n_ops), by priority
        self._mean_time = mean_time[self.order]
        self._mean_transfer = mean_transfer

    def _transfers(self, exact: Floats, nbytes: Floats) -> tuple[Floats, Floats]:
        """Return the us of each edge, -1 where they depend on the devices, and the mean over pairs of devices."""
        n = len(self.devices)
        if n == 1:
            return (np.zeros(len(exact)),) * 2
        apart = ~np.eye(n, dtype=np.bool_)
        known = ~np.isnan(exact)
        if known.all():
            return (np.array(exact),) * 2
        latency, bandwidth = self._latency[apart], self._bandwidth[apart]
        if (latency == latency[0]).all() and (bandwidth == bandwidth[0]).all():
            return (np.where(known, exact, latency[0] + nbytes / bandwidth[0]),) * 2
        mean = latency.mean() + nbytes * (1.0 / bandwidth).mean()
        return np.where(known, exact, -1.0), np.where(known, exact, mean)

    def mapping(self, *, outputs: bool = False, **numbers: int) -> Mapping:
        """Return a table of operators that are not mapped yet, with edges by producer if asked for, and `numbers`."""
        n = len(self.graph)
        in_ptr, inputs = self._edges(self._dst, self._src)
        by_producer = self._edges(self._src, self._dst) if outputs else (None, None)
        ops, steps = np.zeros(n, Operator.dtype), np.zeros(n, Step.dtype)
        ops["device"], steps["mean_us"], steps["n_inputs"] = NONE, self._mean_time, np.diff(in_ptr)
        count = np.arange(n, dtype=np.int32)
        given = np.empty(n, np.int32)
        given[self.order] = count
        return Mapping(
            **numbers,
            n_ops=n,
            n_devices=len(self.devices),
            ops=ops,
            steps=steps,
            in_ptr=in_ptr,
            inputs=inputs,
            out_ptr=by_producer[0],
            outputs=by_producer[1],
            time=self.times,
            latency=self._latency,
            bandwidth=self._bandwidth,
            listed=count,
            open=count.copy(),
            given=given,
        )

    def _edges(self, ends: Small, others: Small) -> tuple[Ints, npt.NDArray[Any]]:
        """Return the edges grouped by one of their ends, and where each group begins."""
        ptr, edges = grouped(ends, len(self.graph))
        rows = np.zeros(len(edges), Edge.dtype)
        rows["us"], rows["mean_us"] = self._transfer[edges], self._mean_transfer[edges]
        rows["nbytes"], rows["op"] = self.graph.edge_nbytes[edges], others[edges]
        return ptr, rows

    def placed_edges(self, number: Small, device: Small) -> tuple[Small, Small, Floats]:
        """Return the ends of the edges under other numbers, and their us between the devices of those operators."""
        src, dst = number[self._src], number[self._dst]
        a, b = device[src], device[dst]
        us = self._transfer.copy()
        unknown = np.flatnonzero(us < 0)
        on = (a[unknown], b[unknown])
        with np.errstate(invalid="ignore"):
            us[unknown] = self._latency[on] + self.graph.edge_nbytes[unknown] / self._bandwidth[on]
        us[a == b] = 0.0
        return src, dst, us


def _linked_devices(cluster: Cluster, needs_links: bool) -> list[int]:
    """Return the devices to use: where transfers need links, some between any two of which links lead."""
    n = len(cluster)
    if not needs_links or n == 1:
        return list(range(n))
    pairs = np.arange(n)
    known = cluster.routes(np.repeat(pairs, n), np.tile(pairs, n)).known.reshape(n, n)
    return list(range(n)) if known.all() else linked_devices(known)


def _links(cluster: Cluster, devices: list[int]) -> tuple[Floats, Floats]:
    """Return latency in us and bandwidth in bytes per us from each device to each other, shape (n, n) each."""
    n = len(devices)
    if n == 1:
        return np.zeros((1, 1)), np.ones((1, 1))
    found = cluster.routes(np.repeat(devices, n), np.tile(devices, n))
    rate = np.repeat([cluster.devices[d].copy_rate for d in devices], n)
    return found.latency.reshape(n, n), np.minimum(found.bandwidth, rate).reshape(n, n)
