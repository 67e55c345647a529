"""What is wrong ends in exit status 2 and one ``error:`` line, and leaves the folder as it was."""

import json
import signal
import sys
from pathlib import Path

import pytest

from simsched.cli.run import run

SMALL = "random:layered,n_ops=12,n_layers=4"
LAYERED = "random:layered"


def graph_file():
    return {
        "format": "simsched.graph",
        "version": 1,
        "name": "fork",
        "operators": [{"name": "a", "time": 10.0}, {"name": "b", "time": 20.0}, {"name": "c", "time": 5.0}],
        "edges": [{"src": "a", "dst": "b"}, {"src": "a", "dst": "c"}],
    }


def schedule_file(*placements, edges, execution="events"):
    names = [op for op, _, _ in placements]
    graph = {"format": "simsched.graph", "version": 1, "operators": [{"name": n, "time": 1.0} for n in sorted(names)],
             "edges": [{"src": s, "dst": d} for s, d in edges]}  # fmt: skip
    rows = [{"op": op, "device": device, "stage": stage} for op, device, stage in placements]
    return {"format": "simsched.schedule", "version": 1, "scheduler": "by hand", "execution": execution,
            "estimate": None, "graph": graph, "placements": rows}  # fmt: skip


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
        ("workloads graph.json", "unexpected extra argument"),
        ("compare inception_v4", "unknown workload 'inception_v4'; closest of 34 known: inception_v3"),
        ("compare random:", "unknown workload 'random:'"),
        ("compare graph.json --gpu b300", "unknown gpu 'b300'; known are: k80, v100"),
        ("show graph.json --gpu b300", "unknown gpu 'b300'"),
        ("compare graph.json --gpus 2 --link string", "unknown link 'string'; known are: "),
        ("compare graph.json --schedulers heft9", "unknown scheduler 'heft9'; closest of "),
        ("compare graph.json --schedulers lios,heft9", "unknown scheduler 'heft9'"),
        ("compare graph.json --schedulers=", "a name is empty"),
        ("compare graph.json --schedulers lios,,greedy", "a name is empty"),
        ("schedule graph.json --scheduler heft9", "unknown scheduler 'heft9'"),
        ("simulate graph.json --scheduler lios,greedy", "unknown scheduler 'lios,greedy'"),
        ("compare graph.json --gpus 0", "--gpus"),
        ("compare graph.json --gpus -1", "--gpus"),
        ("compare graph.json --gpus 1000000000", "--gpus"),
        ("compare graph.json --gpus x", "--gpus"),
        ("compare graph.json --gpus 1.5", "--gpus"),
        ("compare graph.json --jitter -1", "--jitter"),
        ("compare graph.json --jitter nan", "--jitter"),
        ("compare graph.json --jitter inf", "--jitter"),
        ("simulate graph.json --jitter 1e300", "--jitter"),
        ("simulate graph.json --jitter 0.1 --seed -1", "--seed"),
        ("simulate graph.json --jitter 0.1 --seed 1.5", "--seed"),
        ("simulate graph.json --threads two", "unknown threads 'two'; known are: device, one"),
        ("simulate graph.json --transfers slow", "unknown transfers 'slow'; known are: async, blocking"),
        ("simulate graph.json --events few", "unknown events 'few'; known are: minimal, literal"),
        ("simulate graph.json --option streams=0", "streams must be at least 1, not 0"),
        ("simulate graph.json --option streams=-3", "streams must be at least 1, not -3"),
        ("simulate graph.json --option streams=1.5", "streams must be"),
        ("simulate graph.json --option streams=many", "streams must be"),
        ("simulate graph.json --option streams=none", "streams must be"),
        ("simulate graph.json --option streams", "expected name=value"),
        ("simulate graph.json --option =2", "expected name=value"),
        ("simulate graph.json --option width=2", "scheduler 'lios' has no option 'width'; known are: streams"),
        ("simulate graph.json --option graph=2", "no scheduler has such an option"),
        ("schedule graph.json --option cost=2", "no scheduler has such an option"),
        ("simulate graph.json --option streams=2 --option streams=3", "'streams' is given twice"),
        ("schedule graph.json --scheduler sequential --option streams=3", "has no option 'streams'"),
    ],
)
def test_arguments(refused, arguments, message):
    assert message in refused(*arguments.split())


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ("n_ops=0", "n_ops must be at least 3, not 0"),
        ("n_ops=-1", "n_ops must be at least 3"),
        ("n_ops=1000000000", "n_ops must be at most"),
        ("n_ops=x", "n_ops must be a whole number, not 'x'"),
        ("n_ops=", "n_ops must be a whole number, not ''"),
        ("n_ops", "'n_ops' is not of the form parameter=value"),
        ("", "'' is not of the form parameter=value"),
        ("n_ops=20,n_ops=30", "parameter 'n_ops' is given twice"),
        ("n_oops=20", "has no parameter 'n_oops'; known are: n_ops"),
        ("n_ops=20,n_layers=0", "n_layers must be at least"),
        ("n_ops=20,n_layers=30", "n_layers must be at most 20"),
        ("n_ops=20,n_layers=5,n_edges=0", "n_edges must be at least"),
        ("n_ops=20,n_layers=5,n_edges=100000", "n_edges must be at most"),
        ("comm_ratio=-1", "comm_ratio must be a finite number of at least 0"),
        ("comm_ratio=nan", "comm_ratio must be a number, not 'nan'"),
        ("time=4:3", "time must not end before it begins"),
        ("time=5", "time must be a range low:high, not '5'"),
        ("utilization=0:2", "utilization must be within (0, 1]"),
        ("seed=-1", "must be at least 0, not -1"),
        ("seed=x", "seed must be a whole number"),
    ],
)
@pytest.mark.parametrize("command", ["compare", "simulate", "schedule", "show"])
def test_random_graphs(refused, command, parameters, message):
    assert message in refused(command, f"{LAYERED},{parameters}")


def test_inception(refused):
    assert "batch must be at least 1" in refused("show", "inception_v3,batch=0")
    assert "unknown dtype 'fp4'" in refused("compare", "inception_v3,dtype=fp4")
    assert "'graph.json' has no parameter 'batch'; known are: none" in refused("compare", "graph.json,batch=2")


def edited(**changes):
    return json.dumps(graph_file() | changes)


OPERATORS, EDGES = graph_file()["operators"], graph_file()["edges"]
FILES = {
    "truncated": (edited()[:90], "not valid JSON at line 1"),
    "empty": ("", "not valid JSON at line 1, column 1"),
    "binary": (bytes(range(256)), "not a text file"),
    "latin-1": ('{"name": "\xe9"}'.encode("latin-1"), "not a text file"),
    "a list": ("[]", "object"),
    "a number": ("3", "object"),
    "an object": ("{}", "'format'"),
    "deep": ("[" * 100_000, "nested too deeply"),
    "many digits": ("1" * 5000, "digits"),
    "NaN": (edited().replace("10.0", "NaN"), "NaN is not a number that can be used"),
    "infinity": (edited().replace("10.0", "1e999"), "1e999 is too large a number"),
    "negative": (edited().replace("10.0", "-1"), "time must be finite and not negative, not -1"),
    "text for a number": (edited().replace("10.0", '"long"'), "field 'time' must be a number, not a text"),
    "number for a text": (edited(name=3), "field 'name' must be a text"),
    "field twice": ('{"format": "simsched.graph", "format": "x"}', "field 'format' stands twice"),
    "other format": (edited(format="onnx"), "field 'format' is 'onnx'"),
    "format of no text": (edited(format=["simsched.graph"]), "'format'"),
    "other version": (edited(version=2), "field 'version' is 2; this release reads simsched.graph 1"),
    "unknown field": (edited(colour=1), "unknown field 'colour'; known are: format"),
    "no operators": (edited(operators=[], edges=[]), "graph 'fork' is empty"),
    "cycle": (edited(edges=[*EDGES, {"src": "c", "dst": "a"}]), "the edges form a cycle: "),
    "loop": (edited(edges=[{"src": "a", "dst": "a"}]), "the edges form a cycle: a -> a"),
    "operator twice": (edited(operators=[*OPERATORS, OPERATORS[0]]), "operator 'a' stands twice"),
    "operator without a name": (edited(operators=[{"name": ""}], edges=[]), "name"),
    "dangling edge": (edited(edges=[{"src": "a", "dst": "z"}]), "edge a -> z names no operator: 'z'"),
    "enormous grid": (
        edited(operators=[*OPERATORS, {"name": "d", "kernels": [{"blocks": 10**30, "threads": 32}]}]),
        "blocks must be",
    ),
}


@pytest.mark.parametrize("what", FILES)
@pytest.mark.parametrize("command", ["compare", "simulate", "schedule", "show"])
def test_graph_files(refused, tmp_path, command, what):
    content, message = FILES[what]
    (tmp_path / "bad.json").write_bytes(content if isinstance(content, bytes) else content.encode())
    told = refused(command, "bad.json")
    assert "bad.json" in told
    assert message in told


@pytest.mark.parametrize("command", ["compare", "simulate", "schedule", "show"])
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


CROSSED = schedule_file(
    # gpu0 runs d, which waits for c, before a; gpu1 runs b, which waits for a, before c
    ("d", "gpu0", 0),
    ("a", "gpu0", 1),
    ("b", "gpu1", 0),
    ("c", "gpu1", 1),
    edges=("ab", "cd"),
)


@pytest.mark.parametrize(
    ("execution", "message"),
    [("events", "can never finish"), ("stages", "can never finish"), ("graph", "launched before 'c', which it reads")],
)
def test_a_schedule_that_can_never_finish(refused, tmp_path, execution, message):
    (tmp_path / "plan.json").write_text(json.dumps(CROSSED | {"execution": execution}))
    assert message in refused("simulate", "plan.json", "--gpus", "2")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"placements": CROSSED["placements"][:-1]}, "'c'"),
        ({"placements": [*CROSSED["placements"], CROSSED["placements"][0]]}, "'d'"),
        ({"execution": "later"}, "'later'"),
        ({"version": 9}, "field 'version' is 9"),
        ({"estimate": -1.0}, "estimate"),
        ({"graph": {}}, "'format' is missing"),
    ],
)
def test_schedule_files(refused, tmp_path, change, message):
    (tmp_path / "plan.json").write_text(json.dumps(CROSSED | change))
    assert message in refused("simulate", "plan.json", "--gpus", "2")


def program_file(*threads, events, operators="ab", edges=("ab",)):
    graph = {"format": "simsched.graph", "version": 1, "operators": [{"name": n, "time": 1.0} for n in operators],
             "edges": [{"src": s, "dst": d} for s, d in edges]}  # fmt: skip
    return {"format": "simsched.program", "version": 1, "execution": "events", "devices": ["gpu0"], "events": events,
            "graph": graph, "threads": list(threads)}  # fmt: skip


def launch(op, stream):
    return {"do": "launch", "device": "gpu0", "stream": stream, "op": op, "kernel": 0, "priority": 0}


def event(do, number, stream):
    return {"do": do, "device": "gpu0", "stream": stream, "event": number}


def test_a_program_that_runs(capsys, tmp_path):
    """The program whose waits the next test crosses."""
    thread = [launch("a", 0), event("record", 0, 0), event("wait", 0, 1), launch("b", 1)]
    (tmp_path / "program.json").write_text(json.dumps(program_file(thread, events=1)))
    assert run(["simulate", "program.json", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["makespan_us"] > 2.0


def test_a_program_that_stops_half_way(refused, tmp_path):
    """The streams run in different directions, each waiting first for what the other records last."""
    thread = [
        event("wait", 1, 0), launch("a", 0), event("record", 0, 0),
        event("wait", 0, 1), launch("b", 1), event("record", 1, 1),
    ]  # fmt: skip
    (tmp_path / "program.json").write_text(json.dumps(program_file(thread, events=2)))
    told = refused("simulate", "program.json", "--perfetto", "t.json", "--gantt", "t.png")
    assert "deadlock" in told or "recorded" in told or "wait" in told


def test_a_program_whose_host_waits_for_ever(refused, tmp_path):
    """Each host thread waits for an event that the other records behind its own wait."""

    def crossing(op, other, own, stream):
        sync = {"do": "sync", "device": "gpu0", "event": other}
        return [sync, launch(op, stream), event("record", own, stream)]

    threads = crossing("a", 1, 0, 0), crossing("b", 0, 1, 1)
    (tmp_path / "program.json").write_text(json.dumps(program_file(*threads, events=2, edges=())))
    assert "deadlock" in refused("simulate", "program.json", "--gantt", "t.png")


@pytest.mark.parametrize(
    "thread",
    [
        [launch("a", 0)],
        [launch("a", 0), launch("a", 0), launch("b", 0)],
        [launch("a", 0), launch("z", 0)],
        [launch("a", -1), launch("b", 0)],
        [launch("a", 0), launch("b", 0), event("record", 7, 0)],
        [launch("a", 0), launch("b", 0), {"do": "dance", "device": "gpu0"}],
        [launch("a", 0), launch("b", 0) | {"device": "gpu7"}],
        [launch("a", 0), launch("b", 0) | {"kernel": 3}],
        [launch("a", 0) | {"stream": 10**30}, launch("b", 0)],
        ["launch a"],
        "launch a",
    ],
)
def test_program_files(refused, tmp_path, thread):
    (tmp_path / "program.json").write_text(json.dumps(program_file(thread, events=1)))
    assert "program" in refused("simulate", "program.json")


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


def test_nothing_to_draw(refused, tmp_path):
    (tmp_path / "nobody_can.py").write_text("def never(graph, cluster, cost):\n    return None\n")
    arguments = ("compare", "graph.json", "--schedulers", "nobody_can:never", "--gantt", "t.png")
    assert "nothing to draw" in refused(*arguments, printed=True)


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

def takes_nothing():
    pass

number = 3
"""


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ends", "7"),
        ("stops", "interrupted"),
        ("fills", "out of memory"),
        ("number", "'my_failures:number' is not a function"),
        ("missing", "cannot import scheduler 'my_failures:missing'"),
    ],
)
def test_schedulers_of_the_users(refused, tmp_path, monkeypatch, name, message):
    (tmp_path / "my_failures.py").write_text(MINE)
    monkeypatch.delitem(sys.modules, "my_failures", raising=False)
    handler = signal.getsignal(signal.SIGINT)
    try:
        assert message in refused("schedule", "graph.json", "--scheduler", f"my_failures:{name}")
    finally:
        signal.signal(signal.SIGINT, handler)  # after Ctrl-C a command that ends hears no second one


@pytest.mark.parametrize(("name", "message"), [("fails", "division by zero"), ("takes_nothing", "positional")])
def test_a_failure_in_a_scheduler_of_the_users_says_where(tmp_path, monkeypatch, capsys, name, message):
    (tmp_path / "my_failures.py").write_text(MINE)
    monkeypatch.delitem(sys.modules, "my_failures", raising=False)
    assert run(["schedule", "graph.json", "--scheduler", f"my_failures:{name}", "-o", "plan.json"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert message in err
    assert not Path("plan.json").exists()


@pytest.mark.parametrize("name", ["no_such_module:f", ":f", "json:", ":", "../json:f", "json:tool"])
def test_schedulers_that_cannot_be_imported(refused, name):
    assert "cannot import scheduler" in refused("simulate", "graph.json", "--scheduler", name)
