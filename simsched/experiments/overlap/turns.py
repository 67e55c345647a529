"""Gains over a parameter of the workload, and the values at which overlaps begin or end to pay."""

import re
from collections.abc import Sequence
from itertools import pairwise
from math import exp, log
from typing import Final

from simsched.base.errors import WhatIfError
from simsched.experiments.overlap.results import Point, Turn
from simsched.experiments.overlap.trials import Load, TrialBench, halves_of

_OVER: Final = re.compile(r"([A-Za-z_]\w*)=(\d{1,9})(?::(\d{1,9}))?")
_MOST_DOUBLINGS: Final = 30
_SHOWN: Final = 60


def read_over(text: str) -> tuple[str, tuple[int, ...]]:
    """Return a parameter and its values, of a text: the ends of a range, and all powers of two between them.

    >>> read_over("batch=3:20"), read_over("context=512")
    (('batch', (3, 4, 8, 16, 20)), ('context', (512,)))

    Raises
    ------
    WhatIfError
        If the text is none.
    """
    match = _OVER.fullmatch(text.replace(" ", ""))
    if match is None:
        raise WhatIfError(f"over {text[:_SHOWN]!r}: give a parameter and whole numbers, such as batch=1:4096")
    name = match[1]
    low = int(match[2])
    high = int(match[3] or match[2])
    if not 1 <= low <= high:
        raise WhatIfError(f"over {text[:_SHOWN]!r}: the range must rise, from 1 at least")
    inner = [1 << k for k in range(_MOST_DOUBLINGS) if low < 1 << k < high]
    return name, tuple(dict.fromkeys([low, *inner, high]))


def point(bench: TrialBench, halves: Load | None, parameter: str, value: int) -> Point:
    """Return the gains of all overlaps of a graph that was made for a value of a parameter."""
    trials = bench.trials(halves_of(halves, {parameter: value}))
    ranged, _ = bench.ranges(trials)
    gain = {trial.name: bench.base_time / trial.time - 1.0 for trial in trials}
    low = {name: one.speedup_low - 1.0 for name, one in ranged.items() if one.speedup_low is not None}
    high = {name: one.speedup_high - 1.0 for name, one in ranged.items() if one.speedup_high is not None}
    return Point(float(value), bench.base_time, gain, low, high)


def turn(name: str, points: Sequence[Point], worth: float) -> Turn:
    """Return the values at which the gain of an overlap crosses the least gain that counts.

    Parameters
    ----------
    points
        By rising value; those without the overlap do not count.
    worth
        Least gain that counts.

    Notes
    -----
    Of several crossings the outermost count, and values inside at which it is the other way round are exceptions.
    """
    gains = [(point.value, point.gain[name]) for point in points if name in point.gain]
    at = crossings(gains, worth)
    first = bool(gains) and gains[0][1] >= worth
    last = bool(gains) and gains[-1][1] >= worth
    if not at:
        return Turn(name, "always" if first else "never")
    if first != last:
        if first:
            pays = "below"
            ends = at[-1:]
        else:
            pays = "above"
            ends = at[:1]
    else:
        if first:
            pays = "outside"
        else:
            pays = "between"
        ends = [at[0], at[-1]]
    exceptions = tuple(value for value, gain in gains if (gain >= worth) != _is_said(pays, ends, value))
    if len(at) > 1:
        return Turn(name, pays, tuple(ends), exceptions=exceptions)
    lows = crossings([(point.value, point.gain_low[name]) for point in points if name in point.gain_low], worth)
    highs = crossings([(point.value, point.gain_high[name]) for point in points if name in point.gain_high], worth)
    before = [value for value in (*lows, *highs) if value <= at[0]]
    after = [value for value in (*lows, *highs) if value >= at[0]]
    return Turn(name, pays, tuple(ends), max(before, default=None), min(after, default=None), exceptions)


def _is_said(pays: str, ends: Sequence[float], value: float) -> bool:
    """Return whether an overlap is said to pay at a value."""
    match pays:
        case "below":
            return value <= ends[0]
        case "above":
            return value >= ends[0]
        case "between":
            return ends[0] <= value <= ends[1]
        case _:
            return not ends[0] < value < ends[1]


def crossings(gains: Sequence[tuple[float, float]], worth: float) -> list[float]:
    """Return the values at which gains cross one that counts, taken as even in the logarithm of the value.

    >>> [round(value, 3) for value in crossings([(1.0, 0.03), (4.0, -0.01)], 0.01)]
    [2.0]
    """
    values = []
    for (value, gain), (next_value, next_gain) in pairwise(gains):
        if (gain >= worth) != (next_gain >= worth):
            part = (worth - gain) / (next_gain - gain)
            values.append(exp(log(value) + part * (log(next_value) - log(value))))
    return values
