"""Operators fused and taken out, and plans carried over to what is left."""

import numpy as np
import pytest

from simsched.base.errors import UnknownNameError, WhatIfError
from simsched.experiments.whatif import what_if
from simsched.experiments.whatif.rewiring import carried, fused, removed
from simsched.model import Cluster, Edge, Kernel, Operator, OpGraph, Placement, Schedule

FREE = Cluster.preset("a100", 2).without_overheads()


def diamond(**fields):
    """a, then b and c side by side, then d; every tensor of 100 bytes."""
    rows = [Operator(name, time=us, nbytes=1000.0, **fields) for name, us in zip("abcd", (1, 2, 3, 4), strict=True)]
    return OpGraph(rows, [Edge(u, v, 100.0) for u, v in ("ab", "ac", "bd", "cd")], "diamond")


def fuse(graph, *names):
    return fused(graph, names, graph.time, FREE.devices[0])


def ends(graph):
    return [(edge.src, edge.dst) for edge in graph.edges]


def test_a_path_out_and_back_in_is_refused():
    """b between a and d cannot wait for the one and be waited for by the other if they are one."""
    with pytest.raises(WhatIfError, match=r"fuse: a -> b -> d leads out of the operators and back in"):
        fuse(diamond(), "d", "a")
    with pytest.raises(WhatIfError, match="a -> c -> d leads"):
        fuse(diamond(), "a", "b", "d")
    assert fuse(diamond(), *"abcd").graph.names == ("a+b+c+d",)
    with pytest.raises(UnknownNameError, match="unknown operator 'e'; known are: a, b, c, d"):
        fuse(diamond(), "a", "e")
    line = OpGraph([Operator(name) for name in "abcde"], [Edge(u, v) for u, v in ("ab", "bc", "cd", "de")])
    with pytest.raises(WhatIfError, match="fuse: a -> b -> c -> d -> e leads"):
        fuse(line, "a", "e")


def test_bytes_of_what_is_fused():
    """Of a, b: the tensor between is read once less; c reads it still, so it is written.

    Of b, c, d: two tensors are neither written nor read, 4000 less 400 with a besides it: 3000 - 400 = 2600.
    """
    pair = fuse(diamond(), "a", "b").graph
    assert pair["a+b"].nbytes == 1900.0
    assert ends(pair) == [("a+b", "c"), ("a+b", "d"), ("c", "d")]
    three = fuse(diamond(), "d", "c", "b").graph
    assert three.names == ("a", "b+c+d")
    assert three["b+c+d"].nbytes == 2600.0
    assert ends(three) == [("a", "b+c+d")]  # one tensor, read once


def test_tensors_that_differ_stay_apart():
    """a sends slices of 100 and 200 bytes to b and c; these send d 100 bytes each: two tensors."""
    rows = [Operator(name, time=1.0) for name in "abcd"]
    sizes = {"ab": 100.0, "ac": 200.0, "bd": 100.0, "cd": 100.0}
    graph = OpGraph(rows, [Edge(*pair, size) for pair, size in sizes.items()])
    edges = fuse(graph, "b", "c").graph.edges
    assert [(e.src, e.dst, e.nbytes) for e in edges] == [
        ("a", "b+c", 100.0), ("a", "b+c", 200.0), ("b+c", "d", 100.0), ("b+c", "d", 100.0),
    ]  # fmt: skip


def test_what_a_fused_operator_is():
    """Kernel and intensity of the longest member; without FLOP and bytes of one, times add up."""
    rows = [
        Operator("x", "conv", time=5.0, flops=7.0, kernels=(Kernel(10, share=0.25), Kernel(20, share=0.75)),
                 intensity="compute", weight_nbytes=3.0, block="stem"),
        Operator("y", "relu", time=1.0, kernels=(Kernel(99),), intensity="memory", output_shape=(1, 8)),
        Operator("x+y", "relu"),
    ]  # fmt: skip
    graph = OpGraph(rows, [Edge("x", "y")])
    op = fuse(graph, "x", "y").graph["x+y'"]
    assert (op.kind, op.time, op.flops, op.weight_nbytes) == ("conv+relu", 6.0, 7.0, 3.0)
    assert (op.kernels, op.intensity, op.output_shape, op.block) == ((Kernel(20),), "compute", (1, 8), "stem")
    read = OpGraph(  # both x, which z reads, too, and y are outputs of the two
        [Operator("x", output_shape=(1, 4)), Operator("y", output_shape=(1, 8)), Operator("z")],
        [Edge("x", "y"), Edge("x", "z")],
    )
    assert fused(read, "xy", np.ones(3), FREE.devices[0]).graph["x+y"].output_shape is None
    estimated = OpGraph([Operator(n, flops=1e9, nbytes=1e6) for n in "ab"], [Edge("a", "b", 4e5)])
    assert fuse(estimated, "a", "b").graph["a+b"].time is None


def test_quicker_members():
    """10 us at twice the speed and 30 us as they were: 5 + 30 = 35 us of 40, in either order."""
    graph = OpGraph([Operator("a", time=10.0), Operator("b", time=30.0)], [Edge("a", "b")])
    asked = what_if(graph, FREE)
    assert asked.operators("a", speed=2.0).fuse(["a", "b"]).makespan == pytest.approx(35.0)
    assert asked.operators(speed=2.0).fuse(["a", "b"]).makespan == 20.0
    more = OpGraph(
        [*graph.operators, Operator("c", time=8.0), Operator("d", time=0.0)], [Edge(*p) for p in ("ab", "bc", "cd")]
    )
    three = what_if(more, FREE).operators("b", speed=3.0).operators("c", speed=4.0)
    assert three.fuse(["a", "b"]).makespan == pytest.approx(10 + 10 + 2)
    assert three.fuse(["c", "d"]).makespan == pytest.approx(10 + 10 + 2)
    assert asked.fuse(["a", "b"]).operators("a+b", speed=4.0).makespan == 10.0
    with pytest.raises(UnknownNameError, match="unknown operator 'a'"):
        _ = asked.fuse(["a", "b"]).operators("a", speed=2.0).makespan


def test_what_is_removed():
    """d then reads from a what b read from it, once, though b and c are both gone."""
    graph = removed(diamond(), ["b", "c"]).graph
    assert ends(graph) == [("a", "d")]
    assert ends(removed(diamond(), ["a"]).graph) == [("b", "d"), ("c", "d")]
    assert ends(removed(diamond(), ["d"]).graph) == [("a", "b"), ("a", "c")]
    chain = OpGraph([Operator(n) for n in "abcd"], [Edge("a", "b", 5.0), Edge("b", "c", 6.0), Edge("c", "d", 7.0)])
    assert removed(chain, ["b", "c"]).graph.edge(0) == Edge("a", "d", 5.0)
    with pytest.raises(WhatIfError, match="nothing of graph 'diamond' would be left"):
        removed(diamond(), "abcd")
    asked = what_if(diamond(), FREE).remove("a", "d")
    assert (asked.graph.names, asked.makespan) == (("b", "c"), 3.0)


def rows(plan):
    return [(row.op, row.device, row.stream, row.stage, row.group) for row in plan.placements]


def test_placements_of_what_is_fused():
    """On the device and the stream of the first member launched; after all that it reads from.

    a to gpu1 takes 2 us and 100 bytes over 275 GB/s; then c, then b and d as one.
    """
    plan = Schedule(diamond(), [Placement("a"), Placement("c", "gpu1", 2), Placement("b", "gpu1", 1), Placement("d")])
    made = carried(plan, fuse(plan.graph, "b", "c"))
    assert rows(made) == [("a", "gpu0", 0, 0, 0), ("b+c", "gpu1", 2, 0, 0), ("d", "gpu0", 0, 0, 0)]
    late = carried(plan, fuse(plan.graph, "b", "d"))
    assert [row[0] for row in rows(late)] == ["a", "c", "b+d"]
    assert rows(late)[2][:3] == ("b+d", "gpu1", 1)
    asked = what_if(plan, FREE).fuse(["b", "d"])
    assert asked.makespan == pytest.approx(1 + 2 + 100 / 275e3 + 3 + asked.graph["b+d"].time)


def test_a_launch_order_stays_topological():
    """c runs on another device and feeds d, which becomes one with a: it is launched first, in any execution."""
    rows = [Operator(name, time=1.0) for name in "acd"]
    graph = OpGraph(rows, [Edge("a", "d"), Edge("c", "d")])
    plan = Schedule(graph, [Placement("a"), Placement("c", "gpu1"), Placement("d")])
    asked = what_if(plan, FREE).fuse(["a", "d"])
    for execution in ("events", "stages", "graph"):
        assert [row.op for row in asked.execution(execution).plan.placements] == ["c", "a+d"]
    backwards = Schedule(graph, [Placement("d", "gpu1"), Placement("a"), Placement("c")])  # threads of their own
    assert [row.op for row in what_if(backwards, FREE).remove("a").plan.placements] == ["d", "c"]


def test_stages_of_what_is_fused():
    """c of the second stage feeds d; b of the second and d of the third become one, which must leave c's stage."""
    stages = [
        Placement("a"),
        Placement("b", stage=1),
        Placement("c", stream=1, stage=1, group=1),
        Placement("d", stage=2),
    ]
    plan = Schedule(diamond(), stages, "stages")
    made = carried(plan, fuse(plan.graph, "b", "d"))
    assert rows(made) == [("a", "gpu0", 0, 0, 0), ("c", "gpu0", 1, 1, 1), ("b+d", "gpu0", 0, 2, 0)]
    assert rows(carried(plan, removed(plan.graph, ["a"]))) == [row for row in rows(plan) if row[0] != "a"]


def test_stages_of_a_plan_of_streams():
    """a and b on stream 0, c on stream 1, which reads from a, then d: c opens a stage, d the next."""
    plan = Schedule(diamond(), [Placement("a"), Placement("b"), Placement("c", stream=1), Placement("d")])
    asked = what_if(plan, FREE.replace_devices(barrier=10.0)).execution("stages")
    assert [(row[0], row[3], row[4]) for row in rows(asked.plan)] == [
        ("a", 0, 0),
        ("b", 0, 0),
        ("c", 1, 1),
        ("d", 2, 0),
    ]
    assert asked.makespan_before == 1 + 3 + 4  # b and c side by side
    assert asked.makespan == 1 + 2 + 10 + 3 + 10 + 4
    assert asked.execution("events").makespan == 8.0
    assert rows(what_if(asked.plan, FREE).execution("graph").execution("stages").plan) == rows(asked.plan)
