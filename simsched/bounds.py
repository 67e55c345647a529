"""Lower bounds on the makespan in the simulator's model, for any schedule."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from math import inf
from typing import Final

import numpy as np
import numpy.typing as npt

from simsched.base.units import TIE
from simsched.model import WARP, Cluster, CostModel, OpGraph, Target, bind, default_cost, operator_times
from simsched.model.graph.columns import Floats, Ints, distinct
from simsched.model.launches import kernels_on
from simsched.schedulers.instance import place_of, ways
from simsched.simulator.contention import LATE, LATENESS
from simsched.simulator.demand import demand_on

__all__ = ["Bounds", "bounds", "lower_bound"]

_MOST_JOINED: Final = 100_000


@dataclass(frozen=True, slots=True)
class Setting:
    """Costs of a graph on a cluster, for bounds; devices that do not differ are of one kind.

    Parameters
    ----------
    graph
        The graph.
    count
        Devices of each kind.
    times
        Least time of each operator on each kind, shape (n_kinds, n_ops); infinite where it cannot run.
    work
        Operators' use of a device's resources, as a share of the device x us, shape (n_resources, n_kinds, n_ops);
        infinite where they cannot run.
    capacity
        A device's capacity of each resource, shape (n_resources,).
    pairs
        Producers and consumers, each pair once, shape (2, n_pairs).
    moves
        ``moves[a][b]``: least time to move a pair's tensor from a device of kind a to *another* device, of kind b,
        shape (n_pairs,); infinite where there is no other, or no link.
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


def longest_of_pairs(graph: OpGraph, n_pairs: int, row: Ints, ways: Sequence[tuple[float, float]]) -> Floats:
    """Return the least time of each pair over some (latency, rate); of parallel edges the longest counts."""
    if not ways:
        return np.full(n_pairs, inf)
    least = np.min([latency + graph.edge_nbytes / rate for latency, rate in ways], axis=0)
    longest = np.zeros(n_pairs)
    np.maximum.at(longest, row, np.where(np.isnan(graph.edge_transfer), least, graph.edge_transfer))
    return longest


def reach(setting: Setting) -> tuple[Floats, Floats]:
    """Return the heads and the tails of operators on each kind of device, shape (n_kinds, n_ops) each.

    An operator cannot start before its head; its tail is the least time from its end to the end of all.

    Notes
    -----
    An operator starts `step` after everything it reads from, and where a producer is on another device also the time of
    the move later. Either way it cannot be before ``start`` = the latest over its producers, each where it is best. Of
    the producers whose data would come later than that from another device, some are on the operator's own device, and
    share it: the earliest of their starts plus all of their work, by the resource that they use most, bounds their
    ends. The others come late. The division between both is not known, but if the latest of the others is known,
    producers that would come still later are all on the device, so it is enough to try the beginnings of the list by
    falling arrival. This is done for graphs of up to 100,000 operators. Tails are the mirror image, with consumers
    instead of producers. O(kinds^2 E + V log V).
    """
    return _reach(setting, backwards=False), _reach(setting, backwards=True)


def _reach(setting: Setting, backwards: bool) -> Floats:
    n_kinds, n = setting.times.shape
    if backwards:
        far, own = setting.pairs[::-1]
    else:
        far, own = setting.pairs
    by_own = np.argsort(own, kind="stable")
    ptr = np.searchsorted(own[by_own], np.arange(n + 1)).tolist()
    others = far[by_own].tolist()
    moves = [list(line) for line in setting.moves]  # kept while they are known by identity: many are shared
    moves_of = {id(column): column[by_own].tolist() for line in moves for column in line}
    into = [[moves_of[id(moves[k][o] if backwards else moves[o][k])] for o in range(n_kinds)] for k in range(n_kinds)]
    times = setting.times.tolist()
    joins = len(setting.work) > 0 and n <= _MOST_JOINED
    if joins:
        work = (setting.work / setting.capacity[:, None, None]).transpose(1, 2, 0).tolist()
    else:
        work = []
    step = setting.step
    least = 0.0 if backwards else setting.first
    reach = [[least] * n for _ in range(n_kinds)]
    over = [[0.0] * n for _ in range(n_kinds)]  # the operator itself included
    order = setting.graph.order_index.tolist()
    for j in reversed(order) if backwards else order:
        start = ptr[j]
        end = ptr[j + 1]
        reads = others[start:end]
        places = range(start, end)
        for k in range(n_kinds):
            here = over[k]
            latest = least
            if reads and n_kinds == 1:
                latest = max(latest, max([here[i] for i in reads]) + step)
                away = [here[i] + into[0][0][p] for i, p in zip(reads, places, strict=True)]
            elif reads:
                away = [
                    min([ends[i] + move[p] for ends, move in zip(over, into[k], strict=True)])
                    for i, p in zip(reads, places, strict=True)
                ]
                latest = max(latest, max([min(here[i], t) for i, t in zip(reads, away, strict=True)]) + step)
            if work and len(reads) > 1:
                late = [(t + step, here[i] + step, i) for i, t in zip(reads, away, strict=True) if t + step > latest]
                if len(late) > 1:
                    late.sort(reverse=True)
                    latest = max(latest, _last_delivery(late, reach[k], work[k], step))
            reach[k][j] = latest
            here[j] = latest + times[k][j]
    return np.array(reach)


def _last_delivery(
    late: list[tuple[float, float, int]], found: list[float], work: list[list[float]], step: float
) -> float:
    """Return when the last of some producers can have delivered; see `reach`.

    Parameters
    ----------
    late
        (arrival from another device, from the same device, operator), by falling arrival.
    """
    best = late[0][0]
    together = 0.0
    earliest = inf
    sums = [0.0] * len(work[0])
    for place, (_, here, i) in enumerate(late):
        earliest = min(earliest, found[i])
        sums = [total + own for total, own in zip(sums, work[i], strict=True)]
        together = max(together, here, earliest + max(sums, default=0.0) + step)
        if place + 1 < len(late):
            rest = late[place + 1][0]
        else:
            rest = 0.0
        best = min(best, max(together, rest))
        if together >= rest:
            break
    return best


def alone(graph: OpGraph) -> npt.NDArray[np.bool_]:
    """Return, per operator, whether every other one comes before or after it, shape (n_ops,).

    Notes
    -----
    In a topological order, all operators after one depend on it if it is the only one that is ready at its turn, and
    likewise from the end. O(V + E).
    """
    n = len(graph)
    place = place_of(graph.order_index)
    one = np.ones(n, np.bool_)
    for turn, near, far in ((place, graph.src, graph.dst), (n - 1 - place, graph.dst, graph.src)):
        ready = np.zeros(n, np.int64)
        np.maximum.at(ready, far, turn[near] + 1)
        waiting = np.cumsum(np.bincount(ready, minlength=n) - np.r_[0, np.ones(n - 1, np.int64)])
        one &= waiting[turn] == 1
    return one


_MOST_THRESHOLDS: Final = 256
_MOST_STEPS: Final = 2**22


def area(head: Floats, work: Floats, tail: Floats, capacity: float) -> float:
    """Return a lower bound in us of the end of all operators, by the work that one resource has to do.

    Parameters
    ----------
    head, tail
        Least time before the start of each operator, and after its end, shape (n_ops,).
    work
        Use of the resource by each operator, shape (n_ops,).
    capacity
        Capacity of the resource per us.

    Notes
    -----
    The work of any set of operators is done between the least head and the least tail of the set: ``min head + work /
    capacity + min tail``. For a head as threshold the best set has heads from there on and the longest tails. Up to 256
    heads are tried, fewer in graphs of more than 16,000 operators, of more heads an even choice; the least of all is
    always among them. Those that promise most come first, and the rest is left out once it can bring no more. O(V log V
    + thresholds V).
    """
    able = work > 0
    if not able.any():
        return 0.0
    by_tail = np.argsort(-tail[able], kind="stable")
    head, work, tail = (column[able][by_tail] for column in (head, work, tail))
    thresholds = distinct(head)
    n = min(len(thresholds), max(4, min(_MOST_THRESHOLDS, _MOST_STEPS // len(head))))
    thresholds = thresholds[np.linspace(0, len(thresholds) - 1, n).astype(np.int64)]
    by_head = np.argsort(-head)
    last = np.searchsorted(-head[by_head], -thresholds, "right") - 1  # operators with heads from there on
    promised = thresholds + np.cumsum(work[by_head])[last] / capacity + np.maximum.accumulate(tail[by_head])[last]
    best = 0.0
    for i in np.argsort(-promised).tolist():
        if promised[i] < best * (1.0 - TIE):  # the following ones promise no more
            break
        chosen = head >= thresholds[i]
        best = max(best, float(thresholds[i] + (np.cumsum(work[chosen]) / capacity + tail[chosen]).max()))
    return best


def areas(setting: Setting, head: Floats, tail: Floats) -> Floats:
    """Return for each resource the largest `area`: of all devices, and of the devices that some operators need.

    Parameters
    ----------
    head, tail
        As `reach` returns them, shape (n_kinds, n_ops).

    Returns
    -------
    numpy.ndarray
        Areas in us, shape (n_resources,).

    Notes
    -----
    An operator counts with its least time over devices. Operators that can run only on some kinds of devices have only
    these devices' capacity.
    """
    head = head.min(axis=0)
    tail = tail.min(axis=0)
    work = setting.work.min(axis=1)
    largest = np.zeros(len(work))
    for ops, n_devices in _confined_sets(setting):
        for r, capacity in enumerate(setting.capacity.tolist()):
            largest[r] = max(largest[r], area(head[ops], work[r, ops], tail[ops], capacity * n_devices))
    return largest


def _confined_sets(setting: Setting) -> Iterator[tuple[Ints, int]]:
    """Yield operators that can run on no other devices than so many: all of them first."""
    runs = np.isfinite(setting.times)  # (n_kinds, n_ops)
    yield np.arange(runs.shape[1]), int(setting.count.sum())
    if not runs.all():
        for kinds in np.unique(runs, axis=1).T:  # (n_sets, n_kinds)
            if not kinds.all():
                yield np.flatnonzero(~runs[~kinds].any(axis=0)), int(setting.count[kinds].sum())


@dataclass(frozen=True, slots=True)
class Bounds:
    """Lower bounds in us.

    Parameters
    ----------
    critical_path
        Longest path of operators, each at its fastest, with the transfers and the gaps that no
        schedule avoids.
    sm_work, dram_work, residency
        Operators' use of the issue slots, of DRAM, and of the scarcest of threads, blocks, registers and shared memory,
        over the cluster's capacity, between the least time that must come before them and after them.
    """

    critical_path: float
    sm_work: float
    dram_work: float
    residency: float

    @property
    def best(self) -> float:
        """The largest of them."""
        return max(self.critical_path, self.sm_work, self.dram_work, self.residency)


def lower_bound(graph: OpGraph, cluster: Target, cost: CostModel | None = None) -> float:
    """Return a time in us below which no schedule of `graph` can be simulated on `cluster`; see `bounds`.

    A graph that a scheduler has rewritten has a separate bound.
    """
    return bounds(graph, cluster, cost).best


def bounds(graph: OpGraph, cluster: Target, cost: CostModel | None = None) -> Bounds:
    """Return lower bounds of the makespan of any schedule of `graph` on `cluster` in the simulator's model.

    Parameters
    ----------
    graph, cluster
        The graph to run, and the cluster that runs it.
    cost
        Time of an operator alone on a device in us; by default its `time`, else a roofline.

    Returns
    -------
    Bounds
        Bounds for schedules of any execution, lowered with any options, without jitter, up to the simulator's tolerance
        of equal times (1e-9 of them). Infinite if an operator fits nowhere, or only on devices without links to its
        readers' devices.

    Notes
    -----
    *Operators.* A block takes its time on an idle device or longer. One that is slowed by a share a of the load on a
    resource makes progress no faster than 1 over a times that load, so a times its time and its load is work, of which
    one device does at most 1 per us. Blocks of a kernel that are merged into one cohort may end up to a quarter of a
    block early, and so may those that are quick, hence less than 1.75 blocks for a kernel of more than one wave. An
    operator that no other can run beside takes its solo time. Operators without a known grid take no residency, and
    those without `utilization` either count in the critical path alone; with `contention` off that is so for all.

    *Between operators.* Common to all executions: a first launch, of a kernel or of a captured graph, and between an
    operator and its reader the least of `gap`, `hop`, `barrier`, `barrier_many` and `graph_node`. A captured graph
    needs no other launches and waits.

    *Transfers* count where no choice of devices avoids them: if producer and consumer fit on different
    devices only, if the faster device is another one, or if several producers of one operator (or
    consumers) would take longer to share a device than to send their data; see
    `reach`.

    *Work* counts between the least head and the least tail of any set of operators, see
    `area`. O(devices^2 E + V log V) with devices that differ.
    """
    graph, cluster = bind(graph, cluster)
    setting, resources = _setting(graph, cluster, cost)
    head, tail = reach(setting)
    path = (head + setting.times + tail).min(axis=0).max()
    areas_us = np.zeros(_RESOURCES)
    areas_us[resources] = areas(setting, head, tail)
    sm, dram, *held = areas_us.tolist()
    return Bounds(float(path), sm, dram, max(held))


_RESOURCES: Final = 6


def _setting(graph: OpGraph, cluster: Cluster, cost: CostModel | None) -> tuple[Setting, Ints]:
    """Return the setting of the simulator's model, and the resources of its `work`: those that any operator uses."""
    single = alone(graph)
    by_kind = cost is None or cost is default_cost  # another cost model may look at the names of devices
    if by_kind:
        alike = cluster.kind
    else:
        alike = np.arange(len(cluster))
    number: dict[bytes, int] = {}
    rows: list[Floats] = []
    kinds: list[int] = []
    for d in np.unique(alike, return_index=True)[1].tolist():
        row = _work_on(graph, cluster, d, cost, single)
        kinds.append(number.setdefault(row.tobytes(), len(number)))
        if kinds[-1] == len(rows):
            rows.append(row)
    kind = np.array(kinds, np.int64)[alike]
    whole = np.stack(rows, axis=1)  # (1 + resources, n_kinds, n_ops)
    used = np.flatnonzero((whole[1:] > 0).any(axis=(1, 2)))
    pairs, pair_of = pairs_of(graph)
    latency, rate = ways(cluster)
    other = ~np.eye(len(cluster), dtype=np.bool_)
    longest = cache(partial(longest_of_pairs, graph, pairs.shape[1], pair_of))

    def moves(a: int, b: int) -> Floats:
        between = other & (kind[:, None] == a) & (kind == b)
        return longest(tuple(sorted(set(zip(latency[between].tolist(), rate[between].tolist(), strict=True)))))

    setting = Setting(
        graph=graph,
        count=np.bincount(kind),
        times=whole[0],
        work=whole[1 + used],
        capacity=np.ones(len(used)),
        pairs=pairs,
        moves=[[moves(a, b) for b in range(len(rows))] for a in range(len(rows))],
        first=min(min(max(d.launch, d.launch_latency), d.graph_launch) for d in cluster.kinds),
        step=min(min(d.gap, d.hop, d.barrier, d.barrier_many, d.graph_node) for d in cluster.kinds),
    )
    return setting, used


def _work_on(graph: OpGraph, cluster: Cluster, d: int, cost: CostModel | None, single: npt.NDArray[np.bool_]) -> Floats:
    """Return per operator the least time on a device, and 6 shares of the device x us, shape (7, n_ops).

    The shares are of issue slots, DRAM and an SM's threads, blocks, registers and shared memory.
    """
    device = cluster.devices[d]
    solo = operator_times(graph, device, cost)
    demand = demand_on(graph, cluster, d, solo, refuse_unfit=False)
    first = kernels_on(graph, device).ptr[:-1]
    runs = np.isfinite(demand["unit"])  # a kernel without a block that fits here has to run on another device
    launches = [demand["solo"], *[np.zeros(len(runs))] * _RESOURCES]
    if device.contention:
        unit = np.where(runs, demand["unit"], 0.0)
        gridded = demand["blocks"] > 0
        waves = np.maximum(1.0, demand["blocks"] / np.maximum(demand["residency"], 1))
        second = _SECOND_WAVE - LATENESS * device.block_spread * LATE / (10 - LATE)
        waves = np.where(waves > 1.0, np.maximum(waves, second), 1.0)
        whole = np.maximum(demand["blocks"], 1) * unit
        sm = whole * np.where(gridded, demand["sm_share"] / device.sms, demand["sm_share"]) * demand["alpha"]
        dram = whole * demand["dram_share"] * demand["beta"]
        latency = np.where(gridded, np.minimum(device.kernel_latency, demand["solo"]), 0.0)
        launches = [np.maximum(waves * unit, np.maximum(sm, dram)) + latency, sm, dram]
        for one, most in (
            (demand["warps"], device.threads_per_sm // WARP),
            (np.sign(demand["blocks"]), device.blocks_per_sm),
            (demand["registers"], device.registers_per_sm),
            (demand["shared_memory"], device.shared_memory_per_sm),
        ):
            launches.append(one * whole / (most * device.sms))
    rows = np.stack([np.add.reduceat(np.where(runs, row, inf), first) for row in launches])
    rows[0] = np.where(single & np.isfinite(rows[0]), solo, rows[0])
    return rows


_SECOND_WAVE: Final = 1.75
"""Least blocks' lengths of a kernel of more than one wave, without spread: five cohorts due within one become four."""
