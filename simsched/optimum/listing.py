"""Feasible schedules to start from: list schedules of the contention-free model."""

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush
from math import inf
from typing import Any, Final, NamedTuple

import numpy as np

from simsched.base.errors import SchedulerError, SimschedError
from simsched.model.cluster import Cluster
from simsched.model.costmodel import CostModel
from simsched.model.schedule import Schedule
from simsched.optimum.instance import Instance
from simsched.schedulers import FAST_UP_TO, SCHEDULERS, schedule

_STARTS: Final = {"heft": True, "peft": True, "etf": True, "inter-lp": False}
"""List schedulers of the library, and whether they take a number of streams."""


class Listed(NamedTuple):
    """A schedule of an instance: operators in launch order, the device and the stream of each operator."""

    makespan: float
    order: list[int]
    device: list[int]
    stream: list[int]


def listed(instance: Instance, order: Sequence[int], device: Sequence[int], stream: Sequence[int]) -> Listed:
    """Return what an order and places come to."""
    ends = instance.finish(order, device, stream)
    return Listed(max(ends), list(order), list(device), list(stream))


def first_schedules(
    instance: Instance, cluster: Cluster, cost: CostModel | None, starts: Sequence[Schedule]
) -> Iterator[Listed]:
    """Yield schedules to start from: those given, those of list schedulers, and some of our own.

    Each is listed anew, operators in its launch order, each on the stream of its device that is free first.

    Raises
    ------
    SchedulerError
        If a start is no schedule, or of another graph.
    ScheduleError
        If a start is for other devices.
    """
    graph = instance.graph
    plans = []
    for plan in starts if isinstance(starts, list | tuple) else (starts,):
        if not isinstance(plan, Schedule) or plan.graph != graph:
            raise SchedulerError(
                "optimal: starts must be schedules of the graph itself, not of another or rewritten one"
            )
        plans.append(plan.check(cluster))
    for name, streamed in _STARTS.items():
        if name in SCHEDULERS and len(graph) <= FAST_UP_TO.get(name, len(graph)):
            options = {"streams": instance.streams} if streamed else {}
            try:
                plan = schedule(graph, cluster, name, cost, **options)
            except SimschedError:  # it does not suit the graph: others will
                continue
            if plan.graph is graph:
                plans.append(plan)
    for plan in plans:
        number = np.array([cluster.index.get(name, -1) for name in plan.devices])
        device = np.empty(len(graph), np.int64)
        device[plan.op] = number[plan.device]
        place = np.empty(len(graph))
        place[plan.op] = np.arange(len(graph))
        yield list_schedule(instance, place.tolist(), device.tolist())
    head, tail = instance.reach
    onward = (tail + instance.times).min(axis=0)
    for rank in (-onward, head.min(axis=0), -instance.times.min(axis=0)):
        yield list_schedule(instance, rank.tolist())
    for d in np.flatnonzero(np.isfinite(instance.times).all(axis=1)).tolist():
        yield list_schedule(instance, (-onward).tolist(), [d] * len(graph))


def list_schedule(instance: Instance, rank: Sequence[float], device: Sequence[int] | None = None) -> Listed:
    """Return the list schedule of ready operators by rising rank, each where it ends first.

    Parameters
    ----------
    rank
        Of each operator; of equal ones the first in topological order comes first.
    device
        Of each operator, or None for any.

    Notes
    -----
    Equal ends: the first device, and its stream that is free first. A makespan of infinity says
    that a place was given where an operator cannot be.
    """
    n, times, moves = len(rank), *instance.rows
    turn = np.empty(n, np.int64)
    turn[instance.graph.order_index] = np.arange(n)
    turns = turn.tolist()
    readers: list[list[int]] = [[] for _ in range(n)]
    missing = [len(row) for row in instance.producers]
    for v, row in enumerate(instance.producers):
        for u, _ in row:
            readers[u].append(v)
    waiting: list[Any] = [(rank[i], turns[i], i) for i in range(n) if not missing[i]]
    heapify(waiting)
    free = [[0.0] * instance.streams for _ in range(instance.n_devices)]
    found = Listed(inf, [], [0] * n, [0] * n)
    ends = [0.0] * n
    while waiting:
        i = heappop(waiting)[2]
        best = (inf, instance.n_devices)
        for d in range(instance.n_devices) if device is None else (device[i],):
            start = min(free[d])
            for p, row in instance.producers[i]:
                start = max(start, ends[p] + moves[row][found.device[p]][d])
            best = min(best, (start + times[d][i], d))
        end, d = best
        if end == inf:
            return found
        slot = free[d].index(min(free[d]))
        ends[i] = free[d][slot] = end
        found.order.append(i)
        found.device[i], found.stream[i] = d, slot
        for j in readers[i]:
            missing[j] -= 1
            if not missing[j]:
                heappush(waiting, (rank[j], turns[j], j))
    return found._replace(makespan=max(ends))
