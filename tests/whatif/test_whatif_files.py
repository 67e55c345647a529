"""Changes as texts, answers as files and tables, and answers upon a calibration."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from strategies import graphs

import workloads
from simsched.base.errors import UnknownNameError, WhatIfError
from simsched.calibration import Calibration
from simsched.experiments.whatif import Answer, Change, numeric_parameters, parse_change, value_of, what_if
from simsched.model.cluster import Cluster
from simsched.model.costmodel import roofline
from simsched.model.graph import Edge, Kernel, Operator, OpGraph
from simsched.model.plan import Placement
from simsched.model.schedule import Schedule
from simsched.schedulers import schedule
from simsched.simulator import simulate

A100 = Cluster.preset("a100")


@pytest.mark.parametrize(
    ("text", "parameter", "value", "is_absolute"),
    [
        ("link.bandwidth*=2", "link.bandwidth", 2.0, False),
        (" link.bandwidth *= 2 ", "link.bandwidth", 2.0, False),
        ("link.bandwidth=600GB/s", "link.bandwidth", 600e3, True),
        ("link.bandwidth=6e5 B/us", "link.bandwidth", 6e5, True),
        ("link.latency=1.5", "link.latency", 1.5, True),
        ("overhead.launch=5us", "overhead.launch", 5.0, True),
        ("overhead.barrier=0.01ms", "overhead.barrier", 10.0, True),
        ("overhead=0", "overhead", 0.0, True),
        ("device.peak=19.5TFLOP/s", "device.peak", 19.5e6, True),
        ("device.peak=5e6 FLOP/us", "device.peak", 5e6, True),
        ("device.clock=1410MHz", "device.clock", 1410.0, True),
        ("device.sms=54", "device.sms", 54.0, True),
        ("gpus=4", "gpus", 4, True),
        ("device=h100", "device", "h100", True),
        ("execution=graph", "execution", "graph", True),
        ("contention=0", "contention", False, True),
        ("operators.conv.speed*=1.3", "operators.conv.speed", 1.3, False),
        ("operator.a.b.speed*=2", "operator.a.b.speed", 2.0, False),
        ("operators.speed=2", "operators.speed", 2.0, True),
        ("rebuild.batch=16", "rebuild.batch", 16, True),
        ("rebuild.half=true", "rebuild.half", True, True),
        ("rebuild.variant=b0", "rebuild.variant", "b0", True),
        ("fuse=a,b", "fuse", ("a", "b"), True),
        ("remove=c", "remove", ("c",), True),
    ],
)
def test_changes_as_texts(text, parameter, value, is_absolute):
    change = parse_change(text)
    assert (change.parameter, change.value, change.is_absolute) == (parameter, value, is_absolute)
    assert type(change.value) is type(value)
    assert parse_change(str(change)) == change


@given(st.floats(1e-9, 1e9), st.booleans())
def test_numbers_in_texts(value, is_absolute):
    change = Change("link.bandwidth", value, is_absolute)
    assert parse_change(str(change)) == change


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("gpus", WhatIfError, r"'gpus': expected PARAMETER\*=FACTOR or PARAMETER=VALUE"),
        ("=3", WhatIfError, "expected PARAMETER"),
        ("gpus=", WhatIfError, "expected PARAMETER"),
        ("gpus*=2", WhatIfError, "gpus takes no factor; write gpus=VALUE"),
        ("link.bandwidth*=2GB/s", WhatIfError, "unit 'GB/s' does not suit; it takes none"),
        ("link.bandwidth=2us", WhatIfError, "unit 'us' does not suit; known are: B/us, GB/s"),
        ("link.bandwidth=fast", WhatIfError, "'fast' is no number"),
        ("link.width=2", UnknownNameError, "unknown parameter 'link.width'; closest of"),
    ],
)
def test_texts_that_are_no_changes(text, error, message):
    with pytest.raises(error, match=message):
        parse_change(text)


def same_figures(one, other):
    for name in ("makespan_before", "makespan", "difference", "direct", "rescheduling", "rescheduling_alone"):
        mine, theirs = getattr(one, name), getattr(other, name)
        assert (mine is None) == (theirs is None)
        assert mine is None or theirs == pytest.approx(mine, rel=1e-9, abs=1e-9)
    assert other.blame == pytest.approx(one.blame, rel=1e-9, abs=1e-9)
    assert other.blame_before == pytest.approx(one.blame_before, rel=1e-9, abs=1e-9)


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


def measured(graph, cluster, scale):
    """A calibration by which everything takes so many times its roofline, and issuing kernels 1.5 us."""
    fitted = cluster.replace_devices(launch=1.5)
    times = {op.name: scale * roofline(op, cluster.devices[0]) for op in graph.operators}
    return Calibration(fitted, cluster, graph, times, {"conv": scale}, (), ())


def test_answers_upon_a_calibration(tmp_path):
    """Times are the measured ones, 3 x roofline, before and after; on another card they follow the roofline."""
    graph = workloads.load("tiny_inception")
    target = measured(graph, A100, 3.0)
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
    assert again.base.makespan == again.makespan_before
    same_figures(again, Answer.from_dict(again.to_dict()))


def test_what_schedulers_are_told_upon_a_calibration():
    """Everything was measured to take three times its roofline; an operator that a scheduler makes takes that, too.

    Twice as quick it is one and a half times. A cost model that is given says itself what the new one takes.
    """
    a, b = (Operator(name, "conv", flops=1e9) for name in "ab")
    graph, told = OpGraph([a, b], [Edge("a", "b")]), []

    def asking(graph, cluster, cost):
        told.append(cost(replace(a, name="new"), cluster.devices[0]))
        return schedule(graph, cluster, "sequential", cost)

    target, us = measured(graph, A100, 3.0), roofline(a, A100.devices[0])
    for cost, before in ((None, 3.0 * us), (lambda op, device: 7.0, 7.0)):
        asked = what_if(graph, target, True, scheduler=asking, cost=cost).operators(kind="conv", speed=2.0)
        told.clear()
        _ = asked.makespan, asked.makespan_before
        assert told == [pytest.approx(before / 2), pytest.approx(before)]


def test_speedups_of_nothing():
    """An operator of 0 us, 8 us behind the begin of its launch: else infinitely quick, which no file can hold."""
    nothing = OpGraph([Operator("a", time=0.0)])
    asked = what_if(nothing, A100).overhead(0)
    assert (asked.makespan_before, asked.makespan, asked.speedup) == (8.0, 0.0, float("inf"))
    assert asked.to_dict()["results"]["speedup"] is None
    assert what_if(nothing, A100.without_overheads()).speedup == 1.0


def pair():
    """a of 10 us, then b of 5 us on another stream."""
    graph = OpGraph([Operator("a", time=10.0), Operator("b", "[b]", time=5.0)], [Edge("a", "b")], "pair [1]")
    return Schedule(graph, [Placement("a"), Placement("b", stream=1)])


def text_of(table):
    console = Console(width=100, color_system=None, force_terminal=False)
    with console.capture() as capture:
        console.print(table)
    return " ".join(capture.get().replace("│", " ").replace("┃", " ").split())


def test_the_table():
    """Without overheads 15 us; at twice the speed 7.5 us, 7.5 us less; whoever plans anew has nothing to add."""
    free = A100.without_overheads()
    asked = what_if(pair(), free).operators(speed=2.0)
    text = text_of(asked.table())
    assert "pair [1] on a100: what if operators.speed*=2" in text
    assert "makespan 15.0 7.5 -7.5" in text
    assert "compute 15.0 7.5 -7.5" in text
    assert "2 times as fast" in text
    assert "re-scheduling" not in text
    assert "takes 4 times as long" in text_of(what_if(pair(), free).operators(speed=0.25).table())
    assert "as fast as before" in text_of(what_if(pair(), free).table())
    again = text_of(what_if(pair(), free, True).operators(speed=2.0).gpus(2).table())
    assert "makespan 15.0 7.5 7.5 -7.5" in again
    assert "-7.5 us by the changes, 0.0 us by re-scheduling" in again
    assert repr(asked.answer()).startswith("pair [1] on a100: what if operators.speed*=2\n")
    slow = text_of(what_if(pair(), A100).overhead(launch=1e3).device(sms=2.0).table())
    assert "ms before after difference" in slow
    assert "note: 2 of 2 operators have a time but neither FLOP nor bytes" in slow


def test_parameters_of_a_question():
    """One stream without work: launches and gaps. Two GPUs with a tensor between them: waits, copies and links too."""
    chain = OpGraph([Operator("a", time=1.0), Operator("b", "relu", time=1.0)], [Edge("a", "b", 1e6)])
    one = what_if(Schedule(chain, [Placement("a"), Placement("b")]), A100)
    speeds = ("operators.speed", "operators.op.speed", "operators.relu.speed")
    before = ("overhead.launch", "overhead.gap")
    assert numeric_parameters(one) == (*speeds, "overhead", *before, "overhead.launch_latency")
    assert numeric_parameters(one.overhead(launch=0, launch_latency=0)) == (*speeds, "overhead.gap")
    captured = ("overhead", "overhead.graph_launch", "overhead.graph_node")
    assert numeric_parameters(one.execution("graph")) == (*speeds, *captured)
    assert numeric_parameters(one, per_operator=True)[-2:] == ("operator.a.speed", "operator.b.speed")
    two = what_if(Schedule(chain, [Placement("a"), Placement("b", "gpu1")]), Cluster.preset("a100", 2))
    issued = ("launch", "record", "wait", "copy", "hop", "launch_latency")
    assert numeric_parameters(two) == (
        *speeds, "device.copy_engines", "link.bandwidth", "link.latency", "overhead",
        *(f"overhead.{name}" for name in issued),
    )  # fmt: skip
    work = OpGraph([Operator("a", flops=1e9), Operator("b", nbytes=1e6, utilization=0.5)])
    loaded = what_if(Schedule(work, [Placement("a"), Placement("b", stream=1)]), A100)
    assert numeric_parameters(loaded)[1:4] == ("device.sms", "device.peak", "device.bandwidth")
    assert numeric_parameters(loaded)[-1] == "interference"


def known_of(asked):
    """What numeric_parameters says but the speed of all operators, in one line."""
    return " ".join(numeric_parameters(asked)[1:])


def beside(a, b, stream=1, **options):
    return Schedule(OpGraph([Operator("a", **a), Operator("b", **b)]), [Placement("a"), Placement("b", stream=stream)],
                    **options)  # fmt: skip


def test_parameters_of_kernels():
    """Limits of the SMs count where kernels run beside each other, what saturates them where there are rates.

    Two of two hardware queues are in use, of three less than 0.8. What is 0, as `interleave` is, is kept. Of equals
    that are made anew nothing is known but that there is one device, which copies nothing.
    """
    grid = {"kernels": (Kernel(108),)}
    work, late, moves = {"flops": 1e9} | grid, {"time": 3.0} | grid, {"nbytes": 1e6} | grid
    limits = " ".join(f"device.{name}_per_sm" for name in ("threads", "blocks", "registers", "shared_memory"))
    shared = f"{limits} device.saturating_warps device.least_sm_share device.block_spread"
    launches = "overhead overhead.launch overhead.launch_latency"
    in_order = "overhead overhead.launch overhead.gap overhead.launch_latency"
    assert known_of(what_if(beside(work, late), A100)) == (f"device.sms device.peak {shared} {launches} interference")
    assert known_of(what_if(beside(late, late), A100)) == f"device.sms {shared} {launches} interference"
    halves = shared.replace("device.least", "device.interleave device.least")
    assert known_of(what_if(beside(late, late), A100.replace_devices(interleave=0.5))) == (
        f"device.sms {halves} {launches} interference"
    )
    assert known_of(what_if(beside(work, late), A100).contention(False)) == (
        f"device.sms device.peak device.saturating_warps {launches}"
    )
    assert known_of(what_if(beside(work, late, 0), A100)) == (
        f"device.sms device.peak device.saturating_warps {in_order}"
    )
    assert known_of(what_if(beside(moves, late, 0), A100)) == (f"device.bandwidth device.saturating_warps {in_order}")
    assert known_of(what_if(beside(late, late, 0), A100)) == in_order
    assert known_of(what_if(beside(late, late, 0), A100, True)) == (
        f"device.sms {shared} overhead overhead.launch overhead.record overhead.wait overhead.hop "
        "overhead.launch_latency interference"
    )
    half = {"time": 3.0, "utilization": 0.5}
    for queues, known in ((2, "device.connections device.resident_kernels "), (3, "")):
        cluster = A100.replace_devices(connections=queues, resident_kernels=queues)
        asked = what_if(beside(half, half), cluster)
        assert known_of(asked) == f"{known}{launches} interference"
        assert known_of(asked.contention(False)) == launches


def test_parameters_of_copies():
    """Exact times take no notice of links; what the plan does not copy yet, a plan made anew might."""
    two = Cluster.preset("a100", 2)
    graph = OpGraph([Operator("a", time=1.0), Operator("b", time=1.0)], [Edge("a", "b", transfer=3.0)])
    here, there = (Schedule(graph, [Placement("a"), Placement("b", device)]) for device in ("gpu0", "gpu1"))
    issued = " ".join(f"overhead.{name}" for name in ("launch", "record", "wait", "copy", "hop", "launch_latency"))
    links = "link.bandwidth link.latency"
    assert known_of(what_if(there, two)) == f"overhead {issued}"
    assert known_of(what_if(here, two)) == "overhead overhead.launch overhead.gap overhead.launch_latency"
    assert known_of(what_if(here, two, True, scheduler="sequential")) == (
        f"device.copy_engines {links} overhead {issued.replace('hop', 'gap overhead.hop')}"
    )
    moved = Schedule(OpGraph(graph.operators, [Edge("a", "b", 1e6)]), there.placements)
    assert known_of(what_if(moved, two.replace_devices(copy_rate=3e5))) == (
        f"device.copy_engines device.copy_rate {links} overhead {issued}"
    )
    first, second = two.devices
    uneven = replace(two, devices=(replace(first, launch=0.0), second))
    assert known_of(what_if(here, uneven)) == "overhead overhead.launch overhead.gap overhead.launch_latency"


def test_parameters_of_joins():
    """c reads from a and b: behind both it needs nothing, from another stream an event, in another stage a barrier."""
    a, b, c = (Operator(name, time=10.0) for name in "abc")
    graph = OpGraph([a, b, c], [Edge("a", "c"), Edge("b", "c")])
    before, behind = "overhead overhead.launch", "overhead.gap"
    row, there = [Placement(name) for name in "abc"], Placement("b", stream=1, group=1)
    for rows, execution, issued in (
        (row, "stages", f"{before} {behind}"),
        ([row[0], there, row[2]], "events", f"{before} overhead.record overhead.wait {behind} overhead.hop"),
        ([row[0], there, Placement("c", stage=1)], "stages", f"{before} overhead.barrier {behind}"),
    ):
        assert known_of(what_if(Schedule(graph, rows, execution), A100)) == f"{issued} overhead.launch_latency"


def test_values_of_parameters():
    def load(batch=1, size=224, variant="b0"):
        return pair().graph

    asked = what_if(pair(), Cluster.preset("a100", 2), load=load).link(bandwidth=2.0).operators("b", speed=4.0)
    known = {
        "link.bandwidth": 550e3, "gpus": 2.0, "contention": 1.0, "overhead.launch": 6.0, "device.sms": 108.0,
        "device.peak": 108 * 64 * 2 * 1410.0, "interference": 0.06, "operator.b.speed": 4.0, "operators.speed": None,
        "operators.[b].speed": 4.0, "overhead": None, "device": None, "execution": None, "rebuild.batch": 1.0,
        "rebuild.variant": None, "rebuild.none": None,
    }  # fmt: skip
    assert {name: value_of(asked, name) for name in known} == known
    assert value_of(asked.rebuild(batch=8), "rebuild.batch") == 8.0
    assert value_of(what_if(pair(), A100), "link.latency") is None
    mixed = Cluster((A100.devices[0], Cluster.preset("v100", 2).devices[1]))
    assert value_of(what_if(pair(), mixed), "device.sms") is None
    assert value_of(what_if(pair(), mixed).device("h100"), "device.sms") == 132.0
    assert value_of(what_if(pair(), A100).interference(0).set("interference", 3), "interference") == 0.0
    for unknown in ("sms", "operator.z.speed", "operators.z.speed"):
        with pytest.raises(UnknownNameError):
            value_of(asked, unknown)
