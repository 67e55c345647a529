"""Small graphs of operators of every kind, clusters with every limit and cost, and schedules that can run."""

from dataclasses import replace

import numpy as np
from hand_made import DEVICE
from hypothesis import strategies as st

import simsched as ss

COSTS = ("launch", "record", "wait", "copy", "barrier", "gap", "hop", "graph_launch", "graph_node", "launch_latency")
times = st.sampled_from([0.0, 0.1, 0.2, 0.3, 1.0, 1.0, 2.0, 3.0, 10.0, 10.0]) | st.floats(0.0, 60.0)
sizes = st.sampled_from([0.0, 1e3, 1e4, 5e4])


@st.composite
def operators(draw, name):
    """Time only, utilization, or one to three kernels; any intensity."""
    fields = {"time": draw(times), "nbytes": draw(sizes), "flops": draw(sizes)}
    fields["intensity"] = draw(st.sampled_from([None, "compute", "memory"]))
    kind = draw(st.sampled_from(["time", "utilization", "kernels", "kernels", "kernels"]))
    if kind == "utilization":
        fields["utilization"] = draw(st.sampled_from([0.1, 0.5, 0.6, 1.0]))
    elif kind == "kernels":
        fields["kernels"] = tuple(
            ss.Kernel(
                draw(st.sampled_from([1, 5, 10, 20, 40, 1000]) | st.integers(1, 120)),
                threads=draw(st.sampled_from([32, 100, 256, 512, 1024])),
                registers=draw(st.sampled_from([16, 32, 64])),
                shared_memory=draw(st.sampled_from([0, 0, 5000, 32768])),
                share=share,
            )
            for share in draw(st.sampled_from([(1.0,), (1.0,), (0.25, 0.75), (0.5, 0.25, 0.25)]))
        )
    return ss.Operator(name, **fields)


@st.composite
def clusters(draw):
    """One to three devices with random limits, overheads and links."""
    fields = {
        "interleave": draw(st.sampled_from([0.0, 0.3, 0.5, 1.0])),
        "interference": draw(st.sampled_from([((0.0, 0.0), (0.0, 0.0)), ((0.06, 0.03), (0.2, 0.5))])),
        "saturating_warps": draw(st.sampled_from([8.0, 24.0, 32.0])),
        "block_spread": draw(st.sampled_from([0.0, 0.08, 0.3])),
        "kernel_latency": draw(st.sampled_from([0.0, 0.0, 0.5])),
        "connections": draw(st.sampled_from([1, 2, 3, 32])),
        "resident_kernels": draw(st.sampled_from([1, 2, 3, 128])),
        "contention": draw(st.sampled_from([True, True, True, True, False])),
        "copy_engines": draw(st.integers(1, 2)),
        "copy_rate": draw(st.sampled_from([60.0, np.inf])),
        "bandwidth": draw(st.sampled_from([100.0, 1000.0])),
    }
    costs = draw(st.sampled_from(["none", "some", "round", "any"]))
    if costs == "some":
        fields |= {"launch": 2.0, "record": 0.5, "wait": 0.7, "copy": 1.0, "barrier": 5.0, "gap": 0.3, "hop": 1.1}
        fields |= {"graph_launch": 3.0, "graph_node": 0.4, "launch_latency": 2.9}
    elif costs == "round":
        fields |= dict.fromkeys(COSTS, 1.0)
    elif costs == "any":
        fields |= {name: draw(st.sampled_from([0.0, 0.1, 1.0, 4.3])) for name in COSTS}
    devices = tuple(
        replace(
            DEVICE,
            name=f"gpu{i}",
            sms=draw(st.sampled_from([1, 4, 10])),
            blocks_per_sm=draw(st.integers(1, 4)),
            **fields,
        )
        for i in range(draw(st.integers(1, 3)))
    )
    links = st.builds(
        ss.Link, st.sampled_from([50.0, 60.0, 700.0]), st.sampled_from([0.0, 1.0, 2.0]), duplex=st.booleans()
    )
    names = [device.name for device in devices]
    if draw(st.booleans()):
        wires = [(name, "switch", draw(links)) for name in names]
    else:
        wires = [(a, b, draw(links)) for i, a in enumerate(names) for b in names[i + 1 :]]
    return ss.Cluster(devices, tuple(wires))


@st.composite
def plans(draw):
    """A cluster, a schedule that can run on it, and options of `Schedule.lower`."""
    cluster = draw(clusters())
    n = draw(st.integers(1, 14))
    edges, depth = [], [0] * n
    for v in range(1, n):
        for u in sorted(draw(st.sets(st.integers(0, v - 1), max_size=3))):
            exact = draw(st.sampled_from([None, None, None, 0.0, 4.0]))
            edges.append(ss.Edge(f"o{u}", f"o{v}", draw(st.sampled_from([0.0, 60.0, 100.0, 1000.0])), exact))
            depth[v] = max(depth[v], depth[u] + 1)
    graph = ss.OpGraph([draw(operators(f"o{i}")) for i in range(n)], edges)
    execution = draw(st.sampled_from(["events", "stages", "graph"]))
    n_streams = draw(st.integers(1, 5))
    streams = [draw(st.integers(0, n_streams - 1)) for _ in range(n)]
    placements = [
        ss.Placement(
            f"o{i}",
            draw(st.sampled_from(cluster.devices)).name,
            streams[i],
            stage=depth[i],  # operators of equal depth do not depend on each other
            group=streams[i],
            priority=draw(st.sampled_from([0, 0, 0, 1, -1])),
        )
        for i in sorted(range(n), key=lambda i: (depth[i], i))
    ]
    options = {
        "threads": draw(st.sampled_from(["device", "one"])),
        "events": draw(st.sampled_from(["minimal", "literal"])),
        "transfers": draw(st.sampled_from(["async", "blocking"])) if execution != "graph" else "async",
    }
    return cluster, ss.Schedule(graph, placements, execution), options
