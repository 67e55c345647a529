"""`Schedule`: places and order of operators, without times, and the proof that it can run."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any, Final, NoReturn

import numpy as np
import numpy.typing as npt

from simsched.base.codec import Count, Document
from simsched.base.errors import ScheduleError, UnknownNameError
from simsched.base.memo import Memo
from simsched.base.numeric import frozen, twice, whole_numbers
from simsched.base.views import as_html, frame_of
from simsched.model.cluster import Cluster
from simsched.model.costmodel import Target, bare
from simsched.model.graph import OpGraph, RowsView
from simsched.model.graph.columns import Columnar, Indices, describe_cycle, distinct, topological_order
from simsched.model.graph.groups import together_on
from simsched.model.partition import Partition, require_partitions
from simsched.model.placement import UNNAMED, Placement, ScheduleFacts, ScheduleFile
from simsched.model.program import Program, barrier_before
from simsched.model.rewriting import Rewriting

_NUMBERS: Final = ("stream", "stage", "group", "priority")
_LARGEST: Final = 2**31 - 1
# Of a schedule: the last one over another graph, and the last program with the cluster and the options it is for.
_last_over = Memo["Schedule"]()
_last_program = Memo[tuple[Cluster, Mapping[str, str], Program]]()


class Schedule(Columnar, Document):
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
        Event plan that `lower` makes by default: ``"minimal"`` or ``"literal"``.
    search
        Statistics of the scheduler's search, JSON values by name. Wall times have names that end in ``_s``; they are
        not written to files, and two schedules that differ in `search` alone are equal.
    rewriting
        How `graph` came about if it is not the one that was to be scheduled: `simsched.schedule` does the same again
        and refuses the schedule of a graph that is another one. ``()`` if nothing was rewritten.
    cluster
        The cluster that it was made for, without a part in equality; None if unknown. `simsched.schedule` says it.
    partitions
        Streams that are bound to some SMs of their device; the others run on all.

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

    FORMAT = "simsched.schedule"
    FILE = ScheduleFile
    graph: OpGraph
    execution: str
    estimate: float | None
    scheduler: str
    events: str
    search: Mapping[str, Any]
    rewriting: tuple[Rewriting, ...]
    cluster: Cluster | None
    partitions: tuple[Partition, ...]
    devices: tuple[str, ...]
    op: Indices
    device: Indices
    stream: Indices
    stage: Indices
    group: Indices
    priority: Indices

    def __init__(
        self,
        graph: OpGraph,
        placements: Iterable[Placement],
        execution: str = "events",
        estimate: float | None = None,
        scheduler: str = UNNAMED,
        events: str = "minimal",
        search: Mapping[str, Any] = MappingProxyType({}),
        rewriting: Sequence[Rewriting] = (),
        cluster: Cluster | None = None,
        partitions: Sequence[Partition] = (),
    ) -> None:
        rows = tuple(placements)
        unknown = next((row for row in rows if row.op not in graph.index), None)
        if unknown is not None:
            raise ScheduleError(f"placement of {unknown.op!r} names no operator of graph {graph.name!r}")
        devices = tuple(dict.fromkeys(row.device for row in rows))
        number = {name: i for i, name in enumerate(devices)}
        columns: dict[str, npt.ArrayLike] = {key: [getattr(row, key) for row in rows] for key in _NUMBERS}
        columns |= {"op": [graph.index[row.op] for row in rows], "device": [number[row.device] for row in rows]}
        stored = Schedule.from_columns(
            graph,
            devices=devices,
            **columns,
            execution=execution,
            estimate=estimate,
            scheduler=scheduler,
            events=events,
            search=search,
            rewriting=rewriting,
            cluster=cluster,
            partitions=tuple(partitions),
        )
        self.__dict__.update(stored.__dict__)

    @classmethod
    def from_columns(
        cls,
        graph: OpGraph,
        op: npt.ArrayLike,
        devices: Sequence[str],
        *,
        device: npt.ArrayLike = 0,
        stream: npt.ArrayLike = 0,
        stage: npt.ArrayLike = 0,
        group: npt.ArrayLike = 0,
        priority: npt.ArrayLike = 0,
        execution: str = "events",
        estimate: float | None = None,
        scheduler: str = UNNAMED,
        events: str = "minimal",
        search: Mapping[str, Any] = MappingProxyType({}),
        rewriting: Sequence[Rewriting] = (),
        cluster: Cluster | None = None,
        partitions: Sequence[Partition] = (),
    ) -> "Schedule":
        """Make a schedule from columns in launch order (see Notes of the class); scalars are spread.

        The other parameters are as in the class.
        """
        columns = {"op": op, "device": device, "stream": stream, "stage": stage, "group": group, "priority": priority}
        details = ScheduleFacts(
            execution=execution,
            estimate=estimate,
            scheduler=scheduler,
            events=events,
            search=search,
            rewriting=tuple(rewriting),
            cluster=cluster,
            partitions=tuple(partitions),
        )
        n = len(graph)
        if len(set(devices)) != len(devices):
            raise ScheduleError(f"device {twice(devices)!r} stands twice")
        values = {key: _whole(column, key, np.shape(op)) for key, column in columns.items()}
        for key, end, what in (("op", n, "operators"), ("device", len(devices), "devices")):
            if values[key].size and not 0 <= values[key].min() <= values[key].max() < end:
                raise ScheduleError(f"column {key!r} must hold indices of the {end} {what}")
        placed = np.bincount(values["op"], minlength=n)
        if (placed != 1).any():
            i = int(np.argmax(placed != 1))
            raise ScheduleError(f"operator {graph.names[i]!r} is placed {'twice' if placed[i] > 1 else 'nowhere'}")
        for key in ("stream", "stage", "group"):
            if values[key].min() < 0:
                at = int(np.argmax(values[key] < 0))
                name = graph.names[values["op"][at]]
                raise ScheduleError(f"operator {name!r}: {key} must not be negative, not {values[key][at]}")
        schedule = cls.__new__(cls)
        schedule.__dict__.update(vars(details), graph=graph, devices=tuple(devices), **values)
        if details.estimate is None:
            schedule.__dict__["estimate"] = None
        else:
            schedule.__dict__["estimate"] = float(details.estimate)
        schedule._freeze()
        return schedule

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"search": dict(self.search)}  # a mapping proxy cannot be pickled

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state | {"search": MappingProxyType(state["search"])})

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Schedule cannot be changed (tried to set {name!r}); make a new one")

    def __len__(self) -> int:
        return len(self.op)

    def __repr__(self) -> str:
        return (
            f"Schedule({self.scheduler!r} of {self.graph.name!r}, {len(self)} operators, {self.n_streams} streams, "
            f"{len(self.devices_used)} devices, execution={self.execution!r})"
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Schedule):
            return NotImplemented
        ours, theirs = ((s.execution, s.events, s.estimate, s.scheduler, s.partitions) for s in (self, other))
        return ours == theirs and self.graph == other.graph and self.placements == other.placements

    @property
    def placements(self) -> RowsView[Placement]:
        """The placements, in launch order."""

        def placement(i: int) -> Placement:
            name = self.graph.names[self.op[i]]
            device = self.devices[self.device[i]]
            return Placement(name, device, *(int(getattr(self, key)[i]) for key in _NUMBERS))

        return RowsView(len(self.op), placement)

    @property
    def devices_used(self) -> tuple[str, ...]:
        """Names of the devices that run at least one operator."""
        return tuple(self.devices[i] for i in np.flatnonzero(np.bincount(self.device)))

    @property
    def n_streams(self) -> int:
        """Streams in use, over all devices."""
        return len(distinct(self.device * np.int64(2**31) + self.stream))

    def like(self, rows: Indices | None = None, **others: Any) -> "Schedule":
        """Return the schedule with its rows in another order and with other columns and fields, as of `from_columns`.

        It has no estimate but one of its placements.
        """
        chosen = ... if rows is None else rows
        columns = {key: getattr(self, key)[chosen] for key in ("op", "device", *_NUMBERS)}
        same = ("graph", "devices", "execution", "scheduler", "events", "search", "rewriting", "cluster", "partitions")
        return self.from_columns(**columns | {key: getattr(self, key) for key in same} | others)

    def with_partitions(self, sms: Mapping[int, int]) -> "Schedule":
        """Return the schedule with streams bound to SMs, on every device that it uses.

        Parameters
        ----------
        sms
            How many SMs a stream has, by its number.
        """
        partitions = [Partition(device, stream, n) for device in self.devices_used for stream, n in sms.items()]
        return self.like(partitions=partitions, estimate=self.estimate)

    def made_for(self, cluster: Cluster, by: str = UNNAMED) -> "Schedule":
        """Return the schedule as one that was made for a cluster, which its file then holds.

        `by` is the name of its scheduler, for a schedule that does not say who made it.
        """
        scheduler = by if self.scheduler == UNNAMED else self.scheduler
        if self.cluster is cluster and self.scheduler == scheduler:
            return self
        return self.with_values(cluster=cluster, scheduler=scheduler)

    def over(self, graph: OpGraph) -> "Schedule":
        """Return the schedule over another graph of the same operators, such as one with measured times.

        The last one made is kept.

        Raises
        ------
        ScheduleError
            If the graph has operators of other names, or in another order.
        """
        if graph is self.graph:
            return self
        last = _last_over.get(self)
        if last is not None and last.graph is graph:
            return last
        if graph.names != self.graph.names:
            raise ScheduleError(f"the schedule of graph {self.graph.name!r} is not one of graph {graph.name!r}")
        return _last_over.put(self, self.with_values(graph=graph))

    @property
    def position(self) -> Indices:
        """Place of each operator in the launch order, shape (n_ops,)."""
        return frozen(_by_operator(self.op, np.arange(len(self))))

    def check(self, cluster: Target | None = None) -> "Schedule":
        """Prove that the schedule runs to its end and respects every dependency.

        Checked are: devices exist in `cluster` (if given); with `execution="stages"`, stages of a
        device follow each other in launch order, the groups of a stage have streams of their own
        and do not depend on each other; with ``"graph"``, the one capturing thread records no
        wait before its record; and no cycle leads through dependencies, streams, stages,
        barriers, host threads (one per device) and collectives, so that nothing waits for ever. Whether
        ranks wait for each other for want of hardware queues or of room for their blocks, a simulation says.

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
        _prove(self, None if cluster is None else bare(cluster))
        return self

    def lower(
        self, cluster: Target, *, threads: str = "device", transfers: str = "async", events: str | None = None
    ) -> Program:
        """Return the `Program`: the instructions of the host to run this schedule on a cluster.

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
        The last program is kept: a second call with the same options and cluster returns it.
        """
        from simsched.model.lowering import OPTIONS, Lowering

        options = {"threads": threads, "transfers": transfers, "events": self.events if events is None else events}
        for name, value in options.items():
            if value not in OPTIONS[name]:
                raise ScheduleError(f"unknown {name} {value!r}; known are: {', '.join(OPTIONS[name])}")
        if self.execution == "graph" and transfers == "blocking":
            raise ScheduleError("a captured graph cannot hold host-blocking transfers; use transfers='async'")
        on = bare(cluster)
        last = _last_program.get(self)
        if last is not None and last[0] is on and last[1] == options:
            return last[2]
        _prove(self, on, one_thread=threads == "one", blocking=transfers == "blocking")
        device = np.array([on.index.get(name, -1) for name in self.devices], np.int32)[self.device]
        lowering = Lowering(self.graph, on, self.execution, **options)
        program = lowering.program(self.op, device, self.stream, self.stage, self.priority)
        if self.partitions:
            program = program.bound_to(self.partitions)
        program = program.with_values(scheduler=self.scheduler)
        _last_program.put(self, (on, options, program))
        return program

    _repr_html_ = as_html

    def to_pandas(self) -> Any:
        """Return the placements as a pandas DataFrame, a row each; without pandas MissingDependencyError is raised."""
        return frame_of(self.placements, Placement)

    def to_file(self) -> ScheduleFile:
        """Return it as its file has it: without wall times."""
        search = {key: value for key, value in self.search.items() if not key.endswith("_s")}
        return ScheduleFile(
            **{field.name: getattr(self, field.name) for field in fields(ScheduleFile)} | {"search": search}
        )


@dataclass(frozen=True, kw_only=True)
class NumberedPlan(ScheduleFile, Document):
    """A schedule of a graph that is stored elsewhere in the document, under a number."""

    FORMAT = "simsched.schedule"
    graph: Count  # type: ignore[assignment]

    @classmethod
    def of(cls, plan: Schedule, graph: int) -> "NumberedPlan":
        """Return a schedule, given the number of its graph."""
        return cls(**vars(plan.to_file()) | {"graph": graph})

    def to_schedule(self, graph: OpGraph) -> Schedule:
        """Return the schedule."""
        return Schedule(**vars(self) | {"graph": graph})


def _whole(values: npt.ArrayLike, name: str, shape: tuple[int, ...]) -> Indices:
    """Return a column of whole numbers as a copy in 32 bits, which the largest of them fits into."""
    numbers = whole_numbers(values)
    if (
        numbers is None
        or len(shape) != 1
        or (numbers.size and not -_LARGEST <= numbers.min() <= numbers.max() <= _LARGEST)
    ):
        raise ScheduleError(f"column {name!r} must hold whole numbers below 2^31")
    try:
        return np.broadcast_to(numbers.astype(np.int32), shape)
    except ValueError:
        raise ScheduleError(f"column {name!r} must have {shape[0] if shape else 1} rows, one per operator") from None


def _by_operator(ops: Indices, column: Indices) -> Indices:
    """Return a column of values in the graph's order of operators, given their order."""
    reordered = np.empty(len(ops), np.int32)
    reordered[ops] = column
    return reordered


def _prove(schedule: Schedule, cluster: Cluster | None, *, one_thread: bool = False, blocking: bool = False) -> None:
    """See `Schedule.check`.

    Parameters
    ----------
    one_thread
        Whether one host thread launches everything.
    blocking
        Whether hosts wait for their copies, sent and received.
    """
    for name in schedule.devices_used:
        if cluster is not None and name not in cluster.index:
            at = int(np.argmax(schedule.device == schedule.devices.index(name)))
            _refuse(schedule, schedule.op[at], str(UnknownNameError("device", name, list(cluster.index))))
    if cluster is not None:
        require_partitions(schedule.partitions, cluster)
    if schedule.execution == "stages":
        _check_stages(schedule)
    graph = schedule.graph
    position = schedule.position
    backwards = position[graph.src] > position[graph.dst]
    meets = [meeting for meeting in graph.meetings if not meeting.is_symmetric]
    if not backwards.any() and not meets:
        return
    for meeting in meets:
        rank = together_on(meeting, _by_operator(schedule.op, schedule.device))
        if rank is not None:
            _refuse(
                schedule, rank, f"another rank of {meeting.collective.group!r} is on its device: place it elsewhere"
            )
    device = _by_operator(schedule.op, schedule.device)
    late = backwards & ((device[graph.src] == device[graph.dst]) | one_thread | (schedule.execution == "graph"))
    if late.any():
        edge = graph.edge(int(np.argmax(late)))
        _refuse(schedule, graph.index[edge.dst], f"it is launched before {edge.src!r}, which it reads from")
    one_thread = one_thread or schedule.execution == "graph"
    _check_waits(schedule, device, one_thread=one_thread, blocking=blocking and bool(meets))


def _refuse(schedule: Schedule, op: int, reason: str) -> NoReturn:
    raise ScheduleError(f"schedule of {schedule.graph.name!r}: operator {schedule.graph.names[op]!r}: {reason}")


def _check_stages(schedule: Schedule) -> None:
    rows = np.argsort(schedule.device, kind="stable")  # launch order within each device
    ops, device, stage, group, stream = (
        column[rows] for column in (schedule.op, schedule.device, schedule.stage, schedule.group, schedule.stream)
    )
    same_device = device[1:] == device[:-1]
    falls = same_device & (stage[1:] < stage[:-1])
    if falls.any():
        k = int(np.argmax(falls)) + 1
        _refuse(schedule, ops[k], f"it is of stage {stage[k]} but launched after stage {stage[k - 1]}")
    number = np.cumsum(np.append(False, ~same_device | (stage[1:] != stage[:-1])))  # of the stage, over all devices
    if (group != stream).any():
        for stays, other, reason in (
            (group, stream, "its group uses more than one stream"),
            (stream, group, "its stream serves more than one group of the stage"),
        ):
            order = np.lexsort((other, stays, number))
            same = np.logical_and.reduce([column[order][1:] == column[order][:-1] for column in (number, stays)])
            differs = same & (other[order][1:] != other[order][:-1])
            if differs.any():
                _refuse(schedule, ops[order[int(np.argmax(differs)) + 1]], reason)
    u = schedule.graph.src
    v = schedule.graph.dst
    names = schedule.graph.names
    stage = _by_operator(ops, number)
    group = _by_operator(ops, group)
    beside = (stage[u] == stage[v]) & (group[u] != group[v])
    if beside.any():
        e = int(np.argmax(beside))
        _refuse(schedule, v[e], f"it reads from {names[u[e]]!r}, which is in another group of the same stage")


def _check_waits(schedule: Schedule, device: Indices, *, one_thread: bool, blocking: bool) -> None:
    """Look for a cycle through launches (by host thread), ends (by stream), edges, barriers and collectives.

    Vertex i is the launch of operator i and n + i its end. The host of a device issues in order;
    a wait for another device is issued after the record that it waits for. A host that is `blocking` goes on once what
    it sends is there, and launches once what is read from another device is.
    """
    graph = schedule.graph
    n = len(schedule)
    pairs: list[tuple[Indices, Indices]] = [(np.arange(n), np.arange(n) + n), (graph.src + n, graph.dst + n)]
    across = device[graph.src] != device[graph.dst]
    pairs.append((graph.src[across], graph.dst[across]))
    if one_thread:
        host = np.zeros_like(schedule.device)
    else:
        host = schedule.device
    for keys, offset in (((host,), 0), ((schedule.stream, schedule.device), n)):
        order = np.lexsort((np.arange(n), *keys))
        same = np.logical_and.reduce([key[order][1:] == key[order][:-1] for key in keys])
        ops = schedule.op[order] + offset
        pairs.append((ops[:-1][same], ops[1:][same]))
    if blocking:
        launched, following = pairs[-2]  # by host thread
        sends = np.isin(launched, graph.src[across])
        pairs.append(
            (np.append(launched[sends], graph.src[across]) + n, np.append(following[sends], graph.dst[across]))
        )
    top = 2 * n
    if schedule.execution == "stages":
        pairs.append(_barrier_pairs(schedule, n))
        top = int(max(end.max(initial=0) for end in pairs[-1])) + 1
    pairs = _meeting_pairs(schedule, pairs, n, max(top, 2 * n))
    src, dst = (np.concatenate(column) for column in zip(*pairs, strict=True))
    _, cycle = topological_order(int(max(src.max(), dst.max())) + 1, src, dst)
    if cycle:
        texts = [_event_text(schedule, vertex, n, max(top, 2 * n), device) for vertex in cycle]
        raise ScheduleError(f"schedule of {graph.name!r} can never finish: {describe_cycle([*texts, texts[0]])}")


def _barrier_pairs(schedule: Schedule, n: int) -> tuple[Indices, Indices]:
    """Return the pairs that barriers order; barrier k is vertex 2n + k."""
    rows = np.argsort(schedule.device, kind="stable")
    opens = barrier_before(schedule.device, schedule.stage, schedule.stream)[rows]
    device = schedule.device[rows]
    ops = schedule.op[rows]
    so_far = np.cumsum(opens)  # barriers up to and including this place: the number of the next one
    ahead = np.append(device[opens], -1)[so_far] == device  # an operator ends before the next barrier of its device
    src = np.concatenate([ops[ahead] + n, so_far[opens] - 1 + 2 * n])
    dst = np.concatenate([so_far[ahead] + 2 * n, ops[opens]])
    return src, dst


def _meeting_pairs(
    schedule: Schedule, pairs: list[tuple[Indices, Indices]], n: int, first: int
) -> list[tuple[Indices, Indices]]:
    """Return pairs in which collectives begin once all ranks can; collective k is vertex ``first + k``."""
    begin = np.arange(first)
    more: list[tuple[Indices, Indices]] = []
    for k, meeting in enumerate(schedule.graph.meetings):
        if not meeting.is_symmetric:
            ends = np.array(meeting.members) + n
            begin[ends] = first + k
            more.append((np.full(len(ends), first + k), ends))
    return [(src, begin[dst]) for src, dst in pairs] + more


def _event_text(schedule: Schedule, vertex: int, n: int, first: int, device: Indices) -> str:
    if vertex >= first:
        return f"ranks of {schedule.graph.meetings[vertex - first].collective.group!r}"
    if vertex >= 2 * n:
        return "stage barrier"
    name = schedule.graph.names[vertex % n]
    return f"{'end' if vertex >= n else 'launch'} of {name!r} on {schedule.devices[device[vertex % n]]}"
