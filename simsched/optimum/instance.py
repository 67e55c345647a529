"""A graph on a cluster as the contention-free model sees it, in us and in whole numbers; list schedules of it."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from heapq import heapify, heappop, heappush
from itertools import permutations
from math import ceil, gcd, inf
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from simsched.base.errors import SchedulerError, SimschedError
from simsched.bounds import Setting, areas, heads, longest_of_pairs, pairs_of, tails
from simsched.model import Cluster, CostModel, Floats, Ints, OpGraph, Schedule, times_by_device
from simsched.schedulers import schedule
from simsched.schedulers.listing import place_of, ways
from simsched.simulator.workload import demand_on

_MOST_DIGITS = 6
_LARGEST_HORIZON = 2**40


@dataclass(frozen=True)
class Instance:
    """Operators, devices of so many streams, and moves between devices, all times in one unit.

    Parameters
    ----------
    graph
        The graph.
    streams
        Operators that a device runs at a time.
    times
        Time of each operator on each device, shape (n_devices, n_ops); infinite where it does not fit.
    moves
        Time to move what each pair of producer and consumer needs, shape (n_pairs, n_devices, n_devices);
        zero within a device, infinite where no links lead.
    pairs
        See `simsched.bounds.pairs_of`.
    """

    graph: OpGraph
    streams: int
    times: Floats
    moves: Floats
    pairs: Ints

    @cached_property
    def n_devices(self) -> int:
        """Number of devices."""
        return len(self.times)

    @cached_property
    def producers(self) -> list[list[tuple[int, int]]]:
        """For each operator what it reads from, and the row of the pair."""
        found: list[list[tuple[int, int]]] = [[] for _ in range(len(self.graph))]
        for row, (u, v) in enumerate(self.pairs.T.tolist()):
            found[v].append((u, row))
        return found

    @cached_property
    def rows(self) -> tuple[list[list[float]], list[list[list[float]]]]:
        """`times` and `moves` as lists."""
        return self.times.tolist(), self.moves.tolist()

    @cached_property
    def setting(self) -> Setting:
        """What bounds look at: each device a kind, its streams a resource of which an operator takes one."""
        n = self.n_devices
        moves = self.moves.transpose(1, 2, 0).copy()
        moves[np.arange(n), np.arange(n)] = inf  # there is no other device of the kind
        return Setting(
            graph=self.graph, count=np.ones(n, np.int64), times=self.times, work=self.times[None],
            capacity=np.array([float(self.streams)]), pairs=self.pairs, moves=list(moves),
        )  # fmt: skip

    @cached_property
    def reach(self) -> tuple[Floats, Floats]:
        """`heads` and `tails`, shape (n_devices, n_ops) each."""
        return heads(self.setting), tails(self.setting)

    @cached_property
    def bound(self) -> float:
        """The largest of path and work bounds."""
        head, tail = self.reach
        path = float((head + self.times + tail).min(axis=0).max())
        return max(path, float(areas(self.setting, head, tail).max()))


def instance_of(graph: OpGraph, cluster: Cluster, cost: CostModel | None, streams: int) -> Instance:
    """Return the instance in us.

    Raises
    ------
    SchedulerError
        If an operator fits on no device.
    """
    times = np.stack(times_by_device(graph, cluster, cost))
    if len(graph.kernel_blocks):
        times = np.where(_fits(graph, cluster), times, inf)
        nowhere = np.flatnonzero(np.isinf(times).all(axis=0))
        if len(nowhere):
            raise SchedulerError(
                f"optimal: operator {graph.names[nowhere[0]]!r} has a kernel of which no block fits on any device; "
                "give it smaller blocks, or a cluster that holds them"
            )
    pairs, pair_of = pairs_of(graph)
    n, (latency, rate) = len(cluster), ways(cluster)
    moves = np.zeros((pairs.shape[1], n, n))
    for a, b in permutations(range(n), 2):
        moves[:, a, b] = longest_of_pairs(graph, [(latency[a, b], rate[a, b])], pairs.shape[1], pair_of)
    return Instance(graph, streams, times, moves, pairs)


def _fits(graph: OpGraph, cluster: Cluster) -> npt.NDArray[np.bool_]:
    """Return whether a block of every kernel of an operator fits, shape (n_devices, n_ops)."""
    rows = []
    for kind in cluster.kinds:
        asked = demand_on(graph, cluster, cluster.index[kind.name], np.ones(len(graph)), refuse_unfit=False)
        rows.append(np.logical_and.reduceat(np.isfinite(asked["unit"]), graph.launch_ptr[:-1]))
    return np.stack(rows)[cluster.kind]


@dataclass(frozen=True)
class Whole:
    """An instance whose times are whole numbers of a unit, none longer than in us.

    Parameters
    ----------
    instance
        The instance in units.
    unit
        In us.
    exact
        Whether units times `unit` are the times in us, but for the rounding of floats.
    """

    instance: Instance
    unit: Fraction
    exact: bool

    @cached_property
    def bound(self) -> int:
        """The bound of the instance in units: a time of whole numbers is no less than the next one."""
        return ceil(self.instance.bound * (1 - 1e-12) - 1e-6)

    def us(self, units: float) -> float:
        """Return units as us."""
        return float(Fraction(units) * self.unit)


def whole_of(instance: Instance, horizon: float) -> Whole:
    """Return an instance in whole numbers.

    Parameters
    ----------
    horizon
        A time in us that no schedule of interest exceeds.

    Notes
    -----
    What alone takes longer than the horizon is out of the question. Times of up to six decimals are exact in the
    largest unit that divides them all, if the horizon is at most 2^40 of it. Others are rounded down to 2^-40 of the
    horizon, or to 10^-9 us if that is more: then the optimum in units is a lower bound of the optimum in us.
    """
    longest = horizon * (1 + 1e-9)
    times, moves = (np.where(column > longest, inf, column) for column in (instance.times, instance.moves))
    instance = replace(instance, times=times, moves=moves)
    values = np.unique(np.concatenate([times.ravel(), moves.ravel()]))
    values = values[np.isfinite(values)]
    for scale in (10**digits for digits in range(_MOST_DIGITS + 1)):
        numbers = np.round(values * scale)
        if horizon * scale <= _LARGEST_HORIZON and (numbers / scale == values).all():
            return _scaled(instance, Fraction(gcd(*map(int, numbers.tolist())) or 1, scale), exact=True)
    return _scaled(instance, max(Fraction(horizon) / _LARGEST_HORIZON, Fraction(1, 10**9)), exact=False)


def _scaled(instance: Instance, unit: Fraction, exact: bool) -> Whole:
    def units(values: Floats) -> Floats:
        found = values / float(unit)
        return np.round(found) if exact else np.floor(found * (1 - 1e-12))

    whole = replace(instance, times=units(instance.times), moves=units(instance.moves))
    return Whole(whole, unit, exact)


_STARTS: Final = {"heft": ("streams",), "peft": ("streams",), "etf": ("streams",), "inter-lp": ()}
"""List schedulers of the library, and the option that is a number of streams."""


class Listed(NamedTuple):
    """A schedule of an instance: operators in launch order; the device, the stream and the end of each operator."""

    makespan: float
    order: list[int]
    device: list[int]
    stream: list[int]
    ends: list[float]


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
    for name, options in _STARTS.items():
        with suppress(SimschedError):  # where it does not suit the graph, others will
            plans.append(schedule(graph, cluster, name, cost, **dict.fromkeys(options, instance.streams)))
    for plan in plans:
        number = np.array([cluster.index.get(name, -1) for name in plan.devices])
        device = np.empty(len(graph), np.int64)
        device[plan.op] = number[plan.device]
        yield list_schedule(instance, place_of(plan.op).tolist(), device.tolist())
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
        Of each operator; of equal ones the first in topological order comes first. The places in a topological order
        keep that order.
    device
        Of each operator, or None for any.

    Notes
    -----
    Equal ends: the first device, and its stream that is free first. A makespan of infinity says
    that a place was given where an operator cannot be.
    """
    n, times, moves = len(rank), *instance.rows
    turns = place_of(instance.graph.order_index).tolist()
    readers: list[list[int]] = [[] for _ in range(n)]
    missing = [len(row) for row in instance.producers]
    for v, row in enumerate(instance.producers):
        for u, _ in row:
            readers[u].append(v)
    waiting: list[Any] = [(rank[i], turns[i], i) for i in range(n) if not missing[i]]
    heapify(waiting)
    free = [[0.0] * instance.streams for _ in range(instance.n_devices)]
    found = Listed(inf, [], [0] * n, [0] * n, [0.0] * n)
    while waiting:
        i = heappop(waiting)[2]
        best = (inf, instance.n_devices)
        for d in range(instance.n_devices) if device is None else (device[i],):
            start = min(free[d])
            for p, row in instance.producers[i]:
                start = max(start, found.ends[p] + moves[row][found.device[p]][d])
            best = min(best, (start + times[d][i], d))
        end, d = best
        if end == inf:
            return found
        slot = free[d].index(min(free[d]))
        found.ends[i] = free[d][slot] = end
        found.order.append(i)
        found.device[i], found.stream[i] = d, slot
        for j in readers[i]:
            missing[j] -= 1
            if not missing[j]:
                heappush(waiting, (rank[j], turns[j], j))
    return found._replace(makespan=max(found.ends))
