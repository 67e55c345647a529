"""The proof that events and barriers order what is read, and how a program is walked."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shortened import program_of, without

import simsched as ss
import workloads
from hwbackend.torch_program import devices_of, feeds_of, n_copied
from simsched.base.errors import BackendError
from simsched.calibration.training import random_schedule
from simsched.model import BARRIER, COPY, LAUNCH, RECORD, SYNC, WAIT, Edge, Operator, OpGraph

OPERATORS = Operator("a", time=1.0), Operator("b", time=1.0)
program = partial(program_of, OpGraph(OPERATORS, [Edge("a", "b", 64.0)]))


@given(
    seed=st.integers(0, 10_000), execution=st.sampled_from(["events", "graph", "stages"]), n=st.integers(1, 3),
    events=st.sampled_from(["minimal", "literal"]), transfers=st.sampled_from(["async", "blocking"]),
)  # fmt: skip
def test_what_schedules_are_lowered_to_is_ordered(seed, execution, n, events, transfers):
    """Every edge is fed once, by a copy where the ends are on two devices."""
    graph = workloads.random_layered(n_ops=16, n_layers=4, rng=seed)
    cluster = ss.Cluster.preset("a100", n)
    plan = random_schedule(graph, cluster, rng=seed, execution=execution)
    found = plan.lower(cluster, events=events, transfers="async" if execution == "graph" else transfers)
    device = devices_of(found)
    feeds = feeds_of(found)
    assert [sorted(feed.producer for feed in row) for row in feeds] == [
        sorted(graph.src[graph.dst == i].tolist()) for i in range(len(graph))
    ]
    for i, row in enumerate(feeds):
        for feed in row:
            assert (feed.copy >= 0) == (device[feed.producer] != device[i])
            if feed.copy >= 0:
                assert found.copies.op[feed.copy] == feed.producer
                assert found.copies.device[feed.copy] == device[i]


@given(seed=st.integers(0, 10_000), data=st.data())
def test_without_a_wait_that_counts_it_is_not(seed, data):
    """Of a minimal program for one device no wait is implied by the others: each one that is dropped is missed."""
    graph = workloads.random_layered(n_ops=12, n_layers=4, rng=seed)
    cluster = ss.Cluster.preset("a100")
    found = random_schedule(graph, cluster, rng=seed, execution="events").lower(cluster)
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
    if ordered:
        feeds_of(program(rows))
        return
    with pytest.raises(
        BackendError, match="'b' may run before what it reads of 'a' is there: the program lacks a wait"
    ):
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
    plan = ss.Schedule(graph, [ss.Placement("a"), ss.Placement("b", "gpu1")])
    found = plan.lower(ss.Cluster.preset("a100", 2), events="literal")
    wide, narrow = feeds_of(found)[1]
    assert [n_copied(found, feed.copy) for feed in (wide, narrow)] == [16, 4]


def test_threads_that_wait_for_ever_are_named():
    with pytest.raises(BackendError, match="host thread 1 waits for event 0, which is never recorded"):
        feeds_of(program([A], [(WAIT, 1, 0, 0), (LAUNCH, 1, 0, 1)], copies=[]))
