"""Equal seeds, equal graphs: on every machine, with every numpy, for ever.

Small graphs of every family and mode are recorded whole, as documents that `OpGraph.load` reads, larger ones as
SHA-256 over their columns, networks as SHA-256 over all that they have. What is recorded may change only with a
note in the changelog, by

    PYTHONPATH=. python tests/workloads/test_golden_graphs.py
"""

from functools import partial
from hashlib import sha256
from pathlib import Path

from simsched.base.io import dump_json, read_json
from simsched.model.graph import OpGraph
from workloads import load, names
from workloads import random_dags as dags

FOLDER = Path(__file__).parent / "golden"
DIGESTS = FOLDER / "sha256.json"

SMALL = {
    "layered": partial(dags.random_layered, 24, 6, rng=1),
    "layered-impl": partial(dags.random_layered, 24, 5, rng=1, mode="impl"),
    "layered-dense": partial(dags.random_layered, 16, 4, 60, rng=1),
    "erdos-renyi": partial(dags.random_erdos_renyi, 20, rng=1),
    "erdos-renyi-probability-joined": partial(dags.random_erdos_renyi, 16, edge_probability=0.2, ends="joined", rng=1),
    "watts-strogatz": partial(dags.random_watts_strogatz, 20, rng=1),
    "watts-strogatz-joined": partial(dags.random_watts_strogatz, 16, 4, 0.4, "joined", rng=1),
    "fork-join": partial(dags.random_fork_join, 24, 5, rng=1),
    "series-parallel": partial(dags.random_series_parallel, 24, rng=1),
    "wavefront": partial(dags.random_wavefront, 4, 5, rng=1),
    "wavefront-diagonal": partial(dags.random_wavefront, 4, 4, 3, rng=1),
    "in-tree": partial(dags.random_in_tree, 24, 3, rng=1),
    "out-tree": partial(dags.random_out_tree, 24, 3, rng=1),
    "cholesky": partial(dags.random_cholesky, 4, rng=1),
    "lu": partial(dags.random_lu, 3, comm_ratio=0.5, rng=1),
    "fft": partial(dags.random_fft, 4, rng=1),
    "fft-butterfly": partial(dags.random_fft, 8, "butterfly", rng=1),
    "inception-like": partial(dags.random_inception_like, 2, rng=1),
    "transformer-like": partial(dags.random_transformer_like, 1, 2, rng=1),
}
"""Name of the file -> what makes the graph."""

LARGE = {
    "layered": partial(dags.random_layered, 5000, 300, rng=7),
    "layered-defaults": partial(dags.random_layered, rng=0),
    "layered-impl": partial(dags.random_layered, 5000, 60, rng=7, mode="impl"),
    "layered-dense": partial(dags.random_layered, 300, 20, 20_000, rng=7),
    "erdos-renyi": partial(dags.random_erdos_renyi, 5000, rng=7),
    "erdos-renyi-dense": partial(dags.random_erdos_renyi, 200, 10_000, rng=7),
    "erdos-renyi-probability": partial(dags.random_erdos_renyi, 5000, edge_probability=0.001, rng=7),
    "watts-strogatz": partial(dags.random_watts_strogatz, 5000, 6, 0.3, rng=7),
    "watts-strogatz-dense": partial(dags.random_watts_strogatz, 60, 30, 1.0, rng=7),
    "fork-join": partial(dags.random_fork_join, 5000, rng=7),
    "series-parallel": partial(dags.random_series_parallel, 5000, rng=7),
    "wavefront": partial(dags.random_wavefront, 70, 70, 3, rng=7),
    "in-tree": partial(dags.random_in_tree, 5000, rng=7),
    "out-tree": partial(dags.random_out_tree, 5000, rng=7),
    "cholesky": partial(dags.random_cholesky, 30, rng=7),
    "lu": partial(dags.random_lu, 24, rng=7),
    "fft": partial(dags.random_fft, 512, rng=7),
    "inception-like": partial(dags.random_inception_like, 500, rng=7),
    "transformer-like": partial(dags.random_transformer_like, 50, 16, rng=7),
}
"""Name -> what makes the graph."""


NETWORKS = {
    f"{name} {granularity}": partial(load, name, granularity=granularity)
    for name in names()
    if not name.startswith("random:")
    for granularity in ("unit", "operator")
}
"""Name -> what makes the graph, of which everything is recorded."""


def digest(graph):
    """SHA-256 over all that a random graph has, whatever the machine's byte order and however it is kept."""
    codes, texts = graph.labels("kind")
    found = sha256(repr((graph.name, len(graph), graph.names[-1], texts)).encode())
    for column in (codes, graph.src, graph.dst):
        found.update(column.astype("<i8").tobytes())
    for column in (graph.flops, graph.time, graph.utilization, graph.edge_nbytes, graph.edge_transfer):
        found.update(column.astype("<f8").tobytes())
    return found.hexdigest()


def digest_of_all(graph):
    """SHA-256 over a graph's document."""
    return sha256(dump_json(graph.to_dict()).encode()).hexdigest()


def record():
    for name, make in SMALL.items():
        make().save(str(FOLDER / f"{name}.json"))
    digests = {name: digest(make()) for name, make in LARGE.items()}
    DIGESTS.write_text(dump_json(digests | {name: digest_of_all(make()) for name, make in NETWORKS.items()}))


def test_graphs_are_as_recorded():
    """Texts have other hashes in every process that runs this."""
    recorded = read_json(str(DIGESTS))
    assert [name for name, make in SMALL.items() if OpGraph.load(str(FOLDER / f"{name}.json")) != make()] == []
    assert [name for name, make in LARGE.items() if recorded[name] != digest(make())] == []
    assert [name for name, make in NETWORKS.items() if recorded[name] != digest_of_all(make())] == []


def test_every_family_is_recorded():
    recorded = {make.func.__name__ for make in SMALL.values()} & {make.func.__name__ for make in LARGE.values()}
    assert recorded == set(dags.__all__)
    files = sorted(path.stem for path in FOLDER.glob("*.json") if path != DIGESTS)
    assert files == sorted(SMALL)
    assert sorted(read_json(str(DIGESTS))) == sorted(LARGE | NETWORKS)


if __name__ == "__main__":
    record()
