"""Wavefronts: grids in which every operator reads from its neighbours above and to the left."""

from typing import Annotated

import numpy as np

from simsched.base.codec import Range
from simsched.model.graph import OpGraph
from workloads.declared import workload
from workloads.random_dags.weights import Count, Weights


@workload(Weights)
def random_wavefront(
    weights: Weights, rows: Count = 14, columns: Count = 14, neighbours: Annotated[int, Range(2, 3)] = 2
) -> OpGraph:
    """Return a grid that is computed from its upper left to its lower right, with random times.

    Parameters
    ----------
    rows, columns
        Size of the grid, which has at most 10^8 operators and twice as many edges.
    neighbours
        2: each operator reads from the one above and the one to the left (Gauss-Seidel sweeps,
        recurrent networks in layers and time steps). 3: also from the one above to the left (alignment
        of sequences).
    rng, time, utilization, comm_ratio, min_transfer
        See `workloads.random_dags.weights.Weights`. Only the weights are drawn.

    Raises
    ------
    GraphError
        If a parameter is out of range.

    Notes
    -----
    Numbered row by row. One source, one sink; the depth is ``rows + columns - 1``, the width the lesser of the two.
    O(rows * columns).

    Examples
    --------
    >>> graph = random_wavefront(3, 4, rng=0)
    >>> graph, graph.depth, graph.width
    (OpGraph('wavefront-12', 12 operators, 17 edges), 6, 3)
    """
    n_ops = rows * columns
    weights.affordable(n_ops, neighbours * n_ops, "give fewer rows or columns")
    weights.draw(n_ops)

    op = np.arange(n_ops).reshape(rows, columns)
    pairs = [(op[:-1], op[1:]), (op[:, :-1], op[:, 1:]), (op[:-1, :-1], op[1:, 1:])][:neighbours]
    return weights.graph([above.ravel() for above, _ in pairs], [below.ravel() for _, below in pairs])
