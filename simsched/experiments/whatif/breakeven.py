"""`breakeven`: at which values of a parameter the better one of two plans changes."""

from collections.abc import Callable
from dataclasses import dataclass
from math import exp, log, sqrt
from typing import Any, Final

import numpy as np

from simsched.base.codec import Checked
from simsched.base.errors import WhatIfError
from simsched.base.units import format_time
from simsched.experiments.result import Finding, table_of
from simsched.experiments.whatif.changes import with_unit
from simsched.experiments.whatif.question import Question, value_of
from simsched.experiments.whatif.world import Ground
from simsched.model import CostModel, Floats, OpGraph, Schedule, Target
from simsched.schedulers import Scheduler, scheduler_name

_LARGEST, _POINTS = 64.0, 49  # factors of the grid: four for each doubling
_NARROW: Final = 1e-6  # relative width to which a crossing is narrowed down
_ALIKE: Final = 1e-9  # makespans that differ less, relatively, are equal


@dataclass(frozen=True, slots=True)
class Crossing(Checked):
    """Where the better plan changes.

    Parameters
    ----------
    factor
        Of the parameter as it is.
    value
        Of the parameter there, in library units; None where it is not one number.
    better_below, better_above
        Names of the plans with the lesser makespan.
    """

    SUBJECT, ERROR = "a crossing", WhatIfError
    factor: float
    value: float | None
    better_below: str
    better_above: str


@dataclass(frozen=True, repr=False, eq=False)
class BreakEven(Finding):
    """Makespans of two plans over a parameter, and where they cross; prints as a table.

    It plots the makespans over the parameter; the crossings stand below.

    Parameters
    ----------
    graph, cluster
        Names of what ran, and on what.
    parameter, value
        What was varied, and what it is in library units, None if it is not one number.
    names
        Of the two plans.
    factors
        Of the parameter, rising, shape (n,).
    a_us, b_us
        Makespans in us, shape (n,).
    crossings
        By rising factor.
    """

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
        if n < 2 or any(each.shape != (n,) for each in (self.factors, self.a_us, self.b_us)) or self.factors[0] <= 0:
            raise self.refusal("factors, a_us and b_us must be of one length, and factors positive")

    def sentences(self) -> tuple[str, ...]:
        """Return a line for each crossing, or the one that there is none."""
        if not self.crossings:
            low, high = self.factors[0], self.factors[-1]
            sides = np.sign(_differences(self.a_us, self.b_us))
            better = "both are equal" if not sides.any() else f"{self.names[int(sides.sum() > 0)]} is never worse"
            return (f"no crossing between {low:.4g} and {high:.4g} times {self.parameter}: {better}",)
        return tuple(
            f"{each.better_below} is better below {each.factor:.4g} times {self.parameter}"
            f"{'' if each.value is None else f' ({with_unit(self.parameter, each.value)})'}, {each.better_above} above"
            for each in self.crossings
        )

    def records(self) -> list[dict[str, Any]]:
        """Return a row of plain values for each factor."""
        names, columns = ("factor", *(f"{name}_us" for name in self.names)), (self.factors, self.a_us, self.b_us)
        return [dict(zip(names, row, strict=True)) for row in np.stack(columns, axis=1).tolist()]

    def table(self) -> Any:
        """Return crossings, and makespans at every octave, as a table of texts."""
        better = ("equal", self.names[1], self.names[0])  # by the sign of the difference: 0, 1, -1
        sides = np.sign(_differences(self.a_us, self.b_us)).astype(int).tolist()
        points = zip(self.factors.tolist(), self.a_us.tolist(), self.b_us.tolist(), sides, strict=True)
        rows = [(f"{factor:.4g}", format_time(a), format_time(b), better[side]) for factor, a, b, side in points]
        headings = (f"{self.parameter} times", *self.names, "better")
        shown = rows[:: max(1, (len(rows) - 1) // 12)]
        return table_of(f"{self.graph} on {self.cluster}", headings, shown, note="\n".join(self.sentences()))


def breakeven(
    parameter: str, plan_a: Schedule | str | Scheduler, plan_b: Schedule | str | Scheduler, cluster: Target, *,
    cost: CostModel | None = None, graph: OpGraph | None = None,
) -> BreakEven:  # fmt: skip
    """Find the values of a parameter at which the better one of two plans changes.

    Parameters
    ----------
    parameter
        One that takes factors, as `WhatIf.set` does: ``"link.bandwidth"``, ``"overhead.launch"``, ...
    plan_a, plan_b
        Schedules, which stay as they are; or schedulers by name or function, which schedule anew for every value.
    cluster, cost
        As in `simulate`.
    graph
        What schedulers schedule; by default that of the other plan.

    Returns
    -------
    BreakEven

    Raises
    ------
    WhatIfError
        If the parameter takes no factors or is 0, or two schedulers come without a graph.
    UnknownNameError
        If there is no such parameter or scheduler.
    ScheduleError, DeadlockError, ClusterError
        As `simulate` does.

    Notes
    -----
    Both are simulated with 49 factors from 1/64 to 64, evenly spaced in their logarithms. Where another plan is better
    than at the last point at which one was, the place is narrowed down to 1e-6 of it. So two crossings between
    neighbours of the grid are missed. Makespans within 1e-9 are equal: where both plans are equal over a stretch there
    is no crossing, unless one was better before and the other is behind, which is then said to cross where the stretch
    ends. Plans made anew may differ from value to value and cross in a jump. Edges with an exact `transfer` take no
    notice of links.

    A fork of which both sides take 50 us: on one device 100 us, on two 50 us and a copy of 20,000 bytes. They are even
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
    graphs = [*([] if graph is None else [graph]), *(p.graph for p in (plan_a, plan_b) if isinstance(p, Schedule))]
    if not graphs:
        raise WhatIfError("two schedulers alone do not say what they schedule: give `graph`")
    asked = [
        Question(Ground(each, cluster, cost=cost))
        if isinstance(each, Schedule)
        else Question(Ground(graphs[0], cluster, each, cost=cost), rescheduled=True)
        for each in (plan_a, plan_b)
    ]
    names = [plan.scheduler if isinstance(plan, Schedule) else scheduler_name(plan) for plan in (plan_a, plan_b)]
    if names[0] == names[1]:
        names[1] += " (2)"
    value = value_of(asked[0], parameter)
    if value == 0:
        raise WhatIfError(f"{parameter} is 0 and stays so under any factor: change it to something first")
    factors = np.exp(np.linspace(-log(_LARGEST), log(_LARGEST), _POINTS))
    factors[0], factors[-1] = 1 / _LARGEST, _LARGEST

    def both(factor: float) -> tuple[float, float]:
        a, b = (each.set(parameter, factor).makespan for each in asked)
        return a, b

    us = np.array([both(factor) for factor in factors.tolist()])  # (n_factors, 2)
    sides = np.sign(_differences(us[:, 0], us[:, 1]))
    decided = np.flatnonzero(sides)
    crossings = []
    for i, j in zip(decided[:-1].tolist(), decided[1:].tolist(), strict=True):
        if sides[i] != sides[j]:
            at = _narrowed(both, float(factors[i]), float(factors[j]), float(sides[j]))
            below, above = (names[int(sides[k] > 0)] for k in (i, j))
            crossings.append(Crossing(at, None if value is None else at * value, below, above))
    return BreakEven(
        asked[0].graph.name, asked[0].cluster.name, parameter, value, (names[0], names[1]), factors, us[:, 0].copy(),
        us[:, 1].copy(), tuple(crossings),
    )  # fmt: skip


def _differences(a_us: Floats, b_us: Floats) -> Floats:
    """Return by how much the first plan takes longer, 0 where both take as long but for rounding."""
    over = a_us - b_us
    return np.where(np.abs(over) <= _ALIKE * np.maximum(a_us, b_us), 0.0, over)


def _narrowed(both: Callable[[float], tuple[float, float]], low: float, high: float, side: float) -> float:
    """Return the factor from which on a side is the better one: at `low` it is not, at `high` it is."""
    while high / low - 1 > _NARROW:
        middle = sqrt(low * high)
        a, b = both(middle)
        if np.sign(_differences(np.array(a), np.array(b))) == side:
            high = middle
        else:
            low = middle
    return exp((log(low) + log(high)) / 2)
