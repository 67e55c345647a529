"""What is wrong ends in exit status 2 and one ``error:`` line, and leaves the folder as it was."""

import json
import signal
import sys

import pytest

from simsched.cli.run import run


def graph_file():
    return {
        "format": "simsched.graph",
        "version": 1,
        "name": "fork",
        "operators": [{"name": "a", "time": 10.0}, {"name": "b", "time": 20.0}, {"name": "c", "time": 5.0}],
        "edges": [{"src": "a", "dst": "b"}, {"src": "a", "dst": "c"}],
    }


def contents(folder):
    return {str(path.relative_to(folder)): path.is_file() and path.read_bytes() for path in folder.rglob("*")}


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # the folder is to stay as it was
    (tmp_path / "graph.json").write_text(json.dumps(graph_file()))


@pytest.fixture
def refused(tmp_path, capsys):
    """Run a command that must fail; return its error line without ``error: ``."""

    def refuse(*arguments, printed=False):
        before = contents(tmp_path)
        status = run(list(arguments))
        out, err = capsys.readouterr()
        assert status == 2
        assert err.startswith("error: ")
        assert err.count("\n") == 1
        assert err.endswith("\n")
        assert not err.startswith("error: unexpected "), err  # what nobody thought of
        assert printed or out == ""
        assert contents(tmp_path) == before
        return err.removeprefix("error: ").rstrip("\n")

    return refuse


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("nonsense", "No such command 'nonsense'"),
        ("--nonsense", "No such option: --nonsense"),
        ("compare", "Missing argument 'GRAPH'"),
        ("compare graph.json again.json", "unexpected extra argument"),
        ("compare graph.json --nonsense", "No such option: --nonsense"),
        ("compare graph.json --gpu", "requires an argument"),
        ("list workloads graph.json", "unexpected extra argument"),
        ("list", "Missing argument 'KIND'"),
        ("list schedulers", "unknown kind 'schedulers'; known are: workloads, gpus, formats, backends"),
        ("list gpus --schema simsched.graph", "schemas are of formats, not of gpus"),
        ("compare inception_v4", "unknown workload 'inception_v4'; closest of 34 known: inception_v3"),
        ("compare random:layered,n_ops=0", "n_ops must be a whole number from 3 to 100,000,000, not 0"),
        ("compare graph.json,batch=2", "'graph.json' has no parameter 'batch'; known are: none"),
        ("compare graph.json --gpu b300", "unknown gpu 'b300'; known are: k80, v100"),
        ("compare graph.json --gpus 2 --link string", "unknown link 'string'; known are: "),
        ("compare graph.json --schedulers heft9", "unknown scheduler 'heft9'; closest of "),
        ("compare graph.json --schedulers=", "a name is empty"),
        ("schedule graph.json --scheduler heft9", "unknown scheduler 'heft9'"),
        ("compare graph.json --gpus 0", "--gpus"),
        ("compare graph.json --gpus 1000000000", "--gpus"),
        ("compare graph.json --jitter nan", "--jitter"),
        ("simulate graph.json --jitter 0.1 --seed -1", "--seed"),
        ("simulate graph.json --threads two", "unknown threads 'two'; known are: device, one"),
        ("simulate graph.json --transfers slow", "unknown transfers 'slow'; known are: async, blocking"),
        ("simulate graph.json --events few", "unknown events 'few'; known are: minimal, literal"),
        ("simulate graph.json --option streams=0", "streams must be a whole number of at least 1, not 0"),
        ("simulate graph.json --option streams", "expected name=value"),
        ("simulate graph.json --option width=2", "scheduler 'lios' has no option 'width'; known are: streams"),
        ("simulate graph.json --option graph=2", "no scheduler has such an option"),
        ("simulate graph.json --option streams=2 --option streams=3", "'streams' is given twice"),
    ],
)
def test_arguments(refused, arguments, message):
    assert message in refused(*arguments.split())


FILES = {
    "truncated": (json.dumps(graph_file())[:90].encode(), "not valid JSON at line 1"),
    "binary": (bytes(range(256)), "not a text file"),
    "other format": (json.dumps(graph_file() | {"format": "onnx"}).encode(), "field 'format' is 'onnx'"),
    "cycle": (json.dumps(graph_file() | {"edges": [{"src": "a", "dst": "a"}]}).encode(), "the edges form a cycle: a"),
}


@pytest.mark.parametrize("what", FILES)
def test_graph_files(refused, tmp_path, what):
    content, message = FILES[what]
    (tmp_path / "bad.json").write_bytes(content)
    told = refused("show", "bad.json")
    assert "bad.json" in told
    assert message in told


@pytest.mark.parametrize("command", ["compare", "show"])
def test_files_that_cannot_be_read(refused, tmp_path, command):
    (tmp_path / "folder.json").mkdir()
    assert refused(command, "missing.json") == "cannot read missing.json: No such file or directory"
    assert refused(command, "folder.json") == "cannot read folder.json: Is a directory"
    assert "Not a directory" in refused(command, "graph.json/inner.json")
    assert "unknown workload" in refused(command, "graph")
    assert "unknown workload" in refused(command, "")
    assert "File name too long" in refused(command, f"{'x' * 300}.json")


def test_a_plan_is_no_graph(refused, tmp_path, capsys):
    assert run(["schedule", "graph.json", "-o", "plan.json", "--program", "program.json"]) == 0
    capsys.readouterr()
    for command in ("compare", "schedule", "show"):
        assert "expected 'simsched.graph'" in refused(command, "plan.json")
        assert "expected 'simsched.graph'" in refused(command, "program.json")


def test_a_plan_for_more_devices(refused, capsys):
    two = ["graph.json", "--gpus", "2", "--scheduler", "round-robin"]
    assert run(["schedule", *two, "-o", "plan.json", "--program", "program.json"]) == 0
    capsys.readouterr()
    assert "unknown device 'gpu1'; known are: gpu0" in refused("simulate", "plan.json")
    assert "gpu0, gpu1, not gpu0" in refused("simulate", "program.json")


@pytest.mark.parametrize(
    "path", ["missing/t", "graph.json/t", "/proc/t", "/proc/self/t", f"{'x' * 300}"], ids=lambda p: p[:12]
)
def test_places_where_nothing_can_be_written(refused, path):
    for arguments in (
        ("compare", "graph.json", "--gantt", f"{path}.png"),
        ("compare", "graph.json", "--perfetto", f"{path}.json"),
        ("simulate", "graph.json", "--perfetto", "good.json", "--gantt", f"{path}.png"),
        ("simulate", "graph.json", "--perfetto", f"{path}.json", "--gantt", "good.png"),
        ("schedule", "graph.json", "-o", f"{path}.json"),
        ("schedule", "graph.json", "-o", "good.json", "--program", f"{path}.json"),
    ):
        assert f"cannot write {path}" in refused(*arguments)


def test_a_folder_is_not_written(refused, tmp_path):
    for name in ("folder.png", "folder.json"):
        (tmp_path / name).mkdir()
    assert refused("compare", "graph.json", "--gantt", "folder.png") == "cannot write folder.png: it is a folder"
    assert "it is a folder" in refused("simulate", "graph.json", "--perfetto", "folder.json")
    assert "it is a folder" in refused("schedule", "graph.json", "-o", "folder.json")
    assert "it is a folder" in refused("schedule", "graph.json", "-o", ".")


def test_a_file_without_a_name_is_not_written(refused):
    for option in ("--gantt=", "--perfetto="):
        refused("compare", "graph.json", option)
        refused("simulate", "graph.json", option)
    refused("schedule", "graph.json", "--output=")
    refused("schedule", "graph.json", "--program=")


@pytest.mark.parametrize("name", ["t.jpg", "t", ".png", "t.png.gz"])
def test_a_picture_of_another_kind(refused, name):
    for command in ("compare", "simulate"):
        told = refused(command, "graph.json", "--perfetto", "good.json", "--gantt", name)
        assert ".png, .svg, .pdf" in told


def test_no_file_is_used_twice(refused, tmp_path):
    (tmp_path / "link.json").symlink_to("graph.json")
    for arguments in (
        ("simulate", "graph.json", "--perfetto", "t.png", "--gantt", "./t.png"),
        ("schedule", "graph.json", "-o", "plan.json", "--program", "plan.json"),
        ("schedule", "graph.json", "-o", "graph.json"),
        ("compare", "link.json", "--perfetto", "graph.json"),
        ("simulate", "graph.json", "--perfetto", "link.json"),
    ):
        assert "this command already uses the file" in refused(*arguments)


def test_a_full_disk(refused):
    assert "No space left" in refused("simulate", "graph.json", "--perfetto", "/dev/full")


MINE = """
import sys
import simsched as ss

def fails(graph, cluster, cost):
    return 1 / 0

def ends(graph, cluster, cost):
    sys.exit(7)

def stops(graph, cluster, cost):
    raise KeyboardInterrupt

def fills(graph, cluster, cost):
    raise MemoryError

def answers_nothing(graph, cluster, cost):
    pass

def forgets(graph, cluster, cost):
    return ss.Schedule(graph, [])

def refuses(graph, cluster, cost):
    raise ss.SimschedError("too odd a graph")

def takes_nothing():
    pass

number = 3
"""
BAD = [
    ("fails", "scheduler 'my_failures:fails' raised ZeroDivisionError: division by zero ("),
    ("ends", "7"),
    ("stops", "interrupted"),
    ("fills", "out of memory"),
    ("answers_nothing", "scheduler 'my_failures:answers_nothing' returned NoneType, not a Schedule"),
    ("forgets", "scheduler 'my_failures:forgets': operator 'a' is placed nowhere"),
    ("takes_nothing", "'my_failures:takes_nothing' takes (), not (graph, cluster, cost)"),
    ("number", "'my_failures:number' is not a function"),
    ("missing", "cannot import scheduler 'my_failures:missing'"),
]


@pytest.fixture
def mine(tmp_path, monkeypatch):
    (tmp_path / "my_failures.py").write_text(MINE)
    monkeypatch.delitem(sys.modules, "my_failures", raising=False)
    handler = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, handler)  # after Ctrl-C a command that ends hears no second one


@pytest.mark.usefixtures("mine")
@pytest.mark.parametrize(("name", "message"), BAD)
@pytest.mark.parametrize(
    "arguments", ["schedule graph.json -o plan.json --scheduler ", "compare graph.json --schedulers lios,"]
)
def test_schedulers_that_are_broken(refused, arguments, name, message):
    """Alone or among others: a table would hide that there is nothing to compare."""
    assert message in refused(*f"{arguments}my_failures:{name}".split())


@pytest.mark.usefixtures("mine")
@pytest.mark.parametrize("command", ["compare", "robust"])
def test_schedulers_that_all_refuse(refused, command):
    message = "no scheduler found a schedule; my_failures:refuses: too odd a graph"
    assert refused(command, "graph.json", "--schedulers", "my_failures:refuses", "-o", "c.json") == message


@pytest.mark.parametrize("name", ["no_such_module:f", ":f", "json:", ":", "../json:f", "json:tool"])
def test_schedulers_that_cannot_be_imported(refused, name):
    assert "cannot import scheduler" in refused("simulate", "graph.json", "--scheduler", name)


@pytest.mark.parametrize(
    ("name", "message"),
    [("os:system", "'os:system' takes (command), not (graph, cluster, cost)"), ("math:hypot", "raised TypeError")],
)
def test_what_is_no_scheduler(refused, name, message):
    assert message in refused("compare", "graph.json", "--schedulers", name)


def test_what_nobody_thought_of_is_a_defect(monkeypatch, capsys):
    """Exit status 70, so that fuzzing does not take it for a refusal."""

    def broken(*_):
        raise KeyError("flops")

    monkeypatch.setattr("simsched.cli.graph._facts", broken)
    assert run(["show", "graph.json"]) == 70
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("error: unexpected KeyError: 'flops' (")
