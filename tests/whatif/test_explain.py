"""What bounds a schedule, in words, and what would help."""

import pytest
from small import chain, made, operators, placements

import simsched as ss
import workloads
from simsched.experiments.whatif.explain import candidates, explain
from simsched.experiments.whatif.whatif import what_if

A100 = ss.Cluster.preset("a100")
BARE = A100.without_overheads()


def test_a_chain_is_bound_by_its_operators():
    """Three operators of 10 us in a row: 30 us, the bound; only quicker operators help, by half."""
    found = explain(ss.schedule(chain(10.0, 10.0, 10.0, kind="conv"), BARE, "sequential"), BARE)
    assert (found.makespan_us, found.bound_us) == (30.0, 30.0)
    assert found.blame["compute"] == 30.0
    text = str(found)
    assert "runs 3 operators of chain on 1 stream of 1 device of a100" in text
    assert "100% is kernels computing" in text
    assert "this one takes 1.00 times that" in text
    assert "bound by its own critical path" in text
    assert "By kind" not in text
    (best,) = found.suggestions
    assert best.text == "make operators of kind conv twice as quick"
    assert (best.makespan_us, best.gain, best.doable) == (15.0, 0.5, False)


def test_a_launch_bound_plan_is_bound_by_the_host():
    """Ten operators of 1 us, a launch of 4 us each: 41 us.

    Free launches: 10 us; and a captured graph costs nothing here.
    """
    cluster = BARE.replace_devices(launch=4.0)
    found = explain(ss.schedule(chain(*[1.0] * 10), cluster, "sequential"), cluster)
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


def test_stages_are_named():
    wide = BARE.replace_devices(barrier_many=50.0)
    plan = ss.Schedule(made("a=10 b=10 c=10 d=10", "ac bd"), placements("a b/1 c.1 d/1.1"), "stages")
    found = explain(plan, wide)
    assert found.makespan_us == 70.0
    assert tried(plan, wide)["make barriers free"] == 20.0
    assert [(each.text, each.makespan_us) for each in found.suggestions] == [
        ("capture it as a graph and launch that as a whole", 20.0),
        ("order its stages by events instead of barriers", 20.0),
        ("schedule it with lios", 20.0),
    ]
    assert "in stages" in str(found)


def test_a_scheduler_that_does_better_on_one_device_says_so():
    """A chain dealt over two devices pays for a copy at each step; on one of them it is the chain."""
    graph = made("a=10 b=10 c=10 d=10", "ab bc cd", transfer=5.0)
    cluster = ss.Cluster.preset("a100", 2).without_overheads()
    said = ss.explain(ss.schedule(graph, cluster, "round-robin"), cluster).sentences
    assert said[-1] == "On one device round-robin takes 40 us: the others cost more than they gain."
    assert "On one device" not in str(ss.explain(ss.schedule(graph, cluster, "heft"), cluster))


def test_one_operator_alone():
    """It is the critical path; what takes no time cannot be helped."""
    text = {}
    for load, us in ((1.0, 10.0), (None, 0.0)):
        graph = ss.OpGraph([ss.Operator("a", time=us, utilization=load)])
        text[load] = str(explain(ss.schedule(graph, BARE, "sequential"), BARE))
    assert "It is bound by its own critical path" in text[1.0]
    assert "On the critical path is 1 operator; the longest: a (10 us)." in text[1.0]
    assert "None of the changes that were tried gains 0.5% or more." in text[None]


def tried(plan, cluster):
    """The makespan after every change that is tried, by its text."""
    return {text: changed.makespan for text, changed, _ in candidates(what_if(plan, cluster))}


def test_what_changes_of_a_plan_of_events_come_to():
    """a, then b and c on the other stream, 10 us each; launches of 1 us, records of 20, waits of 50, hops of 3.

    Launch a, record, wait, launch b: issued at 72. Wait once more, launch c: at 123, so it ends at 133. Without the
    second wait b ends at 82, c at 92. Free launches leave 20 + 50 + 50 + 10; free events 1 + 3 x 10 us; c, the only
    one of its kind, at twice the speed 128. A captured graph begins after 100 us: 130.
    """
    graph = made([*operators("a=10 b=10", kind="pool"), ss.Operator("c", "conv", time=10.0)], "ab ac")
    rows = placements("a b/1 c/1")
    cluster = BARE.replace_devices(launch=1.0, record=20.0, wait=50.0, hop=3.0, graph_launch=100.0)
    found = tried(ss.Schedule(graph, rows, events="literal"), cluster)
    known = {
        "capture it as a graph and launch that as a whole": 130.0,
        "leave out the waits that others imply": 92.0,
        "make operators of kind conv twice as quick": 128.0,
        "make launches free": 130.0,
        "make events free (record, wait, hop)": 31.0,
        "end the interference between kernels side by side": 133.0,
        "let kernels side by side run as if alone": 133.0,
        "have twice the SMs": 133.0,
        "have twice the DRAM bandwidth": 133.0,
    }
    assert {text: us for text, us in found.items() if not text.startswith("schedule")} == known
    assert "leave out the waits that others imply" not in tried(ss.Schedule(graph, rows), cluster)


def test_what_changes_of_two_devices_come_to():
    """10 us, 4000 bytes at 100 bytes/us, 40 us: 90. Links twice as wide 70, operators twice as quick 65, no copy 50.

    Two operators of 10 us that fill a device each, both on the first: the first scheduler that uses both takes 10.
    """
    cluster = ss.Cluster.preset("k80", 2).without_overheads().replace_links(bandwidth=100.0, latency=0.0)
    plan = ss.Schedule(made(operators("a=10 b=40", utilization=1.0), "ab=4000"), placements("a b@1"))
    assert "bound by transfers between devices" in str(explain(plan, cluster.replace_links(bandwidth=10.0)))
    found = explain(plan, cluster)
    assert str(found).split("\n")[-3:] == [
        "1. (plan) schedule it with sequential: 50 us, 44.4% less.",
        "2. (wish) make operators of kind op twice as quick: 65 us, 27.8% less.",
        "3. (wish) make links twice as wide: 70 us, 22.2% less.",
    ]
    both = ss.schedule(made(operators("a=10 b=10", utilization=1.0)), cluster, "sequential")
    found = tried(both, cluster)
    assert found["schedule it with round-robin"] == 10.0
    assert "make links twice as wide" not in found


def test_three_wishes_where_the_plan_can_do_nothing():
    """2.73 + 18 us of FLOP after a launch of 4: twice as quick 4 + 10.365, twice the SMs 4 + 2.73 + 9, no launch 20.73.

    A captured graph would take longer to launch. Of 2.73 us and 1 us for the bytes DRAM can save half a us.
    """
    cluster = BARE.replace_devices(launch=4.0, graph_launch=9.0)
    graph = ss.OpGraph([ss.Operator("a", flops=18.0 * 0.75 * BARE.devices[0].peak_rate("fp32"))])
    found = explain(ss.schedule(graph, cluster, "sequential"), cluster)
    assert [(each.makespan_us, each.doable) for each in found.suggestions] == [
        (pytest.approx(14.365), False),
        (pytest.approx(15.73), False),
        (pytest.approx(20.73), False),
    ]
    moves = ss.OpGraph([ss.Operator("a", nbytes=0.75 * 1.555e6)])
    wider = tried(ss.schedule(moves, BARE, "sequential"), BARE)["have twice the DRAM bandwidth"]
    assert wider == pytest.approx(3.23)


def test_kinds_and_operators_of_the_path():
    """40, 30, 20 and 10 us of four kinds in a row behind a launch of 0.75 us: 100.75 us, of which three are named.

    The launch, less than 1 % of that, is drawn but not told.
    """
    ops = [ss.Operator(k[0], k, time=us) for k, us in (("conv", 40.0), ("pool", 30.0), ("relu", 20.0), ("fc", 10.0))]
    graph = made(ops, "cp pr rf")
    cluster = BARE.replace_devices(launch=0.75)
    found = explain(ss.schedule(graph, cluster, "sequential"), cluster)
    assert found.sentences[1:4] == (
        "Of that 99% is kernels computing.",
        "By kind, of the makespan: conv 40%, pool 30%, relu 20%.",
        "On the critical path are 4 operators; the longest: c (40 us), p (30 us), r (20 us).",
    )
    lengths = sorted(bar.get_width() for bar in found.plot().patches)
    assert lengths == [pytest.approx(0.75 / 100.75), pytest.approx(100 / 100.75)]


def test_kernels_that_hold_each_other_up():
    """Six operators of 10 us that fill the device, side by side: 60 us, 50 of them contention. Then one of 20 us.

    That one does not load anything: 50 of 80 us are contention, 10 + 20 compute.
    """
    ops = [ss.Operator(f"v{i}", time=10.0, utilization=1.0) for i in range(6)]
    graph = ss.OpGraph([*ops, ss.Operator("last", time=20.0)], [ss.Edge(op.name, "last") for op in ops])
    rows = [ss.Placement(op.name, stream=i) for i, op in enumerate(ops)]
    text = str(explain(ss.Schedule(graph, [*rows, ss.Placement("last")]), BARE))
    assert "Of that 62% is kernels held up by others that run beside them, 38% is kernels computing." in text
    assert "It is bound by the device: kernels side by side want more than there is." in text
