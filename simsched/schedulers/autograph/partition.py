"""Cutting a graph into pieces that few substitutions reach across."""

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Final

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
