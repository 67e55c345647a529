"""`compare --samples`: percentiles in the table and in JSON, the box plot, and what is refused."""

import json

import pytest

import simsched as ss

SMALL = "random:layered,n_ops=12,n_layers=4"


@pytest.fixture(autouse=True)
def _pair(_folder):
    ss.OpGraph([ss.Operator("a", time=10.0), ss.Operator("b", time=20.0)], name="pair").save("pair.json")


def test_percentiles_stand_beside_the_makespan(said):
    lines = said("compare", "pair.json", "--samples", "5", "--jitter", "0.1", "--seed", "3").splitlines()
    assert "scheduler makespan us p50 p99 estimate" in " ".join(lines[1].split())
    caption = " ".join(" ".join(lines).split())
    assert "p50, p99 of 5 samples, jitter 10 %, seed 3; makespan and speedup without jitter" in caption


def test_the_jitter_is_2_percent_unless_given(said):
    assert "jitter 2 %, seed 0" in " ".join(said("compare", "pair.json", "--samples", "2").split())
    line = "compare pair.json --samples 2 --json"
    found, same = (json.loads(said(f"{line}{more}")) for more in ("", " --jitter 0.02"))
    assert found["sampling"] == same["sampling"] == {"n": 2, "jitter": 0.02, "seed": 0}
    assert found["rows"][0]["p99_us"] == same["rows"][0]["p99_us"]


def test_without_samples_nothing_is_sampled(said):
    assert "p50" not in said("compare", "pair.json", "--jitter", "0.1")
    found = json.loads(said("compare", "pair.json", "--json"))
    assert found["sampling"] is None
    assert {(row["p50_us"], row["p95_us"], row["p99_us"]) for row in found["rows"]} == {(None, None, None)}


def test_json_agrees_with_the_library(said):
    line = "compare pair.json --schedulers sequential,lios --samples 9 --jitter 0.3 --seed 4 --json"
    first, again, three = (said(f"{line}{more}") for more in ("", "", " --workers 3"))
    expected = ss.compare(
        ss.OpGraph.load("pair.json"), ss.Cluster.preset("a100"), ["sequential", "lios"], jitter=0.3, rng=4, samples=9
    )
    for text in (first, again, three):
        for row, known in zip(json.loads(text)["rows"], expected.rows, strict=True):
            assert (row["makespan_us"], row["speedup"]) == (known.makespan_us, known.speedup)
            assert (row["p50_us"], row["p95_us"], row["p99_us"]) == (known.p50_us, known.p95_us, known.p99_us)


@pytest.mark.parametrize(("name", "magic"), [("t.png", b"\x89PNG"), ("t.SVG", b"<?xml")])
def test_a_box_plot(said, tmp_path, name, magic):
    assert said("compare", SMALL, "--samples", "4", "--box", name).endswith(f"box plot written to {name}\n")
    assert (tmp_path / name).read_bytes().startswith(magic)
    json.loads(said("compare", SMALL, "--samples", "4", "--box", name, "--json"))


def test_rows_without_a_schedule_have_no_box(said, tmp_path):
    (tmp_path / "nobody_samples_too.py").write_text(
        "import simsched\n\ndef never(graph, cluster, cost):\n    raise simsched.SimschedError('no')\n"
    )
    line = "compare pair.json --schedulers lios,nobody_samples_too:never --samples 2 --box b.svg --json"
    first, second = json.loads(said(line))["rows"]
    assert (second["p50_us"], second["p99_us"]) == (None, None)
    assert first["p50_us"] > 20
    drawn = (tmp_path / "b.svg").read_text(encoding="utf-8")
    assert "lios" in drawn
    assert "never" not in drawn
