"""Changes as texts, answers as files and tables, and answers upon a calibration."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small import made, placements
from stand_ins import measured
from strategies import graphs

import workloads
from simsched.experiments.whatif import Answer, Change, parse_change, what_if
from simsched.experiments.whatif.whatif import numeric_parameters, value_of
from simsched.model import Cluster, Edge, Operator, OpGraph, Schedule, roofline
from simsched.schedulers import schedule
from simsched.simulator import simulate

A100 = Cluster.preset("a100")
FREE, FITTED = A100.without_overheads(), A100.replace_devices(launch=1.5)


@pytest.mark.parametrize(
    ("text", "change"),
    [
        ("link.bandwidth*=2", Change("link.bandwidth", 2.0)),
        ("link.bandwidth=600GB/s", Change("link.bandwidth", 600e3, True)),
        ("link.bandwidth=6e5", Change("link.bandwidth", 6e5, True)),
        ("overhead.launch=5 us", Change("overhead.launch", 5.0, True)),
        ("overhead=0", Change("overhead", 0.0, True)),
        ("device.peak=19.5TFLOP/s", Change("device.peak", 19.5e6, True)),
        ("gpus=4", Change("gpus", 4, True)),
        ("device=h100", Change("device", "h100", True)),
        ("contention=false", Change("contention", False, True)),
        ("operator.a.b.speed*=2", Change("operator.a.b.speed", 2.0)),
        ("rebuild.half=true", Change("rebuild.half", True, True)),
        ("rebuild.variant=b0", Change("rebuild.variant", "b0", True)),
        ("fuse=a,b", Change("fuse", ("a", "b"), True)),
    ],
)
def test_changes_as_texts(text, change):
    assert parse_change(text) == change
    assert type(parse_change(text).value) is type(change.value)
    assert parse_change(str(change)) == change


@given(st.floats(1e-9, 1e9), st.booleans())
def test_numbers_in_texts(value, is_absolute):
    change = Change("link.bandwidth", value, is_absolute)
    assert parse_change(str(change)) == change


def same_figures(one, other):
    for name in ("makespan_before", "makespan", "difference", "direct", "rescheduling", "blame", "blame_before"):
        mine = getattr(one, name)
        assert getattr(other, name) == (mine if mine is None else pytest.approx(mine, rel=1e-9, abs=1e-9))


@given(graphs(max_ops=5), st.booleans(), st.integers(1, 2))
@settings(max_examples=15)
def test_answers_come_back_from_files(graph, reschedule, n_gpus):
    """Times of operators are in the graphs, so that no cost model is needed; unless they are all there already."""
    plan = schedule(graph, Cluster.preset("a100", 2), "round-robin")
    asked = what_if(plan, Cluster.preset("a100", 2), True if n_gpus == 1 else reschedule, scheduler="heft")
    asked = asked.device("h100").gpus(n_gpus).operators(speed=3.0)
    data = json.loads(json.dumps(asked.to_dict(), allow_nan=False))
    answer = Answer.from_dict(data)
    same_figures(asked, asked.answer())
    same_figures(asked, answer)
    assert (answer.changes, answer.notes) == (("device=h100", f"gpus={n_gpus}", "operators.speed*=3"), asked.notes)
    assert answer.to_dict() == data
    assert data["results"]["makespan_us"] == asked.makespan
    for case in (answer.before, answer.after):
        assert case.trace.makespan == simulate(case.schedule, case.cluster, lambda op, device: op.time).makespan


def test_answers_upon_a_calibration(tmp_path):
    """Times are the measured ones, 3 x roofline, before and after; on another card they follow the roofline."""
    graph = workloads.load("tiny_inception")
    target = measured(graph, FITTED, 3.0)
    plan = schedule(graph, target, "greedy")
    asked = what_if(plan, target).device("h100").overhead(launch=2.0)
    assert asked.makespan_before == simulate(plan, target).makespan
    assert asked.cluster.devices[0].launch == 3.0
    device, op = asked.cluster.devices[0], asked.graph.operators[3]
    assert asked.cost(op, device) == pytest.approx(3.0 * roofline(op, device))
    rows = [replace(op, time=3.0 * roofline(op, device)) for op in plan.graph.operators]
    edited = plan.over(OpGraph(rows, plan.graph.edges, graph.name))
    assert asked.makespan == pytest.approx(simulate(edited, asked.cluster).makespan, rel=1e-12)
    asked.answer().save(tmp_path / "answer.json")
    same_figures(asked, Answer.load(tmp_path / "answer.json"))
    again = what_if(graph, target, True, scheduler="ios").operators(kind="conv", speed=2.0)
    assert again.makespan_before == simulate(schedule(graph, target, "ios"), target).makespan
    same_figures(again, Answer.from_dict(again.to_dict()))


def test_what_schedulers_are_told_upon_a_calibration():
    """Everything was measured to take three times its roofline; an operator that a scheduler makes takes that, too.

    Twice as quick it is one and a half times. A cost model that is given says itself what the new one takes.
    """
    graph, told = made([Operator(name, "conv", flops=1e9) for name in "ab"], "ab"), []
    a = graph["a"]

    def asking(graph, cluster, cost):
        told.append(cost(replace(a, name="new"), cluster.devices[0]))
        return schedule(graph, cluster, "sequential", cost)

    target, us = measured(graph, FITTED, 3.0), roofline(a, A100.devices[0])
    for cost, before in ((None, 3.0 * us), (lambda op, device: 7.0, 7.0)):
        asked = what_if(graph, target, True, scheduler=asking, cost=cost).operators(kind="conv", speed=2.0)
        told.clear()
        _ = asked.makespan, asked.makespan_before
        assert told == [pytest.approx(before / 2), pytest.approx(before)]


def test_speedups_of_nothing():
    """An operator of 0 us, 8 us behind the begin of its launch: else infinitely quick, which no file can hold."""
    nothing = made("a=0")
    asked = what_if(nothing, A100).overhead(0)
    assert (asked.makespan_before, asked.makespan, asked.speedup) == (8.0, 0.0, float("inf"))
    assert asked.to_dict()["results"]["speedup"] is None
    assert what_if(nothing, FREE).speedup == 1.0


def pair():
    """a of 10 us, then b of 5 us on another stream."""
    graph = OpGraph([Operator("a", time=10.0), Operator("b", "[b]", time=5.0)], [Edge("a", "b")], "pair [1]")
    return Schedule(graph, placements("a b/1"))


QUICK = what_if(pair(), FREE).operators(speed=2.0)


@pytest.mark.parametrize(
    ("asked", "parts"),
    [
        (
            QUICK,
            (
                "pair [1] on a100: what if operators.speed*=2",
                "us before after difference",
                "2 times as fast",
                "makespan 15.0 7.5 -7.5",
                "compute 15.0 7.5 -7.5",
            ),
        ),
        (
            what_if(pair(), FREE, True).operators(speed=2.0).gpus(2),
            ("makespan 15.0 7.5 7.5 -7.5", "-7.5 us by the changes, 0.0 us by re-scheduling"),
        ),
        (
            what_if(pair(), A100).overhead(launch=1e3).device(sms=2.0),
            ("ms before after difference", "note: 2 of 2 operators have a time but neither FLOP nor bytes"),
        ),
    ],
)
def test_the_table(asked, parts):
    """Without overheads 15 us; at twice the speed 7.5 us, 7.5 us less; whoever plans anew has nothing to add."""
    text = " ".join(repr(asked.answer()).split())
    assert all(part in text for part in parts)
    assert ("re-scheduling" in text) is asked.rescheduled


def test_parameters_of_a_question():
    """Those that a factor moves: not what is zero or infinite."""
    known = numeric_parameters(what_if(pair(), A100.replace_devices(barrier=0.0, interleave=0.5)))
    assert {"device.sms", "device.interleave", "overhead", "overhead.launch", "interference"} <= {*known}
    assert not {"link.latency", "device.copy_rate", "device.clock", "overhead.barrier"} & {*known}
    assert not {"overhead", "overhead.launch"} & {*numeric_parameters(what_if(pair(), FREE))}


def test_parameters_of_operators():
    asked = what_if(made([Operator("a", time=1.0), Operator("b", "relu", time=1.0)], "ab=1e6"), A100)
    assert numeric_parameters(asked)[:3] == ("operators.speed", "operators.op.speed", "operators.relu.speed")
    assert numeric_parameters(asked, per_operator=True)[-2:] == ("operator.a.speed", "operator.b.speed")


def test_values_of_parameters():
    asked = what_if(pair(), Cluster.preset("a100", 2)).link(bandwidth=2.0).operators("b", speed=4.0)
    known = {
        "link.bandwidth": 550e3,
        "overhead.launch": 6.0,
        "device.sms": 108.0,
        "device.peak": 108 * 64 * 2 * 1410.0,
        "interference": 0.1,
        "operator.b.speed": 4.0,
        "operators.speed": None,
        "operators.[b].speed": 4.0,
        "overhead": None,
    }
    assert {name: value_of(asked, name) for name in known} == known
    assert value_of(what_if(pair(), A100), "link.latency") is None
    mixed = Cluster((A100.devices[0], Cluster.preset("v100", 2).devices[1]))
    assert value_of(what_if(pair(), mixed), "device.sms") is None
    assert value_of(what_if(pair(), mixed).device("h100"), "device.sms") == 132.0
    assert value_of(what_if(pair(), A100).interference(0).set("interference", 3), "interference") == 0.0
