"""Graphs of the fast Fourier transform."""

from typing import Annotated

import numpy as np

from simsched.base.codec import Among, Range
from simsched.base.errors import GraphError
from simsched.model.graph import OpGraph
from workloads.declared import workload
from workloads.random_dags.weights import MOST_OPS, Weights


@workload(Weights)
def random_fft(
    weights: Weights,
    points: Annotated[int, Range(2, MOST_OPS)] = 32,
    form: Annotated[str, Among(("recursive", "butterfly"))] = "recursive",
) -> OpGraph:
    """Return the graph of a fast Fourier transform, with random times.

    Parameters
    ----------
    points
        Points, a power of 2 from 2 on.
    form
        "recursive": a tree of calls, each of which splits its points in two, then the butterflies.
        "butterfly": the butterflies only.
    rng, time, utilization, comm_ratio, min_transfer
        See `workloads.random_dags.weights.Weights`. Only the weights are drawn.

    Raises
    ------
    GraphError
        If a parameter is out of range.

    Notes
    -----
    For n points there are log2 n levels of n butterflies. Number p of level l reads from numbers p
    and p XOR 2^(l - 1) of the level before. The first level reads from nothing, or from the n leaves
    of a binary tree of 2 n - 1 calls, as in the experiments with HEFT [1]_. So there are n log2 n
    operators and 2 n (log2 n - 1) edges, or 2 n - 1 + n log2 n operators and 2 n - 2 + 2 n log2 n
    edges. Numbered level by level. Kinds are "call" and "butterfly".

    All operators are alike. With ``time=(t, t)`` every path from a source to a sink is critical. O(n log n).

    References
    ----------
    .. [1] Topcuoglu, Hariri, Wu, "Performance-effective and low-complexity task scheduling
       for heterogeneous computing", IEEE TPDS 13(3), 2002, doi:10.1109/71.993206.

    Examples
    --------
    >>> random_fft(8, rng=0), random_fft(8, "butterfly", rng=0)
    (OpGraph('fft-39', 39 operators, 62 edges), OpGraph('fft-24', 24 operators, 32 edges))
    """
    levels = points.bit_length() - 1
    if points != 2**levels:
        raise GraphError(f"{weights.subject}: points must be a power of 2, not {points}")
    if form == "recursive":
        n_calls = 2 * points - 1
    else:
        n_calls = 0
    n_ops = n_calls + points * levels
    weights.affordable(n_ops, 2 * n_ops, "give fewer points")
    weights.draw(n_ops)

    child = np.arange(1, n_calls)
    src = [(child - 1) // 2]
    dst = [child]
    # levels after the first, or after the leaves, which are the last calls
    place = np.arange(points)
    start = n_calls - points if n_calls else 0
    for level in range(0 if n_calls else 1, levels):
        here = start + points + place
        src += [start + place, start + (place ^ (1 << level))]
        dst += [here, here]
        start += points
    is_butterfly = (np.arange(n_ops) >= n_calls).astype(np.int64)
    return weights.graph(src, dst, kind=(is_butterfly, ("call", "butterfly")))
