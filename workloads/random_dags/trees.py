"""Random trees: from one source to many sinks, and from many sources to one sink."""

import numpy as np

from simsched.model.graph import OpGraph
from workloads.checks import whole
from workloads.random_dags.weights import (
    COMM_RATIO,
    MIN_TRANSFER,
    MOST_OPS,
    TIME,
    UTILIZATION,
    Ints,
    Weights,
)


def random_out_tree(
    n_ops: int = 200,
    max_children: int = 4,
    *,
    rng: np.random.Generator | int,
    time: tuple[float, float] = TIME,
    utilization: tuple[float, float] | None = UTILIZATION,
    comm_ratio: float = COMM_RATIO,
    min_transfer: float = MIN_TRANSFER,
) -> OpGraph:
    """Return a random tree whose edges lead away from its one source.

    Parameters
    ----------
    n_ops
        Operators, from 2 to 10^8.
    max_children
        Most successors of an operator, at least 1.
    rng, time, utilization, comm_ratio, min_transfer
        See `workloads.random_dags.weights`.

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
    subject = "random_out_tree"
    weights = Weights(
        subject, rng=rng, time=time, utilization=utilization, comm_ratio=comm_ratio, min_transfer=min_transfer
    )
    n_ops = whole(subject, "n_ops", n_ops, least=2, most=MOST_OPS)
    drawn = weights.draw(n_ops)
    parent = _parents(subject, n_ops, max_children, weights.rng)
    return drawn.graph("out-tree", parent, np.arange(1, n_ops))


def random_in_tree(
    n_ops: int = 200,
    max_children: int = 4,
    *,
    rng: np.random.Generator | int,
    time: tuple[float, float] = TIME,
    utilization: tuple[float, float] | None = UTILIZATION,
    comm_ratio: float = COMM_RATIO,
    min_transfer: float = MIN_TRANSFER,
) -> OpGraph:
    """Return a random tree whose edges lead to its one sink: `random_out_tree` backwards.

    Parameters
    ----------
    n_ops
        Operators, from 2 to 10^8.
    max_children
        Most predecessors of an operator, at least 1.
    rng, time, utilization, comm_ratio, min_transfer
        See `workloads.random_dags.weights`.

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
    subject = "random_in_tree"
    weights = Weights(
        subject, rng=rng, time=time, utilization=utilization, comm_ratio=comm_ratio, min_transfer=min_transfer
    )
    n_ops = whole(subject, "n_ops", n_ops, least=2, most=MOST_OPS)
    drawn = weights.draw(n_ops)
    parent = _parents(subject, n_ops, max_children, weights.rng)
    return drawn.graph("in-tree", np.arange(n_ops - 1), n_ops - 1 - parent[::-1])


def _parents(subject: str, n_ops: int, max_children: int, rng: np.random.Generator) -> Ints:
    """Return the parents of operators 1 to n_ops - 1, in rising order."""
    max_children = whole(subject, "max_children", max_children, most=MOST_OPS)
    n_children = rng.integers(1, max_children + 1, size=n_ops - 1)
    # everyone has a child at least, so the first child of i is numbered above i
    first_child = 1 + np.cumsum(n_children) - n_children
    return np.searchsorted(first_child, np.arange(1, n_ops), side="right") - 1
