"""A candidate: where each operator runs and when it is launched, as columns that moves change in place."""

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from simsched.model import Cluster, Schedule
from simsched.schedulers.listing import place_of, readers, sources

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
        self.stream[plan.op] = dense(plan.device, plan.stream)
        if self.staged:
            self.stage[plan.op] = plan.stage
        self.order[:] = launch_order(plan)
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


def launch_order(plan: Schedule) -> Columns:
    """Return a topological launch order of all operators that keeps that of each device.

    That of the plan where it is one already; else, of what may come next, what the plan launches first.
    """
    graph, place = plan.graph, place_of(plan.op)
    if not (place[graph.src] > place[graph.dst]).any():
        return plan.op.astype(np.int64)
    import networkx as nx

    before = nx.DiGraph(zip(graph.src.tolist(), graph.dst.tolist(), strict=True))
    for d in range(len(plan.devices)):
        nx.add_path(before, plan.op[plan.device == d].tolist())
    return np.array(list(nx.lexicographical_topological_sort(before, place.__getitem__)), np.int64)


def dense(device: npt.NDArray[Any], number: npt.NDArray[Any]) -> Columns:
    """Return numbers, such as those of streams, counted from 0 on each device, in their order."""
    found = np.empty(len(number), np.int64)
    for d in np.unique(device).tolist():
        mine = np.flatnonzero(device == d)
        found[mine] = np.unique(number[mine], return_inverse=True)[1].reshape(-1)
    return found


_GUIDED: Final = 0.3  # how often the operator to change is one of the critical path
Move = Callable[[Candidate, int, np.random.Generator], None]


def change_stages(candidate: Candidate, path: Columns, rng: np.random.Generator) -> None:
    """Make a move around an operator, perhaps one of the critical path."""
    guided = len(path) > 0 and rng.random() < _GUIDED
    op = int(path[rng.integers(len(path))]) if guided else int(rng.integers(candidate.n))
    MOVES[int(rng.integers(len(MOVES)))](candidate, op, rng)


def restage(c: Candidate, op: int, rng: np.random.Generator) -> None:
    """Put the operator on any device and stream, in the stage before or behind its new place, or in one of its own."""
    device = int(rng.integers(c.n_devices)) if rng.random() < 0.5 else int(c.device[op])
    first, last = c.window(op)
    c.put(op, int(rng.integers(first, last + 1)))
    c.device[op], c.stream[op] = device, rng.integers(c.streams)
    place = int(c.place[op])
    on_device = c.device[c.order] == device
    before = c.order[:place][on_device[:place]]
    behind = c.order[place + 1 :][on_device[place + 1 :]]
    which = int(rng.integers(3))
    if which == 0 and len(before):
        c.stage[op] = c.stage[before[-1]]
    elif which == 1 and len(behind):
        c.stage[op] = c.stage[behind[0]]
    else:
        c.stage[op] = c.stage[before[-1]] + 1 if len(before) else 0
        c.stage[behind] += 2  # they may have been of one stage with those before


def regroup(c: Candidate, op: int, rng: np.random.Generator) -> None:
    """Put the operator into another group of its stage."""
    c.stream[op] = rng.integers(c.streams)


def merge(c: Candidate, op: int, _rng: np.random.Generator) -> None:
    """Make one of the operator's stage and the next of its device; what depends on each other shares a group."""
    device, stage = int(c.device[op]), int(c.stage[op])
    later = (c.device == device) & (c.stage > stage)
    if not later.any():
        return
    joining = np.flatnonzero(later & (c.stage == c.stage[later].min()))
    c.stage[joining] = stage
    for i in joining[np.argsort(c.place[joining])].tolist():
        beside = [p for p in c.producers[i] if c.device[p] == device and c.stage[p] == stage]
        if beside:
            c.stream[i] = c.stream[beside[0]]


def split(c: Candidate, op: int, _rng: np.random.Generator) -> None:
    """Begin a new stage with the operator."""
    c.stage[(c.device == c.device[op]) & (c.place >= c.place[op])] += 1


MOVES: Final[tuple[Move, ...]] = (restage, regroup, merge, split)
