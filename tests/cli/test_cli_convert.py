"""`simsched convert`, `simsched list formats`, files of other tools as GRAPH, and what is refused."""

import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest

import simsched as ss
from simsched.base.errors import GraphError
from simsched.cli.inputs import read_shapes
from simsched.model.profile import MeasuredOperator, Profile
from workloads import load
from workloads.formats import read


def test_there_and_back(said, tmp_path):
    """A network as DOT, and from there as ours: the same graph."""
    dot, back = tmp_path / "a.dot", tmp_path / "b.json"
    out = said("convert", "tiny_inception", dot)
    assert out == f"OpGraph('tiny_inception', 10 operators, 12 edges) written to {dot} (dot)\n"
    said("convert", dot, back)
    assert ss.OpGraph.load(str(back)) == load("tiny_inception")


def test_a_profile_is_said_in_a_line(said, tmp_path):
    """The trace of torch.profiler has six operators; what is printed does not list their samples."""
    trace, profile = Path(__file__).parents[1] / "workloads" / "kineto_cpu.json.gz", tmp_path / "profile.json"
    assert said("convert", trace, profile) == (f"Profile(6 operators from {trace}) written to {profile} (simsched)\n")


def test_a_profile_has_no_graph_to_write(refused, tmp_path):
    profile = tmp_path / "profile.json"
    Profile((MeasuredOperator("a", (1.0,)),)).save(profile)
    assert refused("convert", profile, tmp_path / "a.x", "--to", "dot") == (
        f"{tmp_path / 'a.x'}: a profile cannot be written as dot, which holds a graph"
    )


def test_what_is_written_is_said(said, tmp_path):
    """Of a schedule a format of graphs gets the graph alone."""
    plan = tmp_path / "plan.json"
    program = tmp_path / "program.json"
    said("schedule", "tiny_inception", "-o", plan, "--program", program)
    said("convert", program, tmp_path / "program.dot")
    assert said("convert", plan, tmp_path / "a.dot").startswith("OpGraph('tiny_inception', 10 operators")
    assert said("convert", plan, tmp_path / "b.json").startswith("Schedule('lios' of 'tiny_inception'")


def test_by_name_of_the_format(said, tmp_path):
    path = tmp_path / "a.txt"
    assert said("convert", "tiny_inception", path, "--to", "dot").endswith("(dot)\n")
    assert "(simsched)" in said("convert", path, tmp_path / "b.json", "--from", "dot")


def test_a_schedule_of_ios_is_simulated_as_it_is(said, refused, tmp_path):
    """Its one convolution reads the image; nothing writes such files."""
    node = {"type": "conv", "name": "1", "inputs": [[["0", 0, 3]]], "out_channels": 4, "kernel": [1, 1],
            "stride": [1, 1], "padding": [0, 0], "groups": 1, "act": "relu"}  # fmt: skip
    block = {"enter_name": "0", "inner_nodes": [], "exit_node": node, "stages": [[["1"]]]}
    ios = tmp_path / "ios.json"
    ios.write_text(json.dumps({"name": "net", "input": {"name": "0", "output_shape": [3, 8, 8]}, "blocks": [block]}))
    simulated = json.loads(said("simulate", ios, "--gpu", "v100", "--json"))
    cluster = ss.Cluster.preset("v100")
    assert simulated["makespan_us"] == ss.simulate(read(ios), cluster).makespan
    assert "nothing writes ios files" in refused("convert", ios, tmp_path / "a.json", "--to", "ios")


def test_formats(said):
    lines = said("list", "formats").splitlines()
    assert lines[1].split() == ["name", "suffix", "holds", "read", "write"]
    assert ["onnx", ".onnx", "graph", "yes", "-"] in [line.split() for line in lines]


def test_shapes():
    assert read_shapes(["x=1,3,8,8", "a=b=2"]) == {"x": (1, 3, 8, 8), "a=b": (2,)}
    assert read_shapes(None) == {}
    with pytest.raises(GraphError, match="input 'x' is given twice"):
        read_shapes(["x=1", "x=2"])


def test_warnings_are_lines_of_stderr(tmp_path):
    """A device of a trace that has no name is taken, and said."""
    path = tmp_path / "t.json"
    kernel = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 20, "dur": 5}
    kernel["args"] = {"device": 0, "stream": 7, "correlation": 1, "grid": [1, 1, 1], "block": [32, 1, 1]}
    path.write_text(json.dumps({"deviceProperties": [{"id": 0, "name": ""}], "traceEvents": [kernel]}))
    done = subprocess.run(
        [sys.executable, "-m", "simsched", "convert", str(path), str(tmp_path / "p.json")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stderr.startswith(f"warning: {path}: device 0 has no name"), done.stderr
    assert logging.getLogger("workloads").handlers == []
