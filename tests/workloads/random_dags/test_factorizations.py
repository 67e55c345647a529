"""Task graphs of LU and Cholesky factorisations: the dependencies of the tiled algorithms, and counts of tasks."""

import pytest
from small import pairs

from workloads import random_dags as dags

EVEN = {"time": (1.0, 1.0), "rng": 0}


def loops(tiles, symmetric):
    """The kernels of the algorithm in loops, column by column: kind, tiles that are read, tile that is written."""
    names = ("potrf", "trsm", "syrk", "gemm") if symmetric else ("getrf", "trsm", "gemm", "gemm")
    panel, solve, diagonal, update = names
    for k in range(tiles):
        yield panel, [(k, k)], (k, k)
        for i in range(k + 1, tiles):
            yield solve, [(k, k), (i, k)], (i, k)
        for j in range(k + 1, tiles):
            if symmetric:
                yield diagonal, [(j, k), (j, j)], (j, j)
            else:
                yield solve, [(k, k), (k, j)], (k, j)
            for i in range(j + 1 if symmetric else k + 1, tiles):
                yield update, [(i, k), (j, k) if symmetric else (k, j), (i, j)], (i, j)


@pytest.mark.parametrize("tiles", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("symmetric", [True, False])
def test_factorizations_depend_as_the_algorithm_does(tiles, symmetric):
    """Run through the loops: an edge leads from the last kernel that wrote a tile to each that reads it."""
    graph = dags.random_cholesky(tiles, **EVEN) if symmetric else dags.random_lu(tiles, **EVEN)
    writer, found, kernels = {}, set(), []
    for number, (kind, reads, tile) in enumerate(loops(tiles, symmetric)):
        kernels.append(kind)
        found |= {(writer[at], number) for at in reads if at in writer}
        writer[tile] = number
    assert [op.kind for op in graph.operators] == kernels
    assert pairs(graph) == sorted(found)
    assert graph.depth == 3 * tiles - 2


def test_cholesky_counts():
    """t = 4: 4 POTRF, 6 TRSM, 6 SYRK, 4 GEMM, together 4 * 5 * 6 / 6 = 20; 4 * 3 * 5 / 2 = 30 edges."""
    graph = dags.random_cholesky(4, tile=10, **EVEN)
    assert (len(graph), len(graph.edges)) == (20, 30)
    flops = {op.kind: op.flops for op in graph.operators}
    assert flops == pytest.approx({"potrf": 1000 / 3, "trsm": 1000.0, "syrk": 1000.0, "gemm": 2000.0})
    assert {op.kind: op.time for op in graph.operators} == {"potrf": 1 / 6, "trsm": 0.5, "syrk": 0.5, "gemm": 1.0}
    assert set(graph.edge_nbytes) == {400.0}
    # 10 x 10 tiles of 4 x 4: together n^3 / 3 for n = 40, but for terms of n^2 * tile: 4/3 + 6 + 6 + 8 thousands
    assert graph.flops.sum() == pytest.approx(40**3 / 3)
