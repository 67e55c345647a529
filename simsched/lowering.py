"""From a `Schedule` to the `Program` that runs it."""

from bisect import bisect_right
from typing import Final

import numpy as np
import numpy.typing as npt

from simsched.cluster import Cluster
from simsched.errors import ScheduleError
from simsched.feasibility import barrier_before, launch_position
from simsched.graph.columns import Ints
from simsched.program import BARRIER, COPY, LAUNCH, RECORD, SYNC, WAIT, Copies, Program, launch_ptr
from simsched.schedules import Schedule

Bools = npt.NDArray[np.bool_]
OPTIONS: Final = {"threads": ("device", "one"), "transfers": ("async", "blocking"), "events": ("minimal", "literal")}

_EXACT_STREAMS: Final = 8  # copy streams per compute stream and destination where edges have an exact time
_STRIDE: Final = 2**31  # above every place, stream and copy number: a pair of them is one sortable key

# Instructions of one operator, in the order in which its host thread issues them.
_BARRIER, _WAIT, _LAUNCH, _RECORD, _SYNC, _COPY = range(6)


def lower(schedule: Schedule, cluster: Cluster, *, threads: str, transfers: str, events: str) -> Program:
    """See `Schedule.lower`."""
    for name, value in (("threads", threads), ("transfers", transfers), ("events", events)):
        if value not in OPTIONS[name]:
            raise ScheduleError(f"unknown {name} {value!r}; known are: {', '.join(OPTIONS[name])}")
    if schedule.execution == "graph" and transfers == "blocking":
        raise ScheduleError("a captured graph cannot hold host-blocking transfers; use transfers='async'")
    schedule.check(cluster)
    return _Lowering(schedule, cluster, threads == "one", transfers == "blocking", events == "minimal").program()


class _Lowering:
    """Columns of one operator each, and the instructions gathered from them.

    Instructions are collected in whole columns with a sort key (place of the operator in the
    launch order, kind, number) and put in order at the end.
    """

    def __init__(self, schedule: Schedule, cluster: Cluster, one_thread: bool, blocking: bool, minimal: bool) -> None:
        graph, n = schedule.graph, len(schedule)
        self._schedule, self._graph, self._blocking, self._minimal = schedule, graph, blocking, minimal
        self._devices = tuple(device.name for device in cluster.devices)
        self._one_thread = one_thread or schedule.execution == "graph"
        if one_thread:
            _require_one_thread_order(schedule)
        numbers = np.array([cluster.index.get(name, -1) for name in schedule.devices], np.int64)
        self._position = launch_position(schedule)
        self._device, self._stream = np.empty(n, np.int64), np.empty(n, np.int64)
        self._device[schedule.op] = numbers[schedule.device]
        self._stream[schedule.op] = schedule.stream
        _, self._lane = np.unique(self._device * _STRIDE + self._stream, return_inverse=True)
        self._rows: list[tuple[Ints, ...]] = []  # (place, kind, number, action, device, stream, argument)

    def program(self) -> Program:
        graph, n = self._graph, len(self._schedule)
        across = self._device[graph.src] != self._device[graph.dst]
        copies, copy_of_edge = self._copies(across)
        first_copy_event = self._compute_events(across, copies)
        self._copy_instructions(copies, copy_of_edge, across, first_copy_event)
        ops = np.repeat(np.arange(n), np.diff(launch_ptr(graph)))
        self._add(
            self._position[ops],
            _LAUNCH,
            np.arange(len(ops)),
            LAUNCH,
            self._device[ops],
            self._stream[ops],
            np.arange(len(ops)),
        )
        opens = self._schedule.op[barrier_before(self._schedule)]
        self._add(self._position[opens], _BARRIER, opens, BARRIER, self._device[opens], -1, -1)
        place, kind, number, action, device, stream, argument = (
            np.concatenate(c) for c in zip(*self._rows, strict=True)
        )
        # an instruction belongs to the thread of the operator at its place, not to the device it names
        thread = np.zeros(len(place), np.int64) if self._one_thread else self._device[self._schedule.op[place]]
        order = np.lexsort((number, kind, place, thread))
        n_threads = 1 if self._one_thread else len(self._devices)
        return Program(
            graph,
            self._devices,
            self._schedule.execution,
            np.searchsorted(thread[order], np.arange(n_threads + 1)),
            action[order],
            device[order],
            stream[order],
            argument[order],
            copies=copies,
            n_events=first_copy_event + len(copies.op),
            priority=self._schedule.priority[np.argsort(self._schedule.op)],
        )

    def _add(
        self, place: Ints, kind: int, number: Ints, action: int, device: Ints, stream: Ints | int, argument: Ints | int
    ) -> None:
        spread = [
            np.broadcast_to(np.asarray(c, np.int64), place.shape)
            for c in (kind, number, action, device, stream, argument)
        ]
        self._rows.append((place, *spread))

    def _copies(self, across: Bools) -> tuple[Copies, Ints]:
        """Return the copies, by producer in launch order, and the copy that serves each crossing edge."""
        graph = self._graph
        edges = np.flatnonzero(across)
        u, to = graph.src[edges], self._device[graph.dst[edges]]
        nbytes, exact = graph.edge_nbytes[edges], graph.edge_transfer[edges]
        place = self._position[u]
        # numbered as the host threads issue them
        thread = np.zeros_like(u) if self._one_thread else self._device[u]
        order = np.lexsort((edges, np.nan_to_num(exact, nan=-1.0), nbytes, to, place, thread))
        new = np.ones(len(edges), np.bool_)
        if self._minimal and len(edges) > 1:
            keys = (place, to, nbytes, np.nan_to_num(exact, nan=-1.0))
            new[1:] = np.logical_or.reduce([key[order][1:] != key[order][:-1] for key in keys])
        copy_of_edge = np.empty(len(edges), np.int64)
        copy_of_edge[order] = np.cumsum(new) - 1
        kept = order[new]
        return Copies(u[kept], to[kept], nbytes[kept], exact[kept]), copy_of_edge

    def _compute_events(self, across: Bools, copies: Copies) -> int:
        """Add records and waits between streams of a device; return the number of such events."""
        graph = self._graph
        producers = [copies.op]
        if self._schedule.execution != "stages":
            beside = ~across & (self._lane[graph.src] != self._lane[graph.dst])
            u, v = self._needed_waits(graph.src[beside], graph.dst[beside])
            producers.append(u)
        recorded = np.unique(np.concatenate(producers))
        event = np.full(len(graph), -1)
        event[recorded] = np.arange(len(recorded))
        if self._schedule.execution != "stages":
            self._add(self._position[v], _WAIT, self._position[u], WAIT, self._device[v], self._stream[v], event[u])
        self._add(
            self._position[recorded],
            _RECORD,
            recorded,
            RECORD,
            self._device[recorded],
            self._stream[recorded],
            event[recorded],
        )
        if len(copies.op):
            self._copy_ready_event = event[copies.op]
        return len(recorded)

    def _needed_waits(self, u: Ints, v: Ints) -> tuple[Ints, Ints]:
        """Return the (producer, consumer) pairs for which a stream has to wait."""
        pairs = _unique_pairs(self._position[v], self._position[u])
        consumer, producer = self._schedule.op[pairs[:, 0]], self._schedule.op[pairs[:, 1]]
        if not self._minimal:
            return producer, consumer
        keep = _not_yet_waited(self._lane[consumer], self._lane[producer], pairs[:, 0], pairs[:, 1])
        consumer, producer = consumer[keep], producer[keep]
        keep = self._not_implied(producer.tolist(), consumer.tolist())
        return producer[keep], consumer[keep]

    def _not_implied(self, producers: list[int], consumers: list[int]) -> Bools:
        """Drop waits that follow from others and from stream order (vector clocks over streams).

        Pairs come by consumer in launch order. The clock of a stream maps every other stream to
        the last place of it that must have ended.
        """
        lane, position = self._lane.tolist(), self._position.tolist()
        clocks: dict[int, dict[int, int]] = {}
        history: dict[int, tuple[list[int], list[dict[int, int]]]] = {}
        keep = np.zeros(len(producers), np.bool_)
        start = 0
        while start < len(consumers):
            v, end = consumers[start], start
            while end < len(consumers) and consumers[end] == v:
                end += 1
            clock = dict(clocks.get(lane[v], {}))
            for k in range(end - 1, start - 1, -1):  # the latest producer first: it may imply the others
                u = producers[k]
                if clock.get(lane[u], -1) >= position[u]:
                    continue
                keep[k] = True
                clock[lane[u]] = position[u]
                places, snapshots = history.get(lane[u], ([], []))
                known = bisect_right(places, position[u]) - 1
                for other, place in (snapshots[known] if known >= 0 else {}).items():
                    if clock.get(other, -1) < place:
                        clock[other] = place
            clocks[lane[v]] = clock
            places, snapshots = history.setdefault(lane[v], ([], []))
            places.append(position[v])
            snapshots.append(clock)
            start = end
        return keep

    def _copy_instructions(self, copies: Copies, copy_of_edge: Ints, across: Bools, first_event: int) -> None:
        if not len(copies.op):
            return
        graph, u = self._graph, copies.op
        number = np.arange(len(u))
        place, device = self._position[u], self._device[u]
        # A stream of its own for each (producer's stream, destination): producers of one stream end in
        # the order of their copies, so no copy waits behind one whose data is not there yet.
        stream = self._copy_streams(self._lane[u], copies.device, device, ~np.isnan(copies.transfer))
        ready, done = self._copy_ready_event, first_event + number
        for step, (action, argument) in enumerate(((WAIT, ready), (COPY, number), (RECORD, done))):
            if not (self._blocking and action == WAIT):  # the host itself has waited for the data
                self._add(place, _COPY, 3 * number + step, action, device, stream, argument)
        if self._blocking:
            senders, first = np.unique(u, return_index=True)
            self._add(self._position[senders], _SYNC, senders, SYNC, self._device[senders], -1, ready[first])
        v = graph.dst[across]
        # a host-blocking receive holds the whole thread, a wait only the consumer's stream
        waiter = np.where(self._one_thread, 0, self._device[v]) if self._blocking else self._lane[v]
        pairs = _unique_pairs(self._position[v], copy_of_edge)
        waiter_at = np.zeros(len(graph), np.int64)
        waiter_at[self._position[v]] = waiter
        waiters = waiter_at[pairs[:, 0]]
        if self._minimal:
            lane = np.unique(device * _STRIDE + stream, return_inverse=True)[1]
            pairs = pairs[_not_yet_waited(waiters, lane[pairs[:, 1]], pairs[:, 0], pairs[:, 1])]
        consumer = self._schedule.op[pairs[:, 0]]
        action, target = (SYNC, -1) if self._blocking else (WAIT, self._stream[consumer])
        self._add(
            pairs[:, 0], _WAIT, len(graph) + pairs[:, 1], action, self._device[consumer], target, done[pairs[:, 1]]
        )

    def _copy_streams(self, lane: Ints, to: Ints, device: Ints, exact: Bools) -> Ints:
        """Return the stream of each copy, numbered behind the compute streams of its device.

        Copies of exact time load no engine that could make them queue: they take turns on several streams.
        """
        n_lanes, n_devices = int(lane.max()) + 1, len(self._devices)
        pair = (device * n_lanes + lane) * n_devices + to
        order = np.argsort(pair, kind="stable")
        turn = np.empty(len(pair), np.int64)
        turn[order] = np.arange(len(pair)) - np.searchsorted(pair[order], pair[order], side="left")
        keys, index = np.unique(pair * _EXACT_STREAMS + np.where(exact, turn % _EXACT_STREAMS, 0), return_inverse=True)
        source = keys // _EXACT_STREAMS // n_devices // n_lanes
        first = np.zeros(len(self._devices), np.int64)
        np.maximum.at(first, self._device, self._stream + 1)
        start = np.searchsorted(source, source, side="left")
        number: Ints = first[source] + np.arange(len(keys)) - start
        return number[index]


def _unique_pairs(a: Ints, b: Ints) -> Ints:
    """Return the different pairs of numbers below 2^31, sorted, shape (n_pairs, 2)."""
    keys = np.unique(a * _STRIDE + b)
    return np.stack([keys // _STRIDE, keys % _STRIDE], 1)


def _require_one_thread_order(schedule: Schedule) -> None:
    position = launch_position(schedule)
    late = position[schedule.graph.src] > position[schedule.graph.dst]
    if late.any():
        edge = schedule.graph.edge(int(np.argmax(late)))
        raise ScheduleError(f"one host thread cannot launch {edge.dst!r} before {edge.src!r}, which it reads from")


def _not_yet_waited(waiter: Ints, source: Ints, at: Ints, target: Ints) -> Bools:
    """Return which waits are new: no earlier wait of `waiter` reached as far into `source`.

    Parameters
    ----------
    waiter, source
        Who waits, and the stream it waits for, shape (n_waits,).
    at
        When the wait is issued; ties allowed.
    target
        How far into `source` it reaches.
    """
    keep = np.zeros(len(at), np.bool_)
    if not len(at):
        return keep
    order = np.lexsort((-target, at, source, waiter))  # of one consumer's waits the farthest counts
    head = np.r_[True, (waiter[order][1:] != waiter[order][:-1]) | (source[order][1:] != source[order][:-1])]
    segment = np.cumsum(head) - 1
    span = int(target.max()) + 2
    reached = np.maximum.accumulate(target[order] + segment * span)  # running maximum within each segment
    before = np.r_[-1, reached[:-1]] - segment * span
    keep[order] = head | (target[order] > before)
    return keep
