"""Random DAGs with one source and one sink, nested or in a row: series-parallel and fork-join."""

from typing import Annotated

import numpy as np

from simsched.base.codec import Part, Range
from simsched.model.graph import OpGraph
from workloads.declared import workload
from workloads.random_dags.weights import MOST_OPS, Count, Weights


@workload(Weights)
def random_fork_join(
    weights: Weights, n_ops: Annotated[int, Range(3, MOST_OPS)] = 200, max_width: Count = 8
) -> OpGraph:
    """Return a row of sections, each of which forks into parallel operators and joins again.

    Parameters
    ----------
    n_ops
        Operators, from 3 to 10^8.
    max_width
        Most parallel operators of a section, at least 1.
    rng, time, utilization, comm_ratio, min_transfer
        See `workloads.random_dags.weights.Weights`.

    Raises
    ------
    GraphError
        If a parameter is out of range.

    Notes
    -----
    Hub, section, hub, section, ..., hub: a hub leads to every operator of the next section, and
    these to the next hub. Widths are uniform in 1 to `max_width`; the last section has the remaining operators, and
    where none remain, two hubs follow each other. Numbered in that order, which is topological.
    One source, one sink. O(n_ops).

    Examples
    --------
    >>> graph = random_fork_join(50, max_width=6, rng=0)
    >>> graph, graph.inputs, graph.outputs
    (OpGraph('fork-join-50', 50 operators, 76 edges), ('op0',), ('op49',))
    """
    weights.draw(n_ops)

    # of each section the hub in front of it, as if all sections were as wide as drawn
    width = weights.rng.integers(1, max_width + 1, size=n_ops // 2)
    hub = np.cumsum(width + 1) - (width + 1)
    hub = np.append(hub[hub < n_ops - 1], n_ops - 1)
    op = np.arange(n_ops)
    section = np.searchsorted(hub, op, side="right") - 1
    is_hub = hub[section] == op
    inner = op[~is_hub]
    before = section[~is_hub]
    bare = np.flatnonzero(np.diff(hub) == 1)  # sections without operators
    return weights.graph([hub[before], inner, hub[bare]], [inner, hub[before + 1], hub[bare + 1]])


@workload(Weights)
def random_series_parallel(
    weights: Weights, n_ops: Annotated[int, Range(2, MOST_OPS)] = 200, parallel: Part = 0.5
) -> OpGraph:
    """Return a random two-terminal series-parallel DAG.

    Parameters
    ----------
    n_ops
        Operators, from 2 to 10^8.
    parallel
        Probability that a part of two or more operators is cut into parallel ones: 0 makes a chain,
        1 a single fork and join.
    rng, time, utilization, comm_ratio, min_transfer
        See `workloads.random_dags.weights.Weights`.

    Raises
    ------
    GraphError
        If a parameter is out of range.

    Notes
    -----
    Between source and sink there is a part of ``n_ops - 2`` operators. A part of none is an edge
    between its two terminals. A part of two or more is, with probability `parallel`, cut into two
    parallel ones of at least one operator. Of any other, one operator becomes the terminal between
    two parts in series. All sizes that the two can have are equally likely.

    Parts are numbered in that order, which is topological. One source, one sink, and no edge
    beside a longer path between the same two operators. Expected O(n_ops) work in O(log n_ops)
    rounds, then sorting.

    Examples
    --------
    >>> graph = random_series_parallel(50, rng=0)
    >>> graph.inputs, graph.outputs
    (('op0',), ('op49',))
    """
    weights.draw(n_ops)
    # terminals, first operator and size of each part; parts of one depth are cut at once
    src, dst, first, size = (np.array([value]) for value in (0, n_ops - 1, 1, n_ops - 2))
    found_src = []
    found_dst = []
    while len(size):
        done = size == 0
        found_src.append(src[done])
        found_dst.append(dst[done])
        src = src[~done]
        dst = dst[~done]
        first = first[~done]
        size = size[~done]
        is_parallel = ((weights.rng.random(len(size)) < parallel) & (size > 1)).astype(np.int64)
        # in series operator `first + cut` separates 0 to size - 1 others from the rest, in parallel none does
        cut = weights.rng.integers(is_parallel, size)
        at = first + cut
        left = src, np.where(is_parallel, dst, at), first, cut
        right = np.where(is_parallel, src, at), dst, at + 1 - is_parallel, size - cut - 1 + is_parallel
        src, dst, first, size = (np.concatenate(pair) for pair in zip(left, right, strict=True))
    return weights.graph(found_src, found_dst)
