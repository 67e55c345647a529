"""Lowering of candidates: from a `Schedule` to the `Program` that runs it."""

from typing import Final

import numpy as np
import numpy.typing as npt

from simsched.base.errors import ScheduleError
from simsched.model.cluster import Cluster
from simsched.model.graph import OpGraph
from simsched.model.launches import Launches, has_choices, kernels_on, launches_on
from simsched.model.lowering.native import LoweredCandidate, VectorClock, plan, write
from simsched.model.program import EVENT_PLANS, LAUNCH, Copies, Program, barrier_before

OPTIONS: Final = {"threads": ("device", "one"), "transfers": ("async", "blocking"), "events": EVENT_PLANS}

_LARGEST: Final = 2**31 - 1
_ROOM: Final = 2048  # of the vector clocks at first, in addition to two entries per operator


class Lowering:
    """Lowers one candidate after the other over one graph: for search loops.

    Parameters
    ----------
    graph
        The graph that every candidate schedules.
    cluster
        Where candidates run: its devices choose the kernels that operators launch.
    execution
        As in `Schedule`.
    threads, transfers, events
        As in `Schedule.lower`.

    Notes
    -----
    The graph's columns are prepared once, O(V + E log E); a candidate then costs about 0.1 us per operator and edge,
    and no Python object for any of them. Several threads may lower at a time, each with a separate `Lowering`.
    """

    def __init__(
        self,
        graph: OpGraph,
        cluster: Cluster,
        execution: str = "events",
        *,
        threads: str = "device",
        transfers: str = "async",
        events: str = "minimal",
    ) -> None:
        self.graph = graph
        self.cluster = cluster
        self.execution = execution
        self.devices = tuple(cluster.index)
        n = len(graph)
        one_thread = threads == "one" or execution == "graph"
        (out_ptr, out_edge) = graph.outgoing
        (in_ptr, in_edge) = graph.incoming
        room = 2 * n + _ROOM
        if one_thread:
            self._threads = 1
        else:
            self._threads = len(self.devices)
        self._table = table = LoweredCandidate(
            n_ops=n,
            n_edges=len(graph.src),
            n_devices=len(self.devices),
            one_thread=one_thread,
            blocking=transfers == "blocking",
            minimal=events == "minimal",
            staged=execution == "stages",
            src=_small(graph.src),
            dst=_small(graph.dst),
            out_ptr=out_ptr,
            out_edge=_small(out_edge),
            in_ptr=in_ptr,
            in_edge=_small(in_edge),
            bits=len(graph.src).bit_length(),
            room=room,
            clocks=np.empty(room, VectorClock.dtype),
        )
        table["size"][:], table.n_sizes = _sizes(graph)
        if len(cluster.kinds) > 1 and has_choices(graph):
            self._launches = None
        else:
            self._launches = kernels_on(graph, cluster.kinds[0])
        self._has_host = execution != "graph" and bool(graph.host.any())

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
        The program that `Schedule.lower` returns for a schedule that it accepts. `stage` counts only for execution in
        stages. The program is the caller's; later candidates do not change it.
        """
        table = self._table
        homes = table["device"]
        lanes = table["stream"]
        table["op"][:] = op
        homes[:] = device
        lanes[:] = stream
        table["by_device"][:] = homes.argsort(kind="stable")
        table["by_lane"][:] = ((homes.astype(np.int64) << 32) + lanes).argsort(kind="stable")
        if self.execution == "stages":
            table["barrier"][:] = barrier_before(homes, np.full(len(self.graph), stage), lanes)
        launches = self._launches or self._choose(table["op"], homes)
        table["launch_ptr"] = launches.ptr
        self._plan()
        n_copies = table.n_copies
        n_rows = table.n_rows
        table["thread_ptr"] = thread_ptr = np.zeros(self._threads + 1, np.int64)
        table["action"] = action = np.empty(n_rows, np.int8)
        table["place"] = place = np.empty((3, n_rows), np.int32)
        table["copies"] = ends = np.empty((2, n_copies), np.int32)
        write(table)
        np.maximum.accumulate(thread_ptr, out=thread_ptr)  # a device without operators ends where the one before does
        edge = table["sent"]["edge"][:n_copies]
        copies = Copies(ends[0], ends[1], self.graph.edge_nbytes[edge], self.graph.edge_transfer[edge])
        lead = None
        if self._has_host:  # an operator's host time passes before its first launch
            before = np.zeros(len(launches))
            before[launches.ptr[:-1]] = self.graph.host
            lead = np.where(action == LAUNCH, before[np.where(action == LAUNCH, place[2], 0)], 0.0)
        by_operator = np.empty(len(self.graph), np.int64)
        by_operator[table["op"]] = priority
        return Program(
            self.graph,
            self.devices,
            self.execution,
            thread_ptr,
            action,
            place[0],
            place[1],
            place[2],
            copies,
            table.n_op_events + n_copies,
            by_operator,
            lead,
            checked=True,
            launches=launches,
        )

    def _choose(self, op: npt.NDArray[np.int32], device: npt.NDArray[np.int32]) -> Launches:
        """Return the kernels that operators launch where a candidate places them; `plan` refuses wrong places."""
        home = np.zeros(len(self.graph), np.int64)
        placed = (op >= 0) & (op < len(home)) & (device >= 0) & (device < len(self.devices))
        home[op[placed]] = device[placed]
        return launches_on(self.graph, self.cluster, home)

    def _plan(self) -> None:
        """Plan the program, with more room for clocks where they need it."""
        table = self._table
        table.full = 0
        plan(table)
        if table.wrong >= 0:
            op, device, stream = (int(table[key][table.wrong]) for key in ("op", "device", "stream"))
            raise ScheduleError(
                f"row {table.wrong} of a candidate places operator {op} on device {device}, stream {stream}: operators "
                f"are 0 to {len(self.graph) - 1}, each once, devices 0 to {len(self.devices) - 1}, streams not negative"
            )
        while table.full:
            clocks = table["clocks"]
            top = table.top
            table.room = 2 * max(table.room, top + table.n_lanes)
            table["clocks"] = np.empty(table.room, VectorClock.dtype)
            table["clocks"][:top] = clocks[:top]
            plan(table)
        if table.top_stream > _LARGEST:
            raise ScheduleError("the streams of copies come behind those of operators and would be beyond 2^31")


def _sizes(graph: OpGraph) -> tuple[npt.ArrayLike, int]:
    """Return the rank of each edge by size and exact time (edges without come first), and the end of the ranks.

    Ranks of edges with an exact time are odd.
    """
    n = len(graph.src)
    exact = graph.edge_transfer
    exact_known = exact >= 0.0
    keys = [key for key in (np.where(exact_known, exact, -1.0), graph.edge_nbytes) if n and (key != key[0]).any()]
    if not keys:
        return int(n > 0 and exact_known[0]), 2
    if len(keys) == 1:
        order = np.argsort(keys[0])
    else:
        order = np.lexsort(keys)
    new = np.zeros(n, np.bool_)
    for key in keys:
        ranked = key[order]
        new[1:] |= ranked[1:] != ranked[:-1]
    rank = np.empty(n, np.int32)
    rank[order] = 2 * np.cumsum(new)
    return rank + exact_known, int(rank[order[-1]]) + 2


def _small(column: npt.ArrayLike) -> npt.NDArray[np.int32]:
    return np.ascontiguousarray(column, np.int32)
