"""Parameters of a question: those that could matter, and what they are at present."""

import inspect
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from simsched.experiments.whatif.changes import REBUILD, make_change, speed_of
from simsched.experiments.whatif.question import WhatIf
from simsched.experiments.whatif.world import selected
from simsched.model.cluster.device import OVERHEADS, Device
from simsched.model.program import BARRIER, COPY, WAIT

_NEARLY: Final = 0.8  # limits that so great a part of is in use could come to matter
_SHARING: Final = ("threads_per_sm", "blocks_per_sm", "registers_per_sm", "shared_memory_per_sm", "saturating_warps",
                   "interleave", "least_sm_share", "block_spread", "kernel_latency")  # fmt: skip
_IN_01: Final = ("interleave", "least_sm_share", "block_spread")


def numeric_parameters(asked: WhatIf, *, per_operator: bool = False) -> tuple[str, ...]:
    """Return the names of the parameters of a question that take factors and could matter in it.

    Parameters
    ----------
    asked
        The question; it is answered, to see what its plan makes use of.
    per_operator
        Whether each operator has a parameter of its own, too.

    Notes
    -----
    Left out are those that are zero, infinite or nothing uses: links, copies, waits, barriers and captured graphs
    where there are none, rates where nothing has FLOP or bytes, what kernels share where none run beside each other,
    limits that are far off, and parts of 1 that cannot grow. ``device.clock`` is to the model what ``device.peak`` is.

    >>> import simsched as ss
    >>> asked = ss.what_if(ss.OpGraph([ss.Operator("a", time=3.0)]), ss.Cluster.preset("a100"))
    >>> numeric_parameters(asked)
    ('operators.speed', 'overhead', 'overhead.launch', 'overhead.launch_latency')
    """
    codes, kinds = asked.graph.labels("kind")
    used = [text for i, text in enumerate(kinds) if text is not None and (codes == i).any()]
    names = ["operators.speed"]
    if len(used) > 1:
        names += [f"operators.{kind}.speed" for kind in used]
    names += [f"device.{name}" for name in _device_fields(asked)]
    if len(asked.cluster) > 1 and asked.cluster.links and _copies(asked):
        names += ["link.bandwidth", "link.latency"]
    overheads = [name for name in (f"overhead.{each}" for each in _overheads(asked)) if _can_move(asked, name)]
    names += ["overhead", *overheads] if len(overheads) > 1 else overheads
    if _share(asked):
        names.append("interference")
    if per_operator:
        names += [f"operator.{name}.speed" for name in asked.graph.names if name in asked.plan.graph.index]
    return tuple(name for name in names if _can_move(asked, name))


def value_of(asked: WhatIf, parameter: str) -> float | None:
    """Return what a parameter is at present, after the changes of a question, in library units.

    Returns
    -------
    float or None
        None where it is not one number: a name, or devices, links or operators that differ. Speeds are relative to
        what there was before any change; ``device.peak`` is that of fp32; ``interference`` is its largest entry.

    Raises
    ------
    UnknownNameError
        If there is no such parameter, operator or kind.

    >>> import simsched as ss
    >>> asked = ss.what_if(ss.OpGraph([ss.Operator("a", time=3.0)]), ss.Cluster.preset("a100", 2))
    >>> value_of(asked, "overhead.launch"), value_of(asked.link(bandwidth=2.0), "link.bandwidth")
    (6.0, 550000.0)
    """
    if parameter.startswith(REBUILD):
        return _number(_rebuilt_with(asked, parameter.removeprefix(REBUILD)))
    if parameter in ("device", "execution", "fuse", "remove"):
        return None
    if parameter in ("gpus", "contention"):
        return float(len(asked.cluster)) if parameter == "gpus" else _one([d.contention for d in asked.cluster.devices])
    change = make_change(parameter, 1.0)
    if speed_of(parameter) is not None:
        rows = selected(asked.graph, change)
        return _one(asked.world.speeds.values[rows].tolist())
    start, _, name = parameter.partition(".")
    if start == "link":
        return _one([getattr(link, name) for _, _, link in asked.cluster.links])
    return _one([_of_device(device, start, name) for device in asked.cluster.devices])


def _one(values: Sequence[float | None]) -> float | None:
    """Return the value that all of some have in common, or None."""
    first = values[0] if values else None
    return None if first is None or any(value != first for value in values) else float(first)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _rebuilt_with(asked: WhatIf, name: str) -> Any:
    """Return what a parameter of `load` was said to be, else what it is by default."""
    given = [change.value for change in asked.changes if change.parameter == f"{REBUILD}{name}"]
    if given:
        return given[-1]
    try:
        parameters = inspect.signature(asked.ground.load).parameters if asked.ground.load is not None else {}
    except (TypeError, ValueError):
        return None
    return parameters[name].default if name in parameters else None


def _of_device(device: Device, start: str, name: str) -> float | None:
    if start == "interference":
        return max(map(max, device.interference))
    if start == "overhead" and not name:
        return _one([getattr(device, each) for each in OVERHEADS])
    return device.peak["fp32"] if name == "peak" else float(getattr(device, name))


def _can_move(asked: WhatIf, parameter: str) -> bool:
    """Return whether factors about 1 can be asked for and mean something."""
    start, _, name = parameter.partition(".")
    if start == "link":
        return any(getattr(link, name) > 0 for _, _, link in asked.cluster.links)
    if start in ("operators", "operator") or parameter == "overhead":
        return True
    values = [_of_device(device, start, name) or 0.0 for device in asked.cluster.devices]
    top = 1.0 if name in _IN_01 else np.inf
    return any(value > 0 for value in values) and all(value < top for value in values)


def _copies(asked: WhatIf) -> bool:
    """Return whether copies between devices take what links and engines let them."""
    copies = asked.after.program.copies
    return asked.rescheduled or bool(np.isnan(copies.transfer).any())


def _share(asked: WhatIf) -> bool:
    """Return whether kernels can run beside each other on a device and slow each other."""
    graph, plan = asked.plan.graph, asked.plan
    loads = len(graph.kernel_blocks) > 0 or not np.isnan(graph.utilization).all()
    beside = plan.n_streams > len(plan.devices_used) or asked.rescheduled
    return loads and beside and any(device.contention for device in asked.cluster.devices)


def _device_fields(asked: WhatIf) -> list[str]:
    graph, plan, devices = asked.plan.graph, asked.plan, asked.cluster.devices
    kernels, shared = len(graph.kernel_blocks) > 0, _share(asked)
    names: list[str] = []
    if graph.flops.any() or (kernels and shared):
        names.append("sms")
    if graph.flops.any():
        names.append("peak")
    if graph.nbytes.any():
        names.append("bandwidth")
    if kernels and shared:
        names += _SHARING
    elif kernels and (graph.flops.any() or graph.nbytes.any()):
        names.append("saturating_warps")
    streams = 1 + int(plan.stream.max())
    for name in ("connections", "resident_kernels"):
        if shared and any(streams >= _NEARLY * getattr(device, name) for device in devices):
            names.append(name)
    if len(asked.cluster) > 1 and _copies(asked):
        names += ["copy_engines", "copy_rate"]
    return names


def _overheads(asked: WhatIf) -> list[str]:
    program = asked.after.program
    if program.execution == "graph":
        return ["graph_launch", "graph_node"]
    issued = [bool((program.action == code).any()) or asked.rescheduled for code in (WAIT, COPY, BARRIER)]
    waits, copies, barriers = issued
    there = {
        "launch": True, "record": waits or copies, "wait": waits or copies, "copy": copies and len(asked.cluster) > 1,
        "barrier": barriers and program.execution == "stages", "gap": len(program.launch_op) > asked.plan.n_streams,
        "hop": waits or copies, "launch_latency": True,
    }  # fmt: skip
    return [name for name in OVERHEADS if there.get(name, False)]
