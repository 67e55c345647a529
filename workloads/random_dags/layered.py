"""Random DAGs of layers: the generator of HIOS, as its paper has it and as its released code does it."""

from typing import Annotated, Final

import numpy as np

from simsched.base.codec import Among, Range
from simsched.base.errors import GraphError
from simsched.model.graph import OpGraph
from workloads.checks import whole
from workloads.declared import workload
from workloads.random_dags.edges import DENSE, Ints, ends_of, is_in
from workloads.random_dags.weights import MOST_EDGES, MOST_OPS, Weights

_SUBJECT: Final = "random_layered"


@workload(Weights)
def random_layered(
    weights: Weights,
    n_ops: Annotated[int, Range(3, MOST_OPS)] = 200,
    n_layers: Annotated[int, Range(3)] = 14,
    n_edges: int | None = None,
    *,
    mode: Annotated[str, Among(("paper", "impl"))] = "paper",
    layer_sizes: Annotated[str, Among(("uniform", "rounds"))] | None = None,
    numbering: Annotated[str, Among(("layers", "joining"))] | None = None,
    transfer_of: Annotated[str, Among(("producer", "consumer"))] | None = None,
    draws: Annotated[str, Among(("real", "whole"))] | None = None,
) -> OpGraph:
    """Return a random DAG of layers, as HIOS uses it to compare schedulers.

    Parameters
    ----------
    n_ops
        Operators, from 3 to 10^8.
    n_layers
        Layers, from 3 to `n_ops`; also the `depth` of the graph.
    n_edges
        Edges, all distinct, at most 2 * 10^8. None for ``2 * n_ops``, or as many as there can be if that is fewer.
    mode
        "paper" or "impl" (the released code): defaults of the options below.
    layer_sizes
        "uniform" (paper): an operator for every layer between the first and the last, then each of
        the ``n_ops - n_layers`` others joins one of them at random. "rounds" (impl): rounds over those
        layers, in each of which a layer grows by ``m = ceil(n_layers / 2)`` operators at first and by
        a random number of 0 to m later, up to ``10 * n_layers`` and until all have joined. This
        takes more than ``m * n_layers`` operators, and room for all of them.
    numbering
        "layers" (paper): layer by layer, so that the operators' order is topological. "joining"
        (impl): as they joined, so that it is not: in mode "impl" at 200 operators, 14 layers and 400
        edges, about 130 edges lead from a higher number to a lower one. The order breaks ties.
    transfer_of
        "producer" (paper) or "consumer" (impl): the operator whose time `comm_ratio` multiplies.
    draws
        "real" (paper): times and utilizations are any numbers in their ranges. "whole" (impl): whole
        multiples of 0.1 us and of 0.0001, both ends included.
    rng, time, utilization, comm_ratio, min_transfer
        See `workloads.random_dags.weights.Weights`.

    Raises
    ------
    GraphError
        If a parameter is out of range, or `n_edges` is less than what connecting the layers
        takes or more than there can be; the message states these numbers.

    Notes
    -----
    The generator of HIOS [1]_, sec. V:

    - Layers. The first holds the one source, the last the one sink, the others share the rest (`layer_sizes`).
    - Connecting edges. Every operator gets one random successor in the next layer, then every
      operator one random predecessor in the previous layer; where both are the same edge it counts
      once. At most ``2 * (n_ops - 2)`` edges.
    - Distant edges. Until there are `n_edges`: a layer between, a later layer, and an operator of
      each, all drawn uniformly; an edge that is there already is drawn again. The
      source therefore has only its connecting edges.
    - Times. `time` and `utilization` are uniform in their ranges. The transfer of u -> v is
      ``max(min_transfer, comm_ratio * time[u])``, exact between any two devices.

    With the same seed, other ranges, `min_transfer` or `comm_ratio` leave the edges as they are
    and other `n_edges` leave the connecting edges and the times, so one thing varies at a time.

    ``mode="impl"`` draws from the distribution of the released code, not its very graphs: that code
    sets no seed. At 200 operators in 14 layers, both have 16.5 operators in a layer between on
    average, with a standard deviation of 3.8 (uniform) and 3.9 (rounds). The released code drops a
    graph whose connecting edges exceed `n_edges`, and skips sizes that rounds do not fit (200
    operators in 22 layers); both raise here. When it reads a file it rescales transfer times by
    ``comm_ratio / 0.8``, which is right only if the file was written at 0.8; that is left out here.
    Utilization is in that code only.

    Edges are in rising order of their ends. O(n_ops + n_edges log n_edges) time, columns only: a
    million operators and two million edges take less than a second, some more if numbered as joined.

    References
    ----------
    .. [1] "HIOS: Hierarchical Inter-Operator Scheduler for Real-Time Inference of DAG-Structured
       Deep Learning Models on Multiple GPUs", IEEE CLUSTER 2023.

    Examples
    --------
    >>> graph = random_layered(n_ops=50, n_layers=6, rng=0)
    >>> graph, graph.depth, graph.inputs, graph.outputs
    (OpGraph('layered-50', 50 operators, 100 edges), 6, ('op0',), ('op49',))
    >>> graph = random_layered(n_ops=50, n_layers=6, rng=0, mode="impl")
    >>> graph.depth, bool((graph.src < graph.dst).all())
    (6, False)
    """

    def is_released(option: str | None, released: str) -> bool:
        if option is None:
            return mode == "impl"
        return option == released

    n_layers = whole(_SUBJECT, "n_layers", n_layers, most=n_ops, why=" (n_ops: no layer is empty)")
    if is_released(layer_sizes, "rounds"):
        join = _joined_in_rounds
    else:
        join = _joined_at_random
    layer = join(n_ops, n_layers, weights.rng)
    weights.draw(n_ops, in_steps=is_released(draws, "whole"))
    src, dst = ends_of(_edges(np.bincount(layer), n_edges, weights.rng), n_ops)
    if is_released(numbering, "joining"):
        number = np.argsort(layer, kind="stable")  # of each operator, layer by layer
        src = number[src]
        dst = number[dst]
    return weights.graph([src], [dst], of_consumer=is_released(transfer_of, "consumer"))


def _joined_at_random(n_ops: int, n_layers: int, rng: np.random.Generator) -> Ints:
    """Return the layer of each operator, in the order in which they joined."""
    layers = np.arange(n_layers)
    others = rng.integers(n_layers - 2, size=n_ops - n_layers)
    return np.concatenate([layers[:-1], 1 + others, layers[-1:]])


def _joined_in_rounds(n_ops: int, n_layers: int, rng: np.random.Generator) -> Ints:
    """Return the layer of each operator, in the order in which they joined."""
    growth = (n_layers + 1) // 2
    most = 10 * n_layers
    remedy = 'or layer_sizes must be "uniform"'
    if growth * n_layers >= n_ops:
        raise GraphError(
            f"{_SUBJECT}: layers that grow by up to {growth} operators take n_ops of more than {growth * n_layers},"
            f" not {n_ops}, {remedy}"
        )
    if n_ops - 2 > most * (n_layers - 2):
        raise GraphError(
            f"{_SUBJECT}: layers of up to {most} operators have no room for n_ops of more than"
            f" {most * (n_layers - 2) + 2}, not {n_ops}, {remedy}"
        )
    layers = np.arange(n_layers)
    size = np.zeros(n_layers - 2, np.int64)
    parts = [layers[:1]]
    while (missing := n_ops - 2 - int(size.sum())) > 0:
        more = rng.integers(np.maximum(growth - size, 0), np.minimum(growth, most - size) + 1)
        before = np.cumsum(more) - more
        more = np.clip(missing - before, 0, more)  # the last round ends where all have joined
        parts.append(np.repeat(layers[1:-1], more))
        size += more
    return np.concatenate([*parts, layers[-1:]])


def _edges(size: Ints, n_edges: int | None, rng: np.random.Generator) -> Ints:
    """Return the edges in rising order, each as ``src * n_ops + dst``.

    `size` is the number of operators of each layer; operators are numbered layer by layer.
    """
    n_ops = int(size.sum())
    start = np.cumsum(size) - size  # first operator of each layer
    layer = np.repeat(np.arange(len(size)), size)  # (n_ops,)
    n_later = n_ops - (start + size)[layer]  # operators in later layers, (n_ops,)
    # the source gets no distant edge, so it leads to the next layer only
    possible = int(size[1] + n_later[1:].sum())

    connecting = _connecting(size, start, layer, rng)
    if n_edges is None:
        n_edges = min(2 * n_ops, possible)
    n_edges = whole(_SUBJECT, "n_edges", n_edges, least=len(connecting), why=", which connect the layers of this seed")
    n_edges = whole(_SUBJECT, "n_edges", n_edges, most=possible, why=", which the layers of this seed allow")
    n_edges = whole(_SUBJECT, "n_edges", n_edges, most=MOST_EDGES)
    if possible <= DENSE * n_edges:
        return _add_weighted(connecting, n_edges, size, layer, n_later, rng)
    return _add_tried(connecting, n_edges, size, start, rng)


def _connecting(size: Ints, start: Ints, layer: Ints, rng: np.random.Generator) -> Ints:
    n_ops = len(layer)
    op = np.arange(n_ops)
    below = layer[:-1] + 1  # of all operators but the sink
    above = layer[1:] - 1  # of all operators but the source
    successor = start[below] + rng.integers(size[below])
    predecessor = start[above] + rng.integers(size[above])
    edges = np.sort(np.concatenate([op[:-1] * n_ops + successor, predecessor * n_ops + op[1:]]))
    return edges[np.diff(edges, prepend=-1) > 0]  # np.unique is several times slower


def _add_tried(edges: Ints, n_edges: int, size: Ints, start: Ints, rng: np.random.Generator) -> Ints:
    """Add distant edges drawn until they are new, twice as many at a time as are missing."""
    n_layers = len(size)
    n_ops = int(size.sum())
    while (missing := n_edges - len(edges)) > 0:
        n_tries = 2 * missing + 64
        from_layer = rng.integers(1, n_layers - 1, size=n_tries)
        to_layer = rng.integers(from_layer + 1, n_layers)
        src = start[from_layer] + rng.integers(size[from_layer])
        dst = start[to_layer] + rng.integers(size[to_layer])
        tries = src * n_ops + dst
        new, drawn_at = np.unique(tries[~is_in(tries, edges)], return_index=True)
        # of those that are new the first drawn, as if they had been tried one by one
        edges = np.sort(np.concatenate([edges, new[np.argsort(drawn_at)[:missing]]]))
    return edges


def _add_weighted(edges: Ints, n_edges: int, size: Ints, layer: Ints, n_later: Ints, rng: np.random.Generator) -> Ints:
    """Add distant edges like `_add_tried`, but by one draw for each candidate.

    Trying until an edge is new is drawing without replacement in proportion to the chance of a try;
    the candidates that come first in exponential clocks of these rates are such a draw (Efraimidis
    and Spirakis, 2006, doi:10.1016/j.ipl.2005.11.003).
    """
    n_layers = len(size)
    n_ops = len(layer)
    src = np.repeat(np.arange(1, n_ops), n_later[1:])
    nth = np.arange(len(src)) - np.repeat(np.cumsum(n_later[1:]) - n_later[1:], n_later[1:])
    dst = n_ops - n_later[src] + nth
    candidates = src * n_ops + dst
    taken = is_in(candidates, edges)
    src = src[~taken]
    dst = dst[~taken]
    candidates = candidates[~taken]
    # the chance of a try, but for the factor 1 / (n_layers - 2) of every layer between
    rate = 1.0 / ((n_layers - 1 - layer[src]) * size[layer[src]] * size[layer[dst]])
    first = np.argsort(rng.exponential(size=len(rate)) / rate, kind="stable")[: n_edges - len(edges)]
    return np.sort(np.concatenate([edges, candidates[first]]))
