"""HIOS once more, slowly: paths by enumeration, schedules by recursion, all numbers exact fractions."""

from fractions import Fraction
from itertools import pairwise


class Plain:
    """A graph on a cluster; operators are names, times are fractions of us."""

    def __init__(self, graph, cluster, cost):
        self.graph, self.cluster = graph, cluster
        self.devices = [device.name for device in cluster.devices]
        self.time = {(op.name, d.name): Fraction(cost(op, d)) for op in graph.operators for d in cluster.devices}
        self.mean = {op: sum(self.time[op, d] for d in self.devices) / len(self.devices) for op in graph.names}
        self.edges = list(graph.edges)
        pairs = [(a, b) for a in self.devices for b in self.devices if a != b]
        self.apart = {id(e): sum(self.moved(e, *pair) for pair in pairs) / max(1, len(pairs)) for e in self.edges}
        rank = {}
        for op in reversed(graph.order):
            rank[op] = self.mean[op] + max((self.apart[id(e)] + rank[e.dst] for e in self.out(op)), default=0)
        self.rank = rank
        self.order = sorted(graph.order, key=lambda op: -rank[op])

    def moved(self, edge, a, b):
        return Fraction(self.cluster.transfer_time(a, b, edge.nbytes, edge.transfer))

    def into(self, op):
        return [e for e in self.edges if e.dst == op]

    def out(self, op):
        return [e for e in self.edges if e.src == op]

    # Algorithm 1 ---------------------------------------------------------------------------------

    def longest_valid_path(self, mapped):
        found = []

        def touches(op):
            return any(e.src in mapped for e in self.into(op)) or any(e.dst in mapped for e in self.out(op))

        def extend(path):
            if not any(touches(op) for op in path[1:-1]):
                found.append(path)
                for e in self.out(path[-1]):
                    if e.dst not in mapped:
                        extend((*path, e.dst))

        for op in self.order:
            if op not in mapped:
                extend((op,))
        n = len(self.order)
        return min(found, key=lambda path: (-self.length(path, mapped), [*map(self.order.index, path), n]))

    def length(self, path, mapped):
        total = sum(self.mean[op] for op in path)
        total += sum(max(self.apart[id(e)] for e in self.out(a) if e.dst == b) for a, b in pairwise(path))
        total += max((self.apart[id(e)] for e in self.into(path[0]) if e.src in mapped), default=0)
        return total + max((self.apart[id(e)] for e in self.out(path[-1]) if e.dst in mapped), default=0)

    def by_paths(self):
        device = {}
        while len(device) < len(self.order):
            path = self.longest_valid_path(device)
            tries = self.devices if device else self.devices[:1]
            device = min(
                ({**device, **dict.fromkeys(path, d)} for d in tries),
                key=lambda on: max(end for _, end in self.listed(on).values()),
            )
        return device

    def listed(self, device):
        """Start and end of the mapped operators, by falling priority."""
        times = {}
        for op in (op for op in self.order if op in device):
            d = device[op]
            ready = max((times[e.src][1] + self.moved(e, device[e.src], d)
                         for e in self.into(op) if e.src in device), default=Fraction(0))  # fmt: skip
            busy = sorted(times[o] for o in times if device[o] == d)
            need = self.time[op, d]
            start = max([ready, *(end for _, end in busy)])
            times[op] = (start, start + need)
        return times

    # Algorithm 3 ---------------------------------------------------------------------------------

    def by_records(self):
        states = [{}]
        for i, op in enumerate(self.order):
            after = []
            for d in self.devices[: i + 1]:
                tries = [{**before, op: d} for before in states]
                after.append(min(tries, key=lambda on, op=op: self.listed(on)[op][1]))
            states = after
        return min(states, key=lambda on: max(end for _, end in self.listed(on).values()))

    # Algorithm 2 ---------------------------------------------------------------------------------

    def stages_of(self, device):
        return {d: [(op,) for op in self.order if device[op] == d] for d in self.devices}

    def makespan(self, stages, latency):
        """The makespan of stages by device, or None if some of them wait for each other for ever."""
        stage_of = {op: (d, k) for d, row in stages.items() for k, stage in enumerate(row) for op in stage}
        known, open_ = {}, set()

        def end(d, k):
            if (d, k) in open_:
                raise RecursionError
            if (d, k) not in known:
                open_.add((d, k))
                start = end(d, k - 1) if k else Fraction(0)
                for op in stages[d][k]:
                    for e in self.into(op):
                        there = end(*stage_of[e.src]) + self.moved(e, stage_of[e.src][0], d)
                        start = max(start, there)
                open_.remove((d, k))
                stage = stages[d][k]
                known[d, k] = start + (self.time[stage[0], d] if len(stage) == 1 else Fraction(latency(stage, d)))
            return known[d, k]

        try:
            return max(end(d, k) for d, row in stages.items() for k in range(len(row)))
        except RecursionError:
            return None

    def parallelized(self, stages, latency, w):
        """The stages after Algorithm 2, and their makespan."""
        best = self.makespan(stages, latency)
        for op in self.order:
            d = next(d for d, row in stages.items() for stage in row if op in stage)
            row = stages[d]
            k = next(k for k, stage in enumerate(row) if op in stage)
            if len(row[k]) > 1:
                continue
            adopted = None
            for p in range(2, w + 1):
                if k + p > len(row) or any(len(stage) > 1 for stage in row[k : k + p]):
                    break
                merged = tuple(o for stage in row[k : k + p] for o in stage)
                new = {**stages, d: [*row[:k], merged, *row[k + p :]]}
                found = self.makespan(new, latency)
                if found is not None and found < best:
                    best, adopted = found, new
            stages = adopted or stages
        return stages, best


def stages_by_device(schedule, cluster):
    """Stages of a schedule by device, each a tuple of operators by group."""
    found = {device.name: {} for device in cluster.devices}
    for row in schedule.placements:
        found[row.device].setdefault(row.stage, {})[row.group] = row.op
        assert row.stream == row.group
    return {
        d: [tuple(group[g] for g in range(len(group))) for _, group in sorted(stages.items())]
        for d, stages in found.items()
    }
