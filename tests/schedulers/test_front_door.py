"""`schedule`: schedulers by name, by function, by path; options; and what is made of what they return."""

import sys
from functools import partial

import pytest

from simsched.base.errors import CostError, ScheduleError, SchedulerError, UnknownNameError
from simsched.model import Cluster, Edge, Operator, OpGraph, Placement, Schedule
from simsched.schedulers import SCHEDULERS, resolve, schedule, scheduler_name

GRAPH = OpGraph(
    [Operator("a", time=3.0), Operator("b", time=5.0), Operator("c", time=4.0)], [Edge("a", "b"), Edge("a", "c")]
)
CLUSTER = Cluster.preset("a100", 2)


def backwards(graph, cluster, cost):
    """An invalid schedule: readers first."""
    return Schedule(graph, [Placement(name) for name in reversed(graph.order)])


def one_by_one(graph, cluster, cost, *, device="gpu0"):
    return Schedule(graph, [Placement(name, device) for name in graph.order], estimate=12.0, scheduler="mine")


class Callable:
    def __call__(self, graph, cluster, cost):
        return one_by_one(graph, cluster, cost)


def test_unknown_scheduler_lists_the_closest():
    with pytest.raises(UnknownNameError) as caught:
        schedule(GRAPH, CLUSTER, "heft2")
    known = len(SCHEDULERS) + 1  # and package.module:function
    assert str(caught.value).startswith(f"unknown scheduler 'heft2'; closest of {known} known: heft, ")


def test_a_function_of_the_user():
    assert schedule(GRAPH, CLUSTER, one_by_one).placements[0] == Placement("a", "gpu0")
    assert schedule(GRAPH, CLUSTER, one_by_one, device="gpu1").devices_used == ("gpu1",)
    assert schedule(GRAPH, CLUSTER, Callable()).estimate == 12.0
    assert schedule(GRAPH, CLUSTER, partial(one_by_one, device="gpu1")).devices_used == ("gpu1",)


def test_names():
    assert [scheduler_name(function) for function in SCHEDULERS.values()] == list(SCHEDULERS)
    assert scheduler_name("lios") == "lios"
    assert scheduler_name(one_by_one) == "one_by_one"
    assert scheduler_name(Callable()) == "Callable"
    assert scheduler_name(partial(one_by_one, device="gpu1")) == "partial"


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A package of the user's with a scheduler, and modules that fail."""
    (tmp_path / "my_sched.py").write_text(
        "from simsched.model.plan import Placement\nfrom simsched.model.schedule import Schedule\n"
        "def mine(graph, cluster, cost):\n"
        "    return Schedule(graph, [Placement(n) for n in graph.order], scheduler='mine')\n"
        "number = 3\n"
    )
    (tmp_path / "my_broken.py").write_text("raise RuntimeError('out of luck')\n")
    (tmp_path / "my_typo.py").write_text("def mine(:\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    for name in ("my_sched", "my_broken", "my_typo"):
        sys.modules.pop(name, None)


def test_a_scheduler_by_path(module):
    assert schedule(GRAPH, CLUSTER, "my_sched:mine").scheduler == "mine"
    assert resolve("simsched.schedulers.lios:lios") is SCHEDULERS["lios"]
    assert scheduler_name("my_sched:mine") == "my_sched:mine"


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("my_sched:nothing", "has no attribute 'nothing'"),
        ("my_missing:mine", "No module named 'my_missing'"),
        ("my_broken:mine", "out of luck"),
        ("my_typo:mine", "invalid syntax"),
        (":mine", ""),
        ("my_sched:", ""),
    ],
)
def test_a_path_that_leads_nowhere(module, path, reason):
    with pytest.raises(SchedulerError, match=f"cannot import scheduler '{path}': .*{reason}"):
        schedule(GRAPH, CLUSTER, path)


def test_a_path_to_no_function(module):
    with pytest.raises(SchedulerError, match="'my_sched:number' is not a function"):
        schedule(GRAPH, CLUSTER, "my_sched:number")


@pytest.mark.parametrize("junk", [5, None, object()])
def test_what_cannot_be_called(junk):
    with pytest.raises(SchedulerError, match="not a function"):
        schedule(GRAPH, CLUSTER, junk)


def test_a_function_without_a_signature():
    """`dict` is one that Python knows no parameters of: it cannot be asked for its options, only called."""
    with pytest.raises((SchedulerError, TypeError)):
        schedule(GRAPH, CLUSTER, "builtins:dict")


@pytest.mark.parametrize("junk", [None, 3, [], {"a": 0}, "schedule"])
def test_a_scheduler_that_returns_junk(junk):
    with pytest.raises(ScheduleError, match=f"scheduler '<lambda>' returned {type(junk).__name__}, not a Schedule"):
        schedule(GRAPH, CLUSTER, lambda graph, cluster, cost: junk)


def test_a_scheduler_that_returns_an_invalid_schedule():
    with pytest.raises(ScheduleError, match="it is launched before 'a', which it reads from"):
        schedule(GRAPH, CLUSTER, backwards)
    with pytest.raises(ScheduleError, match="unknown device 'gpu9'"):
        schedule(GRAPH, CLUSTER, one_by_one, device="gpu9")


def test_a_scheduler_may_rewrite_the_graph():
    def fused(graph, cluster, cost):
        return Schedule(OpGraph([Operator("abc", time=6.0)]), [Placement("abc")])

    assert schedule(GRAPH, CLUSTER, fused).graph.names == ("abc",)


def test_unknown_options():
    with pytest.raises(SchedulerError, match="scheduler 'lios' has no option 'strems'; known are: streams"):
        schedule(GRAPH, CLUSTER, "lios", strems=3)
    with pytest.raises(SchedulerError, match="scheduler 'sequential' has no option 'streams'; known are: none"):
        schedule(GRAPH, CLUSTER, "sequential", streams=3)
    with pytest.raises(SchedulerError, match="scheduler 'one_by_one' has no option 'gpu'; known are: device"):
        schedule(GRAPH, CLUSTER, one_by_one, gpu=3)


def test_an_option_that_is_required():
    def mine(graph, cluster, cost, *, need):
        return one_by_one(graph, cluster, cost)

    assert len(schedule(GRAPH, CLUSTER, mine, need=1)) == 3
    with pytest.raises(SchedulerError, match="need"):
        schedule(GRAPH, CLUSTER, mine)


@pytest.mark.parametrize("answer", [float("nan"), -1.0, float("inf"), None, "3"])
@pytest.mark.parametrize("name", ["sequential", "lios", "inter-lp"])
def test_a_cost_model_that_answers_junk(name, answer):
    if answer == "3":
        answer = "three"
    with pytest.raises(CostError, match=r"the cost model says operator 'a' takes .* us on a100"):
        schedule(GRAPH, CLUSTER, name, lambda op, device: answer)
