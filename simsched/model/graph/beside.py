"""Copies of a graph beside each other: several runs of it that share a cluster."""

from dataclasses import replace

import numpy as np

from simsched.model.graph.collective import Collective
from simsched.model.graph.columns import Floats
from simsched.model.graph.operator import Operator
from simsched.model.graph.opgraph import OpGraph
from simsched.model.graph.rearranged import rearrange, with_times


def side_by_side(graph: OpGraph, times: Floats, copies: int, further: Floats) -> OpGraph:
    """Return so many copies of a graph beside each other, and after them operators without load.

    Parameters
    ----------
    graph
        Its operator i is operator ``r * n_ops + i`` of copy r, under the name ``NAME@r``.
    times
        Time of each operator in us, shape (n_ops,).
    copies
        How many there are.
    further
        Times in us of the operators after them, ``begin 0, ...``.

    >>> side_by_side(OpGraph([Operator("a")]), np.array([3.0]), 2, np.array([1.0])).names
    ('a@0', 'a@1', 'begin 0')
    """
    rows = [*range(len(graph))] * copies + [len(graph)] * len(further)
    behind = np.repeat(np.arange(copies) * len(graph), len(graph.src))
    src, dst, nbytes, transfer = (
        np.tile(column, copies) for column in (graph.src, graph.dst, graph.edge_nbytes, graph.edge_transfer)
    )
    names = (
        *(f"{name}@{r}" for r in range(copies) for name in graph.names),
        *(f"begin {i}" for i in range(len(further))),
    )
    if graph.meetings:
        own = [graph.label("collective", i) for i in range(len(graph))]
    else:
        own = [None] * len(graph)
    collectives = [_of_copy(collective, r) for r in range(copies) for collective in own] + [None] * len(further)
    graphs = rearrange(graph, rows, src + behind, dst + behind, nbytes, transfer, Operator("begin"), names, collectives)
    return with_times(graphs, np.concatenate([np.tile(times, copies), further]))


def _of_copy(collective: Collective | None, r: int) -> Collective | None:
    """Return a collective whose group is of copy r alone."""
    if collective is None or collective.group is None:
        return collective
    return replace(collective, group=f"{collective.group}@{r}")
