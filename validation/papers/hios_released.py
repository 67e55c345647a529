"""What HIOS's released simulation reports: its generator, its mappings, and its evaluator, rebuilt from a description.

The evaluator takes operators in the order of their numbers, which is not topological, and has an operator wait not
for its producers but for all that was put so far on the GPUs they are on. The same mapping can be evaluated with
either of the two repaired, or both, which shows which of them makes the figures.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from statistics import mean
from typing import Any, Final

import numpy as np

import simsched as ss
import workloads
from simsched.model.graph.structure import longest_from
from validation.papers.claims import Run
from validation.papers.hios_numbers import SETTINGS, Setting, spread
from validation.processes import each

Inputs = Sequence[Mapping[int, float]]
"""Of each stage, by number of its first operator: those it reads from, and us of the transfer."""

QUICK_INSTANCES: Final = 1
INSTANCES: Final = 30
UNFIT_FOR_ROUNDS: Final = 22
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
        inputs = _inputs(_edges(self.graph), range(len(self.graph)))
        return _listed(order, self.graph.time.tolist(), inputs, self.device, by_operator)

    def with_stages(self) -> float:
        """Return the latency in us after the released Algorithm 2.

        On each device in turn the first two operators left become a stage if neither depends on the other, no cycle
        of data closes, and the reported latency is no longer; else the first stays alone. The transfers between two
        stages are added up.
        """
        graph, device, n = self.graph, self.device, len(self.graph)
        time, share = graph.time.tolist(), graph.utilization.tolist()
        after, edges = _descendants(graph), _edges(graph)
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
                    inputs = _inputs(edges, head)
                    latency = _listed(heads, weight, inputs, device, False)
                    merged = latency <= least and _acyclic(heads, inputs)
                    least = latency if merged else least
                if not merged:
                    head[b], weight[a] = b, time[a]
                left = left[2 if merged else 1 :]
        return least


def stage_time(times: Sequence[float], shares: Sequence[float]) -> float:
    """Return how long operators take side by side, by the formula of the released simulation."""
    busy = sum(t * u for t, u in zip(times, shares, strict=True))
    return 0.5 * sum(times) + 0.5 * max(busy, *times)


def _edges(graph: ss.OpGraph) -> list[tuple[int, int, float]]:
    return list(zip(graph.src.tolist(), graph.dst.tolist(), graph.edge_transfer.tolist(), strict=True))


def _inputs(edges: Iterable[tuple[int, int, float]], head: Sequence[int]) -> Inputs:
    """Return the inputs of stages, of operators that have the same `head`; transfers between two are added up."""
    inputs: list[dict[int, float]] = [{} for _ in head]
    for src, dst, transfer in edges:
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
    readers: list[list[int]] = [[] for _ in after]
    for src, dst in zip(graph.src.tolist(), graph.dst.tolist(), strict=True):
        readers[src].append(dst)
    for v in reversed(graph.order_index.tolist()):
        for w in readers[v]:
            after[v] |= after[w] | 1 << w
    return after


def _acyclic(stages: Sequence[int], inputs: Inputs) -> bool:
    """Return whether the data between stages closes no cycle; the order of stages on a device does not count."""
    waits = {v: len(inputs[v]) for v in stages}
    readers: dict[int, list[int]] = {v: [] for v in stages}
    for v in stages:
        for u in inputs[v]:
            readers[u].append(v)
    ready = [v for v in stages if not waits[v]]
    for v in ready:
        for w in readers[v]:
            waits[w] -= 1
            if not waits[w]:
                ready.append(w)
    return len(ready) == len(stages)


def drawn(setting: Setting, seed: int) -> ss.OpGraph:
    """Return a graph of the released generator."""
    rounds = setting.parameters["n_layers"] < UNFIT_FOR_ROUNDS
    return workloads.load(
        "random:layered", **setting.parameters, mode="impl", layer_sizes="rounds" if rounds else "uniform", seed=seed
    )


def mapped(graph: ss.OpGraph, scheduler: str, gpus: int) -> tuple[Evaluator, ss.Schedule]:
    """Return the released mapping of a graph for the released evaluator, and the schedule it is from."""
    plan = ss.schedule(graph, ss.Cluster.preset("a40", gpus), scheduler, mode="impl")
    device = np.empty(len(graph), np.int64)
    device[plan.op] = plan.device
    return Evaluator(graph, device.tolist()), plan


def _instance(setting: Setting, seed: int) -> dict[str, float]:
    """Return speedups on one graph: as reported, and of the same mappings with one repair, or both."""
    graph = drawn(setting, seed)
    alone = float(graph.time.sum())
    found: dict[str, float] = {}
    for kind in ("lp", "mr"):
        released, plan = mapped(graph, f"inter-{kind}", setting.gpus)
        found[f"inter-{kind}"] = alone / released.makespan()
        found[f"hios-{kind}"] = alone / released.with_stages()
        found[f"inter-{kind} by priority"] = alone / released.makespan(by_priority=True)
        found[f"inter-{kind} by operator"] = alone / released.makespan(by_operator=True)
        found[f"inter-{kind} by both"] = alone / released.makespan(by_priority=True, by_operator=True)
        assert plan.estimate is not None
        found[f"inter-{kind} true"] = alone / plan.estimate
    return found


def _setting(instances: int, setting: Setting) -> dict[str, tuple[float, float]]:
    rows: list[Any] = [_instance(setting, seed) for seed in range(instances)]
    return {name: (mean(of := [row[name] for row in rows]), spread(of)) for name in rows[0]}


@cache
def reported(quick: bool, workers: int) -> dict[str, dict[str, tuple[float, float]]]:
    """Return mean and standard deviation of the speedups of each setting, by its name."""
    found = each(partial(_setting, QUICK_INSTANCES if quick else INSTANCES), SETTINGS, workers)
    return dict(zip([setting.name for setting in SETTINGS], found, strict=True))


def of(setting: Setting, run: Run) -> dict[str, tuple[float, float]]:
    """Return mean and standard deviation of the speedups of a setting, as the released code reports them."""
    return reported(run.quick, run.workers)[setting.name]
