"""`Question`: a schedule, a cluster, and what is to be different."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, Self

import numpy as np

from simsched.base.errors import ClusterError, ScheduleError, SimschedError, WhatIfError
from simsched.experiments.whatif.answer import Outcome
from simsched.experiments.whatif.changes import PARAMETERS, REBUILD, Absolute, common, make_change, speed_of
from simsched.experiments.whatif.world import World, selected
from simsched.model import OpGraph, Schedule
from simsched.model.program import BARRIER, COPY, WAIT
from simsched.model.trace import Trace

Number = float | Absolute
_NEARLY: Final = 0.8  # limits that so great a part of is in use could come to matter
_OF_THE_PLAN: Final = ("device", "execution", "fuse", "remove")


@dataclass(frozen=True, eq=False, repr=False)
class Question(World, Outcome):
    """A question of what would be if something were different, and its answer: a `WhatIf` but for its analyses."""

    rescheduled: bool = False

    def __repr__(self) -> str:
        subject, cluster = self.ground.subject, self.ground.cluster.name
        name = subject.name if isinstance(subject, OpGraph) else subject.graph.name
        what = ", ".join(map(str, self.changes)) or "no change"
        return f"WhatIf({name!r} on {cluster!r}: {what}{', re-scheduled' if self.rescheduled else ''})"

    # what is to be different

    def set(self, parameter: str, value: Any) -> Self:
        """Change a parameter by its name.

        Parameters
        ----------
        parameter
            ``gpus``, ``device``, ``execution``, ``contention``, ``rebuild.PARAMETER``, ``fuse`` or ``remove``, which
            take values as they are; or ``link.bandwidth``, ``link.latency``, ``device.FIELD``, ``overhead``,
            ``overhead.launch`` and the like, ``interference``, ``operators.speed``, ``operators.KIND.speed`` or
            ``operator.NAME.speed``, which take factors, and `absolute` values.
        value
            What the parameter takes.

        Raises
        ------
        UnknownNameError
            If there is no such parameter, preset, kind or operator.
        WhatIfError
            If the value does not suit it.
        """
        change = make_change(parameter, value)
        shaped = any(c.parameter.startswith(REBUILD) or c.parameter in ("fuse", "remove") for c in self.changes)
        if speed_of(parameter) is not None and not shaped:
            selected(self.ground.graph, change)
        return replace(self, changes=(*self.changes, change))

    def _set_all(self, values: Mapping[str, Any]) -> Self:
        asked = self
        for parameter, value in values.items():
            if value is not None:
                asked = asked.set(parameter, value)
        return asked

    def device(self, model: str | None = None, **factors: Number) -> Self:
        """Put another card in the place of every device, or change numbers of the devices there are.

        Parameters
        ----------
        model
            A preset, see `DEVICES`: limits, rates and memory are its own; names, links, costs of issuing, hardware
            queues, interference and how slots are shared stay. Kernels keep their grids.
        **factors
            By field of `Device`. ``sms`` and ``clock`` take ``peak`` with them, which is SMs x lanes x 2 x clock;
            whole numbers are rounded, to at least 1.

        Notes
        -----
        Operators follow the rates: time' = time * roofline(new device) / roofline(old device), or what the cost model
        says itself where it tells the devices apart. One with a `time` but neither FLOP nor bytes stays.
        """
        return self._set_all({"device": model} | {f"device.{name}": value for name, value in factors.items()})

    def gpus(self, n: int) -> Self:
        """Have so many devices.

        More are copies of those there are, wired as a preset is; a kept plan does not use them. Fewer are the first
        ones; a kept plan that uses others cannot run.

        >>> import simsched as ss
        >>> graph = ss.OpGraph([ss.Operator(name, time=8.0, utilization=1.0) for name in "ab"])
        >>> free = ss.Cluster.preset("a100").without_overheads()
        >>> asked = ss.what_if(graph, free, reschedule=True, scheduler="hios-lp").gpus(2)
        >>> asked.difference, asked.direct, asked.rescheduling
        (-8.0, 0.0, -8.0)
        """
        return self.set("gpus", n)

    def link(self, *, bandwidth: Number | None = None, latency: Number | None = None) -> Self:
        """Change every link: a copy takes latency' + bytes / bandwidth'; exact transfer times stay."""
        return self._set_all({"link.bandwidth": bandwidth, "link.latency": latency})

    def operators(self, *names: str, kind: str | None = None, speed: Number) -> Self:
        """Make operators quicker: time' = time / speed.

        Parameters
        ----------
        *names
            Those that are meant; by default all, or all of a kind.
        kind
            Those of this kind.
        speed
            How many times as quick; `absolute` ones are relative to the time before any change.
        """
        if names and kind is not None:
            raise WhatIfError("operators: give names or a kind, not both")
        if names:
            return self._set_all({f"operator.{name}.speed": speed for name in names})
        return self.set("operators.speed" if kind is None else f"operators.{kind}.speed", speed)

    def overhead(self, each: Number | None = None, /, **factors: Number) -> Self:
        """Change what it costs to issue and order work: all of it, or by name (``launch``, ``record``, ...)."""
        return self._set_all({"overhead": each} | {f"overhead.{name}": value for name, value in factors.items()})

    def execution(self, how: str) -> Self:
        """Run the placements with ``"stages"``, ``"events"`` or as a captured ``"graph"``.

        Devices, streams and launch order stay. Stages are the plan's own where they serve, else they are made
        from the launch order, see `simsched.experiments.whatif.rewiring.staged`.
        """
        return self.set("execution", how)

    def rebuild(self, **parameters: Any) -> Self:
        """Load the graph anew: ``load(**parameters)``, those of earlier calls included.

        A plan is kept if the names of the operators are the same; else it has to be made anew.
        """
        return self._set_all({f"{REBUILD}{name}": value for name, value in parameters.items()})

    def fuse(self, names: Sequence[str]) -> Self:
        """Make one operator of several.

        FLOP add up, bytes lose the tensors between the members, and the time follows the roofline: time' =
        sum of times * roofline(fused) / sum of rooflines; `rewiring.fused` has the rest. A plan is
        kept: the operator has the place of the first member launched. No path may lead out of them and back in.

        >>> import simsched as ss
        >>> graph = ss.OpGraph([ss.Operator("a", time=8.0), ss.Operator("b", time=2.0)], [ss.Edge("a", "b", 1e6)])
        >>> ss.what_if(graph, ss.Cluster.preset("a100")).fuse(["a", "b"]).graph["a+b"].time
        10.0
        """
        return self.set("fuse", names)

    def remove(self, *names: str) -> Self:
        """Take operators out: an edge leads from each producer of one to each of its consumers, with what it read."""
        return self.set("remove", names)

    def interference(self, factor: Number) -> Self:
        """Change how much kernels slow each other: every entry of `Device.interference` by the factor.

        An `absolute` value is the largest entry, to which the others keep their proportion.
        """
        return self.set("interference", factor)

    def contention(self, on: bool) -> Self:
        """Let kernels share the device, or run each at its solo rate: `Device.contention`."""
        return self.set("contention", on)

    # what there is then

    @cached_property
    def base(self) -> Self:
        """The question without changes."""
        return replace(self, changes=()) if self.changes else self

    @cached_property
    def plan(self) -> Schedule:
        """The schedule after the changes: made anew, or the one there was."""
        return self._reschedule() if self.rescheduled else self.kept_plan

    @cached_property
    def before(self) -> Trace:  # type: ignore[override]
        """What ran when before the changes, with the plan there was."""
        return self.ground.trace

    @cached_property
    def kept(self) -> Trace | None:  # type: ignore[override]
        """What would run when if the plan that is made anew had stayed; None if it cannot, or is not made anew."""
        if not self.rescheduled:
            return None
        try:
            return self.ground.run(self.kept_plan, self.cluster, self.cost)
        except (WhatIfError, ScheduleError, ClusterError):
            return None

    @cached_property
    def after(self) -> Trace:  # type: ignore[override]
        """What would run when after the changes."""
        return self.ground.run(self.plan, self.cluster, self.cost)

    def tried(self, *changes: tuple[str, Any]) -> float | str:
        """Return the makespan after further changes, or why they are refused; unknown names are raised."""
        asked = self
        try:
            for parameter, value in changes:
                asked = asked.set(parameter, value)
            return asked.makespan
        except LookupError:
            raise
        except SimschedError as error:
            return str(error)

    @cached_property
    def rescheduling_alone(self) -> float:  # type: ignore[override]
        """What re-scheduling would do without any change: the makespan then, less the one before; 0 if not asked."""
        return self.base.makespan - self.makespan_before if self.rescheduled else 0.0


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
    return common(asked.speeds.values[selected(asked.graph, change)].tolist())


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
