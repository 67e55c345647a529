"""Whatever is typed and whatever a file holds: exit status 0, or 2 and one line."""

import contextlib
import io
import json
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from quick import quick
from strategies import graphs

from simsched.cli.run import run
from simsched.model.cluster import Cluster
from simsched.schedulers import SCHEDULERS, schedule

FEW = settings(max_examples=80)


def check(arguments):
    """Run a command in this process and check what it must keep whatever it is given."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = run(arguments)
    said = err.getvalue()
    assert status in (0, 2), (status, said)
    if status == 0:
        assert said == ""
    else:
        assert said.startswith("error: ")
        assert said.count("\n") == 1
        assert not said.startswith("error: unexpected "), said  # a failure that nobody thought of
    return status, out.getvalue()


@contextlib.contextmanager
def own_folder():
    """A folder of one's own to be in: what a command leaves there is gone with it."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            yield Path(folder)
        finally:
            os.chdir(before)


def readable(characters):
    """Texts that can stand on a command line."""
    return st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=characters)


numbers = st.sampled_from(["0", "1", "2", "3", "-1", "1.5", "1e9", "nan", "inf", "x", "", "007", "1_0", "0x1", "٣"])
words = st.sampled_from(
    [
        "compare", "schedule", "simulate", "show", "convert", "list", "formats", "gpus", "graph.json", "graph.dot",
        "x.onnx", "inception_v3",
        "random:layered,n_ops=6,n_layers=3", "random:layered,n_ops=6,n_layers=3,seed=2", "random:layered,n_ops=2",
        "--gpu", "--gpus", "--link", "--schedulers", "--scheduler", "--option", "--jitter", "--seed", "--threads",
        "--samples", "--box", "--workers", "--full", "--brief",
        "--transfers", "--events", "--json", "--perfetto", "--gantt", "-o", "--output", "--program", "--version",
        "-h", "--", "-", "a100", "h200", "k80", "nvlink3", "pcie3", "fast", "lios", "greedy,lios", "streams=2",
        "streams=0", "one", "blocking", "literal", "t.json", "t.svg", "t.jpg", "missing/t.svg", ".", "",
    ]
)  # fmt: skip


def write_graph(folder):
    operators = [{"name": "a", "time": 10.0, "utilization": 0.5}, {"name": "b", "time": 20.0, "utilization": 0.75}]
    data = {"format": "simsched.graph", "version": 1, "operators": operators, "edges": [{"src": "a", "dst": "b"}]}
    (folder / "graph.json").write_text(json.dumps(data))


@FEW
@given(st.lists(words | numbers | readable(6), max_size=8))
@example(["compare", "graph.json", "--gpus", "2", "--schedulers", "all"])
@example(["--", "compare"])
@example(["-h"])
def test_any_arguments(arguments):
    with own_folder() as folder:
        write_graph(folder)
        check(arguments)
        json.loads((folder / "graph.json").read_text())  # as it was, or else written whole
        assert not [path for path in folder.iterdir() if path.name.startswith(".") and "t." in path.name]


OPTIONS = {
    "compare": {"--gpu": "gpu", "--gpus": "n", "--link": "link", "--schedulers": "schedulers", "--jitter": "x",
                "--seed": "n", "--json": None, "--perfetto": "file", "--gantt": "picture", "--samples": "samples",
                "--workers": "n", "--box": "picture"},
    "schedule": {"--scheduler": "scheduler", "--gpu": "gpu", "--gpus": "n", "--link": "link", "--option": "option",
                 "-o": "file", "--program": "file"},
    "simulate": {"--scheduler": "scheduler", "--gpu": "gpu", "--gpus": "n", "--link": "link", "--option": "option",
                 "--threads": "threads", "--transfers": "transfers", "--events": "events", "--jitter": "x",
                 "--seed": "n", "--json": None, "--perfetto": "file", "--gantt": "picture", "--full": None,
                 "--brief": None},
    "show": {"--gpu": "gpu", "--gpus": "n", "--link": "link", "--json": None, "--svg": "picture", "--dot": "file",
             "--scheduler": "scheduler", "--option": "option", "--schedule": "file", "--shape": "shape"},
    "convert": {"--from": "format", "--to": "format", "--shape": "shape"},
}  # fmt: skip
VALUES = {
    "gpu": st.sampled_from(["a100", "v100", "k80", "a40", "h200", "A100", ""]),
    "n": st.sampled_from(["1", "2", "3", "9", "0", "-1", "10000000000", "x"]),
    "samples": st.sampled_from(["1", "2", "7", "0", "-1", "1000001", "1.5", "x"]),
    "x": st.sampled_from(["0", "0.2", "3", "1000", "1001", "-1", "nan", "x"]),
    "link": st.sampled_from(["pcie3", "nvlink-bridge", "nvlink2", "nvlink3", "network", "rope"]),
    "scheduler": st.sampled_from([*SCHEDULERS, "nobody", "no.module:f", "math:pi"]),
    "schedulers": st.lists(st.sampled_from(["fast", "all", *SCHEDULERS, "nobody", "math:pi", ""]), max_size=3).map(
        ",".join
    ),
    "option": st.sampled_from(
        ["streams=1", "streams=3", "streams=0", "streams=1.5", "streams=x", "window=2", "=", "x"]
    ),
    "threads": st.sampled_from(["device", "one", "two"]),
    "transfers": st.sampled_from(["async", "blocking", "slow"]),
    "events": st.sampled_from(["minimal", "literal", "none"]),
    "file": st.sampled_from(["t.json", "u.json", "missing/t.json", "graph.json", "."]),
    "picture": st.sampled_from(["t.svg", "t.jpg", "missing/t.svg"]),
    "shape": st.sampled_from(["x=1,3,8,8", "x=0", "x", "=1", "x=1,,2", "x=" + "9" * 30]),
    "format": st.sampled_from(["simsched", "dot", "stg", "onnx", "kineto", "ios", "hios-graph", "tf", ""]),
}


@st.composite
def commands(draw):
    """A command with options that it has and values that are mostly right."""
    command = draw(st.sampled_from(sorted(OPTIONS)))
    graph = draw(st.sampled_from(["graph.json", "random:layered,n_ops=6,n_layers=3", "random:layered,n_ops=2"]))
    arguments = [command, graph]
    if command == "convert":
        arguments.append(draw(st.sampled_from(["t.json", "t.dot", "t.stg", "t.txt", "t.onnx", "graph.json", "."])))
    for option in draw(st.lists(st.sampled_from(sorted(OPTIONS[command])), unique=True, max_size=5)):
        kind = OPTIONS[command][option]
        arguments += [option] if kind is None else [option, draw(VALUES[kind])]
    return arguments


@FEW
@given(commands())
def test_any_options(arguments):
    with own_folder() as folder:
        write_graph(folder)
        before = {path.name: path.read_bytes() for path in folder.iterdir()}
        status, out = check(arguments)
        after = {path.name: path.read_bytes() for path in folder.iterdir()}
        assert arguments[1] != "graph.json" or after["graph.json"] == before["graph.json"]
        assert after.keys() <= before.keys() | set(arguments)
        if status:
            assert after == before
        elif "--json" in arguments:
            json.loads(out)


@FEW
@given(
    st.sampled_from(["n_ops", "n_layers", "n_edges", "comm_ratio", "seed", "time", "min_transfer", "utilization", "?"]),
    numbers | readable(5) | st.sampled_from(["1:2", "2:1", "0:0", "none", "0.5:1", "1e308:1e308", "1:", ":", "1:2:3"]),
)
def test_any_parameter_of_a_random_graph(parameter, value):
    if "," in value or value == "1e9":
        return
    check(["compare", f"random:layered,n_ops=6,n_layers=3,{parameter}={value}", "--schedulers", "lios"])


def places(value, path=()):
    """The path of every value inside some JSON."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield from places(each, (*path, key))


odd_values = st.sampled_from(
    [
        "null", "true", "false", "0", "1", "-1", "2", "0.5", "-0.5", "1e18", "1e300", f"{10**30}", f"{2**63}",
        '""', '"a"', '"op0"', '"gpu0"', '"gpu1"', '"fp16"', '"compute"', r'"\u00e9\n[/x]"', '"$x$"', "[]", "{}", "[1]",
        '["op0"]', '{"a": 1}', "[[]]", '"simsched.graph"', '"simsched.program"',
    ]
).map(json.loads)  # fmt: skip


@st.composite
def spoilt(draw, data):
    """The data with one to three of its values exchanged, removed, doubled or swapped."""
    data = json.loads(json.dumps(data))
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from([path for path in places(data) if path]))
        parent = data
        for key in path[:-1]:
            parent = parent[key]
        what = draw(st.sampled_from(["value", "value", "value", "remove", "copy", "add"]))
        if what == "value":
            parent[path[-1]] = draw(odd_values)
        elif what == "remove":
            del parent[path[-1]]
        elif isinstance(parent, list) and what == "copy":
            parent.insert(draw(st.integers(0, len(parent))), parent[path[-1]])
        elif isinstance(parent, list):
            parent.append(draw(odd_values))
        else:
            parent[draw(st.sampled_from(["name", "time", "extra", "op", "stage"]))] = draw(odd_values)
        if not any(places(data)):
            break
    return data


@st.composite
def spoilt_files(draw):
    """A graph, schedule or program in JSON, spoilt; or the text of one, cut or with other characters."""
    graph = draw(graphs(max_ops=4))
    kind = draw(st.sampled_from(["graph", "schedule", "program"]))
    cluster = Cluster.preset("a100", 2)
    name = draw(st.sampled_from(sorted(SCHEDULERS)))
    plan = schedule(graph, cluster, name, **quick(name, graph))
    data = {"graph": graph, "schedule": plan, "program": plan.lower(cluster)}[kind].to_dict()
    if draw(st.integers(0, 4)):
        return json.dumps(draw(spoilt(data)))
    text = json.dumps(data)
    begin = draw(st.integers(0, len(text)))
    return text[:begin] + draw(readable(4)) + text[begin + draw(st.integers(0, 9)) :]


@pytest.mark.parametrize("command", ["simulate", "compare", "show", "schedule"])
@settings(max_examples=60)
@given(text=spoilt_files())
def test_any_file(command, text):
    with own_folder() as folder:
        (folder / "f.json").write_text(text, encoding="utf-8", newline="")
        extra = {"simulate": ["--gpus", "2", "--perfetto", "t.json"], "compare": ["--gpus", "2", "--json"],
                 "show": ["--json"], "schedule": ["-o", "t.json"]}[command]  # fmt: skip
        status, out = check([command, "f.json", *extra])
        assert (folder / "f.json").read_bytes() == text.encode()
        names = {path.name for path in folder.iterdir()}
        assert names == ({"f.json", "t.json"} if status == 0 and "t.json" in extra else {"f.json"})
        if status == 0 and "--json" in extra:
            json.loads(out)
        if "t.json" in names:
            json.loads((folder / "t.json").read_text())
