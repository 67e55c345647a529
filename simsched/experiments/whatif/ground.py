"""The ground of a question: a graph or a schedule, and the cluster or the calibration it is asked on."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from simsched.experiments.evaluation import evaluate
from simsched.model import Cluster, CostModel, OpGraph, Schedule, Target
from simsched.model.costmodel import bare, bind
from simsched.model.launches import same_kernels
from simsched.model.trace import Trace
from simsched.schedulers import SCHEDULERS, Scheduler, schedule


@dataclass(frozen=True, eq=False)
class Ground:
    """Subject of a question: all that stays the same while changes are added.

    Parameters
    ----------
    subject, target
        The schedule or graph, and the cluster or calibration, as given.
    scheduler, options, cost, load
        As in `what_if`.
    """

    subject: Schedule | OpGraph
    target: Target
    scheduler: str | Scheduler | None
    options: Mapping[str, Any]
    cost: CostModel | None
    load: Callable[..., OpGraph] | None

    @property
    def by(self) -> str | Scheduler:
        """The scheduler: the given one, else the one that made the given schedule, else ``lios``."""
        if self.scheduler is not None:
            return self.scheduler
        if isinstance(self.subject, Schedule):
            made_by = self.subject.scheduler
        else:
            made_by = ""
        return made_by if made_by in SCHEDULERS else "lios"

    @cached_property
    def cluster(self) -> Cluster:
        """The cluster, of a calibration, too."""
        return bare(self.target)

    @cached_property
    def graph(self) -> OpGraph:
        """The graph, with measured times if the target is a calibration."""
        return bind(self.subject if isinstance(self.subject, OpGraph) else self.subject.graph, self.target)[0]

    @cached_property
    def plan(self) -> Schedule:
        """The schedule before any change."""
        if isinstance(self.subject, Schedule):
            return bind(self.subject, self.target)[0]
        plan = schedule(self.graph, self.target, self.by, self.cost, **self.options)
        return bind(plan, self.target)[0]

    @cached_property
    def trace(self) -> Trace:
        """Simulated run of the schedule before any change."""
        return evaluate(self.plan, self.cluster, self.cost).trace

    def run(self, plan: Schedule, cluster: Cluster, cost: CostModel | None) -> Trace:
        """Return a simulated run; the first schedule's program is used again where devices launch the same."""
        same = plan is self.plan and list(cluster.index) == list(self.cluster.index)
        same = same and same_kernels(plan.graph, cluster, self.cluster)
        return evaluate(self.trace.program if same else plan, cluster, cost).trace
