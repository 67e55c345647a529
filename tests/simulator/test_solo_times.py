"""An operator alone takes exactly its time, whatever is known of it and wherever it runs."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hand_made import DEVICE, assert_times, grid, hand_made, operators, run, side_by_side

import simsched as ss
from simsched.model.cluster import DEVICES

pytestmark = pytest.mark.usefixtures("both_engines")

# of which 10 are resident at once, of 1,024 threads: from part of a wave to many
GRIDS = (7, 10, 15, 101, 123_457)
each_preset = pytest.mark.parametrize("gpu", DEVICES)


def takes(time, op, cluster=None):
    """Check that an operator alone takes so long."""
    assert_times(run([op], [], None, cluster or hand_made()), **{op.name: (0, time)})


@pytest.mark.parametrize("time", [1e-12, 0.1, 7.0, 1e12])
def test_alone(time):
    """Nothing else runs: D = 1. W = ceil(N / 10) waves take W x unit, and unit = time / W."""
    for utilization in (None, 0.01, 0.3, 1.0):
        takes(time, ss.Operator("a", time=time, utilization=utilization))
    for blocks in GRIDS:
        takes(time, grid("a", blocks, time))


@pytest.mark.parametrize("blocks", GRIDS)
def test_one_kernel_that_saturates_itself(blocks):
    """Where 2 warps keep an SM busy, each block loads one, 0.1 of the device, and 40 fit: full waves run at D = 4.

    For N = 101: two waves of 40 at D = 4, then 21 blocks at D = 2.1: a unit is 9 / 10.1 us.
    """
    for threads in (256, 64):
        takes(9, grid("a", blocks, 9.0, threads), hand_made(saturating_warps=2.0))


@pytest.mark.parametrize("fields", [{"nbytes": 9e3}, {"nbytes": 5e4}, {"nbytes": 3e3, "flops": 5e3}, {"flops": 9e3}])
@pytest.mark.parametrize("intensity", [None, "compute", "memory"])
def test_one_kernel_with_traffic(fields, intensity):
    """Traffic beyond what DRAM could move in the time counts as a load of 1: it cannot slow the kernel itself."""
    cluster = hand_made(saturating_warps=7.0, interference=((0.5, 0.5), (0.5, 0.5)))
    takes(9, grid("a", 45, 9.0, 256, intensity=intensity, **fields), cluster)


def test_several_kernels():
    """Shares 0.25, 0.5 and 0.25 of 12 us follow each other without a gap: 0-3, 3-9, 9-12."""
    kernels = (ss.Kernel(15, 1024, share=0.25), ss.Kernel(3, 96, share=0.5), ss.Kernel(999, share=0.25))
    trace = run([ss.Operator("a", time=12.0, kernels=kernels)], [], "a", hand_made(gap=5.0))
    found = [(span.start, span.end) for span in trace.spans]
    assert found == [pytest.approx(pair, rel=1e-9) for pair in [(0, 3), (3, 9), (9, 12)]]
    assert_times(trace, a=(0, 12))


@pytest.mark.parametrize("fields", [{}, {"utilization": 1.0}, {"kernels": (ss.Kernel(99),)}])
def test_no_time(fields):
    """An operator of 0 us between two of 3 us: 0-3, 3-3, 3-6."""
    ops = [ss.Operator("a", time=3.0), ss.Operator("b", time=0.0, **fields), ss.Operator("c", time=3.0)]
    assert_times(run(ops, "ab bc", "a b c", hand_made()), a=(0, 3), b=(3, 3), c=(3, 6))


def test_nothing_takes_time():
    """Two operators of 0 us without overheads: the makespan is 0, and so is the blame."""
    assert side_by_side("a=0 b=0#7", hand_made()).makespan == 0.0


@each_preset
@pytest.mark.parametrize("execution", ["events", "stages", "graph"])
def test_presets_with_all_overheads(gpu, execution):
    """One after the other with launches and gaps around them, each kernel lasts its own time."""
    large = ss.Operator("large", time=91.0, kernels=(ss.Kernel(100_001, 128, 64, 4096),), flops=1e9, nbytes=1e7)
    ops = [*operators("plain=7.3 load=11.1%0.7 small=5.7#3x128"), large, grid("memory", 12_345, 33.0, 512, nbytes=1e7)]
    edges = [ss.Edge(a.name, b.name) for a, b in pairwise(ops)]
    trace = run(ops, edges, "plain load small large memory", ss.Cluster.preset(gpu), execution)
    found = {span.op: span.duration for span in trace.spans if span.kind == "kernel"}
    assert found == pytest.approx({op.name: op.time for op in ops}, rel=1e-9)


@each_preset
def test_roofline_is_reproduced(gpu):
    """Without `time` the roofline says how long an operator takes, and alone it takes that long."""
    op = ss.Operator("a", kernels=(ss.Kernel(5_000, share=0.3), ss.Kernel(70, share=0.7)), flops=3e9, nbytes=2e7)
    cluster = ss.Cluster.preset(gpu).without_overheads()
    takes(ss.roofline(op, cluster.devices[0]), op, cluster)


def test_a_cost_model_replaces_the_time():
    """A model that says 4 us overrules a `time` of 9 us."""
    assert_times(run("a=9#15", [], "a", hand_made(), cost=lambda op, device: 4.0), a=(0, 4))


def test_devices_of_one_model_may_differ():
    """20 SMs hold 20 blocks at once: beside a device of the same model with 10 SMs, b still takes one wave.

    b fills its 20 SMs from 0 to 10, c waits for all of them: 10-20.
    """
    devices = (replace(DEVICE, name="gpu0"), replace(DEVICE, name="gpu1", sms=20))
    trace = run("a=10#10 b=10#20 c=10#20", [], "a b@1 c/1@1", ss.Cluster(devices))
    assert_times(trace, a=(0, 10), b=(0, 10), c=(10, 20))
