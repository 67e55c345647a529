"""What a scheduler is."""

from typing import Protocol

from simsched.cluster import Cluster
from simsched.costmodel import CostModel
from simsched.graph import OpGraph
from simsched.schedules import Schedule


class Scheduler(Protocol):
    """Any function from a graph, a cluster and a cost model to a schedule; options are keyword-only."""

    def __call__(self, graph: OpGraph, cluster: Cluster, cost: CostModel, /) -> Schedule:
        """Return a valid schedule of `graph`, or of a graph that computes the same, on `cluster`."""
        ...
