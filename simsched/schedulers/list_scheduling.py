"""List scheduling over the streams of devices, in native code, shared by lios, heft, peft and etf."""

from math import inf
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from simsched.base.jit import Column, Row, Rows, Table, f8, i4, i8, length, native, piece
from simsched.model import Cluster, CostModel, Floats, OpGraph, Schedule
from simsched.model.launches import kernels_on
from simsched.schedulers.instance import EdgeEnd, Instance, place_of, require_finite, transfer

_AT_A_TIME: Final = 10_000
"""Operators after which the machine code returns for a moment: so that Ctrl-C is heard."""


class ListedOperator(Row):
    """An operator."""

    start: f8
    finish: f8
    seen: i8  # number of the last visit
    slot: i4  # its stream, numbered by device
    missing: i4  # inputs that are not placed yet
    waited_for: i4  # whether another stream waits for it


class StreamState(Row):
    """A stream of a device."""

    free: f8  # end of its last operator
    first: i8  # of its idle intervals, which are side by side, with room for one after each operator
    n_gaps: i4


class Gap(Row):
    """An idle interval."""

    start: f8
    end: f8


class Lists(Table):
    """Operators that are placed one by one."""

    n_ops: i8
    n_devices: i8
    n_streams: i8  # of each device
    limit: i8  # number of operators placed when it returns
    n_placed: i8
    n_ready: i8
    next_turn: i8
    insertion: i8
    in_turn: i8
    charged: i8
    # a device's host costs in us, and the time until which its host is busy
    launch: f8
    record: f8
    wait: f8
    gap: f8
    hop: f8
    busy: f8
    tried: f8
    launched: f8
    # the best place for an operator so far
    best: f8
    start: f8
    end: f8
    issued: f8
    slot: i8
    at: i8  # place of the idle interval, -1 after the last operator
    # the graph and the devices
    in_ptr: Column[i8]
    inputs: Rows[EdgeEnd]
    out_ptr: Column[i8]
    readers: Column[i4]  # of each operator, rising
    kernels: Column[i4]
    lag: Column[f8]  # us from the first launch of each operator on to its end, where its launches are slower than it
    time: Column[f8]  # by device and operator
    latency: Column[f8]
    bandwidth: Column[f8]
    # how operators are placed
    ahead: Column[f8]
    key: Column[f8]
    turn: Column[i4] = length("n_ops")
    draw_op: Column[f8]
    draw_stream: Column[f8]
    # operators to place
    ops: Rows[ListedOperator] = length("n_ops")
    placed: Column[i4] = length("n_ops")
    streams: Rows[StreamState] = length("n_devices * n_streams")
    gaps: Rows[Gap]
    heap: Column[i4] = length("n_ops")


@native
def push(s: Lists, i: int) -> None:
    """Add an operator to the heap of those that are ready."""
    at = s.n_ready
    while at > 0 and not before(s, s.heap[(at - 1) >> 1], i):
        s.heap[at] = s.heap[(at - 1) >> 1]
        at = (at - 1) >> 1
    s.heap[at] = i


@native
def pop(s: Lists) -> int:
    """Remove the first operator of the heap, which then has `n_ready` operators."""
    first = s.heap[0]
    i = s.heap[s.n_ready]
    at = 0
    while 2 * at + 1 < s.n_ready:
        below = 2 * at + 1
        if below + 1 < s.n_ready and before(s, s.heap[below + 1], s.heap[below]):
            below += 1
        if before(s, i, s.heap[below]):
            break
        s.heap[at] = s.heap[below]
        at = below
    s.heap[at] = i
    return first


@native
def before(s: Lists, i: int, j: int) -> bool:
    """Return whether one operator comes before another one."""
    return s.key[i] < s.key[j] or (s.key[i] == s.key[j] and s.turn[i] < s.turn[j])


@native
def find_gap(s: Lists, stream: StreamState, there: float, us: float) -> int:
    """Return the place of the first idle interval of a stream that an operator fits into, -1 if there is none."""
    gap = -1
    at = stream.first + stream.n_gaps - 1
    while at >= stream.first and s.gaps[at].end >= there:
        if max(s.gaps[at].start, there) + us <= s.gaps[at].end:
            gap = at
        at -= 1
    return gap


@native
def use(s: Lists, stream: StreamState) -> None:
    """Take a part of an idle interval of a stream, or of the time after its last operator."""
    if s.at < 0:
        if s.insertion and s.start > stream.free:
            add_gap(s, stream, stream.n_gaps, stream.free, s.start)
        stream.free = s.end
        return
    gap = s.gaps[s.at]
    end = s.gaps[s.at].end
    if s.start > gap.start:
        gap.end = s.start
        if s.end < end:
            add_gap(s, stream, s.at + 1 - stream.first, s.end, end)
    elif s.end < end:
        gap.start = s.end
    else:
        stream.n_gaps -= 1
        for k in range(s.at, stream.first + stream.n_gaps):
            s.gaps[k].start = s.gaps[k + 1].start
            s.gaps[k].end = s.gaps[k + 1].end


@native
def add_gap(s: Lists, stream: StreamState, number: int, start: float, end: float) -> None:
    """Add an idle interval before the interval of a number."""
    at = stream.first + number
    for k in range(stream.first + stream.n_gaps, at, -1):
        s.gaps[k].start = s.gaps[k - 1].start
        s.gaps[k].end = s.gaps[k - 1].end
    s.gaps[at].start = start
    s.gaps[at].end = end
    stream.n_gaps += 1


@native
def charged_start(s: Lists, i: int, slot: int) -> float:
    """Return when an operator starts on a stream if launches and events cost time.

    `launched` is when its first kernel is issued, `tried` when all of it is.
    """
    issued = s.busy
    latest = -inf
    visit = i * s.n_streams + slot + 1
    for q in range(s.in_ptr[i], s.in_ptr[i + 1]):
        producer = s.ops[s.inputs[q].op]
        if producer.slot != slot:
            latest = max(latest, producer.finish + s.hop)
            if producer.seen != visit:  # the host waits once for each
                producer.seen = visit
                issued += s.wait
                if not producer.waited_for:
                    issued += s.record
    s.launched = issued + s.launch
    s.tried = issued + s.launch * float(s.kernels[i])
    return max(s.launched, s.streams[slot].free + s.gap, latest)


@piece("list schedulers")
def place(s: Lists) -> None:
    """Place operators one by one, each where it ends first (with the time ahead of it added), up to the limit."""
    if s.n_placed == 0:
        for i in range(s.n_ops):
            if s.ops[i].missing == 0:
                add(s, i)
    while s.n_placed < s.limit:
        s.n_ready -= 1
        if s.draw_op is None:
            i = pop(s)
        else:  # any
            at = int(s.draw_op[s.n_placed] * float(s.n_ready + 1))
            i = s.heap[at]
            s.heap[at] = s.heap[s.n_ready]
        find_best(s, i)
        if s.charged:  # the host is busy until the operator is issued
            s.busy = s.issued
            for q in range(s.in_ptr[i], s.in_ptr[i + 1]):
                producer = s.ops[s.inputs[q].op]
                if producer.slot != s.slot:
                    producer.waited_for = 1
        use(s, s.streams[s.slot])
        op = s.ops[i]
        op.slot = s.slot
        op.start = s.start
        op.finish = s.end
        s.placed[s.n_placed] = i
        s.n_placed += 1
        for q in range(s.out_ptr[i], s.out_ptr[i + 1]):  # readers without missing inputs are ready, the lowest first
            reader = s.ops[s.readers[q]]
            reader.missing -= 1
            if reader.missing == 0:
                add(s, s.readers[q])


@native
def add(s: Lists, i: int) -> None:
    """Add an operator to those that are ready."""
    if s.in_turn:
        s.turn[i] = s.next_turn
        s.next_turn += 1
    if s.draw_op is None:
        push(s, i)
    else:
        s.heap[s.n_ready] = i
    s.n_ready += 1


@native
def find_best(s: Lists, i: int) -> None:
    """Find the best place for an operator."""
    first = 0
    last = s.n_streams
    if s.draw_stream is not None:
        first = int(s.draw_stream[s.n_placed] * float(s.n_streams))
        last = first + 1
    s.best = inf
    s.slot = -1
    for d in range(s.n_devices):
        there = 0.0
        us = s.time[d * s.n_ops + i]
        if s.ahead is None:
            ahead = 0.0
        else:
            ahead = s.ahead[i * s.n_devices + d]
        for q in range(s.in_ptr[i], s.in_ptr[i + 1]):
            edge = s.inputs[q]
            producer = s.ops[edge.op]
            moved = transfer(edge, producer.slot // s.n_streams, d, s.n_devices, s.latency, s.bandwidth)
            there = max(there, producer.finish + moved)
        for slot in range(d * s.n_streams + first, d * s.n_streams + last):
            stream = s.streams[slot]
            at = -1
            start = max(stream.free, there)
            issued = 0.0
            least = 0.0
            if s.insertion:
                at = find_gap(s, stream, there, us)
            if at >= 0:
                start = max(s.gaps[at].start, there)
            elif s.charged:
                start = charged_start(s, i, slot)
                issued = s.tried
                least = s.launched + s.lag[i]
            end = max(start + us, least)
            if end + ahead < s.best or s.slot < 0:
                s.best = end + ahead
                s.slot = slot
                s.start = start
                s.end = end
                s.at = at
                s.issued = issued
            if end == there + us:
                break  # no stream of this device could end it earlier


class Draft(Instance):
    """Operators placed one by one on the streams of devices.

    Parameters
    ----------
    scheduler
        Name of the scheduler, for errors.
    graph, cluster, cost
        As the scheduler has them.
    streams
        Streams of each device; None for 8 on a single device, and 2 on each of several.

    Attributes
    ----------
    streams
        Streams of each device; no more than operators, as the others would stay empty.
    ops
        Where and when each operator runs: `slot`, its stream numbered by device, `start` and `finish` in us.
    """

    def __init__(self, scheduler: str, graph: OpGraph, cluster: Cluster, cost: CostModel, streams: int | None) -> None:
        super().__init__(graph, cluster, cost)
        if streams is None:
            # Simulated on one, two and four A40, HEFT, PEFT and ETF gain nothing from more than 4 to 8 streams of one
            # device. On several devices two streams of each are up to a quarter better than one on CNNs and on HIOS's
            # layered graph; from four on, they ignore ever more contention and put the operators onto fewer and fewer
            # devices.
            streams = 8 if len(cluster) == 1 else 2
        self._scheduler = scheduler
        self.streams = min(streams, len(graph))
        self.ops: npt.NDArray[Any] = np.zeros(len(graph), ListedOperator.dtype)

    def place(
        self,
        priority: Floats,
        *,
        insertion: bool = False,
        ahead: Floats | None = None,
        in_turn: bool = False,
        overheads: bool = False,
        draw_op: Floats | None = None,
        draw_stream: Floats | None = None,
    ) -> npt.NDArray[np.int32]:
        """Place the ready operator of highest priority where it ends first, until all are placed; return their order.

        Parameters
        ----------
        priority
            Shape (n_ops,). Equal ones: the first in topological order.
        insertion
            Whether an operator may start in an idle interval between two others, the first that it fits into.
        ahead
            Times that are added to the finish times in comparisons, by device, shape (n_ops, n_devices).
        in_turn
            Equal priorities: the operator that became ready first, of several in graph order.
        overheads
            Whether launches and events cost time (see `lios`); for one device.
        draw_op, draw_stream
            Numbers in [0, 1), shape (n_ops,): instead of the first of the ready operators, or of the streams, any.
        """
        graph = self.graph
        n = len(self.graph)
        n_slots = len(self.devices) * self.streams
        in_ptr, inputs = self.edges(graph.dst, graph.src)
        readers = graph.dst[np.lexsort((graph.dst, graph.src))].astype(np.int32)
        self.ops["missing"] = np.diff(in_ptr)
        table = Lists(
            n_ops=n,
            n_devices=len(self.devices),
            n_streams=self.streams,
            insertion=insertion,
            in_turn=in_turn,
            charged=overheads,
            in_ptr=in_ptr,
            inputs=inputs,
            out_ptr=graph.outgoing[0],
            readers=readers,
            kernels=np.zeros(0, np.int32),
            lag=np.zeros(0),
            time=self.times,
            latency=self.latency,
            bandwidth=self.bandwidth,
            ahead=ahead,
            key=-priority,
            turn=place_of(graph.order_index).astype(np.int32),
            draw_op=draw_op,
            draw_stream=draw_stream,
            ops=self.ops,
        )
        if insertion:  # the system gives only the pages that are written to
            table["gaps"] = np.empty((n + 1) * n_slots, Gap.dtype)
        if overheads:
            table["kernels"], table["lag"] = self._launches()
            for cost in ("launch", "record", "wait", "gap", "hop"):
                setattr(table, cost, getattr(self.cluster.devices[0], cost))
        table["streams"]["free"] = -inf if overheads else 0.0
        table["streams"]["first"] = np.arange(n_slots) * (n + 1)
        while table.n_placed < n:
            table.limit = min(n, table.n_placed + _AT_A_TIME)
            place(table)
        return table["placed"]

    def _launches(self) -> tuple[npt.NDArray[np.int32], Floats]:
        """Return launches of each operator on the first device, and us from the first of them to its end at least.

        Its j-th kernel starts no earlier than it is launched, so the operator takes at least as long as j launches
        and the kernels from the j-th on.
        """
        device = self.cluster.devices[self.devices[0]]
        launches = kernels_on(self.graph, device)
        us = launches.share * self.times[0][launches.op]
        ends = np.cumsum(us)
        last = np.repeat(ends[launches.ptr[1:] - 1], np.diff(launches.ptr))
        lag = np.maximum.reduceat(device.launch * launches.kernel + us + last - ends, launches.ptr[:-1])
        return np.diff(launches.ptr).astype(np.int32), lag

    def schedule(self, order: npt.NDArray[np.int32] | None = None) -> Schedule:
        """Return the schedule, launched in a given order, or by start times.

        Equal starts: the operator that ends first, then the first in topological order. An operator starts no earlier
        than its producers end, so that is a topological order; and on a stream each comes after all that end before it
        starts.

        Raises
        ------
        SchedulerError
            If an operator ends at no finite time.
        """
        ops = self.ops
        topological = self.graph.order_index
        if order is None:
            order = topological[np.lexsort((ops["finish"][topological], ops["start"][topological]))]
        device, stream = np.divmod(ops["slot"][order], self.streams)
        return Schedule.from_columns(
            self.graph,
            order,
            [d.name for d in self.cluster.devices],
            device=np.array(self.devices)[device],
            stream=stream,
            estimate=require_finite(self._scheduler, float(ops["finish"].max())),
            scheduler=self._scheduler,
        )
