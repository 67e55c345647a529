"""Prefetches of weights into L2 while a collective leaves DRAM idle."""

from dataclasses import replace
from typing import Final

import numpy as np

from simsched.experiments.overlap.plans import exchanging
from simsched.model import CostModel, Edge, Operator, OpGraph, Schedule
from simsched.model.costmodel import Target, bare, operator_times
from simsched.model.graph import Work

KIND: Final = "prefetch"
_LEAST: Final = 2.0**20
"""Bytes of weights from which on a product is worth a prefetch."""
_HELD: Final = 0.35
"""Part of L2 that still holds the weights when the product begins: as of activations."""
_REACHED: Final = 0.88
"""Part of the bandwidth of DRAM that a prefetch reaches: as kernels that stream."""


def prefetching(graph: OpGraph, target: Target, cost: CostModel | None) -> OpGraph | None:
    """Return a graph with a prefetch beside each collective, for the next product after it.

    Returns
    -------
    OpGraph
        The product needs its prefetch, and no longer reads these weights from DRAM. None where there is no collective
        before a product with weights of a MiB or more.

    Notes
    -----
    A prefetch begins when its collective may begin. It reads as much of the weights as DRAM delivers during the
    collective, and as 0.35 of L2 holds.
    """
    waits = exchanging(graph)
    if not any(waits):
        return None
    device = bare(target).devices[0]
    times = operator_times(graph, device, cost)
    order = [int(op) for op in graph.order_index]
    served = _prefetch_targets(graph, order, waits)
    if not served:
        return None
    operators = list(graph.operators)
    read: dict[int, Operator] = {}
    for collective, product in served.items():
        work = operators[product].works[0]
        nbytes = min(work.weights, _HELD * device.l2, float(times[collective]) * device.bandwidth * _REACHED)
        rest = replace(work, weights=work.weights - nbytes)
        name = operators[product].name
        read[collective] = Operator(
            f"{name}.prefetch",
            kind=KIND,
            nbytes=nbytes,
            intensity="memory",
            dtype=operators[product].dtype,
            block=operators[product].block,
            works=(Work("elementwise", "copy", reads=nbytes, rows=max(1, int(nbytes) // 2)),),
        )
        operators[product] = replace(
            operators[product],
            works=(rest, *operators[product].works[1:]),
            nbytes=max(0.0, operators[product].nbytes - nbytes),
        )
    rows: list[Operator] = []
    for op in order:
        if op in read:
            rows.append(read[op])
        rows.append(operators[op])
    edges = [*graph.edges]
    for edge in graph.edges:
        collective = graph.index[edge.dst]
        if collective in read:
            edges.append(Edge(edge.src, read[collective].name))
    edges += [Edge(read[collective].name, graph.names[product]) for collective, product in served.items()]
    return OpGraph(rows, edges, graph.name)


def _prefetch_targets(graph: OpGraph, order: list[int], waits: list[bool]) -> dict[int, int]:
    """Return the product that each collective gets a prefetch for: the next one after it, if no other has it."""
    after: list[set[int]] = [set() for _ in order]
    for src, dst in zip(graph.src.tolist(), graph.dst.tolist(), strict=True):
        after[src].add(dst)
    codes, kinds = graph.labels("works")
    has_weights = [bool(works) and works[0].family == "product" and works[0].weights >= _LEAST for works in kinds]
    served: dict[int, int] = {}
    assigned: set[int] = set()
    for k, collective in enumerate(order):
        if not waits[collective]:
            continue
        reached = {collective}
        for op in order[k + 1 :]:
            if not any(op in after[src] for src in reached):
                continue
            if waits[op]:
                break
            if has_weights[codes[op]]:
                if op not in assigned:
                    served[collective] = op
                    assigned.add(op)
                break
            reached.add(op)
    return served


def beside_collectives(graph: OpGraph, device: str, execution: str) -> Schedule:
    """Return a schedule of a graph with prefetches: they are on a stream of their own."""
    codes, kinds = graph.labels("kind")
    is_prefetch = np.array([kinds[code] == KIND for code in codes.tolist()])
    op = np.asarray(graph.order_index)
    return Schedule.from_columns(
        graph, op, [device], stream=is_prefetch[op].astype(np.int64), execution=execution, scheduler="overlap"
    )
