"""Equal seeds, equal graphs: on every machine, with every numpy, for ever.

Small graphs of every family and mode are recorded whole, as documents that `OpGraph.load` reads, larger ones as
SHA-256 over their columns, networks as SHA-256 over all that they have. What is recorded may change only with a
note in the changelog, by

    PYTHONPATH=. python tests/workloads/test_golden_graphs.py record

and ``check`` instead of ``record`` compares without pytest, for instance with another release of numpy.
"""

import os
import subprocess
import sys
from functools import partial
from hashlib import sha256
from pathlib import Path

import numpy as np

import workloads.random_dags as random_dags
from simsched.base.io import dump_json, read_json
from simsched.model.graph import OpGraph
from workloads import load, names
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

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(__file__).parent / "golden"
DIGESTS = FOLDER / "sha256.json"

SMALL = {
    "layered": partial(random_layered, 24, 6, rng=1),
    "layered-impl": partial(random_layered, 24, 5, rng=1, mode="impl"),
    "layered-dense": partial(random_layered, 16, 4, 60, rng=1),
    "erdos-renyi": partial(random_erdos_renyi, 20, rng=1),
    "erdos-renyi-probability-joined": partial(random_erdos_renyi, 16, edge_probability=0.2, ends="joined", rng=1),
    "watts-strogatz": partial(random_watts_strogatz, 20, rng=1),
    "watts-strogatz-joined": partial(random_watts_strogatz, 16, 4, 0.4, "joined", rng=1),
    "fork-join": partial(random_fork_join, 24, 5, rng=1),
    "series-parallel": partial(random_series_parallel, 24, rng=1),
    "wavefront": partial(random_wavefront, 4, 5, rng=1),
    "wavefront-diagonal": partial(random_wavefront, 4, 4, 3, rng=1),
    "in-tree": partial(random_in_tree, 24, 3, rng=1),
    "out-tree": partial(random_out_tree, 24, 3, rng=1),
    "cholesky": partial(random_cholesky, 4, rng=1),
    "lu": partial(random_lu, 3, comm_ratio=0.5, rng=1),
    "fft": partial(random_fft, 4, rng=1),
    "fft-butterfly": partial(random_fft, 8, "butterfly", rng=1),
    "inception-like": partial(random_inception_like, 2, rng=1),
    "transformer-like": partial(random_transformer_like, 1, 2, rng=1),
}
"""Name of the file -> what makes the graph."""

LARGE = {
    "layered": partial(random_layered, 5000, 300, rng=7),
    "layered-defaults": partial(random_layered, rng=0),
    "layered-impl": partial(random_layered, 5000, 60, rng=7, mode="impl"),
    "layered-dense": partial(random_layered, 300, 20, 20_000, rng=7),
    "erdos-renyi": partial(random_erdos_renyi, 5000, rng=7),
    "erdos-renyi-dense": partial(random_erdos_renyi, 200, 10_000, rng=7),
    "erdos-renyi-probability": partial(random_erdos_renyi, 5000, edge_probability=0.001, rng=7),
    "watts-strogatz": partial(random_watts_strogatz, 5000, 6, 0.3, rng=7),
    "watts-strogatz-dense": partial(random_watts_strogatz, 60, 30, 1.0, rng=7),
    "fork-join": partial(random_fork_join, 5000, rng=7),
    "series-parallel": partial(random_series_parallel, 5000, rng=7),
    "wavefront": partial(random_wavefront, 70, 70, 3, rng=7),
    "in-tree": partial(random_in_tree, 5000, rng=7),
    "out-tree": partial(random_out_tree, 5000, rng=7),
    "cholesky": partial(random_cholesky, 30, rng=7),
    "lu": partial(random_lu, 24, rng=7),
    "fft": partial(random_fft, 512, rng=7),
    "inception-like": partial(random_inception_like, 500, rng=7),
    "transformer-like": partial(random_transformer_like, 50, 16, rng=7),
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


def differences():
    """Return the names of graphs that are not as they are recorded."""
    digests = read_json(str(DIGESTS))
    found = [name for name, make in SMALL.items() if OpGraph.load(str(FOLDER / f"{name}.json")) != make()]
    return found + [f"{name} (large)" for name, make in LARGE.items() if digests.get(name) != digest(make())]


def record():
    for name, make in SMALL.items():
        make().save(str(FOLDER / f"{name}.json"))
    digests = {name: digest(make()) for name, make in LARGE.items()}
    DIGESTS.write_text(dump_json(digests | {name: digest_of_all(make()) for name, make in NETWORKS.items()}))


def test_graphs_are_as_recorded():
    assert differences() == []


def test_networks_are_as_recorded():
    recorded = read_json(str(DIGESTS))
    assert [name for name, make in NETWORKS.items() if recorded[name] != digest_of_all(make())] == []


def test_every_family_is_recorded():
    recorded = {make.func.__name__ for make in SMALL.values()} & {make.func.__name__ for make in LARGE.values()}
    assert recorded == set(random_dags.__all__)
    files = sorted(path.stem for path in FOLDER.glob("*.json") if path != DIGESTS)
    assert files == sorted(SMALL)
    assert sorted(read_json(str(DIGESTS))) == sorted(LARGE | NETWORKS)


def test_graphs_do_not_depend_on_hashes():
    """Two processes whose texts have other hashes make the graphs that are recorded."""
    for seed in "01":
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, __file__, "check"]
        done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (0, f"numpy {np.__version__}: 38 graphs are as recorded\n"), done


if __name__ == "__main__":
    if sys.argv[1:] == ["record"]:
        record()
    elif sys.argv[1:] == ["check"]:
        if differences():
            sys.exit(f"numpy {np.__version__}: not as recorded: {', '.join(differences())}")
        print(f"numpy {np.__version__}: {len(SMALL) + len(LARGE)} graphs are as recorded")
    else:
        sys.exit(__doc__)
