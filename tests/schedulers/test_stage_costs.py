"""What `stage_latency` may be, by hand."""

from types import SimpleNamespace

import numpy as np
import pytest
from small import made, operators

import simsched as ss
from simsched.base.errors import SchedulerError, UnknownNameError
from simsched.model.costmodel import default_cost
from simsched.schedulers import SCHEDULERS, equip, schedule
from simsched.schedulers.stage_costs import StageCost, StageFormula

GRAPH = made(operators("a=10", utilization=0.75) + operators("b=4", utilization=0.5) + operators("c=6"))
CLUSTER = ss.Cluster.preset("a100")


def stage_cost(option, simulated=lambda groups: 7.0, **options):
    """What a stage costs, where the simulator would say what `simulated` says."""
    tools = SimpleNamespace(stage_latency=lambda graph, cluster, cost, *, device=None: simulated)
    return StageCost("ios", option, GRAPH, CLUSTER, default_cost, tools, CLUSTER.devices[0], **options)


def test_formula():
    """Two groups of 10 and 4 + 6 us: max(10, 10) * 1.1 + 3 = 14; one group of 10: 13."""
    cost = stage_cost(StageFormula())
    assert cost((("a",), ("b", "c"))) == pytest.approx(14.0)
    assert cost((("a",),)) == 13.0
    assert stage_cost(StageFormula(slowdown=0.0, constant=0.0))((("a",), ("b",))) == 10.0


def test_hios_sim():
    """a (10 us, 0.75) with b (4 us, 0.5): half of 14, and half of max(7.5 + 2, 10) = 10: 12.
    a with c (6 us, unknown: 1): half of 16, and half of max(7.5 + 6, 10) = 13.5: 14.75."""
    cost = stage_cost("hios-sim")
    assert cost((("a",),)) == 10.0
    assert cost((("b", "c"),)) == 10.0
    assert cost((("a",), ("b",))) == 12.0
    assert cost((("a",), ("c",))) == 14.75


def test_simulated_and_functions_are_asked_once_per_stage():
    asked = []
    cost = stage_cost("simulated", lambda groups: asked.append(groups) or 7.0)
    assert [cost((("a",), ("b",))) for _ in range(3)] == [7.0] * 3
    assert asked == [(("a",), ("b",))]
    asked.clear()
    own = stage_cost(lambda groups, merged=False: asked.append((groups, merged)) or 2.5)
    assert own((("a", "b"),), merged=True) == own((("a", "b"),), merged=True) == own((("a", "b"),)) == 2.5
    assert asked == [((("a", "b"),), True), ((("a", "b"),), False)]


def test_merged_operators_take_the_time_of_the_merged_one():
    for option in ("simulated", "hios-sim", StageFormula()):
        cost = stage_cost(option, merged_time=lambda groups: 100.0 + len(groups[0]))
        assert cost((("a", "b"),), merged=True) == 102.0


def test_table():
    cost = stage_cost({(("a",),): 1.5})
    assert cost((("a",),)) == 1.5
    with pytest.raises(SchedulerError, match=r"ios: the stage_latency table has no stage \(\('b',\),\)"):
        cost((("b",),))
    with pytest.raises(SchedulerError, match="has no merged stage"):
        cost((("b",),), merged=True)


@pytest.mark.parametrize("answer", [None, -1.0, float("nan"), True])
def test_an_answer_that_is_no_time(answer):
    with pytest.raises(SchedulerError, match=r"ios: stage_latency says .* of stage \(\('a',\),\)"):
        stage_cost(lambda groups: answer)((("a",),))


def test_what_is_no_stage_latency():
    with pytest.raises(UnknownNameError, match="measured"):
        stage_cost("measured")
    with pytest.raises(SchedulerError, match=r"ios: stage_latency must be executed, simulated, hios-sim, .* not "):
        stage_cost(np.array([1.0, 2.0]))
    with pytest.raises(SchedulerError, match="StageFormula: slowdown must be finite and not negative, not -1"):
        StageFormula(slowdown=-1)


def asking(graph, cluster, cost, *, tools, factor=1.0):
    """A scheduler that uses all of its tools."""
    plan = tools.schedule(graph, cluster, "sequential", cost)
    alone = tools.stage_latency(graph, cluster, cost)([graph.names])
    assert tools.evaluator(plan, cluster, cost).makespan == tools.makespan(plan, cluster, cost)
    return ss.Schedule(
        graph, plan.placements, estimate=factor * alone, scheduler="asking", search={"asked": 1, "time_s": 0.5}
    )


def test_tools_are_bound_by_the_front_door():
    """A chain of 10, 4 and 6 us on one stream: 20 us, and tools are no option."""
    plan = schedule(GRAPH, CLUSTER.without_overheads(), asking, factor=2.0)
    assert plan.estimate == 40.0
    assert plan.search == {"asked": 1, "time_s": 0.5}
    assert equip(asking)(GRAPH, CLUSTER, default_cost) == schedule(GRAPH, CLUSTER, asking)
    with pytest.raises(SchedulerError, match=r"scheduler 'asking' has no option 'tools'; known are: factor$"):
        schedule(GRAPH, CLUSTER, asking, tools=None)
    for function in SCHEDULERS.values():
        assert equip(function) is function
