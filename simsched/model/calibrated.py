"""What stands for a cluster: itself, or a calibration, which also knows how long operators take on it."""

from dataclasses import replace
from typing import Any, Protocol, TypeVar, cast, runtime_checkable

from simsched.model.cluster import Cluster, Device
from simsched.model.graph import Operator, OpGraph
from simsched.model.graph.columns import Floats, Indices
from simsched.model.plan import Plan
from simsched.model.program import Program

Subject = TypeVar("Subject", bound=OpGraph | Plan | Program)


@runtime_checkable
class Calibrated(Protocol):
    """A cluster whose parameters were fitted, with the operators that were measured on it: a `Calibration`.

    It is a cost model, too: where nothing else is said, operators take the times that it knows.
    """

    @property
    def cluster(self) -> Cluster:
        """The cluster with its fitted parameters."""
        ...

    def apply(self, graph: OpGraph) -> OpGraph:
        """Return the graph with the times and kernels that were measured; what `apply` returned, as it is."""
        ...

    def __call__(self, op: Operator, device: Device) -> float:
        """Return the time in us that an operator takes alone on a device."""
        ...

    def operator_times(self, graph: OpGraph, device: Device, ops: Indices) -> Floats:
        """Return the times in us of some operators of a graph alone on a device, shape of `ops`."""
        ...


Target = Cluster | Calibrated


def bare(target: Target) -> Cluster:
    """Return the cluster itself."""
    return target if isinstance(target, Cluster) else target.cluster


def with_cluster(target: Target, cluster: Cluster) -> Target:
    """Return a target with another cluster; what is known of operators stays."""
    return cluster if isinstance(target, Cluster) else cast(Target, replace(cast(Any, target), cluster=cluster))


def upon(target: Target, subject: Subject) -> tuple[Subject, Cluster]:
    """Return a graph, or what runs one, as measured on a target, and the cluster itself.

    On a plain cluster that is the subject as it is.

    Raises
    ------
    ProgramError
        If a program launches other numbers of kernels than were measured.
    """
    if isinstance(target, Cluster):
        return subject, target
    graph = target.apply(subject if isinstance(subject, OpGraph) else subject.graph)
    return cast(Subject, graph if isinstance(subject, OpGraph) else subject.over(graph)), target.cluster
