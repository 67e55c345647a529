"""`explain`: sentences on a schedule's bottleneck and on the changes that would help most."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, Final

from simsched.base.codec import Checked, write
from simsched.base.errors import SimschedError, WhatIfError
from simsched.base.text import join_lines
from simsched.base.units import format_time
from simsched.bounds import Bounds, bounds
from simsched.experiments.result import Finding, table_of
from simsched.experiments.whatif.changes import absolute
from simsched.experiments.whatif.whatif import WhatIf, what_if
from simsched.model import CostModel, Schedule, Target, bind
from simsched.model.trace import Trace
from simsched.schedulers import FAST_UP_TO, SCHEDULERS

_CLOSE: Final = 1.05  # times the lower bound that are as good as it
_FULL: Final = 0.9  # part of the issue slots from which on a device is full
_MUCH: Final = 0.01  # part of the makespan from which on a cause is named
_LEAST_GAIN: Final = 0.005  # part of the makespan below which a change is not worth a word
_SUGGESTED: Final = 3
_NAMED: Final = 3  # causes, kinds and operators
_BLAMES: Final[Mapping[str, str]] = {
    "compute": "kernels computing",
    "contention": "kernels held up by others that run beside them",
    "launch": "the host launching kernels and copies",
    "sync": "the host issuing events and waiting at barriers",
    "transfer": "transfers between devices",
    "dependency": "gaps on the device between a kernel and the one that waits for it",
}


@dataclass(frozen=True, slots=True)
class Suggestion(Checked):
    """A change that would help.

    Parameters
    ----------
    text
        The change in words.
    makespan_us
        Simulated makespan in us after it.
    gain
        Part of the makespan that the change saves, in [0, 1].
    doable
        Whether it is a matter of the plan alone; else it takes other kernels or another machine.
    """

    SUBJECT = "a suggestion"
    ERROR = WhatIfError
    text: str
    makespan_us: float
    gain: float
    doable: bool


@dataclass(frozen=True, repr=False, eq=False)
class Explanation(Finding):
    """Explanation of a schedule's makespan; prints as sentences, plots as the shares of the critical path.

    Parameters
    ----------
    graph, cluster, scheduler
        Names of the graph, the cluster, and the scheduler.
    makespan_us, bound_us
        Simulated makespan, and a lower bound of any schedule's, in us.
    blame
        us by cause on the critical path.
    sentences
        Sentences: the makespan, its shares by cause, the heaviest operators, the gap to the bound, and the bottleneck.
    suggestions
        The changes that help most, from the largest gain; at most three, none that gains less than 0.5 %.
    """

    VIEW = "explanation"
    FORMAT = "simsched.explanation"
    scheduler: str
    makespan_us: float
    bound_us: float
    blame: Mapping[str, float]
    sentences: tuple[str, ...]
    suggestions: tuple[Suggestion, ...]

    def __str__(self) -> str:
        return join_lines((*self.sentences, *self._advice()))

    __repr__ = __str__

    def _advice(self) -> list[str]:
        """Return the suggestions on lines below their heading."""
        lines = [
            f"{i}. ({kind}) {text}: {us}, {gain} less." for i, (text, kind, us, gain) in enumerate(self._rows(), 1)
        ]
        none = f"None of the changes that were tried gains {_LEAST_GAIN:.1%} or more."
        if lines:
            head = "What would help most, each simulated on its own:"
        else:
            head = none
        return [head, *lines]

    def _rows(self) -> list[tuple[str, str, str, str]]:
        return [
            (
                suggestion.text,
                "plan" if suggestion.doable else "wish",
                format_time(suggestion.makespan_us),
                f"{suggestion.gain:.1%}",
            )
            for suggestion in self.suggestions
        ]

    def records(self) -> list[dict[str, Any]]:
        """Return the suggestions as plain values by column."""
        return [write(suggestion) for suggestion in self.suggestions]

    def table(self) -> Any:
        """Return the suggestions as a table of texts, with the sentences below."""
        title = f"{self.scheduler} of {self.graph} on {self.cluster}"
        if self.suggestions:
            notes = self.sentences
        else:
            notes = (*self.sentences, *self._advice())
        return table_of(title, ("change", "takes", "makespan", "gain"), self._rows(), note=notes)


def explain(plan: Schedule, cluster: Target, cost: CostModel | None = None) -> Explanation:
    """Explain a schedule's makespan, and suggest the changes that would help most.

    Parameters
    ----------
    plan, cluster, cost
        As in `simulate`.

    Returns
    -------
    Explanation
        The same text for the same plan.

    Raises
    ------
    ScheduleError, DeadlockError, ClusterError
        As `simulate` does.

    Notes
    -----
    Every suggestion is simulated alone, on the unchanged schedule. Some are decisions of the schedule: launching it as
    a captured graph, events instead of barriers, fewer events, and the best schedule of any scheduler but the searching
    ones (`ios`, `autograph`, `search`). Others are wishes: the heaviest kind of operator on the critical path twice as
    quick, launches, events or barriers free, no interference, no contention, links twice as wide, twice the SMs, twice
    the DRAM bandwidth. The three that gain most are reported, with decisions marked apart from wishes. If none of the
    three is a decision, the best decision replaces the third, because a reader wants a change that they can make.

    >>> import simsched as ss
    >>> graph = ss.OpGraph([ss.Operator("a", time=30.0), ss.Operator("b", time=10.0)])
    >>> cluster = ss.Cluster.preset("a100").without_overheads()
    >>> found = explain(ss.schedule(graph, cluster, "sequential"), cluster)
    >>> [(each.text, each.makespan_us) for each in found.suggestions if each.doable]
    [('schedule it with greedy', 30.0)]
    """
    plan, bare = bind(plan, cluster)
    question = what_if(plan, bare, cost=cost)
    trace = question.before
    limits = bounds(plan.graph, bare, cost)
    if trace.makespan > 0:
        suggestions = _suggestions(question)
    else:
        suggestions = ()
    sentences = (
        *_time_sentences(plan, trace),
        *_bound(question, limits, any(suggestion.doable for suggestion in suggestions)),
    )
    return Explanation(
        plan.graph.name,
        bare.name,
        plan.scheduler,
        trace.makespan,
        limits.best,
        dict(trace.critical_path().blame),
        sentences,
        suggestions,
    )


def _time_sentences(plan: Schedule, trace: Trace) -> Iterator[str]:
    """Return the sentences on the run, the shares of its time, and the heaviest operators."""
    how = {"events": "ordered by events", "stages": "in stages", "graph": "as a captured graph"}[plan.execution]
    streams = _count(plan.n_streams, "stream")
    devices = _count(len(plan.devices_used), "device")
    yield (
        f"{plan.scheduler} runs {_count(len(plan.graph), 'operator')} of {plan.graph.name} on {streams} of {devices} "
        f"of {trace.cluster.name}, {how}, in {format_time(trace.makespan)}."
    )
    shares = [(share, name) for name, share in trace.critical_path().shares.items() if share >= _MUCH]
    causes = [f"{share:.0%} is {_BLAMES[name]}" for share, name in sorted(shares, key=lambda each: -each[0])]
    if causes:
        yield f"Of that {', '.join(causes[:_NAMED])}."
    operators, kinds = _on_path(trace)
    if len(kinds) > 1:
        most = [f"{kind} {us / trace.makespan:.0%}" for kind, us in kinds[:_NAMED]]
        yield f"By kind, of the makespan: {', '.join(most)}."
    if operators:
        longest = ", ".join(f"{name} ({format_time(us)})" for name, us in operators[:_NAMED])
        verb = "is" if len(operators) == 1 else "are"
        yield f"On the critical path {verb} {_count(len(operators), 'operator')}; the longest: {longest}."


def _bound(asked: WhatIf, limits: Bounds, plans_help: bool) -> Iterator[str]:
    """Return sentences on the gap to the bound, the bottleneck, and whether one device alone would do better."""
    trace = asked.before
    plan = asked.ground.plan
    ground = asked.ground
    sources = {
        "the longest path, with what has to share a device with it": limits.critical_path,
        "the path to and from the work for the issue slots": limits.sm_work,
        "the path to and from the traffic of DRAM": limits.dram_work,
        "the path to and from the room for thread blocks": limits.residency,
    }
    if limits.best > 0:
        least = f"{format_time(limits.best)} ({max(sources, key=lambda each: sources[each])})"
        over = trace.makespan / limits.best
        yield f"No schedule on {trace.cluster.name} takes less than {least}; this one takes {over:.2f} times that."
    shares = trace.critical_path().shares
    host = shares["launch"] + shares["sync"]
    most = max(shares, key=lambda each: shares[each])
    others = max(shares[cause] for cause in ("compute", "contention", "transfer", "dependency"))
    crowded = most == "contention" or (shares["contention"] > 0 and trace.sm_utilization() >= _FULL)
    verdicts = {
        "the host, which issues more slowly than the device computes": host >= others and host > 0,
        "transfers between devices": most == "transfer",
        "the device: kernels side by side want more than there is": crowded,
        "its own critical path: no other plan is much quicker, only quicker operators are": trace.makespan
        <= _CLOSE * limits.best,
        "the gaps between dependent kernels": most == "dependency",
        "the operators on its critical path; another plan is quicker": plans_help,
        "the operators on its critical path; no other plan that was tried is quicker, and none can be by more than "
        f"{1 - limits.best / trace.makespan if trace.makespan else 0.0:.0%}": True,
    }
    yield f"It is bound by {next(text for text, holds in verdicts.items() if holds)}."
    if len(plan.devices_used) > 1 and plan.scheduler in SCHEDULERS and plan.scheduler not in FAST_UP_TO:
        fresh = what_if(plan.graph, ground.target, True, scheduler=plan.scheduler, cost=ground.cost)
        us = _makespan(fresh.gpus(1))
        if us <= trace.makespan * (1 - _LEAST_GAIN):
            yield f"On one device {plan.scheduler} takes {format_time(us)}: the others cost more than they gain."


def _count(n: int, what: str) -> str:
    if n == 1:
        return f"{n} {what}"
    return f"{n} {what}s"


def _on_path(trace: Trace) -> tuple[list[tuple[str, float]], list[tuple[str, float]]]:
    """Return the us that each operator and each kind computes on the critical path, from the largest; ties by time."""
    codes, kinds = trace.graph.labels("kind")

    def sum_by(times: Iterable[tuple[str, float]]) -> list[tuple[str, float]]:
        sums: dict[str, float] = {}
        for name, us in times:
            sums[name] = sums.get(name, 0.0) + us
        return sorted(sums.items(), key=lambda entry: -entry[1])

    steps = trace.critical_path().steps
    operators = sum_by((step.span, step.end - step.start) for step in steps if step.blame == "compute")
    return operators, sum_by((kinds[codes[trace.graph.index[name]]] or "op", us) for name, us in operators)


def _suggestions(asked: WhatIf) -> tuple[Suggestion, ...]:
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
    suggestions = [
        Suggestion(text, us, 1 - us / base, doable)
        for text, changed, doable in candidates(asked)
        if (us := _makespan(changed)) <= base * (1 - _LEAST_GAIN)
    ]
    suggestions.sort(key=lambda each: -each.gain)
    best = suggestions[:_SUGGESTED]
    if best and not any(suggestion.doable for suggestion in best):
        best[_SUGGESTED - 1 :] = [suggestion for suggestion in suggestions[_SUGGESTED:] if suggestion.doable][
            :1
        ] or best[_SUGGESTED - 1 :]
    return tuple(best)


def candidates(asked: WhatIf) -> Iterator[tuple[str, WhatIf, bool]]:
    """Yield possible changes, the question that each one asks, and whether the schedule decides it."""
    ground = asked.ground
    plan = asked.ground.plan
    trace = asked.before
    if plan.execution != "graph":
        yield "capture it as a graph and launch that as a whole", asked.execution("graph"), True
    if plan.execution == "stages":
        yield "order its stages by events instead of barriers", asked.execution("events"), True
    elif plan.events == "literal":
        fewer = what_if(plan.like(events="minimal"), ground.target, cost=ground.cost)
        yield "leave out the waits that others imply", fewer, True
    others = (
        what_if(plan.graph, ground.target, True, scheduler=name, cost=ground.cost)
        for name in SCHEDULERS
        if name not in FAST_UP_TO and name != plan.scheduler  # the searching ones take long on some graphs
    )
    best = min(others, key=_makespan, default=asked)
    yield f"schedule it with {best.ground.scheduler}", best, True
    for kind, _ in _on_path(trace)[1][:1]:
        yield f"make operators of kind {kind} twice as quick", asked.operators(kind=kind, speed=2.0), False
    yield "make launches free", asked.overhead(launch=0.0, launch_latency=0.0), False
    yield "make events free (record, wait, hop)", asked.overhead(record=0.0, wait=0.0, hop=0.0), False
    if trace.program.execution == "stages":
        yield "make barriers free", asked.overhead(barrier=0.0, barrier_many=0.0), False
    if any(device.contention for device in asked.cluster.devices):
        yield "end the interference between kernels side by side", asked.interference(absolute(0.0)), False
        yield "let kernels side by side run as if alone", asked.set("contention", False), False
    if len(trace.program.copies.op):
        yield "make links twice as wide", asked.link(bandwidth=2.0), False
    yield "have twice the SMs", asked.device(sms=2.0), False
    yield "have twice the DRAM bandwidth", asked.device(bandwidth=2.0), False


def _makespan(asked: WhatIf) -> float:
    """Return the makespan after some changes; infinity if they are refused."""
    try:
        return asked.makespan
    except SimschedError:
        return inf
