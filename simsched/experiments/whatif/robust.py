"""`robust`: which of several schedules is the best one when operator times vary from run to run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from simsched.base.codec import Checked
from simsched.base.errors import SimulationError, WhatIfError
from simsched.base.units import format_time
from simsched.experiments.comparison.row import Sampling, unused
from simsched.experiments.evaluate import Conditions, evaluate
from simsched.experiments.result import Finding, table_of
from simsched.model import CostModel, Schedule
from simsched.model.calibrated import Target, bare
from simsched.simulator import Makespans
from simsched.simulator.workload import Jitter


@dataclass(frozen=True, slots=True)
class Robust(Checked):
    """What the makespans of one schedule came to.

    Parameters
    ----------
    name
        Of the schedule.
    p50_us, p95_us, p99_us
        Percentiles of its makespans in us.
    mean_us, std_us
        Mean and standard deviation in us.
    wins
        Part of the draws, in [0, 1], in which it was the quickest; of equal ones the first wins.
    """

    SUBJECT, ERROR = "schedule {0.name!r}", WhatIfError
    name: str
    p50_us: float
    p95_us: float
    p99_us: float
    mean_us: float
    std_us: float
    wins: float


@dataclass(frozen=True, repr=False, eq=False)
class Robustness(Finding):
    """Schedules under operator times that vary; prints as a table, plots a box for each.

    Parameters
    ----------
    graph, cluster
        Names of what ran, and on what.
    rows
        One for each schedule, in the order given.
    sampling
        How makespans were drawn.
    samples
        The makespans by schedule, in us, in the order of the draws.
    """

    FORMAT = "simsched.robustness"
    rows: tuple[Robust, ...]
    sampling: Sampling
    samples: Mapping[str, tuple[float, ...]]

    def __post_init__(self) -> None:
        Checked.__post_init__(self)
        if not self.rows or [row.name for row in self.rows] != list(self.samples) or not all(self.samples.values()):
            raise self.refusal("there must be rows, and samples of each, in the same order")

    def best(self, percentile: float = 95) -> Robust:
        """Return the row of the schedule with the least percentile; of equal ones the first.

        Raises
        ------
        SimulationError
            If the percentile is not in [0, 100].
        """
        if not 0 <= percentile <= 100:
            raise SimulationError(f"a percentile is a number from 0 to 100, not {percentile!r}")
        return min(self.rows, key=lambda row: float(np.percentile(self.samples[row.name], percentile)))

    box_plot = Finding.plot

    def table(self) -> Any:
        """Return the rows as a `rich.table.Table`; the best by p95 is set off."""
        rows = [
            (row.name, *(format_time(us) for us in (row.p50_us, row.p95_us, row.p99_us, row.mean_us, row.std_us)),
             f"{row.wins:.1%}")
            for row in self.rows
        ]  # fmt: skip
        headings = ("schedule", "p50", "p95", "p99", "mean", "std", "wins")
        best = self.rows.index(self.best())
        return table_of(f"{self.graph} on {self.cluster}", headings, rows, note=str(self.sampling), best=best)


def robust(
    plans: Mapping[str, Schedule] | Sequence[Schedule], cluster: Target, *, jitter: Jitter, samples: int,
    rng: np.random.Generator | int, workers: int = 1, cost: CostModel | None = None,
) -> Robustness:  # fmt: skip
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
        Draw i of one schedule has the operator times of draw i of any other, as long as they run the same graph: so
        `wins` compares them run by run. A schedule that runs a rewritten graph has draws of its own.

    Raises
    ------
    WhatIfError
        If there are no plans.
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
    >>> found.best().name, [row.wins for row in found.rows]
    ('lios', [0.0, 1.0])
    """
    found: dict[str, Schedule] = dict(plans) if isinstance(plans, Mapping) else {}
    for plan in () if isinstance(plans, Mapping) else plans:
        found[unused(plan.scheduler, found)] = plan
    if not found:
        raise WhatIfError("there are no plans to compare: give one or more schedules")
    sampling = Sampling.of(samples, jitter, rng, workers)
    conditions = Conditions(jitter, int(np.random.default_rng(rng).integers(2**63)), samples, workers)
    drawn = {name: cast(Makespans, evaluate(plan, cluster, cost, conditions).samples) for name, plan in found.items()}
    quickest = np.array([each.values for each in drawn.values()]).argmin(axis=0)  # (n_samples,)
    rows = [
        Robust(name, each.p50, each.p95, each.p99, each.mean, each.std, float((quickest == i).mean()))
        for i, (name, each) in enumerate(drawn.items())
    ]
    return Robustness(
        next(iter(found.values())).graph.name, bare(cluster).name, tuple(rows), sampling,
        {name: tuple(each.values.tolist()) for name, each in drawn.items()},
    )  # fmt: skip
