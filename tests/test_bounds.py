"""Lower bounds by hand, and that simulations keep to them."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import clusters, graphs, schedules

from simsched.bounds import bounds, lower_bound
from simsched.cluster import Cluster
from simsched.errors import ScheduleError
from simsched.graph import Edge, Kernel, Operator, OpGraph
from simsched.schedules import Placement, Schedule
from simsched.simulator import simulate
from simsched.simulator.workload import demand

ONE = Cluster.preset("a100").without_overheads()
TWO = Cluster.preset("a100", 2).without_overheads()


def made(operators, edges=""):
    return OpGraph(operators, [Edge(a, b, 1e6) for a, b in edges.split()])


def test_critical_path():
    """3 + 5 us in a row, 4 us beside; the edges could stay on one device and cost nothing."""
    graph = made([Operator("a", time=3.0), Operator("b", time=5.0), Operator("c", time=4.0)], "ab")
    found = bounds(graph, TWO)
    assert (found.critical_path, found.sm_work, found.dram_work, found.residency) == (8.0, 0.0, 0.0, 0.0)
    assert found.best == lower_bound(graph, TWO) == 8.0


def test_work_of_operators_with_a_utilization():
    """Four of 10 us at half the device: 20 us of it; on two devices 10 us of each, as long as one operator."""
    graph = made([Operator(n, time=10.0, utilization=0.5) for n in "abcd"])
    assert bounds(graph, ONE).sm_work == 20.0
    assert bounds(graph, TWO).sm_work == 10.0
    assert lower_bound(graph, ONE) == 20.0
    assert lower_bound(graph, TWO) == 10.0


def test_a_cost_model_may_tell_equal_devices_apart():
    """Each operator at its fastest: 2 + 3 us, a on gpu1 and b on gpu0."""
    graph = made([Operator("a"), Operator("b")], "ab")
    times = {"a": {"gpu0": 9.0, "gpu1": 2.0}, "b": {"gpu0": 3.0, "gpu1": 8.0}}
    assert bounds(graph, TWO, lambda op, device: times[op.name][device.name]).critical_path == 5.0


def test_without_contention_only_the_critical_path_counts():
    graph = made([Operator(n, time=10.0, utilization=1.0) for n in "abc"])
    assert lower_bound(graph, ONE) == 30.0
    found = bounds(graph, ONE.replace_devices(contention=False))
    assert (found.best, found.sm_work) == (10.0, 0.0)


def test_work_of_kernels():
    """A block of 256 threads (8 warps): 8 to an SM, 64 warps, of which 24 keep it busy, so it runs at 24/64 speed.

    864 blocks fill 108 SMs once. Of its 10 us a block alone would need 10 x 24/64 = 3.75. Two such kernels
    cannot share what one of them fills: 20 us. They hold the warps of every SM for at least 2 x 3.75 us.
    """
    graph = made([Operator(n, time=10.0, kernels=(Kernel(864, 256, 32),)) for n in "ab"])
    found = bounds(graph, ONE)
    assert found.critical_path == pytest.approx(10.0)
    assert found.sm_work == pytest.approx(20.0)
    assert found.residency == pytest.approx(7.5)


def test_the_fastest_device_counts():
    """The cost model says 10 us on gpu0 and 4 on gpu1: 4 each, 8 in a row."""
    graph = made([Operator("a", time=1.0), Operator("b", time=1.0)], "ab")
    assert lower_bound(graph, TWO, lambda op, device: 10.0 if device.name == "gpu0" else 4.0) == 8.0


def test_zero_times():
    assert lower_bound(made([Operator("a", time=0.0, kernels=(Kernel(10),))]), ONE) == 0.0


def test_a_device_that_cannot_run_a_kernel():
    """100 KiB of shared memory fit on the A100, not on the 2080 Ti beside it: any schedule uses the A100, for 7 us."""
    small = replace(Cluster.preset("rtx2080ti").devices[0], name="gpu1")
    cluster = Cluster((TWO.devices[0], small), TWO.links)
    graph = made([Operator("a", time=7.0, kernels=(Kernel(1, 256, 32, 100 * 1024),))])
    assert lower_bound(graph, cluster) == pytest.approx(7.0)


def test_devices_of_one_model_may_differ():
    """What if gpu1 had half of its 108 SMs: 8 blocks fit on each, 864 on gpu0 and 432 on gpu1."""
    half = replace(TWO.devices[1], sms=54)
    cluster = Cluster((TWO.devices[0], half), TWO.links)
    graph = made([Operator(n, time=10.0, kernels=(Kernel(864, 256, 32),)) for n in "ab"])
    program = Schedule(graph, [Placement("a", "gpu0"), Placement("b", "gpu1")]).lower(cluster)
    assert demand(program, cluster, None).residency.tolist() == [864, 432]


@settings(deadline=None, max_examples=80)
@given(data=st.data())
def test_no_schedule_is_simulated_below_the_bound(data):
    """Neither stages, events nor captured graphs, with or without overheads, on one to three devices."""
    graph = data.draw(graphs(max_ops=6))
    cluster = data.draw(clusters(max_gpus=3))
    schedule = data.draw(schedules(graph, devices=tuple(cluster.index), valid_order=True))
    try:
        makespan = simulate(schedule, cluster).makespan
    except ScheduleError:
        return
    assert makespan >= lower_bound(graph, cluster) * (1 - 1e-9)
