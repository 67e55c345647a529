"""Backtracking search: the best graphs that substitutions make of a part of a graph."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final

from simsched.rewriting import Draft, Rule
from simsched.schedulers.autograph.cost import Cost, MixedCost, distinct
from simsched.schedulers.autograph.parts import Lineage, NumberedStep, Step
from simsched.schedulers.deadline import Deadline

_LARGEST_GROWTH: Final = 2
"""A graph of more than so many times the operators it had is not gone on with, as in TASO."""


@dataclass(frozen=True, slots=True)
class Variant:
    """What parts of one structure can be rewritten to: the cost in us, and the substitutions."""

    cost: Cost
    steps: tuple[NumberedStep, ...]


@dataclass(frozen=True, slots=True)
class Start:
    """A graph to begin with; substitutions within one of the `settled` sets of operators were tried before."""

    lineage: Lineage
    settled: tuple[frozenset[str], ...] = ()


UNCHANGED: Final = Variant(Cost(0.0, 0.0), ())
"""No substitution; of a cost that nobody asks for."""


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
    candidates
        Graphs derived so far.

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
    _end: int = field(default=0, init=False)

    def __call__(self, starts: Sequence[Start]) -> list[Variant]:
        """Return the graphs of least cost that can be made of a part, the least first.

        Parameters
        ----------
        starts
            Where to begin; each gets an equal share of what is left of the budget.
        """
        found: dict[int, tuple[Cost, Lineage]] = {}
        for i, start in enumerate(starts):
            share = max(0, self._end - self.candidates) // (len(starts) - i)
            for cost, lineage in self._explored(start, self.candidates + share):
                found.setdefault(lineage.draft.signature(), (cost, lineage))
        graphs = list(found.values())
        kept = distinct((cost for cost, _ in graphs), self.top)
        return [Variant(graphs[i][0], graphs[i][1].numbered()) for i in kept]

    def begin(self) -> None:
        """Begin with another part: its budget is whole."""
        self._end = self.candidates + self.budget

    def by_one_rule(self, start: Lineage) -> dict[str, Lineage]:
        """Return what each rule alone makes of a part, applied wherever that lowers the cost, in the order of matches.

        From these the search may reach what it does not see from the part itself: what is best at first can stand
        in the way of what is better in the end.
        """
        found = {}
        for name, rule in self.rules.items():
            lineage, least, improved = start, self.costs(start.draft).mixed, True
            while improved and not self.deadline.over():
                improved = False
                for match in tuple(rule.matches(lineage.draft)):
                    if self.candidates >= self._end or self.deadline.over():
                        break
                    if any(operator not in lineage.draft.rows for operator in match):
                        continue
                    self.candidates += 1
                    after = rule.apply(lineage.draft, match)
                    if after is not None and (cost := self.costs(after).mixed) < least:
                        lineage, least, improved = lineage.then(name, match, after), cost, True
            if lineage.steps:
                found[name] = lineage
        return found

    def variant(self, lineage: Lineage) -> Variant:
        """Return what was made of a part as a variant of all parts of that structure."""
        return Variant(self.costs(lineage.draft), lineage.numbered())

    def _explored(self, begin: Start, end: int) -> list[tuple[Cost, Lineage]]:
        """Return a graph and those derived from it that do not cost too much."""
        start = begin.lineage
        found = [(self.costs(start.draft), start)]
        best = found[0][0].mixed
        waiting = [(best, 0)]
        seen, tried = {start.draft.signature()}, {frozenset(start.steps)}
        largest = _LARGEST_GROWTH * len(start.draft)
        while waiting and waiting[0][0] <= self.beta * best and self.candidates < end and not self.deadline.over():
            lineage = found[heappop(waiting)[1]][1]
            for (rule, match), after in self._derived(lineage, begin.settled, tried, end):
                if after.signature() in seen or len(after) > largest:
                    continue
                seen.add(after.signature())
                cost = self.costs(after)
                if cost.mixed <= self.beta * best:
                    best = min(best, cost.mixed)
                    heappush(waiting, (cost.mixed, len(found)))
                    found.append((cost, lineage.then(rule, match, after)))
        return found

    def _derived(
        self, lineage: Lineage, settled: Sequence[frozenset[str]], tried: set[frozenset[Step]], end: int
    ) -> Iterator[tuple[Step, Draft]]:
        """Yield what one more substitution makes of a graph, as far as it was not tried before."""
        made = frozenset(lineage.steps)
        for name, rule in self.rules.items():
            for match in rule.matches(lineage.draft):
                if any(names.issuperset(match) for names in settled):
                    continue
                together = made | {(name, match)}
                if together in tried:
                    continue
                if self.candidates == end:
                    return
                tried.add(together)
                self.candidates += 1
                after = rule.apply(lineage.draft, match)
                if after is not None:
                    yield (name, match), after
