"""Commands that ask: what if, sweep, sensitivity, explain, breakeven, robust, throughput; and `compare -o`."""

import contextlib
import io
import json
import shutil
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
def _files(_folder, tmp_path, asked_about):
    shutil.copytree(asked_about, tmp_path, dirs_exist_ok=True)


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
    assert printed.keys() == {"graph", "cluster", "sampling", "doubt", "rows"}
    found = Comparison.load("c.json")
    assert found.summary() == printed
    assert {name: trace.makespan for name, trace in found.traces.items()} == {
        row["scheduler"]: row["makespan_us"] for row in printed["rows"]
    }


changed = st.tuples(
    st.sampled_from(["gpus", "device", "execution", "link.bandwidth", "overhead", "device.sms", "contention",
                     "operators.conv.speed", "operator.b.speed", "rebuild.x", "batch", "fuse", "remove", "", "x"]),
    st.sampled_from(["=", "*=", "", "=="]),
    st.sampled_from(["0", "2", "0.5", "-1", "nan", "1e308", "x", "", "5us", "600GB/s", "h100", "graph", "a,b", "true"]),
).map("".join)  # fmt: skip


@settings(max_examples=12)
@given(changes=st.lists(changed, max_size=3), more=st.sampled_from([[], ["--json"], ["--gpus", "2", "--reschedule"]]))
def test_any_changes(asked_about, changes, more):
    """Exit status 0, or 2 and one line, whatever is asked."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        asked = [part for text in changes for part in ("--set", text)]
        status = run(["whatif", str(asked_about / "chain.json"), *asked, *more])
    text = err.getvalue()
    assert (status, text.count("\n")) in ((0, 0), (2, 1)), text
    assert not text.startswith("error: unexpected"), text
