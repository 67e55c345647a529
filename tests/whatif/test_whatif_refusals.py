"""What cannot be asked: questions, and what follows from their answers."""

import pytest
from small import chain, convolutions, made, merging, one_stream, operators, placements

import simsched as ss
from simsched.base.errors import ClusterError, SimulationError, UnknownNameError, WhatIfError
from simsched.experiments.whatif import parse_change
from simsched.experiments.whatif.rewiring import fuse_operators, remove_operators
from simsched.experiments.whatif.whatif import value_of

FREE = ss.Cluster.preset("a100").without_overheads()
PAIR = ss.Cluster.preset("a100", 2).without_overheads()
FORK = made(operators("a=10 b=20 c=20", utilization=1.0), "ab ac", transfer=5.0)
SPLIT = ss.Schedule(FORK, placements("a b c@1"))
COPIES = ss.Schedule(made("a=1 b=1 c=1", "ac=8"), SPLIT.placements)
PLAN = one_stream(FORK)
DIAMOND = made("a=1 b=2 c=3 d=4", "ab ac bd cd")
first, second, middle = PAIR.devices[0], PAIR.devices[1], ss.Cluster.preset("a100", 3).devices[2]
# without the device in the middle, the last in order, the others are not joined
JOINED = ss.Cluster((first, second, middle), tuple((d.name, middle.name, PAIR.links[0][2]) for d in (first, second)))


def load(batch=1, blocks=2):
    return chain(*[2.0 * batch] * blocks)


a, split, rebuilt = ss.what_if(FORK, FREE), ss.what_if(SPLIT, PAIR), ss.what_if(load(), FREE, load=load)
merged = ss.what_if(convolutions(), FREE, scheduler=merging)


def robust(*plans):
    return ss.robust(plans, FREE, jitter=0.1, samples=2, rng=0)


def fuse(graph, names):
    return fuse_operators(graph, names, graph.time, FREE.devices[0])


NOT_KEPT = "the plan cannot be kept: .* is not one of graph .*; ask with reschedule=True"
REFUSED = {
    UnknownNameError: [
        (lambda: a.set("sm", 2), "unknown parameter 'sm'; closest of"),
        (lambda: a.device(launch=2), "unknown parameter 'device.launch'; closest of"),
        (lambda: a.device("b100"), "unknown gpu 'b100'"),
        (lambda: a.execution("waves"), "unknown execution 'waves'; known are: stages"),
        (lambda: a.operators(kind="conv", speed=2).makespan, "unknown kind 'conv'; known are: op"),
        (lambda: a.operators("z", speed=2).makespan, "unknown operator 'z'; known are: a, b, c"),
        (lambda: a.fuse(["a", "b"]).operators("a", speed=2.0).makespan, "unknown operator 'a'"),
        (lambda: fuse(FORK, "ae"), "unknown operator 'e'; known are: a, b, c"),
        (lambda: value_of(a, "smz"), "smz"),
        (lambda: value_of(a, "operator.z.speed"), "z"),
        (lambda: value_of(a, "operators.z.speed"), "z"),
        (lambda: parse_change("link.width=2"), "unknown parameter 'link.width'; closest of"),
        (lambda: a.sweep("link.width", [1]), r"link\.width"),
        (lambda: a.sweep("device", ["gtx"]), "gtx"),
        (lambda: a.sensitivity(parameters=["operator.x.speed"]), "operator"),
        (lambda: ss.breakeven("link.bandwidth", PLAN, "nosuch", PAIR), "nosuch"),
    ],
    ClusterError: [
        (lambda: a.device(bandwidth=0).makespan, "bandwidth must be finite and positive"),
        (lambda: a.device(sms=ss.absolute(54.5)).cluster, "sms must be"),
        (lambda: a.device(sms=0).cluster, "sms must be"),
        (lambda: ss.what_if(COPIES, JOINED).gpus(2).makespan, "no links lead from gpu0 to gpu1"),
    ],
    SimulationError: [
        (lambda: robust(PLAN).best(101), "percentile"),
        (lambda: robust(PLAN).best(-1), "percentile"),
    ],
    WhatIfError: [
        (lambda: a.operators("a", kind="op", speed=2), "give names or a kind, not both"),
        (lambda: a.operators(speed=0), "operators.speed: a speed must be positive"),
        (lambda: a.link(bandwidth=-1), "link.bandwidth: give a finite number that is not neg"),
        (lambda: a.link(bandwidth=float("nan")), "not nan"),
        (lambda: a.gpus(0), "gpus must be a whole number from 1 to 4,096, not 0"),
        (lambda: a.gpus(4097), "gpus must be a whole number from 1 to 4,096, not 4097"),
        (lambda: a.set("contention", 2), "contention must be true or false, not 2"),
        (lambda: a.fuse([]), "fuse must not be empty"),
        (lambda: a.fuse([["a"], ["b"]]), r"fuse\[0\] must be a text"),
        (lambda: a.remove("a", "b", "c").makespan, "nothing of graph 'graph' would be left"),
        (lambda: remove_operators(FORK, "abc"), "nothing of graph 'graph' would be left"),
        # b between a and d cannot wait for the one and be waited for by the other if they are one
        (lambda: fuse(DIAMOND, "da"), "fuse: a -> b -> d leads out of the operators and back in"),
        (lambda: fuse(DIAMOND, "abd"), "a -> c -> d leads"),
        (lambda: fuse(made("a=1 b=1 c=1 d=1 e=1", "ab bc cd de"), "ae"), "fuse: a -> b -> c -> d -> e leads"),
        (lambda: a.rebuild(batch=[float("inf")]), "rebuild.batch must be a JSON value"),
        (lambda: a.rebuild(batch=2).makespan, "rebuild: pass `load`"),
        (lambda: rebuilt.rebuild(size=2).makespan, r"rebuild: load\(\) got an unexpected keyword argument 'size'"),
        (lambda: rebuilt.rebuild(blocks=1).makespan, "cannot be kept: the schedule of graph 'chain' is not one"),
        (
            lambda: ss.what_if(FORK, FREE, load=lambda batch: batch).rebuild(batch=1).makespan,
            "`load` returned int, not an OpGraph",
        ),
        (lambda: split.gpus(1).makespan, "the plan uses gpu1, which '1 of 2 x a100' does not have; ask with resched"),
        # c on gpu1 is launched before a on gpu0: no single thread can capture that
        (
            lambda: ss.what_if(ss.Schedule(FORK, placements("c@1 a b")), PAIR).execution("graph").makespan,
            r"cannot be kept: .*'c': it is launched before 'a'.*reschedule=True",
        ),
        (lambda: merged.fuse(["b", "c"]).makespan, NOT_KEPT),
        (lambda: merged.fuse(["a", "b"]).makespan, NOT_KEPT),
        (lambda: merged.remove("a").makespan, NOT_KEPT),
        (lambda: parse_change("gpus"), r"'gpus': expected PARAMETER\*=FACTOR or PARAMETER=VALUE"),
        (lambda: parse_change("=3"), "expected PARAMETER"),
        (lambda: parse_change("gpus="), "expected PARAMETER"),
        (lambda: parse_change("gpus*=2"), "gpus takes no factor; write gpus=VALUE"),
        (lambda: parse_change("link.bandwidth*=2GB/s"), "give a number, not '2GB/s'"),
        (lambda: parse_change("link.bandwidth=2us"), "give a number, or one of GB/s, not '2us'"),
        (lambda: parse_change("link.bandwidth=fast"), "give a number, or one of GB/s, not 'fast'"),
        (lambda: split.sweep("gpus", [1]), "every value is refused"),
        (lambda: a.sweep("link.bandwidth", []), "give a list of values"),
        (lambda: a.sweep("link.bandwidth", [1], "gpus"), "belong together"),
        (lambda: ss.sensitivity(PLAN), "give the cluster"),
        (lambda: a.sensitivity(parameters=["gpus"]), "gpus takes no factors: ask with `sweep`"),
        (lambda: ss.sensitivity(one_stream(chain(0.0)), FREE), "takes no time"),
        (lambda: a.sensitivity(parameters=["overhead.launch"]).plot(), "nothing to draw"),
        (lambda: robust(), "no plans to compare"),
        (lambda: ss.breakeven("link.bandwidth", "lios", "heft", PAIR), "give `graph`"),
        (lambda: ss.breakeven("gpus", PLAN, SPLIT, PAIR), "takes no factors"),
        (lambda: ss.breakeven("overhead.launch", PLAN, SPLIT, PAIR), "is 0 and stays so"),
        (lambda: ss.throughput(one_stream(chain(1.0)), FREE, 0), "in_flight must be a whole number"),
        (lambda: ss.throughput(one_stream(chain(*[1.0] * 1000)), FREE, 4096), "too many: 3355 would do"),
        (lambda: ss.throughput(one_stream(chain(1.0)), FREE, 10**8), "in_flight must be at most 4,096"),
    ],
}


@pytest.mark.parametrize(("error", "ask", "message"), [(e, *row) for e, rows in REFUSED.items() for row in rows])
def test_what_cannot_be_asked(error, ask, message):
    with pytest.raises(error, match=message):
        ask()
