"""What a question says is what a simulation says of a cluster and a graph edited by hand."""

from dataclasses import replace

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import graphs

from simsched.experiments.whatif import what_if
from simsched.experiments.whatif.whatif import numeric_parameters, value_of
from simsched.model import Cluster, Edge, OpGraph, Schedule, default_cost, roofline
from simsched.model.cluster.device import OVERHEADS
from simsched.schedulers import schedule
from simsched.simulator import simulate

clusters = st.builds(Cluster.preset, st.sampled_from(["a100", "v100"]), st.integers(1, 3))


@st.composite
def plans(draw):
    """A schedule of a small graph on a preset."""
    graph, cluster = draw(graphs(max_ops=6)), draw(clusters)
    plan = schedule(graph, cluster, draw(st.sampled_from(["lios", "heft", "greedy", "round-robin"])))
    return plan, cluster


def scaled(plan, time):
    """The plan with the times of its operators changed."""
    rows = [replace(op, time=time(op)) for op in plan.graph.operators]
    return plan.over(OpGraph(rows, plan.graph.edges, plan.graph.name))


def on_devices(plan, cluster, **fields):
    """On other devices: measured times follow the roofline, but for pure latencies; the others are estimated again."""
    old = cluster.devices[0]
    new = replace(old, **fields)

    def time(op):
        if op.time is None or not (op.flops or op.nbytes):
            return op.time
        return op.time * (roofline(op, new) / roofline(op, old))

    return scaled(plan, time), cluster.replace_devices(**fields)


def with_half_the_sms(plan, cluster):
    device = cluster.devices[0]
    return on_devices(plan, cluster, sms=device.sms // 2, peak={k: v / 2 for k, v in device.peak.items()})


def on_h100s(plan, cluster):
    names = (
        "model",
        "capability",
        "sms",
        "saturating_warps",
        "peak",
        "clock",
        "bandwidth",
        "memory",
        "l2",
        "copy_engines",
        "shared_memory_per_sm",
        "shared_memory_per_block",
        "shared_memory_reserved",
        "shared_memory_granularity",
    )
    other = Cluster.preset("h100").devices[0]
    return on_devices(plan, cluster, **{name: getattr(other, name) for name in names})


def quicker_convolutions(plan, cluster):
    device = cluster.devices[0]
    return scaled(plan, lambda op: default_cost(op, device) / (3.0 if op.kind == "conv" else 1.0)), cluster


def with_faster_links(plan, cluster):
    links = tuple((a, b, replace(w, bandwidth=2 * w.bandwidth, latency=w.latency / 2)) for a, b, w in cluster.links)
    return plan, replace(cluster, links=links)


def on_other(**fields):
    """The same plan on devices with other fields."""
    return lambda plan, cluster: (plan, cluster.replace_devices(**fields))


def without_the_last(plan, cluster):
    """The last operator in topological order is read by none."""
    last = plan.graph.order[-1]
    rows = [op for op in plan.graph.operators if op.name != last]
    graph = OpGraph(rows, [edge for edge in plan.graph.edges if edge.dst != last], plan.graph.name)
    return Schedule(graph, [row for row in plan.placements if row.op != last], plan.execution), cluster


def with_half_of_each_overhead(plan, cluster):
    device = cluster.devices[0]
    return plan, cluster.replace_devices(**{name: getattr(device, name) / 2 for name in OVERHEADS})


CHANGES = {
    "link": (lambda asked: asked.link(bandwidth=2.0, latency=0.5), with_faster_links),
    "launch": (lambda asked: asked.overhead(launch=0), on_other(launch=0.0)),
    "overhead": (lambda asked: asked.overhead(0.5), with_half_of_each_overhead),
    "interference": (lambda asked: asked.interference(0), on_other(interference=((0.0, 0.0), (0.0, 0.0)))),
    "contention": (lambda asked: asked.set("contention", False), on_other(contention=False)),
    "gpus": (lambda asked: asked.gpus(4), lambda p, c: (p, Cluster.preset(c.devices[0].model, 4))),
    "sms": (lambda asked: asked.device(sms=0.5), with_half_the_sms),
    "h100": (lambda asked: asked.device("h100"), on_h100s),
    "speed": (lambda asked: asked.set("operators.conv.speed", 3.0), quicker_convolutions),
    "graph": (lambda asked: asked.execution("graph"), lambda p, c: (Schedule(p.graph, p.placements, "graph"), c)),
    "remove": (lambda asked: asked.remove(asked.ground.graph.order[-1]), without_the_last),
}


def possible(name, plan):
    kinds = [op.kind for op in plan.graph.operators]
    return {"speed": "conv" in kinds, "remove": len(plan) > 1}.get(name, True)


@given(plans(), st.sampled_from(sorted(CHANGES)))
@settings(max_examples=30)
def test_a_change_is_what_it_is_by_hand(made, name):
    plan, cluster = made
    if not possible(name, plan):
        return
    ask, edit = CHANGES[name]
    asked = ask(what_if(plan, cluster))
    by_hand = simulate(*edit(plan, cluster))
    assert asked.makespan == pytest.approx(by_hand.makespan, rel=1e-12)
    assert asked.blame == pytest.approx(by_hand.critical_path().blame, rel=1e-6, abs=1e-6)
    assert asked.makespan_before == simulate(plan, cluster).makespan
    assert asked.makespan_before + asked.direct == pytest.approx(asked.makespan)


@given(plans(), st.lists(st.sampled_from(sorted(CHANGES)), min_size=2, max_size=4, unique=True))
@settings(max_examples=12)
def test_the_order_of_changes_does_not_matter(made, names):
    """Nor does asking one question more than once."""
    plan, cluster = made
    names = [name for name in names if possible(name, plan) and name != "launch"]  # it is one of the overheads
    if "remove" in names and "speed" in names and [op.kind for op in plan.graph.operators].count("conv") == 1:
        names.remove("remove")
    forward = backward = what_if(plan, cluster)
    for name in names:
        forward = CHANGES[name][0](forward)
    for name in reversed(names):
        backward = CHANGES[name][0](backward)
    assert forward.makespan == backward.makespan
    assert forward.notes == backward.notes


@given(plans(), st.booleans())
@settings(max_examples=6)
def test_a_factor_of_one_changes_nothing(made, reschedule):
    plan, cluster = made
    asked = what_if(plan, cluster, reschedule)
    same = asked
    for parameter in numeric_parameters(asked, per_operator=True):
        same = same.set(parameter, 1.0)
        value = value_of(same, parameter)
        assert value is None or value == value_of(asked, parameter) > 0
    assert same.cluster == cluster
    assert (same.graph, same.cost) == (plan.graph, None)
    assert same.makespan == asked.makespan
    assert same.difference == asked.difference


EXACT = ("link", "launch", "overhead", "contention", "gpus")


@given(graphs(max_ops=6, timed=True), clusters, st.sampled_from(EXACT))
@settings(max_examples=12)
def test_parts_of_a_difference_add_up(graph, cluster, name):
    """With a plan made anew, too, which is the one that the scheduler makes of what was edited by hand."""
    ask, edit = CHANGES[name]
    asked = ask(what_if(graph, cluster, True, scheduler="heft"))
    before = schedule(graph, cluster, "heft")
    kept, edited = edit(before, cluster)
    assert asked.before.makespan == simulate(before, cluster).makespan
    assert asked.kept.makespan == simulate(kept, edited).makespan
    assert asked.after.makespan == simulate(schedule(graph, edited, "heft"), edited).makespan
    assert asked.makespan_before + asked.direct + asked.rescheduling == pytest.approx(asked.makespan, abs=1e-9)


def paths(graph):
    """Each two operators of which a path leads from one to the other."""
    return {*nx.transitive_closure(nx.DiGraph(graph.to_networkx())).edges}


@given(graphs(max_ops=7), st.data())
@settings(max_examples=12)
def test_graphs_with_operators_fused_and_removed(graph, data):
    """FLOP and weights are kept, every path that there was is there still, and a kept plan runs, captured too."""
    if len(graph) < 3:
        return
    plan = schedule(graph, Cluster.preset("a100", 2), data.draw(st.sampled_from(["heft", "greedy", "round-robin"])))
    edge = data.draw(st.sampled_from([*graph.edges])) if len(graph.src) else Edge(*graph.names[:2])
    between = [n for n in graph.names if {(edge.src, n), (n, edge.dst)} <= paths(graph)]
    pair = [edge.src, *between, edge.dst]
    asked = what_if(plan, Cluster.preset("a100", 2)).fuse(pair)
    (made,) = [name for name in asked.graph.names if name not in graph.index]
    assert asked.graph.flops.sum() == pytest.approx(graph.flops.sum())
    assert asked.graph.weight_nbytes.sum() == pytest.approx(graph.weight_nbytes.sum())
    of = {name: made if name in pair else name for name in graph.names}
    assert {(of[a], of[b]) for a, b in paths(graph) if of[a] != of[b]} <= paths(asked.graph)
    gone = data.draw(st.sampled_from(asked.graph.names))
    left = asked.remove(gone) if len(asked.graph) > 1 else asked
    assert paths(left.graph) == {pair for pair in paths(asked.graph) if {*pair} <= {*left.graph.names}}
    for execution in ("events", "graph"):
        assert left.execution(execution).plan.check().execution == execution
        assert left.execution(execution).makespan >= 0
