"""`overlap`: what could run beside what, what that gains, from which size on, and what eats the gain."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import exp, log
from typing import Any, Final

from simsched.base.codec import Amount, Checked, Count, aside
from simsched.base.errors import GraphError, UnknownNameError, WhatIfError
from simsched.base.units import format_time
from simsched.experiments.overlap.candidates import Branch, branches, shortened
from simsched.experiments.overlap.plans import Side, beside, by_turns, exchanging
from simsched.experiments.ranges import Errors, ranges
from simsched.experiments.result import Doubt, Finding, table_of
from simsched.model import CostModel, OpGraph, Program, Schedule
from simsched.model.costmodel import Target, bare, upon, with_cluster
from simsched.schedulers import schedule
from simsched.simulator import simulate

HALVES: Final = "half-batches"
"""Name of the overlap of two halves of a batch."""
TOGETHER: Final = "all together"
"""Name of all overlaps that add up."""
WORTH: Final = 0.01
"""Gain from which on an overlap is said to pay: kernels vary as much from run to run."""
ERRORS: Final = Errors(own=0.01, common=0.2, gain=0.5, shortfall=0.2)
"""Errors of the model where the same kernels run in both cases: chosen, not fitted."""
EXECUTIONS: Final = ("graph", "events")
_MOST_POINTS: Final = 64
_MOST_SHOWN: Final = 20
_WIDE: Final = 48  # characters of a name in a table
_OVER: Final = re.compile(r"([A-Za-z_]\w*)=(\d{1,9})(?::(\d{1,9}))?")
_ADDS: Final = 1e-4  # part of the time by which one more overlap has to be faster
Load = Callable[..., OpGraph]


@dataclass(frozen=True, slots=True)
class Overlap(Checked):
    """What runs beside what, and what that gains.

    Parameters
    ----------
    name
        What is moved to a stream of its own; ``"half-batches"``, or ``"all together"``.
    beside
        What runs beside it.
    places
        Times that it is in the graph.
    launched
        ``"first"`` or ``"last"``: whether the host launches it ahead of what runs beside it, whichever is faster. Of
        half-batches ``"apart"`` (a stream each) or ``"collectives apart"``.
    makespan_us
        With the overlap.
    gain, gain_low, gain_high
        Speed with it over speed without it, less 1, and between what it lies with 90 %.
    possible
        Gain if nothing contended and waiting cost nothing.
    contention, waits
        Parts of `possible` that are lost to kernels that slow each other or wait for SMs, and to launches and waits
        between streams.
    """

    SUBJECT, ERROR = "overlap {0.name!r}", WhatIfError
    name: str
    beside: str
    places: Count
    launched: str
    makespan_us: Amount
    gain: float
    gain_low: float | None
    gain_high: float | None
    possible: float
    contention: float
    waits: float


@dataclass(frozen=True, slots=True)
class Point(Checked):
    """Gains of overlaps at a value of a parameter.

    Parameters
    ----------
    value
        Of the parameter.
    makespan_us
        Without overlaps.
    gain, gain_low, gain_high
        By the name of the overlap.
    """

    SUBJECT, ERROR = "point {0.value!r}", WhatIfError
    value: float
    makespan_us: Amount
    gain: Mapping[str, float]
    gain_low: Mapping[str, float]
    gain_high: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Turn(Checked):
    """Where an overlap begins or ends to pay.

    Parameters
    ----------
    name
        Of the overlap.
    pays
        ``"below"``, ``"above"``, ``"always"``, ``"never"``, or ``"between"`` two values.
    at
        Values of the parameter where it turns, rising; none where it always or never pays.
    low, high
        Least and largest value at which it may turn, by the ranges of the gains; None where no range says so.
    """

    SUBJECT, ERROR = "turn of {0.name!r}", WhatIfError
    name: str
    pays: str
    at: tuple[float, ...] = ()
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, repr=False, eq=False)
class Overlaps(Finding):
    """What overlaps gain; prints as a table, plots gains over the parameter.

    Parameters
    ----------
    graph, cluster
        Names of what ran, and on what.
    execution
        ``"graph"`` (captured) or ``"events"`` (launched by the host).
    makespan_us
        Of one operator after the other.
    rows
        Overlaps by falling gain; all together last.
    parameter
        What was varied; None if nothing was.
    points
        Gains by rising value of it.
    turns
        Where each overlap begins or ends to pay.
    doubt
        What ranges come from, and what they depend on.
    plans
        The schedule of each overlap, by name; none once read from a file.
    measured_us
        Time of the step as it was measured, over which gains are then; None for the simulated time.
    """

    FORMAT = "simsched.overlap"
    execution: str
    makespan_us: Amount
    rows: tuple[Overlap, ...]
    parameter: str | None = None
    points: tuple[Point, ...] = ()
    turns: tuple[Turn, ...] = ()
    doubt: Doubt | None = None
    plans: Mapping[str, Schedule] | None = aside()
    measured_us: Amount | None = None

    def row(self, name: str) -> Overlap:
        """Return the overlap of a name.

        Raises
        ------
        UnknownNameError
            If there is none.
        """
        for row in self.rows:
            if row.name == name:
                return row
        raise UnknownNameError("overlap", name, [row.name for row in self.rows])

    def sentences(self) -> tuple[str, ...]:
        """Return what the rows and turns say, a line each."""
        if not self.rows and not self.turns:
            return ("Nothing could run beside anything else: each operator needs the one before it.",)
        said = [_sentence(turn, self) for turn in self.turns]
        hidden = len(self.rows) - len(self._shown())
        if hidden:
            said.append(f"{hidden} more gain less: see --json.")
        if self.doubt is not None:
            said.append(f"{str(self.doubt)[0].upper()}{str(self.doubt)[1:]}.")
        return tuple(said)

    def _shown(self) -> list[Overlap]:
        """Return the rows of the table: those that gain most, and all together."""
        joint = [row for row in self.rows if row.name == TOGETHER]
        return [*[row for row in self.rows if row.name != TOGETHER][:_MOST_SHOWN], *joint]

    def table(self) -> Any:
        """Return the rows as a table of texts, with sentences on where they turn."""
        headings = ("overlap", "places", "launched", "latency", "gain", "could be", "contention", "waits", "beside")
        rows = [
            (
                shortened([row.name], _WIDE),
                str(row.places),
                row.launched,
                format_time(row.makespan_us),
                _percent(row.gain, row.gain_low, row.gain_high),
                _percent(row.possible),
                _percent(-row.contention),
                _percent(-row.waits),
                row.beside,
            )
            for row in self._shown()
        ]
        title = f"{self.graph} on {self.cluster}: {format_time(self.makespan_us)} one operator after the other"
        if self.measured_us is not None:
            title += f"; gains are over {format_time(self.measured_us)}, as measured"
        best = 0 if self.rows and self.rows[0].gain >= WORTH else -1
        return table_of(title, headings, rows, note=self.sentences(), best=best, left=(0, 2, 8))


def _percent(value: float, low: float | None = None, high: float | None = None) -> str:
    text = f"{100 * value:+.1f} %"
    return text if low is None or high is None else f"{text} ({100 * low:+.1f} to {100 * high:+.1f})"


def _sentence(turn: Turn, found: Overlaps) -> str:
    first, last = (f"{found.points[i].value:,.0f}" for i in (0, -1))
    if turn.pays in ("always", "never"):
        return f"{turn.name}: {turn.pays} pays from {found.parameter} {first} to {last} (gain of {WORTH:.0%} or more)."
    where = " and ".join(f"{at:,.0f}" for at in turn.at)
    text = f"{turn.name}: pays {turn.pays} {found.parameter} {where}"
    if turn.low is not None or turn.high is not None:
        low = first if turn.low is None else f"{turn.low:,.0f}"
        high = last if turn.high is None else f"{turn.high:,.0f}"
        text += f" ({low} to {high})"
    return f"{text}."


@dataclass(frozen=True, slots=True)
class _Case:
    """One graph on one cluster: all that is simulated of it."""

    graph: OpGraph
    target: Target
    cost: CostModel | None
    execution: str

    @property
    def device(self) -> str:
        return bare(self.target).devices[0].name

    def time(self, plan: Schedule, target: Target | None = None) -> float:
        """Return the makespan of a schedule in us, on the cluster or on another one."""
        return simulate(plan, self.target if target is None else target, self.cost).makespan

    def one_stream(self) -> Schedule:
        """Return one operator after the other."""
        plan = schedule(self.graph, self.target, "sequential", self.cost)
        return plan.like(execution=self.execution)

    def quicker(self, plans: Mapping[str, Schedule]) -> tuple[str, Schedule, float]:
        """Return the quickest of some schedules with its name and its makespan; of equal ones the first."""
        times = {name: self.time(plan) for name, plan in plans.items()}
        name = min(times, key=times.__getitem__)
        return name, plans[name], times[name]

    def of_branch(self, branch: Branch) -> dict[str, Schedule]:
        """Return the schedules of a branch on a stream of its own, launched last and first."""
        return {
            name: beside(self.graph, self.device, [Side(branch, name == "first")], self.execution)
            for name in ("last", "first")
        }


@dataclass(frozen=True, slots=True)
class _Tried:
    """An overlap that was simulated: `side` is None of half-batches, which are another graph."""

    name: str
    beside: str
    places: int
    launched: str
    plan: Schedule
    time: float
    side: Side | None = None


def overlap(
    graph: OpGraph,
    cluster: Target,
    cost: CostModel | None = None,
    *,
    execution: str = "graph",
    load: Load | None = None,
    halves: Load | None = None,
    over: tuple[str, Sequence[int]] | None = None,
    measured_us: float | None = None,
) -> Overlaps:
    """Find what could run beside what on one GPU, and say what that gains.

    Parameters
    ----------
    graph
        What runs; with collectives, what one of several equal GPUs runs.
    cluster, cost
        As in `simulate`; the first device runs everything.
    execution
        ``"graph"``: captured as a CUDA graph; ``"events"``: launched by the host.
    load
        Makes the graph for other parameters, such as ``partial(workloads.load_kind, "llm:deepseek-v3,tp=8")``.
    halves
        Makes two steps of half the batch each in one graph, for the same parameters; the labels of their blocks begin
        with ``micro0`` and ``micro1``. It raises a `GraphError` where the batch is too small. None: half-batches are
        not tried.
    over
        A parameter of `load` and its values, for which all overlaps are simulated again, see `read_over`.

    measured_us
        Time of the step in us as it was measured without overlaps, in which an engine does more than the graph says:
        gains are then what is saved of it. None for the simulated time.

    Returns
    -------
    Overlaps
        A row for each overlap by falling gain (of equal gains in the order of the graph), and all together that add
        up, if there are several.

    Raises
    ------
    WhatIfError
        If the graph is too large, `execution` is another one, `over` comes without `load` or with `measured_us`, or
        that is shorter than what is saved.
    SimschedError
        As `load`, `schedule` and `simulate` do.

    Notes
    -----
    The baseline is one stream. A branch that does not depend on something else (see `branches`) gets a stream of its
    own, in every place at once, launched before or after what runs beside it, whichever is faster. Half-batches take
    turns from one collective to the next. "All together" adds overlaps by falling gain as long as each makes the step
    faster. Simulations without contention, and without the costs of launches and waits besides, say what is lost to
    each. Ranges are those of `compare` with smaller errors of the model, since the same kernels run in both cases.

    A short operator beside a long one that leaves room, of 40 us and 100 us:

    >>> import simsched as ss
    >>> ops = [ss.Operator("a", time=100.0, utilization=0.5), ss.Operator("b", time=40.0, utilization=0.3)]
    >>> found = overlap(ss.OpGraph(ops, name="two"), ss.Cluster.preset("a100").without_overheads())
    >>> [(row.name, row.beside, round(row.gain, 3)) for row in found.rows]
    [('b', 'a', 0.4)]
    """
    if execution not in EXECUTIONS:
        raise UnknownNameError("execution of overlaps", str(execution), list(EXECUTIONS))
    if over is not None and load is None:
        raise WhatIfError("`over` varies a parameter of the graph: give `load`, which makes the graph for a value")
    if over is not None and measured_us is not None:
        raise WhatIfError("a measured step is of one graph: leave out `over`, or `measured_us`")
    case = _case(graph, cluster, cost, execution)
    base_plan = case.one_stream()
    base = case.time(base_plan)
    tried = sorted(_all_tried(case, halves, {}), key=lambda each: each.time)
    joint = _together(case, tried)
    found = [*tried, *([] if joint is None else [joint])]
    ranged, doubt = _ranged(case, base_plan, found)
    rows = tuple(_row(case, base_plan, base, each, ranged.get(each.name)) for each in found)
    if measured_us is not None:
        rows = tuple(_over_measured(row, base, measured_us) for row in rows)
    points: tuple[Point, ...] = ()
    parameter = None
    if over is not None:
        assert load is not None
        parameter, values = over
        points = tuple(_point(load, halves, cluster, cost, execution, parameter, value) for value in values)
    names = dict.fromkeys([each.name for each in tried] + [name for point in points for name in point.gain])
    turns = tuple(_turn(name, points) for name in names) if points else ()
    return Overlaps(
        case.graph.name,
        bare(cluster).name,
        execution,
        base,
        rows,
        parameter,
        points,
        turns,
        doubt,
        {each.name: each.plan for each in found},
        measured_us=measured_us,
    )


def read_over(text: str) -> tuple[str, tuple[int, ...]]:
    """Return a parameter and its values, of a text: the ends of a range, and all powers of two between them.

    >>> read_over("batch=3:20"), read_over("context=512")
    (('batch', (3, 4, 8, 16, 20)), ('context', (512,)))

    Raises
    ------
    WhatIfError
        If the text is none.
    """
    match = _OVER.fullmatch(text.replace(" ", ""))
    if match is None:
        raise WhatIfError(f"over {text[:60]!r}: give a parameter and a range of whole numbers, such as batch=1:4096")
    name, low, high = match[1], int(match[2]), int(match[3] or match[2])
    if not 1 <= low <= high:
        raise WhatIfError(f"over {text[:60]!r}: the range must rise, from 1 at least")
    inner = [1 << k for k in range(_MOST_POINTS) if low < 1 << k < high]
    return name, tuple(dict.fromkeys([low, *inner, high]))


def _case(graph: OpGraph, cluster: Target, cost: CostModel | None, execution: str) -> _Case:
    return _Case(upon(cluster, graph)[0], cluster, cost, execution)


def _all_tried(case: _Case, halves: Load | None, parameters: Mapping[str, Any]) -> list[_Tried]:
    """Return all overlaps of a case, each as it is quickest."""
    found = []
    for branch in branches(case.graph):
        launched, plan, time = case.quicker(case.of_branch(branch))
        side = Side(branch, launched == "first")
        text = shortened(branch.beside)
        found.append(_Tried(branch.name, text, len(branch.places), launched, plan, time, side))
    divided = None if halves is None else _halves(halves, parameters)
    if divided is not None:
        both = _case(divided, case.target, case.cost, case.execution)
        plans = {"apart": by_turns(both.graph, both.device, both.execution, apart=True)}
        if any(exchanging(both.graph)):
            plans["collectives apart"] = by_turns(both.graph, both.device, both.execution, apart=False)
        launched, plan, time = both.quicker(plans)
        found.append(_Tried(HALVES, "each other", 1, launched, plan, time))
    return found


def _halves(halves: Load, parameters: Mapping[str, Any]) -> OpGraph | None:
    """Return the graph of two halves of a batch; None where the batch is too small."""
    try:
        return halves(**parameters)
    except GraphError:
        return None


def _together(case: _Case, tried: Iterable[_Tried]) -> _Tried | None:
    """Return all overlaps that make the step faster after those that gain more; None if there are not two."""
    best: _Tried | None = None
    taken: list[_Tried] = []
    for each in tried:
        if each.side is None:
            continue
        sides = [one.side for one in (*taken, each) if one.side is not None]
        plan = each.plan if not taken else beside(case.graph, case.device, sides, case.execution)
        time = each.time if not taken else case.time(plan)
        if best is None or time < best.time * (1 - _ADDS):
            taken.append(each)
            text = shortened([one.name for one in taken])
            best = _Tried(TOGETHER, text, sum(one.places for one in taken), "as above", plan, time)
    return best if len(taken) > 1 else None


def _ranged(case: _Case, base: Schedule, found: Iterable[_Tried]) -> tuple[dict[str, Any], Doubt | None]:
    """Return between what the speedups lie, by name."""
    whole = bare(case.target)
    programs: dict[str, Program] = {each.name: each.plan.lower(whole) for each in found}
    if not programs:
        return {}, None
    return ranges(programs, case.target, case.cost, reference=base.lower(whole), errors=ERRORS)


def _row(case: _Case, base_plan: Schedule, base: float, tried: _Tried, ranged: Any) -> Overlap:
    """Return an overlap with what eats its gain."""
    whole = bare(case.target)
    apart = with_cluster(case.target, whole.replace_devices(contention=False))
    free = with_cluster(case.target, whole.replace_devices(contention=False).without_overheads())
    gain = base / tried.time - 1.0
    alone = case.time(base_plan, apart) / case.time(tried.plan, apart) - 1.0
    possible = case.time(base_plan, free) / case.time(tried.plan, free) - 1.0
    has_range = ranged is not None and ranged.speedup_low is not None
    return Overlap(
        tried.name,
        tried.beside,
        tried.places,
        tried.launched,
        tried.time,
        gain,
        ranged.speedup_low - 1.0 if has_range else None,
        ranged.speedup_high - 1.0 if has_range else None,
        possible,
        alone - gain,
        possible - alone,
    )


def _over_measured(row: Overlap, base: float, measured: float) -> Overlap:
    """Return an overlap with gains over a measured step instead of the simulated one.

    Raises
    ------
    WhatIfError
        If the step is no longer than what the overlap saves at best.
    """

    def scaled(gain: float) -> float:
        saved = base - base / (1.0 + gain)
        if measured <= saved:
            raise WhatIfError(
                f"a measured step of {measured:g} us is shorter than the {saved:.3g} us that {row.name!r} saves at "
                "best: it is not of this graph"
            )
        return measured / (measured - saved) - 1.0

    low, high = (None if gain is None else scaled(gain) for gain in (row.gain_low, row.gain_high))
    gain, alone, possible = scaled(row.gain), scaled(row.gain + row.contention), scaled(row.possible)
    return replace(
        row,
        gain=gain,
        gain_low=low,
        gain_high=high,
        possible=possible,
        contention=alone - gain,
        waits=possible - alone,
    )


def _point(
    load: Load,
    halves: Load | None,
    cluster: Target,
    cost: CostModel | None,
    execution: str,
    parameter: str,
    value: int,
) -> Point:
    """Return what overlaps gain at a value of a parameter."""
    case = _case(load(**{parameter: value}), cluster, cost, execution)
    base_plan = case.one_stream()
    base = case.time(base_plan)
    tried = _all_tried(case, halves, {parameter: value})
    ranged, _ = _ranged(case, base_plan, tried)
    gain = {each.name: base / each.time - 1.0 for each in tried}
    low = {name: one.speedup_low - 1.0 for name, one in ranged.items() if one.speedup_low is not None}
    high = {name: one.speedup_high - 1.0 for name, one in ranged.items() if one.speedup_high is not None}
    return Point(float(value), base, gain, low, high)


def _turn(name: str, points: Sequence[Point]) -> Turn:
    """Return where an overlap begins or ends to pay: where its gain crosses `WORTH`, evenly in the logarithm."""
    known = [point for point in points if name in point.gain]
    at = _crossings([(point.value, point.gain[name]) for point in known])
    pays = [point.gain[name] >= WORTH for point in known]
    if not at:
        return Turn(name, "always" if pays and all(pays) else "never")
    edges = [
        crossing
        for gains in ("gain_low", "gain_high")
        for crossing in _crossings([(p.value, getattr(p, gains)[name]) for p in known if name in getattr(p, gains)])
    ]
    if len(at) > 1:
        return Turn(name, "between", tuple(at))
    side = "below" if pays[0] else "above"
    below = [edge for edge in edges if edge <= at[0]]
    above = [edge for edge in edges if edge >= at[0]]
    return Turn(name, side, tuple(at), max(below) if below else None, min(above) if above else None)


def _crossings(gains: Sequence[tuple[float, float]]) -> list[float]:
    """Return the values at which gains cross `WORTH`.

    >>> [round(value, 3) for value in _crossings([(1.0, 0.03), (4.0, -0.01)])]
    [2.0]
    """
    found = []
    for (value, gain), (next_value, next_gain) in pairwise(gains):
        if (gain >= WORTH) != (next_gain >= WORTH):
            part = (WORTH - gain) / (next_gain - gain)
            found.append(exp(log(value) + part * (log(next_value) - log(value))))
    return found
