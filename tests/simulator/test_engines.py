"""Choosing an engine through `simulate`."""

import pytest
from small import made, placements

import simsched as ss

PLAN, CLUSTER = ss.Schedule(made("a=1"), placements("a")), ss.Cluster.preset("a100")


def test_the_compiled_engine_is_the_usual_one():
    """Its trace makes spans when they are asked for; the reference makes them at once."""
    found = {engine: "start" in vars(ss.simulate(PLAN, CLUSTER, engine=engine)) for engine in ("auto", "reference")}
    assert found == {"auto": False, "reference": True}


def test_a_schedule_is_lowered_once():
    first = PLAN.lower(CLUSTER)
    assert ss.simulate(PLAN, CLUSTER).program is ss.simulate(PLAN, CLUSTER).program is first
    assert PLAN.lower(CLUSTER, events="literal") is not first
    assert ss.simulate(PLAN, CLUSTER.without_overheads()).makespan < ss.simulate(PLAN, CLUSTER).makespan
    with pytest.raises(ValueError, match="read-only"):
        first.action[0] = 1


def test_unknown_engine():
    with pytest.raises(ss.SimschedError, match="unknown engine 'gpu'; known are: auto, compiled, reference"):
        ss.simulate(PLAN, CLUSTER, engine="gpu")
