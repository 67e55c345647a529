"""`Placement`, where an operator runs; and the file of a schedule."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

from simsched.base.codec import Among, Amount, Checked, brief
from simsched.base.errors import ScheduleError
from simsched.model.cluster import Cluster
from simsched.model.graph import OpGraph
from simsched.model.partition import Partition
from simsched.model.program import EVENT_PLANS, EXECUTIONS
from simsched.model.rewriting import Rewriting

UNNAMED: Final = "custom"
"""Scheduler of a schedule that does not say who made it."""


@dataclass(frozen=True, slots=True)
class Placement(Checked):
    """An operator on a stream of a device.

    Parameters
    ----------
    op, device
        Names of the operator and the device.
    stream
        Stream of the device, 0 or more.
    stage, group
        For execution in stages: the device's stages run one after the other, the groups of a
        stage side by side, each group on a separate stream.
    priority
        Stream priority as in CUDA: the lower number is served first.
    """

    SUBJECT = "placement of {0.op!r}"
    ERROR = ScheduleError
    op: str
    device: str = "gpu0"
    stream: int = 0
    stage: int = 0
    group: int = 0
    priority: int = 0


@dataclass(frozen=True, kw_only=True)
class ScheduleFacts(Checked):
    """Fields of a schedule besides its placements.

    Parameters
    ----------
    scheduler
        Name of the scheduler that made it.
    execution
        stages: barriers between stages; events: events between streams; graph: captured once, launched as a whole.
    estimate
        Makespan in us by the scheduler's own model; null if it has none.
    events
        The event plan: minimal or literal.
    search
        Statistics of the scheduler's search.
    rewriting
        How the graph came about from the one that was to be scheduled, one rewriting after the other; empty if it is
        that one.
    cluster
        The cluster that it was made for; absent if unknown.
    partitions
        Streams that are bound to some SMs.
    """

    SUBJECT = "schedule"
    ERROR = ScheduleError
    scheduler: str = UNNAMED
    execution: Annotated[str, Among(EXECUTIONS)] = "events"
    estimate: Amount | None = None
    events: Annotated[str, Among(EVENT_PLANS)] = "minimal"
    search: Mapping[str, Any] = field(default_factory=dict)
    rewriting: tuple[Rewriting, ...] = brief(())
    cluster: Cluster | None = brief(None)
    partitions: tuple[Partition, ...] = brief(())


@dataclass(frozen=True, kw_only=True)
class ScheduleFile(ScheduleFacts):
    """Placements in launch order over the graph they execute.

    Parameters
    ----------
    graph
        The graph to run.
    placements
        One per operator, in the order in which the host launches them.
    """

    graph: OpGraph
    placements: Sequence[Placement]
