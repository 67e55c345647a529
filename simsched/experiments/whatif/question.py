"""`Question`: a schedule, a cluster, and changes to them; and `Answer`: the makespan after the changes."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import isfinite
from typing import Any, ClassVar, Final, Self

import numpy as np

from simsched.base.codec import Checked, Document, aside
from simsched.base.errors import ClusterError, ScheduleError, SimschedError, WhatIfError
from simsched.base.units import MS
from simsched.experiments.result import Result, table_of, unit_of
from simsched.experiments.whatif.changes import REBUILD, Absolute, Change, make_change, stream_of
from simsched.experiments.whatif.ground import Ground
from simsched.experiments.whatif.revision import ChangedCost, Revision, changed_cluster, rates, revise
from simsched.experiments.whatif.rewiring import carry_over
from simsched.model import Cluster, CostModel, Device, OpGraph, Schedule, bind, default_cost
from simsched.model.costmodel import USUAL
from simsched.model.graph import INTENSITIES
from simsched.model.trace import Trace
from simsched.model.trace.trace import CriticalPath
from simsched.schedulers import schedule
from simsched.simulator import simulate
from simsched.simulator.demand import bake

_SAME: Final = 5e-4  # speedups that differ less from 1 are read as 1
_REMEDY: Final = "with reschedule=True (--reschedule)"
Number = float | Absolute


@dataclass(frozen=True, eq=False)
class Case(Checked):
    """A schedule with its operators' times, on a cluster, and its trace.

    Parameters
    ----------
    schedule
        Each operator of its graph has as `time` its duration on the device that it is placed on.
    cluster
        The cluster that it runs on.
    known
        The trace, if it is known already.
    """

    SUBJECT = "case"
    ERROR = WhatIfError
    schedule: Schedule
    cluster: Cluster
    known: Trace | None = aside()

    @cached_property
    def trace(self) -> Trace:
        """The simulated run; for a case from a file it is simulated on first use."""
        if self.known is None:
            return simulate(self.schedule, self.cluster)
        return self.known

    @property
    def graph(self) -> OpGraph:
        """The schedule's graph."""
        return self.schedule.graph

    @property
    def makespan(self) -> float:
        """The trace's makespan in us."""
        return self.trace.makespan

    def critical_path(self) -> CriticalPath:
        """Return the trace's critical path."""
        return self.trace.critical_path()


class Outcome(Result):
    """Makespans before and after changes, and their causes; times in us.

    ``makespan_before + direct + rescheduling == makespan``, up to rounding. If a new schedule was made, `kept` is the
    run of the old schedule after the changes; None if it cannot run, or if no new schedule was made.
    """

    before: Trace | Case
    kept: Trace | Case | None
    after: Trace | Case
    changes: Sequence[Any]
    notes: tuple[str, ...]
    rescheduled: bool

    @property
    def title(self) -> str:
        """The question in words, with graph and cluster."""
        changes = ", ".join(map(str, self.changes)) or "nothing"
        return f"{self.before.graph.name} on {self.before.cluster.name}: what if {changes}"

    @property
    def runs(self) -> dict[str, Trace | Case]:
        """Cases before and after, and between them the old schedule in the changed world if a new one was made."""
        if self.kept is None:
            between = {}
        else:
            between = {"plan kept": self.kept}
        return {"before": self.before, **between, "after": self.after}

    @property
    def makespan_before(self) -> float:
        """Makespan before the changes."""
        return self.before.makespan

    @property
    def makespan(self) -> float:
        """Makespan after the changes."""
        return self.after.makespan

    @property
    def difference(self) -> float:
        """Makespan after less before: negative if the changes help."""
        return self.makespan - self.makespan_before

    @property
    def speedup(self) -> float:
        """Makespan before over after; 1 where both are 0."""
        if self.makespan:
            return self.makespan_before / self.makespan
        if self.makespan_before:
            return float("inf")
        return 1.0

    @property
    def direct(self) -> float | None:
        """Part of the difference that is there with the plan kept as it was; None if it cannot be kept."""
        if self.rescheduled:
            same = self.kept
        else:
            same = self.after
        if same is None:
            return None
        return same.makespan - self.makespan_before

    @property
    def rescheduling(self) -> float | None:
        """Part of the difference that comes from re-scheduling; None if the plan cannot be kept without."""
        if self.rescheduled:
            same = self.kept
        else:
            same = self.after
        if same is None:
            return None
        return self.makespan - same.makespan

    @cached_property
    def blame_before(self) -> dict[str, float]:
        """Time of the critical path before the changes, by cause (see `CriticalPath.blame`)."""
        return self.before.critical_path().blame

    @cached_property
    def blame(self) -> dict[str, float]:
        """Time of the critical path after the changes, by cause."""
        return self.after.critical_path().blame

    @property
    def results(self) -> dict[str, Any]:
        """Results as plain numbers; times in us."""
        return {
            "makespan_before_us": self.makespan_before,
            "makespan_us": self.makespan,
            "difference_us": self.difference,
            "speedup": self.speedup if isfinite(self.speedup) else None,
            "direct_us": self.direct,
            "rescheduling_us": self.rescheduling,
            "blame_before": dict(self.blame_before),
            "blame": dict(self.blame),
        }

    def records(self) -> list[dict[str, Any]]:
        """Return the makespan, and the critical path's time by cause, in us as plain values: a row for each."""
        return [
            {
                "part": part,
                **{f"{name.replace(' ', '_')}_us": value for name, value in us.items()},
                "difference_us": us["after"] - us["before"],
            }
            for part, us in self._parts().items()
        ]

    def _parts(self) -> dict[str, dict[str, float]]:
        """Return the us of each part in each run."""
        blames = {name: run.critical_path().blame for name, run in self.runs.items()}
        parts = {"makespan": {name: run.makespan for name, run in self.runs.items()}}
        return parts | {cause: {name: blame[cause] for name, blame in blames.items()} for cause in blames["after"]}

    def table(self) -> Any:
        """Return makespan and blame before and after as a table of texts."""
        unit, name = unit_of((self.makespan, self.makespan_before))
        rows = [
            (part, *(_number(x, unit) for x in us.values()), _number(us["after"] - us["before"], unit, "+"))
            for part, us in self._parts().items()
        ]
        notes = [_speed(self.speedup)]
        if self.rescheduled and self.direct is None:
            notes.append("the plan before cannot run after the changes")
        elif self.rescheduled:
            direct, again = (f"{_number(us or 0.0, unit)} {name}" for us in (self.direct, self.rescheduling))
            notes.append(f"{direct} by the changes, {again} by re-scheduling")
        notes += [f"note: {note}" for note in self.notes]
        return table_of(self.title, (name, *self.runs, "difference"), rows, note=notes, best=0)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Answer(Outcome, Document):
    """Effect of changes, without the question: it can be kept in a file.

    Parameters
    ----------
    changes
        The changes, as texts that `parse_change` reads, such as ``link.bandwidth*=2``.
    notes
        Remarks for the reader.
    rescheduled
        Whether a new schedule was made after the changes.
    before, after
        The plan before the changes, and the one after.
    kept
        The old schedule in the changed world; None if it cannot run there, or if it is the schedule after the changes.
    """

    VIEW = "answer"
    FORMAT = "simsched.whatif"
    INDENT = None
    DERIVED = ("results",)
    RETIRED: ClassVar = {"rescheduling_alone_us": "ask again without changes and with reschedule=True"}
    changes: tuple[str, ...]
    notes: tuple[str, ...]
    rescheduled: bool
    before: Case
    kept: Case | None = None
    after: Case


@dataclass(frozen=True, eq=False, repr=False)
class Question(Outcome):
    """A question about a schedule in a changed world, with its answer: a `WhatIf` without analyses."""

    ground: Ground
    changes: tuple[Change, ...] = ()
    rescheduled: bool = False

    def __repr__(self) -> str:
        what = ", ".join((*map(str, self.changes), *["re-scheduled"] * self.rescheduled)) or "no change"
        return f"WhatIf({self.ground.graph.name!r} on {self.ground.cluster.name!r}: {what})"

    # the changes

    def set(self, parameter: str, value: Any) -> Self:
        """Change a parameter by its name.

        Parameters
        ----------
        parameter
            ``gpus``, ``ranks`` (of symmetric collectives), ``stream.NUMBER.sms`` (SMs that it is bound to), ``device``,
            ``execution``, ``contention``, ``rebuild.PARAMETER``, ``fuse`` or ``remove``, which take plain values;
            or ``link.bandwidth``, ``link.latency`` and other fields of `Link`, ``device.FIELD``, ``overhead``,
            ``overhead.launch`` and the like, ``interference``, ``operators.speed``, ``operators.KIND.speed`` or
            ``operator.NAME.speed``, which take factors, and `absolute` values.
        value
            The value or factor of the parameter.

        Raises
        ------
        UnknownNameError
            If no parameter or preset has this name; for kinds and operators only when an answer is computed.
        WhatIfError
            If the value does not suit it.
        """
        return replace(self, changes=(*self.changes, make_change(parameter, value)))

    def _set_all(self, values: Mapping[str, Any]) -> Self:
        changes = [make_change(parameter, value) for parameter, value in values.items() if value is not None]
        return replace(self, changes=(*self.changes, *changes))

    def device(self, model: str | None = None, **factors: Number) -> Self:
        """Put another card in the place of every device, or change numbers of the devices there are.

        Parameters
        ----------
        model
            A preset, see `DEVICES`: it sets limits, rates and memory; names, links, costs of issuing, hardware queues,
            interference and the sharing of slots stay. Kernels that were measured or given keep their grids; other
            kernels get the grids that the preset's libraries choose.
        **factors
            Factors by field of `Device`. ``sms`` and ``clock`` change ``peak``, too, which is SMs x lanes x 2 x clock;
            whole numbers are rounded, to at least 1.

        Notes
        -----
        Operators follow the rates: time' = time * roofline(new device) / roofline(old device), or the cost model's own
        time if it distinguishes the devices. An operator with a `time` but neither FLOP nor bytes keeps its time.
        """
        return self._set_all({"device": model} | {f"device.{name}": value for name, value in factors.items()})

    def gpus(self, n: int) -> Self:
        """Have so many devices.

        Additional GPUs are copies of the present ones, wired as a preset is; a kept schedule does not use them. Fewer
        GPUs are the first ones; a kept schedule that uses others cannot run.

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
            Names of the operators; by default all, or all of a kind.
        kind
            Kind of the operators.
        speed
            How many times as quick; `absolute` ones are relative to the time before any change.
        """
        if names and kind is not None:
            raise WhatIfError("operators: give names or a kind, not both")
        if names:
            return self._set_all({f"operator.{name}.speed": speed for name in names})
        return self.set("operators.speed" if kind is None else f"operators.{kind}.speed", speed)

    def overhead(self, each: Number | None = None, /, **factors: Number) -> Self:
        """Change the costs to issue and order work: all of them, or by name (``launch``, ``record``, ...)."""
        return self._set_all({"overhead": each} | {f"overhead.{name}": value for name, value in factors.items()})

    def execution(self, how: str) -> Self:
        """Run the placements with ``"stages"``, ``"events"`` or as a captured ``"graph"``.

        Devices, streams, stages and launch order stay.
        """
        return self.set("execution", how)

    def rebuild(self, **parameters: Any) -> Self:
        """Load the graph again: ``load(**parameters)``, with the parameters of earlier calls, too.

        A schedule is kept if the names of the operators are the same, in the same order; else a new one has to be made.
        """
        return self._set_all({f"{REBUILD}{name}": value for name, value in parameters.items()})

    def fuse(self, names: Sequence[str]) -> Self:
        """Make one operator of several.

        FLOP add up, bytes lose the tensors between the members, and the time follows the roofline: time' =
        sum of times * roofline(fused) / sum of rooflines; `world.fused` has the rest. A plan is
        kept: the operator has the place of the first member launched. No path may lead out of them and back in.

        >>> import simsched as ss
        >>> graph = ss.OpGraph([ss.Operator("a", time=8.0), ss.Operator("b", time=2.0)], [ss.Edge("a", "b", 1e6)])
        >>> ss.what_if(graph, ss.Cluster.preset("a100")).fuse(["a", "b"]).graph["a+b"].time
        10.0
        """
        return self.set("fuse", names)

    def remove(self, *names: str) -> Self:
        """Remove operators: edges lead from their producers to their consumers, with the tensors that they read."""
        return self.set("remove", names)

    def interference(self, factor: Number) -> Self:
        """Change how much kernels slow each other: every entry of `Device.interference` by the factor.

        An `absolute` value is the largest entry, to which the others keep their proportion.
        """
        return self.set("interference", factor)

    # the world after the changes

    @cached_property
    def cluster(self) -> Cluster:
        """The cluster after the changes."""
        return changed_cluster(self.ground.cluster, self.changes)

    @cached_property
    def revision(self) -> Revision:
        """The graph after the changes, and its operators' speeds relative to the given ones."""
        return revise(self.ground, self.changes)

    @property
    def graph(self) -> OpGraph:
        """The graph after the changes, before a scheduler rewrites it."""
        return self.revision.graph

    @cached_property
    def cost(self) -> CostModel | None:
        """The cost model after the changes; None is the default one."""
        return self._follow(self.ground.cost)

    @property
    def _device_pairs(self) -> list[tuple[Device, Device]]:
        """Pairs of the former device in each place and the new one; additional devices are paired with the first."""
        old = self.ground.cluster.devices
        new = self.cluster.devices
        return [(old[i if i < len(old) else 0], device) for i, device in enumerate(new)]

    def _follow(self, given: CostModel | None) -> CostModel | None:
        """Return a cost model after the changes: the given one where they make no difference."""
        revision = self.revision
        before = {new.name: old for old, new in self._device_pairs}
        same = all(rates(old) == rates(new) for old, new in self._device_pairs) and revision.rates == USUAL
        same = same and bool((revision.speeds == 1.0).all())
        if same and all(c.value == 1.0 for c in revision.changes) and (given is None or not revision.made):
            return given
        return ChangedCost(default_cost if given is None else given, before, revision)

    @cached_property
    def plan(self) -> Schedule:
        """The schedule after the changes: a new one, or the given one."""
        if not self.rescheduled:
            return self.kept_plan
        ground = self.ground
        cost = self.cost
        if ground.cost is None and not isinstance(ground.target, Cluster):  # the schedulers' graph is as measured
            cost = self._follow(ground.target)
        plan = schedule(self.graph, self.cluster, ground.by, cost, **ground.options)
        if plan.graph is not self.graph:  # operators that the scheduler made were not measured
            plan = bind(plan, ground.target)[0]
        return self._with_execution(plan)

    @cached_property
    def kept_plan(self) -> Schedule:
        """The given schedule, carried over to the changed graph.

        Raises
        ------
        WhatIfError
            If it cannot be, or cannot run there.
        """
        plan = self.ground.plan
        revision = self.revision
        gone = ", ".join(name for name in plan.devices_used if name not in self.cluster.index)
        if gone:
            raise WhatIfError(f"the plan uses {gone}, which {self.cluster.name!r} does not have; ask {_REMEDY}")
        try:
            if revision.base is not self.ground.graph or revision.rewirings:
                plan = plan.over(revision.base)
            for rewiring in revision.rewirings:
                plan = carry_over(plan, rewiring)
            plan = self._with_execution(plan)
            if plan is self.ground.plan:
                return plan
            return plan.check()
        except ScheduleError as error:
            raise WhatIfError(f"the plan cannot be kept: {error}; ask {_REMEDY}") from error

    def _with_execution(self, plan: Schedule) -> Schedule:
        how = next((c.value for c in reversed(self.changes) if c.parameter == "execution"), plan.execution)
        if plan.execution != how:
            plan = plan.like(execution=how)
        streams = {stream: c.value for c in self.changes if (stream := stream_of(c.parameter)) is not None}
        if streams:
            return plan.with_partitions(streams)
        return plan

    @cached_property
    def before(self) -> Trace:  # type: ignore[override]
        """The case before the changes, with the given schedule."""
        return self.ground.trace

    @cached_property
    def kept(self) -> Trace | None:  # type: ignore[override]
        """The given schedule after the changes, if a new one was made; None if it cannot run, or if none was made."""
        if not self.rescheduled:
            return None
        try:
            return self.ground.run(self.kept_plan, self.cluster, self.cost)
        except (WhatIfError, ScheduleError, ClusterError):
            return None

    @cached_property
    def after(self) -> Trace:  # type: ignore[override]
        """The case after the changes."""
        return self.ground.run(self.plan, self.cluster, self.cost)

    def makespan_after(self, *changes: tuple[str, Any]) -> float | str:
        """Return the makespan after further changes, or why they are refused; unknown names are raised."""
        try:
            return replace(self, changes=(*self.changes, *(make_change(*change) for change in changes))).makespan
        except LookupError:
            raise
        except SimschedError as error:
            return str(error)

    @cached_property
    def notes(self) -> tuple[str, ...]:  # type: ignore[override]
        """Remarks for the reader: changes without effect, parts that are not used."""
        return tuple(self._change_notes())

    def _change_notes(self) -> Iterator[str]:
        old = self.ground.cluster
        new = self.cluster
        graph = self.graph
        plan = self.plan
        of_links = any(change.parameter.startswith("link.") for change in self.changes)
        pure = np.flatnonzero(~np.isnan(graph.time) & (graph.flops == 0) & (graph.nbytes == 0))
        if len(pure) and any(rates(a) != rates(b) for a, b in self._device_pairs):
            have = f"{len(pure)} of {len(graph)} operators have a time but neither FLOP nor bytes"
            yield f"{have}, {graph.names[pure[0]]!r} for one: no rate of a device changes it"
        n_given = int((np.diff(graph.kernel_ptr) > 0).sum())
        if any(a.model != b.model for a, b in self._device_pairs) and n_given:
            whose = f"those of {n_given} of {len(graph)} operators"
            yield f"kernels that were measured or given keep their grids and blocks, {whose}"
        exact = int((~np.isnan(graph.edge_transfer)).sum())
        if of_links and exact:
            yield f"{exact} of {len(graph.src)} edges have an exact transfer time, which no link changes"
        added = [name for name in new.index if name not in old.index]
        if added and not any(name in plan.devices_used for name in added):
            if self.rescheduled:
                remedy = "other schedulers may"
            else:
                remedy = "reschedule"
            yield f"{plan.scheduler} makes no use of the devices that were added: {remedy}"
        moving = any(
            len(trace.program.copies.op) or trace.program.graph.meetings for trace in (self.before, self.after)
        )
        timed = np.flatnonzero((graph.intensity == INTENSITIES.index("link")) & ~np.isnan(graph.time))
        if of_links and len(timed):
            have = f"{len(timed)} of {len(graph)} operators move data over links, {graph.names[timed[0]]!r} for one"
            yield f"{have}, and keep the times that they have: replay-trace changes those of a trace"
        elif of_links and not moving:
            yield "nothing is copied between devices: links make no difference"

    def answer(self) -> Answer:
        """Return the answer, which can be kept in a file."""

        def case(trace: Trace, plan: Schedule, cost: CostModel | None) -> Case:
            return Case(bake(plan, trace.cluster, cost), trace.cluster, trace)

        return Answer(
            changes=tuple(map(str, self.changes)),
            notes=self.notes,
            rescheduled=self.rescheduled,
            before=case(self.before, self.ground.plan, self.ground.cost),
            kept=None if self.kept is None else case(self.kept, self.kept_plan, self.cost),
            after=case(self.after, self.plan, self.cost),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as a JSON document, format ``simsched.whatif`` version 1."""
        return self.answer().to_dict()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the answer to a JSON file, whole or not at all."""
        self.answer().save(path)

    load = staticmethod(Answer.load)


def _speed(speedup: float) -> str:
    """Return in words how quick it is.

    >>> _speed(2.0), _speed(0.25), _speed(1.004), _speed(1.0)
    ('2 times as fast', 'takes 4 times as long', '1.004 times as fast', 'as fast as before')
    """
    if abs(speedup - 1) < _SAME:
        return "as fast as before"
    if speedup > 1:
        text = "{} times as fast"
        factor = speedup
    else:
        text = "takes {} times as long"
        factor = 1 / speedup
    return text.format(f"{factor:.{3 if factor >= 1.05 else 4}g}")


def _number(us: float, unit: float, sign: str = "-") -> str:
    """Return a time as text, with `sign` as in format strings; a time that rounds to 0 has no sign.

    >>> _number(7.26, 1.0, "+"), _number(-7.26, 1.0), _number(-0.01, 1.0, "+")
    ('+7.3', '-7.3', '0.0')
    """
    digits = 3 if unit == MS else 1
    text = f"{us / unit:{sign}.{digits}f}"
    if float(text):
        return text
    return f"{0:.{digits}f}"
