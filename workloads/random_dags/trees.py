"""Random trees: from one source to many sinks, and from many sources to one sink."""

from typing import Annotated

import numpy as np

from simsched.base.codec import Range
from simsched.model.graph import OpGraph
from workloads.declared import workload
from workloads.random_dags.edges import Ints
from workloads.random_dags.weights import MOST_OPS, Count, Weights


@workload(Weights)
def random_out_tree(
    weights: Weights, n_ops: Annotated[int, Range(2, MOST_OPS)] = 200, max_children: Count = 4
) -> OpGraph:
    """Return a random tree whose edges lead away from its one source.

    Parameters
    ----------
    n_ops
        Operators, from 2 to 10^8.
    max_children
        Most successors of an operator, at least 1.
    rng, time, utilization, comm_ratio, min_transfer
        See `workloads.random_dags.weights.Weights`.

    Raises
    ------
    GraphError
        If a parameter is out of range.

    Notes
    -----
    The operators are numbered level by level, and in this order each gets 1 to `max_children`
    successors (uniform) until there are `n_ops` operators; those that have none by then are the
    sinks. The depth is about ``log(n_ops) / log((max_children + 1) / 2)``, and `n_ops` if
    `max_children` is 1. O(n_ops).

    Examples
    --------
    >>> random_out_tree(50, rng=0)
    OpGraph('out-tree-50', 50 operators, 49 edges)
    """
    parent = _parents(weights, n_ops, max_children)
    return weights.graph([parent], [np.arange(1, n_ops)])


@workload(Weights)
def random_in_tree(
    weights: Weights, n_ops: Annotated[int, Range(2, MOST_OPS)] = 200, max_children: Count = 4
) -> OpGraph:
    """Return a random tree whose edges lead to its one sink: `random_out_tree` backwards.

    Parameters
    ----------
    n_ops
        Operators, from 2 to 10^8.
    max_children
        Most predecessors of an operator, at least 1.
    rng, time, utilization, comm_ratio, min_transfer
        See `workloads.random_dags.weights.Weights`.

    Raises
    ------
    GraphError
        If a parameter is out of range.

    Notes
    -----
    Operator i of the out-tree is operator ``n_ops - 1 - i`` here, so that the order is topological,
    and every edge is turned around. The same seed gives the wiring of the out-tree; times go by
    number. O(n_ops).

    Examples
    --------
    >>> graph = random_in_tree(50, rng=0)
    >>> graph, graph.outputs
    (OpGraph('in-tree-50', 50 operators, 49 edges), ('op49',))
    """
    parent = _parents(weights, n_ops, max_children)
    return weights.graph([np.arange(n_ops - 1)], [n_ops - 1 - parent[::-1]])


def _parents(weights: Weights, n_ops: int, max_children: int) -> Ints:
    """Draw the weights; return the parents of operators 1 to n_ops - 1, in rising order."""
    weights.draw(n_ops)
    n_children = weights.rng.integers(1, max_children + 1, size=n_ops - 1)
    # everyone has a child at least, so the first child of i is numbered above i
    first_child = 1 + np.cumsum(n_children) - n_children
    return np.searchsorted(first_child, np.arange(1, n_ops), side="right") - 1
