"""`simsched duel`: a file that other commands read, a replay, both directions, and what is refused."""

import json
from pathlib import Path

import pytest

import simsched as ss


@pytest.fixture(scope="module")
def files(files):
    """A duel on two GPUs."""
    graph = ss.OpGraph([ss.Operator(name, time=10.0, utilization=1.0) for name in "ab"])
    ss.duel(graph, ss.Cluster.preset("a40", 2), "sequential", "heft", evaluations=5).save(files / "d.json")
    return files


def test_both_directions(said):
    out = said("duel heft peft --gpu a40 --gpus 2 --evaluations 4 --seed 2 --both -o h.json")
    one, other = ss.Duel.load("h.json"), ss.Duel.load("h-reverse.json")
    assert [(each.loser, each.winner, each.evaluations, each.seed) for each in (one, other)] == [
        ("heft", "peft", 4, 2),
        ("peft", "heft", 4, 2),
    ]
    assert len(one.cluster) == 2
    assert out.count("times as long as") == 2
    assert out.endswith(f"duel of {other.factor:.3f} written to h-reverse.json\n")
    assert said("duel heft peft --gpu a40 --gpus 2 --evaluations 4 --seed 2 -o again.json")
    assert Path("again.json").read_text() == Path("h.json").read_text()


def test_a_replay(said, refused):
    """The factor of the file to the last digit; a file that says otherwise ends with 1."""
    kept = ss.Duel.load("d.json")
    assert said("duel d.json").endswith(f"factor, simulated again  {kept.factor!r}, the same\n")
    assert json.loads(said("duel d.json --json")) == {"factor": kept.factor, "kept": kept.factor, "is_same": True}
    data = json.loads(Path("d.json").read_text())
    Path("other.json").write_text(json.dumps({**data, "losing_us": 2 * kept.losing_us}))
    from simsched.cli.run import run

    assert run(["duel", "other.json"]) == 1


def test_other_commands_read_it(said):
    """On its own cluster, unless another one is named."""
    graph = ss.Duel.load("d.json").graph
    assert said("compare d.json --schedulers sequential,heft").startswith(f"{graph.name} on 2 x a40")
    assert said("compare d.json --schedulers heft --gpu v100").startswith(f"{graph.name} on v100")
    assert "name" in said("show d.json")
    said("report d.json -o d.html")
    assert "times as long as heft" in Path("d.html").read_text()


@pytest.mark.parametrize("family", ["layered", "cholesky", "fft", "wavefront", "fork-join", "cholesky,tiles=2"])
def test_families(said, family):
    """As near to three operators as they come."""
    said(f"duel sequential lios --family {family} --operators 3 --evaluations 1 -o f.json")
    assert 3 <= len(ss.Duel.load("f.json").graph) <= 5


def test_what_is_refused(refused):
    assert "give a second scheduler, which wins, or a file with a duel" in refused("duel heft")
    assert "unknown family 'x'; known are: layered, erdos-renyi" in refused("duel heft peft --family x")
    assert "has no parameter 'y'" in refused("duel heft peft --family layered,y=1 --evaluations 1")
    assert "unknown scheduler 'nope'" in refused("duel nope heft --evaluations 1")
    assert "a duel has 200 at most" in refused("duel heft peft --family layered,n_ops=300 --evaluations 1")
