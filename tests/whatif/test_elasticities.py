"""Elasticities of the makespan."""

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small import made, placements
from strategies import clusters, shapes

import simsched as ss
from simsched.experiments.whatif.whatif import numeric_parameters, sensitivity, what_if

A100 = ss.Cluster.preset("a100")
CHAIN = made("a=30 b=10", "ab")


def of(found, parameter):
    """The row of a parameter."""
    return next(row for row in found.rows if row.parameter == parameter)


def test_a_chain_responds_in_proportion_to_shares():
    """conv 60 us and pool 30 us, between devices a copy of 4 us + 1000 bytes at 200: 99 us in all.

    A speed s divides its time: d ln M / d ln s = -time / M; a latency counts as itself, a bandwidth like a speed.
    """
    graph = made([ss.Operator("a", "conv", time=60.0), ss.Operator("b", "pool", time=30.0)], "ab=1000")
    cluster = ss.Cluster.preset("k80", 2).without_overheads().replace_links(bandwidth=200.0, latency=2.0)
    found = sensitivity(ss.Schedule(graph, placements("a b@1")), cluster, per_operator=True)
    makespan = found.base_us
    latency = makespan - 60 - 30 - 5  # of all links on the way
    expected = {
        "operators.speed": -90,
        "operators.conv.speed": -60,
        "operators.pool.speed": -30,
        "operator.a.speed": -60,
        "operator.b.speed": -30,
        "link.bandwidth": -5,
        "link.latency": latency,
    }
    for name, us in expected.items():
        assert of(found, name).elasticity == pytest.approx(us / makespan, rel=1e-4), name
    row = of(found, "operators.conv.speed")
    assert (row.low, row.high) == (0.8, 1.2)
    assert (row.low_us, row.high_us) == (pytest.approx(makespan + 15), pytest.approx(makespan - 10))
    sizes = [abs(row.elasticity) for row in found.rows]
    assert sizes == sorted(sizes, reverse=True)
    assert found.rows[0].parameter == "operators.speed"


@settings(max_examples=12)
@given(
    shape=shapes(max_ops=7),
    cluster=clusters(max_gpus=2),
    name=st.sampled_from(["heft", "greedy", "nimble"]),
    seed=st.integers(0, 2**32),
)
def test_what_takes_time_adds_up_to_one(shape, cluster, name, seed):
    """Makespans are homogeneous of degree 1 in all times: twice the times take twice as long, and Euler's rule holds.

    Times drawn from a continuum keep the point off the kinks of max(), so a tiny step sees one side of them alone.
    """
    draw = np.random.default_rng(seed).uniform
    graph = ss.OpGraph(
        [ss.Operator(op.name, time=draw(5, 50), utilization=draw(0.1, 1)) for op in shape.operators],
        [ss.Edge(edge.src, edge.dst, nbytes=draw(1e4, 1e6)) for edge in shape.edges],
    )
    plan = ss.schedule(graph, cluster, name)
    asked = what_if(plan, cluster)
    twice = asked.operators(speed=0.5).overhead(2.0)
    signs = {"operators.speed": -1, "overhead": 1}
    if len(cluster) > 1:
        twice = twice.link(bandwidth=0.5, latency=2.0)
        signs |= {"link.bandwidth": -1, "link.latency": 1}
    assert twice.makespan == pytest.approx(2 * asked.makespan)
    with patch(f"{sensitivity.__module__}._STEP", 1e-6):
        found = sensitivity(asked, parameters=list(signs))
    assert sum(sign * of(found, parameter).elasticity for parameter, sign in signs.items()) == pytest.approx(
        1, abs=1e-3
    )


def test_a_kink_lies_between_its_sides():
    """Two operators of 10 us side by side: slower, either sets the makespan; quicker, the other does: -1/2 each."""
    plan = ss.Schedule(made("a=10 b=10"), placements("a b/1"))
    found = sensitivity(plan, A100.without_overheads(), per_operator=True)
    assert of(found, "operator.a.speed").elasticity == pytest.approx(-0.5, rel=0.02)
    assert of(found, "operators.speed").elasticity == pytest.approx(-1)
    assert (of(found, "operator.a.speed").low_us, of(found, "operator.a.speed").high_us) == (12.5, 10.0)


def test_whole_numbers_move_by_one_and_parts_by_what_there_is():
    """One per cent of 108 SMs is one; of 2 connections nothing but 1 and 3; 0.9 of the slots go no further than 1."""
    graph = ss.OpGraph([ss.Operator("a", flops=1e10)])
    cluster = A100.replace_devices(connections=2, interleave=0.9)
    plan = ss.schedule(graph, cluster, "lios")
    found = sensitivity(plan, cluster, parameters=["device.sms", "device.connections", "device.interleave"])
    assert (of(found, "device.connections").low, of(found, "device.connections").high) == (0.5, 1.5)
    sms = of(found, "device.sms")
    assert (sms.low, sms.high) == (86 / 108, 130 / 108)
    asked = what_if(plan, cluster)
    at = {n: asked.device(sms=ss.absolute(n)).makespan for n in (86, 107, 109, 130)}
    assert (sms.low_us, sms.high_us) == (at[86], at[130])
    assert sms.elasticity == pytest.approx(np.log(at[109] / at[107]) / np.log(109 / 107))
    row = of(found, "device.interleave")
    assert (row.low, row.high, row.high_us) == (0.8, 1.0, found.base_us)


def test_what_is_zero_moves_nothing():
    found = sensitivity(ss.schedule(CHAIN, A100, "lios"), A100.without_overheads(), parameters=["overhead.launch"])
    assert [(row.elasticity, row.low_us) for row in found.rows] == [(0.0, found.base_us)]


def test_a_question_keeps_its_changes():
    """Launches of 40 us make the host slower than operators of 30 and 10 us: 40 + 40 + 10, then nothing but they."""
    plan = ss.schedule(CHAIN, A100, "sequential")
    asked = what_if(plan, A100.without_overheads()).overhead(launch=ss.absolute(40.0))
    found = asked.sensitivity()
    assert found.base_us == 90.0
    assert of(found, "overhead.launch").elasticity == pytest.approx(80 / 90, rel=1e-4)
    assert [row.parameter for row in found.rows[:2]] == ["overhead", "overhead.launch"]
    assert {row.parameter for row in found.rows} == set(numeric_parameters(asked))


def test_bars_reach_from_the_makespan_in_its_unit():
    """30 and 10 ms in a row: 40 ms, 50 at 0.8 times the speed, 33.3 at 1.2 times it."""
    plan = ss.schedule(made("a=30e3 b=10e3", "ab"), A100, "lios")
    ax = sensitivity(plan, A100.without_overheads(), parameters=["operators.speed"]).plot()
    assert [(bar.get_x(), bar.get_width()) for bar in ax.patches] == [(40.0, 10.0), (40.0, pytest.approx(-20 / 3))]
    assert (ax.get_xscale(), ax.get_xlabel()) == ("linear", "makespan (ms)")
    assert [label.get_text() for label in ax.get_yticklabels()] == ["operators.speed"]
    assert ax.figure.get_suptitle() == "graph on a100: makespan 40.000 ms"
    (legend,) = ax.figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["parameter at 80 %", "parameter at 120 %"]
