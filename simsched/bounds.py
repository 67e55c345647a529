"""Lower bounds on the makespan that the simulator can report."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat

import numpy as np
import numpy.typing as npt

from simsched.cluster import WARP, Cluster, Device
from simsched.costmodel import CostModel, default_cost, operator_times
from simsched.graph import OpGraph
from simsched.graph.columns import Floats, compact
from simsched.graph.structure import longest_to
from simsched.program import launch_ptr
from simsched.simulator.workload import Demand, demand_of


@dataclass(frozen=True, slots=True)
class Bounds:
    """Lower bounds in us.

    Parameters
    ----------
    critical_path
        Longest path of operators, each at its fastest; edges cost nothing within a device.
    sm_work, dram_work, residency
        What all operators need of the issue slots, of DRAM, and of the scarcest of threads,
        blocks, registers and shared memory, over what the cluster offers.
    """

    critical_path: float
    sm_work: float
    dram_work: float
    residency: float

    @property
    def best(self) -> float:
        """The largest of them."""
        return max(self.critical_path, self.sm_work, self.dram_work, self.residency)


def lower_bound(graph: OpGraph, cluster: Cluster, cost: CostModel | None = None) -> float:
    """Return a time in us below which no schedule of `graph` can be simulated on `cluster`."""
    return bounds(graph, cluster, cost).best


def bounds(graph: OpGraph, cluster: Cluster, cost: CostModel | None = None) -> Bounds:
    """Return what bounds the makespan of any schedule of `graph` on `cluster` in the simulator's model.

    Notes
    -----
    A block takes its time on an idle device or longer, and a kernel fully sensitive to a resource
    makes progress only as fast as that resource allows: its blocks' times x what they load is work
    that at most one device's worth of resource does per us. Operators without a known grid take no
    residency, and those without `utilization` either count in the critical path alone. With
    `contention` off only the critical path counts. O(devices x (V + E)).
    """
    rows = [_work_on(graph, cluster, d, cost) for d in _different(cluster, cost)]
    fastest, *works = zip(*rows, strict=True)
    path = longest_to(graph, np.minimum.reduce(fastest)).max()
    sm, dram, *held = (float(np.minimum.reduce(work).sum() / len(cluster)) for work in works)
    return Bounds(float(path), sm, dram, max(held))


def _different(cluster: Cluster, cost: CostModel | None) -> list[int]:
    """Return the devices that may differ in what they need; a cost model of the user's may look at names."""
    if cost is not None and cost is not default_cost:
        return list(range(len(cluster)))
    found: list[int] = np.unique(cluster.kind, return_index=True)[1].tolist()
    return found


def _work_on(graph: OpGraph, cluster: Cluster, d: int, cost: CostModel | None) -> list[Floats]:
    """Return per operator, shape (n_ops,) each, the least time on a device, and 6 shares of the device x us."""
    ptr = launch_ptr(graph)
    op = np.repeat(np.arange(len(graph)), np.diff(ptr))
    times = operator_times(graph, cluster.devices[d], cost)[op]
    place = np.broadcast_to(np.int64(d), len(op))
    asked = demand_of(graph, cluster, place, times, refuse_unfit=False)
    runs = np.isfinite(asked.unit)  # a kernel of which no block fits here has to run on another device
    return [
        compact(np.add.reduceat(np.where(runs, row, np.inf), ptr[:-1]))
        for row in _asked_of(cluster.devices[d], asked, runs)
    ]


def _asked_of(device: Device, asked: Demand, runs: npt.NDArray[np.bool_]) -> Iterator[Floats]:
    """Yield, per launch, the least time, and the shares of issue slots, DRAM and what an SM can hold, x us."""
    if not device.contention:
        yield asked.solo
        yield from repeat(np.zeros(len(runs)), 6)
        return
    unit = np.where(runs, asked.unit, 0.0)
    waves = np.where(asked.blocks > 0, -(-asked.blocks // np.maximum(asked.residency, 1)), 1)
    whole = np.maximum(asked.blocks, 1) * unit
    sm, dram = whole * asked.sm_share * (asked.alpha == 1), whole * asked.dram_share * (asked.beta == 1)
    yield np.maximum(waves * unit, np.maximum(sm, dram))
    yield sm
    yield dram
    per_sm = (device.threads_per_sm // WARP, device.blocks_per_sm, device.registers_per_sm, device.shared_memory_per_sm)
    held = (asked.warps, np.sign(asked.blocks), asked.registers, asked.shared_memory)
    for one, all_of_it in zip(held, per_sm, strict=True):
        yield one * whole / (all_of_it * device.sms)
