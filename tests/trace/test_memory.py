"""Peak memory, counted by hand."""

from dataclasses import replace

import numpy as np
import pytest

from simsched.model import Cluster, Edge, Operator, OpGraph, Placement, Schedule
from simsched.model.graph.names import Numbered
from simsched.model.program import Copies, Program
from simsched.model.trace.timeline import COPY, KERNEL, Load
from simsched.model.trace.trace import Trace
from simsched.simulator import simulate
from workloads import load

IDLE = Load(*np.zeros((5, 0)))


def kernel(op, start, end, device=0, stream=0):
    return (KERNEL, op, op, device, stream, start, end, start, end - start, -1)


def copy(row, op, start, end, device=0, stream=9):
    return (COPY, row, op, device, stream, start, end, start, end - start, -1)


def made(graph, rows, *devices):
    """A trace of hand-made spans; `devices` says where the operators are, by default all on gpu0."""
    cluster = Cluster.preset("a40", n_gpus=2)
    where = devices or ["gpu0"] * len(graph)
    plan = Schedule(graph, [Placement(name, device) for name, device in zip(graph.names, where, strict=True)])
    return Trace(plan.lower(cluster), cluster, rows, [IDLE, IDLE])


def ops(*names, weight=0.0):
    return [Operator(name, time=1.0, weight_nbytes=weight) for name in names]


def sized(name, n):
    """An operator whose output has n bytes."""
    return Operator(name, time=1.0, output_shape=(n,), dtype="int8")


def test_chain():
    """a (100 bytes) lives over [0, 5], b (30) over [2, 9], c (7, the graph's output) over [5, 9]: 130 from 2 to 5."""
    graph = OpGraph([sized("a", 100), sized("b", 30), sized("c", 7)], [Edge("a", "b"), Edge("b", "c")])
    assert made(graph, [kernel(0, 0, 2), kernel(1, 2, 5), kernel(2, 5, 9)]).peak_memory() == {
        "gpu0": 130.0,
        "gpu1": 0.0,
    }


def test_what_ends_makes_room_for_what_starts():
    """b's input a (100) is free at 5, when c (90) starts: never 100 + 30 + 90, but 130 and then 120."""
    graph = OpGraph([sized("a", 100), sized("b", 30), sized("c", 90)], [Edge("a", "b"), Edge("b", "c")])
    assert made(graph, [kernel(0, 0, 2), kernel(1, 2, 5), kernel(2, 5, 9)]).peak_memory()["gpu0"] == 130.0


def test_fork_holds_its_input_to_the_last_reader():
    """a (100) is read by b until 4 and by c until 8. b (10) and c (20) are outputs and stay: 130 from 4 to 8."""
    graph = OpGraph([sized("a", 100), sized("b", 10), sized("c", 20)], [Edge("a", "b"), Edge("a", "c")])
    assert made(graph, [kernel(0, 0, 2), kernel(1, 2, 4), kernel(2, 4, 8)]).peak_memory()["gpu0"] == 130.0


def test_sizes_from_edges():
    """Without a shape the largest edge counts, once for all readers: a has 40 bytes, b and c none."""
    graph = OpGraph(ops("a", "b", "c"), [Edge("a", "b", nbytes=40.0), Edge("a", "c", nbytes=15.0)])
    assert made(graph, [kernel(0, 0, 2), kernel(1, 2, 4), kernel(2, 4, 8)]).peak_memory()["gpu0"] == 40.0


def test_weights_stay():
    """Two operators of 1,000 bytes of weights on gpu0 and one on gpu1, all the time, beside a's 40 bytes."""
    graph = OpGraph(ops("a", "b", "c", weight=1000.0), [Edge("a", "b", nbytes=40.0)])
    rows = [kernel(0, 0, 2), kernel(1, 2, 4), kernel(2, 0, 1, device=1)]
    assert made(graph, rows, "gpu0", "gpu0", "gpu1").peak_memory() == {"gpu0": 2040.0, "gpu1": 1000.0}


def test_copy_holds_source_and_destination():
    """a (100) lives on gpu0 until its copy ends at 6, and from 3, when the copy starts, on gpu1 until b ends at 9.

    x (30) starts on gpu0 at 5 and is an output: 130 there. b (8) starts on gpu1 at 6: 108 there.
    """
    graph = OpGraph([sized("a", 100), sized("b", 8), sized("x", 30)], [Edge("a", "b", nbytes=100.0)])
    rows = [kernel(0, 0, 3), copy(0, 0, 3, 6), kernel(1, 6, 9, device=1), kernel(2, 5, 8)]
    assert made(graph, rows, "gpu0", "gpu1", "gpu0").peak_memory() == {"gpu0": 130.0, "gpu1": 108.0}


def test_kernels_of_one_operator_hold_one_output():
    """b (20) has kernels over [2, 3] and [6, 8]: a (100) stays until 8 although b's first kernel ended at 3."""
    graph = OpGraph([sized("a", 100), sized("b", 20)], [Edge("a", "b")])
    rows = [kernel(0, 0, 2), kernel(1, 2, 3), kernel(1, 6, 8)]
    assert made(graph, rows).peak_memory()["gpu0"] == 120.0


def test_what_takes_no_time_adds_nothing_that_nobody_reads_later():
    """b starts and ends at 2, as c does, which reads it: a (100) and c (5, the output) never meet b (50)."""
    graph = OpGraph([sized("a", 100), sized("b", 50), sized("c", 5)], [Edge("a", "b"), Edge("b", "c")])
    assert made(graph, [kernel(0, 0, 2), kernel(1, 2, 2), kernel(2, 2, 2)]).peak_memory()["gpu0"] == 100.0


def test_many_operators_on_many_devices():
    """More than 2^31 pairs of them. x (100) is on gpu7 until z has read it at 9, and 0 (50) joins it at 8: 150."""
    n, devices = 600_000, [f"gpu{i}" for i in range(4096)]
    x, y, z = n - 3, n - 2, n - 1
    graph = OpGraph.from_columns(Numbered("op", n), [x, x, 0], [y, z, 1], edge_nbytes=[100.0, 100.0, 50.0], time=1.0)
    copies = Copies(np.array([x]), np.array([7]), np.array([100.0]), np.array([np.nan]))
    program = Program(graph, devices, "events", [0], [], [], [], [], copies, 0)
    rows = [
        kernel(x, 0, 1),
        copy(0, x, 1, 2),
        *(kernel(op, *when, device=7) for op, *when in ((y, 2, 3), (z, 3, 9), (0, 8, 9))),
    ]
    peak = Trace(program, Cluster.preset("a40"), rows, [IDLE]).peak_memory()
    assert {name: nbytes for name, nbytes in peak.items() if nbytes} == {"gpu0": 100.0, "gpu7": 150.0}


def test_what_just_fits_gives_no_warning():
    cluster = Cluster.preset("a40")
    cluster = replace(cluster, devices=(replace(cluster.devices[0], memory=1000.0),))
    graph = OpGraph([Operator("a", time=1.0, weight_nbytes=1000.0)])
    trace = simulate(Schedule(graph, [Placement("a")]), cluster)
    assert trace.peak_memory() == {"gpu0": 1000.0}
    assert trace.memory_warnings() == []


def swept(trace):
    """Peak by definition: at the start of every span, add up what is alive then."""
    graph, makespan = trace.graph, trace.makespan
    times = trace.operator_times()
    device = {span.op: span.device for span in trace.spans if span.kind == "kernel"}
    copies = [(i, trace.graph.names[trace.op[i]]) for i in np.flatnonzero(trace.kind == COPY).tolist()]
    alive = []  # (device, from, to, bytes)
    for i, name in enumerate(graph.names):
        readers = [edge.dst for edge in graph.edges if edge.src == name]
        ends = [times[r][1] for r in readers if device[r] == device[name]] + [
            trace.end[c] for c, op in copies if op == name
        ]
        gone = max([times[name][1], *ends]) if readers else makespan
        alive.append((device[name], times[name][0], gone, graph.output_nbytes[i]))
    for c, op in copies:
        row = trace.item[c]
        to = trace.program.devices[trace.program.copies.device[row]]
        ends = [times[edge.dst][1] for edge in graph.edges if edge.src == op and device[edge.dst] == to]
        alive.append((to, trace.start[c], max([trace.end[c], *ends]), trace.program.copies.nbytes[row]))
    weights = {
        name: sum(op.weight_nbytes for op in graph.operators if device[op.name] == name)
        for name in trace.program.devices
    }
    return {
        name: weights[name]
        + max((sum(n for d, a, b, n in alive if d == name and a <= t < b) for t in trace.start), default=0.0)
        for name in trace.program.devices
    }


@pytest.mark.parametrize("n_gpus", [1, 2, 3])
def test_agrees_with_the_definition(n_gpus):
    """Inception v3 dealt out over devices and streams in turn, against a count at every start."""
    graph = load("inception_v3")
    rows = [Placement(name, f"gpu{i % n_gpus}", i // n_gpus % 2) for i, name in enumerate(graph.order)]
    trace = simulate(Schedule(graph, rows), Cluster.preset("a40", n_gpus=n_gpus))
    assert trace.peak_memory() == swept(trace)
