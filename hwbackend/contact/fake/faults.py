"""Faults that a fake device can have."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, Final

from simsched.base.errors import UnknownNameError


@dataclass(frozen=True)
class Fault:
    """How a faulty device differs from a healthy one.

    Parameters
    ----------
    truth
        Fields of `FakeTruth` or `Device` that have other values.
    throttled
        Part of the full clock that is left after some seconds under load, and the reason that the driver reports.
    empty_session, no_nodes
        Whether the profiler reports no kernel, or none with the id of its graph node.
    after_profiler
        Factor of the host's launch costs after a profiler session.
    hangs, raises
        Beginnings of the names of schedules that never end, and of those that fail.
    """

    truth: Mapping[str, Any] = field(default_factory=dict)
    throttled: tuple[float, str] | None = None
    empty_session: bool = False
    no_nodes: bool = False
    after_profiler: float = 1.0
    hangs: str | None = None
    raises: str | None = None


NONE: Final = Fault()
FAULTS: Final[Mapping[str, Fault]] = MappingProxyType(
    {
        "tick": Fault({"tick": 1.0}),
        "ramp": Fault({"ramp_start": 0.17, "ramp_time": 2.5}),
        "throttle": Fault(throttled=(0.6, "sw_thermal_slowdown")),
        "no_overlap": Fault({"resident_kernels": 1}),
        "interleaved": Fault({"interleave": 0.5}),
        "one_copy_engine": Fault({"copy_engines": 1}),
        "slow_dram": Fault({"bandwidth": 1.5e6}),
        "empty_session": Fault(empty_session=True),
        "no_nodes": Fault(no_nodes=True),
        "slow_after_profiler": Fault(after_profiler=2.5),
        "hang": Fault(hangs="overlap/"),
        "exception": Fault(raises="overlap/"),
    }
)
"""Faults by name."""


def combine_faults(names: str) -> Fault:
    """Return the fault of a name, or the faults of names joined by ``+`` as one; an empty text has none.

    Where two set the same field, the last one counts.

    Raises
    ------
    UnknownNameError
        If there is none of a name.

    >>> combine_faults("tick+slow_dram").truth
    {'tick': 1.0, 'bandwidth': 1500000.0}
    """
    combined: dict[str, Any] = {}
    truth: dict[str, Any] = {}
    for name in filter(None, names.split("+")):
        if name not in FAULTS:
            raise UnknownNameError("fault", name, list(FAULTS))
        fault = FAULTS[name]
        truth |= fault.truth
        changed = {field.name: getattr(fault, field.name) for field in fields(Fault)}
        combined |= {key: value for key, value in changed.items() if value != getattr(NONE, key)}
    return Fault(**combined | {"truth": truth})
