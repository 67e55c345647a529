"""Which of several plans is better: `breakeven` over a parameter, `robust` where operator times vary."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import exp, log, sqrt
from typing import Annotated, Any, Final

import numpy as np

from simsched.base.codec import Checked, Filled
from simsched.base.errors import ScheduleError, SimulationError, WhatIfError
from simsched.base.units import format_time
from simsched.experiments.evaluation import evaluate
from simsched.experiments.result import Finding, table_of
from simsched.experiments.rows import Sampling, free_name
from simsched.experiments.whatif.changes import full_name, with_unit
from simsched.experiments.whatif.whatif import value_of, what_if
from simsched.model import CostModel, Floats, Indices, OpGraph, Schedule, Target
from simsched.model.costmodel import bare, upon
from simsched.rewriting import account_for
from simsched.schedulers import Scheduler, scheduler_name
from simsched.simulator.workload import Jitter

# factors of the grid: four for each doubling
_LARGEST = 64.0
_POINTS = 49
_NARROW: Final = 1e-6  # relative width to which a crossing is narrowed down
_ALIKE: Final = 1e-9  # makespans that differ less, relatively, are equal
_PERCENTILES: Final = (50, 95, 99)


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
        return account_for(plan, upon(cluster, graph)[0], plan.scheduler)
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


@dataclass(frozen=True, repr=False, eq=False)
class Robustness(Finding):
    """Schedules under operator times that vary; prints as a table, plots a box for each.

    Parameters
    ----------
    graph, cluster
        Names of the graph and the cluster.
    sampling
        How makespans were drawn.
    samples
        The makespans by schedule, in us, in the order of the draws.
    """

    VIEW = "robustness"
    FORMAT = "simsched.robustness"
    DERIVED = ("rows",)
    sampling: Sampling
    samples: Mapping[str, Annotated[tuple[float, ...], Filled()]]

    def __post_init__(self) -> None:
        Checked.__post_init__(self)
        if not self.samples:
            raise self.refusal("there must be samples of a schedule")

    def best(self, percentile: float = 95) -> str:
        """Return the name of the schedule with the least percentile; on ties the first.

        Raises
        ------
        SimulationError
            If the percentile is not in [0, 100].
        """
        if not 0 <= percentile <= 100:
            raise SimulationError(f"a percentile is a number from 0 to 100, not {percentile!r}")
        return min(self.samples, key=lambda name: float(np.percentile(self.samples[name], percentile)))

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Percentiles of the makespans in us of each schedule, in the order given."""
        return [
            {"name": name} | {f"p{q}_us": float(np.percentile(us, q)) for q in _PERCENTILES}
            for name, us in self.samples.items()
        ]

    def records(self) -> list[dict[str, Any]]:
        """Return the rows."""
        return self.rows

    def table(self) -> Any:
        """Return the rows as a table of texts; the best by p95 is set off."""
        headings = ("schedule", *(f"p{q}" for q in _PERCENTILES))
        rows = [(name, *map(format_time, us)) for name, *us in map(dict.values, self.rows)]
        best = list(self.samples).index(self.best())
        return table_of(f"{self.graph} on {self.cluster}", headings, rows, note=str(self.sampling), best=best)


def robust(
    plans: Mapping[str, Schedule] | Sequence[Schedule],
    cluster: Target,
    *,
    jitter: Jitter,
    samples: int,
    rng: np.random.Generator | int,
    workers: int = 1,
    cost: CostModel | None = None,
) -> Robustness:
    """Simulate schedules many times with operator times that vary, all with the same draws.

    Parameters
    ----------
    plans
        Schedules by name, or one after the other: then they have their schedulers' names.
    cluster, jitter, cost
        As in `simulate`.
    samples
        Simulations of each schedule.
    rng
        Generator or seed, from which one seed is drawn for all schedules.
    workers
        Threads that simulate at a time; the result is the same for any number.

    Returns
    -------
    Robustness
        Draw i of one schedule has the same operator times as draw i of any other, as long as they run the same graph. A
        schedule that runs a rewritten graph has its own draws.

    Raises
    ------
    WhatIfError
        If there are no schedules.
    SimulationError
        If `jitter`, `samples`, `workers` or `rng` is missing or out of range.
    ScheduleError, DeadlockError, ClusterError
        As `simulate` does.

    Notes
    -----
    O(samples E log E) for each schedule of E instructions.

    >>> import simsched as ss
    >>> graph = ss.OpGraph([ss.Operator("a", time=10.0), ss.Operator("b", time=10.0)])
    >>> cluster = ss.Cluster.preset("a100").without_overheads()
    >>> plans = [ss.schedule(graph, cluster, name) for name in ("sequential", "lios")]
    >>> found = robust(plans, cluster, jitter=0.1, samples=200, rng=0)
    >>> found.best(percentile=99)
    'lios'
    """
    if isinstance(plans, Mapping):
        schedules: dict[str, Schedule] = dict(plans)
    else:
        schedules = {}
    for plan in () if isinstance(plans, Mapping) else plans:
        schedules[free_name(plan.scheduler, schedules)] = plan
    if not schedules:
        raise WhatIfError("there are no plans to compare: give one or more schedules")
    sampling = Sampling.of(samples, jitter, rng, workers)
    seed = int(np.random.default_rng(rng).integers(2**63))
    how: dict[str, Any] = {"jitter": jitter, "seed": seed, "samples": samples, "workers": workers}
    drawn = {name: evaluate(plan, cluster, cost, **how).samples for name, plan in schedules.items()}
    values = {name: tuple(one.values.tolist()) for name, one in drawn.items() if one is not None}
    return Robustness(next(iter(schedules.values())).graph.name, bare(cluster).name, sampling, values)
