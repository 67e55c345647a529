"""Everything a scheduler could do with a graph of up to 7 operators, tried: the oracle of tests.

Written without anything of the library but graphs and the transfer times of clusters. Operators are numbered in graph
order.
"""

from itertools import product
from math import inf

from simsched.base.errors import ClusterError


def moves(graph, cluster):
    """Time of each pair of producer and consumer from device to device, of parallel edges the longest."""
    names = [device.name for device in cluster.devices]
    found = {}
    for edge in graph.edges:
        pair = graph.index[edge.src], graph.index[edge.dst]
        table = found.setdefault(pair, [[0.0] * len(names) for _ in names])
        for a, b in product(range(len(names)), repeat=2):
            if a != b:
                try:
                    us = cluster.transfer_time(names[a], names[b], edge.nbytes, edge.transfer)
                except ClusterError:  # no links lead there
                    us = inf
                table[a][b] = max(table[a][b], us)
    return found


def best_makespan(graph, cluster, streams=1, times=None):
    """Least makespan in us of all contention-free schedules.

    Operators are appended one by one, in every topological order, on every device, behind what every stream of it
    has; each starts as soon as it can. What is already as long as the best is given up. `times`: ``times[d][i]``
    of operator i on device d, where it is not the operator's own.
    """
    n, n_devices = len(graph), len(cluster.devices)
    between = moves(graph, cluster)
    producers = [{p for p, consumer in between if consumer == i} for i in range(n)]
    times = [[op.time for op in graph.operators]] * n_devices if times is None else times
    best = inf

    def extend(ends, device, free):
        nonlocal best
        latest = max(ends.values(), default=0.0)
        if latest >= best:
            return
        if len(ends) == n:
            best = latest
            return
        for i in range(n):
            if i in ends or not producers[i] <= ends.keys():
                continue
            for d in range(n_devices):
                ready = max((ends[p] + between[p, i][device[p]][d] for p in producers[i]), default=0.0)
                for s in {free[d][s]: s for s in range(streams)}.values():  # of streams free together, one
                    end = max(ready, free[d][s]) + times[d][i]
                    row = (*free[d][:s], end, *free[d][s + 1 :])
                    extend({**ends, i: end}, {**device, i: d}, (*free[:d], row, *free[d + 1 :]))

    extend({}, {}, ((0.0,) * streams,) * n_devices)
    return best
