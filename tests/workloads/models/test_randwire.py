"""RandWire: random wirings, wirings from files, and released ones."""

import json
from pathlib import Path

import pytest
from small import macs

from simsched.base.errors import FormatError
from workloads import load
from workloads.models.randwire import draw_wirings, randwire

# wirings that others released, as data; they are not part of this project
RELEASED = Path(__file__).resolve().parents[4] / "shared" / "data" / "randwire_graphs.json"


def ends(wiring):
    """Operators that read the input of the stage, and operators that nothing in it reads."""
    src, dst = {a for a, _ in wiring.edges}, {b for _, b in wiring.edges}
    return wiring.nodes - len(dst), wiring.nodes - len(src)


def test_ends_of_the_stages():
    """As many operators begin each stage as in the network that IOS measured, so the multiply-adds are the same."""
    assert [ends(wiring) for wiring in draw_wirings()] == [(6, 1), (4, 5), (5, 2), (6, 4)]


def test_seeds():
    assert randwire(seed=3) == randwire(seed=3) != randwire(seed=4)
    assert load("randwire", seed=4) == randwire(seed=4)
    assert len(randwire(seed=4)) == 120


def write(path, stages):
    path.write_text(json.dumps({"stages": stages}))
    return str(path)


LINE = {"nodes": 2, "edges": [[0, 1]]}


def test_wiring_from_a_file(tmp_path):
    """Four stages of a line of two: 1 + 4 * 3 + 3 operators, and one edge into each."""
    path = write(tmp_path / "w.json", [LINE] * 4)
    graph = randwire(graphs=path, image_size=64)
    assert (len(graph), len(graph.edges)) == (16, 15)
    assert load("randwire", graphs=path, image_size=64) == graph


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        ([LINE] * 3, "stages must be a list of 4"),
        ([LINE] * 3 + [{"nodes": 2, "edges": [[1, 0]]}], "must lead from a lower to a higher number below 2"),
        ([LINE] * 3 + [{"nodes": 2, "edges": [[0, 1], [0, 1]]}], "an edge stands twice"),
        ([LINE] * 3 + [{"nodes": 2, "edges": [[0, True]]}], r"edges\[0\]\[1\] must be a whole number"),
    ],
)
def test_bad_files(stages, message, tmp_path):
    with pytest.raises(FormatError, match=message):
        randwire(graphs=write(tmp_path / "w.json", stages))


@pytest.mark.skipif(not RELEASED.exists(), reason="the released wirings are not part of this project")
def test_released_wirings():
    """The network that IOS measured: 120 operators, 260 edges, 7.822 G multiply-adds, width of its stages 8, 8, 7."""
    graph = randwire(graphs=str(RELEASED))
    assert (len(graph), len(graph.edges), graph.width) == (120, 260, 8)
    assert macs(randwire(graphs=str(RELEASED), granularity="operator"), "conv") == pytest.approx(7.822e9, rel=1e-3)
