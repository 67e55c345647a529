"""HIOS's worked examples: Fig. 4 and 5, and the stage that its test for cycles lets through.

The structure of the graphs follows from the text of the paper, their times are one choice among several that fit it.
"""

from itertools import product
from typing import cast

import simsched as ss
from simsched.base.errors import ScheduleError
from simsched.model.costmodel import default_cost
from simsched.model.graph.structure import longest_from
from simsched.schedulers.hios.stages import Instance, StageCosts, Stages
from validation.papers.claims import Run, Values

Groups = tuple[tuple[str, ...], ...]


def _graph(times: str, edges: str) -> ss.OpGraph:
    """Return a graph of operators v1, v2, ... of given us, and edges such as "1-2", or "5-6:2" with a transfer of 2."""
    rows = [edge.replace(":", "-").split("-") for edge in edges.split()]
    return ss.OpGraph(
        [ss.Operator(f"v{i}", time=float(us)) for i, us in enumerate(times.split(), 1)],
        [ss.Edge(f"v{a}", f"v{b}", transfer=float(us[0]) if us else 1.0) for a, b, *us in rows],
    )


def _on_devices(graph: ss.OpGraph, *devices: str) -> Stages:
    """Return the operators, given by number, on each device alone, each a stage of its own, by falling priority."""
    device = {f"v{i}": number for number, those in enumerate(devices) for i in those}
    edges = [edge for edge in graph.edges if edge.src in device and edge.dst in device]
    part = ss.OpGraph([op for op in graph.operators if op.name in device], edges)
    instance = Instance(part, ss.Cluster.preset("a40", 2), default_cost)
    found = instance.mapping()
    found["ops"]["device"] = [device[part.names[i]] for i in instance.order]
    return Stages(instance, found)


def figure_4(_run: Run) -> Values:
    """Return priorities, what the paths take where, and the latency found; the least of all mappings besides."""
    graph = _graph("4 2 2 3 1 4 2 2", "1-2 1-3 2-4 3-5 4-6 5-6:2 5-7 6-8 7-8")
    rank = longest_from(graph, graph.time, graph.edge_transfer)
    plan = ss.schedule(graph, ss.Cluster.preset("a40", 2), "inter-lp")
    mappings = (["".join(v for v, on in zip("12345678", gpus, strict=True) if on == gpu) for gpu in "12"]
                for gpus in product("12", repeat=len(graph)))  # fmt: skip
    return {
        **{f"priority of {name}": float(us) for name, us in zip(graph.names, rank, strict=True)},
        "P1 alone": _on_devices(graph, "12468").latency,
        "P2 on GPU 1": _on_devices(graph, "1246835").latency,
        "P3 on GPU 1": _on_devices(graph, "124687", "35").latency,
        "P2 on GPU 2": _on_devices(graph, "12468", "35").latency,
        "P3 on GPU 2": _on_devices(graph, "12468", "357").latency,
        "paths": float(plan.search["paths"]),
        "latency": plan.estimate or 0.0,
        "best of all mappings": min(_on_devices(graph, *gpus).latency for gpus in mappings),
    }


def figure_5(_run: Run) -> Values:
    """Return the latency before Algorithm 2, after its first stage and at the end."""
    stages = _on_devices(_graph("4 4 2 4 5 2 1", "1-2 1-3 1-4 2-5 3-6 4-7 6-7"), "12457", "36")
    table = {("v2", "v4"): 7.0, ("v5", "v7"): 5.0, ("v4", "v5"): 9.0}
    seen = [stages.latency]

    def latency(groups: Groups) -> float:
        seen.append(stages.latency)
        return table[groups[0][0], groups[1][0]]

    stages.parallelize(2, cast(StageCosts, lambda _: latency))
    return {"one by one": seen[0], "v2 and v4 together": seen[2], "v5 and v7 as well": stages.latency}


def deadlock(_run: Run) -> Values:
    """Return whether {A, B}, here v1 and v2, is refused as a stage by Algorithm 2, and, B first, as a schedule."""
    graph = _graph("3 1 3 1", "1-3 4-2")
    merged = _on_devices(graph, "12", "34").parallelize(2, cast(StageCosts, lambda _: lambda _groups: 0.1))
    plan = ss.Schedule(
        graph,
        [ss.Placement("v2", "gpu0", stream=1, group=1), ss.Placement("v1", "gpu0", stream=0),
         ss.Placement("v3", "gpu1", stage=0), ss.Placement("v4", "gpu1", stage=1)],
        execution="stages",
    )  # fmt: skip
    try:
        plan.check(ss.Cluster.preset("a40", 2))
    except ScheduleError:
        refused = 1.0
    else:
        refused = 0.0
    return {"refused by Algorithm 2": float(merged["stages_refused"] > 0), "refused as a schedule": refused}
