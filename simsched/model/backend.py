"""The protocol of hardware backends: objects that run schedules on devices and measure them.

The simulator and every backend execute the same `Program` and return the same `Trace`; a backend
is any object that fits `Backend`, it need not inherit from it.
"""

from typing import Protocol

import numpy as np

from simsched.base.errors import BackendError
from simsched.base.limits import require_count
from simsched.model.cluster import Cluster
from simsched.model.graph import OpGraph
from simsched.model.profile import Profile, Replay
from simsched.model.program import Program
from simsched.model.schedule import Schedule


class Backend(Protocol):
    """Something that can run schedules on real (or surrogate) devices.

    Attributes
    ----------
    name
        How the command line and provenance call it.
    cluster
        The devices it runs on, before any measurement: limits, datasheet rates, priors.
    """

    name: str

    @property
    def cluster(self) -> Cluster:
        """The devices it runs on, before calibration."""
        ...

    def realise(self, graph: OpGraph) -> OpGraph:
        """Return the graph as this backend runs it.

        Names, order and edges are the given ones; every operator has the kernels that are launched, its FLOP and bytes.
        An operator without data on its kernels becomes kind ``"synth"``, matched to its time and utilization.

        Raises
        ------
        BackendError
            If the backend has no kernels for a kind of operator.
        """
        ...

    def microbenchmarks(self) -> Profile:
        """Measure small schedules made to identify the parameters of the devices."""
        ...

    def profile(self, graph: OpGraph, *, in_situ: int = 8, rng: np.random.Generator | int = 0) -> Profile:
        """Measure the operators of a graph.

        Parameters
        ----------
        graph
            Realised, if need be.
        in_situ
            Number of random training schedules that run besides the sequential one, in DAG order and on cold data; 0
            measures every operator alone, repeatedly, on warm data.
        rng
            Generator or seed of the training schedules.
        """
        ...

    def replay(self, schedule: Schedule | Program, *, repeats: int = 20, warmup: int = 3) -> Replay:
        """Run a schedule `warmup` times unmeasured, then `repeats` times measured, and check its outputs.

        The graph of the schedule is realised if need be, and a schedule is lowered with the default options.

        Raises
        ------
        BackendError
            If it cannot be run here, or its outputs differ from sequential execution.
        """
        ...


def require_counts(least: int, **values: object) -> None:
    """Raise `BackendError` if a named value is not in its range; see `require_count`."""
    require_count(BackendError, least, **values)


def prepare(backend: Backend, schedule: Schedule | Program, repeats: int = 1, warmup: int = 0) -> Program:
    """Return the program of a schedule over the graph as the backend runs it.

    Raises
    ------
    BackendError
        If it is made for devices that the backend does not have, has collectives or streams that are bound to SMs, or
        `repeats` or `warmup` is not in its range.
    """
    require_counts(1, repeats=repeats)
    require_counts(0, warmup=warmup)
    if schedule.graph.meetings or schedule.partitions:
        if schedule.graph.meetings:
            part = "collectives"
        else:
            part = "streams that are bound to SMs"
        raise BackendError(f"backend {backend.name!r} runs no {part}: simulate the schedule instead")
    names = [device.name for device in backend.cluster.devices]
    if isinstance(schedule, Program):
        used = schedule.devices
    else:
        used = schedule.devices_used
    owned = f"backend {backend.name!r} has {len(names)} device{'s' if len(names) > 1 else ''}: {', '.join(names)}"
    for name in used:
        if name not in names:
            raise BackendError(f"the schedule runs on {name!r}, but the {owned}")
    if not isinstance(schedule, Program):
        return schedule.over(backend.realise(schedule.graph)).lower(backend.cluster)
    if list(used) != names:
        raise BackendError(f"the program was made for {', '.join(used)}, but the {owned}; give the schedule instead")
    return schedule.over(backend.realise(schedule.graph)).check()
