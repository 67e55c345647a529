"""How much must come before an operator, and after it, whatever the schedule."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

import numpy as np
import numpy.typing as npt

from simsched.model.cluster import Cluster
from simsched.model.graph import OpGraph
from simsched.model.graph.columns import Floats, Ints

_MOST_JOINED: Final = 100_000


@dataclass(frozen=True, slots=True)
class Setting:
    """What a graph meets on a cluster, for bounds; devices that do not differ are of one kind.

    Parameters
    ----------
    graph
        The graph.
    count
        Devices of each kind.
    times
        Least time of each operator on each kind, shape (n_kinds, n_ops); infinite where it cannot run.
    work
        What operators take of a device's resources, as a share of the device x us, shape
        (n_resources, n_kinds, n_ops); infinite where they cannot run.
    capacity
        What a device has of each resource, shape (n_resources,).
    pairs
        Producers and consumers, each pair once, shape (2, n_pairs).
    moves
        ``moves[a][b]``: least time to move what a pair needs from a device of kind a to *another* device,
        of kind b, shape (n_pairs,); infinite where there is no other, or no way.
    first
        Time before which no operator starts.
    step
        Least time between the end of an operator and the start of one that reads from it.
    """

    graph: OpGraph
    count: Ints
    times: Floats
    work: Floats
    capacity: Floats
    pairs: Ints
    moves: Sequence[Sequence[Floats]]
    first: float = 0.0
    step: float = 0.0


def pairs_of(graph: OpGraph) -> tuple[Ints, Ints]:
    """Return each pair of producer and consumer once, shape (2, n_pairs), and which of them each edge joins."""
    keys, row = np.unique(graph.src.astype(np.int64) * len(graph) + graph.dst, return_inverse=True)
    return np.stack([keys // len(graph), keys % len(graph)]), row


def ways_between(cluster: Cluster) -> tuple[Ints, Ints, Floats, Floats]:
    """Return each device and each other one, and the latency in us and the bytes per us from one to the other.

    Without links the rate is 0.
    """
    n = len(cluster)
    here, there = (ends.ravel() for ends in np.meshgrid(np.arange(n), np.arange(n), indexing="ij"))
    other = here != there
    here, there = here[other], there[other]
    routes = cluster.routes(here, there)
    rate = np.minimum(routes.bandwidth, np.array([device.copy_rate for device in cluster.devices])[here])
    return here, there, routes.latency, rate


def least_moves(graph: OpGraph, cluster: Cluster, kind: Ints, n_pairs: int, row: Ints) -> list[list[Floats]]:
    """Return `Setting.moves` for the edges of a graph, copies uncontended.

    Parameters
    ----------
    kind
        Kind of each device of the cluster.
    n_pairs, row
        How many pairs there are, and that of each edge, by `pairs_of`.
    """
    n_kinds = int(kind.max()) + 1
    here, there, latency, rate = ways_between(cluster)
    known: dict[tuple[tuple[float, float], ...], Floats] = {}

    def moves(a: int, b: int) -> Floats:
        of_kinds = (kind[here] == a) & (kind[there] == b)
        ways = tuple(sorted(set(zip(latency[of_kinds].tolist(), rate[of_kinds].tolist(), strict=True))))
        if ways not in known:
            known[ways] = _longest_of_pairs(graph, ways, n_pairs, row)
        return known[ways]

    return [[moves(a, b) for b in range(n_kinds)] for a in range(n_kinds)]


def _longest_of_pairs(graph: OpGraph, ways: tuple[tuple[float, float], ...], n_pairs: int, row: Ints) -> Floats:
    """Return the least time of each pair over some (latency, rate); of parallel edges the longest counts."""
    if not ways:
        return np.full(n_pairs, inf)
    least = np.full(len(graph.src), inf)
    for latency, rate in ways:
        if rate > 0:  # without links there is no way
            least = np.minimum(least, latency + graph.edge_nbytes / rate)
    exact = graph.edge_transfer
    edge = np.where(np.isnan(exact), least, exact)
    found = np.zeros(n_pairs)
    np.maximum.at(found, row, edge)
    return found


def heads(setting: Setting) -> Floats:
    """Return the time before which each operator cannot start on each kind of device, shape (n_kinds, n_ops).

    Notes
    -----
    An operator starts `step` after everything it reads from, and where a producer is on another
    device also the time of the move later. Either way it cannot be before ``start`` = the latest over
    its producers, each where it is best. Of the producers whose data would come later than that from
    another device, some are on the operator's own device, and share it: the earliest of their starts
    plus all of their work, by whichever resource they ask most of, bounds their ends. The others come
    late. Which are which is not known, but if the latest of the others is known, those that would come
    still later are all on the device, so it is enough to try the beginnings of the list by falling
    arrival. This is done for graphs of up to 100,000 operators. O(kinds^2 E + V log V).
    """
    return _reach(setting, backwards=False)


def tails(setting: Setting) -> Floats:
    """Return the least time from the end of each operator on each kind to the end of all, shape (n_kinds, n_ops).

    The mirror image of `heads`, consumers in place of producers.
    """
    return _reach(setting, backwards=True)


def _reach(setting: Setting, backwards: bool) -> Floats:
    n_kinds, n = setting.times.shape
    far, own = setting.pairs[::-1] if backwards else setting.pairs
    by_own = np.argsort(own, kind="stable")
    ptr = np.searchsorted(own[by_own], np.arange(n + 1)).tolist()
    others = far[by_own].tolist()
    moves = [list(line) for line in setting.moves]  # kept while they are known by identity: many are shared
    known = {id(column): column[by_own].tolist() for line in moves for column in line}
    into = [[known[id(moves[k][o] if backwards else moves[o][k])] for o in range(n_kinds)] for k in range(n_kinds)]
    times = setting.times.tolist()
    joins = len(setting.work) > 0 and n <= _MOST_JOINED
    work = (setting.work / setting.capacity[:, None, None]).transpose(1, 2, 0).tolist() if joins else []
    step = setting.step
    least = 0.0 if backwards else setting.first
    found = [[least] * n for _ in range(n_kinds)]
    over = [[0.0] * n for _ in range(n_kinds)]  # the operator itself included
    order = setting.graph.order_index.tolist()
    for j in reversed(order) if backwards else order:
        start, end = ptr[j], ptr[j + 1]
        reads, places = others[start:end], range(start, end)
        for k in range(n_kinds):
            here, latest = over[k], least
            if reads and n_kinds == 1:
                latest = max(latest, max([here[i] for i in reads]) + step)
            elif reads:
                away = [
                    min([ends[i] + move[p] for ends, move in zip(over, into[k], strict=True)])
                    for i, p in zip(reads, places, strict=True)
                ]
                latest = max(latest, max([min(here[i], t) for i, t in zip(reads, away, strict=True)]) + step)
            if work and len(reads) > 1:
                if n_kinds == 1:
                    away = [here[i] + into[0][0][p] for i, p in zip(reads, places, strict=True)]
                late = [(t + step, here[i] + step, i) for i, t in zip(reads, away, strict=True) if t + step > latest]
                if len(late) > 1:
                    late.sort(reverse=True)
                    latest = max(latest, _joined(late, found[k], work[k], step))
            found[k][j] = latest
            here[j] = latest + times[k][j]
    return np.array(found)


def _joined(late: list[tuple[float, float, int]], found: list[float], work: list[list[float]], step: float) -> float:
    """Return when the last of some producers can have delivered; see `heads`.

    Parameters
    ----------
    late
        (arrival from another device, from the same device, operator), by falling arrival.
    """
    best, together, earliest = late[0][0], 0.0, inf
    sums = [0.0] * len(work[0])
    for place, (_, here, i) in enumerate(late):
        earliest = min(earliest, found[i])
        sums = [total + own for total, own in zip(sums, work[i], strict=True)]
        together = max(together, here, earliest + max(sums, default=0.0) + step)
        rest = late[place + 1][0] if place + 1 < len(late) else 0.0
        best = min(best, max(together, rest))
        if together >= rest:
            break
    return best


def alone(graph: OpGraph) -> npt.NDArray[np.bool_]:
    """Return, per operator, whether every other one comes before or after it, shape (n_ops,).

    Notes
    -----
    Of a topological order, all behind an operator depend on it if it is the only one that is ready
    when its turn comes, and likewise from the end. O(V + E).
    """
    n = len(graph)
    place = np.empty(n, np.int64)
    place[graph.order_index] = np.arange(n)
    one = np.ones(n, np.bool_)
    for turn, near, far in ((place, graph.src, graph.dst), (n - 1 - place, graph.dst, graph.src)):
        ready = np.zeros(n, np.int64)
        np.maximum.at(ready, far, turn[near] + 1)
        waiting = np.cumsum(np.bincount(ready, minlength=n) - np.r_[0, np.ones(n - 1, np.int64)])
        one &= waiting[turn] == 1
    return one
