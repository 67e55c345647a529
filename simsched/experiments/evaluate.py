"""`evaluate`: what a schedule comes to: made, lowered, simulated, drawn from, and held against a lower bound."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from simsched.base.errors import SimschedError
from simsched.base.jit import running_time
from simsched.bounds import lower_bound
from simsched.model import CostModel, OpGraph, Program, Schedule, Target
from simsched.model.trace import Trace
from simsched.schedulers import Scheduler, schedule
from simsched.simulator import Makespans, simulate, simulate_many
from simsched.simulator.workload import Jitter


@dataclass(frozen=True, slots=True)
class Conditions:
    """How schedules are simulated.

    Parameters
    ----------
    jitter, seed
        As in `simulate`.
    samples, workers
        As in `simulate_many`: with samples jitter is in them alone, the trace is without. None draws none.
    engine
        As in `simulate`.
    lowering
        Options of `Schedule.lower`; None leaves it to `simulate`.
    """

    jitter: Jitter | None = None
    seed: int | None = None
    samples: int | None = None
    workers: int = 1
    engine: str = "auto"
    lowering: Mapping[str, Any] | None = None


USUAL: Final = Conditions()


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What a schedule came to.

    Parameters
    ----------
    plan
        The schedule, or the program that was given in its place.
    trace
        What ran when.
    samples
        Makespans with operator times that vary; None if none were asked for.
    bound_us
        Lower bound of the graph that the schedule runs, in us; None if it was not asked for.
    search_s, simulate_s
        Wall times in s: of the scheduler, and of all simulations.
    """

    plan: Schedule | Program
    trace: Trace
    samples: Makespans | None
    bound_us: float | None
    search_s: float
    simulate_s: float


def evaluate(
    what: OpGraph | Schedule | Program, cluster: Target, cost: CostModel | None = None,
    conditions: Conditions = USUAL, *, scheduler: str | Scheduler = "lios", options: Mapping[str, Any] | None = None,
    bound: Callable[[OpGraph], float] | None = None,
) -> Evaluation:  # fmt: skip
    """Schedule a graph, or take a schedule as it is, and find what it comes to.

    Parameters
    ----------
    what, cluster, cost
        As in `schedule` and `simulate`.
    conditions
        How it is simulated.
    scheduler, options
        Who schedules a graph, and how.
    bound
        Gives the lower bound of a graph in us, such as `Yardstick.bound`; None if there is no need of it.

    Raises
    ------
    SimschedError
        As `schedule`, `simulate` and `simulate_many` do.
    """
    start = running_time()
    plan = schedule(what, cluster, scheduler, cost, **(options or {})) if isinstance(what, OpGraph) else what
    scheduled = running_time()
    trace = _simulated(plan, cluster, cost, conditions)
    drawn = None
    if conditions.samples is not None:
        how: dict[str, Any] = {"jitter": conditions.jitter, "rng": conditions.seed}  # None is refused
        drawn = simulate_many(trace.program, cluster, conditions.samples, cost, workers=conditions.workers, **how)
    end = running_time()
    return Evaluation(
        plan, trace, drawn, None if bound is None else bound(plan.graph), scheduled - start, end - scheduled
    )


def _simulated(plan: Schedule | Program, cluster: Target, cost: CostModel | None, conditions: Conditions) -> Trace:
    if conditions.lowering is not None and isinstance(plan, Schedule):
        plan = plan.lower(cluster, **conditions.lowering)
    jitter = conditions.jitter if conditions.samples is None else None
    return simulate(plan, cluster, cost, jitter=jitter, rng=conditions.seed, engine=conditions.engine)


@dataclass(slots=True)
class Yardstick:
    """What all schedules of a graph are measured by, found when it is first asked for.

    Parameters
    ----------
    graph, cluster, cost
        As in `schedule`; the graph as measured on the cluster.
    """

    graph: OpGraph
    cluster: Target
    cost: CostModel | None = None
    _bound_us: float | None = None
    _sequential: list[tuple[Conditions, float | None]] = field(default_factory=list)

    def bound(self, graph: OpGraph) -> float:
        """Return the lower bound in us of the graph that a schedule runs, which may be a rewritten one."""
        if graph is not self.graph:
            return lower_bound(graph, self.cluster, self.cost)
        if self._bound_us is None:
            self._bound_us = lower_bound(graph, self.cluster, self.cost)
        return self._bound_us

    def sequential(self, conditions: Conditions, found: float | None = None) -> float | None:
        """Return the makespan in us of one operator after the other, `found` if it just was; None if it cannot be."""
        for known, makespan in self._sequential:
            if known == conditions:
                return makespan
        try:
            if found is None:
                plan = schedule(self.graph, self.cluster, "sequential", self.cost)
                found = _simulated(plan, self.cluster, self.cost, conditions).makespan
        except SimschedError:  # a row of `sequential` says why
            pass
        self._sequential.append((conditions, found))
        return found
