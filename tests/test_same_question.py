"""One question asked of several commands has one answer: makespan, speedup, range and wording, to the digit."""

import json

import pytest

import simsched as ss
import workloads
from simsched.base.units import format_gain
from simsched.experiments.baselines import CAPTURED, EAGER, ONE, baselines, with_execution

GRAPHS = (
    "inception_v3",
    "squeezenet",
    "googlenet",
    "resnet50",
    "t5_small_encoder",
    "tiny_inception",
    "deepfm",
    "random:layered,n_ops=60,seed=2",
    "random:fork-join,n_ops=40,seed=1",
    "random:transformer-like,n_layers=1",
)


@pytest.mark.parametrize("gpu", ["a100", "h100"])
@pytest.mark.parametrize("spec", GRAPHS)
def test_all_commands_answer_alike(spec, gpu):
    """Of Nimble's captured schedule, and of one stream: compare, alone and among others, advise, explain, whatif."""
    graph, cluster = workloads.from_spec(spec), ss.Cluster.preset(gpu)
    compared = ss.compare(graph, cluster, ["sequential", "lios", "nimble"])
    nimble = next(row for row in compared.rows if row.scheduler == "nimble")
    alone = ss.compare(graph, cluster, ["nimble"]).rows[0]
    answer = (nimble.makespan_us, nimble.speedup, nimble.speedup_low, nimble.speedup_high)
    assert (alone.makespan_us, alone.speedup, alone.speedup_low, alone.speedup_high) == answer

    advised = {row.name: row for row in ss.advise(graph, cluster, ["nimble"]).rows}
    captured = advised["streams captured"]
    assert (captured.latency_us, captured.speedup, captured.speedup_low, captured.speedup_high) == answer
    one = {row.scheduler: row for row in compared.baselines}
    for name in (EAGER, ONE, CAPTURED):
        assert (advised[name].latency_us, advised[name].speedup) == (one[name].makespan_us, one[name].speedup)

    plan = compared.plans["nimble"]
    assert ss.explain(plan, cluster).makespan_us == nimble.makespan_us
    assert ss.simulate(plan, cluster).makespan == nimble.makespan_us
    changed = ss.what_if(plan, cluster).set("overhead.launch", 1.0).answer()
    assert changed.runs["before"].makespan == nimble.makespan_us

    text = format_gain(*answer[1:])
    assert any(text in cell for row in compared.table().rows for cell in row)


def test_a_study_has_the_same_speedup(tmp_path):
    spec = {"kind": "squeezenet"}
    study = ss.Study("one", ["nimble", "ios"], spec, {"gpu": "a100"})
    rows = {row["scheduler"]: row for row in ss.run_study(study, tmp_path / "rows", load=workloads.load_kind).rows}
    for row in ss.compare(workloads.load("squeezenet"), ss.Cluster.preset("a100"), ["nimble", "ios"]).rows:
        assert rows[row.scheduler]["makespan_us"] == row.makespan_us
        assert rows[row.scheduler]["speedup"] == row.speedup


@pytest.mark.parametrize("execution", ["own", "graph", "events", "stages"])
def test_an_execution_is_the_same_everywhere(execution):
    graph, cluster = workloads.load("squeezenet"), ss.Cluster.preset("a100")
    row = ss.compare(graph, cluster, ["ios"], execution=execution).rows[0]
    plan = with_execution(ss.schedule(graph, cluster, "ios"), execution)
    assert ss.simulate(plan, cluster).makespan == ss.explain(plan, cluster).makespan_us == row.makespan_us
    assert row.execution == ("stages" if execution == "own" else execution)


def test_stages_are_refused_of_schedules_that_have_none():
    graph, cluster = workloads.load("squeezenet"), ss.Cluster.preset("a100")
    (row,) = ss.compare(graph, cluster, ["nimble"], execution="stages").rows
    assert row.reason == (
        "nimble: its schedule has streams and no stages; give graph or events, or a scheduler that makes stages, such "
        "as ios"
    )


def test_what_is_slower_than_one_stream_launched_alike_is_marked_and_never_recommended():
    """Barriers of 1 ms: stages lose to one stream that a host launches; captured, they have none."""
    graph = workloads.load("squeezenet")
    cluster = ss.Cluster.preset("a100").replace_devices(barrier=1000.0, barrier_many=1000.0)
    compared = ss.compare(graph, cluster, ["greedy"])
    assert compared.rows[0].slower_than_one_stream is True
    assert "(slow) slower than one stream that is launched in the same way" in str(compared)
    assert ss.compare(graph, cluster, ["greedy"], execution="graph").rows[0].slower_than_one_stream is False
    found = baselines(graph, cluster)
    for row in ss.advise(graph, cluster, ["greedy"]).rows:
        if row.name == "streams":
            assert row.latency_us > found.one.makespan
    assert ss.advise(graph, cluster, ["greedy"]).best != "streams"


def test_speedups_are_over_the_baseline_that_is_asked_for():
    graph, cluster = workloads.load("squeezenet"), ss.Cluster.preset("a100")
    found = ss.compare(graph, cluster, ["lios", "ios"], baseline="lios")
    lios, ios = found.rows
    assert (lios.speedup, ios.speedup) == (1.0, lios.makespan_us / ios.makespan_us)
    assert found.summary()["baseline"] == "lios"
    assert ss.Comparison.from_dict(json.loads(json.dumps(found.to_dict()))).baseline == "lios"
    with pytest.raises(
        ss.SimschedError, match="unknown baseline 'nobody'; known are: eager, one stream, one stream cap"
    ):
        ss.compare(graph, cluster, ["lios"], baseline="nobody")
