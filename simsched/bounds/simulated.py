"""Lower bounds on the makespan that the simulator can report."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Final

import numpy as np
import numpy.typing as npt

from simsched.bounds.areas import areas
from simsched.bounds.paths import Setting, alone, heads, least_moves, pairs_of, tails
from simsched.model.calibrated import Target, upon
from simsched.model.cluster import WARP, Cluster, Device
from simsched.model.costmodel import CostModel, default_cost, operator_times
from simsched.model.graph import OpGraph
from simsched.model.graph.columns import Floats, Ints
from simsched.model.program import launch_ptr
from simsched.simulator.contention import LATE, LATENESS
from simsched.simulator.workload import Demand, demand_of


@dataclass(frozen=True, slots=True)
class Bounds:
    """Lower bounds in us.

    Parameters
    ----------
    critical_path
        Longest path of operators, each at its fastest, with the transfers and the gaps that no
        schedule avoids.
    sm_work, dram_work, residency
        What operators need of the issue slots, of DRAM, and of the scarcest of threads, blocks,
        registers and shared memory, over what the cluster offers, between the least time that must
        come before them and after them.
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

    A graph that a scheduler has rewritten has a bound of its own.
    """
    return bounds(graph, cluster, cost).best


def bounds(graph: OpGraph, cluster: Target, cost: CostModel | None = None) -> Bounds:
    """Return what bounds the makespan of any schedule of `graph` on `cluster` in the simulator's model.

    Parameters
    ----------
    graph, cluster
        What is to run, and on what.
    cost
        Time of an operator alone on a device in us; by default its `time`, else a roofline.

    Returns
    -------
    Bounds
        Of schedules of any execution, lowered with any options, without jitter, but for what times lose that
        are taken for one instant (1e-9 of them). Infinite if an operator fits nowhere, or only where no links
        lead to what reads from it.

    Notes
    -----
    *Operators.* A block takes its time on an idle device or longer. One that is slowed by a share a of
    the load on a resource makes progress no faster than 1 over a times that load, so a times its time
    and what it loads is work, of which one device does at most 1 per us. Blocks of a kernel that are
    merged into one cohort may end up to a quarter of a block early, and so may those that are quick, hence less than
    1.75 blocks for a kernel of more than one wave. An
    operator that no other can run beside takes its solo time. Operators
    without a known grid take no residency, and those without `utilization` either count in the
    critical path alone; with `contention` off that is so for all.

    *Between operators.* What all executions have in common: a first launch, of a kernel or of a
    captured graph, and between an operator and one that reads from it the least of `gap`, `hop`,
    `barrier` and `graph_node`. Launches and waits beyond that a captured graph does without.

    *Transfers* count where no choice of devices avoids them: if producer and consumer fit on different
    devices only, if the faster device is another one, or if several producers of one operator (or
    consumers) would take longer to share a device than to send their data; see
    `simsched.bounds.paths.heads`.

    *Work* counts between the least head and the least tail of any set of operators, see
    `simsched.bounds.areas.area`. O(devices^2 E + V log V) with devices that differ.
    """
    graph, cluster = upon(cluster, graph)
    setting, asked = _setting(graph, cluster, cost)
    head, tail = heads(setting), tails(setting)
    path = (head + setting.times + tail).min(axis=0).max()
    found = np.zeros(_RESOURCES)
    found[asked] = areas(setting, head, tail)
    sm, dram, *held = found.tolist()
    return Bounds(float(path), sm, dram, max(held))


_RESOURCES: Final = 6


def _setting(graph: OpGraph, cluster: Cluster, cost: CostModel | None) -> tuple[Setting, Ints]:
    """Return the setting of the simulator's model, and which resources its `work` has: those asked for at all."""
    single = alone(graph)
    number: dict[bytes, int] = {}
    rows: list[Floats] = []
    kind_of: dict[int, int] = {}
    for d in _different(cluster, cost):
        row = _work_on(graph, cluster, d, cost, single)
        kind_of[d] = number.setdefault(row.tobytes(), len(number))
        if kind_of[d] == len(rows):
            rows.append(row)
    alike = kind_of if len(kind_of) == len(cluster) else {d: kind_of[first] for d, first in _firsts(cluster)}
    kind = np.array([alike[d] for d in range(len(cluster))], np.int64)
    whole = np.stack(rows, axis=1)  # (1 + resources, n_kinds, n_ops)
    asked = np.flatnonzero((whole[1:] > 0).any(axis=(1, 2)))
    pairs, pair_of = pairs_of(graph)
    costs = [
        (min(max(d.launch, d.launch_latency), d.graph_launch), min(d.gap, d.hop, d.barrier, d.graph_node))
        for d in cluster.kinds
    ]
    setting = Setting(
        graph=graph,
        count=np.bincount(kind),
        times=whole[0],
        work=whole[1 + asked],
        capacity=np.ones(len(asked)),
        pairs=pairs,
        moves=least_moves(graph, cluster, kind, pairs.shape[1], pair_of),
        first=min(first for first, _ in costs),
        step=min(step for _, step in costs),
    )
    return setting, asked


def _different(cluster: Cluster, cost: CostModel | None) -> list[int]:
    """Return the devices that may differ in what they need; a cost model of the user's may look at names."""
    if cost is not None and cost is not default_cost:
        return list(range(len(cluster)))
    return [d for d, first in _firsts(cluster) if d == first]


def _firsts(cluster: Cluster) -> list[tuple[int, int]]:
    """Return each device and the first one that equals it in all but the name."""
    first = np.unique(cluster.kind, return_index=True)[1]
    return list(enumerate(first[cluster.kind].tolist()))


def _work_on(graph: OpGraph, cluster: Cluster, d: int, cost: CostModel | None, single: npt.NDArray[np.bool_]) -> Floats:
    """Return per operator the least time on a device, and 6 shares of the device x us, shape (7, n_ops)."""
    ptr = launch_ptr(graph)
    op = np.repeat(np.arange(len(graph)), np.diff(ptr))
    solo = operator_times(graph, cluster.devices[d], cost)
    place = np.broadcast_to(np.int64(d), len(op))
    asked = demand_of(graph, cluster, place, solo[op], refuse_unfit=False)
    runs = np.isfinite(asked.unit)  # a kernel of which no block fits here has to run on another device
    rows = np.stack(
        [np.add.reduceat(np.where(runs, row, np.inf), ptr[:-1]) for row in _asked_of(cluster.devices[d], asked, runs)]
    )
    rows[0] = np.where(single & np.isfinite(rows[0]), solo, rows[0])
    return rows


def _asked_of(device: Device, asked: Demand, runs: npt.NDArray[np.bool_]) -> Iterator[Floats]:
    """Yield, per launch, the least time, and the shares of issue slots, DRAM and what an SM can hold, x us."""
    if not device.contention:
        yield asked.solo
        yield from repeat(np.zeros(len(runs)), _RESOURCES)
        return
    unit = np.where(runs, asked.unit, 0.0)
    waves = np.maximum(1.0, asked.blocks / np.maximum(asked.residency, 1))
    second = _SECOND_WAVE - LATENESS * device.block_spread * LATE / (10 - LATE)
    waves = np.where(waves > 1.0, np.maximum(waves, second), 1.0)
    whole = np.maximum(asked.blocks, 1) * unit
    of_device = np.where(asked.blocks > 0, asked.sm_share / device.sms, asked.sm_share)
    sm, dram = whole * of_device * asked.alpha, whole * asked.dram_share * asked.beta
    yield np.maximum(waves * unit, np.maximum(sm, dram)) + asked.latency
    yield sm
    yield dram
    per_sm = (device.threads_per_sm // WARP, device.blocks_per_sm, device.registers_per_sm, device.shared_memory_per_sm)
    held = (asked.warps, np.sign(asked.blocks), asked.registers, asked.shared_memory)
    for one, all_of_it in zip(held, per_sm, strict=True):
        yield one * whole / (all_of_it * device.sms)


_SECOND_WAVE: Final = 1.75
"""Least blocks' lengths of a kernel of more than one wave, without spread: five cohorts due within one become four."""
