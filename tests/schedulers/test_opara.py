"""Opara: streams and launch order by hand, against the procedure written down again, and the counts of networks."""

from functools import partial
from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from small import by_stream, made, numbered, traced
from strategies import clusters, graphs

import workloads
from simsched.base.errors import ClusterError, SchedulerError
from simsched.model import RECORD, WAIT, Cluster, Edge, Kernel, Operator, OpGraph
from simsched.schedulers import schedule
from simsched.schedulers.opara import opara

ONE = Cluster.preset("a100")
forked = partial(numbered, utilization=0.5)
PAPERS_EXAMPLE = "1-2 1-3 1-4 2-5 3-6 5-7 6-8 4-8 7-9 7-10 8-11 8-12 9-13 10-13 11-13 12-13"


def launched(plan):
    return " ".join(row.op for row in plan.placements)


def kernel(**fields):
    return (Kernel(**({"blocks": 100, "threads": 128, "registers": 16} | fields)),)


# Streams -----------------------------------------------------------------------------------------


def test_the_thirteen_operators_of_the_paper():
    """Exactly its five streams. 8 lists 6 before 4, and 13 lists 9 first.

    1; 2 goes on from 1, so 3 and 4 open streams; 5 from 2, 6 from 3, 7 from 5; 8 from 6; 9 from 7, so 10 opens one;
    11 from 8, so 12 opens one; 13 from 9. Waits: for 3 and 4 of 1, 8 of 4, 10 of 7, 12 of 8, and 13 of 10, 11, 12.
    """
    plan = schedule(forked(PAPERS_EXAMPLE, 13), ONE, opara, order="graph")
    assert by_stream(plan) == ["1 2 5 7 9 13", "3 6 8 11", "4", "10", "12"]
    assert (plan.execution, plan.events) == ("graph", "literal")
    assert plan.search["waits"] == np.count_nonzero(plan.lower(ONE).action == WAIT) == 8
    assert plan.estimate == 60.0
    assert by_stream(schedule(forked(PAPERS_EXAMPLE, 13), ONE, opara, mode="impl", order="graph")) == by_stream(plan)
    by_need = by_stream(schedule(forked(PAPERS_EXAMPLE, 13), ONE, opara))
    assert sorted(len(row.split()) for row in by_need) == [1, 1, 1, 4, 6]


def test_the_order_of_arguments_counts():
    """With 4 before 6, 8 goes on from 4."""
    graph = forked(PAPERS_EXAMPLE.replace("6-8 4-8", "4-8 6-8"), 13)
    plan = schedule(graph, ONE, opara, order="graph")
    assert by_stream(plan) == ["1 2 5 7 9 13", "3 6", "4 8 11", "10", "12"]


def test_streams_follow_the_launch_order_only_in_released_code():
    """1 -> 2 and 1 -> 3, where 3 needs less and so is launched first: it goes on from 1 in the released code."""
    rows = [Operator(str(i), time=10.0, kernels=kernel(shared_memory=s)) for i, s in ((1, 0), (2, 4096), (3, 1024))]
    graph = made(rows, "12 13")
    paper = schedule(graph, ONE, opara, metric="shared_memory")
    released = schedule(graph, ONE, opara, mode="impl", metric="shared_memory")
    assert launched(paper) == launched(released) == "1 3 2"
    assert by_stream(paper) == ["1 2", "3"]
    assert by_stream(released) == ["1 3", "2"]


@pytest.mark.parametrize(
    ("network", "operators", "streams", "waits"),
    [
        ("googlenet", 199, 28, 54),
        ("inception_v3", 316, 36, 70),
        ("resnet50", 177, 5, 8),
        ("squeezenet1_1", 68, 9, 16),
        ("densenet121", 433, 1, 0),
    ],
)
def test_counts_of_networks(network, operators, streams, waits):
    """As the released code counts torchvision's networks, traced by single operators; 36 is more than PyTorch has."""
    graph = traced(workloads.load(network, granularity="operator"))
    for mode, allocation in product(("paper", "impl"), ("journal", "conference")):
        plan = schedule(graph, ONE, opara, allocation=allocation, mode=mode)
        assert (len(plan), plan.n_streams, plan.search["waits"]) == (operators, streams, waits)
        assert np.count_nonzero(plan.lower(ONE).action == WAIT) == waits
        pooled = schedule(graph, ONE, opara, allocation=allocation, mode=mode, max_streams=32)
        assert (pooled.search["logical_streams"], pooled.n_streams) == (streams, min(streams, 32))


def streams_by_rule(graph, order, allocation):
    """The stream of each operator by name, as printed: unique producers in argument order, users in graph order."""
    inputs = {name: list(dict.fromkeys(e.src for e in graph.edges if e.dst == name)) for name in graph.names}
    users = {name: [v for v in graph.names if name in inputs[v]] for name in graph.names}
    stream, taken = {}, dict.fromkeys(graph.names, False)
    for v in order:
        for p in inputs[v]:
            if users[p][0] == v if allocation == "conference" else not taken[p]:
                stream[v], taken[p] = stream[p], True
                break
        else:
            stream[v] = len(set(stream.values()))
    return stream


@settings(deadline=None, max_examples=40)
@given(
    graph=graphs(max_ops=9),
    cluster=clusters(max_gpus=2),
    allocation=st.sampled_from(["journal", "conference"]),
    mode=st.sampled_from(["paper", "impl"]),
)
def test_streams_and_waits_are_those_of_the_procedure(graph, cluster, allocation, mode):
    """A wait for each pair of a consumer and a producer on two streams, a record for each such producer."""
    assume(workable(graph))
    plan = schedule(graph, cluster, opara, allocation=allocation, mode=mode)
    at = {row.op: row.stream for row in plan.placements}
    order = graph.order if mode == "paper" else [row.op for row in plan.placements]
    assert at == streams_by_rule(graph, order, allocation)
    crossing = {(edge.src, edge.dst) for edge in graph.edges if at[edge.src] != at[edge.dst]}
    actions = plan.lower(cluster).action
    assert plan.search["waits"] == np.count_nonzero(actions == WAIT) == len(crossing)
    assert np.count_nonzero(actions == RECORD) == len({src for src, _ in crossing})
    assert plan.search["logical_streams"] == plan.search["streams"] == plan.n_streams
    assert plan.devices_used == ("gpu0",)


def workable(graph):
    """Whether an operator has what the default metric reads."""
    return any(op.kernels or op.utilization for op in graph.operators)


# Launch order ------------------------------------------------------------------------------------


def mixed():
    """Five operators without edges: c1, c2 compute, m1, m2, m3 move; what they need in parts of 48 KiB."""
    needs = {"c1": 2, "m1": 3, "m2": 1, "c2": 1, "m3": 2}
    return [
        Operator(name, kind="conv" if name[0] == "c" else "relu", time=10.0, kernels=kernel(shared_memory=k * 1024))
        for name, k in needs.items()
    ]


def test_compute_and_memory_in_turn():
    """Least first, compute first: c2 (1), m2 (1), c1 (2), m3 (2), and m1 is what is left."""
    plan = schedule(OpGraph(mixed()), ONE, opara, metric="shared_memory")
    assert launched(plan) == "c2 m2 c1 m3 m1"
    assert dict(plan.search) == {
        "metric": "shared_memory", "memory_intensive": 3, "logical_streams": 5, "streams": 5, "waits": 0,
    }  # fmt: skip
    assert launched(schedule(OpGraph(mixed()), ONE, opara, metric="shared_memory", classes="none")) == "m2 c2 c1 m3 m1"


def test_turns_are_counted_differently_in_released_code():
    """a1 -> {r1, r2, c1, c2}, where a1 moves as no compute operator is ready: at 0 (even, compute's turn) in both.

    Paper: a1 moved, so compute is next: c1 r1 c2 r2. Released: place 1 is odd, memory's turn: r1 c1 r2 c2.
    """
    kinds = {"add": "add", "relu1": "relu", "relu2": "relu", "c1": "conv", "c2": "conv"}
    rows = [Operator(name, time=10.0, kernels=kernel(), kind=kind) for name, kind in kinds.items()]
    graph = made(rows, "add-relu1 add-relu2 add-c1 add-c2")
    assert launched(schedule(graph, ONE, opara)) == "add c1 relu1 c2 relu2"
    assert launched(schedule(graph, ONE, opara, mode="impl")) == "add relu1 c1 relu2 c2"


def test_the_first_kernel_speaks_for_the_operator_in_released_code():
    """a: 0 and then 32 KiB; b: 16 KiB; n has no kernels; big: 96 KiB, two limits of 48 KiB, which is never found.

    Paper: n (nothing), b, a, big. Released: a, b, and then in turn what its search cannot find: big, n.
    """
    small, large = kernel(shared_memory=0)[0], kernel(shared_memory=32 * 1024)[0]
    halves = [Kernel(k.blocks, k.threads, k.registers, k.shared_memory, share=0.5) for k in (small, large)]
    rows = [
        Operator("big", time=1.0, kernels=kernel(shared_memory=96 * 1024)),
        Operator("a", time=1.0, kernels=tuple(halves)),
        Operator("b", time=1.0, kernels=kernel(shared_memory=16 * 1024)),
        Operator("n", time=0.0),
    ]
    assert launched(schedule(OpGraph(rows), ONE, opara, metric="shared_memory")) == "n b a big"
    assert launched(schedule(OpGraph(rows), ONE, opara, mode="impl")) == "a b big n"


@pytest.mark.parametrize(
    ("metric", "order"),
    [
        ("shared_memory", "wide many small"),
        ("threads", "many small wide"),
        ("registers", "small many wide"),
        ("max", "many small wide"),
        ("blocks", "small wide many"),
        ("occupancy", "small wide many"),
        ("utilization", "many wide small"),
    ],
)
def test_metrics(metric, order):
    """On an A100: blocks have 1024 threads, 65,536 registers and 163 KiB at most; 108 SMs hold 32 blocks of 64 warps.

    small: 256 threads 1/4, x 32 registers 1/8, 64 KiB 0.39; 8 of 3456 blocks; 8/108 of 8 warps an SM 0.01.
    wide: 512 threads 1/2, x 64 registers 1/2, 0 KiB; 54 of 3456 blocks; 54/108 of 16 warps an SM 1/8.
    many: 128 threads 1/8, x 96 registers 0.19, 32 KiB 0.2; 10,000 blocks, of which an SM holds 4 of 4 warps, 1/4.
    """
    rows = [
        Operator("small", time=1.0, kernels=(Kernel(8, 256, 32, 64 * 1024),), utilization=0.9),
        Operator("wide", time=1.0, kernels=(Kernel(54, 512, 64, 0),), utilization=0.6),
        Operator("many", time=1.0, kernels=(Kernel(10_000, 128, 96, 32 * 1024),), utilization=0.3),
    ]
    plan = schedule(OpGraph(rows), ONE, opara, metric=metric)
    assert (launched(plan), plan.search["metric"]) == (order, metric)
    released = "wide many small" if metric == "max" else order  # of 48 KiB: 1/2, 0.67, 1.33
    assert launched(schedule(OpGraph(rows), ONE, opara, metric=metric, mode="impl")) == released


def test_default_metrics():
    """The most of three parts; of the first kernel's shared memory; without kernels, the utilization."""
    rows = [Operator("a", time=1.0, kernels=kernel(threads=512)), Operator("b", time=1.0, kernels=kernel())]
    bare = [Operator("a", time=1.0, utilization=0.5), Operator("b", time=1.0, utilization=0.25)]
    found = {}
    for name, graph in (("kernels", OpGraph(rows)), ("bare", OpGraph(bare))):
        for mode in ("paper", "impl"):
            plan = schedule(graph, ONE, opara, mode=mode)
            found[name, mode] = (plan.search["metric"], launched(plan))
    assert found == {
        ("kernels", "paper"): ("max", "b a"),
        ("kernels", "impl"): ("shared_memory", "a b"),
        ("bare", "paper"): ("utilization", "b a"),
        ("bare", "impl"): ("utilization", "b a"),
    }


def searched(graph, memory, need):
    """Launch order as the released code goes about it: two lists, searched from one end to the other.

    `memory` holds the names of memory-intensive operators; `need` what those with kernels need.
    """
    inputs = {name: {e.src for e in graph.edges if e.dst == name} for name in graph.names}
    missing = {name: len(inputs[name]) for name in graph.names}
    queues = [[n for n in graph.names if not missing[n] and (n in memory) == bool(side)] for side in (0, 1)]
    order = []
    while any(queues):
        queue = queues[len(order) % 2] if all(queues) else queues[0] or queues[1]
        best, chosen = 2.0, queue[0]
        for name in queue:
            if name in need and need[name] < best:
                best, chosen = need[name], name
        queue.remove(chosen)
        order.append(chosen)
        for name in graph.names:
            if chosen in inputs[name]:
                missing[name] -= 1
                if not missing[name]:
                    queues[name in memory].append(name)
    return order


@settings(deadline=None, max_examples=40)
@given(graph=graphs(max_ops=12))
def test_the_released_order_is_that_of_its_search(graph):
    """By the first kernel's shared memory of 48 KiB; operators of kind relu are named so."""
    renamed = {op.name: f"relu_{op.name}" if op.kind == "relu" else f"x{op.name[2:]}" for op in graph.operators}
    rows = [Operator(renamed[op.name], kind=op.kind, time=op.time, kernels=op.kernels) for op in graph.operators]
    graph = OpGraph(rows, [Edge(renamed[e.src], renamed[e.dst]) for e in graph.edges])
    need = {op.name: op.kernels[0].shared_memory / 49152 for op in rows if op.kernels}
    assume(need)
    plan = schedule(graph, ONE, opara, mode="impl")
    assert [row.op for row in plan.placements] == searched(graph, {op.name for op in rows if op.kind == "relu"}, need)


# Classes -----------------------------------------------------------------------------------------


def n_memory(rows, **options):
    return schedule(OpGraph(rows), ONE, opara, **options).search["memory_intensive"]


def test_the_table_reads_kinds_and_in_released_code_names():
    """By kind: relu, pool and permute of five. By name: "add" is found in "address", "to" in "bottom"; "permute" and
    "sqrt" are misspelt there, and "pool" is not "max_pool".
    """
    kinds = {"address": "conv", "bottom": "relu", "pool": "pool", "permute": "permute", "sqrt": "linear"}
    rows = [Operator(name, kind=kind, time=1.0, kernels=kernel()) for name, kind in kinds.items()]
    assert n_memory(rows) == 3
    assert n_memory(rows, mode="impl") == 2
    assert n_memory(rows, classes="none") == 0


def test_roofline_classes():
    """On an A100 in fp32, 19.5 TFLOP/s and 1555 GB/s: 12.5 FLOP a byte; an operator without work computes."""
    work = {"a": (1.24e9, 1e8), "b": (1.26e9, 1e8), "c": (0.0, 0.0)}
    assert n_memory([Operator(op, "op", *work[op], time=1.0, utilization=0.5) for op in work], classes="roofline") == 1


def test_measured_classes():
    """As the operators say; one that takes no time need not."""
    rows = [Operator(op, intensity=kind, time=1.0, utilization=0.5) for op, kind in (("a", "memory"), ("b", "compute"))]
    rows.append(Operator("view", time=0.0))
    assert n_memory(rows, classes="measured") == 1
    assert launched(schedule(OpGraph(rows), ONE, opara, classes="measured")) == "view a b"


# Edges and bad input -----------------------------------------------------------------------------


def test_views_need_no_kernels():
    """One operator without time, and operators given backwards with parallel edges."""
    assert launched(schedule(OpGraph([Operator("view", time=0.0)]), ONE, opara)) == "view"
    rows = [Operator("b", time=1.0, kernels=kernel()), Operator("view", time=0.0), Operator("a", time=1.0)]
    plan = schedule(made(rows, "a-view a-view view-b"), ONE, opara)
    assert by_stream(plan) == ["a view b"]


@pytest.mark.parametrize(
    ("options", "metric", "field"),
    [({}, "utilization", "utilization"), ({"mode": "impl", "metric": "threads"}, "threads", "kernels")],
)
def test_missing_kernels(options, metric, field):
    graph = made("a=1 b=1", "ab")
    with pytest.raises(SchedulerError) as caught:
        schedule(graph, ONE, opara, **options)
    assert str(caught.value) == (
        f"opara: no operator of graph 'graph' has what metric={metric!r} reads, Operator({field}=...); give that, "
        f"another metric, or order='graph'"
    )
    assert launched(schedule(graph, ONE, opara, order="graph")) == "a b"


def test_classes_that_nobody_measured():
    with pytest.raises(SchedulerError, match=r"^opara: operator '1' has no intensity, which classes='measured' reads"):
        schedule(forked("1-2", 2), ONE, opara, classes="measured")


def test_a_kernel_that_fits_nowhere_has_no_occupancy():
    rows = [Operator("a", time=1.0, kernels=kernel(shared_memory=10**6))]
    with pytest.raises(ClusterError, match="does not fit on an SM"):
        schedule(OpGraph(rows), ONE, opara, metric="occupancy")
