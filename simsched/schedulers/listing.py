"""What list schedulers share: adjacency as plain lists, and placing operators one by one."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from simsched.errors import SchedulerError
from simsched.graph import OpGraph
from simsched.graph.structure import longest_from
from simsched.numeric import is_count, is_number

Neighbours = list[list[tuple[int, float]]]


def require_streams(scheduler: str, streams: int) -> None:
    """Refuse a number of streams that is none, or less than 1."""
    if is_number(streams) and streams < 1:
        raise SchedulerError(f"{scheduler}: streams must be at least 1, not {streams!r}")
    if not is_count(streams, 1):
        raise SchedulerError(f"{scheduler}: streams must be a whole number, not {streams!r}")


def readers(graph: OpGraph) -> list[list[int]]:
    """Return the consumers of each operator in graph order, each once."""
    ptr, edges = graph.outgoing
    targets, bounds = graph.dst[edges].tolist(), ptr.tolist()
    return [sorted(set(targets[a:b])) for a, b in pairwise(bounds)]


def sources(graph: OpGraph) -> list[list[int]]:
    """Return the producers that each operator reads from, in graph order, each once."""
    ptr, edges = graph.incoming
    origins, bounds = graph.src[edges].tolist(), ptr.tolist()
    return [sorted(set(origins[a:b])) for a, b in pairwise(bounds)]


def weighted_sources(graph: OpGraph, transfer: npt.ArrayLike) -> Neighbours:
    """Return (producer, us to move its tensor to another device) of each operator; of parallel edges the longest."""
    return _weighted(graph.src.tolist(), graph.dst.tolist(), transfer, len(graph))


def weighted_readers(graph: OpGraph, transfer: npt.ArrayLike) -> Neighbours:
    """Return (consumer, us to move the tensor to another device) of each operator; of parallel edges the longest."""
    return _weighted(graph.dst.tolist(), graph.src.tolist(), transfer, len(graph))


def _weighted(far: list[int], near: list[int], transfer: npt.ArrayLike, n: int) -> Neighbours:
    found: list[dict[int, float]] = [{} for _ in range(n)]
    for a, b, us in zip(near, far, np.asarray(transfer, np.float64).tolist(), strict=True):
        found[a][b] = max(us, found[a].get(b, 0.0))
    return [sorted(row.items()) for row in found]


def upward_rank(graph: OpGraph, times: npt.ArrayLike, transfer: npt.ArrayLike) -> list[float]:
    """Return the length in us of the longest path from each operator to an output, transfers included."""
    ranks: list[float] = longest_from(graph, times, transfer).tolist()
    return ranks


def by_falling_rank(graph: OpGraph, rank: Sequence[float]) -> list[int]:
    """Return operator indices by falling rank; equal ones in topological order."""
    return sorted(graph.order_index.tolist(), key=lambda i: -rank[i])
