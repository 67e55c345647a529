"""Graphs of operators of every kind, clusters with every limit and cost, and schedules and programs that run on them.

A `random.Random` chooses: one of Hypothesis, whose choices it makes smaller when a test fails, or a seeded one, which
is quick.
"""

from dataclasses import replace
from math import inf, nan

from hand_made import DEVICE
from hypothesis import strategies as st

import simsched as ss
from simsched.model.graph import ALGORITHMS

FIELDS = {
    "interleave": (0.0, 0.3, 0.5, 1.0),
    "interference": (((0.0, 0.0), (0.0, 0.0)), ((0.06, 0.03), (0.2, 0.5))),
    "saturating_warps": (8.0, 24.0, 32.0),
    "block_spread": (0.0, 0.08, 0.3),
    "kernel_latency": (0.0, 0.0, 0.5),
    "crowd_latency": (0.0, 0.0, 0.35, 3.0),
    "connections": (1, 2, 3, 32),
    "resident_kernels": (1, 2, 3, 128),
    "contention": (True, True, True, True, False),
    "copy_engines": (1, 2),
    "copy_rate": (60.0, inf),
    "bandwidth": (20.0, 100.0, 1000.0),
    "shared_memory_per_sm": (65536, 65536.5),
}
COSTS = (
    "launch",
    "record",
    "wait",
    "copy",
    "barrier",
    "barrier_many",
    "gap",
    "hop",
    "graph_launch",
    "graph_node",
    "graph_issue",
    "graph_join",
    "launch_latency",
)
TICKS = (0.0, 0.1, 0.2, 0.3, 1.0, 1.0, 2.0, 3.0, 10.0, 10.0)


def operator(rng, name):
    """Time only, utilization, or one to three kernels; any intensity."""
    load = rng.choice(("none", "utilization", "kernels", "kernels", "kernels"))
    shares = rng.choice([(1.0,), (1.0,), (0.25, 0.75), (0.5, 0.25, 0.25)]) if load == "kernels" else ()
    kernels = tuple(
        ss.Kernel(
            rng.choice((1, 5, 10, 20, 40, 1000, rng.randint(1, 120))),
            threads=rng.choice((32, 100, 256, 512, 640, 1024)),
            registers=rng.choice((16, 32, 64)),
            shared_memory=rng.choice((0, 0, 5000, 32768, 40960)),
            share=share,
        )
        for share in shares
    )
    return ss.Operator(
        name,
        time=rng.choice((*TICKS, rng.uniform(0.0, 60.0))),
        nbytes=rng.choice((0.0, 1e3, 1e4, 5e4)),
        flops=rng.choice((0.0, 1e3, 1e4, 5e4)),
        intensity=rng.choice((None, "compute", "memory")),
        utilization=rng.choice((0.1, 0.5, 0.6, 1.0)) if load == "utilization" else None,
        kernels=kernels,
    )


def cluster(rng):
    """One to three devices with random limits, overheads and links."""
    costs = rng.choice([(0.0,), (1.0,), (0.0, 0.1, 1.0, 4.3), (0.0, 1.0, 0.618)])
    fields = {name: rng.choice(values) for name, values in FIELDS.items()}
    fields |= {name: rng.choice(costs) for name in COSTS}
    names = [f"gpu{i}" for i in range(rng.randint(1, 3))]
    devices = [
        replace(DEVICE, name=name, sms=rng.choice((1, 4, 10)), blocks_per_sm=rng.randint(1, 4), **fields)
        for name in names
    ]
    pairs = rng.choice([[(name, "switch") for name in names], [(a, b) for a in names for b in names if a < b]])
    wires = [
        (a, b, ss.Link(rng.choice((50.0, 60.0, 300.0, 700.0)), rng.choice((0.0, 1.0, 2.0)), duplex=rng.random() < 0.5))
        for a, b in pairs
    ]
    return ss.Cluster(tuple(devices), tuple(wires))


def plan(rng, least=1, most=14):
    """A cluster, a schedule that can run on it, and options of `Schedule.lower`."""
    made, n, n_streams = cluster(rng), rng.randint(least, most), rng.randint(1, 5 if most < 20 else 12)
    edges, depth = [], [0] * n
    for v in range(1, n):
        for u in sorted(rng.sample(range(v), min(v, rng.choice((0, 0, 1, 2, 3))))):
            nbytes, exact = rng.choice((0.0, 60.0, 100.0, 1000.0)), rng.choice((None, None, None, 0.0, 4.0))
            edges.append(ss.Edge(f"o{u}", f"o{v}", nbytes, exact))
            depth[v] = max(depth[v], depth[u] + 1)
    execution = rng.choice(("events", "stages", "graph"))
    order = sorted(range(n), key=lambda i: depth[i]) if execution == "stages" else range(n)
    placements, apart = [], rng.choice((1, 1, 1, 10**6))
    for i in order:
        stream, device = rng.randrange(n_streams) * apart, rng.choice(made.devices).name
        # operators of equal depth do not depend on each other
        placements.append(ss.Placement(f"o{i}", device, stream, depth[i], stream, rng.choice((0, 0, 0, 1, -1))))
    options = {"threads": rng.choice(("device", "one")), "events": rng.choice(("minimal", "literal"))}
    if execution != "graph":
        options["transfers"] = rng.choice(("async", "blocking"))
    graph = ss.OpGraph([operator(rng, f"o{i}") for i in range(n)], edges)
    return made, ss.Schedule(graph, placements, execution), options


def program(rng, least=1, most=14):
    """A cluster, a program that runs on it, and a jitter."""
    made, schedule, options = plan(rng, least, most)
    lowered, some = schedule.lower(made, **options), (0.0, 0.0, 1.0, 1.0, 4.3)
    if schedule.execution != "graph" and rng.random() < 0.25:
        lead, own = ([rng.choice(values) for _ in range(len(lowered))] for values in (some, (*some, nan)))
        lowered = lowered.timed(rng.choice((None, lead)), rng.choice((None, own)))
    return made, lowered, rng.choice((None, None, 0.05, 0.5))


chooser = st.randoms(use_true_random=False)
plans = st.builds(plan, chooser)


def exchanging(rng, least=2, most=14):
    """A cluster, a program with collectives that runs on it, and a jitter: symmetric ones, and ranks on devices."""
    made, schedule, options = plan(rng, least, most)
    free = list(range(len(schedule.graph)))
    for number in range(rng.randint(1, 5)):
        ops, chosen = list(schedule.graph.operators), ranks_among(rng, schedule, free)
        collective = some_collective(rng, len(made), len(chosen), f"g{number}")
        if collective is None:
            continue
        for i in chosen:
            kernels = (ss.Kernel(rng.choice((1, 4, 100)), threads=256),) if rng.random() < 0.5 else ()
            time = rng.choice((None, None, *TICKS))
            ops[i] = ss.Operator(ops[i].name, time=time, kernels=kernels, collective=collective)
        further = ss.Schedule(ss.OpGraph(ops, schedule.graph.edges), schedule.placements, schedule.execution)
        try:
            further.lower(made, **options)
        except ss.SimschedError:  # ranks would wait for each other for ever
            continue
        schedule, free = further, [i for i in free if i not in chosen]
    return made, bound(rng, made, schedule).lower(made, **options), rng.choice((None, None, 0.05, 0.5))


def bound(rng, made, schedule):
    """The schedule with some of its streams bound to SMs."""
    partitions = []
    for device in made.devices:
        streams = sorted({row.stream for row in schedule.placements if row.device == device.name})
        left = device.sms
        for stream in rng.sample(streams, rng.choice((0, 0, 1, len(streams)))) if streams else ():
            if left:
                partitions.append(ss.Partition(device.name, stream, rng.randint(1, left)))
                left -= partitions[-1].sms
    return schedule.like(partitions=partitions)


def ranks_among(rng, schedule, free):
    """Some of the operators that are free, on devices of their own."""
    homes = {schedule.graph.index[row.op]: row.device for row in schedule.placements}
    shared = sorted({homes[i] for i in free})
    if not shared:
        return []
    shared = rng.sample(shared, rng.randint(1, len(shared)))
    return [rng.choice([i for i in free if homes[i] == home]) for home in shared]


def some_collective(rng, n_devices, n_ranks, group):
    """A collective of so many operators; None if there could be none."""
    if n_ranks == 0:
        return None
    ranks = n_ranks if n_ranks > 1 else rng.randint(2, n_devices if n_devices > 1 else 8)
    operation = rng.choice([name for name in ALGORITHMS if name != "send_recv" or ranks == 2])
    algorithm = rng.choice((None, *(name for name in ALGORITHMS[operation] if name != "nvls")))
    nbytes = rng.choice((1.0, 100.0, 1e3, 5e4, 1e6))
    return ss.Collective(operation, nbytes, ranks, rng.choice((None, group)) if n_ranks == 1 else group, algorithm)
