"""Operators fused and taken out, and plans carried over to what is left."""

import numpy as np
import pytest
from small import made, operators, placements

from simsched.base.errors import WhatIfError
from simsched.experiments.whatif import what_if
from simsched.experiments.whatif.rewiring import carry_over, fuse_operators, remove_operators
from simsched.model import Cluster, Edge, Kernel, Operator, Schedule

FREE = Cluster.preset("a100", 2).without_overheads()


# a, then b and c side by side, then d; every tensor of 100 bytes
DIAMOND = made(operators("a=1 b=2 c=3 d=4", nbytes=1000.0), "ab ac bd cd", nbytes=100.0)


def fuse(graph, *names):
    return fuse_operators(graph, names, graph.time, FREE.devices[0])


def ends(graph):
    return " ".join(edge.src + "-" + edge.dst for edge in graph.edges)


def test_bytes_of_what_is_fused():
    """Of a, b: the tensor between is read once less; c reads it still, so it is written.

    Of b, c, d: two tensors are neither written nor read, 4000 less 400 with a besides it: 3000 - 400 = 2600.
    """
    pair = fuse(DIAMOND, "a", "b").graph
    assert pair["a+b"].nbytes == 1900.0
    assert ends(pair) == "a+b-c a+b-d c-d"
    three = fuse(DIAMOND, "d", "c", "b").graph
    assert three.names == ("a", "b+c+d")
    assert three["b+c+d"].nbytes == 2600.0
    assert ends(three) == "a-b+c+d"  # one tensor, read once
    assert fuse(DIAMOND, *"abcd").graph.names == ("a+b+c+d",)


def test_tensors_that_differ_stay_apart():
    """a sends slices of 100 and 200 bytes to b and c; these send d 100 bytes each: two tensors."""
    graph = fuse(made("a=1 b=1 c=1 d=1", "ab=100 ac=200 bd=100 cd=100"), "b", "c").graph
    assert ends(graph) == "a-b+c a-b+c b+c-d b+c-d"
    assert [edge.nbytes for edge in graph.edges] == [100.0, 200.0, 100.0, 100.0]


def test_what_a_fused_operator_is():
    """Kernel and intensity of the longest member; without FLOP and bytes of one, times add up."""
    rows = [
        Operator(
            "x",
            "conv",
            time=5.0,
            flops=7.0,
            kernels=(Kernel(10, share=0.25), Kernel(20, share=0.75)),
            intensity="compute",
            weight_nbytes=3.0,
            block="stem",
        ),
        Operator("y", "relu", time=1.0, kernels=(Kernel(99),), intensity="memory", output_shape=(1, 8)),
        Operator("x+y", "relu"),
    ]
    graph = made(rows, "xy")
    op = fuse(graph, "x", "y").graph["x+y'"]
    assert (op.kind, op.time, op.flops, op.weight_nbytes) == ("conv+relu", 6.0, 7.0, 3.0)
    assert (op.kernels, op.intensity, op.output_shape, op.block) == ((Kernel(20),), "compute", (1, 8), "stem")
    # both x, which z reads, too, and y are outputs of the two
    read = made([Operator("x", output_shape=(1, 4)), Operator("y", output_shape=(1, 8)), Operator("z")], "xy xz")
    assert fuse_operators(read, "xy", np.ones(3), FREE.devices[0]).graph["x+y"].output_shape is None
    estimated = made([Operator(n, flops=1e9, nbytes=1e6) for n in "ab"], "ab=4e5")
    assert fuse(estimated, "a", "b").graph["a+b"].time is None


def test_quicker_members():
    """10 us at twice the speed and 30 us as they were: 5 + 30 = 35 us of 40, in either order."""
    asked = what_if(made("a=10 b=30", "ab"), FREE)
    assert asked.operators("a", speed=2.0).fuse(["a", "b"]).makespan == pytest.approx(35.0)
    assert asked.operators(speed=2.0).fuse(["a", "b"]).makespan == 20.0
    three = what_if(made("a=10 b=30 c=8 d=0", "ab bc cd"), FREE).operators("b", speed=3.0).operators("c", speed=4.0)
    assert three.fuse(["a", "b"]).makespan == pytest.approx(10 + 10 + 2)
    assert three.fuse(["c", "d"]).makespan == pytest.approx(10 + 10 + 2)
    assert asked.fuse(["a", "b"]).operators("a+b", speed=4.0).makespan == 10.0


def test_what_is_removed():
    """d then reads from a what b read from it, once, though b and c are both gone."""
    for names, left in (("bc", "a-d"), ("a", "b-d c-d"), ("d", "a-b a-c")):
        assert ends(remove_operators(DIAMOND, names).graph) == left
    chain = made("a=1 b=1 c=1 d=1", "ab=5 bc=6 cd=7")
    assert remove_operators(chain, ["b", "c"]).graph.edge(0) == Edge("a", "d", 5.0)
    asked = what_if(DIAMOND, FREE).remove("a", "d")
    assert (asked.graph.names, asked.makespan) == (("b", "c"), 3.0)


def same(plan, text):
    """Whether a plan has these placements."""
    return list(plan.placements) == placements(text)


def test_placements_of_what_is_fused():
    """On the device and the stream of the first member launched; after all that it reads from.

    a to gpu1 takes 2 us and 100 bytes over 275 GB/s; then c, then b and d as one.
    """
    plan = Schedule(DIAMOND, placements("a c/2@1 b/1@1 d"))
    assert same(carry_over(plan, fuse(plan.graph, "b", "c")), "a b+c/2@1 d")
    assert same(carry_over(plan, fuse(plan.graph, "b", "d")), "a c/2@1 b+d/1@1")
    asked = what_if(plan, FREE).fuse(["b", "d"])
    assert asked.makespan == pytest.approx(1 + 2 + 100 / 275e3 + 3 + asked.graph["b+d"].time)


def test_a_launch_order_stays_topological():
    """c runs on another device and feeds d, which becomes one with a: it is launched first, captured too."""
    graph = made("a=1 c=1 d=1", "ad cd")
    asked = what_if(Schedule(graph, placements("a c@1 d")), FREE).fuse(["a", "d"])
    for execution in ("events", "graph"):
        assert [row.op for row in asked.execution(execution).plan.placements] == ["c", "a+d"]
    backwards = Schedule(graph, placements("d@1 a c"))  # threads of their own
    assert [row.op for row in what_if(backwards, FREE).remove("a").plan.placements] == ["d", "c"]


def test_stages_of_what_is_fused():
    """c of the second stage feeds d: b of the second and d of the third as one could not run beside c."""
    plan = Schedule(DIAMOND, placements("a b.1 c/1.1 d.2"), "stages")
    assert same(carry_over(plan, fuse(plan.graph, "b", "c")), "a b+c.1 d.2")
    assert same(carry_over(plan, remove_operators(plan.graph, ["a"])), "b.1 c/1.1 d.2")
    with pytest.raises(WhatIfError, match=r"the plan cannot be kept: .*; ask with reschedule=True"):
        what_if(plan, FREE).fuse(["b", "d"]).plan  # noqa: B018


def test_a_staged_plan_runs_by_events_and_back():
    """Without the barriers, 10 us of one stream and 20 us of two, b and c begin as a ends."""
    plan = Schedule(DIAMOND, placements("a b.1 c/1.1 d.2"), "stages")
    asked = what_if(plan, FREE.replace_devices(barrier=10.0, barrier_many=20.0)).execution("events")
    assert (asked.makespan_before, asked.makespan) == (1 + 10 + 3 + 20 + 4, 1 + 3 + 4)
    assert asked.execution("stages").plan is plan
