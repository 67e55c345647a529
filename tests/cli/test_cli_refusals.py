"""What is wrong ends in exit status 2 and one ``error:`` line, and leaves the folder as it was."""

import json

import pytest
from documents import document

import simsched as ss
from simsched.cli.run import run

FORK = ss.OpGraph([ss.Operator(name, time=10.0) for name in "abc"], [ss.Edge("a", "b"), ss.Edge("a", "c")], "fork")


@pytest.fixture(scope="module")
def files(files):
    FORK.save(files / "graph.json")
    ss.OpGraph([ss.Operator("a", time=1e300)]).save(files / "long.json")
    ss.Cluster.preset("h200").replace_devices(model="mine").save(files / "mine.json")
    for name in ("schedule", "program", "profile", "calibration"):
        (files / f"{name}.json").write_text(json.dumps(document(f"simsched.{name}")))
    study = 'name = "s"\nschedulers = ["lios"]\nworkload = {kind = "chain", n_ops = 3}\ncluster = {gpu = "a40"}'
    (files / "s.toml").write_text(study)
    (files / "torn.json").write_text('{"format": ')
    (files / "empty").mkdir()
    (files / "my_failures.py").write_text(MINE)
    return files


REFUSED = {
    # what is typed
    "nonsense": "No such command 'nonsense'",
    "compare": "Missing argument 'GRAPH'",
    "compare graph.json --gpus 0": "--gpus",
    "compare graph.json --jitter nan --samples 2": "sampling: jitter must be a finite number",
    "compare graph.json --schedulers=": "a name is empty",
    "compare graph.json --box b.png": "--box draws samples: say how many with --samples",
    "list schedulers": "unknown kind 'schedulers'; known are: workloads, gpus, formats, backends",
    "list gpus --schema simsched.graph": "schemas are of formats, not of gpus",
    "simulate graph.json --option streams": "expected name=value",
    "simulate graph.json --option graph=2": "no scheduler has such an option",
    "show missing.onnx --shape x": "--shape 'x': give NAME=1,3,224,224",
    "show graph.json --scheduler lios": "say where with --svg or --dot",
    "sweep graph.json overhead.launch 1,,2": "one is empty",
    "sweep graph.json gpus 1,2 overhead.launch": "PARAMETER2 'overhead.launch' has no values",
    "study run s.toml -o f --serial --workers 2": "--serial runs in this process: it does not go with",
    "study run s.toml -o f --dask tcp://x:1 --workers 2": "--workers: the Dask cluster at tcp://x:1 has as many",
    # files that are not there, torn, or of another kind
    f"study status {'x' * 300}/y": "File name too long",
    "compare graph.json --cluster torn.json": "torn.json: not valid JSON",
    "compare schedule.json": "expected 'simsched.graph'",
    "simulate schedule.json --scheduler lios": "schedule.json is scheduled already",
    "whatif schedule.json --scheduler lios": "--scheduler and --option are for --reschedule",
    "whatif program.json": "a program cannot be asked about; give the schedule that it was made from",
    "breakeven graph.json overhead lios graph.json": "give a schedule, as `simsched schedule -o` writes one",
    "calibrate graph.json": "graph.json: not a profile, as `simsched profile GRAPH --backend NAME -o FILE`",
    "replay graph.json --backend synthetic": "a graph does not say what runs where; `simsched schedule graph.json",
    "replay profile.json --backend synthetic": "profile.json: a profile holds times, not a graph or schedule",
    "compare graph.json --cluster calibration.json --gpu a40": "--gpu a40 is part of the preset that --cluster calib",
    "compare graph.json --cluster calibration.json --gpus 4096 --link x": "--link x is part of the preset",
    "compare graph.json --cluster mine.json --gpus 2": (
        "--gpus 2: mine.json: 2 devices: how more of those of 'h200' are joined is not known: "
    ),
    "convert profile.json a.dot": "a.dot: a profile cannot be written as dot, which holds a graph",
    "simulate long.json --perfetto t.json": "too long for Perfetto",
    "report profile.json -o r.html": "profile.json: no report is known of a Profile: give a result",
    "report empty -o r.html": "empty: neither a study, as `simsched study run` writes one, nor a finished validation",
    "replay-trace graph.json": "graph.json: not a trace of torch.profiler",
    "replay schedule.json --backend synthetic --cluster calibration.json": "calibration.json is of other devices than",
    # files that cannot be written
    "schedule graph.json -o plan.json --program ./plan.json": "this command already uses the file",
    "compare graph.json --cluster calibration.json -o calibration.json": "this command already uses the file",
    "calibrate profile.json -o profile.json": "this command already uses the file",
    "simulate missing.dot,batch=2 --perfetto missing.dot": "this command already uses the file",
    "schedule graph.json -o missing/t.json": "cannot write missing/t.json: No such file or directory",
    "schedule graph.json -o empty": "cannot write empty: it is a folder",
    "schedule graph.json --output=": "cannot write a file without a name",
    f"schedule graph.json -o {'x' * 300}": "File name too long",
    "sensitivity graph.json --tornado t": "cannot draw 't'",
}


@pytest.mark.parametrize("line", REFUSED)
def test_one_line_and_status_2(refused, line):
    assert REFUSED[line] in refused(line)


MINE = """
import sys
import simsched as ss

def fails(graph, cluster, cost): return 1 / 0
def ends(graph, cluster, cost): sys.exit(7)
def stops(graph, cluster, cost): raise KeyboardInterrupt
def fills(graph, cluster, cost): raise MemoryError
def forgets(graph, cluster, cost): return ss.Schedule(graph, [])
def refuses(graph, cluster, cost): raise ss.SimschedError("too odd a graph")
def takes_nothing(): pass
"""
BROKEN = {
    "my_failures:fails": "scheduler 'my_failures:fails' raised ZeroDivisionError: division by zero (",
    "my_failures:ends": "7",
    "my_failures:stops": "interrupted",
    "my_failures:fills": "out of memory",
    "my_failures:forgets": "scheduler 'my_failures:forgets': operator 'a' is placed nowhere",
    "my_failures:takes_nothing": "'my_failures:takes_nothing' is no function of (graph, cluster, cost): too many ",
}


@pytest.mark.parametrize("name", BROKEN)
def test_schedulers_that_are_broken(refused, name):
    """Alone or among others: a table would hide that there is nothing to compare."""
    for line in ("schedule graph.json -o plan.json --scheduler ", "compare graph.json --schedulers lios,"):
        assert BROKEN[name] in refused(f"{line}{name}", ends=130 if name == "my_failures:stops" else 2)


@pytest.mark.parametrize("command", ["compare", "robust"])
def test_schedulers_that_all_refuse(refused, command):
    message = "no scheduler found a schedule; my_failures:refuses: too odd a graph"
    assert refused(f"{command} graph.json --schedulers my_failures:refuses -o c.json") == message


def test_what_nobody_thought_of_is_a_defect(monkeypatch, capsys):
    """Exit status 70, so that fuzzing does not take it for a refusal."""

    def broken(*_):
        raise KeyError("flops")

    monkeypatch.setattr("simsched.show.facts.graph_facts", broken)
    assert run(["show", "graph.json"]) == 70
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("error: unexpected KeyError: 'flops' (")
