"""Hypothesis strategies that several tests share: small graphs of mixed operators, clusters, placements."""

from dataclasses import replace

from hypothesis import strategies as st

from simsched.model import DTYPE_NBYTES, EXECUTIONS, Cluster, Edge, Kernel, Operator, OpGraph, Placement, Schedule

PRESETS = ("a100", "v100", "k80", "h100", "a40", "rtx3080")
times = st.sampled_from([0.0, 0.5, 1.0, 1.0, 2.0, 3.0, 10.0, 10.0, 123.25])
sizes = st.sampled_from([0.0, 1.0, 4096.0, 1e6, 2.5e7])

kernels = st.builds(
    Kernel,
    blocks=st.sampled_from([1, 7, 80, 108, 500, 3000]),
    threads=st.sampled_from([32, 100, 256, 1024]),
    registers=st.sampled_from([16, 32, 64]),
    shared_memory=st.sampled_from([0, 1000, 32768]),
)


@st.composite
def kernel_lists(draw):
    """One to three kernels whose shares add up to 1; each fits on every preset."""
    shares = draw(st.sampled_from([(1.0,), (0.5, 0.5), (0.25, 0.25, 0.5)]))
    return tuple(replace(draw(kernels), share=share) for share in shares)


@st.composite
def operators(draw, name, timed=False):
    """An operator with a grid, with a utilization, or with neither; `timed`: always with a time."""
    load = draw(st.sampled_from(["none", "utilization", "kernels"]))
    return Operator(
        name,
        kind=draw(st.sampled_from(["op", "conv", "relu"])),
        flops=draw(sizes),
        nbytes=draw(sizes),
        weight_nbytes=draw(sizes),
        time=draw(times if timed else st.none() | times),
        kernels=draw(kernel_lists()) if load == "kernels" else (),
        utilization=draw(st.sampled_from([0.25, 0.5, 1.0])) if load == "utilization" else None,
        intensity=draw(st.sampled_from([None, "compute", "memory"])),
        dtype=draw(st.sampled_from(sorted(DTYPE_NBYTES))),
        attributes=draw(st.sampled_from([{}, {"stride": 2}, {"pad": [1, 1], "mode": "same"}])),
        input_shapes=draw(st.sampled_from([(), ((1, 3, 8, 8),)])),
        output_shape=draw(st.sampled_from([None, (1, 16), (1, 3, 8, 8)])),
        block=draw(st.sampled_from([None, None, "stem", "head"])),
    )


@st.composite
def edge_pairs(draw, n):
    """Pairs i < j of 0 to n-1, some of them twice."""
    possible = [(i, j) for j in range(n) for i in range(j)]
    if not possible:
        return []
    pairs = draw(st.lists(st.sampled_from(possible), unique=True, max_size=2 * n))
    again = draw(st.lists(st.sampled_from(pairs), max_size=2)) if pairs else []
    return pairs + again


@st.composite
def edges(draw, src, dst):
    """An edge with a size, and perhaps an exact transfer time."""
    return Edge(src, dst, nbytes=draw(sizes), transfer=draw(st.none() | st.sampled_from([0.0, 1.0, 7.5])))


@st.composite
def graphs(draw, max_ops=7, min_ops=1, timed=False, shuffled=True):
    """A DAG; with `shuffled` its operators are not always given in topological order."""
    n = draw(st.integers(min_ops, max_ops))
    names = draw(st.permutations([f"op{i}" for i in range(n)])) if shuffled else [f"op{i}" for i in range(n)]
    rows = [draw(operators(name, timed)) for name in sorted(names)]
    pairs = draw(edge_pairs(n))
    label = draw(st.sampled_from(["graph", "net [1]"]))
    return OpGraph(rows, [draw(edges(names[i], names[j])) for i, j in pairs], label)


@st.composite
def shapes(draw, max_ops=8):
    """A DAG of plain operators of one time: for what depends on the edges alone."""
    n = draw(st.integers(1, max_ops))
    names = draw(st.permutations([f"op{i}" for i in range(n)]))
    pairs = draw(edge_pairs(n))
    return OpGraph([Operator(name, time=1.0) for name in sorted(names)], [Edge(names[i], names[j]) for i, j in pairs])


@st.composite
def clusters(draw, max_gpus=4):
    """A preset of one or more GPUs, sometimes without overheads, sometimes without contention."""
    cluster = Cluster.preset(draw(st.sampled_from(PRESETS)), draw(st.integers(1, max_gpus)))
    if draw(st.booleans()):
        cluster = cluster.without_overheads()
    if draw(st.sampled_from([False, False, False, True])):
        cluster = cluster.replace_devices(contention=False)
    return cluster


@st.composite
def schedules(draw, graph, devices=("gpu0", "gpu1", "gpu2"), valid_order=None):
    """Placements drawn at random: many break a rule, many others can run.

    Stages rise along the launch order of a device most of the time, and the launch order is
    topological most of the time, so that what is wrong is wrong in one way.
    """
    execution = draw(st.sampled_from(EXECUTIONS))
    topological = draw(st.sampled_from([True, True, False])) if valid_order is None else valid_order
    names = list(graph.order) if topological else draw(st.permutations(graph.names))
    used = devices[: draw(st.integers(1, len(devices)))]
    one_group = draw(st.booleans())
    rising = draw(st.sampled_from([True, True, True, False]))
    stage = dict.fromkeys(used, 0)
    rows = []
    for name in names:
        device = draw(st.sampled_from(used))
        step = draw(st.sampled_from([0, 0, 1, 1, 2]))
        stage[device] = stage[device] + step if rising else step
        group = 0 if one_group else draw(st.integers(0, 1))
        if execution == "stages":
            stream = group if draw(st.integers(0, 9)) else draw(st.integers(0, 2))
        else:
            stream = draw(st.integers(0, 2))
        rows.append(Placement(name, device, stream, stage[device], group, draw(st.sampled_from([0, 0, -1]))))
    return Schedule(graph, rows, execution)


def by_operator(schedule):
    """The placements of a schedule by operator."""
    return {row.op: row for row in schedule.placements}
