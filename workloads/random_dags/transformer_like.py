"""Networks of transformer layers whose attention heads are operators, with random times."""

from typing import Annotated, Final

import numpy as np

from simsched.base.codec import Range
from simsched.model.graph import OpGraph
from workloads.declared import workload
from workloads.random_dags.weights import FLOP_PER_MOVED_ELEMENT, WORK_TIME, Count, Weights

_NBYTES: Final = 4  # of an element, fp32
_GROWTH: Final = 4  # width of the feed-forward network relative to the model's
Size = Annotated[int, Range(1, 10**6)]

_KINDS: Final = ("embedding", "norm", "matmul", "softmax", "concat", "add", "gelu")
_PER_HEAD: Final = 6
_PER_LAYER: Final = 9  # without its heads


@workload(Weights, time=WORK_TIME, comm_ratio=None)
def random_transformer_like(
    weights: Weights, n_layers: Count = 4, heads: Count = 8, sequence: Size = 512, head_width: Size = 64
) -> OpGraph:
    """Return a chain of transformer layers, every head of attention apart, with random times.

    Parameters
    ----------
    n_layers, heads
        Layers, and heads of attention in each, at least 1.
    sequence, head_width
        Tokens, and width of a head, up to 10^6; the model is ``heads * head_width`` wide.
    comm_ratio
        None: edges carry their tensors, and links decide how long that takes. Else see
        `workloads.random_dags.weights`.
    rng, utilization, min_transfer
        See `workloads.random_dags.weights`. Only the weights are drawn.
    time
        Range of the time in us of a matrix product of the feed-forward network (`workloads.random_dags.weights`).

    Raises
    ------
    GraphError
        If a parameter is out of range.

    Notes
    -----
    An embedding, then layers of a norm; for each head the products that make query, key and value,
    the product of query and key, the softmax and the product with value; the concatenation of the
    heads, their projection and the addition of the layer's input; a norm, the feed-forward network
    (product, GELU, product; 4 times as wide as the model) and the addition of its input. That makes
    1 + L (6 h + 9) operators and L (9 h + 10) edges, numbered in this order; one source, one sink.
    Kinds are "embedding", "norm", "matmul", "softmax", "concat", "add" and "gelu".

    Tensors are in fp32. Products count 2 FLOP per multiply-add, everything else 0. The work that a
    time is in proportion to is the FLOP, but 100 per output element where there are none: these
    operators move data, and a GPU that computes 13 FLOP in the time of a byte does that many, at 8
    bytes read and written.
    O(operators + edges log edges).

    Examples
    --------
    >>> graph = random_transformer_like(2, heads=4, rng=0)
    >>> graph, graph.depth
    (OpGraph('transformer-like-67', 67 operators, 92 edges), 27)
    """
    per_layer = _PER_HEAD * heads + _PER_LAYER
    n_ops = 1 + n_layers * per_layer
    weights.affordable(n_ops, n_layers * (9 * heads + 10), "give fewer n_layers or heads")
    weights.draw(n_ops)

    tokens = float(sequence)
    width = float(heads * head_width)
    kinds, reads, costs = zip(*_layer(heads, tokens, float(head_width)), strict=True)
    kind = np.array([_KINDS.index(text) for text in kinds])
    edges = np.array([(src, dst) for dst, sources in enumerate(reads) for src in sources])  # (edges of a layer, 2)
    first = np.arange(n_layers) * per_layer + 1
    src, dst = (np.add.outer(first, ends).ravel() for ends in edges.T)
    flops, outputs = np.concatenate([[(0.0, tokens * width)], np.tile(costs, (n_layers, 1))]).T
    effort = np.where(flops > 0, flops, FLOP_PER_MOVED_ELEMENT * outputs)
    return weights.graph(
        [src],
        [dst],
        kind=(np.append(0, np.tile(kind, n_layers)), _KINDS),
        work=effort / (2.0 * _GROWTH * sequence * width * width),
        flops=flops,
        output_nbytes=_NBYTES * outputs,
    )


def _layer(heads: int, sequence: float, head_width: float) -> list[tuple[str, list[int], tuple[float, float]]]:
    """Return kind, input (-1: the operator before the layer), FLOP and output elements of each operator."""
    width = heads * head_width
    model = sequence * width
    head = sequence * head_width
    square = sequence * sequence
    project = ("matmul", [0], (2.0 * head * width, head))
    attend = 2.0 * head * sequence
    feed = 2.0 * _GROWTH * model * width
    rows: list[tuple[str, list[int], tuple[float, float]]] = [("norm", [-1], (0.0, model))]
    for query in range(1, 1 + _PER_HEAD * heads, _PER_HEAD):
        rows += [project, project, project, ("matmul", [query, query + 1], (attend, square))]
        rows += [("softmax", [query + 3], (0.0, square)), ("matmul", [query + 4, query + 2], (attend, head))]
    n = len(rows)
    return [
        *rows,
        ("concat", [*range(_PER_HEAD, n, _PER_HEAD)], (0.0, model)),
        ("matmul", [n], (2.0 * model * width, model)),
        ("add", [n + 1, -1], (0.0, model)),
        ("norm", [n + 2], (0.0, model)),
        ("matmul", [n + 3], (feed, _GROWTH * model)),
        ("gelu", [n + 4], (0.0, _GROWTH * model)),
        ("matmul", [n + 5], (feed, model)),
        ("add", [n + 6, n + 2], (0.0, model)),
    ]
