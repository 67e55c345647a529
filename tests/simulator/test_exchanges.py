"""Collectives: ranks that begin and end together, what they take of links, blocks and DRAM; worked by hand."""

import re

import pytest
from hand_made import grid, hand_made, lower, run
from small import made, placements

import simsched as ss

LINK = ss.Link(100.0, start=2.0, step=1.0, efficiency=1.0)
ENGINES = pytest.mark.parametrize("engine", ["reference", "compiled"])


def ranks(names, nbytes=1000.0, *, n=None, group="g", operation="all_reduce", algorithm="ring", **fields):
    """Operators that are the ranks of one collective.

    An all-reduce of 1,000 bytes along a ring of two: 2 + 2 x 1 us, then 1,000 bytes at 100 a us, 14 us in all.
    """
    collective = ss.Collective(operation, nbytes, n or len(names), group, algorithm)
    return [ss.Operator(name, collective=collective, **fields) for name in names]


def times(trace):
    """Begin and end of each operator in us."""
    return {name: pytest.approx(pair) for name, pair in trace.operator_times().items()}


@ENGINES
def test_all_begin_together_and_none_ends_before_all(engine):
    """The first rank could begin at 10 us, the second at 30: both run from 30 to 44, what follows the first at 44."""
    ops = [*made("a=10 b=30 z=1").operators, *ranks(["r", "s"])]
    trace = run(ops, "a-r b-s r-z", "a@0 b@1 r@0 s@1 z@0", hand_made(2, link=LINK), engine=engine)
    assert trace.operator_times() == times(trace) | {"r": (30.0, 44.0), "s": (30.0, 44.0), "z": (44.0, 45.0)}
    path = trace.critical_path()
    assert path.operators == ("b", "r", "z")
    assert path.blame["transfer"] == pytest.approx(14.0)


@ENGINES
def test_a_symmetric_one_takes_what_its_peers_would_make_it_take(engine):
    """Four ranks of the same program, and one that stands for all: 2 + 6 x 1 us, then 1,500 bytes at 3 x 100 a us."""
    cluster = hand_made(4, link=LINK)
    ops = [op for i in range(4) for op in (ss.Operator(f"a{i}", time=10.0), *ranks([f"r{i}"], n=4))]
    all_four = run(
        ops, "a0-r0 a1-r1 a2-r2 a3-r3", " ".join(f"a{i}@{i} r{i}@{i}" for i in range(4)), cluster, engine=engine
    )
    alone = run(ops[:2], "a0-r0", "a0 r0", cluster, engine=engine)
    assert alone.operator_times()["r0"] == (10.0, 23.0)
    assert all(all_four.operator_times()[f"r{i}"] == pytest.approx((10.0, 23.0)) for i in range(4))


@ENGINES
def test_it_shares_a_link_with_a_copy(engine):
    """Bytes of the all-reduce move from 4 us on, those of the copy from 1 us on.

    The copy has 300 of its 1,000 bytes over when both share the link, 50 bytes a us each: it has the other 700 over
    14 us later, at 18. The all-reduce has then moved 700 bytes, and moves 300 more in 3 us: it ends at 21.
    """
    ops = [*ranks(["r", "s"]), *made("a=1 b=1").operators]
    trace = run(ops, "a-b=1000", "a/1@0 b/1@1 r@0 s@1", hand_made(2, link=LINK), engine=engine)
    assert trace.operator_times()["b"] == pytest.approx((18.0, 19.0))
    assert trace.operator_times()["s"] == pytest.approx((0.0, 21.0))


@ENGINES
def test_two_share_their_links(engine):
    """Of two at once each has half of the bandwidth: 4 us, then 20."""
    ops = [*ranks(["r", "s"]), *ranks(["t", "u"], group="h")]
    trace = run(ops, "", "r@0 s@1 t/1@0 u/1@1", hand_made(2, link=LINK), engine=engine)
    assert [end for _, end in trace.operator_times().values()] == pytest.approx([24.0] * 4)


@ENGINES
def test_blocks_keep_their_places_from_the_first_on(engine):
    """A rank with 10 blocks fills gpu0 at 0 and waits for its peer until 30: a kernel behind it begins at 44."""
    ops = [*made("b=30").operators, *ranks(["r", "s"], kernels=(ss.Kernel(10, threads=1024),)), grid("k", 10, 5.0)]
    trace = run(ops, "b-s", "r@0 k/1@0 b@1 s@1", hand_made(2, link=LINK), engine=engine)
    assert trace.operator_times()["r"] == pytest.approx((30.0, 44.0))
    assert trace.operator_times()["k"] == pytest.approx((44.0, 49.0))


@ENGINES
def test_it_begins_once_all_its_blocks_have_places(engine):
    """Half of gpu0 is taken until 20: the rank with 10 blocks has 5 at 0 and the others at 20."""
    ops = [grid("k", 5, 20.0), *ranks(["r", "s"], kernels=(ss.Kernel(10, threads=1024),))]
    trace = run(ops, "", "k@0 r/1@0 s@1", hand_made(2, link=LINK), engine=engine)
    assert trace.operator_times()["s"] == pytest.approx((20.0, 34.0))


@ENGINES
def test_more_blocks_than_the_device_holds_are_not_needed(engine):
    """Of 1,000 blocks 10 fit: they move all."""
    trace = run(
        ranks(["r", "s"], kernels=(ss.Kernel(1000, threads=1024),)),
        "",
        "r@0 s@1",
        hand_made(2, link=LINK),
        engine=engine,
    )
    assert trace.makespan == pytest.approx(14.0)


@ENGINES
def test_it_loads_dram_and_is_not_slowed(engine):
    """Both ranks send and receive 100 bytes a us: a fifth of the 1,000 that DRAM moves, which leaves four fifths.

    A kernel that takes all of DRAM has moved 4 us' worth when bytes begin to move, and does 0.8 of its work until 14 us
    and 12 us' worth are over; the last 8 of its 20 us it has DRAM to itself.
    """
    memory = grid("k", 5, 20.0, nbytes=20_000.0, intensity="memory")
    ops = [memory, *ranks(["r", "s"], kernels=(ss.Kernel(5, threads=1024),))]
    trace = run(ops, "", "k@0 r/1@0 s@1", hand_made(2, link=LINK), engine=engine)
    assert trace.operator_times()["r"] == pytest.approx((0.0, 14.0))
    assert trace.operator_times()["k"] == pytest.approx((0.0, 22.0))


@ENGINES
@pytest.mark.parametrize("time", [0.0, 1.0, 7.0, 28.0])
def test_a_time_that_is_given_is_exact_alone(engine, time):
    trace = run(ranks(["r", "s"], time=time), "", "r@0 s@1", hand_made(2, link=LINK), engine=engine)
    assert trace.makespan == pytest.approx(time)


@ENGINES
def test_a_time_that_is_given_draws_out_what_links_need(engine):
    """28 us are twice what links need: two at once need half of the bandwidth each, and do not slow each other."""
    ops = [*ranks(["r", "s"], time=28.0), *ranks(["t", "u"], group="h", time=28.0)]
    trace = run(ops, "", "r@0 s@1 t/1@0 u/1@1", hand_made(2, link=LINK), engine=engine)
    assert trace.makespan == pytest.approx(28.0)


@ENGINES
def test_the_rank_that_takes_longest_counts(engine):
    """Ranks of 20 and of 5 us alone: 20."""
    ops = [*ranks(["r"], n=2, time=20.0), *ranks(["s"], n=2, time=5.0)]
    trace = run(ops, "", "r@0 s@1", hand_made(2, link=LINK), engine=engine)
    assert times(trace) == {"r": (0.0, 20.0), "s": (0.0, 20.0)}


@ENGINES
def test_without_contention_blocks_need_no_places_but_ranks_still_meet(engine):
    ops = [*made("b=30").operators, *ranks(["r", "s"], kernels=(ss.Kernel(10, threads=1024),)), grid("k", 10, 5.0)]
    trace = run(ops, "b-s", "r@0 k/1@0 b@1 s@1", hand_made(2, link=LINK, contention=False), engine=engine)
    assert trace.operator_times()["r"] == pytest.approx((30.0, 44.0))
    assert trace.operator_times()["k"] == pytest.approx((0.0, 5.0))


@ENGINES
def test_a_device_by_itself_has_a_port_that_its_collectives_share(engine):
    """A symmetric one sends 1,750 of 1,000 bytes to seven neighbours; two at once take as long as on the whole node."""
    ops = [*ranks(["r"], 1e7, n=8, group=None), *ranks(["s"], 1e7, n=8, group=None)]
    found = [
        run(ops, "", "r s/1", ss.Cluster.preset("h100", n).without_overheads(), engine=engine).makespan for n in (1, 8)
    ]
    assert found[0] == pytest.approx(found[1])
    alone = ss.roofline(ops[0], ss.Cluster.preset("h100").devices[0])
    assert alone < found[0] < 2 * alone


# What cannot run ---------------------------------------------------------------------------------


CROSSED = [*ranks(["a0", "a1"], group="a"), *ranks(["b0", "b1"], group="b")]


def test_two_groups_in_another_order_on_two_devices_are_refused():
    """gpu0 runs a before b, gpu1 b before a: each waits for the other."""
    plan = ss.Schedule(ss.OpGraph(CROSSED), placements("a0@0 b1@1 b0@0 a1@1"))
    with pytest.raises(ss.SimschedError, match=r"can never finish: .*ranks of '[ab]'.*ranks of '[ab]'"):
        plan.check(hand_made(2, link=LINK))


@ENGINES
def test_the_deadlock_of_a_program_names_the_ranks(engine):
    program = lower(CROSSED, "", "a0@0 b0@0 a1@1 b1@1", hand_made(2, link=LINK))
    data = program.to_dict()
    data["threads"][1].reverse()
    crossed = ss.Program.from_dict(data)
    message = "waiting are 'a0' on gpu0 for 'a1' of group 'a'; 'b1' on gpu1 for 'b0' of group 'b'"
    with pytest.raises(ss.SimschedError, match=re.escape(message)):
        ss.simulate(crossed, hand_made(2, link=LINK), engine=engine)


def test_ranks_on_one_device_are_refused():
    graph = ss.OpGraph(ranks(["r", "s"]))
    with pytest.raises(ss.SimschedError, match="operator 's': another rank of 'g' is on its device"):
        ss.Schedule(graph, placements("r@0 s/1@0")).check()
    assert ss.Evaluator(ss.Schedule(graph, placements("r@0 s@1")), hand_made(2)).move("s", device="gpu0") == float(
        "inf"
    )


def test_a_host_that_waits_for_what_it_sends_cannot_launch_the_other_rank():
    """One thread launches r, which sends its result to gpu1, and waits for r; s, the other rank, comes later."""
    ops = [*ranks(["r", "s"]), *made("x=1").operators]
    plan = ss.Schedule(ss.OpGraph(ops, [ss.Edge("r", "x", 10.0)]), placements("r@0 s@1 x/1@1"))
    cluster = hand_made(2, link=LINK)
    assert ss.simulate(plan.lower(cluster, threads="one"), cluster).makespan == pytest.approx(15.1)
    assert ss.simulate(plan.lower(cluster, transfers="blocking"), cluster).makespan == pytest.approx(15.1)
    with pytest.raises(ss.SimschedError, match="can never finish: "):
        plan.lower(cluster, threads="one", transfers="blocking")


def test_ranks_that_read_from_each_other_are_refused():
    graph = ss.OpGraph(ranks(["r", "s"]), [ss.Edge("r", "s")])
    with pytest.raises(ss.SimschedError, match="can never finish"):
        ss.Schedule(graph, placements("r@0 s@1")).check()
