"""Graphs made of the columns of others, without a Python object per row."""

from typing import Any

import numpy as np
import numpy.typing as npt

from simsched.graph.columns import COSTS, Floats
from simsched.graph.opgraph import OpGraph

_LABELS = ("kind", "dtype", "block")
_KERNELS = ("blocks", "threads", "registers", "shared_memory", "share")


def with_times(graph: OpGraph, times: Floats) -> OpGraph:
    """Return a graph with other times in us, shape (n_ops,), all else shared; O(V + E).

    >>> from simsched.graph import Operator
    >>> graph = OpGraph([Operator("a", time=1.0), Operator("b")])
    >>> [op.time for op in with_times(graph, np.array([3.0, 4.0])).operators]
    [3.0, 4.0]
    """
    made = OpGraph.__new__(OpGraph)
    made._fill(
        name=graph.name,
        names=graph.names,
        src=graph.src,
        dst=graph.dst,
        costs={key: getattr(graph, key) for key in COSTS} | {"time": np.array(times, np.float64)},
        intensity=graph.intensity,
        labels={key: graph.labels(key) for key in _LABELS},
        details=graph._details,
        kernel_ptr=graph.kernel_ptr,
        kernels={key: getattr(graph, f"kernel_{key}") for key in _KERNELS},
        edge_nbytes=graph.edge_nbytes,
        edge_transfer=graph.edge_transfer,
    )
    made.__dict__["index"] = graph.index
    return made


def side_by_side(graph: OpGraph, times: Floats, copies: int, further: Floats) -> OpGraph:
    """Return so many copies of a graph beside each other, and behind them operators that load nothing.

    Parameters
    ----------
    graph
        Its operator i is operator ``r * n_ops + i`` of copy r, under the name ``NAME@r``; shapes and attributes go.
    times
        Time of each operator in us, shape (n_ops,).
    copies
        How many there are.
    further
        Times in us of the operators behind them, ``begin 0, ...``.

    >>> from simsched.graph import Operator
    >>> side_by_side(OpGraph([Operator("a")]), np.array([3.0]), 2, np.array([1.0])).names
    ('a@0', 'a@1', 'begin 0')
    """
    names = tuple(f"{name}@{r}" for r in range(copies) for name in graph.names)
    n, none = len(further), np.full(len(further), np.nan)
    behind = np.repeat(np.arange(copies) * len(graph), len(graph.src))

    def column(values: npt.NDArray[Any], last: float) -> npt.NDArray[Any]:
        return np.concatenate([np.tile(values, copies), np.full(n, last, values.dtype)])

    kernels = np.concatenate([np.tile(np.diff(graph.kernel_ptr), copies), np.zeros(n, np.int64)])
    labels = {}
    for key in _LABELS:
        codes, texts = graph.labels(key)
        labels[key] = (column(codes, 0), texts)
    made = OpGraph.__new__(OpGraph)
    made._fill(
        name=f"{copies} x {graph.name}",
        names=(*names, *(f"begin {i}" for i in range(n))),
        src=np.tile(graph.src, copies) + behind,
        dst=np.tile(graph.dst, copies) + behind,
        costs={key: column(getattr(graph, key), 0.0) for key in ("flops", "nbytes", "weight_nbytes")}
        | {"time": np.concatenate([np.tile(times, copies), further])}
        | {"utilization": np.concatenate([np.tile(graph.utilization, copies), none])},
        intensity=column(graph.intensity, -1),
        labels=labels,
        details={},
        kernel_ptr=np.concatenate([[0], np.cumsum(kernels)]),
        kernels={key: np.tile(getattr(graph, f"kernel_{key}"), copies) for key in _KERNELS},
        edge_nbytes=np.tile(graph.edge_nbytes, copies),
        edge_transfer=np.tile(graph.edge_transfer, copies),
    )
    made.__dict__["index"] = {name: i for i, name in enumerate(made.names)}
    return made
