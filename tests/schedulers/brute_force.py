"""Everything a scheduler could do with a graph of up to 7 operators, tried: the oracle of tests.

Written without anything of the library but graphs and the transfer times of clusters. Operators are numbered in graph
order.
"""

from itertools import combinations, pairwise, product
from math import inf

from simsched.base.errors import ClusterError


def links(graph):
    """For each operator the operators it reads from."""
    found = [set() for _ in range(len(graph))]
    for u, v in zip(graph.src.tolist(), graph.dst.tolist(), strict=True):
        found[v].add(u)
    return found


def ancestors(graph):
    """For each operator all that must come before it."""
    found = [set() for _ in range(len(graph))]
    producers = links(graph)
    for i in graph.order_index.tolist():
        for p in producers[i]:
            found[i] |= {p} | found[p]
    return found


def topological_orders(graph):
    """Every order of the operators in which producers come first."""
    producers, n = links(graph), len(graph)

    def extend(order):
        if len(order) == n:
            yield tuple(order)
        for i in range(n):
            if i not in order and producers[i] <= set(order):
                yield from extend([*order, i])

    return extend([])


def assignments(graph, n_places):
    """Every way to give each operator one of some places."""
    return product(range(n_places), repeat=len(graph))


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
    producers, between = links(graph), moves(graph, cluster)
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


def stage_sequences(graph):
    """Every way to run the operators in stages: tuples of stages, of which no later one feeds an earlier one."""
    producers, n = links(graph), len(graph)
    before = ancestors(graph)

    def extend(done):
        if len(done) == n:
            yield ()
            return
        left = [i for i in range(n) if i not in done]
        for size in range(1, len(left) + 1):
            for stage in combinations(left, size):
                if all(before[i] <= done | set(stage) for i in stage):
                    for rest in extend(done | set(stage)):
                        yield (stage, *rest)

    assert all(producers[i] <= before[i] for i in range(n))
    return extend(frozenset())


def groups(graph, stage):
    """The connected components of a stage, each in graph order, by their first operators."""
    producers, left, found = links(graph), sorted(stage), []
    while left:
        group = [left.pop(0)]
        for i in group:
            for j in list(left):
                if i in producers[j] or j in producers[i]:
                    group.append(j)
                    left.remove(j)
        found.append(tuple(sorted(group)))
    return tuple(found)


def chain_partitions(graph):
    """Every way to give operators streams such that those of a stream all depend on each other: tuples of chains."""
    before = ancestors(graph)

    def extend(rows, left):
        if not left:
            yield tuple(map(tuple, rows))
            return
        i, *rest = left
        for k, row in enumerate(rows):
            if all(j in before[i] or i in before[j] for j in row):
                yield from extend([*rows[:k], [*row, i], *rows[k + 1 :]], rest)
        yield from extend([*rows, [i]], rest)

    return extend([], graph.order_index.tolist())


def minimal_edges(graph):
    """The edges that no longer path implies, as pairs of operators."""
    producers, before = links(graph), ancestors(graph)
    return [
        (u, v) for v in range(len(graph)) for u in sorted(producers[v]) if not any(u in before[w] for w in producers[v])
    ]


def least_syncs(graph):
    """Least number of minimal edges between chains, over all ways to make chains: syncs of an order kept by streams."""
    edges = minimal_edges(graph)
    found = inf
    for chains in chain_partitions(graph):
        follows = {pair for chain in chains for pair in pairwise(chain)}
        found = min(found, sum(pair not in follows for pair in edges))
    return found
