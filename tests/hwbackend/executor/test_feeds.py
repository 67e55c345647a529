"""Programs for PyTorch as far as can be seen without: events and barriers order what is read, the order of calls on
CUDA, and the rules of capture."""

from contextlib import nullcontext
from functools import partial

import numpy as np
import pytest
from fake_torch_cuda import FakeTorchCuda
from hypothesis import given
from hypothesis import strategies as st
from shortened import in_order, program_of, without

import simsched as ss
import workloads
from hwbackend.executor.feeds import feeds_of, n_copied
from hwbackend.executor.lanes import devices_of
from hwbackend.torch.hosts import CpuHost, issue_order
from simsched.base.errors import BackendError
from simsched.calibration.training import random_schedule
from simsched.model import BARRIER, COPY, LAUNCH, RECORD, SYNC, WAIT, Edge, Operator, OpGraph

A100, TWO = ss.Cluster.preset("a100"), ss.Cluster.preset("a100", 2)
OPERATORS = Operator("a", time=1.0), Operator("b", time=1.0)
program = partial(program_of, OpGraph(OPERATORS, [Edge("a", "b", 64.0)]))


@given(
    seed=st.integers(0, 10_000),
    execution=st.sampled_from(["events", "graph", "stages"]),
    n=st.integers(1, 3),
    events=st.sampled_from(["minimal", "literal"]),
    transfers=st.sampled_from(["async", "blocking"]),
)
def test_what_schedules_are_lowered_to_is_ordered(seed, execution, n, events, transfers):
    """Every edge is fed once, by a copy where the ends are on two devices."""
    graph = workloads.random_layered(n_ops=16, n_layers=4, rng=seed)
    cluster = ss.Cluster.preset("a100", n)
    plan = random_schedule(graph, cluster, rng=seed, execution=execution)
    found = plan.lower(cluster, events=events, transfers="async" if execution == "graph" else transfers)
    device = devices_of(found)
    feeds = feeds_of(found)
    assert len(feeds) == len(graph)
    for i, row in enumerate(feeds):
        assert sorted(feed.producer for feed in row) == sorted(graph.src[graph.dst == i].tolist())
        for feed in row:
            assert (feed.copy >= 0) == (device[feed.producer] != device[i])
            if feed.copy >= 0:
                assert found.copies.op[feed.copy] == feed.producer
                assert found.copies.device[feed.copy] == device[i]


@given(seed=st.integers(0, 10_000), data=st.data())
def test_without_a_wait_that_counts_it_is_not(seed, data):
    """Of a minimal program for one device no wait is implied by the others: each one that is dropped is missed."""
    graph = workloads.random_layered(n_ops=12, n_layers=4, rng=seed)
    found = random_schedule(graph, A100, rng=seed, execution="events").lower(A100)
    waits = np.flatnonzero(found.action == WAIT)
    if not len(waits):
        return
    drop = data.draw(st.sampled_from(waits.tolist()))
    with pytest.raises(BackendError, match="the program lacks a wait"):
        feeds_of(without(found, drop))


A, RECORDED = (LAUNCH, 0, 0, 0), (RECORD, 0, 0, 0)
BESIDE = (LAUNCH, 0, 1, 1)  # b, on another stream


@pytest.mark.parametrize(
    ("rows", "ordered"),
    [
        ([A, (LAUNCH, 0, 0, 1)], True),
        ([A, BESIDE], False),
        ([A, (BARRIER, 0, -1, -1), BESIDE], True),
        ([A, (BARRIER, 1, -1, -1), BESIDE], False),  # of another device
        ([A, RECORDED, (SYNC, 0, -1, 0), BESIDE], True),
        ([A, RECORDED, BESIDE, (SYNC, 0, -1, 0)], False),  # too late
        ([RECORDED, A, (WAIT, 0, 1, 0), BESIDE], False),  # an event knows what was issued before its record
    ],
)
def test_what_orders_and_what_does_not(rows, ordered):
    """a, and then b that reads from it."""
    refusal = "'b' may run before what it reads of 'a' is there: the program lacks a wait"
    with nullcontext() if ordered else pytest.raises(BackendError, match=refusal):
        feeds_of(program(rows))


def test_a_copy_comes_behind_its_operator_and_before_its_readers():
    ends = [A, RECORDED, (WAIT, 0, 1, 0), (COPY, 0, 1, 0), (RECORD, 0, 1, 1)]
    (_, (feed,)) = feeds_of(program(ends, [(WAIT, 1, 0, 1), (LAUNCH, 1, 0, 1)], copies=[(0, 1)], events=2))
    assert (feed.producer, feed.copy, feed.n) == (0, 0, 16)
    with pytest.raises(BackendError, match="a copy of 'a' may start before it is there"):
        feeds_of(program([ends[0], ends[3]], [(LAUNCH, 1, 0, 1)], copies=[(0, 1)]))
    with pytest.raises(BackendError, match="'b' may run before what it reads of 'a' is there"):
        feeds_of(program(ends[:4], [(LAUNCH, 1, 0, 1)], copies=[(0, 1)]))


def test_of_two_copies_that_of_the_right_size_is_read():
    """Two edges of 16 and 4 floats, each with a copy of its own."""
    graph = OpGraph(OPERATORS, [Edge("a", "b", 64.0), Edge("a", "b", 16.0)])
    found = in_order(graph, [0, 1]).lower(TWO, events="literal")
    wide, narrow = feeds_of(found)[1]
    assert [n_copied(found, feed.copy) for feed in (wide, narrow)] == [16, 4]


def test_threads_that_wait_for_ever_are_named():
    with pytest.raises(BackendError, match="host thread 1 waits for event 0, which is never recorded"):
        feeds_of(program([A], [(WAIT, 1, 0, 0), (LAUNCH, 1, 0, 1)], copies=[]))


# On a host


CHAIN = OpGraph([Operator(name, time=1.0) for name in "abc"], [Edge("a", "b", 4.0), Edge("b", "c", 4.0)])


class Recorded:
    """Operators and copies that refuse to run before what they read is there."""

    def __init__(self, program, **options):
        self.program, self.done, self.copied = program, [], []
        self.api = FakeTorchCuda(len(program.devices), options.pop("rng", 0))
        self.host = self.api.host(program, self.run, self.copy, **options)

    def run(self, i):
        graph = self.program.graph
        missing = [graph.names[p] for p in graph.src[graph.dst == i].tolist() if p not in self.done]
        assert missing == [], f"{graph.names[i]} ran before {missing}"
        self.done.append(i)

    def copy(self, row):
        assert self.program.copies.op[row] in self.done
        self.copied.append(row)


@given(
    seed=st.integers(0, 10_000),
    execution=st.sampled_from(["events", "graph", "stages"]),
    n=st.integers(1, 3),
    events=st.sampled_from(["minimal", "literal"]),
)
def test_every_operator_runs_after_what_it_reads(seed, execution, n, events):
    """In whatever order streams go on. In a capture there is nothing but work, records and waits, none of it run; a
    launch then does it all."""
    graph = workloads.random_layered(n_ops=14, n_layers=4, rng=seed)
    cluster = ss.Cluster.preset("a100", 1 if execution == "graph" else n)
    program = random_schedule(graph, cluster, rng=seed, execution=execution).lower(cluster, events=events)
    recorded = Recorded(program, rng=seed)
    host, cuda = recorded.host, recorded.api.cuda
    assert host.run() > 0
    assert sorted(recorded.done) == list(range(14))
    assert sorted(recorded.copied) == list(range(len(program.copies.op)))
    if execution == "graph":
        recorded.done.clear()
        cuda.calls.clear()
        host.capture()
        names = [call[0] for call in cuda.calls]
        during = names[names.index("begin_capture") + 1 : names.index("end_capture")]
        assert set(during) <= {"set_device", "record", "wait", "event"}
        assert recorded.done == []
        for launches in (1, 2):
            recorded.done.clear()
            assert host.run() > 0
            assert sorted(recorded.done) == list(range(14))
            assert (cuda.count["launch_graph"], cuda.count["work"]) == (launches, 2 * 14)


@pytest.mark.parametrize("shift", [0, 5])
def test_streams_have_the_priority_of_their_most_urgent_operator(shift):
    """-3 and -2 are the most urgent of two streams: -1 and 0, as CUDA refuses numbers above 0."""
    priorities = [shift - 1, shift - 3, shift - 2]
    recorded = Recorded(in_order(CHAIN, stream=[0, 0, 1], priority=priorities).lower(A100))
    assert [stream.priority for stream in recorded.api.cuda._streams.values()][:2] == [-1, 0]


def test_a_barrier_waits_for_the_device_and_not_for_other_threads():
    """Stages on two devices: while one is waited for, the other's thread goes on issuing."""
    graph = OpGraph([Operator(name, time=1.0) for name in "abcd"], [])
    plan = in_order(
        graph, [0, 0, 0, 1], stream=[0, 1, 0, 0], stage=[0, 0, 1, 0], group=[0, 1, 0, 0], execution="stages"
    )
    recorded = Recorded(plan.lower(TWO))
    issued, usual = [], recorded.api.work

    def work(action):
        issued.append(recorded.host.at)
        usual(action)

    recorded.api.work = work
    recorded.host.run()
    assert issued == ["a", "b", "d", "c"]
    assert recorded.done.index(2) > max(recorded.done.index(0), recorded.done.index(1))


def test_events_around_operators_give_their_spans():
    """10 us each."""
    program = in_order(CHAIN).lower(A100)
    host = Recorded(program, timed=True).host
    host.run()
    operators, copies = host.spans()
    assert (operators[:, 1] - operators[:, 0]).tolist() == [10.0] * 3
    assert operators[0, 0] < operators[1, 0] < operators[2, 0]
    assert copies.shape == (0, 2)
    assert issue_order(program) == ["a", "b", "c"]


def test_one_core_runs_what_is_issued_at_once():
    program, ran = in_order(CHAIN, [0, 1, 0]).lower(TWO), []
    made = CpuHost(program, ran.append, lambda row: ran.append(f"copy {row}"))
    total = made.run()
    assert ran == [0, "copy 0", 1, "copy 1", 2]
    assert 0 <= made.operators.min() <= made.operators.max() <= total
    assert (made.copies[:, 1] >= made.copies[:, 0]).all()
