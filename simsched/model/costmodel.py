"""How long an operator takes alone: the `CostModel` protocol, the default, a roofline, and what was measured."""

from dataclasses import replace
from typing import Any, Final, NamedTuple, Protocol, TypeVar, cast, runtime_checkable

import numpy as np

from simsched.base.errors import CostError
from simsched.model.cluster import PRIORS, WARP, Cluster, Device
from simsched.model.graph import Operator, OpGraph
from simsched.model.graph.columns import Floats, Indices


class Rates(NamedTuple):
    """What the roofline takes for granted: see `PRIORS`, under these names.

    What tuned libraries reach of the datasheet rates, the time of a kernel that does nothing, and how many times the
    warps that keep issue slots busy it takes to keep DRAM busy.
    """

    compute_efficiency: float = PRIORS["compute_efficiency"].value
    tensor_efficiency: float = PRIORS["tensor_efficiency"].value
    memory_efficiency: float = PRIORS["memory_efficiency"].value
    shortest_kernel: float = PRIORS["shortest_kernel"].value
    dram_warps: float = PRIORS["dram_warps"].value


USUAL: Final = Rates()
Subject = TypeVar("Subject")


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

    Each kernel takes its share of the flops and the bytes at the slower of two rates: peak FLOP rate of the dtype x 0.9
    (x 0.6 if it is above that of fp32: tensor cores), and DRAM bandwidth x 0.8. A grid too small for the device gets
    a part in proportion: w warps in all reach ``w / (SMs * saturating_warps)`` of the FLOP rate and
    ``w / (2.5 * SMs * saturating_warps)`` of the bandwidth, at most all of them, and of the FLOP rate the
    `efficiency` of the kernel. Each kernel adds 2 us.

    >>> op = Operator("copy", nbytes=1.2e9)
    >>> round(roofline(op, Cluster.preset("h200").devices[0]), 1)
    314.5
    """
    compute, memory = op.flops / _flop_rate(device, op.dtype), op.nbytes / (device.bandwidth * USUAL.memory_efficiency)
    if not op.kernels:
        return USUAL.shortest_kernel + max(compute, memory)
    total, full = 0.0, device.sms * device.saturating_warps
    for kernel in op.kernels:
        part = kernel.blocks * -(-kernel.threads // WARP) / full
        total += USUAL.shortest_kernel + kernel.share * max(
            compute / kernel.efficiency / min(1.0, part), memory / min(1.0, part / USUAL.dram_warps)
        )
    return total


def _flop_rate(device: Device, dtype: str, rates: Rates = USUAL) -> float:
    """Return the FLOP per us that tuned libraries reach where the grid is large enough."""
    peak = device.peak_rate(dtype)
    return peak * (rates.tensor_efficiency if peak > device.peak["fp32"] else rates.compute_efficiency)


def rooflines(graph: OpGraph, ops: Indices, device: Device, rates: Rates = USUAL) -> Floats:
    """Return `roofline` of some operators of a graph, shape of `ops`, at the usual rates or at others."""
    codes, texts = graph.labels("dtype")
    rate = np.array([_flop_rate(device, text or "fp32", rates) for text in texts])[codes[ops]]
    with np.errstate(over="ignore"):
        compute: Floats = graph.flops[ops] / rate
        memory: Floats = graph.nbytes[ops] / (device.bandwidth * rates.memory_efficiency)
        first, n_kernels = graph.kernel_ptr[ops], graph.kernel_ptr[ops + 1] - graph.kernel_ptr[ops]
        row = np.repeat(np.arange(len(ops)), np.maximum(1, n_kernels))
        k = first[row] + np.arange(len(row)) - np.searchsorted(row, row)
        known = n_kernels[row] > 0
        k = k[known]
        compute, memory = compute[row], memory[row]
        share, part = np.ones(len(row)), np.full(len(row), np.inf)  # of the warps that fill the device
        share[known] = graph.kernel_share[k]
        compute[known] /= graph.kernel_efficiency[k]
        warps = graph.kernel_blocks[k] * -(-graph.kernel_threads[k] // WARP)
        part[known] = warps / (device.sms * device.saturating_warps)
        times = np.zeros(len(ops))
        longer = np.maximum(compute / np.minimum(1.0, part), memory / np.minimum(1.0, part / rates.dram_warps))
        np.add.at(times, row, rates.shortest_kernel + share * longer)
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
    answers = known(graph, device, rows) if known else [_number(cost(graph.operator(i), device)) for i in rows.tolist()]
    times = np.array(answers, np.float64)
    bad = ~((times >= 0) & (times < np.inf))
    if bad.any():
        k = int(np.argmax(bad))
        raise CostError(f"the cost model says operator {graph.names[rows[k]]!r} takes {times[k]} us on {device.model}")
    return times


def _number(answer: Any) -> float:
    try:
        return float(answer)
    except (TypeError, ValueError):
        return float("nan")


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
    times = graph.time[ops] if cost is None or cost is default_cost else np.full(len(ops), np.nan)
    if not np.isnan(times).any():  # nearly always in studies, where it is most of the work
        return times
    order = np.argsort(device, kind="stable")
    used, first = np.unique(device[order], return_index=True)
    for d, rows in zip(used.tolist(), np.split(order, first[1:]), strict=True):
        asked, back = np.unique(ops[rows], return_inverse=True)
        times[rows] = operator_times(graph, cluster.devices[d], cost, asked)[back]
    return times


@runtime_checkable
class Calibrated(CostModel, Protocol):
    """A cluster whose parameters were fitted, with the operators that were measured on it: a `Calibration`.

    It is a cost model, too: where nothing else is said, operators take the times that it knows.
    """

    @property
    def cluster(self) -> Cluster:
        """The cluster with its fitted parameters."""
        ...

    def apply(self, graph: OpGraph) -> OpGraph:
        """Return the graph with the times and kernels that were measured; what `apply` returned, as it is."""
        ...

    def operator_times(self, graph: OpGraph, device: Device, ops: Indices) -> Floats:
        """Return the times in us of some operators of a graph alone on a device, shape of `ops`."""
        ...


Target = Cluster | Calibrated


def bare(target: Target) -> Cluster:
    """Return the cluster itself."""
    return target if isinstance(target, Cluster) else target.cluster


def with_cluster(target: Target, cluster: Cluster) -> Target:
    """Return a target with another cluster; what is known of operators stays."""
    return cluster if isinstance(target, Cluster) else cast(Target, replace(cast(Any, target), cluster=cluster))


def upon(target: Target, subject: Subject) -> tuple[Subject, Cluster]:
    """Return a graph, or what runs one, as measured on a target, and the cluster itself.

    On a plain cluster that is the subject as it is.

    Raises
    ------
    ProgramError
        If a program launches other numbers of kernels than were measured.
    """
    if isinstance(target, Cluster):
        return subject, target
    runs: Any = subject
    is_graph = isinstance(subject, OpGraph)
    graph = target.apply(runs if is_graph else runs.graph)
    return cast(Subject, graph if is_graph else runs.over(graph)), target.cluster
