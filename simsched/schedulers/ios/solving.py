"""From blocks to the stages they are run in: cut where they are too large, solved once where they are equal."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from simsched.model.graph import OpGraph
from simsched.schedulers.deadline import Deadline
from simsched.schedulers.ios.blocks import cut, readers_within
from simsched.schedulers.ios.merging import Merging
from simsched.schedulers.ios.part import Limits, Part, PartSearch, Solution, StoppedError, TooLargeError
from simsched.schedulers.ios.stages import Stages
from simsched.schedulers.stage_costs import StageFormula

_MOST_TOGETHER: Final = 10_000
"""Operators of a part: what it takes to write down who depends on whom grows with their square."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Operators that are optimised together, in topological order, and how they are run."""

    ops: tuple[int, ...]
    solution: Solution
    reason: str | None
    """Why the block it is of was cut, the option; None if it is a whole block."""


class Solver:
    """Solves block after block of a graph.

    Parameters
    ----------
    graph, stages, merging, limits
        What is solved; `merging` is None where nothing may be merged.
    formula
        The formula that `stages` answers by, if it is one.
    deadline
        What is not solved when it is over is run one operator after the other.
    """

    def __init__(
        self,
        graph: OpGraph,
        stages: Stages,
        merging: Merging | None,
        limits: Limits,
        formula: StageFormula | None,
        deadline: Deadline,
    ) -> None:
        self._graph, self._stages, self._merging = graph, stages, merging
        self._limits, self._formula, self._deadline = limits, formula, deadline
        self._known: dict[object, Solution | str] = {}  # or the budget that is too small

    def solve(self, ops: Sequence[int], max_part: int) -> list[Piece]:
        """Return a block in pieces of at most `max_part` operators."""
        n = -(-len(ops) // min(max_part, _MOST_TOGETHER))
        limits, reason = self._share(n), "max_part" if n > 1 else None
        return [piece for part in cut(ops, n) for piece in self._pieces(tuple(part), limits, reason)]

    def _share(self, n: int, limits: Limits | None = None) -> Limits:
        """Return limits with an n-th of the budget."""
        whole = limits or self._limits
        return replace(
            whole, max_transitions=max(1, whole.max_transitions // n), max_stages=max(1, whole.max_stages // n)
        )

    def _pieces(self, ops: tuple[int, ...], limits: Limits, reason: str | None) -> list[Piece]:
        if self._deadline.over():
            return [Piece(ops, one_by_one(len(ops)), reason)]
        try:
            found = self._found(ops, limits)
        except StoppedError:
            return [Piece(ops, one_by_one(len(ops)), reason)]
        if isinstance(found, Solution):
            return [Piece(ops, found, reason)]
        halves = self._share(2, limits)
        return [piece for half in cut(ops, 2) for piece in self._pieces(tuple(half), halves, found)]

    def _found(self, ops: tuple[int, ...], limits: Limits) -> Solution | str:
        readers = readers_within(self._graph, ops)
        if least_transitions(readers) > limits.max_transitions:
            return "max_transitions"  # known before anything is asked about operators to merge
        part = self._part(ops, readers)
        merge_costs = tuple(self._merge_costs(ops, part))
        look = (part, tuple(self._stages.classes[i] for i in ops), merge_costs, limits)
        if look not in self._known:
            try:
                self._known[look] = self._solution(ops, part, limits, merge_costs)
            except TooLargeError as error:
                self._known[look] = str(error)
        return self._known[look]

    def _merge_costs(self, ops: tuple[int, ...], part: Part) -> Iterator[float]:
        for places in part.merges:
            if self._deadline.over():
                raise StoppedError
            yield self._stages.merged(ops, places)

    def _part(self, ops: tuple[int, ...], readers: tuple[tuple[int, ...], ...]) -> Part:
        classes = [self._stages.classes[i] for i in ops]
        rank = {number: k for k, number in enumerate(sorted(set(classes)))}
        return Part(
            readers,
            tuple(rank[number] for number in classes),
            tuple(self._stages.times[i] for i in ops),
            () if self._merging is None else self._merging.sets(ops),
        )

    def _solution(self, ops: tuple[int, ...], part: Part, limits: Limits, merge_costs: Sequence[float]) -> Solution:
        if len(ops) == 1:
            if self._formula is None:
                self._stages.latencies(ops, [((0,),)], self._deadline)
            return replace(one_by_one(1), states=1, transitions=1, schedules=1, schedules_exact=True,
                           distinct_stages=int(self._formula is None))  # fmt: skip
        search = PartSearch(part, merge_costs, limits, self._deadline)
        if self._formula is not None:
            return search.by_formula(self._formula)
        return search.by_cost(lambda stages: self._stages.latencies(ops, stages, self._deadline))


def least_transitions(readers: Sequence[Sequence[int]]) -> int:
    """Return how many endings of one operator there are at least.

    Of w operators as many steps from the start none reads from another: there is a state for each set of them, and
    each of a set ends its state.
    """
    steps = [0] * len(readers)
    for x, reading in enumerate(readers):
        for u in reading:
            steps[u] = max(steps[u], steps[x] + 1)
    width = max(Counter(steps).values())
    return int(width * 2 ** (width - 1))


def one_by_one(n: int) -> Solution:
    """Return what is left of a search that was stopped: operators one after the other."""
    return Solution(tuple((((k,),), False) for k in range(n)), 0, 0, 0, None, schedules_exact=False, distinct_stages=0)
