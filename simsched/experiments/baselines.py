"""Baselines of speedups: one stream, launched eagerly by PyTorch, by a lean host, or captured as a CUDA graph."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from simsched.base.errors import ScheduleError, SchedulerError, UnknownNameError
from simsched.model import EXECUTIONS, LAUNCH, CostModel, OpGraph, Program, Schedule
from simsched.model.cluster import PRIORS
from simsched.model.costmodel import Target, bare
from simsched.model.trace import Trace
from simsched.schedulers import schedule
from simsched.simulator import simulate

EAGER: Final = "eager"
ONE: Final = "one stream"
CAPTURED: Final = "one stream captured"
NAMES: Final = (EAGER, ONE, CAPTURED)
"""Names of the deployments on one stream, in the order in which tables have them."""
OWN: Final = "own"
"""Says that each schedule runs as its scheduler means it to."""
ASKED: Final = (OWN, *EXECUTIONS)
"""The executions that can be asked for."""


@dataclass(frozen=True)
class Baselines:
    """One operator after the other on one stream of one device, in three executions.

    Parameters
    ----------
    plan
        The schedule, launched by the host.
    eager, one, captured
        Their runs: PyTorch's host time for each launch; the device preset's host time; a CUDA graph.
    """

    plan: Schedule
    eager: Trace
    one: Trace
    captured: Trace

    @property
    def traces(self) -> dict[str, Trace]:
        """Runs by their names in `NAMES`."""
        return dict(zip(NAMES, (self.eager, self.one, self.captured), strict=True))

    def is_slower(self, trace: Trace) -> bool:
        """Return whether a run takes longer than one stream that is launched in the same way.

        A graph is held against the captured stream; events and stages are held against the stream that the host
        launches.
        """
        if trace.program.execution == "graph":
            same = self.captured
        else:
            same = self.one
        return trace.makespan > same.makespan * (1 + 1e-9)


def baselines(graph: OpGraph, cluster: Target, cost: CostModel | None = None) -> Baselines:
    """Return the runs that schedules of a graph are measured against.

    Parameters
    ----------
    graph, cluster, cost
        As in `simsched.schedule`; the first device runs everything.

    Raises
    ------
    SimschedError
        If operators cannot run one after the other (see `sequential`).

    Notes
    -----
    PyTorch's host takes 19 us for each kernel in eager execution (an H100's host: 10 to 40).
    """
    plan = schedule(graph, cluster, "sequential", cost)
    lowered = plan.lower(bare(cluster))
    return Baselines(
        plan,
        eager=simulate(eagerly(lowered), cluster, cost),
        one=simulate(lowered, cluster, cost),
        captured=simulate(plan.like(execution="graph").lower(bare(cluster)), cluster, cost),
    )


def eagerly(program: Program) -> Program:
    """Return a program whose host takes as long for each launch as PyTorch's does, operator by operator."""
    if program.own is None:
        own = np.full(len(program), np.nan)
    else:
        own = program.own.copy()
    own[program.action == LAUNCH] = PRIORS["eager_launch"].value
    return program.timed(program.lead, own)


def require_execution(execution: str) -> str:
    """Return an execution that can be asked for.

    Raises
    ------
    UnknownNameError
        If no execution has this name.
    """
    if execution not in ASKED:
        raise UnknownNameError("execution", execution, list(ASKED))
    return execution


def with_execution(plan: Schedule, execution: str) -> Schedule:
    """Return a schedule in another execution, without its estimate; with `OWN` return it unchanged.

    Raises
    ------
    UnknownNameError
        If no execution has this name.
    SchedulerError
        If stages are asked for, and the schedule has none.
    """
    if require_execution(execution) in (OWN, plan.execution):
        return plan
    changed = plan.like(execution=execution)
    if execution == "stages" and plan.n_streams > 1:
        try:
            changed.check()
        except ScheduleError:
            raise SchedulerError(
                f"{plan.scheduler}: its schedule has streams and no stages; give graph or events, or a scheduler that "
                "makes stages, such as ios"
            ) from None
    return changed
