"""One round of AutoGraph: the best graphs that substitutions make of a graph, part by part."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from simsched.model.graph import OpGraph
from simsched.rewriting import Draft
from simsched.schedulers.autograph.backtracking import UNCHANGED, Backtracking, Start, Variant
from simsched.schedulers.autograph.cost import Cost
from simsched.schedulers.autograph.intervals import Interval, best_choices
from simsched.schedulers.autograph.partition import atoms, intervals
from simsched.schedulers.autograph.parts import Lineage, names_of, part_of, put_together, replayed, structure


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A graph that substitutions have made: by which rules, in order, and what it costs in us."""

    draft: Draft
    rules: tuple[str, ...]
    cost: Cost


@dataclass(frozen=True, slots=True)
class _Known:
    """What parts of one structure can be rewritten to: the best, least cost first, and what each rule alone makes."""

    best: Sequence[Variant]
    by_rule: Mapping[str, Variant]


class Rewriter:
    """Rewrites graphs, and remembers what parts of a structure can be rewritten to.

    Parameters
    ----------
    backtracking
        Searches a part.
    dp
        Whether parts are also rewritten together with their neighbours.
    size_l, size_u
        As for `autograph`.
    progress
        Called with what is being done.
    """

    def __init__(
        self, backtracking: Backtracking, *, dp: bool, size_l: int, size_u: int, progress: Callable[[str], None]
    ) -> None:
        self._search, self._rules, self._costs = backtracking, backtracking.rules, backtracking.costs
        self._size_l, self._size_u, self._progress = size_l, size_u if dp else 1, progress
        self._known: dict[Hashable, _Known] = {}

    @property
    def subgraphs(self) -> int:
        """Parts that were searched."""
        return len(self._known)

    def __call__(self, start: Rewritten, graph: OpGraph, subject: str) -> list[Rewritten]:
        """Return the graphs of least cost that can be made of one, and those that a rule alone makes.

        Parameters
        ----------
        start
            What is rewritten.
        graph
            The same as a graph.
        subject
            What `progress` is told first.
        """
        pieces = self._pieces(start.draft, graph)
        runs = intervals([len(piece) for piece in pieces], self._size_u)
        parts: dict[Interval, Draft] = {}
        known: dict[Interval, _Known] = {}
        for done, (first, end) in enumerate(runs):
            if end - first > 1 and self._search.deadline.over():
                break
            self._progress(f"{subject}, part {done + 1} of {len(runs)}")
            parts[first, end] = part_of(start.draft, [name for piece in pieces[first:end] for name in piece])
            known[first, end] = self._found((first, end), parts, known)
        best = best_choices({run: found.best for run, found in known.items()}, len(pieces), self._search.top)
        alone = _by_one_rule([known[i, i + 1] for i in range(len(pieces))])
        rewritten: dict[int, Rewritten] = {}
        again: dict[tuple[Interval, Variant], Draft] = {}
        for chosen in [choice.parts for choice in best] + alone:
            for run, variant in chosen:
                if (run, variant) not in again:
                    again[run, variant] = self._joined(parts[run], [(parts[run], variant)]).lineage.draft
            draft = put_together(start.draft, [(parts[run], again[run, variant]) for run, variant in chosen])
            if draft is not None:
                steps = tuple(rule for _, variant in chosen for rule, _ in variant.steps)
                rewritten.setdefault(draft.signature(), Rewritten(draft, start.rules + steps, self._costs(draft)))
        return sorted(rewritten.values(), key=lambda found: found.cost.mixed)

    def _pieces(self, draft: Draft, graph: OpGraph) -> list[tuple[str, ...]]:
        """Return the parts into which a draft is cut, in order."""
        matches = dict.fromkeys(graph.order, 0)
        for rule in self._rules.values():
            for match in rule.matches(draft):
                if self._search.deadline.over():
                    break
                for name in dict.fromkeys(match):
                    matches[name] += 1
        reads = {name: [read.producer for read in draft.rows[name].reads] for name in graph.order}
        return atoms(reads, matches, self._size_l, self._search.deadline.over)

    def _found(self, run: Interval, parts: Mapping[Interval, Draft], known: Mapping[Interval, _Known]) -> _Known:
        """Return what a run of parts can be rewritten to, searched unless one of the same structure was."""
        part = parts[run]
        key = structure(part, self._costs)
        if key not in self._known:
            self._search.begin()
            start, by_rule = Lineage.of(part), {}
            if run[1] - run[0] == 1:
                by_rule = self._search.by_one_rule(start)
                starts = [Start(lineage) for lineage in (start, *by_rule.values())]
            else:
                starts = [
                    self._joined(part, [(parts[half], known[half].best[0]) for half in halves])
                    for halves in _halves(run)
                ]
            alone = {rule: self._search.variant(lineage) for rule, lineage in by_rule.items()}
            self._known[key] = _Known(self._search(starts), alone)
        return self._known[key]

    def _joined(self, draft: Draft, chosen: Iterable[tuple[Draft, Variant]]) -> Start:
        """Make the substitutions of some parts of a draft in it; each part is settled with that."""
        lineage = Lineage.of(draft)
        settled = []
        for part, variant in chosen:
            before = len(lineage.names)
            lineage = replayed(lineage, names_of(part), variant.steps, self._rules)
            settled.append(frozenset((*part.rows, *lineage.names[before:])))
        return Start(lineage, tuple(settled))


def _by_one_rule(pieces: Sequence[_Known]) -> list[tuple[tuple[Interval, Variant], ...]]:
    """Return what each rule alone makes of all pieces; one that it does not change stays as it is."""
    rules = dict.fromkeys(rule for piece in pieces for rule in piece.by_rule)
    return [tuple(((i, i + 1), piece.by_rule.get(rule, UNCHANGED)) for i, piece in enumerate(pieces)) for rule in rules]


def _halves(run: Interval) -> list[tuple[Interval, Interval]]:
    """Return a run of parts without its last, and without its first, each time with what is left."""
    first, end = run
    cuts = dict.fromkeys((end - 1, first + 1))
    return [((first, cut), (cut, end)) for cut in cuts]
