"""Reading and writing files by format: which is which, options, and what is refused."""

import gzip
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module

import pytest
from ios_documents import merged, two_devices

import simsched as ss
from simsched.base.errors import (
    FileError,
    FormatError,
    GraphError,
    MissingDependencyError,
    SimschedError,
    UnknownNameError,
)
from workloads import from_spec, load, read_spec
from workloads.formats import format_of, read, read_graph, torch_fx, write
from workloads.formats.onnx.models import read_onnx


@pytest.fixture
def graph():
    return load("tiny_inception")


@pytest.fixture
def file(tmp_path):
    """Write a file of a name: a text, or a document."""

    def write(name, content):
        (tmp_path / name).write_text(content if isinstance(content, str) else json.dumps(content))
        return tmp_path / name

    return write


@pytest.mark.parametrize(("name", "format"), [("a.json", "simsched"), ("a.gv", "dot"), ("a.dot", "dot")])
def test_what_is_written_is_told_by_its_suffix(name, format, graph, tmp_path):
    assert write(graph, tmp_path / name) == format_of(tmp_path / name) == format
    assert read(tmp_path / name) == read_graph(tmp_path / name) == graph


@pytest.mark.parametrize(("document", "name"), [(merged(), "ios"), (two_devices(), "hios")])
def test_schedules_of_other_tools_are_told_by_their_keys(document, name, file):
    path = file("a.json", document)
    assert format_of(path) == name
    assert read(path).graph == read_graph(path)


@pytest.mark.parametrize("name", ["simsched", "dot"])
def test_a_pipe_of_any_name_is_told_by_its_first_bytes(name, graph, tmp_path):
    pipe = tmp_path / "pipe"
    write(graph, tmp_path / "file", name)
    content = (tmp_path / "file").read_bytes()
    os.mkfifo(pipe)
    with ThreadPoolExecutor() as pool:
        pool.submit(pipe.write_bytes, content)
        assert len(from_spec(str(pipe))) == len(graph)


def test_own_json_holds_four_things(graph, tmp_path):
    plan = ss.schedule(graph, ss.Cluster.preset("a100"), "greedy")
    for i, subject in enumerate((graph, plan, plan.lower(ss.Cluster.preset("a100")))):
        path = tmp_path / f"{i}.json"
        write(subject, path)
        assert type(read(path)) is type(subject)
    with pytest.raises(FormatError, match=r"'simsched\.schedule'; expected 'simsched\.graph'"):
        read_graph(tmp_path / "1.json")


def test_options_of_a_reader(file):
    """The batch is not in a file of IOS: 4 images take four times the FLOP."""
    path = file("plan.json", merged())
    one, four = from_spec(str(path)), from_spec(f"{path},batch=4")
    assert four["1"].flops == 4 * one["1"].flops
    assert read_spec(f"{path},batch=4,on=gpu1").devices_used == ("gpu1",)
    with pytest.raises(GraphError, match="has no parameter 'bath'; known are: batch, dtype"):
        from_spec(f"{path},bath=4")
    with pytest.raises(FormatError, match="format ios: there is no option 'bath'; known are: batch, dtype, on"):
        read(path, bath=4)


def test_an_option_that_is_true_or_false(file):
    """The entry and the exit of a set of one task."""
    path = file("one.stg", "1\n0 0 0\n1 5 1 0\n2 0 1 1\n")
    assert (len(from_spec(f"{path},keep_dummies=true")), len(from_spec(f"{path},keep_dummies=false"))) == (3, 1)
    with pytest.raises(GraphError, match="keep_dummies must be true or false, not 'no'"):
        from_spec(f"{path},keep_dummies=no")


def test_a_workload_is_no_file(graph):
    assert read_spec("tiny_inception") == graph
    with pytest.raises(GraphError, match="shapes are for files"):
        from_spec("tiny_inception", shapes={"x": (1,)})


def test_a_trace_without_a_gpu_has_no_graph(file, tmp_path):
    path = file("a.json", {"schemaVersion": 1, "traceEvents": []})
    assert format_of(path) == "kineto"
    with pytest.raises(FormatError, match="nothing was launched on a GPU"):
        read_graph(path)
    zipped = tmp_path / "trace.json.gz"
    zipped.write_bytes(gzip.compress(path.read_bytes()))
    assert format_of(zipped) == "kineto"


@pytest.mark.parametrize("name", ["a.pth", "a", ".json.bak", "model.tflite"])
def test_unknown_suffixes(name, graph, tmp_path):
    for act in (format_of, lambda path: write(graph, path)):
        with pytest.raises(FormatError, match=r"the format is not known by its suffix; known are: \.json, \.onnx"):
            act(tmp_path / name)


@pytest.mark.parametrize("suffix", [".json", ".onnx", ".dot", ".stg", ".txt", ".json.gz"])
@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe{}", b"[" * 100_000])
def test_nothing_useful_in_the_file(suffix, content, tmp_path):
    path = tmp_path / f"file{suffix}"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SimschedError) as caught:
        read(path)
    assert "file" in str(caught.value)
    assert isinstance(caught.value, FileError) == (content is None)


def test_refused_names(graph, tmp_path):
    with pytest.raises(UnknownNameError, match="unknown format 'tf'; known are: simsched, onnx"):
        read(tmp_path / "a.json", "tf")
    with pytest.raises(FormatError, match="nothing writes onnx files; formats that are written: simsched, dot"):
        write(graph, tmp_path / "a.onnx")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("read", "package"),
    [
        (lambda: torch_fx.from_module(0, ()), "torch"),
        (lambda: torch_fx.from_fx(0), "torch"),
        (lambda: torch_fx.from_exported(0), "torch"),
        (lambda: read_onnx("a.onnx"), "onnx"),
    ],
)
def test_without_a_package_what_to_install_is_said(read, package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingDependencyError, match=rf"pip install 'simsched\[{package}\]'"):
        read()


LEFT = {
    "WfCommons": {"name": "w", "schemaVersion": "1.4", "workflow": {"tasks": [{"name": "a", "runtimeInSeconds": 1.0}]}},
    "Chakra": {"schema": "1.0.2-chakra.0.0.4", "nodes": [{"id": 1, "name": "a", "ctrl_deps": [], "data_deps": []}]},
}


@pytest.mark.parametrize("name", LEFT)
def test_formats_that_left_are_named(name, tmp_path):
    """By what a file holds, and by name, with what to do instead."""
    path = tmp_path / "old.json"
    path.write_text(json.dumps(LEFT[name]))
    for call in (
        lambda: read(path),
        lambda: read_graph(path),
        lambda: from_spec(str(path)),
        lambda: read(path, name.lower()),
    ):
        with pytest.raises(FormatError, match=f"{name} is not read any more: .*make an OpGraph"):
            call()


MOVED = {
    "onnx_models": ("onnx.models", "from_onnx read_onnx"),
    "torch_files": ("torch.files", "read_exported_file read_python"),
    "torch_fx": ("torch.fx", "from_exported from_fx from_module traced"),
    "kineto": ("kineto.profile", "read_kineto"),
    "ios": ("ios_hios.ios", "read_ios read_ios_graph"),
    "hios": ("ios_hios.hios", "read_hios"),
    "hios_graph": ("ios_hios.hios_graph", "read_hios_graph"),
}


@pytest.mark.parametrize("name", MOVED)
def test_functions_of_a_moved_module_keep_their_former_path(name):
    place, functions = MOVED[name]
    former, module = (import_module(f"workloads.formats.{path}") for path in (name, place))
    for function in functions.split():
        assert getattr(former, function) is getattr(module, function)
