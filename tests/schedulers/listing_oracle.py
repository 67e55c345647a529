"""The list schedulers once more, in plain Python and as slow as their definitions: what the compiled ones must give."""

from contextlib import suppress
from itertools import permutations, product
from math import inf

import numpy as np

from simsched.base.errors import ClusterError
from simsched.model.costmodel import default_cost


class Oracle:
    """A graph on the streams of some devices; `place...` return {operator: (device, stream, start, finish)}."""

    def __init__(self, graph, cluster, streams, cost=default_cost):
        self.graph, self.cluster, self.streams = graph, cluster, streams
        self.devices = cluster.devices
        self.time = [[cost(op, device) for device in self.devices] for op in graph.operators]
        self.mean = [float(np.mean(row)) for row in self.time]
        self.edges = [(graph.index[e.src], graph.index[e.dst], e) for e in graph.edges]
        self.position = {int(i): k for k, i in enumerate(graph.order_index)}
        self.backwards = [int(i) for i in reversed(graph.order_index)]

    def transfer(self, edge, a, b):
        try:
            return self.cluster.transfer_time(self.devices[a].name, self.devices[b].name, edge.nbytes, edge.transfer)
        except ClusterError:
            return inf

    def beside(self, edge):
        """The mean transfer: exact times as they are, else mean latency and mean of what a byte takes."""
        if len(self.devices) == 1:
            return 0.0
        if edge.transfer is not None:
            return edge.transfer
        latencies, slownesses = [], []
        for a, b in permutations(self.devices, 2):
            with suppress(ClusterError):
                route = self.cluster.route(a.name, b.name)
                latencies.append(route.latency)
                slownesses.append(1.0 / min(route.bandwidth, a.copy_rate))
        return float(np.mean(latencies)) + edge.nbytes * float(np.mean(slownesses)) if latencies else 0.0

    def upward(self, transfers=True):
        rank = [0.0] * len(self.mean)
        for i in self.backwards:
            behind = [(self.beside(e) if transfers else 0.0) + rank[j] for s, j, e in self.edges if s == i]
            rank[i] = self.mean[i] + max(behind, default=0.0)
        return rank

    def optimistic(self):
        devices = range(len(self.devices))
        table = [[0.0] * len(self.devices) for _ in self.mean]
        for i in self.backwards:
            for k in devices:
                for s, j, e in self.edges:
                    if s == i:
                        least = min(
                            table[j][w] + self.time[j][w] + (self.beside(e) if w != k else 0.0) for w in devices
                        )
                        table[i][k] = max(table[i][k], least)
        return table

    def arrival(self, i, d, placed):
        """When all is there that operator i reads from those placed."""
        read = [(*placed[s], e) for s, j, e in self.edges if j == i and s in placed]
        return max((end + self.transfer(e, a, d) for a, _, _, end, e in read), default=0.0)

    def ready(self, placed):
        n = len(self.mean)
        return [i for i in range(n) if i not in placed and all(s in placed for s, j, _ in self.edges if j == i)]

    def row(self, i, d, stream, placed, insertion=False):
        """Operator i in the first idle interval that is long enough, else behind all."""
        there, us = self.arrival(i, d, placed), self.time[i][d]
        busy = sorted((row[2], row[3]) for row in placed.values() if row[:2] == (d, stream))
        before = 0.0
        for start, end in busy:
            if insertion and start > before and max(before, there) + us <= start:
                break
            before = max(before, end)
        return d, stream, max(before, there), max(before, there) + us

    def places(self):
        return product(range(len(self.devices)), range(self.streams))

    def place(self, priority, insertion=True, ahead=None):
        """Ready operators by falling priority, equal ones in topological order, each where its sum is least."""
        placed = {}
        while len(placed) < len(self.mean):
            i = min(self.ready(placed), key=lambda i: (-priority[i], self.position[i]))
            rows = [self.row(i, *place, placed, insertion) for place in self.places()]
            placed[i] = min(rows, key=lambda row: row[3] + (ahead[i][row[0]] if ahead else 0.0))
        return self.named(placed)

    def place_earliest(self):
        """Of all ready operators and devices the pair that can start first, by the definition."""
        level, placed = self.upward(transfers=False), {}
        while len(placed) < len(self.mean):
            rows = [(i, self.row(i, *place, placed)) for i in self.ready(placed) for place in self.places()]
            i, placed[i] = min(rows, key=lambda row: (row[1][2], -level[row[0]], self.position[row[0]]))
        return self.named(placed)

    def named(self, placed):
        return {self.graph.names[i]: (self.devices[d].name, *rest) for i, (d, *rest) in placed.items()}


def listed(plan, cluster, cost=default_cost):
    """{operator: (device, stream, start, finish)} if each starts as soon as the one before it on its stream, in launch
    order, and all that it reads from (and moves between devices, the links to itself) are over."""
    graph, free, found = plan.graph, {}, {}
    for row in plan.placements:
        start = free.get((row.device, row.stream), 0.0)
        for edge in graph.edges:
            if edge.dst == row.op:
                device, _, _, end = found[edge.src]
                start = max(start, end + cluster.transfer_time(device, row.device, edge.nbytes, edge.transfer))
        end = start + cost(graph[row.op], cluster[row.device])
        found[row.op] = (row.device, row.stream, start, end)
        free[row.device, row.stream] = end
    return found


def last(plan, cluster, cost=default_cost):
    """When the last operator ends by list evaluation, in us."""
    return max(end for *_, end in listed(plan, cluster, cost).values())
