"""`what_if`: the way into all questions; `sweep`: over values of parameters; `sensitivity`: to each of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, log
from typing import Annotated, Any, Final

import numpy as np

from simsched.base.codec import Checked, Count, Gaps
from simsched.base.errors import WhatIfError
from simsched.base.io import json_copy
from simsched.base.numeric import is_number
from simsched.base.units import format_time
from simsched.experiments.result import Finding, table_of
from simsched.experiments.whatif.changes import (
    PARAMETERS,
    RATES,
    Absolute,
    common,
    full_name,
    is_taken_as_is,
    make_change,
    with_unit,
)
from simsched.experiments.whatif.ground import Ground
from simsched.experiments.whatif.question import Question
from simsched.experiments.whatif.revision import operators_of
from simsched.model import CostModel, Floats, OpGraph, Schedule, Target
from simsched.schedulers import Scheduler

_ABSOLUTE: Final = "absolute"
_LEAST: Final = 1e-9  # elasticities and changes below this are none
# parts by which parameters are moved: for elasticities, and for lows and highs
_STEP = 0.01
_SWING = 0.2


@dataclass(frozen=True, repr=False, eq=False)
class Sweep(Finding):
    """Makespans over one parameter or two; prints as a table.

    Plots as a line; as bars for values with names; as a map for two parameters. The thin line is the makespan without
    changes. Numbers that span more than a factor of eight have a logarithmic axis; refused points are left out.

    Parameters
    ----------
    graph, cluster, scheduler
        Names of the graph, the cluster, and the scheduler.
    parameter, values
        The varied parameter, and its values: factors, ``{"absolute": x}``, or the parameter's own kind of value.
    parameter2, values2
        The same of the second parameter; None if there is none.
    makespan_us
        Makespans in us, shape (n,), or (n, m) with two parameters; NaN where the question was refused.
    reasons
        Why, as (i, j, text) with the places of the values; j is 0 where there is one parameter.
    base_us
        Makespan in us without the changes of the sweep.
    """

    VIEW = "sweep"
    FORMAT = "simsched.sweep"
    scheduler: str
    parameter: str
    values: tuple[Any, ...]
    parameter2: str | None
    values2: tuple[Any, ...] | None
    makespan_us: Annotated[Floats, Gaps()]
    reasons: tuple[tuple[Count, Count, str], ...]
    base_us: float

    def __post_init__(self) -> None:
        Checked.__post_init__(self)
        shape = tuple(len(values) for values in (self.values, self.values2) if values is not None)
        fits = self.makespan_us.shape == shape and (self.parameter2 is None) == (self.values2 is None)
        if not fits or not np.isfinite(self.makespan_us).any():
            raise self.refusal("makespan_us must hold a number for each of the values, not only nulls")
        if any(i >= shape[0] or j >= (*shape, 1)[1] for i, j, _ in self.reasons):
            raise self.refusal("reasons must be of values that there are")

    def records(self) -> list[dict[str, Any]]:
        """Return a row of plain values for each point."""
        why = {(i, j): text for i, j, text in self.reasons}
        names = (self.parameter, self.parameter2)
        us = self.makespan_us.reshape(len(self.values), -1).tolist()
        return [
            {name: plain_value(value) for name, value in zip(names, pair, strict=True) if name is not None}
            | {"makespan_us": None if np.isnan(us[i][j]) else us[i][j], "reason": why.get((i, j))}
            for i, value in enumerate(self.values)
            for j, pair in enumerate((value, second) for second in self.values2 or (None,))
        ]

    def table(self) -> Any:
        """Return makespans as a table of texts: a row per value, a column per second value."""
        first = [text_of(self.parameter, value) for value in self.values]
        us = self.makespan_us.tolist()
        second = [f"{self.parameter2} {text_of(str(self.parameter2), value)}" for value in self.values2 or ()]
        notes = [f"{format_time(self.base_us)} without changes"]
        for i, j, text in self.reasons:
            notes.append(", ".join([f"{self.parameter} {first[i]}", *second[j : j + 1]]) + f": {text}")
        headings = (self.parameter, *second)
        best = -1
        rows: list[Any] = [(text, *map(_cell, row)) for text, row in zip(first, us, strict=True) if second]
        if not second:
            headings = (self.parameter, "makespan", "speedup")
            best = int(np.nanargmin(self.makespan_us))
            rows = [
                (text, _cell(x), f"{self.base_us / x:.2f}x" if x > 0 else "-")
                for text, x in zip(first, us, strict=True)
            ]
        return table_of(f"{self.graph} on {self.cluster}", headings, rows, note=notes, best=best)


def sweep(
    asked: Question,
    parameter: str,
    values: Sequence[Any],
    parameter2: str | None = None,
    values2: Sequence[Any] | None = None,
) -> Sweep:
    """Ask a question for each of some values of a parameter, or for all pairs of two.

    Parameters
    ----------
    asked
        A question; its changes stay, and the swept values are applied after them.
    parameter, values
        As `WhatIf.set` takes them: factors, `absolute` values, presets, ...
    parameter2, values2
        A second parameter, or None.

    Returns
    -------
    Sweep
        The makespans. Points that are refused - fewer devices than the schedule uses, say - are NaN, with the reason.

    Raises
    ------
    WhatIfError
        If there are no values, a second parameter has none or values have none, or all points are refused.
    UnknownNameError
        If no parameter, preset, operator or kind has this name.

    >>> import simsched as ss
    >>> graph = ss.OpGraph([ss.Operator("a", time=30.0), ss.Operator("b", time=10.0)], [ss.Edge("a", "b")])
    >>> asked = ss.what_if(graph, ss.Cluster.preset("a100").without_overheads())
    >>> sweep(asked, "operators.speed", [1, 2, 4]).makespan_us.tolist()
    [40.0, 20.0, 10.0]
    """
    if (parameter2 is None) != (values2 is None):
        raise WhatIfError("a second parameter and its values belong together: give both or neither")
    for name, axis in ((parameter, values), (parameter2, values2)):
        if axis is not None and (isinstance(axis, str) or not len(axis)):
            raise WhatIfError(f"sweep over {name}: give a list of values, not {axis!r}")
    parameter = full_name(parameter)
    if parameter2 is None:
        parameter2 = None
    else:
        parameter2 = full_name(parameter2)
    if values2 is None:
        seconds = [None]
    else:
        seconds = list(values2)
    makespans = np.full((len(values), len(seconds)), np.nan)
    reasons: list[tuple[int, int, str]] = []
    for i, value in enumerate(values):
        for j, second in enumerate(seconds):
            us = asked.makespan_after((parameter, value), *([] if parameter2 is None else [(parameter2, second)]))
            if isinstance(us, str):
                reasons.append((i, j, us))
            else:
                makespans[i, j] = us
    if np.isnan(makespans).all():
        raise WhatIfError(f"sweep over {parameter}: every value is refused: {reasons[0][2]}")
    return Sweep(
        asked.graph.name,
        asked.cluster.name,
        asked.plan.scheduler,
        parameter,
        tuple(map(_plain, values)),
        parameter2,
        None if values2 is None else tuple(map(_plain, values2)),
        makespans[:, 0] if values2 is None else makespans,
        tuple(reasons),
        asked.makespan,
    )


def _plain(value: Any) -> Any:
    """Return a value as JSON."""
    if isinstance(value, Absolute):
        return {_ABSOLUTE: float(value.value)}
    return json_copy(value)


def plain_value(value: Any) -> Any:
    """Return the number of an absolute value; return any other value unchanged."""
    if isinstance(value, dict) and _ABSOLUTE in value:
        return value[_ABSOLUTE]
    return value


def text_of(parameter: str, value: Any) -> str:
    """Return a value as tables show it: numbers with their unit, and after ``=`` if they have none."""
    number = plain_value(value)
    if number is value:
        if is_number(value):
            return f"{value:g}"
        return str(value)
    text = with_unit(parameter, number)
    return text if " " in text else f"={text}"


def _cell(us: float) -> str:
    return "-" if np.isnan(us) else format_time(us)


@dataclass(frozen=True, slots=True)
class Elasticity(Checked):
    """Elasticity of the makespan in one parameter.

    Parameters
    ----------
    parameter
        Its name.
    value
        The parameter's value in library units; None if it is not one number.
    elasticity
        Per cent that the makespan changes by when the parameter grows by one per cent.
    low_us, high_us
        Makespans in us with the parameter at its low and its high.
    low, high
        The low and the high as factors of the present value.
    """

    SUBJECT = "parameter {0.parameter}"
    ERROR = WhatIfError
    parameter: str
    value: float | None
    elasticity: float
    low_us: float
    high_us: float
    low: float
    high: float


@dataclass(frozen=True, repr=False, eq=False)
class Sensitivity(Finding):
    """Elasticities of the makespan in every parameter; prints as a table, plots as a tornado chart.

    Bars of the chart reach from the makespan at the parameter's low to the makespan at its high, around the unchanged
    makespan; the side of the low is hatched. Parameters without effect are left out, and all after the first fifteen.

    Parameters
    ----------
    graph, cluster
        Names of the graph, the cluster, and the scheduler.
    rows
        Elasticities by falling size.
    base_us
        Makespan in us with all parameters unchanged.
    notes
        Parameters left out, with the reason.
    """

    VIEW = "sensitivity"
    FORMAT = "simsched.sensitivity"
    rows: tuple[Elasticity, ...]
    base_us: float
    notes: tuple[str, ...] = ()

    def moving(self) -> list[Elasticity]:
        """Return the rows of parameters that move the makespan."""
        least = _LEAST * self.base_us
        return [
            row
            for row in self.rows
            if abs(row.elasticity) > _LEAST or max(abs(us - self.base_us) for us in (row.low_us, row.high_us)) > least
        ]

    def table(self) -> Any:
        """Return the rows that move the makespan as a table of texts."""
        moving = self.moving()
        rows = [
            (
                row.parameter,
                "-" if row.value is None else with_unit(row.parameter, row.value),
                f"{row.elasticity:+.4f}",
                f"{row.low:.3g} .. {row.high:.3g}",
                f"{format_time(row.low_us)} .. {format_time(row.high_us)}",
            )
            for row in moving
        ]
        if len(moving) < len(self.rows):
            still = [f"{len(self.rows) - len(moving)} more change nothing"]
        else:
            still = []
        notes = (f"makespan {format_time(self.base_us)}", *still, *self.notes)
        headings = ("parameter", "value", "elasticity", "factors", "makespan")
        return table_of(f"{self.graph} on {self.cluster}", headings, rows, note=notes)


def sensitivity(
    plan_or_whatif: Schedule | Question,
    cluster: Target | None = None,
    *,
    parameters: Sequence[str] | None = None,
    per_operator: bool = False,
) -> Sensitivity:
    """Return the elasticity of the makespan to every parameter, ranked.

    Parameters
    ----------
    plan_or_whatif, cluster
        A schedule and its cluster, or a question, which has its own cluster.
    parameters
        Parameters that take factors, by their names in `WhatIf.set`; by default all that are neither zero nor infinite.
    per_operator
        Whether each operator's speed is a parameter, too.

    Returns
    -------
    Sensitivity
        Rows by falling size of the elasticity, equal ones in the order of the parameters.

    Raises
    ------
    WhatIfError
        If the makespan is 0, a schedule comes without a cluster, or a parameter that was named cannot be moved or takes
        no factors.
    UnknownNameError
        If no parameter, operator or kind has this name.

    Notes
    -----
    The elasticity is (ln M+ - ln M-) / (ln f+ - ln f-), M the makespan and f the factors 1.01 and 0.99; lows and highs
    are at 0.8 and 1.2. Where the makespan has a kink (another operator becomes the last, say), the elasticity is
    between the elasticities of the two sides. Whole numbers, such as `sms`, move by at least 1; the factor that was
    really taken counts. A side that is impossible (more than the whole of a part) is replaced by the unchanged
    makespan, at the factor 1. A parameter that is 0 stays 0 under any factor: its elasticity is 0. Times, overheads,
    latencies and the inverse of rates together have an elasticity of 1: if all of them take twice as long, so does the
    whole. Four simulations per parameter.

    >>> import simsched as ss
    >>> graph = ss.OpGraph([ss.Operator("a", time=30.0), ss.Operator("b", time=10.0)], [ss.Edge("a", "b")])
    >>> cluster = ss.Cluster.preset("a100").without_overheads()
    >>> found = sensitivity(ss.schedule(graph, cluster, "lios"), cluster, per_operator=True)
    >>> [(row.parameter, round(row.elasticity, 3)) for row in found.rows[:3]]
    [('operators.speed', -1.0), ('operator.a.speed', -0.75), ('operator.b.speed', -0.25)]
    """
    question = plan_or_whatif
    if isinstance(question, Schedule):
        if cluster is None:
            raise WhatIfError("a schedule alone does not say what it runs on: give the cluster")
        question = what_if(question, cluster)
    base = question.makespan
    if not base > 0:
        raise WhatIfError(f"graph {question.graph.name!r} takes no time: nothing can change that by a factor")
    if parameters is None:
        names = numeric_parameters(question, per_operator=per_operator)
    else:
        names = tuple(map(full_name, parameters))
    rows: list[Elasticity] = []
    notes: list[str] = []
    for name in dict.fromkeys(names):
        value = value_of(question, name)
        points = [_move(question, name, value, part) for part in (-_STEP, _STEP, -_SWING, _SWING)]
        if all(isinstance(point, str) for point in points[:2]):
            if parameters is not None:
                raise WhatIfError(f"{name} cannot be moved: {points[0]}")
            notes.append(f"{name}: {points[0]}")
            continue
        below, above, low, high = ((1.0, base) if isinstance(point, str) else point for point in points)
        if above[0] > below[0] and below[1] > 0:
            slope = log(above[1] / below[1]) / log(above[0] / below[0])
        else:
            slope = 0.0
        rows.append(Elasticity(name, value, slope, low[1], high[1], low[0], high[0]))
    rows.sort(key=lambda row: -abs(row.elasticity))
    return Sensitivity(question.graph.name, question.cluster.name, tuple(rows), base, tuple(notes))


def numeric_parameters(asked: Question, *, per_operator: bool = False) -> tuple[str, ...]:
    """Return the names of a question's parameters that take factors, without zero or infinite ones.

    Parameters
    ----------
    asked
        The question.
    per_operator
        Whether each operator has its own parameter, too.

    Notes
    -----
    ``device.clock`` is left out, too: to the model it is the same as ``device.peak``.

    >>> import simsched as ss
    >>> asked = ss.what_if(ss.OpGraph([ss.Operator("a", time=3.0)]), ss.Cluster.preset("a100"))
    >>> numeric_parameters(asked)[:3]
    ('operators.speed', 'device.sms', 'device.threads_per_sm')
    """
    codes, kinds = asked.graph.labels("kind")
    used = [kinds[i] for i in np.unique(codes).tolist() if kinds[i] is not None]
    there = ["operators.speed", *(f"operators.{kind}.speed" for kind in used if len(used) > 1)]
    for name, parameter_of in PARAMETERS.items():
        values = parameter_of.values(asked.cluster)  # None where they differ
        if name != "device.clock" and any(value is None or 0 < value < inf for value in values):
            there.append(name)
    if per_operator:
        there += [f"operator.{name}.speed" for name in asked.graph.names if name in asked.plan.graph.index]
    return tuple(there)


def _move(asked: Question, parameter: str, value: float | None, part: float) -> tuple[float, float] | str:
    """Return the factor that a parameter was moved by, and the makespan then, or why it cannot be moved."""
    new: Any = 1.0 + part
    factor = new
    if parameter in PARAMETERS and PARAMETERS[parameter].whole and value:
        least = round(value) + (1 if part > 0 else -1)
        moved = round(value * factor)
        if part > 0:
            moved = max(least, moved)
        else:
            moved = min(least, moved)
        if moved < 1:
            return f"it is {value:g}, and there can be no less of it"
        factor = moved / value
        new = Absolute(moved)
    makespan = asked.makespan_after((parameter, new))
    if isinstance(makespan, str):
        return makespan
    return (factor, makespan)


def value_of(asked: Question, parameter: str) -> float | None:
    """Return the value of a parameter that takes factors after a question's changes, in library units.

    Returns
    -------
    float or None
        The value; None where devices, links or operators differ. Speeds are relative to the world before any change;
        ``device.peak`` is the fp32 peak; ``interference`` is its largest entry.

    Raises
    ------
    UnknownNameError
        If no parameter, operator or kind has this name.
    WhatIfError
        If the parameter takes no factors.

    >>> import simsched as ss
    >>> asked = ss.what_if(ss.OpGraph([ss.Operator("a", time=3.0)]), ss.Cluster.preset("a100", 2))
    >>> value_of(asked, "overhead.launch"), value_of(asked.link(bandwidth=2.0), "link.bandwidth")
    (6.0, 550000.0)
    """
    parameter = full_name(parameter)
    if is_taken_as_is(parameter):
        raise WhatIfError(f"{parameter} takes no factors: ask with `sweep`")
    change = make_change(parameter, 1.0)
    if parameter in RATES:
        return float(getattr(asked.revision.rates, parameter))
    if parameter in PARAMETERS:
        return common(PARAMETERS[parameter].values(asked.cluster))
    return common(asked.revision.speeds[operators_of(asked.graph, change)].tolist())


class WhatIf(Question):
    """A question about a schedule in a changed world, and its answer; `what_if` makes it.

    Each method that makes a change returns a longer question. Numbers are factors of the present values; `absolute`
    makes them values in library units. Everything else stays unchanged. Answers are computed once, on first use; all
    times are in us.

    Notes
    -----
    Changes of different kinds are applied in this order, whatever the order of the calls: `rebuild`; `fuse`, `remove`,
    `operators`; `gpus`; `device` presets; all other numbers. Changes of one kind are applied one after the other.
    Factors of one parameter multiply; of plain values the last counts.
    """

    VIEW = "whatif"

    sweep = sweep
    sensitivity = sensitivity


def what_if(
    plan_or_graph: Schedule | OpGraph,
    cluster: Target,
    reschedule: bool = False,
    *,
    scheduler: str | Scheduler | None = None,
    options: Mapping[str, Any] | None = None,
    cost: CostModel | None = None,
    load: Callable[..., OpGraph] | None = None,
) -> WhatIf:
    """Begin a question about a schedule in a changed world.

    Parameters
    ----------
    plan_or_graph
        A schedule, or a graph, which the scheduler makes a schedule of.
    cluster
        The cluster, or a calibration, whose measured operator times and fitted parameters are used.
    reschedule
        Whether a new schedule is made after the changes; else the same schedule runs in the changed world.
    scheduler
        A name or a function as `schedule` takes it, and its `options`. By default the one that made the plan, or
        ``"lios"``. A plan over a graph that its scheduler rewrote is re-scheduled over the rewritten graph.
    options
        The scheduler's own.
    cost
        Time of an operator alone on a device in us; by default its `time`, else a roofline.
    load
        A function from keyword parameters to a graph, for `WhatIf.rebuild`.

    Returns
    -------
    WhatIf
        Nothing is computed until something of it is asked for.

    >>> import simsched as ss
    >>> graph = ss.OpGraph([ss.Operator("a", "conv", time=30.0), ss.Operator("b", time=10.0)], [ss.Edge("a", "b")])
    >>> asked = ss.what_if(graph, ss.Cluster.preset("a100").without_overheads()).operators(kind="conv", speed=2.0)
    >>> asked.makespan_before, asked.makespan, asked.difference
    (40.0, 25.0, -15.0)
    """
    ground = Ground(plan_or_graph, cluster, scheduler, dict(options or {}), cost, load)
    return WhatIf(ground, rescheduled=bool(reschedule))
