"""What a scheduler is, and what it may ask of the rest of the library."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from simsched.model import Cluster, CostModel, OpGraph, Schedule

if TYPE_CHECKING:
    from simsched.simulator import Evaluator


class Scheduler(Protocol):
    """Any function from a graph, a cluster and a cost model to a schedule; options are keyword-only."""

    def __call__(self, graph: OpGraph, cluster: Cluster, cost: CostModel, /) -> Schedule:
        """Return a valid schedule of `graph`, or of a graph that computes the same, on `cluster`."""
        ...


@dataclass(frozen=True)
class Tools:
    """What a scheduler is given when it asks for it by a keyword-only parameter ``tools`` without a default.

    Schedulers know neither the simulator nor each other; through this they have both.

    Parameters
    ----------
    stage_latency
        From a graph, a cluster, a cost model and, by keyword, the name of a device to the simulated latency of a stage
        in us, a function of its groups of operator names.
    makespan
        From a schedule, a cluster and a cost model to the simulated makespan in us.
    evaluator
        From the same to what simulates a schedule that is changed step by step.
    schedule
        From a graph, a cluster, a scheduler, a cost model and its options to what the scheduler makes, proved valid.
    """

    stage_latency: Callable[..., Callable[[Sequence[Sequence[str]]], float]]
    makespan: Callable[[Schedule, Cluster, CostModel], float]
    evaluator: Callable[[Schedule, Cluster, CostModel], "Evaluator"]
    schedule: Callable[..., Schedule]
