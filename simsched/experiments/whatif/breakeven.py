"""Values of a parameter at which the better of two schedules changes: `breakeven`."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import exp, log, sqrt
from typing import Any, Final

import numpy as np

from simsched.base.codec import Checked
from simsched.base.errors import ScheduleError, WhatIfError
from simsched.base.units import format_time
from simsched.experiments.result import Finding, table_of
from simsched.experiments.whatif.changes import full_name, with_unit
from simsched.experiments.whatif.whatif import value_of, what_if
from simsched.model import CostModel, Floats, Indices, OpGraph, Schedule, Target
from simsched.model.costmodel import bind
from simsched.rewriting import account_for
from simsched.schedulers import Scheduler, scheduler_name

# factors of the grid: four for each doubling
_LARGEST = 64.0
_POINTS = 49
_NARROW: Final = 1e-6  # relative width to which a crossing is narrowed down
_ALIKE: Final = 1e-9  # makespans that differ less, relatively, are equal


@dataclass(frozen=True, slots=True)
class Crossing(Checked):
    """A value of the parameter at which the better schedule changes.

    Parameters
    ----------
    factor
        Factor of the parameter's present value.
    value
        The parameter's value there, in library units; None if it is not one number.
    better_below, better_above
        Names of the plans with the lesser makespan.
    """

    SUBJECT = "a crossing"
    ERROR = WhatIfError
    factor: float
    value: float | None
    better_below: str
    better_above: str


@dataclass(frozen=True, repr=False, eq=False)
class BreakEven(Finding):
    """Makespans of two plans over a parameter, and where they cross; prints as a table.

    Plots as the makespans over the parameter; a note lists the crossings.

    Parameters
    ----------
    graph, cluster
        Names of the graph and the cluster.
    parameter, value
        The varied parameter, and its present value in library units, None if it is not one number.
    names
        Names of the two schedules.
    factors
        Factors of the parameter, rising, shape (n,).
    a_us, b_us
        Makespans in us, shape (n,).
    crossings
        Crossings by rising factor.
    """

    VIEW = "breakeven"
    FORMAT = "simsched.breakeven"
    parameter: str
    value: float | None
    names: tuple[str, str]
    factors: Floats
    a_us: Floats
    b_us: Floats
    crossings: tuple[Crossing, ...]

    def __post_init__(self) -> None:
        Checked.__post_init__(self)
        n = len(self.factors)
        if (
            n < 2
            or any(column.shape != (n,) for column in (self.factors, self.a_us, self.b_us))
            or self.factors[0] <= 0
        ):
            raise self.refusal("factors, a_us and b_us must be of one length, and factors positive")

    def sentences(self) -> tuple[str, ...]:
        """Return a line for each crossing, or the one that there is none."""
        if not self.crossings:
            low = self.factors[0]
            high = self.factors[-1]
            sides = _slower(self.a_us, self.b_us)
            if sides.any():
                better = f"{self.names[int(sides.sum() > 0)]} is never worse"
            else:
                better = "both are equal"
            return (f"no crossing between {low:.4g} and {high:.4g} times {self.parameter}: {better}",)
        sentences = []
        for crossing in self.crossings:
            below = f"{crossing.better_below} is better below {crossing.factor:.4g} times {self.parameter}"
            if crossing.value is None:
                value = ""
            else:
                value = f" ({with_unit(self.parameter, crossing.value)})"
            sentences.append(f"{below}{value}, {crossing.better_above} above")
        return tuple(sentences)

    def records(self) -> list[dict[str, Any]]:
        """Return a row of plain values for each factor."""
        names = ("factor", *(f"{name}_us" for name in self.names))
        columns = (self.factors, self.a_us, self.b_us)
        return [dict(zip(names, row, strict=True)) for row in np.stack(columns, axis=1).tolist()]

    def table(self) -> Any:
        """Return crossings, and makespans at every octave, as a table of texts."""
        better = ("equal", self.names[1], self.names[0])  # by the sign of the difference: 0, 1, -1
        points = zip(self.factors, self.a_us, self.b_us, _slower(self.a_us, self.b_us), strict=True)
        rows = [(f"{factor:.4g}", format_time(a), format_time(b), better[side]) for factor, a, b, side in points]
        headings = (f"{self.parameter} times", *self.names, "better")
        shown = rows[:: max(1, (len(rows) - 1) // 12)]
        return table_of(f"{self.graph} on {self.cluster}", headings, shown, note=self.sentences())


def _of(plan: Schedule | str | Scheduler, graph: OpGraph, cluster: Target) -> Schedule | str | Scheduler:
    """Return a schedule of the graph, or of the graph as measured on the target; return a scheduler unchanged."""
    if not isinstance(plan, Schedule):
        return plan
    with suppress(ScheduleError):
        return account_for(plan, bind(graph, cluster)[0], plan.scheduler)
    return account_for(plan, graph, plan.scheduler)


def breakeven(
    parameter: str,
    plan_a: Schedule | str | Scheduler,
    plan_b: Schedule | str | Scheduler,
    cluster: Target,
    *,
    cost: CostModel | None = None,
    graph: OpGraph | None = None,
) -> BreakEven:
    """Find the values of a parameter at which the better one of two plans changes.

    Parameters
    ----------
    parameter
        One that takes factors, as `WhatIf.set` does: ``"link.bandwidth"``, ``"overhead.launch"``, ...
    plan_a, plan_b
        Schedules, which stay unchanged; or schedulers by name or function, which make a new schedule for every value.
    cluster, cost
        As in `simulate`.
    graph
        The graph that schedulers get, and that schedules must be of; by default the other schedule's graph.

    Returns
    -------
    BreakEven

    Raises
    ------
    WhatIfError
        If the parameter takes no factors or is 0, or two schedulers come without a graph.
    UnknownNameError
        If no parameter or scheduler has this name.
    ScheduleError
        If a schedule is of another graph than `graph`.
    ScheduleError, DeadlockError, ClusterError
        As `simulate` does.

    Notes
    -----
    Both are simulated with 49 factors from 1/64 to 64, evenly spaced in their logarithms. Where the better schedule
    differs from the better one at the last point that had one, the crossing is narrowed down to 1e-6 of its factor. So
    two crossings between neighbours of the grid are missed. Makespans within 1e-9 are equal: where both schedules are
    equal over a stretch there is no crossing, unless the better schedule differs before and after it; then the crossing
    is where the stretch ends. Schedules that are made for every value may differ from value to value and cross in a
    jump. Edges with an exact `transfer` do not depend on links.

    A fork both of whose sides take 50 us: on one device 100 us, on two 50 us and a copy of 20,000 bytes. They are even
    at 400 bytes per us:

    >>> import simsched as ss
    >>> graph = ss.OpGraph([ss.Operator("a", time=50.0), ss.Operator("b", time=50.0), ss.Operator("join", time=0.0)],
    ...                    [ss.Edge("a", "join"), ss.Edge("b", "join", nbytes=20_000)])
    >>> cluster = ss.Cluster.preset("k80", 2).without_overheads().replace_links(bandwidth=1600.0, latency=0.0)
    >>> one = ss.schedule(graph, cluster, "sequential")
    >>> two = ss.Schedule(graph, [ss.Placement("a"), ss.Placement("b", "gpu1"), ss.Placement("join")])
    >>> breakeven("link.bandwidth", one, two, cluster).sentences()
    ('sequential is better below 0.25 times link.bandwidth (0.4 GB/s), custom above',)
    """
    parameter = full_name(parameter)
    graphs = [*([] if graph is None else [graph]), *(p.graph for p in (plan_a, plan_b) if isinstance(p, Schedule))]
    if not graphs:
        raise WhatIfError("two schedulers alone do not say what they schedule: give `graph`")
    if graph is not None:
        plan_a, plan_b = (_of(plan, graph, cluster) for plan in (plan_a, plan_b))
    questions = [
        what_if(plan, cluster, cost=cost)
        if isinstance(plan, Schedule)
        else what_if(graphs[0], cluster, True, scheduler=plan, cost=cost)
        for plan in (plan_a, plan_b)
    ]
    names = [plan.scheduler if isinstance(plan, Schedule) else scheduler_name(plan) for plan in (plan_a, plan_b)]
    if names[0] == names[1]:
        names[1] += " (2)"
    value = value_of(questions[0], parameter)
    if value == 0:
        raise WhatIfError(f"{parameter} is 0 and stays so under any factor: change it to something first")
    factors = np.exp(np.linspace(-log(_LARGEST), log(_LARGEST), _POINTS))
    factors[0] = 1 / _LARGEST
    factors[-1] = _LARGEST

    def makespans(at: Sequence[float]) -> Floats:
        return np.array([[question.set(parameter, factor).makespan for factor in at] for question in questions])

    us = makespans(factors.tolist())
    sides = _slower(*us)
    decided = np.flatnonzero(sides)
    crossings = []
    for i, j in zip(decided[:-1].tolist(), decided[1:].tolist(), strict=True):
        if sides[i] == sides[j]:
            continue
        low, high = factors[[i, j]].tolist()
        while high / low - 1 > _NARROW:  # at `low` the side of j is not the better one, at `high` it is
            middle = sqrt(low * high)
            if _slower(*makespans([middle]))[0] == sides[j]:
                low = low
                high = middle
            else:
                low = middle
                high = high
        at = exp((log(low) + log(high)) / 2)
        below, above = (names[int(sides[k] > 0)] for k in (i, j))
        crossings.append(Crossing(at, None if value is None else at * value, below, above))
    return BreakEven(
        questions[0].graph.name,
        questions[0].cluster.name,
        parameter,
        value,
        (names[0], names[1]),
        factors,
        us[0],
        us[1],
        tuple(crossings),
    )


def _slower(a_us: Floats, b_us: Floats) -> Indices:
    """Return 1 where the first plan takes longer, -1 where the second does, 0 where both are alike but for rounding."""
    over = a_us - b_us
    return np.where(np.abs(over) <= _ALIKE * np.maximum(a_us, b_us), 0, np.sign(over)).astype(np.int64)
