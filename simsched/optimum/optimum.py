"""`optimal`: search and proof by OR-tools CP-SAT."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf
from typing import Any, Final

import numpy as np

from simsched.base.errors import MissingDependencyError, SchedulerError
from simsched.base.jit import running_time
from simsched.base.numeric import is_count, is_number
from simsched.model.calibrated import Target, upon
from simsched.model.cluster import Cluster
from simsched.model.costmodel import CostModel
from simsched.model.graph import OpGraph
from simsched.model.schedule import Schedule
from simsched.optimum.instance import Instance, instance_of, wholes_of
from simsched.optimum.listing import Listed, first_schedules, listed
from simsched.optimum.model import Model
from simsched.schedulers.deadline import Deadline
from simsched.schedulers.listing import require_rng, require_streams

_EQUAL: Final = 1e-9
_ROUNDING: Final = 1e-5
_MORE: Final = 0.05  # deterministic s of the solver to prove in the finest unit what is proved in a coarse one
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
    time_limit: float | None = 60.0,
    *,
    cost: CostModel | None = None,
    streams: int = 1,
    starts: Sequence[Schedule] = (),
    budget: float | None = None,
    workers: int = 4,
    rng: np.random.Generator | int = 0,
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
    own is the hint that CP-SAT improves on; see `Model` for the program. Bounds as of
    `simsched.bounds.paths` and `simsched.bounds.areas`, with streams as the resource, are part of it, and end
    the search at once where the hint meets them.

    *Numbers.* CP-SAT counts in whole numbers, and proves fastest with small ones. Times are rounded down to
    2^-20 of the first makespan, so that its bound is one in us too; the makespan is evaluated anew in
    us. What is proved in this unit is then tried with a little more work in one where times of up to six
    decimals are exact (others: 2^-40). So a gap of some 1e-6 may be left of a finished search.

    Proofs are to be expected up to some 20 operators, and often up to 50. The solver
    may end a little after the limit.

    >>> from simsched.model.graph import Edge, Operator
    >>> graph = OpGraph([Operator(n, time=t) for n, t in zip("abc", (2.0, 3.0, 4.0))], [Edge("a", "c", transfer=1.0)])
    >>> found = optimal(graph, Cluster.preset("a100", 2))
    >>> found.makespan, found.bound, found.proved
    (6.0, 6.0, True)
    """
    graph, cluster = upon(cluster, graph)
    require_streams("optimal", streams)
    if not is_count(workers, 1):
        raise SchedulerError(f"optimal: workers must be a whole number of at least 1, not {workers!r}")
    if budget is not None and not (is_number(budget) and budget > 0):
        raise SchedulerError(f"optimal: budget must be a number of deterministic seconds above 0, not {budget!r}")
    seed = int(require_rng("optimal", rng).integers(2**31))
    began = running_time()
    with Deadline("optimal", time_limit) as deadline:
        cp_model = _cp_model()
        instance = instance_of(graph, cluster, cost, min(streams, len(graph)))
        best = _best_start(instance, cluster, cost, starts)
        search: dict[str, Any] = {"start_us": best.makespan, "bound_us": instance.bound, "branches": 0, "conflicts": 0}
        bound, left = instance.bound, inf if budget is None else float(budget)
        for whole in wholes_of(instance, best.makespan):
            bound = max(bound, whole.us(whole.bound))
            if best.makespan <= bound * (1 + _EQUAL) or deadline.over():
                break
            model = Model(whole, best, cp_model)
            solver = _solver_of(cp_model, seed, workers, left)
            found, closed = _run(solver, model.program, deadline)
            bound = max(bound, whole.us(ceil(solver.best_objective_bound - 1e-6)))
            search["branches"] += solver.num_branches
            search["conflicts"] += solver.num_conflicts
            search |= {"unit_us": float(whole.unit), "exact": whole.exact}
            if found:
                best = min(best, _read(solver, model, instance), key=lambda plan: plan.makespan)
            work = solver.response_proto.deterministic_time
            left = min(left - work, _MORE)
            if not closed or left <= 0:
                break
    bound = min(bound, best.makespan)
    search |= {"proved_us": bound, "stopped": deadline.reason, "search_s": running_time() - began}
    return Optimum(_schedule(instance, cluster, best, search), best.makespan, bound, search)


def _cp_model() -> Any:
    try:
        from ortools.sat.python import cp_model
    except ImportError:
        raise MissingDependencyError("an exact optimum needs OR-tools: pip install 'simsched[exact]'") from None
    return cp_model


def _solver_of(cp_model: Any, seed: int, workers: int, budget: float) -> Any:
    solver = cp_model.CpSolver()
    solver.parameters.random_seed = seed
    solver.parameters.num_workers = workers
    solver.parameters.catch_sigint_signal = False
    solver.parameters.max_deterministic_time = budget
    return solver


def _best_start(instance: Instance, cluster: Cluster, cost: CostModel | None, starts: Sequence[Schedule]) -> Listed:
    best = min(first_schedules(instance, cluster, cost, starts), key=lambda plan: plan.makespan)
    if best.makespan == inf:
        raise SchedulerError(
            "optimal: no list schedule can run, as operators fit on different devices that no links join; "
            "give links, or a schedule in starts"
        )
    return best


def _run(solver: Any, program: Any, deadline: Deadline) -> tuple[bool, bool]:
    """Solve in a thread of its own, so that Ctrl-C and the clock are heeded.

    Returns whether there is a solution, and whether it is proved to be the best.
    """
    status: list[Any] = []
    failure: list[BaseException] = []

    def solve() -> None:
        try:
            status.append(solver.solve(program))
        except BaseException as error:  # raised again below
            failure.append(error)

    thread = threading.Thread(target=solve, name="optimal", daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(_POLL)
            if deadline.over():
                solver.stop_search()
    except BaseException:  # a second Ctrl-C: nobody wants the solution any more
        solver.stop_search()
        raise
    if failure:
        raise failure[0]
    name = solver.status_name(status[0])
    assert name in ("OPTIMAL", "FEASIBLE", "UNKNOWN"), name
    return name != "UNKNOWN", name == "OPTIMAL"


def _read(solver: Any, model: Model, instance: Instance) -> Listed:
    """Return what the solver found, listed anew in us."""
    n = len(instance.graph)
    turn = np.empty(n, np.int64)
    turn[instance.graph.order_index] = np.arange(n)
    start = [solver.value(x) for x in model.start]
    end = [x + solver.value(span) for x, span in zip(start, model.span, strict=True)]
    order = sorted(range(n), key=lambda i: (start[i], end[i], turn[i]))
    places = [next(place for place, x in row.items() if solver.boolean_value(x)) for row in model.runs]
    return listed(instance, order, *([place[k] for place in places] for k in (0, 1)))


def _schedule(instance: Instance, cluster: Cluster, plan: Listed, search: Mapping[str, Any]) -> Schedule:
    return Schedule.from_columns(
        instance.graph,
        plan.order,
        [device.name for device in cluster.devices],
        device=[plan.device[i] for i in plan.order],
        stream=[plan.stream[i] for i in plan.order],
        estimate=plan.makespan,
        scheduler="optimal",
        search=search,
    ).check(cluster)
