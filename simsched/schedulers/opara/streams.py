"""Opara's stream allocation: an operator goes on in the stream of a producer that nobody went on from."""

from collections.abc import Sequence
from typing import Final

from simsched.model.graph import OpGraph

ALLOCATIONS: Final = ("journal", "conference")
_NOBODY: Final = -1


def allocate_streams(graph: OpGraph, order: Sequence[int], allocation: str) -> list[int]:
    """Return the stream of each operator, in graph order; streams are numbered as they are opened.

    Parameters
    ----------
    order
        Operators in the order in which they are given streams, a topological one.
    allocation
        ``"journal"``: the first producer, in the order of arguments, whose stream nobody has taken over yet;
        ``"conference"``: the first that has no consumer given before this one.

    Notes
    -----
    O(V + E).

    >>> from simsched import Edge, Operator
    >>> fork = OpGraph([Operator(name) for name in "abc"], [Edge("a", "b"), Edge("a", "c")])
    >>> allocate_streams(fork, [0, 1, 2], "journal")
    [0, 0, 1]
    """
    ptr, edges = graph.incoming
    bounds, producers = ptr.tolist(), graph.src[edges].tolist()
    heir = [_NOBODY] * len(graph)  # who takes over the stream of an operator
    if allocation == "conference":
        for u, v in zip(graph.src.tolist(), graph.dst.tolist(), strict=True):
            if heir[u] == _NOBODY or v < heir[u]:
                heir[u] = v
    stream = [0] * len(graph)
    opened = 0
    for v in order:
        for p in producers[bounds[v] : bounds[v + 1]]:
            if heir[p] == _NOBODY or heir[p] == v:
                heir[p] = v
                stream[v] = stream[p]
                break
        else:
            stream[v] = opened
            opened += 1
    return stream
