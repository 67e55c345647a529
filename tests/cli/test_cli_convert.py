"""`simsched convert`, `simsched list formats`, and files of other tools as GRAPH."""

import json
from pathlib import Path

import simsched as ss
from workloads import load
from workloads.formats import read


def test_there_and_back(said, tmp_path):
    """A network as DOT, and from there as ours: the same graph."""
    line = "OpGraph('tiny_inception', 10 operators, 12 edges) written to"
    assert said("convert tiny_inception a.dot") == f"{line} a.dot (dot)\n"
    assert said("convert a.dot b.json").endswith("(simsched)\n")
    assert ss.OpGraph.load("b.json") == load("tiny_inception")


def test_what_is_written_is_said(said):
    """Of a schedule or program a format of graphs gets the graph alone; a profile's samples are not listed."""
    said("schedule tiny_inception -o plan.json --program program.json")
    for source in ("plan", "program"):
        assert said(f"convert {source}.json a.dot").startswith("OpGraph('tiny_inception', 10 operators")
    assert said("convert plan.json b.json").startswith("Schedule('lios' of 'tiny_inception'")
    trace = Path(__file__).parents[1] / "workloads" / "formats" / "kineto" / "kineto_cpu.json.gz"
    assert said("convert", trace, "p.json") == f"Profile(6 operators from {trace}) written to p.json (simsched)\n"


def test_a_schedule_of_ios_is_simulated_as_it_is(said, refused):
    plan = Path(__file__).parents[2] / "validation" / "seeds" / "ios-1.json"
    simulated = json.loads(said("simulate", plan, "--gpu", "v100", "--json"))
    assert simulated["makespan_us"] == ss.simulate(read(plan), ss.Cluster.preset("v100")).makespan
    assert "nothing writes onnx files" in refused("convert", plan, "a.onnx")


def test_formats(said):
    lines = said("list formats").splitlines()
    assert lines[1].split() == ["name", "suffix", "holds", "read", "write"]
    assert ["onnx", ".onnx", "graph", "yes", "-"] in [line.split() for line in lines]
