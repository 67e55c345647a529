"""Backtracking search: the best graphs that substitutions make of a part of a graph."""

import json
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import fsum
from typing import Any, Final, NamedTuple

from simsched.base.errors import GraphError
from simsched.model import CostModel, Device, Operator, OpGraph, operator_times
from simsched.rewriting import Draft, Read, Row, Rule, Source
from simsched.rewriting.splitting import new_name
from simsched.rewriting.works import WEIGHTS, recipe_text
from simsched.schedulers.deadline import Deadline

READER: Final = "<reader>"
"""Kind of what stands for an operator that reads from a part of a graph but does not belong to it."""


class Cost(NamedTuple):
    """Mixed critical path cost and plain sum of the times, in us."""

    mixed: float
    total: float


class MixedCost:
    """Cost of drafts: ``sum of all times + alpha * sum of those on the longest path``, in us.

    Parameters
    ----------
    start
        The draft that is to be rewritten. Its operators are asked about one by one, so that a model may know
        them by name; those that substitutions make are asked about once for each description.
    device, cost
        Time of an operator alone on the device, in us.
    alpha
        0 for the sum of the times alone.
    """

    def __init__(self, start: Draft, device: Device, cost: CostModel, alpha: float) -> None:
        self._device, self._cost, self._alpha = device, cost, alpha
        operators = [row.operator for row in start.rows.values()]
        times = operator_times(OpGraph(operators), device, cost).tolist()
        self._given: dict[str, tuple[Operator, float]] = {
            op.name: (op, us) for op, us in zip(operators, times, strict=True)
        }
        self._by_key: dict[int, float] = {}
        self._by_description: dict[Hashable, float] = {}

    def __call__(self, draft: Draft) -> Cost:
        """Return the cost of a draft. O(V + E)."""
        times = {name: self.time(row) for name, row in draft.rows.items()}
        total = fsum(times.values())
        return Cost(total + self._alpha * _longest(draft, times) if self._alpha else total, total)

    def time(self, row: Row) -> float:
        """Return the time of an operator alone in us; 0 for one that stands for a reader outside."""
        us = self._by_key.get(row.key)
        if us is None:
            us = self._by_key[row.key] = self._asked(row.operator)
        return us

    def _asked(self, op: Operator) -> float:
        if op.kind == READER:
            return 0.0
        given = self._given.get(op.name)
        if given is not None and given[0] is op:
            return given[1]
        key = description(op)
        us = self._by_description.get(key)
        if us is None:
            us = float(operator_times(OpGraph([op]), self._device, self._cost)[0])
            self._by_description[key] = us
        return us


def description(op: Operator) -> Hashable:
    """Return all that tells operators apart but their names, the blocks they belong to, and whose weights they have."""
    return (
        op.kind, op.dtype, op.intensity, op.flops, op.nbytes, op.weight_nbytes, op.time, op.utilization, op.kernels,
        op.input_shapes, op.output_shape, op.host, json.dumps(_without_weights(op.attributes), sort_keys=True),
    )  # fmt: skip


def _without_weights(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes without the recipes of the weights, also without those of the parts of a unit."""
    found = {key: value for key, value in attributes.items() if key != WEIGHTS}
    parts = found.get("parts")
    if isinstance(parts, list):
        found["parts"] = [_without_weights(part) if isinstance(part, Mapping) else part for part in parts]
    return found


def distinct(costs: Iterable[Cost], most: int) -> list[int]:
    """Return the places of the least costs, one for each sum of times, the least first.

    Of graphs whose times add up to the same, nearly all are the same graph, or differ in which of several equal
    parts was rewritten: the best of them stands for all.
    """
    given = list(costs)
    chosen: dict[float, int] = {}
    for i in sorted(range(len(given)), key=lambda i: given[i].mixed):
        chosen.setdefault(round(given[i].total, _DIGITS), i)
        if len(chosen) == most:
            break
    return list(chosen.values())


_DIGITS: Final = 6  # of us: far above what rounding does to a sum, far below what an operator takes


def _longest(draft: Draft, times: Mapping[str, float]) -> float:
    """Return the length of the longest path."""
    end: dict[str, float] = {}
    for name in draft.order():
        latest = 0.0
        for read in draft.rows[name].reads:
            latest = max(latest, end.get(read.producer, 0.0))
        end[name] = latest + times[name]
    return max(end.values())


Step = tuple[str, tuple[str, ...]]
"""A rule, and the operators it was applied to."""
NumberedStep = tuple[str, tuple[int, ...]]
"""A rule, and the numbers of the operators it was applied to: see `Lineage`."""


def part_of(draft: Draft, names: Iterable[str]) -> Draft:
    """Return some operators of a draft as a draft of its own.

    All who read from them without being one of them are there as one operator of kind `READER`, which takes no
    time and which no rule knows: what it reads is free to become part of another tensor, as in the whole graph.
    It reads all of each such tensor first, and then the slices that are read.
    """
    chosen = dict.fromkeys(names)
    rows = [row for name, row in draft.rows.items() if name in chosen]
    outside = {
        read.producer: draft.operator(read.producer)
        for row in rows
        for read in row.reads
        if read.producer not in chosen
    }
    reads = dict.fromkeys(
        draft.rows[reader].reads[i]._replace(nbytes=0.0, transfer=None)
        for row in rows
        for reader, i in draft.readers.get(row.operator.name, ())
        if reader not in chosen
    )
    if reads:
        wholes = dict.fromkeys(Read(read.producer) for read in reads)
        rows.append(Row(Operator(new_name(draft, READER), kind=READER), [*(wholes | reads)]))
    return Draft(rows, draft.name, outside=outside, kept=[name for name in chosen if name in draft.kept])


def put_together(whole: Draft, parts: Iterable[tuple[Draft, Draft]]) -> Draft | None:
    """Return a draft of rewritten parts.

    Parameters
    ----------
    parts
        Each as it was (see `part_of`) and as it is now, in an order in which none reads from one that follows.

    Returns
    -------
    Draft
        None if parts do not fit: one reads along one axis a part of what the other made a part along another.
    """
    moved: dict[str, Source] = {}
    rows = []
    try:
        for before, after in parts:
            for name, row in after.rows.items():
                reads = [read.moved(moved) for read in row.reads]
                if row.operator.kind != READER:
                    rows.append(Row(row.operator, reads))
                    continue
                for old, new in zip(before.rows[name].reads, reads, strict=True):
                    if old.slice is None:
                        moved[old.producer] = Source(new.producer, new.slice)
        return Draft(rows, whole.name, kept=whole.kept)
    except GraphError:
        return None


def structure(part: Draft, costs: MixedCost) -> Hashable:
    """Return what is equal for parts that differ in names alone: what can be made of one can be made of the other.

    Whose weights an operator has counts only as far as others in the part have the same.
    """
    number = {name: i for i, name in enumerate(names_of(part))}
    weights: dict[str, int] = {}
    for row in part.rows.values():
        weights.setdefault(recipe_text(row.operator), len(weights))
    return (
        tuple(
            (description(row.operator), costs.time(row), weights[recipe_text(row.operator)], name in part.kept,
             tuple((number[read.producer], read.slice, read.nbytes) for read in row.reads))
            for name, row in part.rows.items()
        ),
        tuple(description(op) for op in part.outside.values()),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Lineage:
    """What became of a draft: the substitutions, in order.

    Parameters
    ----------
    draft
        What came out.
    names
        Those of the first draft and of what it read from outside, then each that a substitution brought: the
        place of a name is its number. Rules do not look at names, so the same steps by number rewrite any
        draft of the same structure.
    steps
        Substitutions by name.
    """

    draft: Draft
    names: tuple[str, ...]
    steps: tuple[Step, ...] = ()

    @classmethod
    def of(cls, draft: Draft) -> "Lineage":
        """Return the lineage of a draft to which nothing has been done."""
        return cls(draft, names_of(draft))

    def then(self, rule: str, match: tuple[str, ...], after: Draft) -> "Lineage":
        """Return the lineage with a further substitution."""
        names = (*self.names, *_brought(self.draft, after, self.names))
        return Lineage(after, names, (*self.steps, (rule, match)))

    def numbered(self) -> tuple[NumberedStep, ...]:
        """Return the substitutions by number."""
        number = {name: i for i, name in enumerate(self.names)}
        return tuple((rule, tuple(number[name] for name in match)) for rule, match in self.steps)


def names_of(draft: Draft) -> tuple[str, ...]:
    """Return the names that numbers stand for in a draft to which nothing has been done."""
    return (*draft.rows, *draft.outside)


def replayed(
    lineage: Lineage, names: Sequence[str], steps: Iterable[NumberedStep], rules: Mapping[str, Rule]
) -> Lineage:
    """Go on with substitutions that were made in a draft of other names, or in a part, whose names these are.

    The first that is not possible ends it: a neighbour's substitutions may have changed an operator that both
    parts touch, such as a concatenation that reads from one part and belongs to the other.
    """
    known = list(names)
    for rule, numbers in steps:
        match = tuple(known[number] for number in numbers)
        after = rules[rule].apply(lineage.draft, match) if all(name in lineage.draft.rows for name in match) else None
        if after is None:
            break
        known += _brought(lineage.draft, after, known)
        lineage = lineage.then(rule, match, after)
    return lineage


def _brought(before: Draft, after: Draft, known: Sequence[str]) -> list[str]:
    """Return the names that a substitution has brought and that were not known before."""
    return [name for name in after.rows if name not in before.rows and name not in known]


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
