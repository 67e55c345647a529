"""HIOS's claims: "HIOS: Hierarchical Inter-Operator Scheduler", IEEE CLUSTER 2023.

Its simulated figures, 7 to 11, have three columns here (`columns`): what was printed, what the released code reports,
and what the algorithms come to under a correct model, beside an independent reimplementation of them. The released
evaluator is rebuilt from a description (`Evaluator`): under it the same mappings come out as printed, so it is what
makes the difference. It takes operators in the order of their numbers, which is not topological, and has an operator
wait not for its producers but for all that was put so far on the GPUs they are on. The same mapping can be evaluated
with either of the two repaired, or both, which shows which of them makes the figures.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from graphlib import CycleError, TopologicalSorter
from itertools import product
from statistics import median
from typing import Final

import numpy as np

import simsched as ss
import workloads
from simsched.base.errors import ScheduleError
from simsched.model.costmodel import default_cost, operator_times
from simsched.model.graph.opgraph import longest_from
from simsched.schedulers.hios import Ranked, Stages
from validation.evidence import each, table
from validation.hardware.graphs import convolutions
from validation.papers import hios_simulated as simulated
from validation.papers.claims import DEVIATION, Claim, Measures, Outcome, Run, Values, claims_of, drawn_graph
from validation.papers.hios_simulated import FIGURES, SCHEDULERS, Samples, Setting, instances, with_spread

Inputs = Sequence[Mapping[int, float]]
"""Of each stage, by number of its first operator: those it reads from, and us of the transfer."""

UNLIKE: Final = 22
"""Layers for which the released generator has no 200 operators; they are dealt out evenly then."""


@dataclass(frozen=True, slots=True)
class Evaluator:
    """A mapping of a graph onto GPUs, as the released code evaluates it.

    Parameters
    ----------
    graph
        With times, utilizations and exact transfers.
    device
        Of each operator, from 0.
    """

    graph: ss.OpGraph
    device: Sequence[int]

    def makespan(self, *, by_priority: bool = False, by_operator: bool = False) -> float:
        """Return the reported latency in us.

        Parameters
        ----------
        by_priority
            Take operators by falling longest path to an output, not in the order of their numbers.
        by_operator
            Wait for the ends of producers, not for their devices.
        """
        order: Iterable[int] = range(len(self.graph))
        if by_priority:
            rank = longest_from(self.graph, self.graph.time, self.graph.edge_transfer)
            topological = self.graph.order_index
            order = topological[np.argsort(-rank[topological], kind="stable")].tolist()
        inputs = inputs_of(self.graph, range(len(self.graph)))
        return _listed(order, self.graph.time.tolist(), inputs, self.device, by_operator)

    def with_stages(self) -> float:
        """Return the latency in us after the released Algorithm 2.

        On each device in turn the first two operators left become a stage if neither depends on the other, no cycle
        of data closes, and the reported latency is no longer; else the first stays alone. The transfers between two
        stages are added up.
        """
        graph = self.graph
        device = self.device
        n = len(self.graph)
        time = graph.time.tolist()
        share = graph.utilization.tolist()
        after = _descendants(graph)
        head = list(range(n))
        weight = list(time)
        least = self.makespan()
        for on in range(max(device) + 1):
            left = [v for v in range(n) if device[v] == on]
            while len(left) > 1:
                a, b = left[:2]
                merged = False
                if not (after[a] >> b & 1 or after[b] >> a & 1):
                    head[b] = a
                    weight[a] = stage_time((time[a], time[b]), (share[a], share[b]))
                    heads = [v for v in range(n) if head[v] == v]
                    inputs = inputs_of(graph, head)
                    latency = _listed(heads, weight, inputs, device, False)
                    merged = latency <= least and acyclic(heads, inputs)
                    least = latency if merged else least
                if not merged:
                    head[b] = b
                    weight[a] = time[a]
                left = left[2 if merged else 1 :]
        return least


def stage_time(times: Sequence[float], shares: Sequence[float]) -> float:
    """Return how long operators take side by side, by the formula of the released simulation."""
    busy = sum(t * u for t, u in zip(times, shares, strict=True))
    return 0.5 * sum(times) + 0.5 * max(busy, *times)


def inputs_of(graph: ss.OpGraph, head: Sequence[int]) -> Inputs:
    """Return the inputs of stages, of operators that have the same `head`; transfers between two are added up."""
    inputs: list[dict[int, float]] = [{} for _ in head]
    for src, dst, transfer in zip(graph.src.tolist(), graph.dst.tolist(), graph.edge_transfer.tolist(), strict=True):
        a = head[src]
        b = head[dst]
        if a != b:
            inputs[b][a] = inputs[b].get(a, 0.0) + transfer
    return inputs


def _listed(
    order: Iterable[int], weight: Sequence[float], inputs: Inputs, device: Sequence[int], by_operator: bool
) -> float:
    """Return when the last device is done, its stages one after the other in the order given."""
    clock = [0.0] * (max(device) + 1)
    end = [0.0] * len(weight)
    for v in order:
        on = device[v]
        start = clock[on]
        for u, transfer in inputs[v].items():
            ready = end[u] if by_operator else clock[device[u]]
            start = max(start, ready + (transfer if device[u] != on else 0.0))
        clock[on] = end[v] = start + weight[v]
    return max(clock)


def _descendants(graph: ss.OpGraph) -> list[int]:
    """Return for each operator those that depend on it, as bits."""
    after = [0] * len(graph)
    last_first = np.argsort(-np.argsort(graph.order_index)[graph.src], kind="stable")
    for src, dst in zip(graph.src[last_first].tolist(), graph.dst[last_first].tolist(), strict=True):
        after[src] |= after[dst] | 1 << dst
    return after


def acyclic(stages: Sequence[int], inputs: Inputs) -> bool:
    """Return whether the data between stages closes no cycle; the order of stages on a device does not count."""
    try:
        TopologicalSorter({v: inputs[v] for v in stages}).prepare()
    except CycleError:
        return False
    return True


def drawn(setting: Setting, seed: int) -> ss.OpGraph:
    """Return a graph of the released generator."""
    sizes = "rounds" if setting.n_layers < UNLIKE else "uniform"
    return workloads.load("random:layered", **setting.workload, mode="impl", layer_sizes=sizes, seed=seed)


def mapped(graph: ss.OpGraph, scheduler: str, gpus: int) -> tuple[Evaluator, ss.Schedule]:
    """Return the released mapping of a graph for the released evaluator, and the schedule it is from."""
    plan = ss.schedule(graph, ss.Cluster.preset("a40", gpus), scheduler, mode="impl")
    device = np.empty(len(graph), np.int64)
    device[plan.op] = plan.device
    return Evaluator(graph, device.tolist()), plan


def _instance(setting: Setting, seed: int) -> dict[str, float]:
    """Return speedups on one graph: as reported, and of the same mappings with one repair, or both."""
    graph = drawn(setting, seed)
    us: dict[str, float] = {}
    for kind in ("lp", "mr"):
        released, plan = mapped(graph, f"inter-{kind}", setting.gpus)
        assert plan.estimate is not None
        us |= {
            f"inter-{kind}": released.makespan(),
            f"hios-{kind}": released.with_stages(),
            f"inter-{kind} by priority": released.makespan(by_priority=True),
            f"inter-{kind} by operator": released.makespan(by_operator=True),
            f"inter-{kind} by both": released.makespan(by_priority=True, by_operator=True),
            f"inter-{kind} true": plan.estimate,
        }
    alone = float(graph.time.sum())
    return {name: alone / latency for name, latency in us.items()}


def _samples(n: int, setting: Setting) -> Samples:
    rows = [_instance(setting, seed) for seed in range(n)]
    return {name: [row[name] for row in rows] for name in rows[0]}


@cache
def reported(run: Run) -> Mapping[Setting, Samples]:
    """Return the speedups of each setting of Fig. 7 to 11, as the released code reports them."""
    settings = list(dict.fromkeys(figure.at(x) for figure in FIGURES.values() for x in figure.collected))
    return dict(zip(settings, each(partial(_samples, instances(run)), settings, run.workers), strict=True))


def released(number: int, places: Sequence[float], run: Run) -> Values:
    """Return the speedups that the released code reports, with their spread."""
    found = {x: reported(run)[FIGURES[number].at(x)] for x in places}
    return with_spread({f"{name} {x:g}": found[x][name] for x in places for name in SCHEDULERS})


def repaired(run: Run) -> Values:
    """Return the speedups of one mapping, the released one of inter-MR, by evaluators with one repair and both."""
    repairs = {
        "as released": "",
        "order of priority": " by priority",
        "ends of producers": " by operator",
        "both": " by both",
    }
    found = with_spread(reported(run)[Setting()])
    return {name: found[f"inter-mr{repair}"] for name, repair in repairs.items()}


def released_mappings(run: Run) -> Values:
    """Return the speedups of the released mappings on several numbers of GPUs, evaluated correctly."""
    found = {x: with_spread(reported(run)[FIGURES[7].at(x)]) for x in FIGURES[7].collected}
    return {f"{kind} {x:g}": found[x][f"{kind} true"] for x in found for kind in ("inter-lp", "inter-mr")}


# Worked examples: Fig. 4 and 5, and the stage that the test for cycles lets through. The structure of the graphs
# follows from the text of the paper, their times are one choice among several that fit it.

Groups = tuple[tuple[str, ...], ...]


def _on_devices(graph: ss.OpGraph, *devices: str) -> Stages:
    """Return the operators, given by number, on each device alone, each a stage of its own, by falling priority."""
    device = {f"v{i}": number for number, those in enumerate(devices) for i in those}
    edges = [edge for edge in graph.edges if edge.src in device and edge.dst in device]
    part = ss.OpGraph([op for op in graph.operators if op.name in device], edges)
    instance = Ranked(part, ss.Cluster.preset("a40", 2), default_cost)
    found = instance.mapping()
    found["ops"]["device"] = [device[part.names[i]] for i in instance.order]
    return Stages(instance, found)


def figure_4(_run: Run) -> Values:
    """Return priorities, what the paths take where, and the latency found; the least of all mappings besides."""
    graph = drawn_graph("4 2 2 3 1 4 2 2", "1-2 1-3 2-4 3-5 4-6 5-6:2 5-7 6-8 7-8", transfer=1.0)
    rank = longest_from(graph, graph.time, graph.edge_transfer)
    plan = ss.schedule(graph, ss.Cluster.preset("a40", 2), "inter-lp")
    mappings = (
        ["".join(v for v, on in zip("12345678", gpus, strict=True) if on == gpu) for gpu in "12"]
        for gpus in product("12", repeat=len(graph))
    )
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
    stages = _on_devices(drawn_graph("4 4 2 4 5 2 1", "1-2 1-3 1-4 2-5 3-6 4-7 6-7", transfer=1.0), "12457", "36")
    table = {("v2", "v4"): 7.0, ("v5", "v7"): 5.0, ("v4", "v5"): 9.0}
    seen = [stages.latency]

    def latency(groups: Groups) -> float:
        seen.append(stages.latency)
        return table[groups[0][0], groups[1][0]]

    stages.parallelize(2, lambda _: latency)
    return {"one by one": seen[0], "v2 and v4 together": seen[2], "v5 and v7 as well": stages.latency}


def deadlock(_run: Run) -> Values:
    """Return whether {A, B}, here v1 and v2, is refused as a stage by Algorithm 2, and, B first, as a schedule."""
    graph = drawn_graph("3 1 3 1", "1-3 4-2", transfer=1.0)
    merged = _on_devices(graph, "12", "34").parallelize(2, lambda _: lambda _groups: 0.1)
    plan = ss.Schedule(
        graph,
        [
            ss.Placement("v2", "gpu0", stream=1, group=1),
            ss.Placement("v1", "gpu0", stream=0),
            ss.Placement("v3", "gpu1", stage=0),
            ss.Placement("v4", "gpu1", stage=1),
        ],
        execution="stages",
    )
    try:
        plan.check(ss.Cluster.preset("a40", 2))
    except ScheduleError:
        refused = 1.0
    else:
        refused = 0.0
    return {"refused by Algorithm 2": float(merged["stages_refused"] > 0), "refused as a schedule": refused}


# Measured figures in simulation: two convolutions on an A40, and networks on two A40 joined by NVLink.
# HIOS's executor receives on the host, which issues nothing else until the data is there, and sends each edge on its
# own: transfers="blocking", events="literal". The same schedules with copies ordered by events show what that costs.

SIZES: Final[Mapping[str, tuple[int, ...]]] = {
    "inception_v3": (299, 512, 1024, 2048),
    "nasnet_a_large": (331, 512, 1024, 2048),
}
"""The networks' own image sizes, and larger ones."""
_MEASURED_OVER_SIMULATED: Final = 22.95 / 12.95
"""NASNet-A, one operator after the other on a V100: as IOS measured it, over what the presets make of it."""


def side_by_side(sizes: Iterable[int]) -> Values:
    """Return the latency of two equal convolutions side by side on an A40 over one after the other, by pixels."""
    found = {}
    for pixels in sizes:
        graph = convolutions(pixels)
        first, second = graph.names
        stage = ss.StageLatency(graph, ss.Cluster.preset("a40"))
        found[str(pixels)] = stage([[first], [second]]) / stage([[first, second]])
    return found


def transfer_ratios(_run: Run) -> Values:
    """Return the median over edges of transfer time over the time of the producer, at the networks' own sizes."""
    cluster = ss.Cluster.preset("a40", 2, link="nvlink-bridge")
    found: dict[str, float] = {}
    for name, (pixels, *_) in SIZES.items():
        graph = workloads.load(name, image_size=pixels)
        us = dict(zip(graph.names, operator_times(graph, cluster.devices[0], ss.default_cost).tolist(), strict=True))
        found[name] = median(
            cluster.transfer_time("gpu0", "gpu1", edge.nbytes, edge.transfer) / us[edge.src] for edge in graph.edges
        )
    return found


@cache
def makespans(network: str, pixels: int, slower: float = 1.0) -> dict[str, float]:
    """Return simulated makespans in us of a network on two A40, under names of schedulers and transfers.

    `slower` multiplies the times of operators.
    """
    two = ss.Cluster.preset("a40", 2, link="nvlink-bridge")
    one = ss.Cluster(two.devices[:1])
    graph = workloads.load(network, image_size=pixels)

    def cost(op: ss.Operator, device: ss.Device) -> float:
        return slower * ss.default_cost(op, device)

    found = {"sequential": ss.simulate(ss.schedule(graph, one, "sequential", cost), one, cost).makespan}
    for scheduler in ("inter-lp", "hios-lp"):
        plan = ss.schedule(graph, two, scheduler, cost)
        blocking = plan.lower(two, transfers="blocking", events="literal")
        found[f"{scheduler} blocking"] = ss.simulate(blocking, two, cost).makespan
        found[f"{scheduler} async"] = ss.simulate(plan, two, cost).makespan
    return found


def speedup(network: str, pixels: int, *, of: str = "hios-lp blocking", over: str = "sequential") -> float:
    """Return a simulated speedup."""
    return makespans(network, pixels)[over] / makespans(network, pixels)[of]


def small_over_ios(_run: Run) -> Values:
    """Return the speedup over IOS on one A40 at NASNet's own size, and that with asynchronous copies."""
    one = ss.Cluster.preset("a40")
    graph = workloads.load("nasnet_a_large", image_size=331)
    ios = ss.simulate(ss.schedule(graph, one, "ios"), one).makespan
    found = makespans("nasnet_a_large", 331)
    return {"331": ios / found["hios-lp blocking"], "331 async": ios / found["hios-lp async"]}


def nasnet(pixels: int, _run: Run) -> Values:
    """Return the speedup on NASNet over one operator after the other, and two what-ifs."""
    slower = makespans("nasnet_a_large", pixels, _MEASURED_OVER_SIMULATED)
    return {
        f"{pixels}": speedup("nasnet_a_large", pixels),
        f"{pixels} async": speedup("nasnet_a_large", pixels, of="hios-lp async"),
        f"{pixels} slower operators": slower["sequential"] / slower["hios-lp blocking"],
    }


def asynchronous(_run: Run) -> Values:
    """Return by how much asynchronous copies shorten the makespans of the same schedules."""
    return {
        f"{name} {pixels}": speedup(name, pixels, of="hios-lp async", over="hios-lp blocking")
        for name, sizes in SIZES.items()
        for pixels in sizes
    }


def stages_on_nasnet(_run: Run) -> Values:
    """Return by how many % Algorithm 2 shortens the makespan of NASNet-A, by image size."""
    return {
        str(pixels): 100.0 * (1.0 - 1.0 / speedup("nasnet_a_large", pixels, over="inter-lp blocking"))
        for pixels in SIZES["nasnet_a_large"]
    }


MEASURES: Final[Measures] = {
    "hios-fig4": figure_4,
    "hios-fig5": figure_5,
    "hios-algorithm2-deadlock": deadlock,
    "hios-fig7-lp": simulated.speedups(7, "hios-lp"),
    "hios-fig7-lp-ios": simulated.over(7, "ios"),
    "hios-fig7-mr": simulated.extremes(simulated.speedups(7, "hios-mr")),
    "hios-fig7-ios": simulated.speedups(7, "ios"),
    "hios-fig8-lp": simulated.extremes(simulated.speedups(8, "hios-lp")),
    "hios-fig8-lp-ios": simulated.extremes(simulated.over(8, "ios")),
    "hios-fig8-lp-mr": simulated.extremes(simulated.over(8, "hios-mr")),
    "hios-fig8-lp-inter": simulated.extremes(simulated.over(8, "inter-lp")),
    "hios-fig8-stages-lp": simulated.extremes(simulated.stages_gain(8, "lp")),
    "hios-fig8-stages-mr": simulated.extremes(simulated.stages_gain(8, "mr")),
    **{
        f"hios-fig{number}-{kind}": simulated.speedups(number, f"hios-{kind}")
        for number in (9, 11)
        for kind in ("lp", "mr")
    },
    "hios-fig10-baselines": simulated.baselines,
    "hios-fig10-mr": simulated.latencies(10, "hios-mr"),
    "hios-fig10-lp": simulated.latencies(10, "hios-lp"),
    **{f"hios-fig{number}-correct": partial(simulated.compared, number) for number in FIGURES},
    "hios-fig7-one-gpu": simulated.one_gpu,
    "hios-fig7-lp-mr-correct": simulated.over(7, "hios-mr"),
    "hios-fig7-lp-ios-correct": simulated.over(7, "ios"),
    **{
        f"hios-fig{number}-released": partial(released, number, [x for x in figure.collected if x != UNLIKE])
        for number, figure in FIGURES.items()
    },
    "hios-fig10-released-22": partial(released, 10, [UNLIKE]),
    "hios-fig7-released-mappings": released_mappings,
    "hios-released-repaired": repaired,
    "hios-fig1-small": lambda _: side_by_side((8, 16, 32, 64)),
    "hios-fig1-large": lambda _: side_by_side((128, 256, 512, 1024, 252)),  # 252: blocks just fill whole waves
    "hios-fig1-formula": lambda _: {f"utilization {u:g}": stage_time((1, 1), (u, u)) / 2 for u in (0.6, 0.8, 1.0)},
    "hios-fig2-range": transfer_ratios,
    "hios-fig12-nasnet-loss": small_over_ios,
    "hios-fig12-nasnet-loss-sequential": partial(nasnet, 331),
    "hios-fig12-nasnet-large": partial(nasnet, 2048),
    "hios-fig12-inception": lambda _: {str(x): speedup("inception_v3", x) for x in SIZES["inception_v3"]},
    "hios-vi-e-receives": asynchronous,
    "hios-vi-e-nasnet-stages": stages_on_nasnet,
}


_PRINTED: Final[Mapping[tuple[int, str], Mapping[float, str]]] = {
    (7, "hios-lp"): {2: "1.4", 12: "3.8"},
    (7, "hios-mr"): dict.fromkeys((2, 8, 12), "at most 1.5"),
    (8, "hios-lp"): dict.fromkeys((100, 400), "2.01 to 2.12"),
    (9, "hios-lp"): {400: "2.06 (Fig. 9)", 600: "1.64"},
    (9, "hios-mr"): {400: "1.35 (Fig. 9)", 600: "1.19"},
    (10, "hios-lp"): {6: "411 / 174 ms", 22: "411 / 233 ms"},
    (10, "hios-mr"): dict.fromkeys((6, 10, 18, 22), "411 / 305 ms"),
    (11, "hios-lp"): {0.4: "2.23", 1.2: "1.78"},
    (11, "hios-mr"): {0.4: "1.52", 1.2: "1.10"},
}
"""What the paper prints, by figure and scheduler and place on its axis, as tables show it."""
_COLUMNS: Final = (
    "setting",
    "scheduler",
    "printed",
    "released code",
    "ours",
    "independent",
    "ours by the released evaluator",
)
_NOTE: Final = (
    "Speedups over one operator after the other, mean ± standard deviation of 30 random DAGs; IOS is at 1.11 in every "
    "row and column. *Independent* is a reimplementation of the printed algorithms under the same correct model. The "
    "printed values are those of an evaluator that has each operator wait until the GPUs of its producers have done "
    "all that was put there so far, in the order of numbers that are not topological. The last column is that "
    "evaluator, rebuilt, on the released mappings: it gives the released values again. What the same mappings come to "
    "if they are evaluated correctly is in the row of Fig. 7 on released mappings."
)


def columns(outcomes: Mapping[str, Outcome]) -> str:
    """Return a Markdown table of Fig. 7 to 11: printed, released, correct; empty if outcomes are not all there."""
    claims = {claim.key: claim for claim in claims_of(["hios"])}
    default = "default: 4 GPUs, 200 operators, 14 layers, 400 edges, p = 0.8"
    places = [(number, x) for number, figure in FIGURES.items() for x in figure.collected]
    rows = []
    for number, x in [(9, 400.0), *(place for place in places if FIGURES[place[0]].at(place[1]) != Setting())]:
        title = default if FIGURES[number].at(x) == Setting() else FIGURES[number].title.format(x)
        by_release = "released-22" if (number, x) == (10, UNLIKE) else "released"
        correct = claims[f"hios-fig{number}-correct"]
        rebuilt = claims[f"hios-fig{number}-{by_release}"]
        if not {correct.key, rebuilt.key} <= outcomes.keys():
            return ""
        for scheduler in SCHEDULERS:
            (theirs, ours), (reported, again) = (
                _cells(claim, outcomes[claim.key], f"{scheduler} {x:g}") for claim in (correct, rebuilt)
            )
            printed = _PRINTED.get((number, scheduler), {}).get(x, "-")
            rows.append((title, scheduler, printed, reported, ours, theirs, again))
    return "\n".join(["## HIOS, Fig. 7 to 11: printed, released, correct", "", *table(_COLUMNS, rows), "", _NOTE])


def _cells(claim: Claim, outcome: Outcome, name: str) -> tuple[str, str]:
    """Return a published value, and ours with its deviation."""
    ours = outcome.ours or {}
    return f"{claim.published[name]:.2f}", f"{ours[name]:.2f} ± {ours[DEVIATION + name]:.2f}"
