"""Commands that ask: what if, sweep, sensitivity, explain, breakeven, robust, throughput; and `compare -o`."""

import contextlib
import io
import json
import shutil
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import simsched as ss
import workloads
from simsched.cli.run import run
from simsched.experiments.comparison import Comparison
from simsched.experiments.whatif import (
    Answer,
    BreakEven,
    Explanation,
    Robustness,
    Sensitivity,
    Sweep,
    Throughput,
    what_if,
)

CHAIN = ss.OpGraph(
    [ss.Operator("a", "conv", time=30.0), ss.Operator("b", time=10.0), ss.Operator("c", time=2.0)],
    [ss.Edge("a", "b"), ss.Edge("b", "c")],
    "chain",
)
FORK = ss.OpGraph([ss.Operator("a", time=50.0), ss.Operator("b", time=50.0)], name="fork")
FREE = ss.Cluster.preset("a100").without_overheads()
NEW = ("whatif", "sweep", "sensitivity", "explain", "breakeven", "robust", "throughput", "report")


@pytest.fixture(scope="module")
def asked_about(tmp_path_factory):
    """A folder with a chain, a fork, a schedule, a program and a cluster."""
    folder = tmp_path_factory.mktemp("asked")
    plan = ss.schedule(CHAIN, FREE, "sequential")
    made = {"chain": CHAIN, "fork": FORK, "plan": plan, "program": plan.lower(FREE), "free": FREE}
    for name, each in made.items():
        each.save(str(folder / f"{name}.json"))
    return folder


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch, asked_about):
    shutil.copytree(asked_about, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)


@pytest.fixture
def said(capsys):
    """Run a command that succeeds in silence on stderr; return what it printed."""

    def say(line):
        status = run(line.split())
        out, err = capsys.readouterr()
        assert (status, err) == (0, "")
        return out

    return say


@pytest.fixture
def refused(tmp_path, capsys):
    """Run a command that must fail and write nothing; return its error line."""

    def refuse(line, printed=False):
        before = {path: path.read_bytes() for path in tmp_path.iterdir()}
        status = run(line.split())
        out, err = capsys.readouterr()
        assert (status, err.count("\n")) == (2, 1), err
        assert err.startswith("error: ")
        assert not err.startswith("error: unexpected")
        assert printed or out == ""
        assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
        return err

    return refuse


@pytest.mark.parametrize("command", NEW)
def test_every_command_has_help(said, command):
    assert f"simsched {command}" in said(f"{command} --help")
    assert command in said("--help")


def results(out):
    return json.loads(out)["results"]


def test_a_change_by_hand(said):
    """30 + 10 + 2 = 42 us without overheads; convolutions twice as quick: 15 + 10 + 2 = 27 us, 15 us less."""
    found = json.loads(said("whatif chain.json --cluster free.json --set operators.conv.speed*=2 --json"))
    assert found["changes"] == ["operators.conv.speed*=2"]
    assert "before" not in found
    assert found["results"]["makespan_before_us"] == 42.0
    assert found["results"]["makespan_us"] == 27.0
    assert found["results"]["difference_us"] == found["results"]["direct_us"] == -15.0
    assert found["results"]["blame"]["compute"] == 27.0
    out = said("whatif plan.json --cluster free.json --set operators.conv.speed*=2")
    (row,) = [line for line in out.splitlines() if line.startswith("makespan")]
    assert row.split() == ["makespan", "42.0", "27.0", "-15.0"]
    assert out.splitlines()[-2:] == ["before  compute 100.0 %", "after   compute 100.0 %"]


def test_several_changes_at_once(said):
    """a and b fused take 40 us together, twice as quick 20 us; c is taken out: 42 us become 20."""
    line = "whatif chain.json --cluster free.json --fuse a,b --remove c --set operators.speed*=2 --json"
    assert results(said(line))["makespan_us"] == pytest.approx(20.0)


def test_plan_kept_and_made_anew(said):
    """One stream on one device: 100 us. Two devices are of use to a plan made anew alone: 50 us, all of it its own."""
    line = "whatif fork.json --cluster free.json --scheduler round-robin --option streams=1 --set gpus=2"
    kept, anew = (results(said(f"{line} {more} --json")) for more in ("", "--reschedule"))
    assert (kept["makespan_before_us"], kept["makespan_us"], kept["direct_us"]) == (100.0, 100.0, 0.0)
    assert (anew["makespan_us"], anew["direct_us"], anew["rescheduling_us"]) == (50.0, 0.0, -50.0)
    text = said(f"{line} --reschedule")
    assert "plan kept" in text
    assert "0.0 us by the changes, -50.0 us by re-scheduling" in text


@pytest.mark.parametrize("setting", ["batch=2", "rebuild.batch=2"])
def test_a_workload_is_made_anew(said, setting):
    found = results(said(f"whatif tiny_inception,image_size=16 --set {setting} --json"))
    before, after = (workloads.load("tiny_inception", image_size=16, batch=n) for n in (1, 2))
    cluster = ss.Cluster.preset("a100")
    plan = ss.schedule(before, cluster, "lios")
    assert found["makespan_before_us"] == ss.simulate(plan, cluster).makespan
    assert found["makespan_us"] == ss.simulate(plan.over(after), cluster).makespan


def test_an_answer_in_a_file(said):
    assert said("whatif chain.json --set overhead.launch=0 -o answer.json").endswith("answer written to answer.json\n")
    asked = what_if(CHAIN, ss.Cluster.preset("a100")).overhead(launch=0.0)
    answer = Answer.load("answer.json")
    assert (answer.makespan, answer.makespan_before) == (asked.makespan, asked.makespan_before)
    assert answer.blame == asked.blame


def test_a_sweep(said):
    """Of 42 us speeds of 0.5, 1 and 4 make 84, 42 and 10.5."""
    out = said("sweep chain.json operators.speed 0.5,1,4 --cluster free.json -o s.json --json")
    assert json.loads(out)["makespan_us"] == Sweep.load("s.json").makespan_us.tolist() == [84.0, 42.0, 10.5]
    out = said("sweep chain.json operators.speed 0.5,1,4 --cluster free.json --plot s.svg")
    assert [line.split()[:2] for line in out.splitlines()[2:5]] == [["0.5", "84"], ["1", "42"], ["4", "10.5"]]
    assert out.endswith("picture written to s.svg\n")
    assert Path("s.svg").read_bytes().startswith(b"<?xml")


def test_values_of_a_sweep(said):
    """A bare number is a factor, = or a unit a value: 2 x 6 us, 12 us and 12 us of launching are the same."""
    found = json.loads(said("sweep chain.json overhead.launch 2,=12,12us --json"))
    assert found["values"] == [2.0, {"absolute": 12.0}, {"absolute": 12.0}]
    assert len(set(found["makespan_us"])) == 1
    found = json.loads(said("sweep fork.json gpus 1,2 device a100,v100 --reschedule --scheduler round-robin --json"))
    assert (found["values"], found["values2"]) == ([1, 2], ["a100", "v100"])
    assert [len(row) for row in found["makespan_us"]] == [2, 2]
    found = json.loads(said("sweep tiny_inception batch 1,4 --set overhead=0 --json"))
    assert found["parameter"] == "rebuild.batch"
    assert found["makespan_us"][0] < found["makespan_us"][1]


def test_sensitivity(said):
    """Without overheads the makespan falls by one per cent for one of all speeds, by 30 / 42 of it for those of a."""
    out = said("sensitivity chain.json --cluster free.json --per-operator -o s.json --tornado t.svg --json")
    rows = {row["parameter"]: row["elasticity"] for row in json.loads(out)["rows"]}
    assert rows["operators.speed"] == pytest.approx(-1.0, abs=1e-3)
    assert rows["operator.a.speed"] == pytest.approx(-30 / 42, abs=1e-2)
    assert rows == {row.parameter: row.elasticity for row in Sensitivity.load("s.json").rows}
    assert "operator.a.speed" not in said("sensitivity plan.json --cluster free.json")


def test_explain(said):
    out = said("explain plan.json --cluster free.json -o e.json")
    expected = ss.explain(ss.Schedule.load("plan.json"), FREE)
    assert out == f"{expected}\nresult written to e.json\n"
    assert Explanation.load("e.json").sentences == expected.sentences
    assert json.loads(said("explain plan.json --cluster free.json --json"))["format"] == "simsched.explanation"


def test_breakeven(said):
    """Side by side 50 us and what two waits cost, one after the other 100 us and a launch more on the host."""
    line = "breakeven fork.json overhead.launch sequential round-robin --low 1 --high 4"
    out = said(f"{line} -o b.json --plot b.svg")
    found = BreakEven.load("b.json")
    assert found.names == ("sequential", "round-robin")
    assert out.endswith("result written to b.json\npicture written to b.svg\n")
    ss.schedule(FORK, FREE, "sequential").save("one.json")
    kept = json.loads(said(f"{line.replace('sequential', 'one.json')} --json"))
    assert kept["a_us"] == found.a_us.tolist()


def test_robust(said, tmp_path):
    (tmp_path / "nobody_is_robust.py").write_text(
        "import simsched\n\ndef never(graph, cluster, cost):\n    raise simsched.SimschedError('no')\n"
    )
    line = (
        "robust fork.json --cluster free.json --schedulers sequential,round-robin,nobody_is_robust:never --samples 20"
    )
    out = said(f"{line} --jitter 0.1 --seed 3 -o r.json --box r.svg")
    found = Robustness.load("r.json")
    plans = {name: ss.schedule(FORK, FREE, name) for name in ("sequential", "round-robin")}
    assert found.rows == ss.robust(plans, FREE, jitter=0.1, samples=20, rng=3).rows
    assert "nobody_is_robust:never: no schedule: " in out
    assert "20 samples, jitter 10 %, seed 3" in out
    assert "jitter 2 %" in said(line)


def test_throughput(said):
    """In flight one after the other: 42 us each."""
    found = json.loads(said("throughput plan.json --cluster free.json --json -o t.json"))
    assert found["period_us"] == pytest.approx(42.0)
    assert found["requests_per_s"] == pytest.approx(1e6 / 42)
    assert Throughput.load("t.json").in_flight == 1
    assert "2 in flight" in said("throughput chain.json --cluster free.json --in-flight 2 --scheduler sequential")


def test_a_comparison_in_a_file(said):
    """What --json prints is what it was: rows alone. The file has the schedules too, and is read back as it was."""
    line = "compare fork.json --schedulers sequential,round-robin --samples 3 -o c.json"
    out = said(line)
    assert out.endswith("comparison written to c.json\n")
    printed = json.loads(said(f"{line} --json"))
    assert printed.keys() == {"graph", "cluster", "sampling", "rows"}
    found = Comparison.load("c.json")
    assert found.summary() == printed
    assert {name: trace.makespan for name, trace in found.traces.items()} == {
        row["scheduler"]: row["makespan_us"] for row in printed["rows"]
    }


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("whatif chain.json --set nothing=3", "unknown parameter 'nothing'"),
        ("whatif chain.json --set batch=3", "unknown parameter 'batch'"),
        ("whatif chain.json --fuse a", "at least 2 operators"),
        ("whatif plan.json --scheduler lios", "is scheduled already: --scheduler and --option are for --reschedule"),
        ("whatif chain.json --scheduler nobody", "unknown scheduler 'nobody'"),
        ("whatif program.json", "a program cannot be asked about"),
        ("whatif chain.json -o chain.json", "this command already uses the file"),
        ("sweep chain.json overhead.launch 1,,2", "one is empty"),
        ("sweep chain.json gpus 1,2 overhead.launch", "PARAMETER2 'overhead.launch' has no values"),
        ("sweep chain.json gpus 1 --plot p.jpg", "cannot draw 'p.jpg'"),
        ("sensitivity chain.json --tornado t.txt", "cannot draw 't.txt'"),
        ("explain plan.json --option streams=2", "is scheduled already"),
        ("breakeven chain.json overhead lios chain.json", "give a schedule, as `simsched schedule -o` writes one"),
        ("breakeven chain.json overhead lios plan.json -o plan.json", "this command already uses the file"),
        ("robust chain.json --samples 0", "--samples"),
        ("robust chain.json --schedulers math:pi", "pi"),
        ("throughput chain.json --in-flight 0", "--in-flight"),
        ("compare chain.json -o c.json --gantt c.json", "must end in one of"),
    ],
)
def test_refusals(refused, line, message):
    assert message in refused(line)


settings_of_change = st.builds(
    lambda name, sign, value: f"{name}{sign}{value}",
    st.sampled_from(["gpus", "device", "execution", "link.bandwidth", "overhead", "overhead.launch", "device.sms",
                     "interference", "contention", "operators.conv.speed", "operator.b.speed", "rebuild.x", "batch",
                     "fuse", "remove", "operators..speed", "", "x"]),
    st.sampled_from(["=", "*=", "", "=="]),
    st.sampled_from(["0", "1", "2", "4", "0.5", "-1", "nan", "1e308", "1e-300", "x", "", "5us", "600GB/s", "h100",
                     "graph", "stages", "a,b", "a,c", "b", "a,b,c", "true"]),
)  # fmt: skip


@settings(max_examples=12)
@given(
    changes=st.lists(settings_of_change, max_size=3),
    source=st.sampled_from(["chain.json", "plan.json", "fork.json"]),
    more=st.sampled_from([[], ["--reschedule"], ["--json"], ["--gpus", "2", "--reschedule"]]),
)
def test_any_changes(asked_about, changes, source, more):
    """Exit status 0, or 2 and one line, whatever is asked."""
    out, err = io.StringIO(), io.StringIO()
    arguments = [part for text in changes for part in ("--set", text)]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = run(["whatif", str(asked_about / source), *arguments, *more])
    text = err.getvalue()
    assert (status, text.count("\n")) in ((0, 0), (2, 1)), text
    assert not text.startswith("error: unexpected"), text
