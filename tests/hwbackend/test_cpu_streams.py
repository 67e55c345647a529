"""Streams and captured graphs of the cpu backend, without threads: what may run next."""

import numpy as np
from cpu_programs import program
from hypothesis import given
from hypothesis import strategies as st

import workloads
from hwbackend.cpu_streams import Captured, Streams, capture
from simsched.calibration.training import random_schedule
from simsched.model.cluster import Cluster
from simsched.model.program import COPY, LAUNCH


def test_a_diamond_as_a_graph():
    """a -> (b, c) -> d on two streams: a is the root, d follows two, c and b become ready together."""
    rows = [
        ("launch", 0, 0), ("record", 0, 0), ("launch", 0, 1), ("wait", 1, 0), ("launch", 1, 2), ("record", 1, 1),
        ("wait", 0, 1), ("launch", 0, 3),
    ]  # fmt: skip
    graph = capture(program({"a": 1, "b": 1, "c": 1, "d": 1}, [rows], execution="graph", n_events=2))
    assert graph.roots == [0]
    assert [graph.counts[i] for i in (0, 2, 4, 7)] == [0, 1, 1, 2]
    run = Captured(graph)
    assert run.over(0) == [2, 4]
    assert run.over(4) == []
    assert run.over(2) == [7]


def test_what_a_stream_waited_for_goes_on_to_those_behind():
    """Stream 1 waits for a and launches nothing; stream 2 waits for an event recorded on it: that is after a too."""
    rows = [("launch", 0, 0), ("record", 0, 0), ("wait", 1, 0), ("record", 1, 1), ("wait", 2, 1), ("launch", 2, 1)]
    prog = program({"a": 1, "b": 1}, [rows], execution="graph", n_events=2)
    assert capture(prog).successors[0] == [5]
    streams = Streams(prog)
    assert [streams.issue(i) for i in range(6)] == [[0], [], [], [], [], []]
    assert streams.over(0) == [5]


def test_a_record_on_an_idle_stream_is_reached_at_once():
    rows = [("record", 0, 0), ("wait", 1, 0), ("launch", 1, 0)]
    streams = Streams(program({"a": 1}, [rows], n_events=1))
    assert [streams.issue(i) for i in range(3)] == [[], [], [2]]
    assert streams.heads == [(0, 1, 2)]
    assert streams.over(2) == []
    assert streams.heads == []


def test_a_barrier_counts_what_has_been_issued():
    """It holds the host while a, or b behind it, is not over; that of a device without kernels holds nobody."""
    rows = [("launch", 0, 0), ("launch", 0, 1), ("barrier", -1, -1), ("barrier", -1, -1, 1)]
    streams = Streams(program({"a": 1, "b": 1}, [rows], devices=("gpu0", "gpu1")))
    assert not streams.holds(2)
    streams.issue(0)
    streams.issue(1)
    assert streams.holds(2)
    assert not streams.holds(3)
    assert streams.over(0) == [1]
    assert streams.holds(2)
    streams.over(1)
    assert not streams.holds(2)


@given(seed=st.integers(0, 10_000), n_devices=st.integers(1, 3), captured=st.booleans())
def test_everything_runs_once_and_after_what_it_reads(seed, n_devices, captured):
    """Whatever ends first, and however far hosts have come: what an operator reads is on its device as it starts."""
    rng = np.random.default_rng(seed)
    graph = workloads.random_layered(n_ops=int(rng.integers(4, 25)), n_layers=4, rng=rng)
    cluster = Cluster.preset("a100", n_gpus=n_devices)
    plan = random_schedule(graph, cluster, rng=rng, execution="graph" if captured else "events")
    prog = plan.lower(cluster)
    order = Captured(capture(prog)) if captured else Streams(prog)
    ready = list(capture(prog).roots) if captured else []
    at, ends = prog.thread_ptr[:-1].tolist(), prog.thread_ptr[1:].tolist()
    there, ran = set(), []
    while True:
        hosts = [] if captured else [t for t, i in enumerate(at) if i < ends[t] and not order.holds(i)]
        if not ready and not hosts:
            break
        if hosts and (not ready or rng.random() < 0.7):
            t = hosts[rng.integers(len(hosts))]
            ready += order.issue(at[t])
            at[t] += 1
            continue
        i = ready.pop(int(rng.integers(len(ready))))
        ran.append(i)
        row, device = int(prog.argument[i]), int(prog.device[i])
        if prog.action[i] == LAUNCH:
            op = int(prog.launch_op[row])
            assert all((int(src), device) in there for src in graph.src[graph.dst == op])
        else:
            op, device = int(prog.copies.op[row]), int(prog.copies.device[row])
            assert (op, int(prog.device[i])) in there
        there.add((op, device))
        ready += order.over(i)
    assert sorted(ran) == np.flatnonzero((prog.action == LAUNCH) | (prog.action == COPY)).tolist()
