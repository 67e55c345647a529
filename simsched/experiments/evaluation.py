"""`evaluate`: the makespan of one schedule, and the yardsticks that schedules of a graph share."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from simsched.base.errors import SimschedError
from simsched.base.jit import running_time
from simsched.bounds import lower_bound
from simsched.experiments.baselines import OWN, with_execution
from simsched.model import CostModel, OpGraph, Program, Schedule, Target
from simsched.model.trace import Trace
from simsched.schedulers import Scheduler, schedule
from simsched.simulator.demand import Jitter
from simsched.simulator.simulate import Makespans, simulate, simulate_many


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A schedule with its simulated trace and its lower bound.

    Parameters
    ----------
    plan
        The schedule, or the program that was given in its place.
    trace
        The simulated run.
    samples
        Makespans with operator times that vary; None if none were asked for.
    bound_us
        Lower bound of the graph that the schedule runs, in us; None if it was not asked for.
    search_s, simulate_s
        Wall times in s: of the scheduler, None where there was none to wait for; and of all simulations.
    """

    plan: Schedule | Program
    trace: Trace
    samples: Makespans | None
    bound_us: float | None
    search_s: float | None
    simulate_s: float


def evaluate(
    what: OpGraph | Schedule | Program,
    cluster: Target,
    cost: CostModel | None = None,
    *,
    scheduler: str | Scheduler = "lios",
    options: Mapping[str, Any] | None = None,
    bound: Callable[[OpGraph], float] | None = None,
    jitter: Jitter | None = None,
    seed: int | None = None,
    samples: int | None = None,
    workers: int = 1,
    engine: str = "auto",
    lowering: Mapping[str, Any] | None = None,
    execution: str = OWN,
) -> Evaluation:
    """Schedule a graph, or take an existing schedule, and simulate it.

    Parameters
    ----------
    what, cluster, cost
        As in `schedule` and `simulate`.
    scheduler, options
        The scheduler of a graph, and its options.
    bound
        Returns the lower bound of a graph in us, for example `Yardstick.bound`; None if no bound is needed.
    jitter, seed, engine
        As in `simulate`.
    samples, workers
        As in `simulate_many`: with samples, they alone have jitter, and the trace has none. None draws none.
    lowering
        Options of `Schedule.lower`; None leaves it to `simulate`.
    execution
        How a schedule runs, see `simsched.experiments.baselines.with_execution`.

    Raises
    ------
    SimschedError
        As `schedule`, `with_execution`, `simulate` and `simulate_many` do.
    """
    start = running_time()
    plan = schedule(what, cluster, scheduler, cost, **(options or {})) if isinstance(what, OpGraph) else what
    if isinstance(plan, Schedule):
        plan = with_execution(plan, execution)
    scheduled = running_time()
    lowered = plan if lowering is None or isinstance(plan, Program) else plan.lower(cluster, **lowering)
    varied: dict[str, Any] = {"jitter": jitter, "rng": seed}  # None is refused where samples are asked for
    trace = simulate(lowered, cluster, cost, engine=engine, **(varied if samples is None else {}))
    if samples is None:
        drawn = None
    else:
        drawn = simulate_many(trace.program, cluster, samples, cost, workers=workers, **varied)
    end = running_time()
    if bound is None:
        bound_us = None
    else:
        bound_us = bound(plan.graph)
    return Evaluation(plan, trace, drawn, bound_us, scheduled - start, end - scheduled)


@dataclass
class Yardstick:
    """Lower bound and baselines of all schedules of a graph, computed on first use.

    Parameters
    ----------
    graph, cluster, cost
        As in `schedule`; the graph as measured on the cluster.
    """

    graph: OpGraph
    cluster: Target
    cost: CostModel | None = None
    _captured: list[tuple[Mapping[str, Any], float | None]] = field(default_factory=list)

    def bound(self, graph: OpGraph) -> float:
        """Return the lower bound in us of the graph that a schedule runs, which may be a rewritten one."""
        if graph is self.graph:
            return self._bound_us
        return lower_bound(graph, self.cluster, self.cost)

    @cached_property
    def _bound_us(self) -> float:
        return lower_bound(self.graph, self.cluster, self.cost)

    def captured_makespan(self, conditions: Mapping[str, Any]) -> float | None:
        """Return the makespan in us of one operator after the other in a CUDA graph, None if there is none.

        Parameters
        ----------
        conditions
            How it is simulated, as in `evaluate`.
        """
        for execution, makespan in self._captured:
            if execution == conditions:
                return makespan
        fastest: float | None = None
        with suppress(SimschedError):  # the row of `sequential` has the reason
            run = evaluate(self.graph, self.cluster, self.cost, scheduler="sequential", execution="graph", **conditions)
            fastest = run.trace.makespan
        self._captured.append((conditions, fastest))
        return fastest
