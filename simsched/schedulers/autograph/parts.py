"""The best graphs that substitutions make of a part of one, by a backtracking search."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import fsum
from typing import Final, NamedTuple, TypeVar

from simsched.model import CostModel, Device, OpGraph, operator_times
from simsched.model.rewriting import Rewriting, RewrittenPart, Step
from simsched.rewriting import Draft, Rule
from simsched.rewriting.parts import READER
from simsched.schedulers.protocol import Deadline


class Cost(NamedTuple):
    """Mixed critical path cost and plain sum of the times, in us."""

    mixed: float
    total: float


class MixedCost:
    """Cost of drafts: ``sum of all times + alpha * sum of those on the longest path``, in us.

    Parameters
    ----------
    device, cost
        Time of an operator alone on the device, in us.
    alpha
        0 for the sum of the times alone.
    """

    def __init__(self, device: Device, cost: CostModel, alpha: float) -> None:
        self._device, self._cost, self._alpha = device, cost, alpha
        self._times: dict[int, float] = {}

    def __call__(self, draft: Draft) -> Cost:
        """Return the cost of a draft, in which what stands for a reader outside takes no time. O(V + E)."""
        for row in draft.rows.values():
            if row.key not in self._times:
                op = row.operator
                us = 0.0 if op.kind == READER else float(operator_times(OpGraph([op]), self._device, self._cost)[0])
                self._times[row.key] = us
        times = {name: self._times[row.key] for name, row in draft.rows.items()}
        total = fsum(times.values())
        if not self._alpha:
            return Cost(total, total)
        end: dict[str, float] = {}
        for name in draft.order():
            latest = 0.0
            for read in draft.rows[name].reads:
                latest = max(latest, end.get(read.producer, 0.0))
            end[name] = latest + times[name]
        return Cost(total + self._alpha * max(end.values()), total)


_LARGEST_GROWTH: Final = 2
"""A graph of more than so many times the operators it had is not gone on with, as in TASO."""


@dataclass(frozen=True, slots=True)
class Variant:
    """What substitutions, in order, have made of a draft, and its cost in us.

    Substitutions within one of the `settled` sets of operators were tried before. Of a graph that was put together
    `rewriting` says in what parts the steps were made.
    """

    draft: Draft
    cost: Cost
    steps: tuple[Step, ...] = ()
    settled: tuple[frozenset[str], ...] = ()
    rewriting: tuple[Rewriting, ...] = ()

    def of_part(self, part: Draft) -> RewrittenPart:
        """Return what was done to a part that the variant is of."""
        names = tuple(name for name, row in part.rows.items() if row.operator.kind != READER)
        return RewrittenPart(names, self.steps)


Interval = tuple[int, int]
"""Of parts in a row the first, and the one behind the last."""


class Choice(NamedTuple):
    """Intervals that make up the graph, in order, with the variant of each, and what they cost together in us."""

    cost: Cost
    parts: tuple[tuple[Interval, Variant], ...]


T = TypeVar("T", Variant, Choice)
_DIGITS: Final = 6  # of us: far above what rounding does to a sum, far below what an operator takes


def least(found: Iterable[T], most: int) -> list[T]:
    """Return those of least cost, one for each sum of times, the least first.

    Of graphs whose times add up to the same, nearly all are the same graph, or differ in which of several equal
    parts was rewritten: the best of them stands for all.
    """
    chosen: dict[float, T] = {}
    for one in sorted(found, key=lambda one: one.cost.mixed):
        chosen.setdefault(round(one.cost.total, _DIGITS), one)
        if len(chosen) == most:
            break
    return list(chosen.values())


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
        found = (
            Choice(
                Cost(variant.cost.mixed + rest.cost.mixed, variant.cost.total + rest.cost.total),
                ((interval, variant), *rest.parts),
            )
            for interval in beginning[first]
            for variant in variants[interval]
            for rest in best[interval[1]]
        )
        best[first] = least(found, top)
    return best[0]


@dataclass(slots=True)
class Backtracking:
    """The search, and how much it has done.

    Parameters
    ----------
    rules
        By name, in the order in which they are tried.
    costs
        What is minimised.
    beta
        A graph of more than `beta` times the least cost so far is not gone on with.
    budget
        Most graphs derived per part.
    top
        How many graphs of a part are kept.
    deadline
        Asked before each graph whose substitutions are tried.
    candidates, parts
        Graphs derived so far, and parts that were searched.

    Notes
    -----
    The graph of least cost is tried next, of equal ones the first found, where the paper goes on with all of a
    set at a time: that way a budget is spent where it pays. Substitutions that were made in another order before
    are not made again.
    """

    rules: Mapping[str, Rule]
    costs: MixedCost
    beta: float
    budget: int
    top: int
    deadline: Deadline
    candidates: int = 0
    parts: int = 0
    _end: int = field(default=0, init=False)

    def begin(self) -> None:
        """Begin with another part: its budget is whole."""
        self.parts += 1
        self._end = self.candidates + self.budget

    def best(self, starts: Sequence[Variant]) -> list[Variant]:
        """Return the graphs of least cost that can be made of a part, the least first.

        Parameters
        ----------
        starts
            Where to begin; each gets an equal share of what is left of the budget.
        """
        found: dict[int, Variant] = {}
        for i, start in enumerate(starts):
            share = max(0, self._end - self.candidates) // (len(starts) - i)
            for variant in self._explored(start, self.candidates + share):
                found.setdefault(variant.draft.signature(), variant)
        return least(found.values(), self.top)

    def by_one_rule(self, start: Variant) -> dict[str, Variant]:
        """Return what each rule alone makes of a part, applied wherever that lowers the cost, in the order of matches.

        From these the search may reach what it does not see from the part itself: what is best at first can stand
        in the way of what is better in the end.
        """
        found = {}
        for name, rule in self.rules.items():
            least, improved = start, True
            while improved and not self.deadline.over():
                improved = False
                for match in tuple(rule.matches(least.draft)):
                    if self.candidates >= self._end or self.deadline.over():
                        break
                    if any(operator not in least.draft.rows for operator in match):
                        continue
                    self.candidates += 1
                    after = rule.apply(least.draft, match)
                    if after is not None and (cost := self.costs(after)).mixed < least.cost.mixed:
                        least, improved = Variant(after, cost, (*least.steps, Step(name, match))), True
            found[name] = least
        return found

    def joined(self, part: Draft, chosen: Iterable[tuple[Draft, Variant]]) -> Variant:
        """Make the substitutions of smaller parts in a part; each of them is settled with that.

        Of each the first that is not possible ends it: a neighbour's substitutions may have changed an operator that
        both touch, such as a concatenation that reads from one and belongs to the other.
        """
        steps: list[Step] = []
        settled = []
        draft = part
        for smaller, variant in chosen:
            before = draft
            for step in variant.steps:
                after = self.rules[step.rule].apply(draft, step.operators)
                if after is None:
                    break
                draft = after
                steps.append(step)
            settled.append(frozenset((*smaller.rows, *(name for name in draft.rows if name not in before.rows))))
        return Variant(draft, self.costs(draft), tuple(steps), tuple(settled))

    def _explored(self, start: Variant, end: int) -> list[Variant]:
        """Return a graph and those derived from it that do not cost too much."""
        found, best = [start], start.cost.mixed
        waiting = [(best, 0)]
        seen, tried = {start.draft.signature()}, {frozenset(start.steps)}
        largest = _LARGEST_GROWTH * len(start.draft.rows)
        while waiting and waiting[0][0] <= self.beta * best and self.candidates < end and not self.deadline.over():
            variant = found[heappop(waiting)[1]]
            for step, after in self._derived(variant, start.settled, tried, end):
                if after.signature() in seen or len(after.rows) > largest:
                    continue
                seen.add(after.signature())
                cost = self.costs(after)
                if cost.mixed <= self.beta * best:
                    best = min(best, cost.mixed)
                    heappush(waiting, (cost.mixed, len(found)))
                    found.append(Variant(after, cost, (*variant.steps, step)))
        return found

    def _derived(
        self, variant: Variant, settled: Sequence[frozenset[str]], tried: set[frozenset[Step]], end: int
    ) -> Iterator[tuple[Step, Draft]]:
        """Yield what one more substitution makes of a graph, as far as it was not tried before."""
        made = frozenset(variant.steps)
        for name, rule in self.rules.items():
            for match in rule.matches(variant.draft):
                if any(names.issuperset(match) for names in settled):
                    continue
                step = Step(name, match)
                together = made | {step}
                if together in tried:
                    continue
                if self.candidates == end:
                    return
                tried.add(together)
                self.candidates += 1
                after = rule.apply(variant.draft, match)
                if after is not None:
                    yield step, after
