"""Lowering one candidate after the other, and what holds for programs of any size."""

from itertools import product

import numpy as np
import pytest
from program_order import broken

from simsched.base.errors import ScheduleError
from simsched.model import Cluster, Edge, Kernel, Operator, OpGraph, Schedule
from simsched.model.lowering import OPTIONS, Lowering
from simsched.model.lowering.native import VectorClock
from simsched.model.program import COPY, LAUNCH, SYNC, WAIT

QUAD = Cluster.preset("a100", 4)
DEVICES = tuple(device.name for device in QUAD.devices)
CHOICES = [dict(zip(OPTIONS, values, strict=True)) for values in product(*OPTIONS.values())]


def drawn_graph(rng, n, edges, exact=0.3):
    """Operators of no to three kernels, given in topological order; some edges are parallel, equal or of exact time."""
    rows = [
        Operator(f"o{i}", time=1.0, kernels=(Kernel(1, share=1 / k),) * k)
        if (k := int(rng.integers(0, 4)))
        else Operator(f"o{i}", time=1.0)
        for i in range(n)
    ]
    pairs = np.sort(rng.integers(0, n, (edges, 2)), axis=1)
    edges = [
        Edge(f"o{i}", f"o{j}", float(rng.choice([0, 8, 16])), 2.0 if rng.random() < exact else None)
        for i, j in pairs.tolist()
        if i != j
    ]
    return OpGraph(rows, edges)


def drawn(rng, n, execution="events", streams=3, devices=4):
    """Columns of a candidate: topological, and, in stages, of one operator each on its device."""
    device = rng.integers(0, devices, n)
    stage = np.zeros(n, int)
    if execution == "stages":
        stage[:] = np.arange(n)
    return np.arange(n), device, rng.integers(0, streams, n), stage, rng.integers(-1, 2, n)


def scheduled(graph, columns, execution):
    op, device, stream, stage, priority = columns
    return Schedule.from_columns(
        graph, op, DEVICES, device=device, stream=stream, stage=stage, priority=priority, execution=execution
    )


def same(a, b):
    columns = ("thread_ptr", "action", "device", "stream", "argument", "n_events", "priority")
    assert all(np.array_equal(getattr(a, name), getattr(b, name)) for name in columns)
    for name in ("op", "device", "nbytes", "transfer"):
        np.testing.assert_array_equal(getattr(a.copies, name), getattr(b.copies, name))


# Candidates --------------------------------------------------------------------------------------


@pytest.mark.parametrize("execution", ["events", "stages", "graph"])
@pytest.mark.parametrize("options", CHOICES, ids=lambda options: "-".join(options.values()))
def test_candidates_in_turn(execution, options):
    """One `Lowering` for all: each program is that of a schedule, keeps every edge, and stays as it is."""
    if execution == "graph" and options["transfers"] == "blocking":
        return
    rng = np.random.default_rng(0)
    graph = drawn_graph(rng, 40, 90)
    many = Lowering(graph, QUAD, execution, **options)
    earlier = []
    for _ in range(3):
        columns = drawn(rng, 40, execution, streams=int(rng.integers(1, 6)), devices=int(rng.integers(1, 5)))
        program = many.program(*columns).check()
        same(program, scheduled(graph, columns, execution).lower(QUAD, **options))
        assert broken(program) == []
        earlier.append((program, columns))
    for program, columns in earlier:
        same(program, scheduled(graph, columns, execution).lower(QUAD, **options))


@pytest.mark.parametrize("transfers", ["async", "blocking"])
def test_a_literal_program_has_a_wait_for_each_edge(transfers):
    """One per producer on another stream of the device, and for each copy of an edge to another device."""
    rng = np.random.default_rng(2)
    graph = drawn_graph(rng, 60, 150)
    columns = drawn(rng, 60)
    device, stream = columns[1], columns[2]
    program = Lowering(graph, QUAD, transfers=transfers, events="literal").program(*columns)
    u, v = graph.src, graph.dst
    across = int((device[u] != device[v]).sum())
    beside = (device[u] == device[v]) & (stream[u] != stream[v])
    waits = len(set(zip(u[beside].tolist(), v[beside].tolist(), strict=True)))
    count = np.bincount(program.action, minlength=6)
    senders = len(np.unique(u[device[u] != device[v]]))
    assert (count[COPY], len(program.copies.op)) == (across, across)
    if transfers == "async":
        assert (count[WAIT], count[SYNC]) == (waits + 2 * across, 0)
    else:
        assert (count[WAIT], count[SYNC]) == (waits, across + senders)


def test_streams_of_large_numbers():
    """The same instructions as with small ones, on other streams; copies go behind the largest."""
    rng = np.random.default_rng(3)
    graph = drawn_graph(rng, 50, 100)
    op, device, stream, _, _ = drawn(rng, 50)
    many = Lowering(graph, QUAD)
    small, large = many.program(op, device, stream), many.program(op, device, stream * 10**9)
    for name in ("thread_ptr", "action", "device", "argument"):
        assert np.array_equal(getattr(small, name), getattr(large, name))
    launch = small.action == LAUNCH
    assert np.array_equal(small.stream[launch].astype(np.int64) * 10**9, large.stream[launch])
    with pytest.raises(ScheduleError, match=r"beyond 2\^31"):
        many.program(op, device, stream + 2**31 - 3)


def test_clocks_that_need_room():
    """With next to no room for the clocks at first: dropped where nobody asks for them, more where they are needed."""
    rng = np.random.default_rng(4)
    graph = drawn_graph(rng, 80, 300)
    columns = drawn(rng, 80, streams=12, devices=2)
    many, tight = Lowering(graph, QUAD), Lowering(graph, QUAD)
    tight._table["clocks"], tight._table.room = np.empty(3, VectorClock.dtype), 3
    same(tight.program(*columns), many.program(*columns))
    assert 3 < len(tight._table["clocks"]) < 80 * 12


def test_many_edges_of_an_operator():
    """One output that 3000 operators on other devices read, and one operator that reads from all of them."""
    n = 3002
    middle = np.arange(1, n - 1)
    src, dst = np.r_[np.zeros(n - 2, int), middle], np.r_[middle, np.full(n - 2, n - 1)]
    sizes = np.r_[middle[::-1] % 7, np.zeros(n - 2)]
    graph = OpGraph.from_columns([f"o{i}" for i in range(n)], src, dst, edge_nbytes=sizes)
    device = np.r_[0, 1 + middle % 3, 0]
    program = Lowering(graph, QUAD).program(np.arange(n), device, 0).check()
    sent = program.copies.op == 0
    pairs = list(zip(program.copies.device[sent].tolist(), program.copies.nbytes[sent].tolist(), strict=True))
    assert pairs == sorted(pairs)
    assert (sent.sum(), len(sent)) == (21, 21 + n - 2)
    waits = (program.action == WAIT) & (program.device == 0) & (program.stream == 0)
    assert waits.sum() == 3  # of each device the last copy


def test_copies_take_turns_where_their_time_is_exact():
    """Ten outputs of a stream to one device: eight streams with exact times, one without, two that follow them."""
    names = [f"o{i}" for i in range(11)]
    for exact, streams in ((np.nan, 1), (1.0, 8)):
        graph = OpGraph.from_columns(names, np.arange(10), np.full(10, 10), edge_transfer=exact)
        program = Lowering(graph, QUAD).program(np.arange(11), np.r_[np.zeros(10, int), 1], 0)
        assert program.stream[program.action == COPY].tolist() == [1 + k % streams for k in range(10)]


# Columns -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "columns",
    [([0, 0], 0, 0), ([0, 2], 0, 0), ([0, -1], 0, 0), ([0, 1], [0, 4], 0), ([0, 1], [0, -1], 0), ([0, 1], 0, [0, -1])],
    ids=["twice", "no-operator", "operator-below-0", "no-device", "device-below-0", "stream-below-0"],
)
def test_rows_that_place_nothing(columns):
    """Not the proof that a schedule can run, but enough for none to write where it must not."""
    many = Lowering(OpGraph.from_columns(["a", "b"], [0], [1]), QUAD)
    with pytest.raises(ScheduleError, match="row 1 of a candidate places operator"):
        many.program(*columns)
    assert len(many.program([0, 1], 0, 0)) == 2
