"""`robust`: which of several schedules is the best one when operator times vary from run to run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, cast

import numpy as np

from simsched.base.codec import Checked, Filled
from simsched.base.errors import SimulationError, WhatIfError
from simsched.base.units import format_time
from simsched.experiments.comparison import Sampling, unused
from simsched.experiments.evaluate import evaluate
from simsched.experiments.result import Finding, table_of
from simsched.model import CostModel, Schedule
from simsched.model.calibrated import Target, bare
from simsched.simulator import Makespans
from simsched.simulator.workload import Jitter

PERCENTILES: Final = (50, 95, 99)


@dataclass(frozen=True, repr=False, eq=False)
class Robustness(Finding):
    """Schedules under operator times that vary; prints as a table, plots a box for each.

    Parameters
    ----------
    graph, cluster
        Names of what ran, and on what.
    sampling
        How makespans were drawn.
    samples
        The makespans by schedule, in us, in the order of the draws.
    """

    FORMAT, DERIVED = "simsched.robustness", ("rows",)
    sampling: Sampling
    samples: Mapping[str, Annotated[tuple[float, ...], Filled()]]

    def __post_init__(self) -> None:
        Checked.__post_init__(self)
        if not self.samples:
            raise self.refusal("there must be samples of a schedule")

    def best(self, percentile: float = 95) -> str:
        """Return the name of the schedule with the least percentile; of equal ones the first.

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
            {"name": name} | {f"p{q}_us": float(np.percentile(us, q)) for q in PERCENTILES}
            for name, us in self.samples.items()
        ]

    def records(self) -> list[dict[str, Any]]:
        """Return the rows."""
        return self.rows

    def table(self) -> Any:
        """Return the rows as a table of texts; the best by p95 is set off."""
        headings = ("schedule", *(f"p{q}" for q in PERCENTILES))
        rows = [(name, *map(format_time, us)) for name, *us in map(dict.values, self.rows)]
        best = list(self.samples).index(self.best())
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
        Draw i of one schedule has the operator times of draw i of any other, as long as they run the same graph. A
        schedule that runs a rewritten graph has draws of its own.

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
    >>> found.best(percentile=99)
    'lios'
    """
    found: dict[str, Schedule] = dict(plans) if isinstance(plans, Mapping) else {}
    for plan in () if isinstance(plans, Mapping) else plans:
        found[unused(plan.scheduler, found)] = plan
    if not found:
        raise WhatIfError("there are no plans to compare: give one or more schedules")
    sampling = Sampling.of(samples, jitter, rng, workers)
    seed = int(np.random.default_rng(rng).integers(2**63))
    how: dict[str, Any] = {"jitter": jitter, "seed": seed, "samples": samples, "workers": workers}
    drawn = {name: cast(Makespans, evaluate(plan, cluster, cost, **how).samples) for name, plan in found.items()}
    return Robustness(
        next(iter(found.values())).graph.name, bare(cluster).name, sampling,
        {name: tuple(each.values.tolist()) for name, each in drawn.items()},
    )  # fmt: skip
