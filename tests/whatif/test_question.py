"""What can be asked, what is computed when, what is refused, and what notes say."""

from dataclasses import FrozenInstanceError, replace

import pytest
from small import chain, convolutions, made, merging, one_stream, operators, placements

from simsched.experiments.whatif import Change, what_if
from simsched.experiments.whatif.whatif import numeric_parameters
from simsched.model import Cluster, Kernel, Operator, Schedule, default_cost, roofline
from simsched.schedulers import schedule

FREE = Cluster.preset("a100").without_overheads()
PAIR = Cluster.preset("a100", 2).without_overheads()


# a of 10 us, then b and c of 20 us, which need the whole device each
FORK = made(operators("a=10 b=20 c=20", utilization=1.0), "ab ac", transfer=5.0)
SPLIT = Schedule(FORK, placements("a b c@1"))


def worse(graph, cluster, cost):
    """One after the other, however many GPUs there are."""
    return schedule(graph, cluster, "sequential", cost)


def test_nothing_is_computed_before_it_is_asked_for():
    calls = []

    def counting(graph, cluster, cost):
        calls.append(len(cluster))
        return worse(graph, cluster, cost)

    asked = what_if(FORK, FREE, True, scheduler=counting)
    longer = asked.gpus(2).overhead(launch=0).link(latency=0.5)
    assert repr(longer) == "WhatIf('graph' on 'a100': gpus=2, overhead.launch*=0, link.latency*=0.5, re-scheduled)"
    assert calls == []
    assert (longer.makespan, longer.difference, longer.makespan) == (50.0, 0.0, 50.0)
    assert calls == [2, 1]  # once after the changes, once before
    assert longer.operators(speed=2.0).makespan_before == 50.0
    assert calls == [2, 1]


def test_a_question_is_not_changed_by_asking_more():
    asked = what_if(FORK, FREE)
    quick = asked.operators(speed=2.0)
    assert (asked.changes, quick.changes) == ((), (Change("operators.speed", 2.0),))
    assert (asked.difference, quick.difference, quick.operators(speed=2.0).difference) == (0.0, -25.0, -37.5)
    with pytest.raises(FrozenInstanceError):
        quick.changes = ()


def test_fewer_gpus():
    """A plan over two GPUs cannot run on one; made anew it takes 50 us instead of 10 + 5 + 20 = 35."""
    again = what_if(SPLIT, PAIR, True, scheduler="sequential").gpus(1)
    assert (again.makespan_before, again.makespan, again.difference) == (35.0, 50.0, 15.0)
    assert (again.kept, again.direct, again.rescheduling) == (None, None, None)
    assert "cannot run after the changes" in again.table().note


def test_more_gpus():
    plan = schedule(FORK, FREE, "sequential")
    asked = what_if(plan, FREE).gpus(3)
    assert (asked.makespan, asked.difference, asked.plan) == (50.0, 0.0, plan)
    again = what_if(plan, FREE, True, scheduler="hios-lp").gpus(3)
    assert (again.makespan, again.direct, again.rescheduling) == (35.0, 0.0, -15.0)


def test_a_new_plan_that_is_worse():
    asked = what_if(SPLIT, PAIR, True, scheduler=worse).operators(speed=2.0)
    assert (asked.makespan_before, asked.kept.makespan, asked.makespan) == (35.0, 20.0, 25.0)
    assert (asked.direct, asked.rescheduling) == (-15.0, 5.0)


def test_who_makes_the_plan():
    assert what_if(FORK, FREE).plan.scheduler == "lios"
    assert what_if(schedule(FORK, PAIR, "heft"), PAIR, True).plan.scheduler == "heft"
    assert what_if(SPLIT, PAIR, True).plan.scheduler == "lios"
    options = {"streams": 1}
    assert what_if(FORK, FREE, scheduler="heft", options=options).plan.n_streams == 1
    captured = what_if(FORK, FREE, True).execution("graph")
    assert (captured.plan.execution, captured.kept.program.execution) == ("graph", "graph")


def load(batch=1, blocks=1):
    return chain(*[2.0 * batch] * blocks)


def test_rebuilding():
    """Twice the batch takes twice as long; another number of operators needs another plan."""
    asked = what_if(load(blocks=2), FREE, load=load)
    assert asked.rebuild(batch=2, blocks=2).makespan == 8.0
    assert asked.rebuild(batch=3).rebuild(blocks=2).makespan == 12.0
    again = what_if(load(blocks=2), FREE, True, load=load).rebuild(blocks=3)
    assert (again.makespan, again.kept) == (6.0, None)
    assert asked.rebuild(blocks=2).remove("o0").operators("o1", speed=2.0).makespan == 1.0


def test_cost_models_of_the_users():
    """One that does not tell devices apart follows the roofline; one that does is believed; both are asked once more.

    An operator bound by DRAM: 2.73 us + 1 us on an A100, 2.73 + 0.5 us with twice the bandwidth.
    """
    graph = made([Operator(name, nbytes=0.75 * 1.555e6) for name in "ab"], "ab=4")

    def flat(op, device):
        return {"a": 12.0, "b": 6.0}[op.name]

    def told(op, device):
        return 7.0 if device.bandwidth > 1.6e6 else 9.0

    for given, before, after in (
        (flat, 18, 18 * 3.23 / 3.73),
        (told, 18, 14),
        (roofline, 7.46, 6.46),
        (default_cost, 7.46, 6.46),
    ):
        asked = what_if(graph, FREE, cost=given).device(bandwidth=2.0)
        assert asked.makespan_before == pytest.approx(before)
        assert asked.makespan == pytest.approx(after)
        share = 1.5 if given is flat else 2.0
        assert asked.cost(graph["a"], asked.cluster.devices[0]) == pytest.approx(after / share)
        again = what_if(graph, FREE, True, cost=given).device(bandwidth=2.0)
        assert again.makespan == pytest.approx(after)
    assert what_if(graph, FREE, cost=flat).overhead(0).cost is flat  # nothing that it would have to follow
    assert what_if(graph, FREE).fuse(["a", "b"]).cost is None
    whole = what_if(graph, FREE, cost=flat).fuse(["a", "b"])  # of which `flat` knows nothing
    assert whole.makespan == pytest.approx(18.0 * roofline(whole.graph["a+b"], FREE.devices[0]) / 7.46)
    assert whole.operators(speed=2.0).makespan == pytest.approx(whole.makespan / 2)


def test_whole_numbers_are_rounded():
    """0.3 x 108 SMs are 32.4, so 32; there is always one."""
    asked = what_if(FORK, FREE)
    assert asked.device(sms=0.3).cluster.devices[0].sms == 32
    assert asked.device(connections=1e-3).cluster.devices[0].connections == 1


def test_a_plan_over_a_rewritten_graph_is_not_kept_by_the_names_of_the_old_one():
    """Operators that are fused, taken out or quicker by name are those of the old graph: b and c are not in the plan.

    A plan made anew has them; a to b+c takes 10 + 40 us, and join nothing.
    """
    fork = convolutions()
    asked = what_if(fork, FREE, scheduler=merging)
    assert asked.makespan == 50.0
    again = what_if(fork, FREE, True, scheduler="sequential").fuse(["b", "c"])
    assert (again.direct, again.rescheduling) == (0.0, 0.0)
    anew = replace(what_if(fork, FREE, True, scheduler=merging).operators("a", speed=2.0), rescheduled=True)
    assert (anew.makespan, anew.direct) == (45.0, -5.0)
    assert asked.operators("b", speed=2.0).difference == 0.0
    assert what_if(asked.plan, FREE).operators("b+c", speed=2.0).difference == -20.0
    known = numeric_parameters(asked, per_operator=True)
    assert [name for name in known if name.startswith("operator.")] == ["operator.a.speed", "operator.join.speed"]


EXACT = "2 of 2 edges have an exact transfer time, which no link changes"
SEQUENTIAL = what_if(FORK, FREE, True, scheduler="sequential")
COPYING = Schedule(made(FORK.operators, "ac=1e3"), SPLIT.placements)
GRID = made([Operator("a", flops=1e9, kernels=(Kernel(108),))])
REDUCED = Operator("reduced", kind="collective", time=5.0, intensity="link")


@pytest.mark.parametrize(
    ("asked", "notes"),
    [
        (SEQUENTIAL.gpus(2), "sequential makes no use of the devices that were added: other schedulers may"),
        (what_if(FORK, FREE).gpus(3), "lios makes no use of the devices that were added: reschedule"),
        (what_if(FORK, FREE, True, scheduler="hios-lp").gpus(3), ""),
        (what_if(COPYING, PAIR).link(bandwidth=2.0), ""),
        (what_if(SPLIT, PAIR).link(bandwidth=2.0), EXACT),
        (
            what_if(one_stream(FORK), PAIR).link(bandwidth=2.0),
            f"{EXACT}; nothing is copied between devices: links make no difference",
        ),
        (
            what_if(one_stream(COPYING.graph), FREE).link(bandwidth=2.0),
            "nothing is copied between devices: links make no difference",
        ),
        (
            what_if(one_stream(made([Operator("a", time=5.0), REDUCED])), FREE).link(bandwidth=2.0),
            "1 of 2 operators move data over links, 'reduced' for one, and keep the times that they have: replay-trace "
            "changes those of a trace",
        ),
        (
            what_if(GRID, FREE).device("h100"),
            "kernels that were measured or given keep their grids and blocks, those of 1 of 1 operators",
        ),
    ],
)
def test_notes(asked, notes):
    assert "; ".join(asked.notes) == notes


def test_what_another_card_keeps():
    old = Cluster.preset("k80").replace_devices(launch=1.0, launch_latency=2.5, interleave=0.1)
    new = what_if(GRID, old).device("a100").cluster.devices[0]
    assert new == replace(Cluster.preset("a100").devices[0], launch=1.0, launch_latency=2.5, interleave=0.1)


def test_a_plan_that_cannot_run_any_more_does_not_stand_in_the_way_of_a_new_one():
    """Of a line of three devices the middle one is the last in order: without it the first two are not joined."""
    first, second, middle = Cluster.preset("a100", 3).without_overheads().devices
    link = PAIR.links[0][2]
    line = Cluster((first, second, middle), ((first.name, middle.name, link), (second.name, middle.name, link)))
    plan = Schedule(made(FORK.operators, "ab=8 ac=8"), SPLIT.placements)
    asked = what_if(plan, line, True, scheduler="sequential").gpus(2)
    assert (asked.makespan, asked.kept, asked.direct, asked.rescheduling) == (50.0, None, None, None)
