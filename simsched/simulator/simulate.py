"""`simulate`: the front door of the engines."""

from typing import Final

import numpy as np

from simsched.cluster import Cluster
from simsched.costmodel import CostModel
from simsched.errors import SimulationError, UnknownNameError
from simsched.program import Program
from simsched.schedules import Schedule
from simsched.simulator.compiled import Compiled
from simsched.simulator.reference import Reference
from simsched.simulator.workload import Jitter, demand
from simsched.trace import Trace

ENGINES: Final = ("reference", "compiled")


def simulate(
    schedule: Schedule | Program,
    cluster: Cluster,
    cost: CostModel | None = None,
    *,
    jitter: Jitter | None = None,
    rng: np.random.Generator | int | None = None,
    engine: str = "reference",
) -> Trace:
    """Return what would run when.

    Parameters
    ----------
    schedule
        A schedule, lowered with the default options of `Schedule.lower`, or a program.
    cluster
        What it runs on.
    cost
        Time of an operator alone on a device in us; by default its `time`, else a roofline.
    jitter
        Run-to-run variation: the standard deviation of an operator's time over its mean, for all
        operators or by name. Each operator's time is multiplied by a log-normal factor of mean 1,
        drawn in graph order.
    rng
        Generator or seed, required with `jitter`.
    engine
        ``"reference"``: the executable specification, on SimPy; or ``"compiled"``: the same model in
        machine code, about twenty times as fast at 1,000 operators once numba has compiled it, which
        takes some 15 s the first time ever.

    Returns
    -------
    Trace

    Raises
    ------
    ScheduleError
        If the schedule cannot run (see `Schedule.check`).
    DeadlockError
        If a program waits for ever; the message names the waits.
    SimulationError
        If `jitter` is out of range or comes without `rng`, or the cluster lacks a device.
    ClusterError
        If a kernel fits no SM, or no links join two devices that exchange data.

    Notes
    -----
    The model is leftover dispatch with fluid rate sharing, see the design section of the README.
    A kernel alone on an idle device takes exactly its share of its operator's time. O(E log E) for E
    instructions, plus an event per wave of blocks while two kernels interleave.

    References
    ----------
    .. [1] Amert, Otterness, Yang, Anderson, Smith, "GPU scheduling on the NVIDIA TX2: hidden
       details revealed", RTSS 2017, doi:10.1109/RTSS.2017.00017 (dispatch rules).
    """
    program = schedule if isinstance(schedule, Program) else schedule.lower(cluster)
    names = tuple(device.name for device in cluster.devices)
    if program.devices != names:
        raise SimulationError(f"the program was made for devices {', '.join(program.devices)}, not {', '.join(names)}")
    if engine not in ENGINES:
        raise UnknownNameError("engine", engine, list(ENGINES))
    asked = demand(program, cluster, cost, jitter, rng)
    if engine == "reference":
        return Reference(program, cluster, asked).run()
    return Compiled(program.check(), cluster, asked).run()  # machine code trusts its tables
