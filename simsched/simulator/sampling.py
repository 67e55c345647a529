"""Many simulations at once: Monte-Carlo over the jitter of operator times, and many schedules of one graph."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simsched.cluster import Cluster
from simsched.costmodel import CostModel
from simsched.graph.columns import Floats
from simsched.program import Program
from simsched.schedules import Schedule
from simsched.simulator.simulate import simulate
from simsched.simulator.workload import Jitter


@dataclass(frozen=True, slots=True)
class Makespans:
    """Simulated makespans in us, in the order in which they were drawn; shape (n,)."""

    values: Floats

    def __len__(self) -> int:
        return len(self.values)

    def percentile(self, q: float) -> float:
        """Return the makespan in us that `q` per cent of the samples do not exceed (linear interpolation)."""
        return float(np.percentile(self.values, q))

    @property
    def p50(self) -> float:
        """Median in us."""
        return self.percentile(50)

    @property
    def p95(self) -> float:
        """95th percentile in us."""
        return self.percentile(95)

    @property
    def p99(self) -> float:
        """99th percentile in us."""
        return self.percentile(99)

    @property
    def mean(self) -> float:
        """Mean in us."""
        return float(self.values.mean())

    @property
    def std(self) -> float:
        """Standard deviation in us."""
        return float(self.values.std())


def simulate_many(
    schedule: Schedule | Program,
    cluster: Cluster,
    n: int,
    cost: CostModel | None = None,
    *,
    jitter: Jitter,
    rng: np.random.Generator | int,
    workers: int = 1,
) -> Makespans:
    """Return the makespans of `n` simulations with operator times drawn anew for each."""
    del workers
    generator = np.random.default_rng(rng)
    return Makespans(
        np.array([simulate(schedule, cluster, cost, jitter=jitter, rng=generator).makespan for _ in range(n)])
    )


def simulate_batch(
    schedules: Sequence[Schedule | Program], cluster: Cluster, cost: CostModel | None = None, *, workers: int = 1
) -> Floats:
    """Return the makespan in us of each schedule, shape (n_schedules,)."""
    del workers
    return np.array([simulate(schedule, cluster, cost).makespan for schedule in schedules])
