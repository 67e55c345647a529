"""What could run beside what, what that gains, what eats it and where it turns: worked by hand on given times."""

from functools import partial

import pytest
from hypothesis import given
from small import edges, made, operators
from strategies import graphs

import simsched as ss
from simsched.base.errors import UnknownNameError, WhatIfError
from simsched.experiments.overlap import branches, read_over
from simsched.experiments.overlap.plans import Side, beside, by_turns
from simsched.experiments.overlap.prefetch import prefetching
from simsched.experiments.overlap.results import Point
from simsched.experiments.overlap.turns import turn
from simsched.model.graph import Collective, Work

FREE = ss.Cluster.preset("a100").without_overheads()
TWO = ss.Cluster.preset("a100", 2)
BARE = FREE.replace_devices(contention=False)


def layers(*sides, blocks=2):
    """Blocks one after the other: a norm, some operators side by side, and their sum."""
    ops, pairs = [], []
    for i in range(blocks):
        names = ["norm", *sides, "sum"]
        ops += [ss.Operator(f"layer{i}.{name}", time=1.0, block=f"layer{i}") for name in names]
        pairs += [f"layer{i}.norm-layer{i}.{side} layer{i}.{side}-layer{i}.sum" for side in sides]
        pairs += [f"layer{i - 1}.sum-layer{i}.norm"] if i else []
    return ss.OpGraph(ops, edges(" ".join(pairs)), "layers")


def test_branches_that_are_alike_are_taken_together():
    """Of two sides the one is the other's counterpart: one overlap, in both layers."""
    graph = layers("shared", "routed")
    (found,) = branches(graph)
    assert (found.name, found.beside) == ("routed", ("shared",))
    assert [[graph.names[op] for op in place] for place in found.places] == [["layer0.routed"], ["layer1.routed"]]


def test_three_sides_are_three_branches():
    assert [(each.name, each.beside) for each in branches(layers("q", "k", "v"))] == [
        ("q", ("k", "v")),
        ("k", ("q", "v")),
        ("v", ("q", "k")),
    ]


def test_a_branch_has_all_that_needs_nothing_else():
    """Of s -> a -> b -> j, a -> j and s -> c -> j: a and b together; the sum needs both sides."""
    graph = made("s=1 a=1 b=1 c=1 j=1", "s-a a-b b-j a-j s-c c-j")
    assert {each.name: each.beside for each in branches(graph)} == {"c": ("a", "b")}


def test_equal_names_that_could_run_beside_each_other_are_two_overlaps():
    """Three copies of x in one block: none of them is another place of the first."""
    ops = [ss.Operator(f"b{i}.x", time=1.0, block=f"b{i}") for i in range(3)]
    assert [each.name for each in branches(ss.OpGraph(ops))] == ["b#.x", "b#.x (2)", "b#.x (3)"]


def test_a_chain_has_no_branches():
    graph = made("a=1 b=1 c=1", "a-b b-c")
    assert branches(graph) == []
    found = ss.overlap(graph, FREE)
    assert found.rows == ()
    assert "Nothing could run beside anything else" in repr(found)


def test_too_many_operators_are_refused():
    graph = ss.OpGraph([ss.Operator(str(i), time=1.0) for i in range(20_001)], name="wide")
    with pytest.raises(WhatIfError, match=r"graph 'wide' has 20,001 operators, .* up to 20,000: give a part of it"):
        branches(graph)


def test_of_many_branches_those_are_tried_that_could_save_most():
    """Of 103 operators of 1 to 103 us the three shortest are left out; none saves more than 3 us."""
    graph = ss.OpGraph([ss.Operator(f"op{i}", time=float(i), utilization=0.001) for i in range(1, 104)], name="wide")
    found = ss.overlap(graph, FREE)
    assert (found.untried, found.untried_us) == (3, 3.0)
    assert {row.name for row in found.rows}.isdisjoint({"op1", "op2", "op3"})
    assert "3 more were not simulated: each saves 3 us at most." in repr(found)


@given(graphs(max_ops=9, timed=True))
def test_a_branch_on_a_stream_of_its_own_costs_nothing_by_itself(graph):
    """Every schedule can run; without contention and overheads it is never slower than one stream."""
    one = ss.simulate(ss.schedule(graph, BARE, "sequential"), BARE).makespan
    for branch in branches(graph):
        for is_early in (False, True):
            plan = beside(graph, "gpu0", [Side(branch, is_early)], "events").check(BARE)
            assert ss.simulate(plan, BARE).makespan <= one * (1 + 1e-9)


def test_a_short_operator_hides_behind_a_long_one():
    """100 us and 40 us that load 50 % and 30 %: 140 us become 100, all that is possible."""
    found = ss.overlap(made(operators("a=100", utilization=0.5) + operators("b=40", utilization=0.3)), FREE)
    (row,) = found.rows
    assert (found.makespan_us, row.makespan_us) == (140.0, pytest.approx(100.0))
    assert (row.gain, row.possible) == (pytest.approx(0.4), pytest.approx(0.4))
    assert (row.contention, row.waits) == (pytest.approx(0.0), pytest.approx(0.0))
    assert row.gain_low < 0.4 < row.gain_high
    assert found.plans[row.name].n_streams == 2


def test_contention_eats_a_gain():
    """Two that fill the GPU gain nothing; without contention they would gain 40 of 140 us."""
    (row,) = ss.overlap(made(operators("a=100 b=40", utilization=1.0)), FREE).rows
    assert (row.gain, row.possible, row.contention) == (pytest.approx(0.0), pytest.approx(0.4), pytest.approx(0.4))


def test_waits_eat_a_gain():
    """A join of two streams costs 10 us: 140 us become 110, where 100 would be possible."""
    cluster = FREE.replace_devices(graph_join=10.0)
    graph = made(operators("a=100 b=40 j=0", utilization=0.3), "a-j b-j")
    (row,) = ss.overlap(graph, cluster).rows
    assert row.makespan_us == pytest.approx(110.0)
    assert row.waits == pytest.approx(0.4 - (140 / 110 - 1))


def test_overlaps_add_up():
    """100, 90 and 80 us that load 20 % each: with one on a stream of its own 170, with two 100."""
    found = ss.overlap(made(operators("a=100 b=90 c=80", utilization=0.2)), FREE)
    together = found.row("all together")
    assert found.rows[-1] is together
    assert together.makespan_us == pytest.approx(100.0)
    assert found.rows[0].makespan_us == pytest.approx(170.0)  # a beside b and c
    with pytest.raises(UnknownNameError, match="unknown overlap 'd'"):
        found.row("d")


def sized(n=1):
    """100 us beside 8 / n us, both of which leave room."""
    return made([*operators("a=100", utilization=0.5), ss.Operator("b", time=8.0 / n, utilization=0.3)])


@pytest.mark.parametrize(("worth", "at"), [(0.02, 4.0), (0.01, 8.0)])
def test_an_overlap_turns_where_its_gain_crosses_the_least_that_counts(worth, at):
    """The gain is 0.08 / n: 0.02 at 4, which is the default, and 0.01 at 8."""
    found = ss.overlap(sized(1), FREE, load=sized, over=read_over("n=1:64"), worth=worth)
    assert [point.value for point in found.points] == [1, 2, 4, 8, 16, 32, 64]
    assert [point.gain["b"] for point in found.points] == pytest.approx([0.08 / point.value for point in found.points])
    (turn,) = found.turns
    assert (turn.name, turn.pays, turn.at) == ("b", "below", (pytest.approx(at),))
    assert turn.low is None or turn.low <= at
    assert turn.high is None or turn.high >= at
    assert f"b: pays up to n {at:.0f}" in repr(found)
    assert f"An overlap pays where it gains {100 * worth:g} % or more." in repr(found)


@pytest.mark.parametrize(
    ("gains", "pays", "at", "exceptions"),
    [
        ((3, 1, 3, 1), "below", (4 * 2**0.5,), (2,)),
        ((1, 3, 1, 3), "above", (2**0.5,), (4,)),
        ((1, 3, 3, 1), "between", (2**0.5, 4 * 2**0.5), ()),
        ((3, 1, 1, 3), "outside", (2**0.5, 4 * 2**0.5), ()),
    ],
)
def test_the_outermost_turns_count_and_others_are_exceptions(gains, pays, at, exceptions):
    """At 1, 2, 4, 8: between 1 and 3 % two are crossed in the middle of the logarithm."""
    points = [Point(float(2**i), 100.0, {"b": gain / 100}, {}, {}) for i, gain in enumerate(gains)]
    found = turn("b", points, 0.02)
    assert (found.pays, found.at, found.exceptions) == (pays, pytest.approx(at), exceptions)
    places = {
        "below": "up to n 5",
        "above": "from n 2",
        "between": "from n 2 to 5",
        "outside": "up to n 1 and from 6",
    }
    assert found.place("n") == places[pays]


def test_a_gain_that_counts_is_above_0():
    with pytest.raises(WhatIfError, match="must be above 0 and finite, not 0"):
        ss.overlap(sized(1), FREE, worth=0.0)


def test_an_eager_host_hides_what_an_overlap_saves():
    """PyTorch's host takes 19 us for each launch: beside it two of 8 us never meet."""
    graph = made(operators("a=8 b=8", utilization=0.3))
    cluster = ss.Cluster.preset("a100")
    captured, eager = (ss.overlap(graph, cluster, execution=one).rows[0] for one in ("graph", "eager"))
    assert captured.gain > 0.3
    assert eager.gain == pytest.approx(0.0, abs=0.02)
    assert eager.possible == pytest.approx(1.0)
    assert eager.waits == pytest.approx(1.0, abs=0.02)


def test_an_overlap_may_always_or_never_pay():
    always = ss.overlap(sized(1), FREE, load=sized, over=("n", (1, 2)))
    never = ss.overlap(sized(1), FREE, load=sized, over=("n", (16, 32)))
    assert [found.turns[0].pays for found in (always, never)] == ["always", "never"]
    assert "never pays from n 16 to 32" in repr(never)


def halved(microbatches=1):
    """100 us that fill the GPU and an all-reduce of 60 us; or two halves of both."""
    ops, pairs = [], []
    for i in range(microbatches):
        block = f"micro{i}" if microbatches > 1 else "all"
        exchanged = Collective("all_reduce", 1e6, 2)
        ops += [
            ss.Operator(f"{block}.compute", time=100.0 / microbatches, utilization=1.0, block=block),
            ss.Operator(f"{block}.reduce", time=60.0 / microbatches, collective=exchanged, block=block),
        ]
        pairs.append(f"{block}.compute-{block}.reduce")
    return ss.OpGraph(ops, edges(" ".join(pairs)), "step")


def test_half_batches_hide_collectives():
    """One half computes until 50 us and reduces until 80, the other computes until 100 and reduces until 130."""
    cluster = ss.Cluster.preset("a100", 2).without_overheads()
    found = ss.overlap(halved(), cluster, halves=partial(halved, 2))
    (row,) = found.rows
    assert row.name == "half-batches"
    assert (found.makespan_us, row.makespan_us) == (pytest.approx(160.0), pytest.approx(130.0))
    plan = by_turns(halved(2), "gpu0", "graph", apart=False)
    streams = {place.op: place.stream for place in plan.placements}
    assert streams == {"micro0.compute": 0, "micro0.reduce": 1, "micro1.compute": 0, "micro1.reduce": 1}


def reduced(weights):
    """An all-reduce of 10 us between two products, of which the second has so many bytes of weights."""
    ops = [
        ss.Operator("before", time=50.0, utilization=1.0),
        ss.Operator("reduce", time=10.0, collective=Collective("all_reduce", 1e6, 2)),
        ss.Operator("norm", time=2.0, utilization=0.1),
        ss.Operator("after", works=(Work("product", weights=weights, rows=1, columns=4096, inner=1024),), dtype="fp16"),
    ]
    return ss.OpGraph(ops, edges("before-reduce reduce-norm norm-after"), "step")


def test_a_prefetch_reads_what_a_collective_leaves_time_for():
    """In 10 us DRAM reads 10 x 0.88 x 1,555,000 bytes, less than 0.35 of 40 MiB; the product reads the rest."""
    cluster = ss.Cluster.preset("a100", 2).without_overheads()
    graph = prefetching(reduced(40e6), cluster, None)
    read = 10 * 0.88 * cluster.devices[0].bandwidth
    assert graph.names == ("before", "after.prefetch", "reduce", "norm", "after")
    assert graph["after.prefetch"].works[0].reads == pytest.approx(read)
    assert graph["after"].works[0].weights == pytest.approx(40e6 - read)
    assert {(edge.src, edge.dst) for edge in graph.edges} >= {
        ("before", "after.prefetch"),
        ("after.prefetch", "after"),
    }
    row = ss.overlap(reduced(40e6), cluster).row("prefetch of weights")
    assert (row.beside, row.places) == ("collectives", 1)
    assert 0 < row.gain < 10 / 60


def test_small_weights_and_graphs_without_collectives_have_no_prefetch():
    cluster = ss.Cluster.preset("a100", 2)
    assert prefetching(reduced(1e6), cluster, None) is None
    assert prefetching(made(operators("a=100", utilization=0.5)), cluster, None) is None


def test_a_product_has_one_prefetch():
    """Of two collectives before a product the one without another between them."""
    ops = [
        ss.Operator("one", time=10.0, collective=Collective("all_reduce", 1e6, 2)),
        *reduced(4e6).operators,
    ]
    graph = prefetching(ss.OpGraph(ops, edges("one-before before-reduce reduce-norm norm-after")), TWO, None)
    assert [name for name in graph.names if name.endswith("prefetch")] == ["after.prefetch"]
    assert graph.names.index("after.prefetch") == graph.names.index("reduce") - 1


def test_a_result_is_kept_and_drawn(tmp_path):
    found = ss.overlap(sized(1), FREE, load=sized, over=("n", (1, 16)))
    path = tmp_path / "overlaps.json"
    found.save(str(path))
    assert ss.Overlaps.load(str(path)) == found
    assert found.plot().get_xlabel() == "n"
    alone = ss.overlap(sized(1), FREE)
    assert alone.plot().get_xlabel() == "gain in %"


def test_gains_may_be_over_a_measured_step():
    """Saved are 40 of 140 us; of a step of 240 us, as an engine has it, 200 are left: a fifth."""
    graph = made(operators("a=100", utilization=0.5) + operators("b=40", utilization=0.3))
    found = ss.overlap(graph, FREE, measured_us=240.0)
    (row,) = found.rows
    assert (row.makespan_us, row.gain, row.possible) == (pytest.approx(100.0), pytest.approx(0.2), pytest.approx(0.2))
    assert row.gain_low < 0.2 < row.gain_high
    assert found.measured_us == 240.0
    (same,) = ss.overlap(graph, FREE, measured_us=30.0).rows
    assert same.gain == pytest.approx(0.4)  # its kernels are quicker than simulated
    with pytest.raises(WhatIfError, match="a measured step is of one graph: leave out `over`"):
        ss.overlap(sized(1), FREE, load=sized, over=("n", (1, 2)), measured_us=240.0)


def test_the_best_division_of_sms():
    """27 blocks that fill an SM each, beside 81: together the 108 SMs of an A100, a quarter and three quarters.

    With a sixteenth, 6 SMs, the 27 blocks of 100 us take five rounds.
    """
    small = ss.Kernel(27, threads=1024, registers=64)
    large = ss.Kernel(81, threads=1024, registers=64)
    ops = [ss.Operator("a", time=90.0, kernels=(large,)), ss.Operator("b", time=100.0, kernels=(small,))]
    found = ss.overlap(ss.OpGraph(ops, name="two"), FREE, partition=True)
    (row,) = found.rows
    assert row.shares is not None
    assert row.shares.side_sms == 27
    assert row.shares.makespan_us == pytest.approx(100.0, rel=0.1)
    plan = found.plans["b, divided"]
    assert [each.sms for each in plan.partitions if each.stream == 1] == [27]
    assert "27 beside" in repr(found)
    assert ss.simulate(plan.with_partitions({1: 6}), FREE).makespan == pytest.approx(500.0, rel=0.1)


def test_what_is_read_of_a_range():
    assert read_over("batch = 1:4096")[1] == tuple(2**k for k in range(13))
    assert read_over("batch=5:5") == ("batch", (5,))


@pytest.mark.parametrize("text", ["batch", "batch=4:2", "batch=0:4", "batch=1.5", "=1:4", "batch=1:2:3", "x" * 100])
def test_refused_ranges(text):
    with pytest.raises(WhatIfError, match="over '") as caught:
        read_over(text)
    assert len(str(caught.value)) < 200


def test_refused_questions():
    with pytest.raises(UnknownNameError, match="unknown execution of overlaps 'stages'; known are: graph, events"):
        ss.overlap(sized(1), FREE, execution="stages")
    with pytest.raises(WhatIfError, match="give `load`, which makes the graph for a value"):
        ss.overlap(sized(1), FREE, over=("n", (1, 2)))
