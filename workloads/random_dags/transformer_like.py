"""Networks of transformer layers with a head of attention as operators of its own, with random times."""

from typing import Annotated, Final

import numpy as np

from simsched.base.kinds import Range
from simsched.model.graph import OpGraph
from workloads.declared import workload
from workloads.random_dags.edges import Floats, Ints
from workloads.random_dags.weights import FLOP_PER_MOVED_ELEMENT, WORK_TIME, Count, Weights

_NBYTES: Final = 4  # of an element, fp32
_GROWTH: Final = 4  # width of the feed-forward network over that of the model
Size = Annotated[int, Range(1, 10**6)]

_KINDS: Final = ("embedding", "norm", "matmul", "softmax", "concat", "add", "gelu")
# operators of a head, then those of a layer behind the heads; a norm stands before them
_HEAD: Final = ("matmul", "matmul", "matmul", "matmul", "softmax", "matmul")
_TAIL: Final = ("concat", "matmul", "add", "norm", "matmul", "gelu", "matmul", "add")


@workload(Weights, time=WORK_TIME, comm_ratio=None)
def random_transformer_like(
    weights: Weights,
    n_layers: Count = 4,
    heads: Count = 8,
    sequence: Size = 512,
    head_width: Size = 64,
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
    per_layer = 1 + len(_HEAD) * heads + len(_TAIL)
    n_ops = 1 + n_layers * per_layer
    weights.affordable(n_ops, n_layers * (9 * heads + 10), "give fewer n_layers or heads")
    weights.draw(n_ops)

    src, dst = _wiring(heads)
    start = np.arange(n_layers)[:, np.newaxis] * per_layer + 1
    flops, outputs = _costs(heads, float(sequence), float(head_width))
    kinds = ("norm", *_HEAD * heads, *_TAIL)
    kind = np.array([_KINDS.index(text) for text in kinds])
    flops = np.append(0.0, np.tile(flops, n_layers))
    outputs = np.append(outputs[0], np.tile(outputs, n_layers))
    width = float(heads * head_width)
    effort = np.where(flops > 0, flops, FLOP_PER_MOVED_ELEMENT * outputs)
    return weights.graph(
        [(start + src).ravel()],
        [(start + dst).ravel()],
        kind=(np.append(0, np.tile(kind, n_layers)), _KINDS),
        work=effort / (2.0 * _GROWTH * sequence * width * width),
        flops=flops,
        output_nbytes=_NBYTES * outputs,
    )


def _wiring(heads: int) -> tuple[Ints, Ints]:
    """Return the edges of a layer; its norm is number 0, and what it reads, the operator before it, is -1."""
    query = 1 + len(_HEAD) * np.arange(heads)
    key, value, scores, softmax, context = (query + i for i in range(1, len(_HEAD)))
    concat = 1 + len(_HEAD) * heads
    proj, add, norm, wide, gelu, narrow, add_again = (concat + i for i in range(1, len(_TAIL)))
    one = np.ones(heads, np.int64)
    src = [0 * one, 0 * one, 0 * one, query, key, scores, softmax, value, context]
    dst = [query, key, value, scores, scores, softmax, context, context, concat * one]
    rest = [
        (-1, 0), (concat, proj), (proj, add), (-1, add), (add, norm), (norm, wide),
        (wide, gelu), (gelu, narrow), (narrow, add_again), (add, add_again),
    ]  # fmt: skip
    more_src, more_dst = np.array(rest).T
    return np.concatenate([*src, more_src]), np.concatenate([*dst, more_dst])


def _costs(heads: int, sequence: float, head_width: float) -> tuple[Floats, Floats]:
    """Return FLOP and output elements of the operators of a layer."""
    width = heads * head_width
    model, head, square = sequence * width, sequence * head_width, sequence * sequence
    to_head, attend = 2.0 * head * width, 2.0 * head * sequence
    feed = 2.0 * _GROWTH * model * width
    flops = [0.0, *(to_head, to_head, to_head, attend, 0.0, attend) * heads]
    flops += [0.0, 2.0 * model * width, 0.0, 0.0, feed, 0.0, feed, 0.0]
    outputs = [model, *(head, head, head, square, square, head) * heads]
    outputs += [model, model, model, model, _GROWTH * model, _GROWTH * model, model, model]
    return np.array(flops), np.array(outputs)
