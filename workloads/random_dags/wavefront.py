"""Wavefronts: grids in which every operator reads from its neighbours above and to the left."""

import numpy as np

from simsched.model.graph import OpGraph
from workloads.checks import whole
from workloads.random_dags.edges import sorted_ends
from workloads.random_dags.weights import (
    COMM_RATIO,
    MIN_TRANSFER,
    MOST_OPS,
    TIME,
    UTILIZATION,
    Weights,
    affordable,
)


def random_wavefront(
    rows: int = 14,
    columns: int = 14,
    neighbours: int = 2,
    *,
    rng: np.random.Generator | int,
    time: tuple[float, float] = TIME,
    utilization: tuple[float, float] | None = UTILIZATION,
    comm_ratio: float = COMM_RATIO,
    min_transfer: float = MIN_TRANSFER,
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
        See `workloads.random_dags.weights`. Only the weights are drawn.

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
    subject = "random_wavefront"
    weights = Weights(
        subject, rng=rng, time=time, utilization=utilization, comm_ratio=comm_ratio, min_transfer=min_transfer
    )
    rows = whole(subject, "rows", rows, most=MOST_OPS)
    columns = whole(subject, "columns", columns, most=MOST_OPS)
    neighbours = whole(subject, "neighbours", neighbours, least=2, most=3)
    n_ops = rows * columns
    affordable(subject, n_ops, neighbours * n_ops, "give fewer rows or columns")
    drawn = weights.draw(n_ops)

    op = np.arange(n_ops).reshape(rows, columns)
    pairs = [(op[:-1], op[1:]), (op[:, :-1], op[:, 1:]), (op[:-1, :-1], op[1:, 1:])][:neighbours]
    src = np.concatenate([above.ravel() for above, _ in pairs])
    dst = np.concatenate([below.ravel() for _, below in pairs])
    return drawn.graph("wavefront", *sorted_ends(src, dst, n_ops))
