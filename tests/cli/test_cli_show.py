"""`simsched show` and its pictures of graphs and schedules."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path

SMALL = "random:layered,n_ops=12,n_layers=4"
OTHER = "random:layered,n_ops=13,n_layers=4"


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
    said("schedule", SMALL, "--scheduler", "greedy", "-o", "plan.json")
    said("show", "plan.json", "--svg", "a.svg")
    said("show", SMALL, "--scheduler", "greedy", "--svg", "b.svg")
    assert label("a.svg").startswith("layered-12 by greedy: ")
    assert Path("a.svg").read_bytes() == Path("b.svg").read_bytes()
