"""What HIOS's released simulation reports: its generator, its mappings, and its evaluator, rebuilt from a description.

The evaluator takes operators in the order of their numbers, which is not topological, and has an operator wait not
for its producers but for all that was put so far on the GPUs they are on. The same mapping can be evaluated with
either of the two repaired, or both, which shows which of them makes the figures.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from graphlib import CycleError, TopologicalSorter
from typing import Final

import numpy as np

import simsched as ss
import workloads
from simsched.model.graph.structure import longest_from
from validation.papers.claims import Run, Values
from validation.papers.hios_simulated import FIGURES, SCHEDULERS, Samples, Setting, instances, with_spread
from validation.processes import each

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
        graph, device, n = self.graph, self.device, len(self.graph)
        time, share, after = graph.time.tolist(), graph.utilization.tolist(), _descendants(graph)
        head, weight = list(range(n)), list(time)
        least = self.makespan()
        for on in range(max(device) + 1):
            left = [v for v in range(n) if device[v] == on]
            while len(left) > 1:
                a, b = left[:2]
                merged = False
                if not (after[a] >> b & 1 or after[b] >> a & 1):
                    head[b], weight[a] = a, stage_time((time[a], time[b]), (share[a], share[b]))
                    heads = [v for v in range(n) if head[v] == v]
                    inputs = inputs_of(graph, head)
                    latency = _listed(heads, weight, inputs, device, False)
                    merged = latency <= least and acyclic(heads, inputs)
                    least = latency if merged else least
                if not merged:
                    head[b], weight[a] = b, time[a]
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
        a, b = head[src], head[dst]
        if a != b:
            inputs[b][a] = inputs[b].get(a, 0.0) + transfer
    return inputs


def _listed(
    order: Iterable[int], weight: Sequence[float], inputs: Inputs, device: Sequence[int], by_operator: bool
) -> float:
    """Return when the last device is done, its stages one after the other in the order given."""
    clock, end = [0.0] * (max(device) + 1), [0.0] * len(weight)
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
        "as released": "", "order of priority": " by priority", "ends of producers": " by operator", "both": " by both",
    }  # fmt: skip
    found = with_spread(reported(run)[Setting()])
    return {name: found[f"inter-mr{repair}"] for name, repair in repairs.items()}


def released_mappings(run: Run) -> Values:
    """Return the speedups of the released mappings on several numbers of GPUs, evaluated correctly."""
    found = {x: with_spread(reported(run)[FIGURES[7].at(x)]) for x in FIGURES[7].collected}
    return {f"{kind} {x:g}": found[x][f"{kind} true"] for x in found for kind in ("inter-lp", "inter-mr")}
