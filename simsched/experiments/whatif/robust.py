"""Which of several schedules stays best where operator times vary: `robust`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

import numpy as np

from simsched.base.codec import Checked, Filled
from simsched.base.errors import SimulationError, WhatIfError
from simsched.base.units import format_time
from simsched.experiments.evaluation import evaluate
from simsched.experiments.result import Finding, table_of
from simsched.experiments.rows import Sampling, free_name
from simsched.model import CostModel, Schedule, Target
from simsched.model.costmodel import bare
from simsched.simulator.demand import Jitter

_PERCENTILES: Final = (50, 95, 99)


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
