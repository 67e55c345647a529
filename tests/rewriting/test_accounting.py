"""What a scheduler returns is held against its graph: forged schedules are refused, rewritten ones are not."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rewriting.rewritten import block, of_text, walked
from small import convolutions, made, merging, operators

import simsched as ss
import simsched.testing
from simsched.base.errors import ScheduleError, SchedulerError
from simsched.model import Cluster, Kernel, Operator, OpGraph, Placement, Schedule
from simsched.model.rewriting import Rewriting, RewrittenPart, Step
from simsched.rewriting.accounting import account_for, rewritten
from simsched.schedulers import schedule

CLUSTER = Cluster.preset("a100", 2)
GRAPH = made(
    [
        Operator("a", "load", nbytes=1e6, kernels=(Kernel(108),), output_shape=(4, 4), host=1.0),
        Operator("b", flops=1e9, nbytes=2e6, weight_nbytes=1e3, attributes={"k": [1, 2]}, input_shapes=[(4, 4)]),
        Operator("c", time=7.0, utilization=0.5, intensity="compute", block="end"),
    ],
    "ab=64 ac=64 bc=32:1.5",
)


def on_one(graph, **fields):
    return Schedule(graph, [Placement(name) for name in graph.order], **fields)


def other(name, **changed):
    """The graph with an operator that has other fields."""
    rows = [replace(op, **changed) if op.name == name else op for op in GRAPH.operators]
    return OpGraph(rows, GRAPH.edges, GRAPH.name)


def joined(text):
    return OpGraph(GRAPH.operators, made(GRAPH.operators, text).edges, GRAPH.name)


def claimed(*parts):
    """A schedule of the first operator alone, and what is said of how that came about."""
    return on_one(OpGraph(GRAPH.operators[:1]), rewriting=[Rewriting(parts)])


def stepped(rule, names):
    return claimed(RewrittenPart(steps=(Step(rule, tuple(names)),)))


class Lying(Schedule):
    """It says of itself that all is well."""

    def check(self, cluster=None):
        return self


def lying(graph, op):
    plan = Lying.from_columns(GRAPH, [0, 1, 2], ["gpu0"])
    plan.__dict__.update(graph=graph, op=np.array(op, np.int32))
    return plan


FORGED = {  # what a scheduler returns, and what is said of it
    "fewer operators": (on_one(OpGraph(GRAPH.operators[:1])), "operator 'b' is missing"),
    "another operator": (
        on_one(OpGraph([*GRAPH.operators, Operator("d")], GRAPH.edges)),
        "operator 'd' is none of 'graph'",
    ),
    "a copy of one": (
        on_one(OpGraph([*GRAPH.operators, replace(GRAPH["a"], name="a2")])),
        "operator 'a2' is none of 'graph'",
    ),
    "another name": (on_one(made([*GRAPH.operators[:2], replace(GRAPH["c"], name="C")])), "operator 'c' is missing"),
    "kind": (on_one(other("b", kind="nothing")), "operator 'b' has kind 'nothing', not 'op'"),
    "flops": (on_one(other("b", flops=0.0)), "operator 'b' has flops 0.0, not 1000000000.0"),
    "nbytes": (on_one(other("a", nbytes=1.0)), "operator 'a' has nbytes 1.0, not 1000000.0"),
    "weights": (on_one(other("b", weight_nbytes=0.0)), "operator 'b' has weight_nbytes 0.0, not 1000.0"),
    "time": (on_one(other("b", time=0.0)), "operator 'b' has time 0.0, not None"),
    "no time": (on_one(other("c", time=None)), "operator 'c' has time None, not 7.0"),
    "no kernels": (on_one(other("a", kernels=())), "operator 'a' has kernels (), not (Kernel("),
    "smaller kernels": (on_one(other("a", kernels=(Kernel(1),))), "operator 'a' has kernels (Kernel(blocks=1"),
    "more kernels": (
        on_one(other("c", kernels=(Kernel(1),), utilization=None)),
        "operator 'c' has kernels (Kernel(blocks=1",
    ),
    "utilization": (on_one(other("c", utilization=0.01)), "operator 'c' has utilization 0.01, not 0.5"),
    "intensity": (on_one(other("c", intensity=None)), "operator 'c' has intensity None, not 'compute'"),
    "number format": (on_one(other("b", dtype="fp16")), "operator 'b' has dtype 'fp16', not 'fp32'"),
    "attributes": (on_one(other("b", attributes={"k": [1]})), "operator 'b' has attributes"),
    "input shapes": (on_one(other("b", input_shapes=())), "operator 'b' has input_shapes (), not ((4, 4),)"),
    "output shape": (on_one(other("a", output_shape=(1,))), "operator 'a' has output_shape (1,), not (4, 4)"),
    "block": (on_one(other("c", block=None)), "operator 'c' has block None, not 'end'"),
    "host time": (on_one(other("a", host=0.0)), "operator 'a' has host 0.0, not 1.0"),
    "the first of several": (
        on_one(OpGraph([replace(op, time=0.0) for op in GRAPH.operators], GRAPH.edges)),
        "operator 'a' has time 0.0",
    ),
    "no edges": (on_one(OpGraph(GRAPH.operators)), "edge a -> b is missing"),
    "an edge less": (on_one(joined("ab=64 bc=32:1.5")), "edge a -> c is missing"),
    "an edge more": (on_one(joined("ab=64 ac=64 bc=32:1.5 bc=1")), "edge b -> c has nbytes 1.0, not 32.0"),
    "an edge twice": (on_one(joined("ab=64 ac=64 ac=64 bc=32:1.5")), "edge a -> c is none of 'graph'"),
    "an edge turned": (on_one(joined("ab=64 ac=64 cb=32:1.5")), "edge c -> b is none of 'graph'"),
    "fewer bytes": (on_one(joined("ab=64 ac=1 bc=32:1.5")), "edge a -> c has nbytes 1.0, not 64.0"),
    "a transfer time": (on_one(joined("ab=64 ac=64:0 bc=32:1.5")), "edge a -> c has transfer 0.0, not None"),
    "no transfer time": (on_one(joined("ab=64 ac=64 bc=32")), "edge b -> c has transfer None, not 1.5"),
    "a class of its own": (lying(other("b", flops=0.0), [0, 1, 2]), "operator 'b' has flops 0.0"),
    "an operator twice": (lying(GRAPH, [0, 1, 1]), "operator 'b' is placed twice"),
    "fewer rows": (lying(GRAPH, [0, 1]), "column 'device' must have 2 rows"),
    "a claim of nothing": (claimed(), "'a' is in none"),
    "a claim of a merge": (stepped("merged", "abc"), "cannot merge a, b, c"),
    "a claim of a rule": (stepped("R1", "ab"), "rule 'R1' cannot be applied to 'a', 'b'"),
    "a rule of its own": (stepped("drop", "bc"), "'drop' is no rule of simsched: rewrite the graph first"),
    "a step of no operator": (stepped("merged", "az"), "graph 'graph' has no operator 'z'"),
    "parts without one": (claimed(RewrittenPart(("a", "b"))), "'c' is in none"),
    "parts with one twice": (claimed(RewrittenPart(("a", "b")), RewrittenPart(("b", "c"))), "one is in two"),
    "a rewriting of nothing": (
        on_one(other("b", flops=0.0), rewriting=[Rewriting((RewrittenPart(),))]),
        "operator 'b' has flops 0.0",
    ),
}


@pytest.mark.parametrize("case", FORGED)
def test_a_schedule_of_another_graph_is_refused(case):
    plan, text = FORGED[case]

    def cheating(graph, cluster, cost):
        return plan

    with pytest.raises(ScheduleError) as caught:
        schedule(GRAPH, CLUSTER, cheating)
    assert str(caught.value).startswith("scheduler 'cheating' returned")
    assert text in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("returned", [None, (GRAPH, []), [], "lios", object()])
def test_what_is_no_schedule_is_refused(returned):
    with pytest.raises(ScheduleError, match=r"returned .*, not a Schedule"):
        schedule(GRAPH, CLUSTER, lambda graph, cluster, cost: returned)


def cheap(graph, cluster, cost):
    """A schedule of operators that take no time."""
    return on_one(OpGraph([replace(op, time=0.0) for op in graph.operators], graph.edges, graph.name))


@pytest.mark.parametrize(
    "ask",
    [
        lambda: ss.compare(GRAPH, CLUSTER, [cheap]),
        lambda: ss.advise(GRAPH, CLUSTER, ["sequential", cheap]),
        lambda: ss.what_if(GRAPH, CLUSTER, scheduler=cheap).makespan,
        lambda: ss.what_if(on_one(GRAPH), CLUSTER, True, scheduler=cheap).gpus(1).makespan,
        lambda: ss.breakeven("link.bandwidth", cheap, "lios", CLUSTER, graph=GRAPH),
        lambda: ss.breakeven("link.bandwidth", cheap(GRAPH, CLUSTER, None), "lios", CLUSTER, graph=GRAPH),
        lambda: schedule(GRAPH, CLUSTER, "search", starts=[cheap(GRAPH, CLUSTER, None)]),
        lambda: schedule(GRAPH, CLUSTER, "search", also=[cheap(GRAPH, CLUSTER, None)]),
        lambda: ss.testing.check_scheduler(cheap, sizes=(5, 10)).require(),
    ],
)
def test_it_is_refused_wherever_it_comes_in(ask):
    with pytest.raises((ScheduleError, SchedulerError), match=r"of another graph: operator '.*' has time 0.0, not"):
        ask()


@given(order=st.permutations(range(3)), edges=st.permutations(range(3)))
def test_the_order_of_a_graph_is_its_own(order, edges):
    """A schedule of an equal graph in another order, under another name, is one of the graph that was given."""
    rows, joins = list(GRAPH.operators), list(GRAPH.edges)
    twin = OpGraph([rows[i] for i in order], [joins[i] for i in edges], "twin")
    plan = on_one(twin, estimate=3.0, scheduler="mine")
    taken = schedule(GRAPH, CLUSTER, lambda graph, cluster, cost: plan)
    assert taken.graph is GRAPH
    assert (taken.placements, taken.estimate, taken.scheduler) == (plan.placements, 3.0, "mine")


def test_a_class_of_ones_own_is_taken_as_a_schedule():
    taken = schedule(GRAPH, CLUSTER, lambda graph, cluster, cost: Lying.from_columns(graph, [0, 1, 2], ["gpu0"]))
    assert type(taken) is Schedule
    with pytest.raises(ScheduleError, match="launched before 'a'"):
        schedule(GRAPH, CLUSTER, lambda graph, cluster, cost: Lying.from_columns(graph, [2, 1, 0], ["gpu0"]))


def set_column(graph):
    graph.__dict__["flops"] = np.zeros(len(graph))


def set_values(graph):
    graph.flops.flags.writeable = True
    graph.flops[:] = 0.0


@pytest.mark.parametrize("change", [set_column, set_values])
def test_a_scheduler_that_changes_its_graph_is_refused(change):
    """A column that is replaced is put back; what was written into one cannot be."""
    graph = made(operators("a=1 b=2"), "ab")

    def changing(given, cluster, cost):
        change(given)
        return on_one(given)

    with pytest.raises(ScheduleError, match=r"scheduler 'changing' changed the graph 'graph' .* its 'flops'"):
        schedule(graph, CLUSTER, changing)
    assert graph.flops.tolist() == [0.0, 0.0]


# Rewritten graphs -----------------------------------------------------------------------------------


def read_again(plan):
    return Schedule.from_dict(json.loads(json.dumps(plan.to_dict())))


@pytest.mark.parametrize(
    ("graph", "scheduler", "options"),
    [
        (convolutions(), merging, {}),
        (block(), "ios", {}),
        (block(), "autograph", {}),
        (block(), "autograph", {"size_l": 3, "size_u": 6, "rounds": 3}),
        (
            of_text(
                "a = conv(x, 4, 1); b = conv(x, 8, 1); p = pool(a, 'max', 2); q = pool(b, 'max', 2)", x=(2, 4, 6, 6)
            ),
            merging,
            {},
        ),
    ],
)
def test_rewriters_say_how_their_graphs_came_about(graph, scheduler, options):
    """From a file, too; and a search that goes on from there."""
    plan = schedule(graph, Cluster.preset("a100"), scheduler, **options)
    assert plan.rewriting
    assert rewritten(graph, plan.rewriting) == plan.graph
    again = read_again(plan)
    assert again == plan
    assert again.rewriting == plan.rewriting
    assert account_for(again, graph, "file").graph == plan.graph
    onward = schedule(graph, Cluster.preset("a100"), "search", starts=[again], evaluations=10)
    assert onward.graph == plan.graph


def test_what_was_not_rewritten_says_nothing():
    plan = schedule(GRAPH, CLUSTER, "lios")
    assert plan.rewriting == ()
    assert "rewriting" not in plan.to_dict()


@pytest.mark.parametrize("field", ["flops", "nbytes", "weight_nbytes", "time"])
def test_a_rewritten_graph_with_less_work_is_refused(field):
    """The merged convolution is cheaper than the rule makes it."""
    graph = of_text("b = conv(x, 4, 1); c = conv(x, 8, 1); p = pool(b, 'max', 2); q = pool(c, 'max', 2)")

    def cheating(graph, cluster, cost):
        plan = merging(graph, cluster, cost)
        rows = [replace(op, **{field: 0.5}) if op.name == "b+c" else op for op in plan.graph.operators]
        return plan.like(graph=OpGraph(rows, plan.graph.edges, plan.graph.name))

    assert "b+c" in schedule(graph, CLUSTER, merging).graph.names
    with pytest.raises(ScheduleError, match=rf"'cheating' .* operator 'b\+c' has {field} 0.5, not"):
        schedule(graph, CLUSTER, cheating)


def test_an_output_that_is_gone_is_refused():
    """Of two convolutions that are outputs of the network a merge leaves slices under their names."""
    graph = of_text("b = conv(x, 4, 1, activation=None); c = conv(x, 8, 1, activation=None)")

    def dropping(graph, cluster, cost):
        plan = merging(graph, cluster, cost)
        kept = [op for op in plan.graph.operators if op.name != "c"]
        edges = [edge for edge in plan.graph.edges if edge.dst != "c"]
        return on_one(OpGraph(kept, edges, plan.graph.name), rewriting=plan.rewriting)

    assert {"b", "c"} < set(schedule(graph, CLUSTER, merging).graph.names)
    with pytest.raises(ScheduleError, match=r"'dropping' .* operator 'c' is missing"):
        schedule(graph, CLUSTER, dropping)


@given(seed=st.integers(0, 2**32 - 1), steps=st.integers(1, 6))
def test_any_substitutions_can_be_done_again(seed, steps):
    graph = block()
    draft, used = walked(graph, seed, steps)
    record = (Rewriting((RewrittenPart((), tuple(Step(*each) for each in used)),)),)
    plan = on_one(draft.to_graph(), rewriting=record)
    assert account_for(read_again(plan), graph, "walk").graph == draft.to_graph()
