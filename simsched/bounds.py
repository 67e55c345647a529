"""Lower bounds on the makespan that the simulator can report."""

from dataclasses import dataclass, replace

import numpy as np

from simsched.cluster import WARP, Cluster
from simsched.costmodel import CostModel, default_cost
from simsched.graph import OpGraph
from simsched.graph.columns import Floats
from simsched.graph.structure import longest_to
from simsched.program import Program
from simsched.schedules import Schedule
from simsched.simulator.workload import Demand, demand


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
    fastest = np.minimum.reduce([row.shortest for row in rows])
    work = np.minimum.reduce([row.work for row in rows]).sum(axis=1) / len(cluster)  # sm, dram, then residency
    return Bounds(max(longest_to(graph, fastest)), float(work[0]), float(work[1]), float(work[2:].max()))


def _different(cluster: Cluster, cost: CostModel | None) -> list[int]:
    """Return the devices that may differ in what they need; a cost model of the user's may look at names."""
    if cost is not None and cost is not default_cost:
        return list(range(len(cluster)))
    anonymous = [replace(device, name="") for device in cluster.devices]
    return [d for d, device in enumerate(anonymous) if device not in anonymous[:d]]


@dataclass(frozen=True, slots=True)
class _Work:
    """On one device, per operator: the least time (n_ops,), and the shares of the device x us (6, n_ops)."""

    shortest: Floats
    work: Floats


def _work_on(graph: OpGraph, cluster: Cluster, d: int, cost: CostModel | None) -> _Work:
    device = cluster.devices[d]
    program = _all_on(graph, cluster, d)
    asked = demand(program, cluster, cost, refuse_unfit=False)
    runs = np.isfinite(asked.unit)  # a kernel of which no block fits here has to run on another device
    waves = np.where(asked.blocks > 0, -(-asked.blocks // np.maximum(asked.residency, 1)), 1)
    whole = np.maximum(asked.blocks, 1) * np.where(runs, asked.unit, 0.0)
    sm, dram = whole * asked.sm_share * (asked.alpha == 1), whole * asked.dram_share * (asked.beta == 1)
    shortest = np.maximum(waves * np.where(runs, asked.unit, 0.0), np.maximum(sm, dram))
    if not device.contention:
        shortest, sm, dram = asked.solo, np.zeros_like(sm), np.zeros_like(dram)
    per_sm = (device.threads_per_sm // WARP, device.blocks_per_sm, device.registers_per_sm, device.shared_memory_per_sm)
    held = _held(asked, whole) / (np.array(per_sm)[:, None] * device.sms)  # (4, n_launches)
    if not device.contention:
        held = np.zeros_like(held)
    columns = np.where(runs, np.stack([shortest, sm, dram, *held]), np.inf)  # (7, n_launches)
    sums = np.add.reduceat(columns, program.launch_ptr[:-1], axis=1)
    return _Work(sums[0], sums[1:])


def _held(asked: Demand, whole: Floats) -> Floats:
    return np.stack([asked.warps, np.sign(asked.blocks), asked.registers, asked.shared_memory]) * whole


def _all_on(graph: OpGraph, cluster: Cluster, d: int) -> Program:
    return Schedule.from_columns(graph, graph.order_index, [cluster.devices[d].name]).lower(cluster)
