"""Speed of the random graphs: run with ``pytest -m benchmark --benchmark-enable tests/benchmarks/test_random_dags.py``.

Figures stand in `extra_info`: seconds, peak memory of a process of its own, and how time grows with size.
"""

from time import perf_counter, process_time

import pytest

from workloads.random_dags import (
    random_cholesky,
    random_erdos_renyi,
    random_fft,
    random_fork_join,
    random_in_tree,
    random_inception_like,
    random_layered,
    random_lu,
    random_out_tree,
    random_series_parallel,
    random_transformer_like,
    random_watts_strogatz,
    random_wavefront,
)

# Family -> function of about how many operators are wanted, then operators and edges at a million of them.
# Edges of None are drawn.
FAMILIES = {
    "layered": (lambda n: random_layered(n, n // 1000 + 10, rng=0), 1_000_000, 2_000_000),
    "layered-impl": (lambda n: random_layered(n, n // 2000 + 30, rng=0, mode="impl"), 1_000_000, 2_000_000),
    "erdos-renyi": (lambda n: random_erdos_renyi(n, rng=0), 1_000_000, 2_000_000),
    "erdos-renyi-joined": (lambda n: random_erdos_renyi(n, ends="joined", rng=0), 1_000_000, None),
    "watts-strogatz": (lambda n: random_watts_strogatz(n, rng=0), 1_000_000, 2_000_000),
    "fork-join": (lambda n: random_fork_join(n, rng=0), 1_000_000, None),
    "series-parallel": (lambda n: random_series_parallel(n, rng=0), 1_000_000, None),
    "wavefront": (lambda n: random_wavefront(round(n**0.5), round(n**0.5), rng=0), 1_000_000, 2 * 1000 * 999),
    "out-tree": (lambda n: random_out_tree(n, rng=0), 1_000_000, 999_999),
    "in-tree": (lambda n: random_in_tree(n, rng=0), 1_000_000, 999_999),
    # 181 tiles: 181 * 182 * 183 / 6 operators, 181 * 180 * 182 / 2 edges
    "cholesky": (lambda n: random_cholesky(int((6 * n) ** (1 / 3)), rng=0), 1_004_731, 2_964_780),
    # 144 tiles: 144 * 145 * 289 / 6 operators, 144 * 143 * 289 / 2 edges
    "lu": (lambda n: random_lu(int((3 * n) ** (1 / 3)), rng=0), 1_005_720, 2_975_544),
    # 2^16 points: 131,071 calls and 16 levels of butterflies
    "fft": (lambda n: random_fft(2 ** (n.bit_length() - 4), rng=0), 131_071 + 16 * 65_536, 131_070 + 32 * 65_536),
    "inception-like": (lambda n: random_inception_like(n // 8, rng=0), None, None),
    # 17,543 layers of 57 operators and 82 edges
    "transformer-like": (lambda n: random_transformer_like(n // 57, rng=0), 1 + 17_543 * 57, 17_543 * 82),
}

each_family = pytest.mark.parametrize("family", FAMILIES)


@each_family
def test_a_million_operators(benchmark, family, note):
    """Seconds for a million, and how many times more an operator and edge takes than of ten thousand."""
    make, n_ops, n_edges = FAMILIES[family]
    graph = benchmark.pedantic(make, (1_000_000,), rounds=3, warmup_rounds=1)
    assert len(graph) == n_ops or (n_ops is None and 900_000 < len(graph) < 1_100_000)
    assert len(graph.src) == n_edges or (n_edges is None and len(graph) <= len(graph.src) < 2.6 * len(graph))
    large, small = (best(make, n) for n in (1_000_000, 10_000))
    note(family=family, seconds=round(large[0], 3), growth=round(large[1] / small[1], 2))
    assert large[0] < 5.0


def best(make, n_ops):
    """Least seconds of some calls, and least seconds of the processor per operator and edge."""
    walls, costs = [], []
    for _ in range(5 if n_ops > 100_000 else 20):
        wall, busy = perf_counter(), process_time()
        graph = make(n_ops)
        walls.append(perf_counter() - wall)
        costs.append((process_time() - busy) / (len(graph) + len(graph.src)))
    return min(walls), min(costs)
