"""Lower bounds by hand, and that simulations keep to them."""

from dataclasses import replace
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from schedulers.brute_force import best_makespan
from small import made, operators, placements
from strategies import clusters, graphs, schedules

from simsched.base.errors import ScheduleError
from simsched.bounds import alone, area, bounds, lower_bound
from simsched.model import Cluster, Kernel, Operator, OpGraph, Schedule
from simsched.model.lowering.lowering import OPTIONS
from simsched.simulator import simulate
from simsched.simulator.workload import demand

ONE = Cluster.preset("a100").without_overheads()
TWO = Cluster.preset("a100", 2).without_overheads()
FULL = (Kernel(864, 256, 32),)
"""As many blocks as the 108 SMs hold."""


def test_critical_path():
    """3 + 5 us in a row, 4 us beside; the edges could stay on one device and cost nothing."""
    graph = made("a=3 b=5 c=4", "ab", nbytes=1e6)
    found = bounds(graph, TWO)
    assert (found.critical_path, found.sm_work, found.dram_work, found.residency) == (8.0, 0.0, 0.0, 0.0)
    assert found.best == lower_bound(graph, TWO) == 8.0


def test_work_of_operators_with_a_utilization():
    """Four of 10 us at half the device: 20 us of it; on two devices 10 us of each, as long as one operator."""
    graph = OpGraph(operators("a=10 b=10 c=10 d=10", utilization=0.5))
    assert bounds(graph, ONE).sm_work == 20.0
    assert bounds(graph, TWO).sm_work == 10.0
    assert lower_bound(graph, ONE) == 20.0
    assert lower_bound(graph, TWO) == 10.0


def test_a_cost_model_may_tell_equal_devices_apart():
    """a takes 2 us on gpu1 and b, beside it, 3 on gpu0; elsewhere 9 and 8."""
    graph = made("a=1 b=1")
    times = {"a": {"gpu0": 9.0, "gpu1": 2.0}, "b": {"gpu0": 3.0, "gpu1": 8.0}}
    assert bounds(graph, TWO, lambda op, device: times[op.name][device.name]).critical_path == 3.0


def test_without_contention_only_the_critical_path_counts():
    graph = OpGraph(operators("a=10 b=10 c=10", utilization=1.0))
    assert lower_bound(graph, ONE) == 30.0
    found = bounds(graph, ONE.replace_devices(contention=False))
    assert (found.best, found.sm_work) == (10.0, 0.0)


def test_work_of_kernels():
    """A block of 256 threads (8 warps): 8 to an SM, 64 warps, of which 12 keep it busy, so it runs at 12/64 speed.

    864 blocks fill 108 SMs once. Of its 10 us a block alone would need 10 x 12/64 = 1.875. Two such kernels
    cannot share what one of them fills: 20 us. They hold the warps of every SM for at least 2 x 1.875 us.
    """
    graph = OpGraph(operators("a=10 b=10", kernels=FULL))
    found = bounds(graph, ONE.replace_devices(block_spread=0.0))
    assert found.critical_path == pytest.approx(10.0)
    assert found.sm_work == pytest.approx(20.0)
    assert found.residency == pytest.approx(3.75)


def test_the_fastest_device_counts():
    """The cost model says 10 us on gpu0 and 4 on gpu1: 4 each, 8 in a row."""
    graph = made("a=1 b=1", "ab", nbytes=1e6)
    assert lower_bound(graph, TWO, lambda op, device: 10.0 if device.name == "gpu0" else 4.0) == 8.0


def test_zero_times():
    assert lower_bound(OpGraph(operators("a=0", kernels=FULL)), ONE) == 0.0


def test_a_device_that_cannot_run_a_kernel():
    """100 KiB of shared memory fit on the A100, not on the 2080 Ti beside it: any schedule uses the A100, for 7 us."""
    small = replace(Cluster.preset("rtx2080ti").devices[0], name="gpu1")
    cluster = Cluster((TWO.devices[0], small), TWO.links)
    graph = OpGraph(operators("a=7", kernels=(Kernel(1, 256, 32, 100 * 1024),)))
    assert lower_bound(graph, cluster) == pytest.approx(7.0)


def test_devices_of_one_model_may_differ():
    """What if gpu1 had half of its 108 SMs: 8 blocks fit on each, 864 on gpu0 and 432 on gpu1."""
    half = replace(TWO.devices[1], sms=54)
    cluster = Cluster((TWO.devices[0], half), TWO.links)
    program = Schedule(OpGraph(operators("a=10 b=10", kernels=FULL)), placements("a b@1")).lower(cluster)
    assert demand(program, cluster, None)["residency"].tolist() == [864, 432]


def either_or(transfer, fast=2.0, slow=8.0):
    """a -> b, a faster on gpu1, b faster on gpu0."""
    graph = made("a=1 b=1", "ab", transfer)
    times = {"a": {"gpu0": slow, "gpu1": fast}, "b": {"gpu0": fast, "gpu1": slow}}
    return bounds(graph, TWO, lambda op, device: times[op.name][device.name]).critical_path


def test_the_faster_device_costs_a_transfer():
    """2 + 8 us on either device, or 2 + transfer + 2: 9 with 5 us, and 10 where it takes 7."""
    assert either_or(5.0) == 9.0
    assert either_or(7.0) == 10.0


def test_a_transfer_between_the_only_devices_that_will_do():
    """a asks for the shared memory of gpu1 alone, b for the registers of gpu0 alone: 7 us, 5 to move, 1 more."""
    other = replace(TWO.devices[1], shared_memory_per_sm=2**20, shared_memory_per_block=2**20, registers_per_sm=2**15)
    cluster = Cluster((TWO.devices[0], other), TWO.links)
    a = Operator("a", time=7.0, kernels=(Kernel(1, 256, 32, 2**19),))
    b = Operator("b", time=1.0, kernels=(Kernel(1, 1024, 64),))
    graph = made([a, b], "ab:5")
    assert lower_bound(graph, cluster) == pytest.approx(13.0)
    assert lower_bound(graph, Cluster(cluster.devices)) == pytest.approx(13.0)
    assert lower_bound(made([a, b], "ab=1"), Cluster(cluster.devices)) == inf
    several = OpGraph([replace(a, name=n) for n in "acd"])
    assert bounds(several, cluster).critical_path == pytest.approx(7.0)


def test_a_join_waits_for_work_or_for_a_transfer():
    """Two operators of 10 us that fill a device feed c of 1 us, each 4 us away: 20 us on one device, or 14 on two.

    c starts at 14. With transfers of 15 us one device is better: 20.
    """
    for transfer, start in ((4.0, 14.0), (15.0, 20.0)):
        for pairs in ("ac bc", "ca cb"):  # a join, and a fork the other way round
            graph = made(operators("a=10 b=10 c=1", utilization=1.0), pairs, transfer)
            assert bounds(graph, TWO).critical_path == start + 1.0
            assert bounds(graph, ONE).critical_path == 21.0


def test_work_between_what_comes_before_and_after():
    """s of 5 us, then four that fill a device for 10 us each, then t of 3: two devices need 5 + 20 + 3 us.

    All work together would be 48 / 2, and a path 18.
    """
    rows = operators("s=5 a=10 b=10 c=10 d=10 t=3", utilization=1.0)
    graph = made(rows, "sa sb sc sd at bt ct dt", 0.0)
    assert bounds(graph, TWO).sm_work == 28.0
    assert lower_bound(graph, TWO) == 28.0


def test_an_operator_that_nothing_runs_beside_takes_its_time():
    """109 blocks of which 108 fit: two waves, of which interference might save a part if anything ran beside."""
    rows = operators("a=10 b=10", kernels=(Kernel(109, 1024, 32, 160 * 1024),))
    chain = made(rows, "ab", nbytes=1e6)
    one = ONE.replace_devices(block_spread=0.0, saturating_warps=32.0)
    assert lower_bound(chain, one) == pytest.approx(20.0)
    assert bounds(OpGraph(rows), one).critical_path == pytest.approx(1.75 * 5.0)
    assert alone(made("a=1 b=1 c=1 d=1", "ab ac bd cd")).tolist() == [True, False, False, True]


def test_gaps_that_every_execution_has():
    """A chain of three, 1 us each: a graph's launch of 6 us (a kernel's: 8), and two gaps of 0.9 (a wait's: 2)."""
    chain = made("a=1 b=1 c=1", "ab bc", nbytes=1e6)
    cluster = Cluster.preset("a100")
    assert lower_bound(chain, cluster) == pytest.approx(6.0 + 3.0 + 2 * 0.9)
    assert simulate(Schedule(chain, placements("a b c")), cluster).makespan >= lower_bound(chain, cluster)
    assert lower_bound(chain, cluster.replace_devices(gap=0.0)) == 9.0
    assert lower_bound(chain, cluster.replace_devices(gap=0.0, launch_latency=5.0, launch=4.0)) == 8.0


def test_an_operator_that_fits_nowhere():
    huge = operators("a=1", kernels=(Kernel(1, 256, 32, 2**20),))
    assert lower_bound(OpGraph(huge), TWO) == inf


def test_area_is_the_best_of_all_pairs_of_thresholds():
    """With few heads exactly; of 400, of which 256 are tried, nearly, and never above."""
    rng = np.random.default_rng(0)
    for n, exact in ((60, True), (400, False)):
        head, work, tail = (rng.uniform(0, most, n) for most in (100.0, 10.0, 100.0))
        best = 0.0
        for h in head:
            chosen = (head >= h) & (tail >= tail[:, None])  # (least tail, operator)
            best = max(best, float((h + (chosen * work).sum(axis=1) / 5.0 + tail)[chosen.any(axis=1)].max()))
        found = area(head, work, tail, 5.0)
        assert found <= best * (1 + 1e-12)
        assert found >= best * (1 - 1e-12 if exact else 0.99)


@st.composite
def mixed_clusters(draw):
    """One to three devices that may differ, on the links of A100s."""
    presets = draw(st.lists(st.sampled_from(["a100", "v100", "rtx2080ti"]), min_size=1, max_size=3))
    devices = [replace(Cluster.preset(preset).devices[0], name=f"gpu{i}") for i, preset in enumerate(presets)]
    cluster = Cluster(tuple(devices), Cluster.preset("a100", len(devices)).links)
    if draw(st.booleans()):
        cluster = cluster.without_overheads()
    return cluster.replace_devices(contention=draw(st.sampled_from([True, True, False])))


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_no_schedule_is_simulated_below_the_bound(data):
    """Neither stages, events nor captured graphs, however lowered, on one to three devices, equal or not."""
    graph = data.draw(graphs())
    cluster = data.draw(clusters(max_gpus=3) | mixed_clusters())
    schedule = data.draw(schedules(graph, devices=tuple(cluster.index), valid_order=True))
    options = {name: data.draw(st.sampled_from(values)) for name, values in OPTIONS.items()}
    try:
        makespan = simulate(schedule.lower(cluster, **options), cluster).makespan
    except ScheduleError:
        return
    assert makespan >= lower_bound(graph, cluster) * (1 - 1e-9)


@settings(deadline=None, max_examples=40)
@given(graph=graphs(max_ops=5, timed=True), n=st.integers(1, 2))
def test_no_contention_free_schedule_is_below_the_bound(graph, n):
    """Without contention the simulator may run any number of operators at a time, as brute force on 5 streams."""
    cluster = Cluster.preset("a100", n).without_overheads().replace_devices(contention=False)
    assert lower_bound(graph, cluster) <= best_makespan(graph, cluster, streams=5) * (1 + 1e-9)
