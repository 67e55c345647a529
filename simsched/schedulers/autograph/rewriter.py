"""One round of AutoGraph: the best graphs that substitutions make of a graph, part by part."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, NamedTuple

from simsched.model.graph import OpGraph
from simsched.rewriting import Draft
from simsched.schedulers.autograph.backtracking import (
    UNCHANGED,
    Backtracking,
    Cost,
    Lineage,
    Start,
    Variant,
    distinct,
    names_of,
    part_of,
    put_together,
    replayed,
    structure,
)

_KEPT: Final = 4
"""One operator in so many, at either end of a piece, stays on its side of the cut."""


def atoms(
    reads: Mapping[str, Sequence[str]],
    matches: Mapping[str, int],
    size_l: int,
    stopped: Callable[[], bool] = lambda: False,
) -> list[tuple[str, ...]]:
    """Cut a graph where the fewest substitution matches are, until every piece has fewer than `size_l` operators.

    Parameters
    ----------
    reads
        What each operator reads from, in topological order; names that are no keys are left out of account.
    matches
        How many rule matches an operator takes part in; at least 1 is assumed.
    size_l
        At least 2.
    stopped
        Asked before each cut; once it says so the pieces stay as they are.

    Returns
    -------
    list of tuple
        The pieces, each in topological order; no piece reads from one that follows it.

    Notes
    -----
    An operator of a piece becomes an edge of capacity `matches`, an edge of the graph one without limit;
    Boykov and Kolmogorov's algorithm cuts the first operators from the last [1]_. Operators that are cut
    belong to the first side. Ours, where the paper is silent: the first and the last quarter of a piece
    stay on their sides, or a chain would be cut behind its first operator; and edges may not lead back
    across the cut, so that pieces run one after the other.

    References
    ----------
    .. [1] Boykov, Kolmogorov, "An experimental comparison of min-cut/max-flow algorithms for energy
       minimization in vision", IEEE TPAMI 26(9), 2004, doi:10.1109/TPAMI.2004.60.
    """
    done: list[tuple[str, ...]] = []
    waiting = [tuple(reads)]
    while waiting:
        piece = waiting.pop()
        if len(piece) < size_l or stopped():
            done.append(piece)
            continue
        first = _first_side(piece, reads, matches)
        waiting.append(tuple(name for name in piece if name not in first))
        waiting.append(tuple(name for name in piece if name in first))
    return done


def _first_side(piece: Sequence[str], reads: Mapping[str, Sequence[str]], matches: Mapping[str, int]) -> set[str]:
    """Return the operators of a piece on the first side of its least cut."""
    import networkx as nx

    kept = max(1, len(piece) // _KEPT)
    enters: dict[str, int] = dict.fromkeys(piece[:kept], _SOURCE) | dict.fromkeys(piece[-kept:], _SINK)
    leaves: dict[str, int] = {}
    for i, name in enumerate(piece):
        enters.setdefault(name, 2 * i)
        if enters[name] != _SINK:
            leaves[name] = 2 * i + 1
    network: nx.DiGraph[int] = nx.DiGraph()
    network.add_nodes_from((_SOURCE, _SINK))
    for name, out in leaves.items():
        network.add_edge(enters[name], out, capacity=max(1, matches.get(name, 0)))
        network.add_edge(out, enters[name])  # an edge without capacity has no limit
    for name in piece:
        for producer in reads[name]:
            if producer in leaves:
                network.add_edge(leaves[producer], enters[name])
                if enters[name] != _SINK:
                    network.add_edge(enters[name], enters[producer])  # what the first side reads belongs to it
    _, (first, _) = nx.minimum_cut(
        network, _SOURCE, _SINK, flow_func=nx.algorithms.flow.boykov_kolmogorov
    )  # the side of the source is the largest there is: it does not depend on which flow was found
    return {name for name in piece if enters[name] in first}


_SOURCE: Final = -1
_SINK: Final = -2


def intervals(sizes: Sequence[int], size_u: int) -> list[tuple[int, int]]:
    """Return every run of adjacent pieces that has at most `size_u` operators, the shortest first.

    Parameters
    ----------
    sizes
        Operators of each piece, in order.

    Returns
    -------
    list of (int, int)
        First piece, and the piece behind the last. A piece alone is always one of them.

    >>> intervals([30, 30, 30, 30], 60)
    [(0, 1), (1, 2), (2, 3), (3, 4), (0, 2), (1, 3), (2, 4)]
    """
    total = [0, *accumulate(sizes)]
    count = len(sizes)
    return [
        (first, first + length)
        for length in range(1, count + 1)
        for first in range(count - length + 1)
        if length == 1 or total[first + length] - total[first] <= size_u
    ]


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
