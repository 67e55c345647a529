"""What holds for every schedule of every small graph on one to three devices."""

from dataclasses import replace
from itertools import pairwise

import pytest
from drawn import plans
from hand_made import simulate
from hypothesis import HealthCheck, assume, given, settings

import simsched as ss
from simsched.model.cluster.device import OVERHEADS


def each(test):
    relaxed = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
    return relaxed(given(plan=plans)(test))


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
    assert sorted(trace.item[kernels].tolist()) == list(range(len(program.launches)))
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
    assert simulate(program, cluster) == trace
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
    assume(not any(0.0 < op.time < 1e-300 for op in graph.operators))  # kernels of no time start beside nobody
    factor = 8.0  # a power of two: every float scales exactly

    def scaled(row, *names):
        values = {name: getattr(row, name) for name in names}
        return replace(row, **{name: None if value is None else value * factor for name, value in values.items()})

    ops = [scaled(op, "time", "nbytes", "flops") for op in graph.operators]
    edges = [scaled(edge, "nbytes", "transfer") for edge in graph.edges]
    slow = ss.Cluster(
        tuple(scaled(device, *OVERHEADS, "kernel_latency") for device in cluster.devices),
        tuple((a, b, scaled(link, "latency")) for a, b, link in cluster.links),
    )
    again = ss.Schedule(ss.OpGraph(ops, edges), schedule.placements, schedule.execution)
    before = simulate(schedule.lower(cluster, **options), cluster)
    after = simulate(again.lower(slow, **options), slow)
    assert (after.end / factor).tolist() == pytest.approx(before.end.tolist(), rel=1e-9)
