"""What bounds a schedule, in words, and what would help."""

import pytest

import simsched as ss
import workloads
from simsched.whatif.explain import explain
from simsched.whatif.question import what_if

A100 = ss.Cluster.preset("a100")
BARE = A100.without_overheads()


def chain(n, time):
    ops = [ss.Operator(f"v{i}", "conv", time=time) for i in range(n)]
    return ss.OpGraph(ops, [ss.Edge(f"v{i}", f"v{i + 1}") for i in range(n - 1)], name="chain")


def test_a_chain_is_bound_by_its_operators():
    """Three operators of 10 us in a row: 30 us, the bound; only quicker operators help, by half."""
    found = explain(ss.schedule(chain(3, 10.0), BARE, "sequential"), BARE)
    assert (found.makespan_us, found.bound_us) == (30.0, 30.0)
    assert found.blame["compute"] == 30.0
    assert str(explain(ss.schedule(chain(3, 10.0), BARE, "sequential"), BARE)) == str(found)
    text = str(found)
    assert "runs 3 operators of chain on 1 stream of 1 device of a100" in text
    assert "100% is kernels computing" in text
    assert "this one takes 1.00 times that" in text
    assert "bound by its own critical path" in text
    (best,) = found.suggestions
    assert best.text == "make operators of kind conv twice as quick"
    assert (best.makespan_us, best.gain, best.doable) == (15.0, 0.5, False)


def test_a_launch_bound_plan_is_bound_by_the_host():
    """Ten operators of 1 us, a launch of 4 us each: 41 us.

    Free launches: 10 us; and a captured graph costs nothing here.
    """
    cluster = BARE.replace_devices(launch=4.0)
    found = explain(ss.schedule(chain(10, 1.0), cluster, "sequential"), cluster)
    assert found.makespan_us == 41.0
    assert "bound by the host" in str(found)
    gains = {each.text: (each.makespan_us, each.doable) for each in found.suggestions}
    assert gains["capture it as a graph and launch that as a whole"] == (10.0, True)
    assert gains["make launches free"] == (10.0, False)
    assert found.suggestions[0].gain == pytest.approx(31 / 41)


def test_something_to_do_is_always_among_the_three():
    """Three wishes gain more than what the plan could do, which takes the place of the third of them."""
    graph = workloads.load("inception_v3")
    plan = ss.schedule(graph, A100, "lios")
    found = explain(plan, A100)
    assert len(found.suggestions) == 3
    assert [each.doable for each in found.suggestions].count(True) >= 1
    assert all(each.gain >= 0.005 for each in found.suggestions)
    for each in found.suggestions:
        if each.text.startswith("capture"):
            assert each.makespan_us == what_if(plan, A100).execution("graph").makespan


def test_copies_and_stages_are_named():
    graph = ss.OpGraph([ss.Operator("a", time=10.0), ss.Operator("b", time=10.0)], [ss.Edge("a", "b", nbytes=1e6)])
    cluster = ss.Cluster.preset("k80", 2).without_overheads()
    found = explain(ss.Schedule(graph, [ss.Placement("a"), ss.Placement("b", "gpu1")]), cluster)
    assert "bound by copies between devices" in str(found)
    assert found.suggestions[0].text.startswith("schedule it with")
    assert found.suggestions[0].makespan_us == 20.0
    assert any(each.text == "make links twice as wide" for each in found.suggestions)
    wide = BARE.replace_devices(barrier=50.0)
    both = ss.OpGraph([ss.Operator(n, time=10.0) for n in "abcd"], [ss.Edge("a", "c"), ss.Edge("b", "d")])
    rows = [ss.Placement(n, stream=i % 2, stage=i // 2, group=i % 2) for i, n in enumerate("abcd")]
    found = explain(ss.Schedule(both, rows, "stages"), wide)
    assert found.makespan_us == 70.0
    assert {each.makespan_us for each in found.suggestions} == {20.0}
    assert "in stages" in str(found)


def test_nothing_helps_what_takes_no_time():
    graph = ss.OpGraph([ss.Operator("a", time=0.0)])
    found = explain(ss.schedule(graph, BARE, "sequential"), BARE)
    assert found.suggestions == ()
    assert "None of the changes that were tried gains 0.5% or more." in str(found)


def test_loads_that_are_not_known_are_not_told():
    """Without kernels and utilization nothing says how full the device is; half of it is, of which that is said."""
    found = explain(ss.schedule(chain(2, 10.0), BARE, "sequential"), BARE)
    assert "fill is not known" in str(found)
    assert "of the SMs have work" not in str(found)
    half = ss.OpGraph([ss.Operator("a", time=10.0, utilization=0.5)])
    assert "50% of the issue slots are in use" in str(explain(ss.schedule(half, BARE, "sequential"), BARE))
