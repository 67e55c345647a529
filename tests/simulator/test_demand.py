"""What launches ask for, as whole columns at once."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from small import placements
from strategies import graphs

import simsched as ss
from simsched.base.errors import ClusterError, CostError
from simsched.model import operator_times, times_by_device
from simsched.simulator.demand import demand, demand_of, solo_units

ONE = ss.Cluster.preset("a100")
(A100,), (K80,) = ONE.devices, ss.Cluster.preset("k80").devices
MIXED = ss.Cluster(
    (
        replace(A100, name="gpu0"),
        replace(K80, name="gpu1", kernel_latency=1.5, block_spread=0.02, least_sm_share=0.3),
        replace(A100, name="gpu2", sms=20),
    ),
    tuple((f"gpu{i}", f"gpu{j}", ss.Link(1e4)) for i in range(3) for j in range(i)),
)


def test_kernels_by_themselves():
    """Blocks on 10 SMs that hold a block each, the load and the spread of one, and the time in units of one."""
    rows = [
        (10, 1.0, 0.0, 1.0),
        (15, 1.0, 0.0, 2.0),  # a full wave and a half one
        (100, 0.5, 0.0, 10.0),  # ten waves, most of them passed over at once
        (20, 2.0, 0.0, 4.0),  # each SM is loaded twice over
        (10, 1.0, 0.1, 1.1125),  # 3 end late, by 1.5 x 0.1 x 9 / 12
        (1, 1.0, 0.1, 1.0),  # nothing to spread
    ]
    blocks, load, spread, units = (np.array(column) for column in zip(*rows, strict=True))
    ten = np.full(len(blocks), 10)
    assert solo_units(blocks, ten, ten, load, spread) == pytest.approx(units)


def test_loads_of_another_time():
    """A time three times as long moves the same bytes: `dram_share` follows from `traffic`, blocks and residency."""
    kernels = (ss.Kernel(50_000, share=0.5), ss.Kernel(7, share=0.5))
    ops = [ss.Operator("a", flops=1e8, nbytes=1e6, time=10.0, kernels=kernels), ss.Operator("b", time=1.0)]
    program = ss.Schedule(ss.OpGraph(ops), placements("a b")).lower(ONE)
    once, thrice = demand(program, ONE, None), demand(program, ONE, lambda op, _: 3.0 * op.time)
    assert once["traffic"].tolist() == thrice["traffic"].tolist()
    per_block = 0.5 * 1e6 / A100.bandwidth * once["units"][:2] / [50_000, 7]
    assert once["traffic"].tolist() == pytest.approx([*per_block, 0.0])
    assert once["residency"].tolist() == [864, 864, 0]
    assert thrice["dram_share"][:2].tolist() == pytest.approx(once["traffic"][:2] / 15)


# Kernels that fit nowhere ------------------------------------------------------------------------


def unfit():
    """Of four operators b and d fit on no SM, d for another reason."""
    shapes = {"a": (64,), "b": (1024, 255), "c": (64,), "d": (64, 32, 2**40)}
    ops = [ss.Operator(n, time=8.0, utilization=0.5, kernels=(ss.Kernel(9, *shape),)) for n, shape in shapes.items()]
    return ss.Schedule(ss.OpGraph(ops), placements("a b c d")).lower(ONE), ONE


def test_the_first_that_does_not_fit_is_named():
    with pytest.raises(ClusterError, match=r"^operator 'b': a block of 1024 threads, 255 registers .*\(registers\)$"):
        demand(*unfit(), None)


def test_what_does_not_fit_may_be_let_through():
    """No residency, no end; of the rest of the row what an operator without a grid would have."""
    program, cluster = unfit()
    found = demand_of(program.graph, program.launches, cluster, np.zeros(4, int), np.full(4, 8.0), refuse_unfit=False)
    rows = found[["residency", "blocks", "traffic", "unit", "sm_share"]][[1, 3]].tolist()
    assert rows == [(0, 0, 0.0, np.inf, 0.5)] * 2
    assert found["solo"].tolist() == [8.0] * 4
    assert (found["residency"][[0, 2]] > 0).all()


# Times -------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=50)
@given(graph=graphs())
def test_rooflines_of_columns(graph):
    """The default cost of each operator on each device, to the last bit."""
    for device, times in zip(MIXED.devices, times_by_device(graph, MIXED), strict=True):
        expected = [ss.default_cost(op, device) for op in graph.operators]
        assert operator_times(graph, device).tolist() == times.tolist() == expected
        some = np.arange(len(graph))[::-2]
        assert operator_times(graph, device, ops=some).tolist() == [expected[i] for i in some]


def test_equal_devices_share_their_times():
    cluster = ss.Cluster.preset("h100", n_gpus=64)
    graph = ss.OpGraph([ss.Operator("a", flops=1e9)])
    assert len({id(times) for times in times_by_device(graph, cluster)}) == 1


def test_a_cost_model_is_asked_where_operators_run():
    """Once for each operator and its device, however many kernels it has; an answer elsewhere does not matter."""
    ops = [ss.Operator(n, kernels=(ss.Kernel(1, share=0.5), ss.Kernel(1, share=0.5))) for n in "abc"]
    program = ss.Schedule(ss.OpGraph(ops), placements("a@1 b c@1"))
    asked = []

    def cost(op, device):
        asked.append((op.name, device.name))
        return {"gpu0": 2.0, "gpu1": 6.0}[device.name]

    assert demand(program.lower(MIXED), MIXED, cost)["solo"].tolist() == [3.0, 3.0, 1.0, 1.0, 3.0, 3.0]
    assert sorted(asked) == [("a", "gpu1"), ("b", "gpu0"), ("c", "gpu1")]
    with pytest.raises(CostError, match=r"the cost model says operator 'b' takes nan us on a100"):
        demand(program.lower(MIXED), MIXED, lambda op, _: np.nan if op.name == "b" else 1)
