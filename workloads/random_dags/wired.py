"""Random graphs made acyclic: Erdős-Rényi and Watts-Strogatz, as RandWire wires networks."""

from typing import Annotated

import numpy as np

from simsched.base.codec import Among, Part, Range
from simsched.base.errors import GraphError
from simsched.model.graph import OpGraph
from workloads.checks import whole
from workloads.declared import workload
from workloads.random_dags.edges import Ints, distinct, ends_of, first_of_each, is_in, with_ends
from workloads.random_dags.weights import MOST_OPS, Weights

Ends = Annotated[str, Among(("open", "joined"))]


@workload(Weights)
def random_erdos_renyi(
    weights: Weights,
    n_ops: Annotated[int, Range(4, MOST_OPS)] = 200,
    n_edges: int | None = None,
    edge_probability: Part | None = None,
    ends: Ends = "open",
) -> OpGraph:
    """Return a DAG of random pairs, each edge from the lower to the higher number.

    Parameters
    ----------
    n_ops
        Operators, from 4 to 10^8.
    n_edges
        Different pairs, every choice of them equally likely: G(n, m) [1]_. None for ``2 * n_ops`` or
        as many as there are if that is fewer, unless `edge_probability` is given.
    edge_probability
        Each pair is an edge with this probability, independently of the others: G(n, p) [2]_. Not
        together with `n_edges`.
    ends
        "open": sources and sinks as they come. "joined": the first operator leads to every other that
        would read from none, and the last reads from every other that none would read from. Pairs are
        then drawn among the ``n_ops - 2`` others, and the edges of the two come on top.
    rng, time, utilization, comm_ratio, min_transfer
        See `workloads.random_dags.weights.Weights`.

    Raises
    ------
    GraphError
        If a parameter is out of range, or there would be more than 2 * 10^8 edges.

    Notes
    -----
    With open ends the graph need not be connected: at the default of 2 edges to an operator, one in
    55 (e^-4) has no edge at all. G(n, p) is drawn as G(n, m) with m of the binomial distribution,
    which is the same, and not by geometric skips: whole numbers come out alike on every machine,
    logarithms need not. O(n_ops + n_edges log n_edges).

    References
    ----------
    .. [1] Erdős, Rényi, "On random graphs I", Publicationes Mathematicae 6, 1959.
    .. [2] Gilbert, "Random graphs", Annals of Mathematical Statistics 30(4), 1959.

    Examples
    --------
    >>> random_erdos_renyi(100, 300, rng=0)
    OpGraph('erdos-renyi-100', 100 operators, 300 edges)
    >>> graph = random_erdos_renyi(100, 300, ends="joined", rng=0)
    >>> graph.inputs, graph.outputs
    (('op0',), ('op99',))
    """
    if ends == "joined":
        n_inner = n_ops - 2
    else:
        n_inner = n_ops
    n_pairs = n_inner * (n_inner - 1) // 2
    if edge_probability is not None:
        if n_edges is not None:
            raise GraphError(f"{weights.subject}: give n_edges or edge_probability, not both")
        expected = round(edge_probability * n_pairs)
    elif n_edges is not None:
        expected = whole(weights.subject, "n_edges", n_edges, least=0, most=n_pairs, why=", the pairs that there are")
    else:
        expected = min(2 * n_ops, n_pairs)
    weights.affordable(n_ops, expected, "give fewer n_edges or less edge_probability")
    weights.draw(n_ops)

    if edge_probability is None:
        count = expected
    else:
        count = int(weights.rng.binomial(n_pairs, edge_probability))
    pair = distinct(weights.rng, n_pairs, count)
    # pairs are numbered by their lower end: start[i] is the first pair of i
    i = np.arange(n_inner)
    start = i * (2 * n_inner - i - 1) // 2
    src = np.searchsorted(start, pair, side="right") - 1
    dst = pair - start[src] + src + 1
    return weights.graph(*(with_ends(src, dst, n_inner) if n_inner < n_ops else ([src], [dst])))


@workload(Weights)
def random_watts_strogatz(
    weights: Weights,
    n_ops: Annotated[int, Range(4, MOST_OPS)] = 200,
    neighbours: int = 4,
    rewiring: Part = 0.75,
    ends: Ends = "open",
) -> OpGraph:
    """Return a small-world DAG: a ring of near neighbours, some of them replaced by distant ones.

    Parameters
    ----------
    n_ops
        Operators, from 4 to 10^8.
    neighbours
        Nearest operators on the ring that each is joined to, half of them on either side: an even
        number, at most half the operators of the ring.
    rewiring
        Probability that an edge gets a random far end instead.
    ends
        "open": sources and sinks as they come. "joined", as in RandWire: the first operator leads to
        every other that would read from none, and the last reads from every other that none would read
        from. The ring is then the ``n_ops - 2`` others: RandWire's WS(32, 4, 0.75) is ``n_ops=34,
        ends="joined"``.
    rng, time, utilization, comm_ratio, min_transfer
        See `workloads.random_dags.weights.Weights`.

    Raises
    ------
    GraphError
        If a parameter is out of range.

    Notes
    -----
    The model of [1]_: each operator has an edge to each of its next ``neighbours / 2`` on the ring;
    with probability `rewiring` it leads to another operator instead, any that its own is not joined
    to yet, with equal chances. Then, as RandWire [2]_ makes a network of it, every edge leads from
    the lower to the higher number. A ring of n has n * `neighbours` / 2 edges, all distinct.

    It differs from [1]_ in the order of rewiring: there it goes around the ring edge by edge, here
    all edges that move draw their far ends at once, and edges whose place is taken, by an edge that
    exists or by one drawn before, draw again. As in common implementations, an edge stays where
    it is if its operator is joined to all others. The graph need not be connected where `rewiring`
    is near 1. Expected O(E log E).

    References
    ----------
    .. [1] Watts, Strogatz, "Collective dynamics of 'small-world' networks", Nature 393, 1998,
       doi:10.1038/30918.
    .. [2] Xie, Kirillov, Girshick, He, "Exploring randomly wired neural networks for image
       recognition", ICCV 2019, arXiv:1904.01569.

    Examples
    --------
    >>> random_watts_strogatz(100, neighbours=6, rewiring=0.5, rng=0)
    OpGraph('watts-strogatz-100', 100 operators, 300 edges)
    >>> graph = random_watts_strogatz(34, ends="joined", rng=0)
    >>> graph.inputs, graph.outputs
    (('op0',), ('op33',))
    """
    if ends == "joined":
        ring = n_ops - 2
    else:
        ring = n_ops
    neighbours = whole(weights.subject, "neighbours", neighbours, least=2, most=ring // 2, why=", half the ring")
    if neighbours % 2:
        raise GraphError(f"{weights.subject}: neighbours must be even, half of them on either side, not {neighbours}")
    weights.affordable(n_ops, ring * neighbours // 2, "give fewer n_ops or neighbours")
    weights.draw(n_ops)

    keys = _rewire(ring, neighbours // 2, rewiring, weights.rng)
    src, dst = ends_of(keys, ring)
    return weights.graph(*(with_ends(src, dst, ring) if ring < n_ops else ([src], [dst])))


def _rewire(ring: int, reach: int, rewiring: float, rng: np.random.Generator) -> Ints:
    """Return the edges as ``lower end * ring + higher end``, edges of distance 1 on the ring first."""
    near = np.tile(np.arange(ring), reach)
    keys = _between(near, near + np.repeat(np.arange(1, reach + 1), ring), ring)
    moving = np.flatnonzero(rng.random(len(keys)) < rewiring)
    while len(moving):
        src, dst = ends_of(keys, ring)
        degree = np.bincount(src, minlength=ring) + np.bincount(dst, minlength=ring)
        moving = moving[degree[near[moving]] < ring - 1]
        drawn = _between(near[moving], near[moving] + rng.integers(1, ring, size=len(moving)), ring)
        free = ~is_in(drawn, np.sort(keys)) & first_of_each(drawn)
        keys[moving[free]] = drawn[free]
        moving = moving[~free]
    return keys


def _between(near: Ints, far: Ints, ring: int) -> Ints:
    far = far % ring
    return np.minimum(near, far) * ring + np.maximum(near, far)
