"""Time of an operator alone: the `CostModel` protocol, the default, a roofline, and measured times."""

from dataclasses import replace
from typing import Any, Final, NamedTuple, Protocol, TypeVar, cast, runtime_checkable

import numpy as np

from simsched.base.errors import CostError
from simsched.base.numeric import sum_in_order
from simsched.model.cluster import Cluster, Device
from simsched.model.exchange import exchange, exchange_on
from simsched.model.graph import Operator, OpGraph
from simsched.model.graph.columns import Floats, Indices
from simsched.model.launches import kernels_on, launches_of, terms_on


class Rates(NamedTuple):
    """Factors of the terms of times alone that are not sure: see `PRIORS`, under these names."""

    start_factor: float = 1.0
    chain_factor: float = 1.0
    compute_factor: float = 1.0
    tensor_factor: float = 1.0
    memory_factor: float = 1.0


USUAL: Final = Rates()
Subject = TypeVar("Subject")


class CostModel(Protocol):
    """A function that returns the us that an operator takes alone on a device."""

    def __call__(self, op: Operator, device: Device) -> float:
        """Return a time in us, finite and not negative."""
        ...


def default_cost(op: Operator, device: Device) -> float:
    """Return the operator's own `time`, or where it has none `roofline`, in us."""
    if op.time is None:
        return roofline(op, device)
    return op.time


def roofline(op: Operator, device: Device) -> float:
    """Estimate the time of an operator alone on a device in us, whatever its own `time` is.

    Each kernel takes ``start + max(chain, compute, memory) + tail``: the time to start and end it; the longest of the
    sequence of its blocks one after the other, its whole tiles and whole blocks on each SM at the peak rate, and its
    bytes at the rate of DRAM or of the L2 cache; and the time to fill each wave of blocks. Kernels that were measured
    or given are used; for works the libraries of the device choose kernels. Parameters are found in the L2 cache if the
    whole model's take at most 0.6 of it. `simsched.model.libraries` has the rules. A collective takes the time that the
    links of the device's cluster give it (`exchange_on`), as if it were symmetric.

    >>> op = Operator("copy", nbytes=1.2e9)
    >>> round(roofline(op, Cluster.preset("h200").devices[0]), 1)
    335.4
    """
    if op.collective is not None:
        return exchange_on(op.collective, device).time
    return sum_in_order(launch.time for launch in launches_of(op, device))


def rooflines(graph: OpGraph, ops: Indices, device: Device, rates: Rates = USUAL) -> Floats:
    """Return `roofline` of some operators of a graph, shape of `ops`, at the usual rates or at others."""
    terms = terms_on(graph, device)
    op = kernels_on(graph, device).op
    with np.errstate(over="ignore"):
        compute = terms.compute * np.where(terms.tensor, rates.tensor_factor, rates.compute_factor)
        longest = np.maximum(
            np.maximum(terms.chained * rates.chain_factor, compute), terms.memory * rates.memory_factor
        )
        times = terms.start * rates.start_factor + longest + terms.tail
        sums: Floats = np.asarray(np.bincount(op, times, len(graph)), np.float64)
    if graph.meetings:
        codes, collectives = graph.labels("collective")
        for code, collective in enumerate(collectives):
            if collective is not None and (codes[ops] == code).any():
                sums[codes == code] = exchange_on(collective, device).time
    return sums[ops]


def operator_times(graph: OpGraph, device: Device, cost: CostModel | None = None, ops: Indices | None = None) -> Floats:
    """Return the time of operators alone on a device, in us, shape of `ops`; None for all.

    Raises
    ------
    CostError
        If the model answers with NaN, infinity, a negative number or no number at all.
    """
    if ops is None:
        rows = np.arange(len(graph))
    else:
        rows = ops
    if cost is None or cost is default_cost:
        times = graph.time[rows]
        unknown = np.flatnonzero(np.isnan(times))
        if len(unknown):
            times[unknown] = rooflines(graph, rows[unknown], device)
        return times
    times_of = getattr(cost, "operator_times", None)  # a calibration answers for all at once
    if times_of:
        answers = times_of(graph, device, rows)
    else:
        answers = [_number(cost(graph.operator(i), device)) for i in rows.tolist()]
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
    times = [operator_times(graph, device) for device in cluster.kinds]
    return [times[kind] for kind in cluster.kind.tolist()]


def placed_times(
    graph: OpGraph, cluster: Cluster, ops: Indices, device: Indices, cost: CostModel | None = None
) -> Floats:
    """Return the time in us of each of `ops` alone on its device, given by position in the cluster.

    A cost model is asked once for each operator and device that occur together; see `operator_times`.
    """
    if cost is None or cost is default_cost:
        times = graph.time[ops]
    else:
        times = np.full(len(ops), np.nan)
    if not np.isnan(times).any():  # nearly always in studies, where it is most of the work
        return times
    order = np.argsort(device, kind="stable")
    used, first = np.unique(device[order], return_index=True)
    for d, rows in zip(used.tolist(), np.split(order, first[1:]), strict=True):
        distinct_ops, back = np.unique(ops[rows], return_inverse=True)
        times[rows] = operator_times(graph, cluster.devices[d], cost, distinct_ops)[back]
    if cost is None or cost is default_cost:
        home = np.zeros(len(graph), np.int64)
        home[ops] = device
        groups = group_times(graph, cluster, home)[ops]
        times = np.where(np.isnan(groups), times, groups)
    return times


def group_times(graph: OpGraph, cluster: Cluster, home: Indices) -> Floats:
    """Return the times in us of collectives between the devices of their ranks, shape (n_ops,).

    NaN where an operator has a `time`, or is no rank among several.

    Parameters
    ----------
    home
        Position of the device of each operator, shape (n_ops,).
    """
    times_of_groups = np.full(len(graph), np.nan)
    for meeting in graph.meetings:
        if not meeting.is_symmetric:
            members = list(meeting.members)
            times_of_groups[members] = exchange(meeting.collective, cluster.topology, home[members].tolist()).time
    times_of_groups[~np.isnan(graph.time)] = np.nan
    return times_of_groups


@runtime_checkable
class Calibrated(CostModel, Protocol):
    """A cluster whose parameters were fitted, with the operators that were measured on it: a `Calibration`.

    It is a cost model, too: without another one, operators take the times that it knows.
    """

    @property
    def cluster(self) -> Cluster:
        """The cluster with its fitted parameters."""
        ...

    def apply(self, graph: OpGraph) -> OpGraph:
        """Return the graph with measured times and kernels; return a graph that `apply` returned unchanged."""
        ...

    def operator_times(self, graph: OpGraph, device: Device, ops: Indices) -> Floats:
        """Return the times in us of some operators of a graph alone on a device, shape of `ops`."""
        ...


Target = Cluster | Calibrated


def bare(target: Target) -> Cluster:
    """Return the cluster itself."""
    if isinstance(target, Cluster):
        return target
    return target.cluster


def with_cluster(target: Target, cluster: Cluster) -> Target:
    """Return a target with another cluster; its measured operators stay."""
    if isinstance(target, Cluster):
        return cluster
    return cast(Target, replace(cast(Any, target), cluster=cluster))


def bind(subject: Subject, target: Target) -> tuple[Subject, Cluster]:
    """Return a graph, or a schedule or program, as measured on a target, and the target's cluster.

    On a plain cluster the subject is returned unchanged.

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
