"""Changes that could help a plan, each of them simulated."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from simsched.base.errors import SimschedError
from simsched.experiments.whatif.changes import absolute
from simsched.experiments.whatif.question import WhatIf, what_if
from simsched.model.trace import Trace
from simsched.schedulers import FAST_UP_TO, SCHEDULERS

if TYPE_CHECKING:
    from simsched.model.calibrated import Target
    from simsched.model.costmodel import CostModel
    from simsched.model.schedule import Schedule

LEAST_GAIN: Final = 0.005
"""Part of the makespan below which a change is not worth a word."""
SUGGESTED: Final = 3


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A change that would help.

    Parameters
    ----------
    text
        What to change.
    makespan_us
        Simulated makespan in us after it.
    gain
        By which part of the makespan, in [0, 1], it would be shorter.
    doable
        Whether it is a matter of the plan alone; else it takes other kernels or another machine.
    """

    text: str
    makespan_us: float
    gain: float
    doable: bool


def heaviest_kind(trace: Trace) -> tuple[str, float] | None:
    """Return the kind of operator with the most time of its own on the critical path, and that time in us."""
    found = kinds_on_path(trace)
    return next(iter(found.items()), None)


def kinds_on_path(trace: Trace) -> dict[str, float]:
    """Return the us that each kind of operator computes on the critical path, from the largest; ties by first use."""
    codes, kinds = trace.graph.labels("kind")
    found: dict[str, float] = {}
    for name, us in operators_on_path(trace).items():
        kind = kinds[codes[trace.graph.index[name]]] or "op"
        found[kind] = found.get(kind, 0.0) + us
    return dict(sorted(found.items(), key=lambda entry: -entry[1]))


def operators_on_path(trace: Trace) -> dict[str, float]:
    """Return the us that each operator computes on the critical path, from the largest; ties by time."""
    found: dict[str, float] = {}
    for step in trace.critical_path().steps:
        if step.blame == "compute":
            found[step.span] = found.get(step.span, 0.0) + step.end - step.start
    return dict(sorted(found.items(), key=lambda entry: -entry[1]))


def suggestions(plan: "Schedule", cluster: "Target", cost: "CostModel | None", trace: Trace) -> tuple[Suggestion, ...]:
    """Return the three changes that gain most, from the largest gain; at least one of them doable, if any is.

    Parameters
    ----------
    plan, cluster, cost
        As in `simulate`.
    trace
        Of the plan on the cluster.

    Notes
    -----
    Candidates are listed in `explain`. Of equal gains the one listed first, plans before wishes.
    """
    base = trace.makespan
    found = [
        Suggestion(text, us, 1 - us / base, doable)
        for text, us, doable in _candidates(plan, cluster, cost, trace)
        if us <= base * (1 - LEAST_GAIN)
    ]
    found.sort(key=lambda each: -each.gain)
    best = found[:SUGGESTED]
    if best and not any(each.doable for each in best):
        best[SUGGESTED - 1 :] = [each for each in found[SUGGESTED:] if each.doable][:1] or best[SUGGESTED - 1 :]
    return tuple(best)


def _candidates(
    plan: "Schedule", cluster: "Target", cost: "CostModel | None", trace: Trace
) -> Iterator[tuple[str, float, bool]]:
    """Give what could be changed, the makespan then, and whether it is a matter of the plan."""
    asked = what_if(plan, cluster, cost=cost)
    for text, changed in _of_the_plan(plan, asked):
        us = _makespan(changed)
        if us is not None:
            yield text, us, True
    rescheduled = _rescheduled(plan, cluster, cost)
    if rescheduled is not None:
        yield f"schedule it with {rescheduled[0]}", rescheduled[1], True
    for text, changed in _of_the_world(asked, trace):
        us = _makespan(changed)
        if us is not None:
            yield text, us, False


def _of_the_plan(plan: "Schedule", asked: WhatIf) -> Iterator[tuple[str, WhatIf]]:
    if plan.execution != "graph":
        yield "capture it as a graph and launch that as a whole", asked.execution("graph")
    if plan.execution == "stages":
        yield "order its stages by events instead of barriers", asked.execution("events")
    if plan.events == "literal" and plan.execution != "stages":
        from simsched.model.schedule import Schedule

        fewer = Schedule.from_columns(
            plan.graph, plan.op, plan.devices, device=plan.device, stream=plan.stream, stage=plan.stage,
            group=plan.group, priority=plan.priority, execution=plan.execution, scheduler=plan.scheduler,
        )  # fmt: skip
        yield "leave out the waits that others imply", what_if(fewer, asked.ground.target, cost=asked.ground.cost)


def _rescheduled(plan: "Schedule", cluster: "Target", cost: "CostModel | None") -> tuple[str, float] | None:
    """Return the fast scheduler that makes the best other plan, of equal ones the first, and the makespan."""
    found: list[tuple[float, str]] = []
    for name in SCHEDULERS:
        if name in FAST_UP_TO or name == plan.scheduler:  # those that search take long on some graphs
            continue
        us = _makespan(what_if(plan.graph, cluster, True, scheduler=name, cost=cost))
        if us is not None:
            found.append((us, name))
    if not found:
        return None
    us, name = min(found, key=lambda each: each[0])
    return name, us


def _of_the_world(asked: WhatIf, trace: Trace) -> Iterator[tuple[str, WhatIf]]:
    heaviest = heaviest_kind(trace)
    if heaviest is not None:
        kind = heaviest[0]
        yield f"make operators of kind {kind} twice as quick", asked.operators(kind=kind, speed=2.0)
    yield "make launches free", asked.overhead(launch=0.0, launch_latency=0.0)
    yield "make events free (record, wait, hop)", asked.overhead(record=0.0, wait=0.0, hop=0.0)
    if trace.program.execution == "stages":
        yield "make barriers free", asked.overhead(barrier=0.0)
    if any(device.contention for device in asked.cluster.devices):
        yield "end the interference between kernels side by side", asked.set("interference", absolute(0.0))
        yield "let kernels side by side run as if alone", asked.contention(False)
    if len(trace.program.copies.op):
        yield "make links twice as wide", asked.link(bandwidth=2.0)
    yield "have twice the SMs", asked.device(sms=2.0)
    yield "have twice the DRAM bandwidth", asked.device(bandwidth=2.0)


def _makespan(asked: WhatIf) -> float | None:
    """Return the makespan after some changes; None if they are refused."""
    try:
        return asked.makespan
    except SimschedError:
        return None
