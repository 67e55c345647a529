"""`simsched show` and its pictures of graphs and schedules."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from simsched.cli.run import run

SMALL = "random:layered,n_ops=12,n_layers=4"
OTHER = "random:layered,n_ops=13,n_layers=4"


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def said(capsys):
    """Run a command that succeeds in silence on stderr; return what it printed."""

    def say(*arguments):
        status = run(list(arguments))
        out, err = capsys.readouterr()
        assert (status, err) == (0, "")
        return out

    return say


@pytest.fixture
def refused(capsys, tmp_path):
    """Run a command that must fail and write nothing; return its error line without ``error: ``."""

    def refuse(*arguments):
        before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
        assert run(list(arguments)) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("error: ")
        assert not err.startswith("error: unexpected ")
        assert err.count("\n") == 1
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
        return err.removeprefix("error: ").rstrip("\n")

    return refuse


def label(path):
    return ET.parse(path).getroot().get("aria-label")


def test_a_picture_of_a_graph(said):
    out = said("show", SMALL, "--svg", "g.svg", "--dot", "g.dot")
    assert out.startswith("name ")
    assert out.endswith("picture written to g.svg\npicture written to g.dot\n")
    assert label("g.svg").startswith("layered-12: 12 operators, ")
    assert Path("g.dot").read_text(encoding="utf-8").startswith('digraph "layered-12" {\n')


def test_json_stays_json(said):
    assert json.loads(said("show", SMALL, "--svg", "g.svg", "--json")) == json.loads(said("show", SMALL, "--json"))
    assert label("g.svg")


def test_a_picture_of_a_schedule_that_is_made(said):
    said("show", SMALL, "--svg", "g.svg", "--scheduler", "inter-lp", "--gpus", "2")
    assert label("g.svg").startswith("layered-12 by inter-lp: 12 operators")
    assert "on 2 devices" in label("g.svg")
    said("show", SMALL, "--svg", "g.svg", "--option", "streams=1")
    assert label("g.svg").startswith("layered-12 by lios: ")
    assert "1 stream on 1 device" in label("g.svg")


def test_a_picture_of_a_schedule_from_a_file(said):
    """As the graph, or beside it: the same picture."""
    said("schedule", SMALL, "--scheduler", "greedy", "-o", "plan.json")
    said("show", "plan.json", "--svg", "a.svg")
    said("show", SMALL, "--schedule", "plan.json", "--svg", "b.svg")
    said("show", "plan.json", "--schedule", "plan.json", "--svg", "c.svg")
    assert label("a.svg").startswith("layered-12 by greedy: ")
    assert Path("a.svg").read_bytes() == Path("b.svg").read_bytes() == Path("c.svg").read_bytes()


def test_what_cannot_be_drawn(said, refused):
    said("schedule", SMALL, "-o", "plan.json", "--program", "program.json")
    to = ("--svg", "g.svg")
    assert refused("show", "program.json", *to) == (
        "program.json: a program is not drawn; give the schedule that it was made from"
    )
    assert "is scheduled already" in refused("show", "plan.json", *to, "--scheduler", "lios")
    assert "plan.json is scheduled already" in refused(
        "show", SMALL, *to, "--schedule", "plan.json", "--option", "streams=2"
    )
    assert "schedules another graph than random:layered,n_ops=13" in refused(
        "show", OTHER, *to, "--schedule", "plan.json"
    )
    assert "--schedule takes a schedule" in refused("show", SMALL, *to, "--schedule", SMALL)
    assert "--schedule takes a schedule" in refused("show", SMALL, *to, "--schedule", "program.json")
    assert "cannot read none.json" in refused("show", SMALL, *to, "--schedule", "none.json")
    assert "unknown scheduler 'nobody'" in refused("show", SMALL, *to, "--scheduler", "nobody")
    assert "has 10001 operators" in refused("show", "random:layered,n_ops=10001,n_layers=100", *to)


@pytest.mark.parametrize("option", [("--scheduler", "lios"), ("--option", "streams=2"), ("--schedule", "plan.json")])
def test_schedules_are_for_pictures(refused, option):
    assert "say where with --svg or --dot" in refused("show", SMALL, *option)


def test_files_that_cannot_be_written(said, refused):
    said("schedule", SMALL, "-o", "plan.json")
    assert "cannot write nowhere/g.svg" in refused("show", SMALL, "--svg", "nowhere/g.svg")
    assert "it is a folder" in refused("show", SMALL, "--svg", ".")
    assert "cannot write nowhere/g.dot" in refused("show", SMALL, "--svg", "g.svg", "--dot", "nowhere/g.dot")
    assert "already uses the file" in refused("show", SMALL, "--svg", "g.svg", "--dot", "g.svg")
    assert "already uses the file" in refused("show", "plan.json", "--svg", "plan.json")
    assert "already uses the file" in refused("show", SMALL, "--schedule", "plan.json", "--dot", "plan.json")
    assert "without a name" in refused("show", SMALL, "--svg", "")
    assert refused("show", SMALL, "--svg", "g.png") == "--svg g.png: the file must end in .svg"
