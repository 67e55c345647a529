"""The best graphs that substitutions make from a part of a graph, by a backtracking search."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import fsum
from typing import Final, NamedTuple, TypeVar

from simsched.model import CostModel, Device, OpGraph, operator_times
from simsched.model.rewriting import Rewriting, RewrittenPart, Step
from simsched.rewriting import GraphDraft, Rule
from simsched.rewriting.parts import READER
from simsched.schedulers.protocol import Deadline


class DraftCost(NamedTuple):
    """Mixed critical path cost and plain sum of the times, in us."""

    mixed: float
    total: float


class MixedCost:
    """Cost of drafts: ``sum of all times + alpha * sum of times on the longest path``, in us.

    Parameters
    ----------
    device, cost
        Time of an operator alone on the device, in us.
    alpha
        0 for the sum of the times alone.
    """

    def __init__(self, device: Device, cost: CostModel, alpha: float) -> None:
        self._device = device
        self._cost = cost
        self._alpha = alpha
        self._times: dict[int, float] = {}

    def __call__(self, draft: GraphDraft) -> DraftCost:
        """Return the cost of a draft; operators that represent outside readers take no time. O(V + E)."""
        for row in draft.rows.values():
            if row.key not in self._times:
                op = row.operator
                if op.kind == READER:
                    us = 0.0
                else:
                    us = float(operator_times(OpGraph([op]), self._device, self._cost)[0])
                self._times[row.key] = us
        times = {name: self._times[row.key] for name, row in draft.rows.items()}
        total = fsum(times.values())
        if not self._alpha:
            return DraftCost(total, total)
        end: dict[str, float] = {}
        for name in draft.order():
            latest = 0.0
            for read in draft.rows[name].reads:
                latest = max(latest, end.get(read.producer, 0.0))
            end[name] = latest + times[name]
        return DraftCost(total + self._alpha * max(end.values()), total)


_LARGEST_GROWTH: Final = 2
"""A graph of more than so many times the operators it had is not gone on with, as in TASO."""


@dataclass(frozen=True, slots=True)
class Variant:
    """A draft after substitutions, in order, and its cost in us.

    Substitutions within one of the `settled` sets of operators were tried before. For a combined graph `rewriting`
    names the part of each step.
    """

    draft: GraphDraft
    cost: DraftCost
    steps: tuple[Step, ...] = ()
    settled: tuple[frozenset[str], ...] = ()
    rewriting: tuple[Rewriting, ...] = ()

    def of_part(self, part: GraphDraft) -> RewrittenPart:
        """Return the steps made in a part that the variant includes."""
        names = tuple(name for name, row in part.rows.items() if row.operator.kind != READER)
        return RewrittenPart(names, self.steps)


Interval = tuple[int, int]
"""Of parts in a row the first, and the one behind the last."""


class VariantChoice(NamedTuple):
    """Intervals that make up the graph, in order, with the variant of each, and their total cost in us."""

    cost: DraftCost
    parts: tuple[tuple[Interval, Variant], ...]


T = TypeVar("T", Variant, VariantChoice)
_DIGITS: Final = 6  # decimals of us: far above a sum's rounding, far below an operator's time


def least(found: Iterable[T], most: int) -> list[T]:
    """Return the variants of least cost, one for each sum of times, the least first.

    Graphs with the same sum of times are nearly always the same graph, or differ only in which of several equal parts
    was rewritten: the best of them represents all.
    """
    chosen: dict[float, T] = {}
    for one in sorted(found, key=lambda one: one.cost.mixed):
        chosen.setdefault(round(one.cost.total, _DIGITS), one)
        if len(chosen) == most:
            break
    return list(chosen.values())


def best_choices(variants: Mapping[Interval, Sequence[Variant]], end: int, top: int) -> list[VariantChoice]:
    """Return the best ways to cover the parts from 0 to `end` with intervals and a variant of each.

    Parameters
    ----------
    variants
        Variants of each interval, the least cost first.
    end
        Number of parts.
    top
        Most choices returned, and kept for every rest of the parts on the way.

    Notes
    -----
    ``best(i) = min over j of variants(i, j) + best(j)``, with lists of the `top` least instead of one, since the
    longest paths of intervals do not add up to the graph's. O(intervals x top^2).
    """
    beginning: dict[int, list[Interval]] = {}
    for interval in variants:
        beginning.setdefault(interval[0], []).append(interval)
    best: dict[int, list[VariantChoice]] = {end: [VariantChoice(DraftCost(0.0, 0.0), ())]}
    for first in range(end - 1, -1, -1):
        choices = (
            VariantChoice(
                DraftCost(variant.cost.mixed + rest.cost.mixed, variant.cost.total + rest.cost.total),
                ((interval, variant), *rest.parts),
            )
            for interval in beginning[first]
            for variant in variants[interval]
            for rest in best[interval[1]]
        )
        best[first] = least(choices, top)
    return best[0]


@dataclass(slots=True)
class Backtracking:
    """The backtracking search, and counts of its work.

    Parameters
    ----------
    rules
        Rules by name, in the order in which they are tried.
    costs
        The cost to minimise.
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
    The graph of least cost is tried next, on ties the first derived. The paper tries all graphs of a set at a time; our
    order spends a budget where it pays. Substitutions that were made in another order before are not made again.
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
            Graphs to begin from; each gets an equal share of the remaining budget.
        """
        distinct_: dict[int, Variant] = {}
        for i, start in enumerate(starts):
            share = max(0, self._end - self.candidates) // (len(starts) - i)
            for variant in self._explore(start, self.candidates + share):
                distinct_.setdefault(variant.draft.signature(), variant)
        return least(distinct_.values(), self.top)

    def by_one_rule(self, start: Variant) -> dict[str, Variant]:
        """Return the graph that each rule alone makes from a part, applied wherever it lowers the cost.

        Matches are tried in their order. From these graphs the search may reach others that it does not reach from the
        part itself: the best first step can bar the way to the best result.
        """
        by_rule = {}
        for name, rule in self.rules.items():
            least = start
            improved = True
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
                        least = Variant(after, cost, (*least.steps, Step(name, match)))
                        improved = True
            by_rule[name] = least
        return by_rule

    def join_parts(self, part: GraphDraft, chosen: Iterable[tuple[GraphDraft, Variant]]) -> Variant:
        """Make the substitutions of smaller parts in a part; each of them is settled with that.

        Each list ends at its first impossible step: a neighbour's substitutions may have changed an operator that both
        touch, such as a concatenation that reads from one and belongs to the other.
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

    def _explore(self, start: Variant, end: int) -> list[Variant]:
        """Return a graph and the graphs derived from it that do not cost too much."""
        variants = [start]
        best = start.cost.mixed
        waiting = [(best, 0)]
        seen = {start.draft.signature()}
        tried = {frozenset(start.steps)}
        largest = _LARGEST_GROWTH * len(start.draft.rows)
        while waiting and waiting[0][0] <= self.beta * best and self.candidates < end and not self.deadline.over():
            variant = variants[heappop(waiting)[1]]
            for step, after in self._derive(variant, start.settled, tried, end):
                if after.signature() in seen or len(after.rows) > largest:
                    continue
                seen.add(after.signature())
                cost = self.costs(after)
                if cost.mixed <= self.beta * best:
                    best = min(best, cost.mixed)
                    heappush(waiting, (cost.mixed, len(variants)))
                    variants.append(Variant(after, cost, (*variant.steps, step)))
        return variants

    def _derive(
        self, variant: Variant, settled: Sequence[frozenset[str]], tried: set[frozenset[Step]], end: int
    ) -> Iterator[tuple[Step, GraphDraft]]:
        """Yield the graphs that one more substitution makes from a graph, unless it was tried before."""
        steps = frozenset(variant.steps)
        for name, rule in self.rules.items():
            for match in rule.matches(variant.draft):
                if any(names.issuperset(match) for names in settled):
                    continue
                step = Step(name, match)
                together = steps | {step}
                if together in tried:
                    continue
                if self.candidates == end:
                    return
                tried.add(together)
                self.candidates += 1
                after = rule.apply(variant.draft, match)
                if after is not None:
                    yield step, after
