"""HIOS's worked examples: Fig. 4 and 5, and the stage that its test for cycles lets through.

The structure of the graphs follows from the text of the paper, their times are one choice among several that fit it.
"""

from collections.abc import Mapping
from itertools import product
from typing import Final, cast

import simsched as ss
from simsched.base.errors import ScheduleError
from simsched.model.costmodel import default_cost
from simsched.model.graph.structure import longest_from
from simsched.schedulers.hios.stages import Instance, StageCosts, Stages
from validation.papers.claims import EXACT, Claim, Run, Values
from validation.published import hios_example

Groups = tuple[tuple[str, ...], ...]

P1: Final = ("v1", "v2", "v4", "v6", "v8")
P2, P3 = ("v3", "v5"), ("v7",)


def _cluster() -> ss.Cluster:
    return ss.Cluster.preset("a40", 2)


def _graph(times: Mapping[str, float], edges: str) -> ss.OpGraph:
    """Return a graph with transfers of 1 us; `edges` are words such as "v1-v2"."""
    return ss.OpGraph(
        [ss.Operator(name, time=us) for name, us in times.items()],
        [ss.Edge(src, dst, transfer=1.0) for src, dst in (edge.split("-") for edge in edges.split())],
    )


def _on_devices(graph: ss.OpGraph, device: Mapping[str, int]) -> Stages:
    """Return operators on given devices, each a stage of its own, by falling priority."""
    instance = Instance(graph, _cluster(), default_cost)
    found = instance.mapping()
    found["ops"]["device"] = [device[graph.names[i]] for i in instance.order]
    return Stages(instance, found)


def _latency(graph: ss.OpGraph, device: Mapping[str, int]) -> float:
    """Return the latency in us of the operators that have a device, alone."""
    part = ss.OpGraph(
        [op for op in graph.operators if op.name in device],
        [edge for edge in graph.edges if edge.src in device and edge.dst in device],
    )
    return _on_devices(part, device).latency


def figure_4(_run: Run) -> Values:
    """Return priorities, what the paths take where, and the latency found; the least of all mappings besides."""
    graph = hios_example()
    rank = longest_from(graph, graph.time, graph.edge_transfer)
    plan = ss.schedule(graph, _cluster(), "inter-lp")
    first = dict.fromkeys(P1, 0)
    found = {f"priority of {name}": float(rank[i]) for i, name in enumerate(graph.names)}
    found["P1 alone"] = _latency(graph, first)
    for gpu in (0, 1):
        found[f"P2 on GPU {gpu + 1}"] = _latency(graph, first | dict.fromkeys(P2, gpu))
        found[f"P3 on GPU {gpu + 1}"] = _latency(graph, first | dict.fromkeys(P2, 1) | dict.fromkeys(P3, gpu))
    found["paths"] = float(plan.search["paths"])
    found["latency"] = plan.estimate or 0.0
    found["best of all mappings"] = min(
        _latency(graph, dict(zip(graph.names, on, strict=True))) for on in product((0, 1), repeat=len(graph))
    )
    return found


def figure_5(_run: Run) -> Values:
    """Return the latency before Algorithm 2, after its first stage and at the end."""
    times = {"v1": 4.0, "v2": 4.0, "v3": 2.0, "v4": 4.0, "v5": 5.0, "v6": 2.0, "v7": 1.0}
    graph = _graph(times, "v1-v2 v1-v3 v1-v4 v2-v5 v3-v6 v4-v7 v6-v7")
    stages = _on_devices(graph, dict.fromkeys(("v1", "v2", "v4", "v5", "v7"), 0) | dict.fromkeys(("v3", "v6"), 1))
    table = {("v2", "v4"): 7.0, ("v5", "v7"): 5.0, ("v4", "v5"): 9.0}
    seen = [stages.latency]

    def latency(groups: Groups) -> float:
        seen.append(stages.latency)
        return table[groups[0][0], groups[1][0]]

    stages.parallelize(2, cast(StageCosts, lambda _: latency))
    return {"one by one": seen[0], "v2 and v4 together": seen[2], "v5 and v7 as well": stages.latency}


def deadlock(_run: Run) -> Values:
    """Return whether {A, B} is refused as a stage by Algorithm 2, and, B launched first, as a schedule."""
    graph = _graph({"A": 3.0, "B": 1.0, "C": 3.0, "D": 1.0}, "A-C D-B")
    stages = _on_devices(graph, {"A": 0, "B": 0, "C": 1, "D": 1})

    def quick(_groups: Groups) -> float:
        return 0.1

    merged = stages.parallelize(2, cast(StageCosts, lambda _: quick))
    plan = ss.Schedule(
        graph,
        [ss.Placement("B", "gpu0", stream=1, group=1), ss.Placement("A", "gpu0", stream=0),
         ss.Placement("C", "gpu1", stage=0), ss.Placement("D", "gpu1", stage=1)],
        execution="stages",
    )  # fmt: skip
    try:
        plan.check(_cluster())
    except ScheduleError:
        refused = 1.0
    else:
        refused = 0.0
    return {"refused by Algorithm 2": float(merged["stages_refused"] > 0), "refused as a schedule": refused}


_CHOSEN: Final = "the structure from the text, times that fit it; the text's numbers"
CLAIMS: Final[tuple[Claim, ...]] = (
    Claim(
        "hios-fig4", "HIOS", "Fig. 4", "worked example of HIOS-LP on 2 GPUs: priorities, "
        "three paths, latencies in us (the released code never ends on it)",
        {
            **{f"priority of v{i}": us for i, us in enumerate((19.0, 14.0, 13.0, 11.0, 10.0, 7.0, 5.0, 2.0), 1)},
            "P1 alone": 15.0, "P2 on GPU 1": 18.0, "P2 on GPU 2": 16.0, "P3 on GPU 1": 18.0, "P3 on GPU 2": 16.0,
            "paths": 3.0, "latency": 16.0, "best of all mappings": 16.0,
        },
        _CHOSEN, EXACT, figure_4,
    ),
    Claim(
        "hios-fig5", "HIOS", "Fig. 5",
        "worked example of Algorithm 2: latency in us as stages form (where the text has v3 behind v2 on GPU 1, it "
        "must be v4)",
        {"one by one": 18.0, "v2 and v4 together": 17.0, "v5 and v7 as well": 16.0},
        _CHOSEN, EXACT, figure_5,
    ),
    Claim(
        "hios-fig6", "HIOS", "Fig. 6", "the figure's example", {}, "not collected",
        missing="source not available: nothing of Fig. 6 was collected; Fig. 4 and 5 are the examples that were",
    ),
    Claim(
        "hios-algorithm2-deadlock", "HIOS", "Algorithm 2",
        "no stage closes a cycle (1: refused). The printed test looks at data alone, as the released code does: A, "
        "B on one GPU, C, D on another, A -> C, D -> B passes with {A, B} as a stage, which never ends if B is "
        "launched first",
        {"refused by Algorithm 2": 1.0, "refused as a schedule": 1.0},
        "follows from in-order execution", EXACT, deadlock,
    ),
)  # fmt: skip
