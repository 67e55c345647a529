"""Changes of a candidate that runs in stages; the stages of a device never fall along the launch order."""

from collections.abc import Callable
from typing import Final

import numpy as np

from simsched.schedulers.search.candidate import Candidate, Columns

_GUIDED: Final = 0.3  # how often the operator to change is one of the critical path
Move = Callable[[Candidate, int, np.random.Generator], None]


class StageMoves:
    """Changes a candidate by one move at a time.

    Parameters
    ----------
    candidate
        What it changes, in place.
    """

    def __init__(self, candidate: Candidate) -> None:
        self._candidate = candidate

    def change(self, path: Columns, _temperature: float, rng: np.random.Generator) -> None:
        """Make a move around an operator, perhaps one of the critical path."""
        guided = len(path) > 0 and rng.random() < _GUIDED
        op = int(path[rng.integers(len(path))]) if guided else int(rng.integers(self._candidate.n))
        MOVES[int(rng.integers(len(MOVES)))](self._candidate, op, rng)

    def heed(self, accepted: float) -> None:
        """Go on as before, whatever was accepted."""


def restage(c: Candidate, op: int, rng: np.random.Generator) -> None:
    """Put the operator on any device and stream, in the stage before or behind its new place, or in one of its own."""
    device = int(rng.integers(c.n_devices)) if rng.random() < 0.5 else int(c.device[op])
    first, last = c.window(op)
    c.put(op, int(rng.integers(first, last + 1)))
    c.set_lane(op, (device, int(rng.integers(c.streams))))
    place = int(c.place[op])
    on_device = c.device[c.order] == device
    before = c.order[:place][on_device[:place]]
    behind = c.order[place + 1 :][on_device[place + 1 :]]
    which = int(rng.integers(3))
    if which == 0 and len(before):
        c.stage[op] = c.stage[before[-1]]
    elif which == 1 and len(behind):
        c.stage[op] = c.stage[behind[0]]
    else:
        c.stage[op] = c.stage[before[-1]] + 1 if len(before) else 0
        c.stage[behind] += 2  # they may have been of one stage with those before


def regroup(c: Candidate, op: int, rng: np.random.Generator) -> None:
    """Put the operator into another group of its stage."""
    c.stream[op] = rng.integers(c.streams)


def merge(c: Candidate, op: int, _rng: np.random.Generator) -> None:
    """Make one of the operator's stage and the next of its device; what depends on each other shares a group."""
    device, stage = int(c.device[op]), int(c.stage[op])
    later = (c.device == device) & (c.stage > stage)
    if not later.any():
        return
    joining = np.flatnonzero(later & (c.stage == c.stage[later].min()))
    c.stage[joining] = stage
    for i in joining[np.argsort(c.place[joining])].tolist():
        beside = [p for p in c.producers[i] if c.device[p] == device and c.stage[p] == stage]
        if beside:
            c.stream[i] = c.stream[beside[0]]


def split(c: Candidate, op: int, _rng: np.random.Generator) -> None:
    """Begin a new stage with the operator."""
    c.stage[(c.device == c.device[op]) & (c.place >= c.place[op])] += 1


MOVES: Final[tuple[Move, ...]] = (restage, regroup, merge, split)
