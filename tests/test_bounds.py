"""Lower bounds by hand, and that simulations keep to them."""

from dataclasses import replace
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from schedulers.brute_force import best_makespan
from small import DEEP, UNEQUAL, WIDE, made, operators, placements
from strategies import clusters, graphs, schedules

from simsched.base.errors import ScheduleError
from simsched.bounds import alone, area, bounds, lower_bound
from simsched.model import Cluster, Kernel, OpGraph, Schedule
from simsched.model.lowering import OPTIONS
from simsched.simulator import simulate
from simsched.simulator.demand import demand

ONE = Cluster.preset("a100").without_overheads()
TWO = Cluster.preset("a100", 2).without_overheads()
FULL = (Kernel(864, 256, 32),)
"""As many blocks as the 108 SMs hold."""


def by_device(**times):
    """A cost model from what operators take on gpu0 and on gpu1."""
    return lambda op, device: times[op.name][int(device.name[-1])]


approx = pytest.approx
PAIR = operators("a=7", kernels=WIDE) + operators("b=1", kernels=DEEP)
A100 = Cluster.preset("a100")
SPREAD = ONE.replace_devices(block_spread=0.0)
EITHER = by_device(a=(8.0, 2.0), b=(2.0, 8.0))
PATH = made("a=3 b=5 c=4", "ab", nbytes=1e6)
FULLY = OpGraph(operators("a=10 b=10 c=10", utilization=1.0))
HALVES = OpGraph(operators("a=10 b=10 c=10 d=10", utilization=0.5))
WAVES = operators("a=10 b=10", kernels=(Kernel(109, 1024, 32, 160 * 1024),))
CHAIN = made("a=1 b=1 c=1", "ab bc", nbytes=1e6)
BY_HAND = [  # a graph, a cluster, a cost model or none, and its bounds
    # 3 + 5 us in a row, 4 us beside; the edges could stay on one device and cost nothing
    (PATH, TWO, None, {"critical_path": 8.0, "sm_work": 0.0, "dram_work": 0.0, "residency": 0.0, "best": 8.0}),
    # four of 10 us at half the device: 20 us of it; on two devices 10 us of each, as long as one operator
    (HALVES, ONE, None, {"sm_work": 20.0, "best": 20.0}),
    (HALVES, TWO, None, {"sm_work": 10.0, "best": 10.0}),
    # a cost model may tell equal devices apart: a takes 2 us on gpu1 and b, beside it, 3 on gpu0
    (made("a=1 b=1"), TWO, by_device(a=(9.0, 2.0), b=(3.0, 8.0)), {"critical_path": 3.0}),
    # without contention only the critical path counts
    (FULLY, ONE, None, {"best": 30.0}),
    (FULLY, ONE.replace_devices(contention=False), None, {"best": 10.0, "sm_work": 0.0}),
    # A block of 256 threads (8 warps): 8 to an SM, 64 warps, of which 12 keep it busy, so it runs at 12/64 speed. 864
    # blocks fill 108 SMs once. Of its 10 us a block alone would need 10 x 12/64 = 1.875. Two such kernels cannot share
    # what one of them fills: 20 us. They hold the warps of every SM for at least 2 x 1.875 us.
    (
        OpGraph(operators("a=10 b=10", kernels=FULL)),
        SPREAD,
        None,
        {"critical_path": approx(10.0), "sm_work": approx(20.0), "residency": approx(3.75)},
    ),
    (OpGraph(operators("a=0", kernels=FULL)), ONE, None, {"best": 0.0}),
    # 10 us on gpu0 and 4 on gpu1: 4 each, 8 in a row
    (made("a=1 b=1", "ab", nbytes=1e6), TWO, by_device(a=(10.0, 4.0), b=(10.0, 4.0)), {"best": 8.0}),
    # 100 KiB of shared memory fit on the A100, not on the 2080 Ti beside it: any schedule uses the A100, for 7 us
    (
        OpGraph(operators("a=7", kernels=(Kernel(1, 256, 32, 100 * 1024),))),
        Cluster((TWO.devices[0], replace(Cluster.preset("rtx2080ti").devices[0], name="gpu1")), TWO.links),
        None,
        {"best": approx(7.0)},
    ),
    (OpGraph(operators("a=1", kernels=(Kernel(1, 256, 32, 2**20),))), TWO, None, {"best": inf}),  # it fits nowhere
    # 2 + 8 us on either device, or 2 + transfer + 2: 9 with 5 us, and 10 where it takes 7
    (made("a=1 b=1", "ab:5"), TWO, EITHER, {"critical_path": 9.0}),
    (made("a=1 b=1", "ab:7"), TWO, EITHER, {"critical_path": 10.0}),
    # a can run on gpu1 alone, b on gpu0 alone: 7 us, 5 to move, 1 more
    (made(PAIR, "ab:5"), UNEQUAL, None, {"best": approx(13.0)}),
    (made(PAIR, "ab:5"), Cluster(UNEQUAL.devices), None, {"best": approx(13.0)}),
    (made(PAIR, "ab=1"), Cluster(UNEQUAL.devices), None, {"best": inf}),
    (OpGraph(operators("a=7 c=7 d=7", kernels=WIDE)), UNEQUAL, None, {"critical_path": approx(7.0)}),
    # Two operators of 10 us that fill a device feed c of 1 us, each 4 us away: 20 us on one device, or 14 on two. With
    # transfers of 15 us one device is better. A join, and a fork the other way round.
    *(
        (made(operators("a=10 b=10 c=1", utilization=1.0), pairs, transfer), cluster, None, {"critical_path": end})
        for pairs in ("ac bc", "ca cb")
        for transfer, cluster, end in ((4.0, TWO, 15.0), (15.0, TWO, 21.0), (4.0, ONE, 21.0), (15.0, ONE, 21.0))
    ),
    # s of 5 us, then four that fill a device for 10 us each, then t of 3: two devices need 5 + 20 + 3 us. All work
    # together would be 48 / 2, and a path 18.
    (
        made(operators("s=5 a=10 b=10 c=10 d=10 t=3", utilization=1.0), "sa sb sc sd at bt ct dt", 0.0),
        TWO,
        None,
        {"sm_work": 28.0, "best": 28.0},
    ),
    # 109 blocks of which 108 fit: two waves, of which interference might save a part if anything ran beside
    (made(WAVES, "ab", nbytes=1e6), SPREAD.replace_devices(saturating_warps=32.0), None, {"best": approx(20.0)}),
    (OpGraph(WAVES), SPREAD.replace_devices(saturating_warps=32.0), None, {"critical_path": approx(1.75 * 5.0)}),
    # A chain of three, 1 us each: a graph's launch of 6 us (a kernel's: 8), and two gaps of 0.3 (a wait's: 2).
    (CHAIN, A100, None, {"best": approx(6.0 + 3.0 + 2 * 0.3)}),
    (CHAIN, A100.replace_devices(gap=0.0), None, {"best": 9.0}),
    (CHAIN, A100.replace_devices(gap=0.0, launch_latency=5.0, launch=4.0), None, {"best": 8.0}),
]


@pytest.mark.parametrize(("graph", "cluster", "cost", "expected"), BY_HAND)
def test_by_hand(graph, cluster, cost, expected):
    found = bounds(graph, cluster, cost)
    assert {name: getattr(found, name) for name in expected} == expected
    assert lower_bound(graph, cluster, cost) == found.best


def test_an_operator_that_nothing_runs_beside():
    assert alone(made("a=1 b=1 c=1 d=1", "ab ac bd cd")).tolist() == [True, False, False, True]


def test_devices_of_one_model_may_differ():
    """What if gpu1 had half of its 108 SMs: 8 blocks fit on each, 864 on gpu0 and 432 on gpu1."""
    half = replace(TWO.devices[1], sms=54)
    cluster = Cluster((TWO.devices[0], half), TWO.links)
    program = Schedule(OpGraph(operators("a=10 b=10", kernels=FULL)), placements("a b@1")).lower(cluster)
    assert demand(program, cluster, None)["residency"].tolist() == [864, 432]


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
