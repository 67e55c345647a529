"""What launches ask for: whole columns at once, held equal to one kernel after the other."""

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import graphs, schedules

import simsched as ss
from simsched.cluster import footprint, occupancy
from simsched.costmodel import operator_times, placed_times, times_by_device
from simsched.errors import ClusterError, CostError
from simsched.simulator.contention import solo_units
from simsched.simulator.workload import Demand, _distinct, demand, factors, solo_units_of

A100, K80 = (ss.Cluster.preset(gpu).devices[0] for gpu in ("a100", "k80"))
MIXED = ss.Cluster(
    (
        replace(A100, name="gpu0"),
        replace(K80, name="gpu1", sm_sensitivity=0.7, dram_sensitivity=0.8, least_sm_share=0.3),
        replace(A100, name="gpu2", sms=20),
    ),
    tuple((f"gpu{i}", f"gpu{j}", ss.Link(1e4)) for i in range(3) for j in range(i)),
)
shares = st.floats(0, 1)


def described(op, kernel, device, solo):
    """The row of a kernel that takes `solo` us, from the rules as they are told."""
    fits = occupancy(device, kernel).blocks * device.sms
    need = footprint(device, kernel)
    compute, memory = op.flops / device.peak_rate(op.dtype), op.nbytes / device.bandwidth
    longer = max(compute, memory)
    compute, memory = (compute / longer, memory / longer) if longer > 0 else (1.0, 0.0)
    kind = int(memory > compute) if op.intensity is None else ("compute", "memory").index(op.intensity)
    traffic = kernel.share * op.nbytes / device.bandwidth
    row = {
        "solo": solo, "blocks": kernel.blocks, "residency": fits, "warps": need.warps, "registers": need.registers,
        "shared_memory": need.shared_memory, "kind": kind, "traffic": traffic,
        "sm_share": min(1.0, need.warps / device.saturating_warps) / device.sms
        * (max(device.least_sm_share, compute) if kind else 1.0),
        "dram_share": min(1.0, traffic / solo) / min(kernel.blocks, fits) if solo > 0 else 0.0,
        "alpha": (compute if kind else 1.0) * device.sm_sensitivity,
        "beta": (1.0 if kind else memory) * device.dram_sensitivity,
    }  # fmt: skip
    keys = ("blocks", "residency", "sm_share", "dram_share", "alpha", "beta")
    return row | {"unit": solo / solo_units(*(row[key] for key in keys))}


def plain(op, device, solo):
    """The row of an operator without a grid."""
    nothing = dict.fromkeys([field.name for field in fields(Demand)], 0)
    load = op.utilization or 0.0
    kind = -1 if op.intensity is None else ("compute", "memory").index(op.intensity)
    return nothing | {"solo": solo, "unit": solo, "sm_share": load, "alpha": (load > 0) * device.sm_sensitivity,
                      "kind": kind}  # fmt: skip


@settings(deadline=None, max_examples=150)
@given(data=st.data())
def test_columns_are_the_rows_of_each_launch(data):
    """To the last bit, on unequal devices, with and without a cost model and jitter."""
    graph = data.draw(graphs(shuffled=False))
    cost = data.draw(st.sampled_from([None, lambda op, device: 1.5 * len(op.name) + device.sms]))
    jitter = data.draw(st.sampled_from([None, 0.2, {graph.names[0]: 0.5}]))
    program = data.draw(schedules(graph, valid_order=True).filter(runs)).lower(MIXED)
    found = demand(program, MIXED, cost, jitter, 3)
    factor = factors(graph, jitter, 3)
    places = dict(zip(program.argument[program.action == 0], program.device[program.action == 0], strict=True))
    expected, row = [], 0
    for i, op in enumerate(graph.operators):
        for kernel in op.kernels or (None,):
            device = MIXED.devices[places[row]]
            time = (cost or ss.default_cost)(op, device) * factor[i]
            line = plain(op, device, time) if kernel is None else described(op, kernel, device, time * kernel.share)
            expected.append(line | {"device": places[row]})
            row += 1
    for field in fields(Demand):
        assert getattr(found, field.name).tolist() == [line[field.name] for line in expected], field.name


def runs(plan):
    try:
        plan.check()
    except ss.SimschedError:
        return False
    return True


kernel_rows = st.tuples(st.integers(1, 10**9), st.integers(1, 10**6), st.floats(0, 4), st.floats(0, 4), shares, shares)


@given(rows=st.lists(kernel_rows, min_size=1, max_size=30))
def test_solo_units_of_columns(rows):
    """The one arithmetic of a kernel alone, written for numbers and for columns."""
    assert solo_units_of(*map(np.array, zip(*rows, strict=True))).tolist() == [solo_units(*row) for row in rows]


wide = st.integers(0, 3) | st.integers(2**53 - 3, 2**53)


@given(rows=st.lists(st.tuples(wide, wide, wide, wide), min_size=1, max_size=20))
def test_distinct_rows(rows):
    """Also where the columns together are too wide for one key of 64 bits."""
    first, number = _distinct([np.array(column) for column in zip(*rows, strict=True)])
    assert [rows[i] for i in first[number]] == rows
    assert sorted(first.tolist()) == sorted({rows.index(row) for row in rows})


def test_traffic_gives_the_load_of_another_time():
    """A time three times as long moves the same bytes: `dram_share` follows from `traffic`, blocks and residency."""
    kernels = (ss.Kernel(50_000, share=0.5), ss.Kernel(7, share=0.5))
    graph = ss.OpGraph([ss.Operator("a", nbytes=1e6, time=10.0, kernels=kernels), ss.Operator("b", time=1.0)])
    program = ss.Schedule(graph, [ss.Placement(n) for n in "ab"]).lower(ss.Cluster.preset("a100"))
    cluster = ss.Cluster.preset("a100")
    once, thrice = demand(program, cluster, None), demand(program, cluster, lambda op, _: 3.0 * op.time)
    assert once.traffic.tolist() == thrice.traffic.tolist() == [0.5 * 1e6 / A100.bandwidth] * 2 + [0.0]
    assert once.residency.tolist() == [864, 864, 0]
    assert thrice.dram_share[:2].tolist() == [once.traffic[0] / 15 / 864, once.traffic[1] / 15 / 7]


# Kernels that fit nowhere ------------------------------------------------------------------------


def unfit():
    """Of four operators b and d fit on no SM, d for another reason."""
    ops = [ss.Operator(n, time=8.0, utilization=0.5, kernels=(ss.Kernel(9, *shape),)) for n, shape in
           {"a": (64,), "b": (1024, 255), "c": (64,), "d": (64, 32, 2**40)}.items()]  # fmt: skip
    return ss.Schedule(ss.OpGraph(ops), [ss.Placement(op.name) for op in ops]).lower(ss.Cluster.preset("a100"))


def test_the_first_that_does_not_fit_is_named():
    with pytest.raises(ClusterError, match=r"^operator 'b': a block of 1024 threads, 255 registers .*\(registers\)$"):
        demand(unfit(), ss.Cluster.preset("a100"), None)


def test_what_does_not_fit_may_be_let_through():
    """No residency, no end; of the rest of the row what an operator without a grid would have."""
    found = demand(unfit(), ss.Cluster.preset("a100"), None, refuse_unfit=False)
    assert found.residency[[1, 3]].tolist() == found.blocks[[1, 3]].tolist() == found.traffic[[1, 3]].tolist() == [0, 0]
    assert found.unit[[1, 3]].tolist() == [np.inf] * 2
    assert found.solo.tolist() == [8.0] * 4
    assert found.sm_share[[1, 3]].tolist() == [0.5, 0.5]
    assert (found.residency[[0, 2]] > 0).all()


# Times -------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=100)
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
    program = ss.Schedule(
        ss.OpGraph(ops), [ss.Placement(n, d) for n, d in zip("abc", ("gpu1", "gpu0", "gpu1"), strict=True)]
    )
    asked = []

    def cost(op, device):
        asked.append((op.name, device.name))
        return {"gpu0": 2.0, "gpu1": 6.0}[device.name]

    assert demand(program.lower(MIXED), MIXED, cost).solo.tolist() == [3.0, 3.0, 1.0, 1.0, 3.0, 3.0]
    assert sorted(asked) == [("a", "gpu1"), ("b", "gpu0"), ("c", "gpu1")]
    with pytest.raises(CostError, match=r"the cost model says operator 'b' takes nan us on a100"):
        placed_times(
            program.graph, MIXED, np.arange(3), np.array([1, 0, 1]), lambda op, _: np.nan if op.name == "b" else 1
        )


# Factors -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("jitter", [None, 0.0, 0.3, {"op1": 0.2, "op6": 1.0}])
@pytest.mark.parametrize("n", [0, 1, 5])
def test_factors_of_many_runs_are_those_of_one_after_the_other(jitter, n):
    graph = ss.OpGraph([ss.Operator(f"op{i}") for i in range(7)])
    one, many = np.random.default_rng(4), np.random.default_rng(4)
    rows = [factors(graph, jitter, one).tolist() for _ in range(n)]
    found = factors(graph, jitter, many, n)
    assert found.shape == (n, 7)
    assert found.tolist() == rows
    assert one.random() == many.random()


def test_columns_that_do_not_vary_take_no_room():
    """A thousand operators without kernels on one device: device, time, and nothing else."""
    graph = ss.OpGraph.from_columns([f"o{i}" for i in range(1000)], [], [], time=np.arange(1000) * 1.0)
    program = ss.Schedule.from_columns(graph, np.arange(1000), ["gpu0"]).lower(ss.Cluster.preset("a100"))
    found = demand(program, ss.Cluster.preset("a100"), None)
    stored = {id(c): c.nbytes for c in (getattr(found, field.name) for field in fields(Demand)) if c.strides != (0,)}
    assert sum(stored.values()) <= 3 * 8 * 1000
