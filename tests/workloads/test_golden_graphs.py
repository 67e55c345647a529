"""Equal seeds, equal graphs: on every machine, with every numpy, for ever.

Small graphs of every family and mode are recorded whole, as documents that `OpGraph.load` reads, larger ones as
SHA-256 over their columns, networks as SHA-256 over all that they have. What is recorded may change only with a
note in the changelog, by

    PYTHONPATH=. python tests/workloads/test_golden_graphs.py
"""

from hashlib import sha256
from inspect import signature
from pathlib import Path

from simsched.base.io import dump_json, read_json
from simsched.model.graph import OpGraph
from workloads import WORKLOADS, from_spec, names

FOLDER = Path(__file__).parent / "golden"
DIGESTS = FOLDER / "sha256.json"

DRAWN = {
    "layered": ("n_ops=24,n_layers=6", "n_ops=5000,n_layers=300"),
    "layered defaults": (None, "seed=0"),
    "layered impl": ("n_ops=24,n_layers=5,mode=impl", "n_ops=5000,n_layers=60,mode=impl"),
    "layered dense": ("n_ops=16,n_layers=4,n_edges=60", "n_ops=300,n_layers=20,n_edges=20000"),
    "erdos-renyi": ("n_ops=20", "n_ops=5000"),
    "erdos-renyi dense": (None, "n_ops=200,n_edges=10000"),
    "erdos-renyi probability": (None, "n_ops=5000,edge_probability=0.001"),
    "erdos-renyi probability-joined": ("n_ops=16,edge_probability=0.2,ends=joined", None),
    "watts-strogatz": ("n_ops=20", "n_ops=5000,neighbours=6,rewiring=0.3"),
    "watts-strogatz dense": (None, "n_ops=60,neighbours=30,rewiring=1"),
    "watts-strogatz joined": ("n_ops=16,neighbours=4,rewiring=0.4,ends=joined", None),
    "fork-join": ("n_ops=24,max_width=5", "n_ops=5000"),
    "series-parallel": ("n_ops=24", "n_ops=5000"),
    "wavefront": ("rows=4,columns=5", "rows=70,columns=70,neighbours=3"),
    "wavefront diagonal": ("rows=4,columns=4,neighbours=3", None),
    "in-tree": ("n_ops=24,max_children=3", "n_ops=5000"),
    "out-tree": ("n_ops=24,max_children=3", "n_ops=5000"),
    "cholesky": ("tiles=4", "tiles=30"),
    "lu": ("tiles=3,comm_ratio=0.5", "tiles=24"),
    "fft": ("points=4", "points=512"),
    "fft butterfly": ("points=8,form=butterfly", None),
    "inception-like": ("n_blocks=2", "n_blocks=500"),
    "transformer-like": ("n_layers=1,heads=2", "n_layers=50,heads=16"),
}
"""Family and variant -> the parameters of a small graph of seed 1, and those of a large one of seed 7."""


def specs(size):
    """The specs of the small graphs (0) or of the large ones (1), by the names under which they are recorded."""
    seeded = {name: both[size] and f"random:{name.split()[0]},{both[size]}" for name, both in DRAWN.items()}
    return {name.replace(" ", "-"): spec for name, spec in seeded.items() if spec}


def digest(graph):
    """SHA-256 over all that a random graph has, whatever the machine's byte order and however it is kept."""
    codes, texts = graph.labels("kind")
    found = sha256(repr((graph.name, len(graph), graph.names[-1], texts)).encode())
    for column in (codes, graph.src, graph.dst):
        found.update(column.astype("<i8").tobytes())
    for column in (graph.flops, graph.time, graph.utilization, graph.edge_nbytes, graph.edge_transfer):
        found.update(column.astype("<f8").tobytes())
    return found.hexdigest()


def made():
    """The small graphs, and the digests of the large ones and of networks."""
    digests = {name: digest(from_spec(spec, seed=7)) for name, spec in specs(1).items()}
    for name in [name for name in names() if "granularity" in signature(WORKLOADS[name]).parameters]:
        for granularity in ("unit", "operator"):
            network = from_spec(f"{name},granularity={granularity}")
            digests[f"{name} {granularity}"] = sha256(dump_json(network.to_dict()).encode()).hexdigest()
    return {name: from_spec(spec, seed=1) for name, spec in specs(0).items()}, digests


def test_graphs_are_as_recorded():
    """Texts have other hashes in every process that runs this."""
    graphs, digests = made()
    files = [path for path in FOLDER.glob("*.json") if path != DIGESTS]
    assert {path.stem: OpGraph.load(str(path)) for path in files} == graphs
    assert read_json(str(DIGESTS)) == digests


def test_every_family_is_recorded():
    families = {name for name in WORKLOADS if name.startswith("random:")}
    assert all({spec.split(",")[0] for spec in specs(size).values()} == families for size in (0, 1))


if __name__ == "__main__":
    graphs, digests = made()
    for name, graph in graphs.items():
        graph.save(str(FOLDER / f"{name}.json"))
    DIGESTS.write_text(dump_json(digests))
