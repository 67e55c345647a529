"""A candidate: where each operator runs and when it is launched, as columns that moves change in place."""

from heapq import heapify, heappop, heappush
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from simsched.model.cluster import Cluster
from simsched.model.schedule import Schedule
from simsched.schedulers.listing import readers, sources

Columns = npt.NDArray[np.int64]


class Candidate:
    """A schedule that moves change; its launch order is topological over all devices.

    Parameters
    ----------
    plan
        What it begins as; a valid schedule for `cluster`.
    cluster
        Its devices.
    streams
        Streams per device that moves may use.

    Attributes
    ----------
    rows
        All columns below, shape (5, n_ops): copied to keep a state, assigned to return to it.
    order
        Operators by place in the launch order.
    place, device, stream, stage
        By operator.
    producers, consumers
        By operator, each once.
    staged
        Whether it runs in stages: then the stages of a device never fall along `order`.
    """

    def __init__(self, plan: Schedule, cluster: Cluster, streams: int) -> None:
        graph = plan.graph
        self.n, self.n_devices, self.streams = len(graph), len(cluster), streams
        self.staged: Final = plan.execution == "stages"
        self.producers, self.consumers = sources(graph), readers(graph)
        self.rows: Columns = np.zeros((5, self.n), np.int64)
        self.order, self.place, self.device, self.stream, self.stage = self.rows  # parts of it, not copies
        number = np.array([cluster.index[name] for name in plan.devices], np.int64)
        self.device[plan.op] = number[plan.device]
        self.stream[plan.op] = dense_streams(plan.device, plan.stream)
        if self.staged:
            self.stage[plan.op] = plan.stage
        self.order[:] = launch_order(plan, self.producers, self.consumers)
        self.place[self.order] = np.arange(self.n)

    def columns(self) -> tuple[Columns, Columns, Columns, Columns]:
        """Return operators, devices, streams and stages in launch order."""
        order = self.order
        return order, self.device[order], self.stream[order], self.stage[order]

    def window(self, op: int) -> tuple[int, int]:
        """Return the first and the last place that keep an operator behind its producers and before its consumers."""
        place = self.place
        first = max((int(place[p]) + 1 for p in self.producers[op]), default=0)
        last = min((int(place[c]) - 1 for c in self.consumers[op]), default=self.n - 1)
        return first, last

    def put(self, op: int, to: int) -> None:
        """Move an operator to another place in the launch order; the others close up."""
        order, at = self.order, int(self.place[op])
        if to > at:
            order[at:to] = order[at + 1 : to + 1]
        else:
            order[to + 1 : at + 1] = order[to:at].copy()
        order[to] = op
        first, end = min(at, to), max(at, to) + 1
        self.place[order[first:end]] = np.arange(first, end)

    def lane(self, op: int) -> tuple[int, int]:
        """Return device and stream of an operator."""
        return int(self.device[op]), int(self.stream[op])

    def on(self, lane: tuple[int, int]) -> npt.NDArray[np.bool_]:
        """Return which operators are on a device and stream, shape (n_ops,)."""
        found: npt.NDArray[np.bool_] = (self.device == lane[0]) & (self.stream == lane[1])
        return found

    def set_lane(self, ops: Any, lane: tuple[int, int]) -> None:
        """Put operators (indices or a mask) on a device and stream."""
        self.device[ops], self.stream[ops] = lane


def launch_order(plan: Schedule, producers: list[list[int]], consumers: list[list[int]]) -> Columns:
    """Return a topological launch order of all operators that keeps that of each device.

    That of the plan where it is one already; else, of what may come next, what the plan launches first.
    """
    graph, n = plan.graph, len(plan)
    place = np.empty(n, np.int64)
    place[plan.op] = np.arange(n)
    if not (place[graph.src] > place[graph.dst]).any():
        return plan.op.astype(np.int64)
    missing = [len(row) for row in producers]
    following = [-1] * n
    last: dict[int, int] = {}
    for op, device in zip(plan.op.tolist(), plan.device.tolist(), strict=True):
        if device in last:
            following[last[device]] = op
            missing[op] += 1
        last[device] = op
    places, ops = place.tolist(), plan.op.tolist()
    ready = [places[i] for i in range(n) if not missing[i]]
    heapify(ready)
    order = []
    while ready:
        op = ops[heappop(ready)]
        order.append(op)
        for next_op in (*consumers[op], following[op]):
            if next_op >= 0:
                missing[next_op] -= 1
                if not missing[next_op]:
                    heappush(ready, places[next_op])
    return np.array(order, np.int64)


def dense_streams(device: npt.NDArray[Any], stream: npt.NDArray[Any]) -> Columns:
    """Return the streams numbered from 0 on each device, in their order."""
    found = np.empty(len(stream), np.int64)
    for d in np.unique(device).tolist():
        mine = np.flatnonzero(device == d)
        found[mine] = np.unique(stream[mine], return_inverse=True)[1].reshape(-1)
    return found
