"""Small graphs and placements from a line of text, and what schedules of them look like."""

import re
from dataclasses import replace
from itertools import pairwise

import numpy as np

from simsched.model import Cluster, Edge, Kernel, Operator, OpGraph, Placement, Schedule
from simsched.schedulers import schedule

_EDGE = re.compile(r"([^=:]+)(?:=([^:]+))?(?::(.+))?")
_PLACE = re.compile(r"([\w+]+)(?:/(\d+))?(?:@(\d+))?(?:\.(\d+))?(?:!(-?\d+))?")

_GPU0, _GPU1 = Cluster.preset("a100", 2).without_overheads().devices
_WIDE = replace(_GPU1, shared_memory_per_sm=2**20, shared_memory_per_block=2**20, registers_per_sm=2**15)
UNEQUAL = Cluster((_GPU0, _WIDE), Cluster.preset("a100", 2).links)
WIDE, DEEP = (Kernel(1, 256, 32, 2**19),), (Kernel(1, 1024, 64),)
"""What has the shared memory of its gpu1 alone, and what the registers of gpu0 alone."""


def operators(text, **fields):
    """Operators of "a=10 b=0.5": names and times in us."""
    return [Operator(name, time=float(us), **fields) for name, us in (word.split("=") for word in text.split())]


def convolutions():
    """Operators a of 10 us, convolutions b and c of 20 us that read it and can be one of 40 us, and join of both."""
    image, sizes = (1, 4, 6, 6), {"kernel": [1, 1], "stride": [1, 1], "padding": [0, 0], "groups": 1}
    both = {"attributes": sizes, "input_shapes": [image], "output_shape": image}
    a, b, c, join = operators("a=10 b=20 c=20 join=0", utilization=1.0)
    rows = [replace(a, output_shape=image), *(replace(op, kind="conv", **both) for op in (b, c)), join]
    return OpGraph(rows, edges("a-b a-c b-join c-join"))


def merging(graph, cluster, cost):
    """A scheduler that makes one operator of all convolutions that can be one, whatever they take."""

    def latency(groups, merged=False):
        return 1.0 if merged else 2.0

    return schedule(graph, cluster, "ios", cost, strategy="merge", stage_latency=latency)


def edges(text, nbytes=0.0, transfer=None):
    """Edges of "ab", "a-b", "ab=1000" (bytes, else `nbytes`) or "ab:1" (exact transfer in us, else `transfer`)."""
    found = []
    for word in text.split():
        pair, size, us = _EDGE.fullmatch(word).groups()
        ends = pair.split("-") if "-" in pair else pair
        found.append(Edge(*ends, float(size) if size else nbytes, float(us) if us else transfer))
    return found


def works(op):
    """The works of an operator as if its model had no parameters but its own."""
    return tuple(replace(work, parameters=0.0) for work in op.works)


def pairs(graph):
    """The edges of a graph as pairs of numbers of operators, in their order."""
    return list(zip(graph.src.tolist(), graph.dst.tolist(), strict=True))


def placements(text):
    """Placements of "a b/1@2.3!-1" in launch order: operator, stream and group, device, stage, priority (else 0)."""
    found = []
    for word in text.split():
        op, *numbers = _PLACE.fullmatch(word).groups("0")
        stream, device, stage, priority = map(int, numbers)
        found.append(Placement(op, f"gpu{device}", stream, stage, stream, priority))
    return found


def written(plan):
    """The placements of a schedule as `placements` reads them; a group is a stream, or none."""
    words = []
    for row in plan.placements:
        assert row.group in (0, row.stream)
        numbers = ("/", row.stream), ("@", int(row.device.removeprefix("gpu"))), (".", row.stage), ("!", row.priority)
        words.append(row.op + "".join(f"{mark}{number}" for mark, number in numbers if number))
    return " ".join(words)


def made(times, pairs="", transfer=None, nbytes=0.0, **blocks):
    """A graph of operators and edges, each a text or a list; `blocks` maps a label to the names in it."""
    rows = operators(times) if isinstance(times, str) else times
    if blocks:
        block = {name: label for label, names in blocks.items() for name in names}
        rows = [replace(op, block=block.get(op.name)) for op in rows]
    return OpGraph(rows, edges(pairs, nbytes, transfer) if isinstance(pairs, str) else pairs)


def chain(*times, **fields):
    """Operators o0, o1 and so on of given times, one after the other."""
    rows = [Operator(f"o{i}", time=us, **fields) for i, us in enumerate(times)]
    return OpGraph(rows, [Edge(a.name, b.name) for a, b in pairwise(rows)], "chain")


def one_stream(graph, **options):
    """Operators in topological order on stream 0 of the first device."""
    return Schedule(graph, [Placement(name) for name in graph.order], **options)


def numbered(pairs, n, **fields):
    """Operators 1 to n of 10 us, edges as in "1-2 1-3", arguments in their order."""
    return made([Operator(str(i), time=10.0, **fields) for i in range(1, n + 1)], pairs)


def traced(graph):
    """The graph with an operator for its input, which all without a producer read, and one for its output."""
    rows = [Operator("placeholder", time=0.0), *graph.operators, Operator("output", time=0.0)]
    pairs = [*(Edge("placeholder", name) for name in graph.inputs), *graph.edges, Edge(graph.names[-1], "output")]
    return OpGraph(rows, pairs, graph.name)


def by_stream(plan):
    """Names of the operators of each stream, in launch order."""
    found = {}
    for row in plan.placements:
        found.setdefault(row.stream, []).append(row.op)
    return [" ".join(found[s]) for s in sorted(found)]


def stages(plan):
    """The stages of each device, in the order in which it launches: groups of names."""
    found = {}
    for row in plan.placements:
        found.setdefault(row.device, {}).setdefault(row.stage, {}).setdefault(row.group, []).append(row.op)
    return {device: [tuple(map(tuple, groups.values())) for groups in rows.values()] for device, rows in found.items()}


def in_degree(graph):
    """Edges that enter each operator, shape (n_ops,)."""
    return np.bincount(graph.dst, minlength=len(graph))


def out_degree(graph):
    """Edges that leave each operator, shape (n_ops,)."""
    return np.bincount(graph.src, minlength=len(graph))


def macs(graph, *kinds):
    """Multiply-adds of the operators of some kinds."""
    return sum(op.flops for op in graph.operators if op.kind in kinds) / 2


def n_parameters(graph):
    """Normalisation holds 4 numbers per channel, of which mean and variance are statistics, not parameters."""
    return sum(op.weight_nbytes / 4 * (0.5 if op.kind == "batch_norm" else 1) for op in graph.operators)
