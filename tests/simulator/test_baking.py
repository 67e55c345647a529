"""Schedules with the times of a cost model written in, and graphs made of the columns of others."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from small import edges, made, placements
from strategies import graphs

from simsched.model import Cluster, Schedule
from simsched.model.graph.beside import side_by_side
from simsched.model.graph.rearranged import with_times
from simsched.schedulers import schedule
from simsched.simulator import simulate
from simsched.simulator.demand import bake, placed_operator_times

PAIR = Cluster.preset("a100", 2)


def by_device(op, device):
    """As many us as the name is long, ten times as many on any device but the first."""
    return len(op.name) * (1.0 if device.name == "gpu0" else 10.0)


def test_times_are_those_of_the_device_that_an_operator_is_placed_on():
    """b is on gpu1: 2 us for "bb" become 20; launch order and the order of devices of the plan do not matter."""
    plan = Schedule(made("a=5 bb=1 ccc=1", "a-bb=8"), placements("ccc a bb/1@1"))
    assert placed_operator_times(plan, PAIR, by_device).tolist() == [1.0, 20.0, 3.0]
    assert placed_operator_times(plan.lower(PAIR), PAIR, by_device).tolist() == [1.0, 20.0, 3.0]
    written = bake(plan, PAIR, by_device)
    assert [op.time for op in written.graph.operators] == [1.0, 20.0, 3.0]
    assert simulate(written, PAIR).makespan == simulate(plan, PAIR, by_device).makespan
    assert bake(written, PAIR, None) is written


@given(graphs(max_ops=6), st.sampled_from(["heft", "round-robin", "hios-lp"]))
@settings(max_examples=15)
def test_what_is_written_in_needs_no_cost_model(graph, name):
    plan = schedule(graph, PAIR, name)
    written = bake(plan, PAIR, None)
    assert simulate(written, PAIR, lambda op, device: op.time).makespan == simulate(plan, PAIR).makespan
    rows = with_times(graph, np.where(np.isnan(graph.time), 3.0, graph.time)).operators
    assert [op.time for op in rows] == [3.0 if op.time is None else op.time for op in graph.operators]
    known = with_times(with_times(graph, np.ones(len(graph))), graph.time)
    assert known == graph  # shapes, attributes and kernels included


def test_copies_of_a_graph_stand_beside_each_other():
    found = side_by_side(made("a=5 b=5", "ab=4:2"), np.array([1.0, 2.0]), 2, np.array([7.0]))
    assert (found.name, found.names) == ("graph", ("a@0", "b@0", "a@1", "b@1", "begin 0"))
    assert found.time.tolist() == [1.0, 2.0, 1.0, 2.0, 7.0]
    assert list(found.edges) == edges("a@0-b@0=4:2 a@1-b@1=4:2")
