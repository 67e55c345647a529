"""Graphs of tiled matrix factorizations: Cholesky and LU."""

from typing import Annotated, Final

import numpy as np

from simsched.base.codec import Range
from simsched.model.graph import OpGraph
from workloads.declared import workload
from workloads.random_dags.edges import Ints
from workloads.random_dags.weights import WORK_TIME, Weights

Tiles = Annotated[int, Range(1, 10**4)]
Tile = Annotated[int, Range(1, 10**6)]

_Table = tuple[tuple[str, float], ...]

_NBYTES: Final = 4  # of an element, fp32
_PANEL, _SOLVE, _DIAGONAL, _UPDATE = range(4)
# FLOP of a kernel relative to the update's, 2 tile^3
_CHOLESKY: Final = (("potrf", 1 / 6), ("trsm", 1 / 2), ("syrk", 1 / 2), ("gemm", 1.0))
_LU: Final = (("getrf", 1 / 3), ("trsm", 1 / 2), ("gemm", 1.0), ("gemm", 1.0))


@workload(Weights, time=WORK_TIME, comm_ratio=None)
def random_cholesky(weights: Weights, tiles: Tiles = 9, tile: Tile = 1024) -> OpGraph:
    """Return the graph of a tiled Cholesky factorization, with random times.

    Parameters
    ----------
    tiles
        Rows (and columns) of the matrix in tiles, from 1 to 736.
    tile
        Rows (and columns) of a tile, up to 10^6.
    comm_ratio
        None: an edge carries a tile, and links decide how long that takes. Else see
        `workloads.random_dags.weights`.
    rng, utilization, min_transfer
        See `workloads.random_dags.weights`. Only the weights are drawn.
    time
        Range of the time of a GEMM in us (`workloads.random_dags.weights`).

    Raises
    ------
    GraphError
        If a parameter is out of range.

    Notes
    -----
    The right-looking algorithm [1]_. In step k, POTRF factors tile (k, k); TRSM solves each tile
    below it; SYRK updates the later diagonal tiles (i, i) with tile (i, k), and GEMM the tiles
    (i, j), i > j, with (i, k) and (j, k). A kernel reads from the last writers of its tiles. For t
    tiles: t (t + 1) (t + 2) / 6 operators, of kinds "potrf" (t), "trsm" and "syrk" (t (t - 1) / 2
    each) and "gemm", and t (t - 1) (t + 1) / 2 edges. Numbered step by step, column by column.

    With tiles of b x b, kernels take b^3 / 3 (POTRF), b^3 (TRSM), b^3 (SYRK) and 2 b^3 (GEMM) FLOP,
    to leading order. Times are in proportion, as if all kernels ran at one rate; on a GPU, POTRF is
    slower than that. Tiles are of fp32. O(operators + edges log edges).

    References
    ----------
    .. [1] Buttari, Langou, Kurzak, Dongarra, "A class of parallel tiled linear algebra algorithms for
       multicore architectures", Parallel Computing 35(1), 2009, doi:10.1016/j.parco.2008.10.002.

    Examples
    --------
    >>> graph = random_cholesky(3, rng=0)
    >>> graph, [op.kind for op in graph.operators]  # doctest: +NORMALIZE_WHITESPACE
    (OpGraph('cholesky-10', 10 operators, 12 edges),
     ['potrf', 'trsm', 'trsm', 'syrk', 'gemm', 'syrk', 'potrf', 'trsm', 'syrk', 'potrf'])
    """
    t = tiles
    n_ops = t * (t + 1) * (t + 2) // 6
    n_edges = t * (t - 1) * (t + 1) // 2
    weights.affordable(n_ops, n_edges, "give fewer tiles")
    weights.draw(n_ops)

    kinds = []
    src = []
    dst = []
    first = 0
    for rows in range(t, 0, -1):
        # the lower triangle of `rows` x `rows` tiles, column by column
        number = np.full((rows, rows), -1)
        col, row = np.triu_indices(rows)
        number[row, col] = first + np.arange(len(row))
        kinds.append(np.where(col == 0, _SOLVE, np.where(row == col, _DIAGONAL, _UPDATE)))
        kinds[-1][0] = _PANEL
        first += len(row)
        # tiles after the first column
        row = row[rows:]
        col = col[rows:]
        here = number[row, col]
        src += [np.full(rows - 1, number[0, 0]), number[row, 0], number[col, 0][row > col], here]
        dst += [number[1:, 0], here, here[row > col], first + np.arange(len(here))]
    return _graph(weights, src, dst, tile, kinds, _CHOLESKY)


@workload(Weights, time=WORK_TIME, comm_ratio=None)
def random_lu(weights: Weights, tiles: Tiles = 8, tile: Tile = 1024) -> OpGraph:
    """Return the graph of a tiled LU factorization without pivoting, with random times.

    Parameters
    ----------
    tiles
        Rows (and columns) of the matrix in tiles, from 1 to 584.
    tile
        Rows (and columns) of a tile, up to 10^6.
    comm_ratio
        None: an edge carries a tile, and links decide how long that takes. Else see
        `workloads.random_dags.weights`.
    rng, utilization, min_transfer
        See `workloads.random_dags.weights`. Only the weights are drawn.
    time
        Range of the time of a GEMM in us (`workloads.random_dags.weights`).

    Raises
    ------
    GraphError
        If a parameter is out of range.

    Notes
    -----
    The right-looking algorithm. In step k, GETRF factors tile (k, k); TRSM solves each tile below it
    and each to its right; GEMM updates the later tiles (i, j) with (i, k) and (k, j). A kernel reads
    from the last writers of its tiles. For t tiles: t (t + 1) (2 t + 1) / 6 operators, of kinds
    "getrf" (t), "trsm" (t (t - 1)) and "gemm", and t (t - 1) (2 t + 1) / 2 edges. Numbered step by
    step, column by column.

    With tiles of b x b, kernels take 2/3 b^3 (GETRF), b^3 (TRSM) and 2 b^3 (GEMM) FLOP, to leading
    order. Times are in proportion, as if all kernels ran at one rate. Tiles are of fp32.
    O(operators + edges log edges).

    Examples
    --------
    >>> graph = random_lu(2, rng=0)
    >>> graph, [op.kind for op in graph.operators]
    (OpGraph('lu-5', 5 operators, 5 edges), ['getrf', 'trsm', 'trsm', 'gemm', 'getrf'])
    """
    t = tiles
    n_ops = t * (t + 1) * (2 * t + 1) // 6
    weights.affordable(n_ops, t * (t - 1) * (2 * t + 1) // 2, "give fewer tiles")
    weights.draw(n_ops)

    kinds = []
    src = []
    dst = []
    first = 0
    for rows in range(t, 0, -1):
        number = first + np.arange(rows * rows).reshape(rows, rows).T  # column by column
        kind = np.full((rows, rows), _UPDATE)
        kind[0] = _SOLVE
        kind[:, 0] = _SOLVE
        kind[0, 0] = _PANEL
        kinds.append(kind.T.ravel())
        first += rows * rows
        panel = number[0, 0]
        below = number[1:, 0]
        right = number[0, 1:]
        here = number[1:, 1:]
        after = first + np.arange(here.size).reshape(here.shape).T
        src += [np.full(2 * (rows - 1), panel), np.repeat(below, rows - 1), np.tile(right, rows - 1), here.ravel()]
        dst += [below, right, here.ravel(), here.ravel(), after.ravel()]
    return _graph(weights, src, dst, tile, kinds, _LU)


def _graph(weights: Weights, src: list[Ints], dst: list[Ints], tile: int, kinds: list[Ints], table: _Table) -> OpGraph:
    texts, work_of_kind = zip(*table, strict=True)
    kind = np.concatenate(kinds)
    work = np.array(work_of_kind)[kind]
    return weights.graph(
        src, dst, kind=(kind, texts), work=work, flops=work * float(2 * tile**3), output_nbytes=float(_NBYTES * tile**2)
    )
