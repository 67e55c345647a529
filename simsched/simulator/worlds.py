"""Programs on clusters that differ in their numbers alone: what is not sure of a device, tried out."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from simsched.model.cluster import Cluster
from simsched.model.costmodel import CostModel, placed_times
from simsched.model.graph.columns import Floats
from simsched.model.program import LAUNCH, Program
from simsched.simulator.compiled.prepared import Plan, launch_rows
from simsched.simulator.workload import Demand, demand_of


class World(NamedTuple):
    """A cluster, and how long operators take there."""

    cluster: Cluster
    cost: CostModel


def simulate_worlds(programs: Sequence[Program], worlds: Sequence[World]) -> Floats:
    """Return the makespan of each program in each world in us, shape (n_programs, n_worlds).

    Parameters
    ----------
    programs
        Made for the devices that every world has, by name.
    worlds
        Their cost models answer for many operators at once.

    Raises
    ------
    DeadlockError, ClusterError, CostError
        As `simulate` does.

    Notes
    -----
    What launches ask for is found once for all programs that run the same graph on the same kinds of devices.
    O(P W E log E) for P programs of E instructions and W worlds.
    """
    found = np.empty((len(programs), len(worlds)))
    devices = [_launched_on(program) for program in programs]
    for j, (cluster, cost) in enumerate(worlds):
        asked: dict[tuple[int, bytes], Demand] = {}
        for i, (program, device) in enumerate(zip(programs, devices, strict=True)):
            key = id(program.graph), cluster.kind[device].tobytes()
            if key not in asked:
                times = placed_times(program.graph, cluster, program.launch_op, device, cost)
                asked[key] = demand_of(program.graph, cluster, device, times)
            op = program.launch_op
            rows = launch_rows(op, program.priority[op], asked[key])
            found[i, j] = Plan(program, cluster).take().makespans(rows)[0]
    return found


def _launched_on(program: Program) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    """Return the place in the cluster of the device of each launch, shape (n_launches,)."""
    launches = program.action == LAUNCH
    device = np.full(len(program.launch_op), -1, np.int64)
    device[program.argument[launches]] = program.device[launches]
    return device
