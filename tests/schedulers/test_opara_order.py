"""Opara's launch order: by hand, against the released search written down again, and what it reads of operators."""

import pytest
from hypothesis import assume, given, settings
from strategies import graphs

from simsched.model.cluster import Cluster
from simsched.model.graph import Edge, Kernel, Operator, OpGraph
from simsched.schedulers import schedule
from simsched.schedulers.opara import opara

ONE = Cluster.preset("a100")


def kernel(**fields):
    return (Kernel(**({"blocks": 100, "threads": 128, "registers": 16} | fields)),)


def launched(plan):
    return " ".join(row.op for row in plan.placements)


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
    rows = [Operator(name, time=10.0, kernels=kernel(), kind=kind) for name, kind in
            (("add", "add"), ("relu1", "relu"), ("relu2", "relu"), ("c1", "conv"), ("c2", "conv"))]  # fmt: skip
    graph = OpGraph(rows, [Edge("add", row.name) for row in rows[1:]])
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


@settings(deadline=None, max_examples=50)
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


@settings(deadline=None, max_examples=50)
@given(graph=graphs(max_ops=12))
def test_the_printed_order_alternates_and_takes_the_least(graph):
    """Whatever is launched: of its class nothing that was ready needs less, and its class is the other one than the
    last launch had, or else none of that was ready.
    """
    assume(any(op.kernels or op.utilization for op in graph.operators))
    plan = schedule(graph, ONE, opara)
    inputs = {name: {e.src for e in graph.edges if e.dst == name} for name in graph.names}
    by_kernels = any(op.kernels for op in graph.operators)

    def need(name):
        op, block = graph[name], ONE.devices[0].shared_memory_per_block
        if not by_kernels:
            return op.utilization or 0.0
        return max(
            (max(k.shared_memory / block, k.threads / 1024, k.threads * k.registers / 65536) for k in op.kernels),
            default=0.0,
        )

    done, last = [], "relu"
    for row in plan.placements:
        ready = [name for name in graph.names if name not in done and inputs[name] <= set(done)]
        mine = [name for name in ready if (graph[name].kind == "relu") == (graph[row.op].kind == "relu")]
        assert row.op in ready
        assert need(row.op) == min(map(need, mine))
        assert len(mine) == len(ready) or (last == "relu") != (graph[row.op].kind == "relu")
        done.append(row.op)
        last = graph[row.op].kind


# Classes -----------------------------------------------------------------------------------------


def n_memory(rows, **options):
    return schedule(OpGraph(rows), ONE, opara, **options).search["memory_intensive"]


def test_the_table_reads_kinds_and_in_released_code_names():
    """By kind: relu, pool and permute of five. By name: "add" is found in "address", "to" in "bottom"; "permute" and
    "sqrt" are misspelt there, and "pool" is not "max_pool".
    """
    rows = [
        Operator(name, kind=kind, time=1.0, kernels=kernel())
        for name, kind in (
            ("address", "conv"), ("bottom", "relu"), ("pool", "pool"), ("permute", "permute"), ("sqrt", "linear"),
        )
    ]  # fmt: skip
    assert n_memory(rows) == 3
    assert n_memory(rows, mode="impl") == 2
    assert n_memory(rows, classes="none") == 0


def test_roofline_classes():
    """On an A100 in fp32, 19.5 TFLOP/s and 1555 GB/s: 12.5 FLOP a byte; an operator without work computes."""
    rows = [
        Operator("a", flops=1e9, nbytes=1e8, time=1.0, utilization=0.5),
        Operator("b", flops=2e9, nbytes=1e8, time=1.0, utilization=0.5),
        Operator("c", time=1.0, utilization=0.5),
    ]
    device = ONE.devices[0]
    assert 10 < device.peak_rate("fp32") / device.bandwidth < 20
    assert n_memory(rows, classes="roofline") == 1


def test_measured_classes():
    """As the operators say; one that takes no time need not."""
    rows = [
        Operator("a", intensity="memory", time=1.0, utilization=0.5),
        Operator("b", intensity="compute", time=1.0, utilization=0.5),
        Operator("view", time=0.0),
    ]
    assert n_memory(rows, classes="measured") == 1
    assert launched(schedule(OpGraph(rows), ONE, opara, classes="measured")) == "view a b"
