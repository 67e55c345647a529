"""Programs on clusters that differ in their numbers alone: what is not sure of a device, tried out."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from simsched.model import Cluster, CostModel, Floats, Program
from simsched.simulator.compiled.prepared import Plan
from simsched.simulator.workload import Column, demand, launch_devices


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
    What launches ask for is found once for all programs that run the same graph, with equal priorities, on equal
    devices.
    O(P W E log E) for P programs of E instructions and W worlds.
    """
    found = np.empty((len(programs), len(worlds)))
    devices = [launch_devices(program) for program in programs]
    plans = [Plan(program, worlds[0].cluster) for program in programs] if worlds else []
    runs = [plan.take() for plan in plans]
    for j, (cluster, cost) in enumerate(worlds):
        asked: dict[tuple[int, bytes, bytes], Column] = {}
        for i, (program, device) in enumerate(zip(programs, devices, strict=True)):
            key = id(program.graph), cluster.kind[device].tobytes(), program.priority.tobytes()
            if key not in asked:
                asked[key] = demand(program, cluster, cost)
            plans[i].move(runs[i], cluster)
            found[i, j] = runs[i].makespans(asked[key])[0]
    return found
