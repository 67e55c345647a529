"""Peak memory, counted by hand."""

import numpy as np
import pytest
from hand_spans import IDLE, copy, dealt, kernel, made, simulated
from small import edges

from simsched.model import Cluster, Operator, OpGraph
from simsched.model.graph import Numbered
from simsched.model.program import Copies, Program
from simsched.model.trace.timeline import COPY
from simsched.model.trace.trace import Trace


def outputs(text):
    """Operators of "a=100 b=30": outputs of so many bytes."""
    pairs = (word.split("=") for word in text.split())
    return [Operator(name, time=1.0, output_shape=(int(n),), dtype="int8") for name, n in pairs]


def weights(names, nbytes=0.0):
    return [Operator(name, time=1.0, weight_nbytes=nbytes) for name in names]


CASES = {
    # a (100 bytes) lives over [0, 5], b (30) over [2, 9], c (7, the graph's output) over [5, 9]: 130 from 2 to 5.
    "a chain": (outputs("a=100 b=30 c=7"), "ab bc", [kernel(0, 0, 2), kernel(1, 2, 5), kernel(2, 5, 9)], 130, 0),
    # b's input a (100) is free at 5, when c (90) starts: never 100 + 30 + 90, but 130 and then 120.
    "what ends makes room for what starts": (
        outputs("a=100 b=30 c=90"),
        "ab bc",
        [kernel(0, 0, 2), kernel(1, 2, 5), kernel(2, 5, 9)],
        130,
        0,
    ),
    # a (100) is read by b until 4 and by c until 8. b (10) and c (20) are outputs and stay: 130 from 4 to 8.
    "a fork holds its input to the last reader": (
        outputs("a=100 b=10 c=20"),
        "ab ac",
        [kernel(0, 0, 2), kernel(1, 2, 4), kernel(2, 4, 8)],
        130,
        0,
    ),
    # Without a shape the largest edge counts, once for all readers: a has 40 bytes, b and c none.
    "sizes from edges": (weights("abc"), "ab=40 ac=15", [kernel(0, 0, 2), kernel(1, 2, 4), kernel(2, 4, 8)], 40, 0),
    # Two operators of 1,000 bytes of weights on gpu0 and one on gpu1, all the time, beside a's 40 bytes.
    "weights stay": (
        weights("abc", 1000.0),
        "ab=40",
        [kernel(0, 0, 2), kernel(1, 2, 4), kernel(2, 0, 1, device=1)],
        2040,
        1000,
        "a b c@1",
    ),
    # a (100) lives on gpu0 until its copy ends at 6, and from 3, when the copy starts, on gpu1 until b ends at 9.
    # x (30) starts on gpu0 at 5 and is an output: 130 there. b (8) starts on gpu1 at 6: 108 there.
    "a copy holds source and destination": (
        outputs("a=100 b=8 x=30"),
        "ab=100",
        [kernel(0, 0, 3), copy(0, 0, 3, 6), kernel(1, 6, 9, device=1), kernel(2, 5, 8)],
        130,
        108,
        "a b@1 x",
    ),
    # b (20) has kernels over [2, 3] and [6, 8]: a (100) stays until 8 although b's first kernel ended at 3.
    "kernels of one operator hold one output": (
        outputs("a=100 b=20"),
        "ab",
        [kernel(0, 0, 2), kernel(1, 2, 3), kernel(1, 6, 8)],
        120,
        0,
    ),
    # b starts and ends at 2, as c does, which reads it: a (100) and c (5, the output) never meet b (50).
    "what takes no time": (
        outputs("a=100 b=50 c=5"),
        "ab bc",
        [kernel(0, 0, 2), kernel(1, 2, 2), kernel(2, 2, 2)],
        100,
        0,
    ),
}
"""Operators, edges, spans, the peaks of gpu0 and gpu1, and where the operators are."""


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_by_hand(case):
    operators, pairs, rows, first, second, *places = case
    peak = made(OpGraph(operators, edges(pairs)), rows, *places).peak_memory()
    assert peak == {"gpu0": first, "gpu1": second}


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
    cluster = Cluster.preset("a40").replace_devices(memory=1000.0)
    trace = simulated(OpGraph(weights("a", 1000.0)), "a", cluster)
    assert trace.peak_memory() == {"gpu0": 1000.0}
    assert trace.memory_warnings() == []


def swept(trace):
    """Peak by definition: at the start of every span, add up what is alive then."""
    graph, devices, copied = trace.graph, trace.program.devices, trace.program.copies
    times, device = trace.operator_times(), {span.op: span.device for span in trace.spans if span.kind == "kernel"}
    alive = []  # (device, from, to, bytes)
    for i, op in enumerate(graph.operators):
        readers = [edge.dst for edge in graph.edges if edge.src == op.name]

        def last(where, readers=readers):
            return max((times[name][1] for name in readers if device[name] == where), default=0.0)

        copies = np.flatnonzero((trace.kind == COPY) & (trace.op == i))
        start, end = times[op.name]
        gone = max([end, last(device[op.name]), *trace.end[copies]]) if readers else trace.makespan
        alive += [
            (device[op.name], start, gone, graph.output_nbytes[i]),
            (device[op.name], 0, np.inf, op.weight_nbytes),
        ]
        for c in copies:
            to = devices[copied.device[trace.item[c]]]
            alive.append((to, trace.start[c], max(trace.end[c], last(to)), copied.nbytes[trace.item[c]]))
    return {d: max(sum(n for on, a, b, n in alive if on == d and a <= t < b) for t in trace.start) for d in devices}


@pytest.mark.parametrize("n_gpus", [1, 2, 3])
def test_agrees_with_the_definition(n_gpus):
    """Against a count at every start."""
    trace = dealt(n_gpus)
    assert trace.peak_memory() == swept(trace)
