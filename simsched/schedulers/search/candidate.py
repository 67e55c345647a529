"""A schedule that a search changes, and changes of its stages."""

from typing import Any, Final

import numpy as np
import numpy.typing as npt
from numpy.random import Generator

from simsched.model import Cluster, Ints, Schedule
from simsched.schedulers.instance import place_of, readers, sources
from simsched.schedulers.search.walk import GUIDED


class Candidate:
    """A schedule that moves change; its launch order is topological over all devices.

    Parameters
    ----------
    plan
        The schedule that it begins as, valid for `cluster`.
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
        Producers and consumers by operator, without repeats.
    staged
        Whether it runs in stages: then the stages of a device never fall along `order`.
    """

    def __init__(self, plan: Schedule, cluster: Cluster, streams: int) -> None:
        graph = plan.graph
        self.n = len(graph)
        self.n_devices = len(cluster)
        self.streams = streams
        self.staged: Final = plan.execution == "stages"
        self.producers = sources(graph)
        self.consumers = readers(graph)
        self.rows: Ints = np.zeros((5, self.n), np.int64)
        self.order, self.place, self.device, self.stream, self.stage = self.rows  # parts of it, not copies
        number = np.array([cluster.index[name] for name in plan.devices], np.int64)
        self.device[plan.op] = number[plan.device]
        self.stream[plan.op] = dense(plan.device, plan.stream)
        if self.staged:
            self.stage[plan.op] = plan.stage
        self.order[:] = launch_order(plan)
        self.place[self.order] = np.arange(self.n)

    def put(self, op: int, to: int) -> None:
        """Move an operator to another place in the launch order; the others close up."""
        at = int(self.place[op])
        first = min(at, to)
        end = max(at, to) + 1
        moved = self.order[first:end]
        moved[:] = np.roll(moved, 1 if to < at else -1)
        self.place[moved] = np.arange(first, end)


def launch_order(plan: Schedule) -> Ints:
    """Return a topological launch order of all operators that keeps each device's order.

    It is the schedule's own where that is topological; else the operator that the schedule launches first, of those
    that may come next, is next.
    """
    graph = plan.graph
    place = place_of(plan.op)
    if not (place[graph.src] > place[graph.dst]).any():
        return plan.op.astype(np.int64)
    import networkx as nx

    before = nx.DiGraph(zip(graph.src.tolist(), graph.dst.tolist(), strict=True))
    for d in range(len(plan.devices)):
        nx.add_path(before, plan.op[plan.device == d].tolist())
    return np.array(list(nx.lexicographical_topological_sort(before, place.__getitem__)), np.int64)


def dense(device: npt.NDArray[Any], number: npt.NDArray[Any]) -> Ints:
    """Return numbers, such as numbers of streams, counted from 0 on each device, in their order."""
    numbers = np.empty(len(number), np.int64)
    for d in np.unique(device).tolist():
        ops = np.flatnonzero(device == d)
        numbers[ops] = np.unique(number[ops], return_inverse=True)[1].reshape(-1)
    return numbers


def change_stages(candidate: Candidate, path: Ints, rng: Generator) -> None:
    """Make a move around an operator, perhaps one of the critical path."""
    guided = len(path) > 0 and rng.random() < GUIDED
    if guided:
        op = int(path[rng.integers(len(path))])
    else:
        op = int(rng.integers(candidate.n))
    MOVES[int(rng.integers(len(MOVES)))](candidate, op, rng)


def restage(c: Candidate, op: int, rng: Generator) -> None:
    """Put the operator on any device and stream, in the stage before or after its new place, or in a separate stage."""
    if rng.random() < 0.5:
        device = int(rng.integers(c.n_devices))
    else:
        device = int(c.device[op])
    first = max((int(c.place[p]) + 1 for p in c.producers[op]), default=0)
    last = min((int(c.place[r]) - 1 for r in c.consumers[op]), default=c.n - 1)
    c.put(op, int(rng.integers(first, last + 1)))
    c.device[op] = device
    c.stream[op] = rng.integers(c.streams)
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
        if len(before):
            c.stage[op] = c.stage[before[-1]] + 1
        else:
            c.stage[op] = 0
        c.stage[behind] += 2  # they may have shared a stage with operators before them


def regroup(c: Candidate, op: int, rng: Generator) -> None:
    """Put the operator into another group of its stage."""
    c.stream[op] = rng.integers(c.streams)


def merge(c: Candidate, op: int, _rng: Generator) -> None:
    """Merge the operator's stage with the next of its device; operators that depend on each other share a group."""
    device = int(c.device[op])
    stage = int(c.stage[op])
    later = (c.device == device) & (c.stage > stage)
    if not later.any():
        return
    joining = np.flatnonzero(later & (c.stage == c.stage[later].min()))
    c.stage[joining] = stage
    for i in joining[np.argsort(c.place[joining])].tolist():
        beside = [p for p in c.producers[i] if c.device[p] == device and c.stage[p] == stage]
        if beside:
            c.stream[i] = c.stream[beside[0]]


def split(c: Candidate, op: int, _rng: Generator) -> None:
    """Begin a new stage with the operator."""
    c.stage[(c.device == c.device[op]) & (c.place >= c.place[op])] += 1


MOVES: Final = (restage, regroup, merge, split)
