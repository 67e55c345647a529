"""Changes that could help a plan, each of them simulated."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf
from typing import Final

from simsched.base.errors import SimschedError
from simsched.experiments.whatif.changes import absolute
from simsched.experiments.whatif.question import Question
from simsched.experiments.whatif.rewiring import like
from simsched.experiments.whatif.world import Ground
from simsched.model.trace import Trace
from simsched.schedulers import FAST_UP_TO, SCHEDULERS

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


def suggestions(asked: Question) -> tuple[Suggestion, ...]:
    """Return the three changes that gain most, from the largest gain; at least one of them doable, if any is.

    Parameters
    ----------
    asked
        A plan on a cluster, without changes.

    Notes
    -----
    Candidates are listed in `explain`. Of equal gains the one listed first, plans before wishes.
    """
    base = asked.makespan_before
    found = [
        Suggestion(text, us, 1 - us / base, doable)
        for text, changed, doable in candidates(asked)
        if (us := _makespan(changed)) <= base * (1 - LEAST_GAIN)
    ]
    found.sort(key=lambda each: -each.gain)
    best = found[:SUGGESTED]
    if best and not any(each.doable for each in best):
        best[SUGGESTED - 1 :] = [each for each in found[SUGGESTED:] if each.doable][:1] or best[SUGGESTED - 1 :]
    return tuple(best)


def candidates(asked: Question) -> Iterator[tuple[str, Question, bool]]:
    """Give what could be changed, the question of it, and whether it is a matter of the plan."""
    ground, plan, trace = asked.ground, asked.ground.plan, asked.before
    if plan.execution != "graph":
        yield "capture it as a graph and launch that as a whole", asked.execution("graph"), True
    if plan.execution == "stages":
        yield "order its stages by events instead of barriers", asked.execution("events"), True
    elif plan.events == "literal":
        fewer = replace(ground, subject=like(plan, plan.graph, plan.op, events="minimal"))
        yield "leave out the waits that others imply", Question(fewer), True
    others = (
        Question(Ground(plan.graph, ground.target, name, cost=ground.cost), rescheduled=True)
        for name in SCHEDULERS
        if name not in FAST_UP_TO and name != plan.scheduler  # those that search take long on some graphs
    )
    best = min(others, key=_makespan, default=asked)
    yield f"schedule it with {best.ground.scheduler}", best, True
    for kind in list(kinds_on_path(trace))[:1]:
        yield f"make operators of kind {kind} twice as quick", asked.operators(kind=kind, speed=2.0), False
    yield "make launches free", asked.overhead(launch=0.0, launch_latency=0.0), False
    yield "make events free (record, wait, hop)", asked.overhead(record=0.0, wait=0.0, hop=0.0), False
    if trace.program.execution == "stages":
        yield "make barriers free", asked.overhead(barrier=0.0), False
    if any(device.contention for device in asked.cluster.devices):
        yield "end the interference between kernels side by side", asked.interference(absolute(0.0)), False
        yield "let kernels side by side run as if alone", asked.contention(False), False
    if len(trace.program.copies.op):
        yield "make links twice as wide", asked.link(bandwidth=2.0), False
    yield "have twice the SMs", asked.device(sms=2.0), False
    yield "have twice the DRAM bandwidth", asked.device(bandwidth=2.0), False


def _makespan(asked: Question) -> float:
    """Return the makespan after some changes; infinity if they are refused."""
    try:
        return asked.makespan
    except SimschedError:
        return inf
