"""`simulate`: the front door of the engines."""

from typing import Final

import numpy as np

from simsched.base.errors import MissingDependencyError, SimulationError, UnknownNameError
from simsched.model import Cluster, CostModel, Program, Schedule, Target, upon
from simsched.model.trace import Trace
from simsched.simulator.prepared import Plan, simulate_compiled
from simsched.simulator.workload import Jitter, demand, factors

ENGINES: Final = ("auto", "compiled", "reference")


def simulate(
    schedule: Schedule | Program,
    cluster: Target,
    cost: CostModel | None = None,
    *,
    jitter: Jitter | None = None,
    rng: np.random.Generator | int | None = None,
    engine: str = "auto",
) -> Trace:
    """Return what would run when.

    Parameters
    ----------
    schedule
        A schedule, lowered with the default options of `Schedule.lower`, or a program.
    cluster
        What it runs on: a cluster, or a calibration, whose times of operators and fitted parameters are taken.
    cost
        Time of an operator alone on a device in us; by default its `time`, else a roofline.
    jitter
        Run-to-run variation: the standard deviation of an operator's time over its mean, for all
        operators or by name. Each operator's time is multiplied by a log-normal factor of mean 1,
        drawn in graph order.
    rng
        Generator or seed, required with `jitter`.
    engine
        ``"compiled"``: machine code, made when it is first needed on a machine (half a second) and
        kept on disk; ``"reference"``: the same model on SimPy, the executable specification, some
        hundred times slower; ``"auto"`` takes the compiled one. They agree to 1e-9.

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
    schedule, cluster = upon(cluster, schedule)
    program = program_for(schedule, cluster)
    if engine not in ENGINES:
        raise UnknownNameError("engine", engine, list(ENGINES))
    drawn = None if jitter is None else factors(program.graph, jitter, rng, 1)
    if engine == "reference":
        try:
            from simsched.simulator.reference import Reference
        except ImportError:
            raise MissingDependencyError("the reference engine needs SimPy: pip install simpy") from None

        return Reference(Plan(program, cluster), demand(program, cluster, cost), drawn).run()
    return simulate_compiled(program, cluster, cost, drawn)


def program_for(schedule: Schedule | Program, cluster: Cluster) -> Program:
    """Return the program of a schedule on a cluster; one that was made for other devices is refused."""
    program = schedule if isinstance(schedule, Program) else schedule.lower(cluster)
    names = tuple(device.name for device in cluster.devices)
    if program.devices != names:
        raise SimulationError(f"the program was made for devices {', '.join(program.devices)}, not {', '.join(names)}")
    return program
