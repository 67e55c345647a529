"""Edges of layered DAGs: those that connect neighbouring layers, and distant ones."""

import numpy as np

from workloads.checks import whole
from workloads.random_dags.edges import DENSE, Ints, is_in
from workloads.random_dags.weights import MOST_EDGES


def layered_edges(subject: str, size: Ints, n_edges: int | None, rng: np.random.Generator) -> Ints:
    """Return the edges in rising order, each as ``src * n_ops + dst``.

    `size` is that of each layer; operators are numbered layer by layer. `n_edges` is as in `random_layered`.
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
    n_edges = whole(subject, "n_edges", n_edges, least=len(connecting), why=", which connect the layers of this seed")
    n_edges = whole(subject, "n_edges", n_edges, most=possible, why=", which the layers of this seed allow")
    n_edges = whole(subject, "n_edges", n_edges, most=MOST_EDGES)
    if possible <= DENSE * n_edges:
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
        new, drawn_at = np.unique(tries[~is_in(tries, edges)], return_index=True)
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
    taken = is_in(candidates, edges)
    src, dst, candidates = src[~taken], dst[~taken], candidates[~taken]
    # the chance of a try, but for the factor 1 / (n_layers - 2) of every layer between
    rate = 1.0 / ((n_layers - 1 - layer[src]) * size[layer[src]] * size[layer[dst]])
    first = np.argsort(rng.exponential(size=len(rate)) / rate, kind="stable")[: n_edges - len(edges)]
    return np.sort(np.concatenate([edges, candidates[first]]))
