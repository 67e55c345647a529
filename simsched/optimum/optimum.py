"""The best schedule of the contention-free model, and the proof of how good it is, by OR-tools CP-SAT."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from math import ceil, inf
from typing import Any, Final

import numpy as np

from simsched.base.errors import MissingDependencyError, SchedulerError
from simsched.base.jit import running_time
from simsched.base.kinds import Size
from simsched.model import Cluster, CostModel, OpGraph, Schedule, Target, upon
from simsched.optimum.instance import Instance, Listed, Whole, first_schedules, instance_of, list_schedule, whole_of
from simsched.schedulers.deadline import Deadline
from simsched.schedulers.listing import place_of
from simsched.schedulers.options import Rng, Seconds, taken


class Model:
    """The constraint program of an instance in whole numbers.

    Parameters
    ----------
    whole
        The instance.
    hint
        A schedule of it; better ones are looked for.
    cp_model
        The module of OR-tools.

    Notes
    -----
    A start for each operator, a truth value for each operator and device, and one for each operator and
    stream of a device. Operators on one stream do not overlap; together they do not exceed all streams.
    A consumer starts when its producer is over and, if their devices differ, the move later. Where a
    move takes the same between any two devices, one truth value says whether they differ.

    Starts lie between the heads and the tails of the bounds. (That the work of each device fits between
    the least of both is left out: of large numbers the presolve of OR-tools 9.15 then says that nothing
    is feasible.) That equal devices may be exchanged the solver sees for itself.
    """

    def __init__(self, whole: Whole, hint: Listed, cp_model: Any) -> None:
        self._instance = instance = whole.instance
        self.program = model = cp_model.CpModel()
        n, n_devices = len(instance.graph), instance.n_devices
        hint = list_schedule(instance, place_of(np.array(hint.order)).tolist(), hint.device)
        most = int(hint.makespan)
        self.makespan = model.new_int_var(min(whole.bound, most), most, "")
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

    def _add_streams(self, hint: Listed) -> None:
        """Keep operators of a stream apart."""
        model, instance = self.program, self._instance
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

    def _add_moves(self, hint: Listed) -> None:
        model, instance = self.program, self._instance
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


_EQUAL: Final = 1e-9
_ROUNDING: Final = 1e-5
_POLL: Final = 0.02  # s between two looks at the clock and at Ctrl-C


@dataclass(frozen=True)
class Optimum:
    """The best schedule found, and what has been proved about it.

    Parameters
    ----------
    schedule
        With ``execution="events"``; its `estimate` is `makespan`.
    makespan
        In the contention-free model, in us.
    bound
        Proved: no schedule of that model takes less, in us.
    search
        Statistics, the same as those of the schedule.
    """

    schedule: Schedule
    makespan: float
    bound: float
    search: Mapping[str, Any]

    @property
    def gap(self) -> float:
        """What is not proved, ``(makespan - bound) / makespan``: 0 for an optimum."""
        return (self.makespan - self.bound) / self.makespan if self.makespan else 0.0

    @property
    def proved(self) -> bool:
        """Whether nothing but rounding stands between makespan and bound: a gap of at most 1e-5."""
        return self.gap <= _ROUNDING


def optimal(
    graph: OpGraph,
    cluster: Target,
    time_limit: Seconds | None = 60.0,
    *,
    cost: CostModel | None = None,
    streams: Size = 1,
    starts: Sequence[Schedule] = (),
    budget: Seconds | None = None,
    workers: Size = 4,
    rng: Rng = 0,
) -> Optimum:
    """Look for the best schedule of the contention-free model, and prove how good it is.

    Parameters
    ----------
    graph, cluster
        What to run, and on what.
    time_limit
        Wall time in s after which the best so far is returned; None for none. So is Ctrl-C.
    cost
        Time of an operator alone on a device in us; by default its `time`, else a roofline.
    streams
        Operators that a device runs at a time, each in its solo time.
    starts
        Schedules of this graph to start from; of each the devices and the launch order are taken.
    budget
        Limit in CP-SAT's deterministic seconds, which count work done; None for none.
    workers
        Threads of the solver: with several it searches in several ways, and one way alone is much worse.
    rng
        Generator, or the seed of one: the seed of the solver.

    Returns
    -------
    Optimum
        With schedule, makespan, proved bound and gap. With one worker the same for the same input, unless
        `time_limit` or Ctrl-C ended it. With more, another schedule of the same makespan may come out of a
        finished search, and anything of one that was ended.

    Raises
    ------
    MissingDependencyError
        If OR-tools is not installed.
    SchedulerError
        If an option is out of range, an operator fits on no device, or a start is of another graph.
    ScheduleError
        If a start is for other devices.

    Notes
    -----
    *Model.* A device runs up to `streams` operators at a time, each as long as it takes alone; a tensor that
    another device reads arrives `Cluster.transfer_time` after its producer, however many are under way;
    launching and waiting cost nothing. This is the model of list schedulers and of their estimates, not
    that of `simulate`: neither makespan nor bound hold for simulated times, of which `lower_bound` is a bound.

    *Search.* The best of the schedules in `starts`, of the list schedulers of the library and of a few of our
    own is the hint that CP-SAT improves on; see `Model` for the program. The bounds of
    `simsched.bounds`, with streams as the resource, are part of it, and end the search at once where the hint
    meets them.

    *Numbers.* CP-SAT counts in whole numbers, see `whole_of`; the makespan is evaluated anew in us. Of times that are
    no whole numbers of a unit a gap of some 1e-7 may be left of a finished search.

    Proofs are to be expected up to some 20 operators, and often up to 50. The solver
    may end a little after the limit.

    >>> from simsched.model.graph import Edge, Operator
    >>> graph = OpGraph([Operator(n, time=t) for n, t in zip("abc", (2.0, 3.0, 4.0))], [Edge("a", "c", transfer=1.0)])
    >>> found = optimal(graph, Cluster.preset("a100", 2))
    >>> found.makespan, found.bound, found.proved
    (6.0, 6.0, True)
    """
    graph, cluster = upon(cluster, graph)
    given = {"time_limit": time_limit, "streams": streams, "budget": budget, "workers": workers, "rng": rng}
    taken("optimal", optimal, given)
    seed = int(np.random.default_rng(rng).integers(2**31))
    began = running_time()
    with Deadline("optimal", time_limit) as deadline:
        cp_model = _cp_model()
        instance = instance_of(graph, cluster, cost, min(streams, len(graph)))
        best = _best_start(instance, cluster, cost, starts)
        search: dict[str, Any] = {"start_us": best.makespan, "bound_us": instance.bound, "branches": 0, "conflicts": 0}
        whole = whole_of(instance, best.makespan)
        bound = max(instance.bound, whole.us(whole.bound))
        if best.makespan > bound * (1 + _EQUAL) and not deadline.over():
            model, solver = Model(whole, best, cp_model), cp_model.CpSolver()
            solver.parameters.random_seed, solver.parameters.num_workers = seed, workers
            solver.parameters.catch_sigint_signal = False
            if budget is not None:
                solver.parameters.max_deterministic_time = budget
            found = _run(solver, model.program, deadline)
            bound = max(bound, whole.us(ceil(solver.best_objective_bound - 1e-6)))
            search |= {"branches": solver.num_branches, "conflicts": solver.num_conflicts}
            search |= {"unit_us": float(whole.unit), "exact": whole.exact}
            if found:
                best = min(best, _read(solver, model, instance), key=lambda plan: plan.makespan)
    bound = min(bound, best.makespan)
    search |= {"proved_us": bound, "stopped": deadline.reason, "search_s": running_time() - began}
    return Optimum(_schedule(instance, cluster, best, search), best.makespan, bound, search)


def _cp_model() -> Any:
    try:
        from ortools.sat.python import cp_model
    except ImportError:
        raise MissingDependencyError("an exact optimum needs OR-tools: pip install 'simsched[exact]'") from None
    return cp_model


def _best_start(instance: Instance, cluster: Cluster, cost: CostModel | None, starts: Sequence[Schedule]) -> Listed:
    best = min(first_schedules(instance, cluster, cost, starts), key=lambda plan: plan.makespan)
    if best.makespan == inf:
        raise SchedulerError(
            "optimal: no list schedule can run, as operators fit on different devices that no links join; "
            "give links, or a schedule in starts"
        )
    return best


def _run(solver: Any, program: Any, deadline: Deadline) -> bool:
    """Solve in a thread of its own, so that Ctrl-C and the clock are heeded; return whether there is a solution."""
    with ThreadPoolExecutor(1, "optimal") as pool:
        solved = pool.submit(solver.solve, program)
        try:
            while not wait([solved], _POLL).done:
                if deadline.over():
                    solver.stop_search()
        except BaseException:  # a second Ctrl-C: nobody wants the solution any more
            solver.stop_search()
            raise
    name = solver.status_name(solved.result())
    assert name in ("OPTIMAL", "FEASIBLE", "UNKNOWN"), name
    return bool(name != "UNKNOWN")


def _read(solver: Any, model: Model, instance: Instance) -> Listed:
    """Return what the solver found, listed anew in us."""
    turn = place_of(instance.graph.order_index)
    start = [solver.value(x) for x in model.start]
    end = [x + solver.value(span) for x, span in zip(start, model.span, strict=True)]
    order = sorted(range(len(turn)), key=lambda i: (start[i], end[i], turn[i]))
    device = [next(d for d, x in enumerate(on) if x is not None and solver.boolean_value(x)) for on in model.on]
    return list_schedule(instance, place_of(np.array(order)).tolist(), device)


def _schedule(instance: Instance, cluster: Cluster, plan: Listed, search: Mapping[str, Any]) -> Schedule:
    return Schedule.from_columns(
        instance.graph, plan.order, [device.name for device in cluster.devices],
        device=[plan.device[i] for i in plan.order], stream=[plan.stream[i] for i in plan.order],
        estimate=plan.makespan, scheduler="optimal", search=search,
    ).check(cluster)  # fmt: skip
