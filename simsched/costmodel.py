"""How long an operator takes alone: the `CostModel` protocol and the default, a roofline."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Final, Protocol

import numpy as np

from simsched.cluster import WARP, Cluster, Device
from simsched.errors import CostError
from simsched.graph import Kernel, Operator, OpGraph
from simsched.graph.columns import Floats, Indices

# Priors, to be replaced by calibration: what tuned libraries reach of the datasheet rates, the time
# of a kernel that does nothing, and the part of the saturating warps with which they reach it. With
# these, Inception-v3 one operator after the other takes 6.5 ms on a V100, as the IOS authors measured.
COMPUTE_EFFICIENCY: Final = 0.6
MEMORY_EFFICIENCY: Final = 0.8
SHORTEST_KERNEL: Final = 2.0
_FULL_RATE_WARPS: Final = 1 / 3


class CostModel(Protocol):
    """Anything that answers how many us an operator takes alone on a device."""

    def __call__(self, op: Operator, device: Device) -> float:
        """Return a time in us, finite and not negative."""
        ...


def default_cost(op: Operator, device: Device) -> float:
    """Return the operator's own `time`, or where it has none `roofline`, in us."""
    return roofline(op, device) if op.time is None else op.time


def roofline(op: Operator, device: Device) -> float:
    """Estimate the time of an operator alone on a device in us.

    Each kernel takes its share of the flops and the bytes at the slower of two rates: peak FLOP
    rate of the dtype x 0.6, and DRAM bandwidth x 0.8. A grid too small for the device gets a
    proportional part: a kernel with w warps in all reaches ``3 * w / (SMs * saturating_warps)`` of
    both rates, at most all of them. Each kernel adds 2 us.

    >>> op = Operator("copy", nbytes=1.2e9)
    >>> round(roofline(op, Cluster.preset("h200").devices[0]), 1)
    314.5
    """
    total = 0.0
    for kernel in op.kernels or (None,):
        share = 1.0 if kernel is None else kernel.share
        fill = 1.0 if kernel is None else _fill(kernel, device)
        total += SHORTEST_KERNEL + share / fill * max(
            op.flops / (device.peak_rate(op.dtype) * COMPUTE_EFFICIENCY),
            op.nbytes / (device.bandwidth * MEMORY_EFFICIENCY),
        )
    return total


def _fill(kernel: Kernel, device: Device) -> float:
    """Return the part of the device's rates that the grid is large enough for, at most 1."""
    warps = kernel.blocks * -(-kernel.threads // WARP)
    return min(1.0, warps / (device.sms * device.saturating_warps * _FULL_RATE_WARPS))


def rooflines(graph: OpGraph, ops: Indices, device: Device) -> Floats:
    """Return `roofline` of some operators of a graph, shape of `ops`."""
    codes, texts = graph.labels("dtype")
    peak = np.array([device.peak_rate(text or "fp32") for text in texts])[codes[ops]]
    with np.errstate(over="ignore"):
        whole: Floats = np.maximum(
            graph.flops[ops] / (peak * COMPUTE_EFFICIENCY), graph.nbytes[ops] / (device.bandwidth * MEMORY_EFFICIENCY)
        )
        first, n_kernels = graph.kernel_ptr[ops], graph.kernel_ptr[ops + 1] - graph.kernel_ptr[ops]
        if not n_kernels.any():
            whole += SHORTEST_KERNEL
            return whole
        row = np.repeat(np.arange(len(ops)), np.maximum(1, n_kernels))
        k = first[row] + np.arange(len(row)) - np.searchsorted(row, row)
        known = n_kernels[row] > 0
        k = k[known]
        part = np.ones(len(row))  # of the flops and bytes, over that of the rates that the grid reaches
        warps = graph.kernel_blocks[k] * -(-graph.kernel_threads[k] // WARP)
        full = device.sms * device.saturating_warps * _FULL_RATE_WARPS
        part[known] = graph.kernel_share[k] / np.minimum(1.0, warps / full)
        times = np.zeros(len(ops))
        np.add.at(times, row, SHORTEST_KERNEL + part * whole[row])
    return times


def operator_times(graph: OpGraph, device: Device, cost: CostModel | None = None, ops: Indices | None = None) -> Floats:
    """Return the time of operators alone on a device, in us, shape of `ops`; None for all.

    Raises
    ------
    CostError
        If the model answers with NaN, infinity, a negative number or no number at all.
    """
    rows = np.arange(len(graph)) if ops is None else ops
    if cost is None or cost is default_cost:
        times = graph.time[rows]
        unknown = np.flatnonzero(np.isnan(times))
        if len(unknown):
            times[unknown] = rooflines(graph, rows[unknown], device)
        return times
    known = getattr(cost, "operator_times", None)  # a calibration answers for all at once
    if known is not None:
        times = np.array(known(graph, device, rows), np.float64)
        bad = ~((times >= 0) & (times < np.inf))
        if bad.any():
            i = rows[int(np.argmax(bad))]
            raise CostError(f"the cost model gives no time of operator {graph.names[i]!r} on {device.model}")
        return times
    times = np.empty(len(rows))
    for k, i in enumerate(rows.tolist()):
        answer = cost(graph.operator(i), device)
        try:
            times[k] = answer
        except (TypeError, ValueError):
            times[k] = np.nan
        if not 0 <= times[k] < np.inf:
            raise CostError(f"the cost model says operator {graph.names[i]!r} takes {answer!r} us on {device.model}")
    return times


def times_by_device(graph: OpGraph, cluster: Cluster, cost: CostModel | None = None) -> list[Floats]:
    """Return `operator_times` for each device of the cluster; with the default model, equal devices share one array."""
    if cost is not None and cost is not default_cost:
        return [operator_times(graph, device, cost) for device in cluster.devices]
    known = [operator_times(graph, device) for device in cluster.kinds]
    return [known[kind] for kind in cluster.kind.tolist()]


def placed_times(
    graph: OpGraph, cluster: Cluster, ops: Indices, device: Indices, cost: CostModel | None = None
) -> Floats:
    """Return the time in us of each of `ops` alone on the device that stands beside it, by position in the cluster.

    A cost model is asked once for each operator and device that occur together; see `operator_times`.
    """
    if cost is not None and cost is not default_cost:
        times = np.empty(len(ops))
        for d, rows in _by_value(device):
            asked, back = np.unique(ops[rows], return_inverse=True)
            times[rows] = operator_times(graph, cluster.devices[d], cost, asked)[back]
        return times
    times = graph.time[ops]
    unknown = np.flatnonzero(np.isnan(times))
    if len(unknown):
        for kind, among in _by_value(cluster.kind[device[unknown]]):
            rows = unknown[among]
            times[rows] = rooflines(graph, ops[rows], cluster.kinds[kind])
    return times


def _by_value(values: Indices) -> Iterator[tuple[int, Indices]]:
    """Yield each value and the rows that hold it."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    starts = [0, *(np.flatnonzero(ordered[1:] != ordered[:-1]) + 1).tolist(), len(values)]
    for start, end in pairwise(starts):
        yield int(ordered[start]), order[start:end]


def transfer_times(graph: OpGraph, cluster: Cluster) -> Floats:
    """Return the time of every edge between the first two devices, uncontended, in us, shape (n_edges,).

    Schedulers that know one transfer time per edge use it; zeros if there is only one device.
    """
    if len(cluster) == 1:
        return np.zeros(len(graph.src))
    times = np.array(graph.edge_transfer)
    unknown = np.isnan(times)
    if unknown.any():
        first, second = cluster.devices[0], cluster.devices[1]
        route = cluster.route(first.name, second.name)
        times[unknown] = route.latency + graph.edge_nbytes[unknown] / min(route.bandwidth, first.copy_rate)
    return times
