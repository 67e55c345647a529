"""The compiled simulator as Python, as unoptimised and as optimised machine code: the same to the last bit."""

from dataclasses import replace
from random import Random

import pytest

import simsched as ss
from simsched.base.errors import DeadlockError
from simsched.base.jit.pieces import running

COLUMNS = ("kind", "item", "op", "device", "stream", "cause", "start", "end", "ready", "solo")
CURVES = ("time", "sm", "dram", "warps", "active_sms")


def cluster(rng):
    """Two linked GPUs of 10 SMs; kernels of several waves, few hardware queues, every cost."""
    costs = {
        name: rng.choice([0.0, 0.5, 1.0]) for name in ("launch", "record", "wait", "copy", "barrier", "gap", "hop")
    }
    device = replace(ss.Cluster.preset("a40").devices[0], sms=10, connections=2, resident_kernels=3, interleave=0.5,
                     interference=((0.1, 0.2), (0.3, 0.4)), copy_rate=150.0, **costs)  # fmt: skip
    devices = tuple(replace(device, name=f"gpu{d}") for d in range(2))
    return ss.Cluster(devices, (("gpu0", "gpu1", ss.Link(100.0, 0.5)),))


def graph(rng, n=40):
    kinds = [
        {},
        {"utilization": 0.6},
        {"kernels": (ss.Kernel(30, threads=512),), "intensity": "memory", "nbytes": 1e4},
        {"kernels": (ss.Kernel(500, threads=256, share=0.25), ss.Kernel(7, threads=1024, share=0.75)), "flops": 1e4},
    ]
    ops = [ss.Operator(f"o{i}", time=rng.choice([0.0, 0.3, 2.0, 9.0]), **rng.choice(kinds)) for i in range(n)]
    edges = [
        ss.Edge(f"o{u}", f"o{v}", rng.choice([0.0, 100.0, 1000.0]), rng.choice([None, None, 2.0]))
        for v in range(1, n)
        for u in rng.sample(range(v), min(v, rng.choice([0, 1, 2])))
    ]
    return ss.OpGraph(ops, edges)


def cases(seed):
    rng = Random(seed)
    gpus, dag = cluster(rng), graph(rng)
    places = [
        ss.Placement(op, f"gpu{rng.randrange(2)}", rng.randrange(5), priority=rng.choice([0, 0, -1]))
        for op in dag.names
    ]
    yield gpus, ss.Schedule(dag, places).lower(gpus), 0.1
    yield gpus, ss.Schedule(dag, places).lower(gpus, transfers="blocking", threads="one"), None
    one = ss.Cluster(gpus.devices[:1])
    alone = ss.Schedule(dag, [replace(place, device="gpu0") for place in places], "graph").lower(one)
    yield one, alone, None
    yield one, stuck(dag, one), None
    yield gpus, ss.Schedule(dag, [replace(place, stream=place.stream * 10**6) for place in places]).lower(gpus), None


def stuck(dag, one):
    """A program that waits for an event that nobody records."""
    places = [ss.Placement(op, stream=i % 3) for i, op in enumerate(dag.names)]
    data = ss.Schedule(dag, places).lower(one).to_dict()
    rows = data["threads"][0]
    rows.remove(next(row for row in reversed(rows) if row["do"] == "record"))
    return ss.Program.from_dict(data)


def outcome(how, gpus, program, jitter):
    """Everything that a run says; a program of its own, for a plan is kept with it."""
    program = ss.Program.from_dict(program.to_dict())
    with running(how):
        try:
            trace = ss.simulate(program, gpus, jitter=jitter, rng=0)
            found = [getattr(trace, name).tolist() for name in COLUMNS]
            found += [getattr(load, name).tolist() for load in trace.loads for name in CURVES]
            if jitter:
                found.append(ss.simulate_many(program, gpus, 3, jitter=jitter, rng=0).values.tolist())
        except DeadlockError as error:
            return str(error)
    return found


@pytest.mark.parametrize("seed", range(4))
def test_runs_agree(seed):
    for case in cases(seed):
        interpreted = outcome("0", *case)
        assert len(interpreted) > 10
        assert outcome("O0", *case) == interpreted
        assert outcome("O3", *case) == interpreted


def test_a_stage_agrees():
    gpus, dag = cluster(Random(0)), graph(Random(0))
    latency = ss.StageLatency(dag, gpus)
    for groups in ([["o0"]], [[op] for op in dag.names[:9]], [dag.names[:4], dag.names[4:8]]):
        found = []
        for how in ("0", "O0", "O3"):
            with running(how):
                found.append(latency(groups))
        assert found[0] > 0
        assert found == found[:1] * 3
