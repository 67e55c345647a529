"""Parameters of a question: those that could matter, and what they are at present."""

import inspect
from typing import Any, Final

import numpy as np

from simsched.experiments.whatif.changes import PARAMETERS, REBUILD, common, make_change
from simsched.experiments.whatif.question import Question
from simsched.experiments.whatif.world import selected
from simsched.model.program import BARRIER, COPY, WAIT

_NEARLY: Final = 0.8  # limits that so great a part of is in use could come to matter
_OF_THE_PLAN: Final = ("device", "execution", "fuse", "remove")


def numeric_parameters(asked: Question, *, per_operator: bool = False) -> tuple[str, ...]:
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
    there = ["operators.speed", *(f"operators.{kind}.speed" for kind in used if len(used) > 1)]
    numbers = [name for name, matters in _numbers(asked).items() if matters and _can_move(asked, name)]
    first = next((i for i, name in enumerate(numbers) if name.startswith("overhead.")), 0)
    if sum(name.startswith("overhead.") for name in numbers) > 1:
        numbers.insert(first, "overhead")
    if per_operator:
        numbers += [f"operator.{name}.speed" for name in asked.graph.names if name in asked.plan.graph.index]
    return (*there, *numbers)


def _numbers(asked: Question) -> dict[str, bool]:
    """Return the numbers of devices and links, and whether what runs makes use of them."""
    graph, plan, cluster, program = asked.plan.graph, asked.plan, asked.cluster, asked.after.program
    flops, nbytes, kernels = bool(graph.flops.any()), bool(graph.nbytes.any()), len(graph.kernel_blocks) > 0
    beside = plan.n_streams > len(plan.devices_used) or asked.rescheduled
    loads = kernels or not np.isnan(graph.utilization).all()
    share = loads and beside and any(device.contention for device in cluster.devices)
    full, streams = kernels and share, 1 + int(plan.stream.max())

    def near(limit: str) -> bool:
        return share and any(streams >= _NEARLY * getattr(device, limit) for device in cluster.devices)

    def issued(action: int) -> bool:
        return asked.rescheduled or bool((program.action == action).any())

    moved = len(cluster) > 1 and (asked.rescheduled or bool(np.isnan(program.copies.transfer).any()))
    captured = program.execution == "graph"
    ordered = not captured and (issued(WAIT) or issued(COPY))
    return {
        "device.sms": flops or full, "device.peak": flops, "device.bandwidth": nbytes,
        "device.threads_per_sm": full, "device.blocks_per_sm": full, "device.registers_per_sm": full,
        "device.shared_memory_per_sm": full, "device.saturating_warps": full or (kernels and (flops or nbytes)),
        "device.interleave": full, "device.least_sm_share": full, "device.block_spread": full,
        "device.kernel_latency": full, "device.connections": near("connections"),
        "device.resident_kernels": near("resident_kernels"), "device.copy_engines": moved, "device.copy_rate": moved,
        "link.bandwidth": moved and bool(cluster.links), "link.latency": moved and bool(cluster.links),
        "overhead.launch": not captured, "overhead.record": ordered, "overhead.wait": ordered,
        "overhead.copy": not captured and issued(COPY) and len(cluster) > 1,
        "overhead.barrier": issued(BARRIER) and program.execution == "stages",
        "overhead.gap": not captured and len(program.launch_op) > plan.n_streams, "overhead.hop": ordered,
        "overhead.graph_launch": captured, "overhead.graph_node": captured, "overhead.launch_latency": not captured,
        "interference": share,
    }  # fmt: skip


def value_of(asked: Question, parameter: str) -> float | None:
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
        value = _rebuilt_with(asked, parameter.removeprefix(REBUILD))
        return float(value) if isinstance(value, int | float) else None
    if parameter in _OF_THE_PLAN:
        return None
    if parameter == "gpus":
        return float(len(asked.cluster))
    if parameter == "contention":
        return common([device.contention for device in asked.cluster.devices])
    change = make_change(parameter, 1.0)
    if parameter in PARAMETERS:
        return common(PARAMETERS[parameter].values(asked.cluster))
    return common(asked.world.speeds.values[selected(asked.graph, change)].tolist())


def _rebuilt_with(asked: Question, name: str) -> Any:
    """Return what a parameter of `load` was said to be, else what it is by default."""
    given = [change.value for change in asked.changes if change.parameter == f"{REBUILD}{name}"]
    if given:
        return given[-1]
    try:
        parameters = inspect.signature(asked.ground.load).parameters if asked.ground.load is not None else {}
    except (TypeError, ValueError):
        return None
    return parameters[name].default if name in parameters else None


def _can_move(asked: Question, parameter: str) -> bool:
    """Return whether factors about 1 mean something."""
    known = PARAMETERS[parameter]
    values = [value or 0.0 for value in known.values(asked.cluster)]
    return any(value > 0 for value in values) and all(value < known.below for value in values)
