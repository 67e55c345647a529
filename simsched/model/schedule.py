"""`Schedule`: what runs where and in which order, without times."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from simsched.base.codec import Amount, Count, Document
from simsched.base.shown import as_html, frame_of
from simsched.model import feasibility
from simsched.model.calibrated import Target, bare
from simsched.model.graph import OpGraph
from simsched.model.plan import Placement, Plan
from simsched.model.program import Program


@dataclass(kw_only=True)
class _File:
    """Placements in launch order over the graph they execute.

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
        What the scheduler says of its search.
    graph
        What runs.
    placements
        One per operator, in the order in which the host launches them.
    """

    scheduler: str = "custom"
    execution: str = "events"
    estimate: Amount | None = None
    events: str = "minimal"
    search: Mapping[str, Any] = field(default_factory=dict)
    graph: OpGraph
    placements: Sequence[Placement]


class Schedule(Plan, Document):
    """Placements in launch order over the graph they execute.

    Parameters
    ----------
    graph
        The graph that runs; a scheduler that rewrites graphs puts the rewritten one here.
    placements
        One per operator, in the order in which the host launches them.
    execution
        ``"stages"`` (barriers between stages), ``"events"`` (events between streams) or
        ``"graph"`` (captured once, launched as a whole).
    estimate
        Makespan in us by the scheduler's own model, or None if it has none.
    scheduler
        Name of the scheduler that made it.
    events
        Event plan that `lower` makes unless it is told another: ``"minimal"`` or ``"literal"``.
    search
        What the scheduler says of its search, JSON values by name. Wall times stand under names that
        end in ``_s``; they are not written to files, and two schedules that differ in `search` alone are equal.

    Raises
    ------
    ScheduleError
        If a placement names no operator or an operator is placed twice or never, a number is
        negative, `execution` or `events` is unknown, or `search` holds no JSON values. Whether the
        schedule can run is proved by `check`.

    Notes
    -----
    Stored by columns in launch order: `op` (operator indices), `device` (indices into
    `devices`), `stream`, `stage`, `group`, `priority`, each of shape (n_ops,) and of 32 bits; one
    that is given as one number is stored as one.
    """

    FORMAT, FILE = "simsched.schedule", _File

    def check(self, cluster: Target | None = None) -> "Schedule":
        """Prove that the schedule runs to its end and respects every dependency.

        Checked are: devices exist in `cluster` (if given); with `execution="stages"`, stages of a
        device follow each other in launch order, the groups of a stage have streams of their own
        and do not depend on each other; with ``"graph"``, the one capturing thread records no
        wait before its record; and no cycle leads through dependencies, streams, stages,
        barriers and host threads (one per device), so that nothing waits for ever.

        Returns
        -------
        Schedule
            The schedule itself.

        Raises
        ------
        ScheduleError
            Naming the operator or the dependency that cannot be.

        Notes
        -----
        O(V + E), vectorised where the launch order is topological.
        """
        feasibility.check(self, None if cluster is None else bare(cluster))
        return self

    def lower(
        self, cluster: Target, *, threads: str = "device", transfers: str = "async", events: str | None = None
    ) -> Program:
        """Return the `Program`: what the host issues to run this schedule on a cluster.

        Parameters
        ----------
        threads
            ``"device"``: one issuing thread per device; ``"one"``: one for all, in launch order.
            A captured graph always has one.
        transfers
            ``"async"``: edges between devices are copies ordered by events; ``"blocking"``: the
            host waits for the producer before it sends, and for the data before it launches the
            consumer, as the executor of HIOS does.
        events
            ``"minimal"``: only waits that nothing else implies, and one copy for equal edges of a
            producer to one device; ``"literal"``: a wait per consumer and producer on another
            stream, a copy per edge; None: the schedule's own.

        Raises
        ------
        ScheduleError
            If an option is unknown, or if `check` refuses the schedule.

        Notes
        -----
        The last program is kept: lowered again with the same options for the same cluster, it is
        returned as it is.
        """
        from simsched.model.lowering import lower

        events = self.events if events is None else events
        program = lower(self, bare(cluster), threads=threads, transfers=transfers, events=events)
        program.__dict__["scheduler"] = self.scheduler
        return program

    _repr_html_ = as_html

    def to_pandas(self) -> Any:
        """Return the placements as a pandas DataFrame, a row each; without pandas MissingDependencyError is raised."""
        return frame_of(self.placements, Placement)

    def to_file(self) -> _File:
        """Return it as its file has it: without wall times."""
        search = {key: value for key, value in self.search.items() if not key.endswith("_s")}
        return _File(**{each.name: getattr(self, each.name) for each in fields(_File)} | {"search": search})


@dataclass(kw_only=True)
class NumberedPlan(_File, Document):
    """A schedule of a graph that stands elsewhere in the document, under a number."""

    FORMAT = "simsched.schedule"
    graph: Count  # type: ignore[assignment]

    @classmethod
    def of(cls, plan: "Schedule", graph: int) -> "NumberedPlan":
        """Return a schedule, given the number of its graph."""
        found = plan.to_file()
        return cls(**{each.name: getattr(found, each.name) for each in fields(_File)} | {"graph": graph})

    def made(self, graph: OpGraph) -> "Schedule":
        """Return the schedule."""
        return Schedule(graph, self.placements, self.execution, self.estimate, self.scheduler, self.events, self.search)
