"""Dynamic programming over runs of adjacent parts: which of them to rewrite as one, and to what."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from simsched.schedulers.autograph.backtracking import Variant
from simsched.schedulers.autograph.cost import Cost, distinct

Interval = tuple[int, int]
"""The first part, and the one behind the last."""


class Choice(NamedTuple):
    """Intervals that make up the graph, in order, with the variant of each, and what they cost together in us."""

    cost: Cost
    parts: tuple[tuple[Interval, Variant], ...]


def best_choices(variants: Mapping[Interval, Sequence[Variant]], end: int, top: int) -> list[Choice]:
    """Return the best ways to cover the parts from 0 to `end` with intervals and a variant of each.

    Parameters
    ----------
    variants
        What each interval can be rewritten to, the least cost first.
    end
        Number of parts.
    top
        Most choices returned, and kept for every rest of the parts on the way.

    Notes
    -----
    ``best(i) = min over j of variants(i, j) + best(j)``, with lists of the `top` least instead of one, since the
    longest paths of intervals do not add up to that of the graph. O(intervals x top^2).
    """
    beginning: dict[int, list[Interval]] = {}
    for interval in variants:
        beginning.setdefault(interval[0], []).append(interval)
    best: dict[int, list[Choice]] = {end: [Choice(Cost(0.0, 0.0), ())]}
    for first in range(end - 1, -1, -1):
        found = [
            Choice(
                Cost(variant.cost.mixed + rest.cost.mixed, variant.cost.total + rest.cost.total),
                ((interval, variant), *rest.parts),
            )
            for interval in beginning[first]
            for variant in variants[interval]
            for rest in best[interval[1]]
        ]
        best[first] = [found[i] for i in distinct((choice.cost for choice in found), top)]
    return best[0]
