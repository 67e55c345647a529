"""Simulated annealing of a candidate, judged by the simulated makespan."""

from collections.abc import Callable
from math import exp, inf
from typing import TYPE_CHECKING, Final

import numpy as np

from simsched.model.schedule import Schedule
from simsched.schedulers.deadline import Deadline
from simsched.schedulers.search.candidate import Candidate, Columns
from simsched.schedulers.search.stages import StageMoves
from simsched.schedulers.search.walk import Walk

if TYPE_CHECKING:
    from simsched.simulator import Evaluator

HOT: Final = 4e-3
MILD: Final = 1e-3
COLD: Final = 1e-4
"""Temperatures as parts of the best makespan: at the start, at the start of a trial, at the end."""
_LOOK: Final = 100  # evaluations between two looks at the critical path and at how many changes are accepted
_STILL: Final = 100  # changes in a row that change nothing: there is nothing to change


class Arm:
    """A candidate on its way, and the best it has been.

    Parameters
    ----------
    name
        The start it came from.
    evaluator, candidate, moves
        What simulates it, what it is, and what changes it.

    Attributes
    ----------
    makespan, best
        In us, of the candidate as accepted last and at best.
    accepted
        Changes taken.
    idle
        Whether the last annealing found nothing to change.
    """

    def __init__(self, name: str, evaluator: "Evaluator", candidate: Candidate, moves: Walk | StageMoves) -> None:
        self.name, self.candidate = name, candidate
        self._evaluator, self._moves = evaluator, moves
        self.accepted, self.idle = 0, False
        self._now, self._kept = candidate.rows.copy(), candidate.rows.copy()
        self.makespan = self.best = self._evaluate()

    def restart(self) -> None:
        """Go on from the best."""
        self.candidate.rows[:] = self._now[:] = self._kept
        self.makespan = self.best

    def schedule(self) -> Schedule:
        """Return the best as a schedule."""
        self.candidate.rows[:] = self._kept
        self._evaluate()
        return self._evaluator.schedule()

    def anneal(
        self,
        evaluations: int,
        hot: float,
        cold: float,
        rng: np.random.Generator,
        deadline: Deadline,
        tell: Callable[[int, float], None],
    ) -> int:
        """Change the candidate step by step, with ever less patience for what is worse.

        Parameters
        ----------
        evaluations
            How many.
        hot, cold
            Temperature at first and at last, as parts of the best makespan.
        tell
            Called now and then with the evaluations so far and the best makespan in us.

        Returns
        -------
        int
            The evaluations it took.
        """
        rows, spent, look, still, accepted = self.candidate.rows, 0, 0, 0, 0
        path = np.zeros(0, np.int64)
        while spent < evaluations and still < _STILL and self.best > 0.0 and not deadline.over():
            if spent >= look:
                tell(spent, self.best)
                if look:
                    self._moves.heed((self.accepted - accepted) / _LOOK)
                look, accepted, path = spent + _LOOK, self.accepted, self._critical_path()
                spent += 1
                continue
            temperature = self.best * hot * (cold / hot) ** (spent / evaluations)
            self._moves.change(path, temperature, rng)
            if np.array_equal(rows, self._now):
                still += 1
                continue
            still, spent = 0, spent + 1
            found = self._evaluate()
            if found <= self.makespan or (found < inf and rng.random() < exp((self.makespan - found) / temperature)):
                self.makespan, self._now[:] = found, rows
                self.accepted += 1
                if found < self.best:
                    self.best, self._kept[:] = found, rows
            else:
                rows[:] = self._now
        self.idle = still >= _STILL or self.best == 0.0
        return spent

    def _evaluate(self) -> float:
        """Return the makespan in us of the candidate as it is, inf if it cannot run."""
        makespan = self._evaluator.replace(*self.candidate.columns())
        self._evaluator.keep()
        return makespan

    def _critical_path(self) -> Columns:
        """Return the operators of the critical path of the candidate as accepted last, in order of time."""
        self._evaluate()
        names = self._evaluator.trace().critical_path().operators
        index = self._evaluator.graph.index
        return np.array([index[name] for name in names], np.int64)
