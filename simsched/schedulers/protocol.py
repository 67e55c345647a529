"""What a scheduler is, and what it may ask of the rest of the library."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from simsched.model.cluster import Cluster
from simsched.model.costmodel import CostModel
from simsched.model.graph import OpGraph
from simsched.model.schedule import Schedule

if TYPE_CHECKING:
    from simsched.simulator import Evaluator


class Scheduler(Protocol):
    """Any function from a graph, a cluster and a cost model to a schedule; options are keyword-only."""

    def __call__(self, graph: OpGraph, cluster: Cluster, cost: CostModel, /) -> Schedule:
        """Return a valid schedule of `graph`, or of a graph that computes the same, on `cluster`."""
        ...


class Tools(Protocol):
    """What a scheduler is given when it asks for it by a keyword-only parameter ``tools`` without a default.

    Schedulers know neither the simulator nor each other; through this they have both.
    """

    def stage_latency(
        self, graph: OpGraph, cluster: Cluster, cost: CostModel, *, device: str | None = None
    ) -> Callable[[Sequence[Sequence[str]]], float]:
        """Return the simulated latency of a stage in us, a function of its groups of operator names."""
        ...

    def makespan(self, plan: Schedule, cluster: Cluster, cost: CostModel) -> float:
        """Return the simulated makespan in us."""
        ...

    def evaluator(self, plan: Schedule, cluster: Cluster, cost: CostModel) -> "Evaluator":
        """Return what simulates a schedule that is changed step by step."""
        ...

    def schedule(
        self, graph: OpGraph, cluster: Cluster, scheduler: str | Scheduler, cost: CostModel, **options: Any
    ) -> Schedule:
        """Return what another scheduler makes of a graph, proved valid."""
        ...
