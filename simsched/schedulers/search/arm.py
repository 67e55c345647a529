"""A search from one start: annealing with changes that the simulator judges."""

from collections.abc import Callable
from math import exp, inf
from typing import Final, NamedTuple

import numpy as np
from numpy.random import Generator

from simsched.model import Cluster, CostModel, Ints, Schedule
from simsched.schedulers.protocol import Deadline, Tools
from simsched.schedulers.search.candidate import Candidate, change_stages
from simsched.schedulers.search.walk import Walk

HOT: Final = 4e-3
MILD: Final = 1e-3
COLD: Final = 1e-4
"""Temperatures as parts of the best makespan: at the start, at the start of a trial, at the end."""

_LOOK: Final = 100  # evaluations between two looks at the critical path and at how many changes are accepted
_STILL: Final = 100  # changes in a row that change nothing: there is nothing to change
_STREAMS: Final = 8  # streams of a device at least, or as many as the start has


class Start(NamedTuple):
    """A schedule to begin from, its scheduler, its simulated makespan in us, and whether its execution is unchanged."""

    name: str
    plan: Schedule
    makespan: float
    given: bool


class Arm:
    """A candidate under change, and its best state so far.

    Parameters
    ----------
    start
        The start that it comes from.
    cluster, cost, tools, rng
        As the scheduler has them.
    deadline
        When it has to stop.

    Attributes
    ----------
    makespan, best
        Makespans in us of the candidate as accepted last and at best.
    accepted
        Changes taken.
    idle
        Whether the last annealing found nothing to change.
    """

    def __init__(
        self, start: Start, cluster: Cluster, cost: CostModel, tools: Tools, rng: Generator, deadline: Deadline
    ) -> None:
        self.name = start.name
        self._rng = rng
        self._deadline = deadline
        plan = start.plan
        n_streams = np.bincount(np.unique(plan.device * np.int64(2**31) + plan.stream) >> 31)  # on each device
        self.candidate = candidate = Candidate(plan, cluster, max(_STREAMS, int(n_streams.max())))
        self._evaluator = tools.evaluator(plan, cluster, cost)
        self._walk = None
        if not candidate.staged:
            captured = plan.execution == "graph"
            self._walk = Walk(candidate.rows[:4], candidate.streams, plan.graph, cluster, cost, captured=captured)
        self.accepted = 0
        self.idle = False
        self._now = candidate.rows.copy()
        self._kept = candidate.rows.copy()
        self.makespan = self.best = self._evaluate()

    def schedule(self) -> Schedule:
        """Return the best as a schedule."""
        self.candidate.rows[:] = self._kept
        self._evaluate()
        return self._evaluator.schedule()

    def anneal(self, evaluations: int, hot: float, cold: float, report: Callable[[int, float], None]) -> int:
        """Change the best candidate so far step by step, accepting ever less loss.

        Parameters
        ----------
        evaluations
            How many.
        hot, cold
            Temperature at first and at last, as parts of the best makespan.
        report
            Called now and then with the evaluations so far and the best makespan in us.

        Returns
        -------
        int
            The evaluations it took.
        """
        rows = self.candidate.rows
        rng = self._rng
        spent = 0
        look = 0
        still = 0
        accepted = 0
        path = np.zeros(0, np.int64)
        rows[:] = self._now[:] = self._kept
        self.makespan = self.best
        while spent < evaluations and still < _STILL and self.best > 0.0 and not self._deadline.over():
            if spent >= look:
                report(spent, self.best)
                if look and self._walk is not None:
                    self._walk.adapt((self.accepted - accepted) / _LOOK)
                look = spent + _LOOK
                accepted = self.accepted
                path = self._critical_path()
                spent += 1
                continue
            temperature = self.best * hot * (cold / hot) ** (spent / evaluations)
            if self._walk is None:
                change_stages(self.candidate, path, rng)
            else:
                self._walk.change(path, temperature, rng)
            if np.array_equal(rows, self._now):
                still += 1
                continue
            still = 0
            spent = spent + 1
            makespan = self._evaluate()
            if makespan <= self.makespan or (
                makespan < inf and rng.random() < exp((self.makespan - makespan) / temperature)
            ):
                self.makespan = makespan
                self._now[:] = rows
                self.accepted += 1
                if makespan < self.best:
                    self.best = makespan
                    self._kept[:] = rows
            else:
                rows[:] = self._now
        self.idle = still >= _STILL or self.best == 0.0
        return spent

    def _evaluate(self) -> float:
        """Return the makespan in us of the candidate, inf if it cannot run."""
        rows = self.candidate.rows
        return self._evaluator.replace(rows[0], *rows[2:].take(rows[0], axis=1))

    def _critical_path(self) -> Ints:
        """Return the operators of the critical path of the candidate as accepted last, in order of time."""
        self._evaluate()
        names = self._evaluator.trace().critical_path().operators
        index = self._evaluator.graph.index
        return np.array([index[name] for name in names], np.int64)
