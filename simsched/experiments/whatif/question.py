"""`Question`: a schedule, a cluster, and what is to be different."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

from simsched.base.errors import ClusterError, ScheduleError, SimschedError, WhatIfError
from simsched.experiments.whatif.answer import Outcome
from simsched.experiments.whatif.changes import PARAMETERS, REBUILD, Absolute, common, is_taken_as_is, make_change
from simsched.experiments.whatif.world import World, selected
from simsched.model import OpGraph, Schedule
from simsched.model.trace import Trace

Number = float | Absolute


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
            If there is no such parameter or preset; of a kind or an operator, once an answer is asked for.
        WhatIfError
            If the value does not suit it.
        """
        return replace(self, changes=(*self.changes, make_change(parameter, value)))

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

        Devices, streams, stages and launch order stay.
        """
        return self.set("execution", how)

    def rebuild(self, **parameters: Any) -> Self:
        """Load the graph anew: ``load(**parameters)``, those of earlier calls included.

        A plan is kept if the names of the operators are the same, in the same order; else it has to be made anew.
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

    # what there is then

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


def value_of(asked: Question, parameter: str) -> float | None:
    """Return what a parameter that takes factors is after the changes of a question, in library units.

    Returns
    -------
    float or None
        None where devices, links or operators differ. Speeds are relative to what there was before any change;
        ``device.peak`` is that of fp32; ``interference`` is its largest entry.

    Raises
    ------
    UnknownNameError
        If there is no such parameter, operator or kind.
    WhatIfError
        If the parameter takes no factors.

    >>> import simsched as ss
    >>> asked = ss.what_if(ss.OpGraph([ss.Operator("a", time=3.0)]), ss.Cluster.preset("a100", 2))
    >>> value_of(asked, "overhead.launch"), value_of(asked.link(bandwidth=2.0), "link.bandwidth")
    (6.0, 550000.0)
    """
    if is_taken_as_is(parameter):
        raise WhatIfError(f"{parameter} takes no factors: ask with `sweep`")
    change = make_change(parameter, 1.0)
    if parameter in PARAMETERS:
        return common(PARAMETERS[parameter].values(asked.cluster))
    return common(asked.speeds.values[selected(asked.graph, change)].tolist())
