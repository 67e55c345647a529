"""`compare --samples`: percentiles in the table and in JSON, the box plot, and what is refused."""

import json
import sys

import pytest

import simsched as ss
from simsched.cli.run import run

SMALL = "random:layered,n_ops=12,n_layers=4"


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    ss.OpGraph([ss.Operator("a", time=10.0), ss.Operator("b", time=20.0)], name="pair").save("pair.json")


@pytest.fixture
def said(capsys):
    """Run a command that succeeds in silence on stderr; return what it printed."""

    def say(*arguments):
        status = run(["compare", *arguments])
        out, err = capsys.readouterr()
        assert (status, err) == (0, "")
        return out

    return say


@pytest.fixture
def refused(tmp_path, capsys):
    """Run a command that must fail and write nothing; return its error line."""

    def refuse(*arguments, printed=False):
        before = {path: path.read_bytes() for path in tmp_path.iterdir()}
        status = run(["compare", *arguments])
        out, err = capsys.readouterr()
        assert (status, err.count("\n")) == (2, 1)
        assert err.startswith("error: ")
        assert not err.startswith("error: unexpected")
        assert printed or out == ""
        assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
        return err

    return refuse


def test_percentiles_stand_beside_the_makespan(said):
    lines = said("pair.json", "--samples", "5", "--jitter", "0.1", "--seed", "3").splitlines()
    assert "scheduler makespan us p50 p99 estimate" in " ".join(lines[1].split())
    caption = " ".join(" ".join(lines).split())
    assert "p50, p99 of 5 samples, jitter 10 %, seed 3; makespan and speedup without jitter" in caption


def test_the_jitter_is_2_percent_unless_given(said):
    assert "jitter 2 %, seed 0" in " ".join(said("pair.json", "--samples", "2").split())
    found, same = (
        json.loads(said("pair.json", "--samples", "2", "--json", *more)) for more in ([], ["--jitter", "0.02"])
    )
    assert found["sampling"] == same["sampling"] == {"n": 2, "jitter": 0.02, "seed": 0}
    assert found["rows"][0]["p99_us"] == same["rows"][0]["p99_us"]


def test_without_samples_nothing_is_sampled(said):
    assert "p50" not in said("pair.json", "--jitter", "0.1")
    found = json.loads(said("pair.json", "--json"))
    assert found["sampling"] is None
    assert {(row["p50_us"], row["p95_us"], row["p99_us"]) for row in found["rows"]} == {(None, None, None)}


def test_json_agrees_with_the_library(said):
    arguments = ("pair.json", "--schedulers", "sequential,lios", "--samples", "9", "--jitter", "0.3", "--seed", "4")
    first, again, three = (said(*arguments, "--json", *more) for more in ([], [], ["--workers", "3"]))
    expected = ss.compare(
        ss.OpGraph.load("pair.json"), ss.Cluster.preset("a100"), ["sequential", "lios"], jitter=0.3, rng=4, samples=9
    )
    for text in (first, again, three):
        for row, known in zip(json.loads(text)["rows"], expected.rows, strict=True):
            assert (row["makespan_us"], row["speedup"]) == (known.makespan_us, known.speedup)
            assert (row["p50_us"], row["p95_us"], row["p99_us"]) == (known.p50_us, known.p95_us, known.p99_us)


@pytest.mark.parametrize(("name", "magic"), [("t.png", b"\x89PNG"), ("t.SVG", b"<?xml"), ("t.pdf", b"%PDF")])
def test_a_box_plot(said, tmp_path, name, magic):
    assert said(SMALL, "--samples", "4", "--box", name).endswith(f"box plot written to {name}\n")
    assert (tmp_path / name).read_bytes().startswith(magic)
    json.loads(said(SMALL, "--samples", "4", "--box", name, "--json"))


def test_every_picture_at_once(said, tmp_path):
    out = said("pair.json", "--samples", "2", "--schedulers", "lios", "--box", "b.svg", "--gantt", "g.svg",
               "--perfetto", "t.json")  # fmt: skip
    assert out.endswith("lios written to t.json\nlios written to g.svg\nbox plot written to b.svg\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.svg", "g.svg", "pair.json", "t.json"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--box b.png", "--box draws samples: say how many with --samples"),
        ("--samples 2 --box b.jpg", "cannot draw 'b.jpg': its name must end in one of: .png, .svg, .pdf"),
        ("--samples 2 --box=", "must end in one of"),
        ("--samples 2 --box b.png --gantt b.png", "this command already uses the file"),
        ("--samples 0", "--samples"),
        ("--samples 1000001", "--samples"),
        ("--samples 2 --workers 0", "--workers"),
    ],
)
def test_refusals(refused, arguments, message):
    assert message in refused("pair.json", *arguments.split())


def test_rows_without_a_schedule_have_no_box(said, tmp_path):
    (tmp_path / "nobody_samples_too.py").write_text(
        "import simsched\n\ndef never(graph, cluster, cost):\n    raise simsched.SimschedError('no')\n"
    )
    asked = ("--schedulers", "lios,nobody_samples_too:never", "--samples", "2", "--box", "b.svg")
    first, second = json.loads(said("pair.json", *asked, "--json"))["rows"]
    assert (second["p50_us"], second["p99_us"]) == (None, None)
    assert first["p50_us"] > 20
    drawn = (tmp_path / "b.svg").read_text(encoding="utf-8")
    assert "lios" in drawn
    assert "never" not in drawn


@pytest.mark.parametrize("name", ["$\\foo$", "a$b", "x" * 200])
def test_a_box_plot_of_any_graph(said, tmp_path, name):
    ss.OpGraph([ss.Operator("a", time=5.0)], name=name).save("g.json")
    said("g.json", "--samples", "2", "--box", "b.svg")
    assert (tmp_path / "b.svg").stat().st_size > 1000
