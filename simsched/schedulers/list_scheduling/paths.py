"""Longest paths to the outputs of a graph."""

from math import inf

from simsched.base.jit import piece
from simsched.schedulers.list_scheduling.tables import Lists


@piece("list schedulers")
def find_ranks(s: Lists) -> None:
    """Write the longest path from each operator to an output: weights of operators, `beside` of edges."""
    for k in range(s.n_ops - 1, -1, -1):
        i, longest = s.order[k], 0.0
        for q in range(s.out_ptr[i], s.out_ptr[i + 1]):
            e = s.out_edge[q]
            longest = max(longest, s.beside[e] + s.rank[s.dst[e]])
        s.rank[i] = s.weight[i] + longest


@piece("list schedulers")
def look_ahead(s: Lists) -> None:
    """Write the optimistic cost table: what is left behind an operator that runs on a device, at best."""
    n = s.n_devices
    for k in range(s.n_ops - 1, -1, -1):
        i = s.order[k]
        for d in range(n):
            s.ahead[i * n + d] = 0.0
        for q in range(s.out_ptr[i], s.out_ptr[i + 1]):
            e, elsewhere = s.out_edge[q], inf
            for d in range(n):
                elsewhere = min(elsewhere, through(s, s.dst[e], d))
            elsewhere += s.beside[e]
            for d in range(n):
                s.ahead[i * n + d] = max(s.ahead[i * n + d], min(elsewhere, through(s, s.dst[e], d)))


def through(s: Lists, i: int, d: int) -> float:
    """Return what an operator on a device and what is left behind it take."""
    return s.ahead[i * s.n_devices + d] + s.time[s.devices[d].row * s.n_ops + i]
