"""From a `Schedule` to the `Program` that runs it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NoReturn, cast

import numpy as np
import numpy.typing as npt

from simsched.cluster import Cluster
from simsched.errors import ScheduleError
from simsched.feasibility import launch_position
from simsched.graph import OpGraph
from simsched.lowering import layout
from simsched.machine_code import load
from simsched.program import Copies, Launches, Program, Small
from simsched.schedules import EVENT_PLANS, EXECUTIONS, Schedule

OPTIONS: Final = {"threads": ("device", "one"), "transfers": ("async", "blocking"), "events": EVENT_PLANS}

_HERE: Final = Path(__file__).parent
_SOURCES: Final = (*sorted(_HERE.glob("*.py")), _HERE.parent / "machine_columns.py", _HERE.parent / "program.py")
_LARGEST: Final = 2**31 - 1
_ROOM: Final = 2048  # of the vector clocks at first, besides two entries per operator


def lower(schedule: Schedule, cluster: Cluster, *, threads: str, transfers: str, events: str) -> Program:
    """See `Schedule.lower`."""
    options = (threads, transfers, events)
    _check_options(schedule.execution, *options)
    kept = schedule.__dict__.get("_lowered")
    if kept is not None and kept[0] is cluster and kept[1] == options:
        return cast(Program, kept[2])
    schedule.check(cluster)
    if threads == "one":
        _require_one_thread_order(schedule)
    names = tuple(device.name for device in cluster.devices)
    device = schedule.device
    if names[: len(schedule.devices)] != schedule.devices:
        device = np.array([cluster.index.get(name, -1) for name in schedule.devices], np.int32)[device]
    lowering = Lowering(
        schedule.graph, names, schedule.execution, threads=threads, transfers=transfers, events=events
    )  # fmt: skip
    program = lowering.program(schedule.op, device, schedule.stream, schedule.stage, schedule.priority)
    schedule.__dict__["_lowered"] = (cluster, options, program)
    return program


def _check_options(execution: str, threads: str, transfers: str, events: str) -> None:
    for name, value in (("threads", threads), ("transfers", transfers), ("events", events)):
        if value not in OPTIONS[name]:
            raise ScheduleError(f"unknown {name} {value!r}; known are: {', '.join(OPTIONS[name])}")
    if execution == "graph" and transfers == "blocking":
        raise ScheduleError("a captured graph cannot hold host-blocking transfers; use transfers='async'")


def _require_one_thread_order(schedule: Schedule) -> None:
    position = launch_position(schedule)
    late = position[schedule.graph.src] > position[schedule.graph.dst]
    if late.any():
        edge = schedule.graph.edge(int(np.argmax(late)))
        raise ScheduleError(f"one host thread cannot launch {edge.dst!r} before {edge.src!r}, which it reads from")


class Lowering:
    """What lowers one candidate after the other over one graph: for search loops.

    Parameters
    ----------
    graph
        The graph that every candidate schedules.
    devices
        Names of the cluster's devices, in its order.
    execution
        As in `Schedule`.
    threads, transfers, events
        As in `Schedule.lower`.

    Raises
    ------
    ScheduleError
        If the execution or an option is unknown.

    Notes
    -----
    The graph's columns are prepared once, O(V + E log E); a candidate then costs about 0.1 us per
    operator and edge, and no Python object for any of them. Several threads may lower at a time,
    each with a `Lowering` of its own.
    """

    def __init__(
        self,
        graph: OpGraph,
        devices: Sequence[str],
        execution: str = "events",
        *,
        threads: str = "device",
        transfers: str = "async",
        events: str = "minimal",
    ) -> None:
        if execution not in EXECUTIONS:
            raise ScheduleError(f"unknown execution {execution!r}; known are: {', '.join(EXECUTIONS)}")
        _check_options(execution, threads, transfers, events)
        self.graph, self.devices, self.execution = graph, tuple(devices), execution
        self._run = run = load("simsched.lowering.core:lower_columns", _SOURCES, "lowering of schedules")
        n, n_edges, n_devices = len(graph), len(graph.src), len(self.devices)
        self._one_thread = threads == "one" or execution == "graph"
        lengths = layout.work_lengths(n, n_edges, n_devices)
        self._starts = starts = np.cumsum(lengths) - lengths
        self._work = np.empty(int(lengths.sum()), np.int32)
        self._launches = Launches(graph)
        self._clocks = np.empty(2 * n + _ROOM, np.int64)  # lane and place in one number
        self._table = table = np.zeros(layout.SIZE, np.int64)
        table[layout.KEYS :] = 4 * starts + _address(self._work)
        table[layout.LAUNCH_PTR], table[layout.CLOCKS] = _address(self._launches.ptr), _address(self._clocks)
        table[layout.N_OPS], table[layout.N_EDGES], table[layout.N_DEVICES] = n, n_edges, n_devices
        table[layout.ONE_THREAD], table[layout.BLOCKING] = self._one_thread, transfers == "blocking"
        table[layout.MINIMAL], table[layout.STAGED] = events == "minimal", execution == "stages"
        table[layout.ROOM], table[layout.PHASE] = len(self._clocks), layout.PREPARE
        self._rows = self._columns(layout.OP, layout.POSITION).reshape(5, n)
        self._unset = self._columns(layout.POSITION, layout.LANES_OF_DEVICE)
        self._zero = self._columns(layout.LANES_OF_DEVICE, layout.HOME)
        self._ends = [np.ascontiguousarray(ends, np.int32) for ends in (graph.src, graph.dst)]
        table[layout.SRC], table[layout.DST] = [_address(ends) for ends in self._ends]
        self._columns(layout.SIZE_OF, layout.OUT_EDGE)[:], table[layout.N_SIZES] = _sizes(graph)
        run(_address(table))

    @property
    def launch_ptr(self) -> npt.NDArray[np.int64]:
        """Where the launches of each operator begin, shape (n_ops + 1,)."""
        return self._launches.ptr

    def _columns(self, start: int, end: int) -> Small:
        """Return the work columns from one to another."""
        return self._work[self._starts[start - layout.KEYS] : self._starts[end - layout.KEYS]]

    def program(
        self,
        op: npt.ArrayLike,
        device: npt.ArrayLike,
        stream: npt.ArrayLike,
        stage: npt.ArrayLike = 0,
        priority: npt.ArrayLike = 0,
    ) -> Program:
        """Return the program of a candidate, without the proof of `Schedule.check` that it can run.

        Parameters
        ----------
        op, device, stream, stage, priority
            Columns in launch order, as in `Schedule`, numbers below 2^31; `device` by position among
            the devices of this lowering. Scalars are spread.

        Raises
        ------
        ScheduleError
            If the rows do not place each operator once on a device and stream that can be.

        Notes
        -----
        What `Schedule.lower` returns for a schedule that it accepts. `stage` counts for execution
        in stages alone. The program is the caller's; nothing that later candidates do changes it.
        """
        table, rows = self._table, self._rows
        rows[0], rows[1], rows[2] = op, device, stream
        if self.execution == "stages":
            rows[3] = stage
        self._plan()
        n_copies, n_rows, n_events = table[[layout.N_COPIES, layout.N_ROWS, layout.N_COMPUTE_EVENTS]].tolist()
        thread_ptr = np.zeros(2 if self._one_thread else len(self.devices) + 1, np.int64)
        action, place, ends = (
            np.empty(n_rows, np.int8),
            np.empty((3, n_rows), np.int32),
            np.empty((2, n_copies), np.int32),
        )
        table[layout.THREAD_PTR : layout.KEYS] = _address(thread_ptr), _address(action), _address(place), _address(ends)
        self._call(layout.FILL)
        np.maximum.accumulate(thread_ptr, out=thread_ptr)  # a device without operators ends where the one before does
        edge = self._columns(layout.COPY_EDGE, layout.COPY_LANE)[:n_copies]
        copies = Copies(ends[0], ends[1], self.graph.edge_nbytes[edge], self.graph.edge_transfer[edge])
        return Program.of_columns(
            self.graph,
            self.devices,
            self.execution,
            thread_ptr,
            action,
            *place,
            copies=copies,
            n_events=n_events + n_copies,
            priority=self._by_operator(priority),
            launches=self._launches,
        )

    def _call(self, phase: int) -> int:
        """Run a phase of the compiled code; return its status."""
        self._table[layout.PHASE] = phase
        self._run(_address(self._table))
        return int(self._table[layout.STATUS])

    def _plan(self) -> None:
        """Find what the program has, helping out where the compiled code asks for it."""
        table = self._table
        table[layout.LANES_KNOWN] = 0
        self._unset.fill(-1)
        self._zero.fill(0)
        status = self._call(layout.PLAN)
        if status == layout.SPARSE:  # streams of large numbers
            keys = self._rows[1].astype(np.int64) << 32 | self._rows[2]
            lanes, self._rows[4] = np.unique(keys, return_inverse=True)
            table[layout.N_LANES], table[layout.LANES_KNOWN] = len(lanes), 1
            self._unset.fill(-1)
            status = self._call(layout.PLAN)
        if status == layout.WRONG:
            self._refuse(int(table[layout.AT]))
        while status == layout.FULL:
            self._make_room()
            status = self._call(layout.WAITS)
        if table[layout.TOP_STREAM] > _LARGEST:
            raise ScheduleError("the streams of copies come behind those of operators and would be beyond 2^31")

    def _make_room(self) -> None:
        """Drop the snapshots of vector clocks that are no longer asked for; more room if that is not half of it."""
        table, n = self._table, len(self.graph)
        at, made = int(table[layout.AT]), int(table[layout.MADE])
        by_device, home, snapshot = (
            self._columns(key, key + 1)[:n] for key in (layout.BY_DEVICE, layout.HOME, layout.SNAPSHOT)
        )
        waits = np.zeros(n, np.bool_)
        waits[by_device[at:]] = True
        here = home[by_device[at]]
        src, dst = self._ends
        asked = src[waits[dst] & (home[src] == here) & (home[dst] == here)]
        live = np.zeros(n + 1, np.bool_)
        live[snapshot[asked]] = True
        live[self._columns(layout.CURRENT, layout.CLOCK)] = True
        rows = self._columns(layout.SNAPSHOTS, layout.TOUCHED)
        kept = rows[:made][live[rows[:made]]]
        starts = self._columns(layout.SNAPSHOT_START, layout.SNAPSHOT_LENGTH)
        lengths = self._columns(layout.SNAPSHOT_LENGTH, layout.SNAPSHOTS)[kept]
        ends = np.cumsum(lengths, dtype=np.int64)
        used = int(ends[-1]) if len(ends) else 0
        entries = np.repeat(starts[kept] - (ends - lengths), lengths) + np.arange(used)
        old, need = self._clocks, 2 * (used + int(table[layout.N_LANES]))
        if need > len(old):
            self._clocks = np.empty(max(need, 2 * len(old)), np.int64)
            table[layout.CLOCKS], table[layout.ROOM] = _address(self._clocks), len(self._clocks)
        self._clocks[:used] = old[entries]
        rows[: len(kept)], starts[kept] = kept, ends - lengths
        table[layout.TOP], table[layout.MADE] = used, len(kept)

    def _by_operator(self, priority: npt.ArrayLike) -> npt.NDArray[np.int64]:
        if np.ndim(priority) == 0:
            return np.full(len(self.graph), priority, np.int64)
        found = np.empty(len(self.graph), np.int64)
        found[self._rows[0]] = priority
        return found

    def _refuse(self, at: int) -> NoReturn:
        op, device, stream = self._rows[:3, at].tolist()
        raise ScheduleError(
            f"row {at} of a candidate places operator {op} on device {device}, stream {stream}: operators are 0 to "
            f"{len(self.graph) - 1}, each once, devices 0 to {len(self.devices) - 1}, and streams not negative"
        )


def _sizes(graph: OpGraph) -> tuple[npt.ArrayLike, int]:
    """Return the rank of each edge by size and exact time (those without come first), and the end of the ranks.

    Ranks of edges with an exact time are odd.
    """
    n, nbytes, exact = len(graph.src), graph.edge_nbytes, graph.edge_transfer
    if not n:
        return 0, 2
    uniform = [column.strides == (0,) or bool((column == column[0]).all()) for column in (nbytes, exact)]
    uniform[1] = uniform[1] or bool(np.isnan(exact).all())
    if all(uniform):
        return int(not np.isnan(exact[0])), 2
    keys = [np.nan_to_num(exact, nan=-1.0), nbytes]
    if any(uniform):
        keys = keys[:1] if uniform[0] else keys[1:]
    order = np.argsort(keys[0]) if len(keys) == 1 else np.lexsort(keys)
    new = np.zeros(n, np.bool_)
    for column in keys:
        ranked = column[order]
        new[1:] |= ranked[1:] != ranked[:-1]
    rank = np.empty(n, np.int32)
    rank[order] = np.cumsum(new, dtype=np.int32)
    n_sizes = int(rank[order[-1]]) + 1
    rank *= 2
    rank += exact >= 0
    return rank, 2 * n_sizes


def _address(column: npt.NDArray[Any]) -> int:
    address: int = column.__array_interface__["data"][0]
    return address
