"""What holds for every schedule of every small graph on one to three devices."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hand_made import DEVICE, simulate
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import simsched as ss
from simsched.model.cluster.device import OVERHEADS

TIMES = st.sampled_from([0.0, 0.1, 0.2, 0.3, 1.0, 3.0, 7.5, 10.0]) | st.floats(0.01, 50.0)
NUMBERS = st.sampled_from([0.0, 1e3, 1e4, 5e4])


@st.composite
def operators(draw, name):
    fields = {"time": draw(TIMES), "nbytes": draw(NUMBERS), "flops": draw(NUMBERS)}
    fields["intensity"] = draw(st.sampled_from([None, "compute", "memory"]))
    kind = draw(st.sampled_from(["time", "utilization", "grid", "grid", "grids"]))
    if kind == "utilization":
        fields["utilization"] = draw(st.sampled_from([0.1, 0.5, 0.6, 1.0]))
    elif kind != "time":
        shares = (1.0,) if kind == "grid" else (0.25, 0.75)
        fields["kernels"] = tuple(
            ss.Kernel(
                draw(st.integers(1, 90)),
                threads=draw(st.sampled_from([32, 100, 256, 512, 1024])),
                registers=draw(st.sampled_from([16, 32, 64])),
                shared_memory=draw(st.sampled_from([0, 5000, 32768])),
                share=share,
            )
            for share in shares
        )
    return ss.Operator(name, **fields)


@st.composite
def clusters(draw):
    fields = {
        "interleave": draw(st.sampled_from([0.0, 0.3, 0.5, 1.0])),
        "interference": draw(st.sampled_from([((0.0, 0.0), (0.0, 0.0)), ((0.06, 0.03), (0.2, 0.5))])),
        "saturating_warps": draw(st.sampled_from([8.0, 32.0])),
        "block_spread": draw(st.sampled_from([0.0, 0.08, 0.3])),
        "kernel_latency": draw(st.sampled_from([0.0, 0.0, 0.5])),
        "connections": draw(st.sampled_from([1, 2, 32])),
        "resident_kernels": draw(st.sampled_from([1, 3, 128])),
        "contention": draw(st.sampled_from([True, True, True, False])),
        "copy_engines": draw(st.integers(1, 2)),
        "copy_rate": draw(st.sampled_from([60.0, np.inf])),
    }
    if draw(st.booleans()):
        fields |= {"launch": 2.0, "record": 0.5, "wait": 0.7, "copy": 1.0, "barrier": 5.0, "gap": 0.3, "hop": 1.1}
        fields |= {"graph_launch": 3.0, "graph_node": 0.4}
    devices = tuple(
        replace(DEVICE, name=f"gpu{i}", sms=draw(st.sampled_from([4, 10])), **fields)
        for i in range(draw(st.integers(1, 3)))
    )
    link = ss.Link(draw(st.sampled_from([50.0, 700.0])), draw(st.sampled_from([0.0, 2.0])), duplex=draw(st.booleans()))
    return ss.Cluster(devices, tuple((device.name, "switch", link) for device in devices))


@st.composite
def plans(draw):
    """A cluster and a schedule that can run on it, with options for lowering."""
    cluster = draw(clusters())
    n = draw(st.integers(1, 12))
    edge_bytes = st.sampled_from([0.0, 100.0, 1000.0])
    edges, depth = [], [0] * n
    for v in range(1, n):
        for u in sorted(draw(st.sets(st.integers(0, v - 1), max_size=3))):
            edges.append(ss.Edge(f"o{u}", f"o{v}", draw(edge_bytes), draw(st.sampled_from([None, None, 0.0, 4.0]))))
            depth[v] = max(depth[v], depth[u] + 1)
    graph = ss.OpGraph([draw(operators(f"o{i}")) for i in range(n)], edges)
    execution = draw(st.sampled_from(["events", "stages", "graph"]))
    streams = [draw(st.integers(0, 2)) for _ in range(n)]
    placements = [
        ss.Placement(
            f"o{i}",
            draw(st.sampled_from(cluster.devices)).name,
            streams[i],
            stage=depth[i],  # operators of equal depth do not depend on each other
            group=streams[i],
            priority=draw(st.sampled_from([0, 0, 1])),
        )
        for i in sorted(range(n), key=lambda i: (depth[i], i))
    ]
    options = {
        "threads": draw(st.sampled_from(["device", "one"])),
        "events": draw(st.sampled_from(["minimal", "literal"])),
        "transfers": draw(st.sampled_from(["async", "blocking"])) if execution != "graph" else "async",
    }
    return cluster, ss.Schedule(graph, placements, execution), options


def each(test):
    relaxed = settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
    return relaxed(given(plan=plans())(test))


def columns(trace):
    names = ("kind", "item", "op", "device", "stream", "start", "end", "ready", "solo", "cause")
    return [getattr(trace, name).tolist() for name in names] + [
        [column.tolist() for column in (load.time, load.sm, load.dram, load.warps, load.active_sms)]
        for load in trace.loads
    ]


def by_place(trace):
    """What ran where and when, without the numbers of copies and instructions."""
    return sorted((s.kind, s.name, s.device, -1 if s.stream is None else s.stream, s.start, s.end) for s in trace.spans)


@each
def test_every_run(plan):
    """Each kernel runs once, in its place; consumers wait for producers and transfers; nothing beats the bounds."""
    cluster, schedule, options = plan
    graph = schedule.graph
    program = schedule.lower(cluster, **options)
    trace = simulate(program, cluster)
    near = 1e-7 * max(1.0, trace.makespan)  # ties may add up

    # every kernel of every operator exactly once, where the schedule says
    place = {p.op: (p.device, p.stream) for p in schedule.placements}
    kernels = [i for i in range(len(trace)) if trace.kind[i] == 0]
    assert sorted(trace.item[kernels].tolist()) == list(range(len(program.launch_op)))
    for i in kernels:
        span = trace.spans[i]
        assert (span.device, span.stream) == place[span.op]

    # dependencies, transfers included
    times = trace.operator_times()
    for edge in graph.edges:
        (src, _), (dst, _) = place[edge.src], place[edge.dst]
        transfer = cluster.transfer_time(src, dst, edge.nbytes, edge.transfer)
        assert times[edge.dst][0] >= times[edge.src][1] + transfer - near

    # a stream runs its operators in launch order
    for key in set(place.values()):
        mine = [p.op for p in schedule.placements if place[p.op] == key]
        for first, second in pairwise(mine):
            assert times[second][0] >= times[first][1] - near

    # alone they would not be slower
    for i in kernels:
        if not program.graph.operators[trace.op[i]].kernels or not cluster.devices[trace.device[i]].contention:
            assert trace.end[i] - trace.start[i] >= trace.solo[i] - near
    assert trace.makespan >= ss.lower_bound(graph, cluster) - near

    # and again
    assert columns(simulate(program, cluster)) == columns(trace)
    reread = simulate(ss.Program.from_dict(program.to_dict()), cluster)
    assert by_place(reread) == by_place(trace)


@each
def test_without_contention_each_kernel_takes_its_time(plan):
    """With `contention` off kernels start when they are ready and last their solo time."""
    cluster, schedule, options = plan
    cluster = cluster.replace_devices(contention=False)
    trace = simulate(schedule.lower(cluster, **options), cluster)
    kernels = trace.kind == 0
    assert trace.start[kernels].tolist() == trace.ready[kernels].tolist()
    assert (trace.end - trace.start)[kernels] == pytest.approx(
        trace.solo[kernels], rel=1e-6, abs=1e-9 * (1 + trace.makespan)
    )


@each
def test_scale_does_not_matter(plan):
    """All times, sizes and overheads eight times as large: everything takes eight times as long."""
    cluster, schedule, options = plan
    graph = schedule.graph
    factor = 8.0  # a power of two: every float scales exactly
    ops = [
        replace(op, time=op.time * factor, nbytes=op.nbytes * factor, flops=op.flops * factor) for op in graph.operators
    ]
    edges = [
        replace(e, nbytes=e.nbytes * factor, transfer=None if e.transfer is None else e.transfer * factor)
        for e in graph.edges
    ]
    costs = (*OVERHEADS, "kernel_latency")
    slow = ss.Cluster(
        tuple(replace(d, **{name: getattr(d, name) * factor for name in costs}) for d in cluster.devices),
        tuple((a, b, replace(link, latency=link.latency * factor)) for a, b, link in cluster.links),
    )
    scaled = ss.Schedule(ss.OpGraph(ops, edges), schedule.placements, schedule.execution)
    before = simulate(schedule.lower(cluster, **options), cluster)
    after = simulate(scaled.lower(slow, **options), slow)
    assert (after.end / factor).tolist() == pytest.approx(before.end.tolist(), rel=1e-9)
