"""Random graphs for scalability studies."""

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from simsched.errors import GraphError
from simsched.graph import Numbered, OpGraph
from workloads.checks import generator, interval, real, whole

Ints = npt.NDArray[np.int64]

_SUBJECT: Final = "random_layered"
_MOST_OPS: Final = 10**8  # an edge is a number below n_ops ** 2, which must fit into 64 bits
_DENSE: Final = 4  # below so many candidates per wanted edge, weigh them all instead of trying again and again


def random_layered(
    n_ops: int = 200,
    n_layers: int = 14,
    n_edges: int | None = None,
    comm_ratio: float = 0.8,
    *,
    rng: np.random.Generator | int,
    time: tuple[float, float] = (100.0, 4000.0),
    min_transfer: float = 100.0,
    utilization: tuple[float, float] | None = (0.6, 1.0),
) -> OpGraph:
    """Return a random DAG of layers, as HIOS uses it to compare schedulers.

    Parameters
    ----------
    n_ops
        Operators, from 3 to 10^8.
    n_layers
        Layers, from 3 to `n_ops`; also the `depth` of the graph.
    n_edges
        Edges, all distinct. None for ``2 * n_ops``, or as many as there can be if that is fewer.
    comm_ratio
        Transfer time of an edge over the time of its producer, at least 0.
    rng
        Generator, or the seed of one.
    time
        Range of operator times in us.
    min_transfer
        Least transfer time of an edge in us.
    utilization
        Range of utilizations, within (0, 1]; None for operators without one.

    Raises
    ------
    GraphError
        If a parameter is out of range, or `n_edges` is less than what connecting the layers
        takes or more than there can be; the message says how many those are.

    Notes
    -----
    The generator of HIOS [1]_, sec. V:

    - Layers. The first holds the one source, the last the one sink. Each layer between holds one
      operator and each of the ``n_ops - n_layers`` others joins a layer between at random. The
      operators are numbered layer by layer, so their order is topological.
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

    Where the released code of HIOS does something else we follow the paper, or what scales: it
    sizes layers in rounds of 0 to ``n_layers / 2`` operators per layer, with at least half and at
    most ten times `n_layers` in each (no room for 200 operators in 22 layers, or for 2,000 in 14;
    at 200 in 14 both ways have a mean of 16.5 operators, and a standard deviation of 3.9 and 3.8); it
    numbers operators by rounds, so that their order is not topological; it takes the transfer
    time from the consumer, where the paper says producer. Utilization is in that code only.

    O(n_ops + n_edges log n_edges) time, columns only: a million operators and two million edges
    take a few seconds.

    References
    ----------
    .. [1] "HIOS: Hierarchical Inter-Operator Scheduler for Real-Time Inference of DAG-Structured
       Deep Learning Models on Multiple GPUs", IEEE CLUSTER 2023.

    Examples
    --------
    >>> graph = random_layered(n_ops=50, n_layers=6, rng=0)
    >>> graph, graph.depth, graph.inputs, graph.outputs
    (OpGraph('layered-50', 50 operators, 100 edges), 6, ('op0',), ('op49',))
    """
    rng = generator(_SUBJECT, rng)
    n_ops = whole(_SUBJECT, "n_ops", n_ops, least=3, most=_MOST_OPS)
    n_layers = whole(_SUBJECT, "n_layers", n_layers, least=3)
    n_layers = whole(_SUBJECT, "n_layers", n_layers, most=n_ops, why=" (n_ops: no layer is empty)")
    comm_ratio = real(_SUBJECT, "comm_ratio", comm_ratio)
    min_transfer = real(_SUBJECT, "min_transfer", min_transfer)
    shortest, longest = interval(_SUBJECT, "time", time)
    least, most = _utilization(utilization)

    size = np.ones(n_layers, np.int64)
    size[1:-1] += np.bincount(rng.integers(n_layers - 2, size=n_ops - n_layers), minlength=n_layers - 2)
    # drawn in [0, 1) and before the edges, so that ranges and edge counts do not change each other's draws
    times = shortest + (longest - shortest) * rng.random(n_ops)
    busy = least + (most - least) * rng.random(n_ops)
    edges = _edges(size, n_edges, rng)
    src = edges // n_ops
    with np.errstate(over="ignore"):  # the graph refuses a transfer that is not finite, and names it
        transfer = np.maximum(min_transfer, comm_ratio * times[src])
    return OpGraph.from_columns(
        Numbered("op", n_ops),
        src,
        edges - src * n_ops,
        name=f"layered-{n_ops}",
        edge_transfer=transfer,
        time=times,
        utilization=np.nan if utilization is None else busy,
    )


def _utilization(utilization: Any) -> tuple[float, float]:
    if utilization is None:
        return 1.0, 1.0
    least, most = interval(_SUBJECT, "utilization", utilization)
    if not 0 < least <= most <= 1:
        raise GraphError(f"{_SUBJECT}: utilization must be within (0, 1], not {utilization!r}")
    return least, most


def _edges(size: Ints, n_edges: int | None, rng: np.random.Generator) -> Ints:
    """Return the edges in rising order, each as ``src * n_ops + dst``; `size` is that of each layer."""
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
    if n_edges > possible:
        raise GraphError(
            f"{_SUBJECT}: n_edges must be at most {possible}, which the layers of this seed allow, not {n_edges}"
        )
    if possible <= _DENSE * n_edges:
        return _add_weighted(connecting, n_edges, size, layer, n_later, rng)
    return _add_tried(connecting, n_edges, size, start, rng)


def _connecting(size: Ints, start: Ints, layer: Ints, rng: np.random.Generator) -> Ints:
    n_ops = len(layer)
    op = np.arange(n_ops)
    below, above = layer[:-1] + 1, layer[1:] - 1  # of all but the sink, of all but the source
    successor = start[below] + rng.integers(size[below])
    predecessor = start[above] + rng.integers(size[above])
    edges = np.sort(np.concatenate([op[:-1] * n_ops + successor, predecessor * n_ops + op[1:]]))
    return edges[np.diff(edges, prepend=-1) > 0]  # np.unique is several times slower


def _add_tried(edges: Ints, n_edges: int, size: Ints, start: Ints, rng: np.random.Generator) -> Ints:
    """Add distant edges drawn until they are new, twice as many at a time as are missing."""
    n_layers, n_ops = len(size), int(size.sum())
    while (missing := n_edges - len(edges)) > 0:
        n_tries = 2 * missing + 64
        from_layer = rng.integers(1, n_layers - 1, size=n_tries)
        to_layer = rng.integers(from_layer + 1, n_layers)
        src = start[from_layer] + rng.integers(size[from_layer])
        dst = start[to_layer] + rng.integers(size[to_layer])
        tries = src * n_ops + dst
        at = np.minimum(np.searchsorted(edges, tries), len(edges) - 1)
        new, drawn_at = np.unique(tries[edges[at] != tries], return_index=True)
        # of those that are new the first drawn, as if they had been tried one by one
        edges = np.sort(np.concatenate([edges, new[np.argsort(drawn_at)[:missing]]]))
    return edges


def _add_weighted(edges: Ints, n_edges: int, size: Ints, layer: Ints, n_later: Ints, rng: np.random.Generator) -> Ints:
    """Add distant edges like `_add_tried`, but by one draw for each candidate.

    Trying until an edge is new is drawing without replacement in proportion to the chance of a try;
    the candidates that come first in exponential clocks of those rates are such a draw (Efraimidis
    and Spirakis, 2006, doi:10.1016/j.ipl.2005.11.003).
    """
    n_layers, n_ops = len(size), len(layer)
    src = np.repeat(np.arange(1, n_ops), n_later[1:])
    nth = np.arange(len(src)) - np.repeat(np.cumsum(n_later[1:]) - n_later[1:], n_later[1:])
    dst = n_ops - n_later[src] + nth
    candidates = src * n_ops + dst
    taken = edges[np.minimum(np.searchsorted(edges, candidates), len(edges) - 1)] == candidates
    src, dst, candidates = src[~taken], dst[~taken], candidates[~taken]
    # the chance of a try, but for the factor 1 / (n_layers - 2) of every layer between
    rate = 1.0 / ((n_layers - 1 - layer[src]) * size[layer[src]] * size[layer[dst]])
    first = np.argsort(rng.exponential(size=len(rate)) / rate, kind="stable")[: n_edges - len(edges)]
    return np.sort(np.concatenate([edges, candidates[first]]))
