"""Whatever a command takes as GRAPH: names, files, traces, Python files and programs of PyTorch, for each command."""

import pytest

import simsched as ss
import workloads

MODEL = """
import simsched as ss
import workloads

GRAPH = workloads.load("tiny_inception", image_size=16)

def make():
    return GRAPH

def fails():
    raise RuntimeError("no\\nweights")

def other():
    return 5
"""
TRACE = "kineto-1.json"
COMMANDS = {
    "compare": "--schedulers lios",
    "schedule": "",
    "simulate": "",
    "explain": "",
    "whatif": "--set overhead.launch*=2",
    "sweep": "overhead.launch 1,2",
    "sensitivity": "",
    "breakeven": "overhead.launch lios sequential",
    "throughput": "",
    "robust": "--schedulers lios --samples 5",
    "advise": "--schedulers lios",
    "overlap": "",
    "show": "",
}


@pytest.fixture
def sources(tmp_path, files):
    """Each kind of GRAPH by its name."""
    (tmp_path / "my_model.py").write_text(MODEL)
    (tmp_path / "model.pt2").write_bytes(b"PK")
    workloads.load("tiny_inception", image_size=16).save(str(tmp_path / "graph.json"))
    (tmp_path / "graph.dot").write_text("digraph { a [time=5]; b [time=6]; a -> b }")
    return {
        "name": "tiny_inception",
        "family": "random:layered,n_ops=12,n_layers=3",
        "file": "graph.json",
        "dot": "graph.dot",
        "function": "my_model.py:make",
        "object": "my_model.py:GRAPH",
        "step": "llm:llama-2-7b,layers=1",
    }


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("kind", ["name", "family", "file", "dot", "function", "object", "step"])
def test_each_command_takes_each_kind(command, kind, sources, said):
    assert said(command, sources[kind], *COMMANDS[command].split())


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("my_model.py:nobody", "my_model.py has no 'nobody', or it returns nothing; give an OpGraph"),
        ("my_model.py:fails", "my_model.py:fails: RuntimeError: no weights"),
        ("my_model.py:other", "it holds a int; give an OpGraph"),
        ("missing.py:make", "cannot read missing.py"),
        ("model.pt2", "loading an exported program can run code of whoever wrote it; add --trust"),
    ],
)
def test_what_cannot_be_taken_is_said_in_one_line(command, source, message, sources, refused):
    assert message in refused(command, source, *COMMANDS[command].split())


def test_where_trust_is_asked_for_it_can_be_given(sources, refused):
    for words in ("convert model.pt2 out.json", "compare model.pt2"):
        assert "add --trust" in refused(words)
        assert "add --trust" not in refused(f"{words} --trust")  # it is no archive, or PyTorch is missing


def test_a_model_of_pytorch_has_its_own_number_format(sources, refused):
    assert "a PyTorch model has its own number formats" in refused("compare my_model.py:make --dtype fp16")


@pytest.mark.parametrize("line", ["explain plan.json", "simulate plan.json", "whatif plan.json --set launch*=2"])
def test_a_plan_runs_where_it_was_made_for_unless_told_otherwise(line, said, tmp_path):
    """Its file holds the cluster; a device that is named goes before it."""
    said("schedule", "tiny_inception", "--gpu", "h100", "--gpus", "2", "--scheduler", "hios-lp", "-o", "plan.json")
    plan = ss.Schedule.load(str(tmp_path / "plan.json"))
    assert [device.model for device in plan.cluster.devices] == ["h100"] * 2
    here = said(*line.split())
    assert (
        here
        == said(*line.split(), "--gpu", "h100", "--gpus", "2")
        != said(*line.split(), "--gpu", "k80", "--gpus", "2")
    )
