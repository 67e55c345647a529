"""The best schedule of the contention-free model, with a proven bound, by OR-tools CP-SAT."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from heapq import heapify, heappop, heappush
from itertools import permutations
from math import ceil, gcd, inf
from typing import Any, Final, NamedTuple

import numpy as np

from simsched.base.codec import Size
from simsched.base.errors import MissingDependencyError, SchedulerError, SimschedError
from simsched.base.jit import running_time
from simsched.base.numeric import group_by_key
from simsched.bounds import Setting, areas, longest_of_pairs, pairs_of, reach
from simsched.model import Cluster, CostModel, Floats, Ints, OpGraph, Schedule, Target, bind, times_by_device
from simsched.model.exchange import of_one_rank
from simsched.model.launches import kernels_on
from simsched.schedulers import schedule
from simsched.schedulers.instance import place_of, ways
from simsched.schedulers.protocol import Deadline, Rng, Seconds, take_options
from simsched.simulator.demand import demand_on

__all__ = ["Optimum", "optimal"]

_MOST_DIGITS: Final = 6
_LARGEST_HORIZON: Final = 2**40
_EQUAL: Final = 1e-9
_ROUNDING: Final = 1e-5
_POLL: Final = 0.02  # s between two looks at the clock and at Ctrl-C


@dataclass(frozen=True)
class SolverInstance:
    """A graph on a cluster in the contention-free model: devices of so many streams, and moves between them.

    Parameters
    ----------
    graph
        The graph.
    streams
        Operators that a device runs at a time.
    times
        Time of each operator on each device, shape (n_devices, n_ops); infinite where it does not fit.
    moves
        Time to move the tensors of each pair of producer and consumer, shape (n_pairs, n_devices, n_devices); zero
        within a device, infinite where no links lead.
    pairs
        See `simsched.bounds.pairs_of`.
    unit
        Unit of times in us.
    exact
        Whether times are exact up to the rounding of floats, or else rounded down.
    """

    graph: OpGraph
    streams: int
    times: Floats
    moves: Floats
    pairs: Ints
    unit: Fraction = Fraction(1)
    exact: bool = True

    @cached_property
    def n_devices(self) -> int:
        """Number of devices."""
        return len(self.times)

    @cached_property
    def producers(self) -> dict[int, list[tuple[int, int]]]:
        """Producers of operators that read from others, and the rows of the pairs."""
        return group_by_key((v, (u, row)) for row, (u, v) in enumerate(self.pairs.T.tolist()))

    @cached_property
    def rows(self) -> tuple[list[list[float]], list[list[list[float]]]]:
        """`times` and `moves` as lists."""
        return self.times.tolist(), self.moves.tolist()

    @cached_property
    def setting(self) -> Setting:
        """Costs for bounds: each device a kind, its streams a resource of which an operator takes one."""
        n = self.n_devices
        moves = self.moves.transpose(1, 2, 0).copy()
        moves[np.arange(n), np.arange(n)] = inf  # there is no other device of the kind
        return Setting(
            graph=self.graph,
            count=np.ones(n, np.int64),
            times=self.times,
            work=self.times[None],
            capacity=np.array([float(self.streams)]),
            pairs=self.pairs,
            moves=list(moves),
        )

    @cached_property
    def reach(self) -> tuple[Floats, Floats]:
        """Heads and tails, shape (n_devices, n_ops) each."""
        return reach(self.setting)

    @cached_property
    def bound(self) -> float:
        """The largest of path and work bounds."""
        head, tail = self.reach
        path = float((head + self.times + tail).min(axis=0).max())
        return max(path, float(areas(self.setting, head, tail).max()))


def instance_of(graph: OpGraph, cluster: Cluster, cost: CostModel | None, streams: int) -> SolverInstance:
    """Return the instance in us.

    Raises
    ------
    SchedulerError
        If an operator fits on no device.
    """
    times = np.stack(times_by_device(graph, cluster, cost))
    tables = [kernels_on(graph, kind) for kind in cluster.kinds]
    if any(table.has_shape.any() for table in tables):
        fits = np.array(
            [
                np.logical_and.reduceat(  # a block of every kernel
                    np.isfinite(
                        demand_on(graph, cluster, cluster.index[kind.name], np.ones(len(graph)), refuse_unfit=False)[
                            "unit"
                        ]
                    ),
                    table.ptr[:-1],
                )
                for kind, table in zip(cluster.kinds, tables, strict=True)
            ]
        )
        times = np.where(fits[cluster.kind], times, inf)
        nowhere = np.flatnonzero(np.isinf(times).all(axis=0))
        if len(nowhere):
            raise SchedulerError(
                f"optimal: operator {graph.names[nowhere[0]]!r} has a kernel of which no block fits on any device; "
                "give it smaller blocks, or a cluster that holds them"
            )
    pairs, pair_of = pairs_of(graph)
    n = len(cluster)
    (latency, rate) = ways(cluster)
    moves = np.zeros((pairs.shape[1], n, n))
    for a, b in permutations(range(n), 2):
        moves[:, a, b] = longest_of_pairs(graph, pairs.shape[1], pair_of, [(latency[a, b], rate[a, b])])
    return SolverInstance(graph, streams, times, moves, pairs)


def whole_of(instance: SolverInstance, horizon: float) -> SolverInstance:
    """Return an instance in whole numbers.

    Parameters
    ----------
    horizon
        A time in us that no schedule of interest exceeds.

    Notes
    -----
    An operator that alone takes longer than the horizon does not occur. Times of up to six decimals are exact in the
    largest unit that divides them all, if the horizon is at most 2^40 of it. Others are rounded down to 2^-40 of the
    horizon, or to 10^-9 us if that is more: then the optimum in units is a lower bound of the optimum in us.
    """
    longest = horizon * (1 + 1e-9)
    times, moves = (np.where(column > longest, inf, column) for column in (instance.times, instance.moves))
    values = np.unique(np.concatenate([times.ravel(), moves.ravel()]))
    values = values[np.isfinite(values)]
    unit = max(Fraction(horizon) / _LARGEST_HORIZON, Fraction(1, 10**9))
    exact = False
    for scale in (10**digits for digits in range(_MOST_DIGITS + 1)):
        numbers = np.round(values * scale)
        if horizon * scale <= _LARGEST_HORIZON and (numbers / scale == values).all():
            unit = Fraction(gcd(*map(int, numbers.tolist())) or 1, scale)
            exact = True
            break
    times, moves = (column / float(unit) for column in (times, moves))
    times, moves = (np.round(column) if exact else np.floor(column * (1 - 1e-12)) for column in (times, moves))
    return replace(instance, times=times, moves=moves, unit=unit, exact=exact)


class ListSchedule(NamedTuple):
    """A schedule of an instance: operators in launch order; the device, the stream and the end of each operator."""

    makespan: float
    order: list[int]
    device: list[int]
    stream: list[int]
    ends: list[float]


def _first(instance: SolverInstance, cluster: Cluster, cost: CostModel | None) -> ListSchedule:
    """Return the best to start from: of the schedules of list schedulers, and of some of our own.

    Each is listed again, operators in its launch order, each on the stream of its device that is free first.
    """
    graph = instance.graph
    streams = {"streams": instance.streams}
    candidates = []
    for name, options in (("heft", streams), ("peft", streams), ("etf", streams), ("inter-lp", {})):
        with suppress(SimschedError):  # where it does not suit the graph, others will
            plan = schedule(graph, cluster, name, cost, **options)
            device = np.empty(len(graph), np.int64)
            device[plan.op] = np.array([cluster.index[name] for name in plan.devices])[plan.device]
            candidates.append(list_schedule(instance, place_of(plan.op).tolist(), device.tolist()))
    head, tail = instance.reach
    onward = (tail + instance.times).min(axis=0)
    for rank in (-onward, head.min(axis=0), -instance.times.min(axis=0)):
        candidates.append(list_schedule(instance, rank.tolist()))
    for d in np.flatnonzero(np.isfinite(instance.times).all(axis=1)).tolist():
        candidates.append(list_schedule(instance, (-onward).tolist(), [d] * len(graph)))
    best = min(candidates, key=lambda plan: plan.makespan)
    if best.makespan == inf:
        raise SchedulerError(
            "optimal: no list schedule can run, as operators fit on different devices that no links join; give links"
        )
    return best


def list_schedule(instance: SolverInstance, rank: Sequence[float], device: Sequence[int] | None = None) -> ListSchedule:
    """Return the list schedule of ready operators by rising rank, each where it ends first.

    Parameters
    ----------
    rank
        Rank of each operator; on ties the first in topological order comes first. The places in a topological order
        keep that order.
    device
        Device of each operator, or None for any.

    Notes
    -----
    Equal ends: the first device, and its stream that is free first. The makespan is infinite if an operator cannot run
    on its given device.
    """
    n, times, moves = len(rank), *instance.rows
    turns = place_of(instance.graph.order_index).tolist()
    readers = group_by_key(instance.pairs.T.tolist())
    producers = instance.producers
    missing = [len(producers.get(i, ())) for i in range(n)]
    waiting: list[Any] = [(rank[i], turns[i], i) for i in range(n) if not missing[i]]
    heapify(waiting)
    free = [[0.0] * instance.streams for _ in range(instance.n_devices)]
    listed = ListSchedule(inf, [], [0] * n, [0] * n, [0.0] * n)
    while waiting:
        i = heappop(waiting)[2]
        best = (inf, instance.n_devices)
        for d in range(instance.n_devices) if device is None else (device[i],):
            start = min(free[d])
            for p, row in producers.get(i, ()):
                start = max(start, listed.ends[p] + moves[row][listed.device[p]][d])
            best = min(best, (start + times[d][i], d))
        end, d = best
        if end == inf:
            return listed
        slot = free[d].index(min(free[d]))
        listed.ends[i] = free[d][slot] = end
        listed.order.append(i)
        listed.device[i] = d
        listed.stream[i] = slot
        for j in readers.get(i, ()):
            missing[j] -= 1
            if not missing[j]:
                heappush(waiting, (rank[j], turns[j], j))
    return listed._replace(makespan=max(listed.ends))


class Model:
    """The constraint program of an instance in whole numbers.

    Parameters
    ----------
    instance
        The instance.
    bound
        A makespan that no schedule of it is below.
    hint
        A schedule of it; better ones are looked for.
    cp_model
        The module of OR-tools.

    Notes
    -----
    A start for each operator, a truth value for each operator and device, and one for each operator and stream of a
    device. Operators on one stream do not overlap; together they do not exceed all streams. A consumer starts when its
    producer is over and, if their devices differ, the move later. Where a move takes the same between any two devices,
    one truth value is true if they differ.

    Starts lie between the heads and the tails of the bounds. (The model omits that the work of each device fits between
    the least of both: with large numbers the presolve of OR-tools 9.15 would then report an infeasible model.) The
    solver itself sees that equal devices may be exchanged.
    """

    def __init__(self, instance: SolverInstance, bound: int, hint: ListSchedule, cp_model: Any) -> None:
        self._instance = instance
        self.program = model = cp_model.CpModel()
        n = len(instance.graph)
        n_devices = instance.n_devices
        hint = list_schedule(instance, place_of(np.array(hint.order)).tolist(), hint.device)
        most = int(hint.makespan)
        self.makespan = model.new_int_var(min(bound, most), most, "")
        model.add_hint(self.makespan, most)
        head, tail = (reach.min(axis=0) for reach in instance.reach)
        times = instance.times
        shortest = times.min(axis=0)
        self.start: list[Any] = []
        self.on: list[list[Any]] = [[None] * n_devices for _ in range(n)]  # None: cannot be
        self.span: list[Any] = []
        for i in range(n):
            last = max(int(head[i]), most - int(tail[i]) - int(shortest[i]))
            start = model.new_int_var(int(head[i]), last, "")
            self.start.append(start)
            span = 0
            for d in range(n_devices):
                if times[d, i] < inf:
                    self.on[i][d] = model.new_bool_var("")
                    model.add_hint(self.on[i][d], hint.device[i] == d)
                    span += int(times[d, i]) * self.on[i][d]
            able = [x for x in self.on[i] if x is not None]
            model.add_exactly_one(able)
            same = len({float(times[d, i]) for d in range(n_devices) if self.on[i][d] is not None}) == 1
            self.span.append(int(shortest[i]) if same else span)
            model.add_hint(start, int(hint.ends[i]) - int(times[hint.device[i], i]))
            model.add(start + self.span[i] + int(tail[i]) <= self.makespan)
        self._add_streams(hint)
        self._add_moves(hint)
        if 1 < n_devices * instance.streams < n:
            pairs = zip(self.start, shortest, strict=True)
            spans = [model.new_fixed_size_interval_var(start, int(us), "") for start, us in pairs]
            model.add_cumulative(spans, [1] * n, n_devices * instance.streams)
        model.minimize(self.makespan)

    def _add_streams(self, hint: ListSchedule) -> None:
        """Keep operators of a stream apart."""
        model = self.program
        instance = self._instance
        for d in range(instance.n_devices):
            able = [i for i in range(len(self.start)) if self.on[i][d] is not None]
            runs: dict[int, list[Any]] = {i: [] for i in able}
            for s in range(instance.streams):
                intervals = []
                for i in able:
                    literal = self.on[i][d]
                    if instance.streams > 1:
                        literal = model.new_bool_var("")
                        model.add_hint(literal, (hint.device[i], hint.stream[i]) == (d, s))
                    runs[i].append(literal)
                    length = int(instance.times[d, i])
                    intervals.append(model.new_optional_fixed_size_interval_var(self.start[i], length, literal, ""))
                model.add_no_overlap(intervals)
            if instance.streams > 1:
                for i in able:
                    model.add(sum(runs[i]) == self.on[i][d])

    def _add_moves(self, hint: ListSchedule) -> None:
        model = self.program
        instance = self._instance
        n_devices = instance.n_devices
        other = ~np.eye(n_devices, dtype=np.bool_)
        for row, (u, v) in enumerate(instance.pairs.T.tolist()):
            moves = instance.moves[row]
            ready = self.start[u] + self.span[u]
            model.add(self.start[v] >= ready)
            if n_devices > 1 and moves[other].min() == moves[other].max() < inf:
                apart = model.new_bool_var("")
                model.add_hint(apart, hint.device[u] != hint.device[v])
                for x, y in zip(self.on[u], self.on[v], strict=True):
                    for one, another in ((x, y), (y, x)):
                        if one is not None:
                            model.add_bool_or([~one, apart] if another is None else [~one, another, apart])
                model.add(self.start[v] >= ready + int(moves[other][0])).only_enforce_if(apart)
                continue
            for a, x in enumerate(self.on[u]):
                for b, y in enumerate(self.on[v]):
                    if a == b or x is None or y is None or moves[a, b] == 0:
                        continue
                    if moves[a, b] == inf:
                        model.add_bool_or([~x, ~y])
                    else:
                        model.add(self.start[v] >= ready + int(moves[a, b])).only_enforce_if([x, y])


@dataclass(frozen=True)
class Optimum:
    """The best schedule, its makespan and the proven bound.

    Parameters
    ----------
    schedule
        The schedule, with ``execution="events"``; its `estimate` is `makespan`.
    makespan
        Makespan in the contention-free model, in us.
    bound
        Proved: no schedule of that model takes less, in us.
    search
        Statistics, equal to the schedule's.
    """

    schedule: Schedule
    makespan: float
    bound: float
    search: Mapping[str, Any]

    @property
    def gap(self) -> float:
        """Gap between makespan and bound, ``(makespan - bound) / makespan``: 0 for an optimum."""
        if self.makespan:
            return (self.makespan - self.bound) / self.makespan
        return 0.0

    @property
    def proved(self) -> bool:
        """Whether makespan and bound differ only by rounding: a gap of at most 1e-5."""
        return self.gap <= _ROUNDING


def optimal(
    graph: OpGraph,
    cluster: Target,
    time_limit: Seconds | None = 60.0,
    *,
    cost: CostModel | None = None,
    streams: Size = 1,
    budget: Seconds | None = None,
    workers: Size = 4,
    rng: Rng = 0,
) -> Optimum:
    """Look for the best schedule of the contention-free model, and prove how good it is.

    Parameters
    ----------
    graph, cluster
        The graph to run, and the cluster that runs it.
    time_limit
        Wall time in s after which the best so far is returned; None for none. So is Ctrl-C.
    cost
        Time of an operator alone on a device in us; by default its `time`, else a roofline.
    streams
        Operators that a device runs at a time, each in its solo time.
    budget
        Limit in CP-SAT's deterministic seconds, which count work done; None for none.
    workers
        Threads of the solver: with several it searches in several ways, and one way alone is much worse.
    rng
        Generator, or the seed of one: the seed of the solver.

    Returns
    -------
    Optimum
        The optimum, with schedule, makespan, proved bound and gap. With one worker the same for the same input, unless
        `time_limit` or Ctrl-C ended the search. With more, a finished search may return another schedule of the same
        makespan, and a search that was ended any schedule.

    Raises
    ------
    MissingDependencyError
        If OR-tools is not installed.
    SchedulerError
        If an option is out of range, or an operator fits on no device.

    Notes
    -----
    *Model.* A device runs up to `streams` operators at a time, each as long as it takes alone; a tensor that another
    device reads arrives `Cluster.transfer_time` after its producer, however many are under way; launching and waiting
    cost nothing. List schedulers and their estimates use this model, `simulate` does not: neither makespan nor bound
    hold for simulated times, for which `lower_bound` is a bound.

    *Search.* The best of the schedules of the list schedulers of the library and of a few of our own is the hint
    that CP-SAT improves on; see `Model` for the program. The bounds of `simsched.bounds`, with streams as the
    resource, are part of it, and end the search at once where the hint meets them.

    *Numbers.* CP-SAT counts in whole numbers, see `whole_of`; the makespan is evaluated again in us. If times are no
    whole numbers of a unit, a finished search may leave a gap of some 1e-7.

    Proofs are to be expected up to some 20 operators, and often up to 50. The solver
    may end a little after the limit.

    >>> from simsched.model.graph import Edge, Operator
    >>> graph = OpGraph([Operator(n, time=t) for n, t in zip("abc", (2.0, 3.0, 4.0))], [Edge("a", "c", transfer=1.0)])
    >>> found = optimal(graph, Cluster.preset("a100", 2))
    >>> found.makespan, found.bound, found.proved
    (6.0, 6.0, True)
    """
    graph, cluster = bind(graph, cluster)
    options = {"time_limit": time_limit, "streams": streams, "budget": budget, "workers": workers, "rng": rng}
    take_options("optimal", optimal, options)
    seed = int(np.random.default_rng(rng).integers(2**31))
    began = running_time()
    with Deadline("optimal", time_limit) as deadline:
        try:
            from ortools.sat.python import cp_model
        except ImportError:
            raise MissingDependencyError("an exact optimum needs OR-tools: pip install 'simsched[exact]'") from None
        instance = instance_of(graph, of_one_rank(graph, cluster), cost, min(streams, len(graph)))
        best = _first(instance, cluster, cost)
        search: dict[str, Any] = {"start_us": best.makespan, "bound_us": instance.bound, "branches": 0, "conflicts": 0}
        whole = whole_of(instance, best.makespan)
        least = ceil(whole.bound * (1 - 1e-12) - 1e-6)  # a time of whole numbers is no less than the next one
        bound = max(instance.bound, float(least * whole.unit))
        if best.makespan > bound * (1 + _EQUAL) and not deadline.over():
            model = Model(whole, least, best, cp_model)
            solver = cp_model.CpSolver()
            solver.parameters.random_seed = seed
            solver.parameters.num_workers = workers
            solver.parameters.catch_sigint_signal = False
            if budget is not None:
                solver.parameters.max_deterministic_time = budget
            solution = _run(solver, model.program, deadline)
            bound = max(bound, float(ceil(solver.best_objective_bound - 1e-6) * whole.unit))
            search |= {"branches": solver.num_branches, "conflicts": solver.num_conflicts}
            search |= {"unit_us": float(whole.unit), "exact": whole.exact}
            if solution:
                best = min(best, _read(solver, model, instance), key=lambda plan: plan.makespan)
    bound = min(bound, best.makespan)
    search |= {"proved_us": bound, "stopped": deadline.reason, "search_s": running_time() - began}
    plan = Schedule.from_columns(
        graph,
        best.order,
        [device.name for device in cluster.devices],
        device=[best.device[i] for i in best.order],
        stream=[best.stream[i] for i in best.order],
        estimate=best.makespan,
        scheduler="optimal",
        search=search,
    ).check(cluster)
    return Optimum(plan, best.makespan, bound, search)


def _run(solver: Any, program: Any, deadline: Deadline) -> bool:
    """Solve in a separate thread, so that Ctrl-C and the clock are heeded; return whether there is a solution."""
    with ThreadPoolExecutor(1, "optimal") as pool:
        solved = pool.submit(solver.solve, program)
        try:
            while not wait([solved], _POLL).done:
                if deadline.over():
                    solver.stop_search()
        except BaseException:  # a second Ctrl-C: the solution is not wanted any more
            solver.stop_search()
            raise
    name = solver.status_name(solved.result())
    assert name in ("OPTIMAL", "FEASIBLE", "UNKNOWN"), name
    return bool(name != "UNKNOWN")


def _read(solver: Any, model: Model, instance: SolverInstance) -> ListSchedule:
    """Return the solver's schedule, listed again in us."""
    turn = place_of(instance.graph.order_index)
    start = [solver.value(x) for x in model.start]
    end = [x + solver.value(span) for x, span in zip(start, model.span, strict=True)]
    order = sorted(range(len(turn)), key=lambda i: (start[i], end[i], turn[i]))
    device = [next(d for d, x in enumerate(on) if x is not None and solver.boolean_value(x)) for on in model.on]
    return list_schedule(instance, place_of(np.array(order)).tolist(), device)
