"""Orders on streams: waits, what lives to the end, edges from allocations, memory, and folded streams."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import simsched as ss
from hwbackend.torch.inductor.plan import Allocation, FusedKernel, graph_of, make_plan, scheduled_by
from simsched.base.errors import ScheduleError

A100 = ss.Cluster.preset("a100")


def kernel(name, after=(), touches=(), **more):
    return FusedKernel(name, tuple(after), tuple(touches), **{"time": 1.0, "elements": 4096, **more})


def memory(count, **more):
    return [Allocation((f"buf{i}",), 4.0, **more) for i in range(count)]


def fixed(order, streams):
    return lambda _graph: (order, streams)


DIAMOND = [
    kernel("a", touches=[0]),
    kernel("b", [0], [0, 1]),
    kernel("c", [0], [0, 2]),
    kernel("d", [1, 2], [1, 2, 3]),
]


def test_a_diamond_on_two_streams_has_two_waits():
    """c waits for a, and d for c; b follows a on its stream."""
    plan = make_plan(DIAMOND, memory(4), fixed([0, 1, 2, 3], [0, 0, 1, 0]))
    assert plan.stream == (0, 0, 1, 0)
    assert plan.steps[1] == (("record", 0, 0),)
    assert plan.steps[2] == (("wait", 1, 0),)
    assert plan.steps[3] == (("record", 1, 1), ("wait", 0, 1))
    assert (plan.n_streams, plan.n_waits) == (2, 2)


def test_what_two_streams_touch_lives_to_the_end():
    """a's buffer is read on both, c's on stream 1 and by d on 0; b's and d's stay on stream 0.

    In Inductor's order a is freed after c, and two more are there with d: 12 bytes; here all four are: 16.
    """
    plan = make_plan(DIAMOND, memory(4), fixed([0, 1, 2, 3], [0, 0, 1, 0]))
    assert plan.kept == {"buf0", "buf2"}
    assert (plan.peak, plan.plain_peak) == (16.0, 12.0)


def test_inputs_belong_to_the_first_stream():
    """An input that only the second stream reads is freed by who calls, whose stream is the first."""
    rows = [kernel("a", touches=[0]), kernel("b", touches=[1, 2])]
    given_ = [Allocation(("buf0",), 4.0), Allocation(("arg0",), 4.0, True, True), Allocation(("buf2",), 4.0)]
    assert make_plan(rows, given_, fixed([0, 1], [0, 1])).kept == {"arg0"}


def test_a_slice_on_another_stream_waits_for_what_came_before_the_allocation():
    """b allocates buf1 after a, whose memory it may get; c writes its slice of buf1 on stream 1, so it waits for a."""
    rows = [kernel("a", touches=[0]), kernel("b", touches=[1]), kernel("c", touches=[1])]
    plan = make_plan(rows, memory(2), fixed([0, 1, 2], [0, 0, 1]))
    assert plan.steps[1] == (("record", 0, 0),)
    assert plan.steps[2] == (("wait", 1, 0),)
    alone = make_plan([rows[1], rows[2]], memory(2), fixed([0, 1], [0, 1]))  # nothing was there to be freed
    assert not alone.n_waits


def test_what_launches_nothing_passes_dependencies_on_and_comes_early():
    """The name of a concatenation waits for its slices; what reads it waits for them."""
    rows = [
        kernel("a"),
        kernel("b"),
        kernel("cat", [0, 1], launches=False),
        kernel("c", [2]),
        kernel("x"),
    ]
    assert [(e.src, e.dst) for e in graph_of(rows).edges] == [("a", "c"), ("b", "c")]
    plan = make_plan(rows, [], fixed([3, 1, 0, 2], [0, 1, 0, 1]))
    assert plan.order == (4, 1, 0, 2, 3)
    assert plan.stream[2] == -1


def test_the_first_kernel_is_on_stream_0():
    """It is the current stream, on which a wrapper begins."""
    assert make_plan(DIAMOND, memory(4), fixed([0, 2, 1, 3], [2, 2, 1, 2])).stream == (0, 0, 1, 0)


@pytest.mark.parametrize("order", [[1, 0, 2, 3], [0, 1, 3, 2]])
def test_an_order_against_dependencies_is_refused(order):
    with pytest.raises(ScheduleError, match="before what it needs"):
        make_plan(DIAMOND, memory(4), fixed(order, [0, 0, 0, 0]))


def test_an_order_that_leaves_out_a_kernel_is_refused():
    with pytest.raises(ScheduleError, match="each has to come once"):
        make_plan(DIAMOND, memory(4), fixed([0, 1, 2], [0, 0, 0, 0]))


def test_streams_too_many_are_folded_by_time():
    """Round robin over five streams and times 5, 4, 3, 2, 1 on two: 5 + 2 + 1 and 4 + 3."""
    rows = [kernel(name, time=float(5 - i)) for i, name in enumerate("abcde")]

    def spread(graph, cluster, _cost):
        return ss.Schedule.from_columns(graph, range(5), tuple(cluster.index)[:1], stream=range(5))

    _, streams = scheduled_by(spread, A100, 2)(graph_of(rows))
    assert streams == [0, 1, 1, 0, 0]


@pytest.mark.parametrize("scheduler", ["nimble", "opara", "ios", "heft", "peft", "etf", "lios", "greedy", "sequential"])
def test_schedulers_place_on_the_streams_that_there_are(scheduler):
    rows = [
        kernel("a", touches=[0]),
        *(kernel(f"b{i}", [0], [0, i + 1], time=3.0) for i in range(6)),
        kernel("c", range(1, 7), range(1, 8)),
    ]
    plan = make_plan(rows, memory(8), scheduled_by(scheduler, A100, 3))
    assert 1 <= plan.n_streams <= 3
    assert sorted(plan.order) == list(range(8))


@st.composite
def kernels(draw):
    count = draw(st.integers(1, 10))
    rows = []
    for i in range(count):
        after = sorted(draw(st.sets(st.integers(0, i - 1), max_size=3))) if i else []
        rows.append(kernel(f"k{i}", after, [i, *after]))
    return rows, draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))


@given(drawn=kernels())
def test_waits_order_what_depends(drawn):
    """Clocks of streams, advanced by what the plan issues: a kernel begins after all that it needs."""
    rows, streams = drawn
    plan = make_plan(rows, memory(len(rows)), fixed(list(range(len(rows))), streams))
    clocks = [[0] * 4 for _ in range(4)]
    events, place = {}, {}
    for row in plan.order:
        for what, lane, event in plan.steps[row]:
            if what == "record":
                events[event] = list(clocks[lane])
            else:
                clocks[lane] = [max(pair) for pair in zip(clocks[lane], events[event], strict=True)]
        lane = plan.stream[row]
        for needed in rows[row].after:
            assert clocks[lane][place[needed][0]] >= place[needed][1]
        clocks[lane][lane] += 1
        place[row] = lane, clocks[lane][lane]
