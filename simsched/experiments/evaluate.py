"""`evaluate`: what a schedule comes to: made, lowered, simulated, drawn from, and held against a lower bound."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from simsched.base.errors import SimschedError
from simsched.base.jit import running_time
from simsched.bounds import lower_bound
from simsched.model import CostModel, OpGraph, Program, Schedule, Target
from simsched.model.trace import Trace
from simsched.schedulers import Scheduler, schedule
from simsched.simulator import Makespans, simulate, simulate_many
from simsched.simulator.workload import Jitter


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
    what: OpGraph | Schedule | Program, cluster: Target, cost: CostModel | None = None, *,
    scheduler: str | Scheduler = "lios", options: Mapping[str, Any] | None = None,
    bound: Callable[[OpGraph], float] | None = None, jitter: Jitter | None = None, seed: int | None = None,
    samples: int | None = None, workers: int = 1, engine: str = "auto", lowering: Mapping[str, Any] | None = None,
) -> Evaluation:  # fmt: skip
    """Schedule a graph, or take a schedule as it is, and find what it comes to.

    Parameters
    ----------
    what, cluster, cost
        As in `schedule` and `simulate`.
    scheduler, options
        Who schedules a graph, and how.
    bound
        Gives the lower bound of a graph in us, such as `Yardstick.bound`; None if there is no need of it.
    jitter, seed, engine
        As in `simulate`.
    samples, workers
        As in `simulate_many`: with samples jitter is in them alone, the trace is without. None draws none.
    lowering
        Options of `Schedule.lower`; None leaves it to `simulate`.

    Raises
    ------
    SimschedError
        As `schedule`, `simulate` and `simulate_many` do.
    """
    start = running_time()
    plan = schedule(what, cluster, scheduler, cost, **(options or {})) if isinstance(what, OpGraph) else what
    scheduled = running_time()
    lowered = plan if lowering is None or isinstance(plan, Program) else plan.lower(cluster, **lowering)
    varied: dict[str, Any] = {"jitter": jitter, "rng": seed}  # None is refused where samples are asked for
    if samples is None:
        trace, drawn = simulate(lowered, cluster, cost, engine=engine, **varied), None
    else:
        trace = simulate(lowered, cluster, cost, engine=engine)
        drawn = simulate_many(trace.program, cluster, samples, cost, workers=workers, **varied)
    end = running_time()
    bound_us = None if bound is None else bound(plan.graph)
    return Evaluation(plan, trace, drawn, bound_us, scheduled - start, end - scheduled)


@dataclass
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
    _sequential: list[tuple[Mapping[str, Any], float | None]] = field(default_factory=list)

    def bound(self, graph: OpGraph) -> float:
        """Return the lower bound in us of the graph that a schedule runs, which may be a rewritten one."""
        return self._bound_us if graph is self.graph else lower_bound(graph, self.cluster, self.cost)

    @cached_property
    def _bound_us(self) -> float:
        return lower_bound(self.graph, self.cluster, self.cost)

    def sequential(self, conditions: Mapping[str, Any], found: float | None = None) -> float | None:
        """Return the makespan in us of one operator after the other, None if there is none.

        Parameters
        ----------
        conditions
            How it is simulated, as in `evaluate`.
        found
            The makespan, if it was just found.
        """
        for known, makespan in self._sequential:
            if known == conditions:
                return makespan
        if found is None:
            with suppress(SimschedError):  # a row of `sequential` says why
                trace = evaluate(self.graph, self.cluster, self.cost, scheduler="sequential", **conditions).trace
                found = trace.makespan
        self._sequential.append((conditions, found))
        return found
