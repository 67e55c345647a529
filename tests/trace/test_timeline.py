"""Utilisation of hand-made loads and intervals, and of simulated runs."""

import hand_spans
import numpy as np
import pytest
import small
from hand_spans import kernel, simulated

from simsched.model import Cluster, Kernel, Operator
from simsched.model.trace.timeline import Load, lanes, union_length


def load(*pieces):
    """Columns from pieces (time, sm, dram, warps, active SMs)."""
    return Load(*np.array(pieces, float).reshape(-1, 5).T)


def made(loads, end=10.0):
    """A trace of one kernel from 0 to `end` on the first of as many A40s (84 SMs, 48 warps each) as there are loads."""
    return hand_spans.made(small.made(f"a={end}"), [kernel(0, 0.0, end)], loads=loads)


def test_union_agrees_with_a_grid():
    """Whole-numbered intervals cover as many unit cells as the union is long; none cover nothing."""
    rng = np.random.default_rng(0)
    for n in [0] + 50 * [12]:
        start = rng.integers(0, 40, n)
        end = start + rng.integers(0, 6, n)
        cells = np.zeros(60, bool)
        for a, b in zip(start, end, strict=True):
            cells[a:b] = True
        assert union_length(start, end) == cells.sum()


def test_lanes_are_reused():
    """[0, 4] and [1, 2] need two lanes; [2, 3] follows in the second, [4, 5] in the first. An interval of no length
    at 2 lies between [0, 2] and [2, 5]."""
    assert lanes([0, 1, 2, 4], [4, 2, 3, 5]).tolist() == [0, 1, 1, 0]
    assert lanes([0, 2, 2], [2, 2, 5]).tolist() == [0, 0, 0]


def test_lanes_never_overlap():
    rng = np.random.default_rng(1)
    start = np.sort(rng.integers(0, 50, 200))
    end = start + rng.integers(0, 9, 200)
    lane = lanes(start, end)
    deepest = max(((start <= t) & (t < end)).sum() for t in range(60))
    assert lane.max() + 1 == deepest  # no more lanes than spans that run at once
    for k in range(lane.max() + 1):
        mine = np.flatnonzero(lane == k)
        assert (start[mine][1:] >= end[mine][:-1]).all()


MEANS = [  # loads of devices over 10 us, then SM utilization and efficiency, active warps, achieved occupancy
    # 0.5 for 4 us, 2.0 (counts 1) for 4 us, idle for 2: (2 + 4) / 10
    ([[(0, 0.5, 0, 0, 0), (4, 2.0, 0, 0, 0), (8, 0, 0, 0, 0)]], (0.6, 0.0, 0.0, 0.0)),
    # idle for 6 us, then 0.5 to the makespan: 2 / 10; what comes after the makespan does not count
    ([[(6, 0.5, 0, 0, 0)]], (0.2, 0.0, 0.0, 0.0)),
    ([[(6, 0.5, 0, 0, 0), (12, 1.0, 0, 0, 0)]], (0.2, 0.0, 0.0, 0.0)),
    # 42 of 84 SMs for 5 us hold 24 of 48 warps each, 1,008 in all: 1008 x 5 / (10 x 84) = 6 per SM of the device
    ([[(0, 1, 0, 1008, 42), (5, 0, 0, 0, 0)]], (0.5, 0.25, 6.0, 0.5)),
    # 84 SMs with 12 warps on one device at 0.8, an idle device beside it: of warps only active SMs count
    ([[(0, 0.8, 0, 84 * 12, 84)], []], (0.4, 0.5, 6.0, 0.25)),
]


@pytest.mark.parametrize(("loads", "means"), MEANS)
def test_means_by_hand(loads, means):
    trace = made([load(*pieces) for pieces in loads])
    found = trace.sm_utilization(), trace.sm_efficiency(), trace.active_warps(), trace.achieved_occupancy()
    assert found == pytest.approx(means, rel=1e-12)


def test_means_of_a_device():
    trace = made([load((0, 0.8, 0, 0, 0)), load()])
    assert trace.sm_utilization("gpu0") == pytest.approx(0.8, rel=1e-12)
    assert trace.sm_utilization("gpu1") == 0.0


def test_nothing_ran():
    """A makespan of 0 has no mean; without a grid there is no occupancy."""
    trace = made([load((0, 0, 0, 0, 0))], end=0.0)
    assert {trace.sm_utilization(), trace.sm_efficiency(), trace.active_warps(), trace.achieved_occupancy()} == {0}


def test_load_curve_ends_at_the_makespan():
    """Pieces from 2 and 6, closed by a 0 at the makespan of 10."""
    curve = made([load((2, 0.5, 0.1, 8, 3), (6, 0.7, 0.2, 9, 4))]).load_curve("gpu0")
    assert curve.time.tolist() == [2, 6, 10]
    assert (curve.sm.tolist(), curve.dram.tolist()) == ([0.5, 0.7, 0], [0.1, 0.2, 0])
    assert (curve.warps.tolist(), curve.active_sms.tolist()) == ([8, 9, 0], [3, 4, 0])


def test_simulated_utilization():
    """An operator that loads half of the device begins 8 us after its launch and takes 12 us: 0.5 x 12 / 20."""
    trace = simulated(small.made([Operator("a", time=12.0, utilization=0.5)]), "a", Cluster.preset("a40"))
    assert trace.makespan == 20.0
    assert trace.sm_utilization() == pytest.approx(0.3, rel=1e-12)
    assert trace.sm_efficiency() == pytest.approx(0.3, rel=1e-12)
    assert trace.achieved_occupancy() == 0.0


def test_simulated_occupancy():
    """84 blocks of 384 threads, one per SM: 12 of 48 warps on each from 8 us to 20 us, 12 x 12 / 20 on average."""
    graph = small.made([Operator("a", time=12.0, kernels=(Kernel(84, threads=384),))])
    trace = simulated(graph, "a", Cluster.preset("a40").replace_devices(block_spread=0.0))
    assert trace.achieved_occupancy() == pytest.approx(0.25, rel=1e-12)
    assert trace.active_warps() == pytest.approx(7.2, rel=1e-12)
    assert trace.sm_efficiency() == pytest.approx(0.6, rel=1e-12)
