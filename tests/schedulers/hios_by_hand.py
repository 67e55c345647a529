"""HIOS once more, slowly: paths by enumeration, schedules by recursion, in numbers that floats hold exactly."""

from itertools import pairwise

from listing_oracle import Oracle


class Plain(Oracle):
    """A graph on a cluster; the stages of each device are tuples of groups of names."""

    def __init__(self, graph, cluster, cost):
        super().__init__(graph, cluster, 1, cost)
        rank = self.upward()
        self.order = sorted(range(len(rank)), key=lambda i: (-rank[i], self.position[i]))

    def listed(self, device):
        """The rows of the operators that are mapped to a device, by falling priority."""
        placed = {}
        for i in self.order:
            if i in device:
                placed[i] = self.row(i, device[i], 0, placed)
        return placed

    def end(self, device):
        return max(row[3] for row in self.listed(device).values())

    # Algorithm 1 ---------------------------------------------------------------------------------

    def longest_valid_path(self, mapped):
        found = []

        def extend(path):
            inner = path[1:-1]
            if not any((i in inner and j in mapped) or (j in inner and i in mapped) for i, j, _ in self.edges):
                found.append(path)
                for i, j, _ in self.edges:
                    if i == path[-1] and j not in mapped:
                        extend((*path, j))

        for i in self.order:
            if i not in mapped:
                extend((i,))
        n = len(self.order)
        return min(found, key=lambda path: (-self.length(path, mapped), [*map(self.order.index, path), n]))

    def length(self, path, mapped):
        def most(src, dst):
            return max((self.beside(e) for i, j, e in self.edges if i in src and j in dst), default=0.0)

        between = sum(most([a], [b]) for a, b in pairwise(path))
        return sum(self.mean[i] for i in path) + between + most(mapped, path[:1]) + most(path[-1:], mapped)

    def by_paths(self):
        device = {}
        while len(device) < len(self.order):
            path = self.longest_valid_path(device)
            tries = range(len(self.devices)) if device else [0]
            device = min(({**device, **dict.fromkeys(path, d)} for d in tries), key=self.end)
        return device

    # Algorithm 3 ---------------------------------------------------------------------------------

    def by_records(self):
        states = [{}]
        for k, i in enumerate(self.order):
            devices = range(len(self.devices))[: k + 1]
            states = [
                min(({**before, i: d} for before in states), key=lambda on, i=i: self.listed(on)[i][3]) for d in devices
            ]
        return min(states, key=self.end)

    # Algorithm 2 ---------------------------------------------------------------------------------

    def stages_of(self, device):
        return {
            self.devices[d].name: [((self.graph.names[i],),) for i in self.order if device[i] == d]
            for d in sorted(set(device.values()))
        }

    def makespan(self, stages, latency):
        """The makespan of stages by device, or None if some of them wait for each other for ever.

        Each starts when its device is free and all that its groups read is there, also from each other.
        """
        stage_of = {op: (d, k) for d, row in stages.items() for k, stage in enumerate(row) for op in sum(stage, ())}
        known, open_ = {}, set()

        def end(d, k):
            if (d, k) in open_:
                raise RecursionError
            if (d, k) not in known:
                open_.add((d, k))
                start = end(d, k - 1) if k else 0.0
                for e in self.graph.edges:
                    if stage_of[e.dst] == (d, k) and not any({e.src, e.dst} <= {*group} for group in stages[d][k]):
                        moved = self.cluster.transfer_time(stage_of[e.src][0], d, e.nbytes, e.transfer)
                        start = max(start, end(*stage_of[e.src]) + moved)
                open_.remove((d, k))
                known[d, k] = start + latency(stages[d][k], d)
            return known[d, k]

        try:
            return max(end(d, len(row) - 1) for d, row in stages.items())
        except RecursionError:
            return None

    def parallelized(self, stages, latency, w):
        """The stages after Algorithm 2, and their makespan."""
        best = self.makespan(stages, latency)
        for i in self.order:
            group = (self.graph.names[i],)
            d, k = next((d, k) for d, row in stages.items() for k, stage in enumerate(row) if group in stage)
            row, adopted = stages[d], stages
            for p in range(2, w + 1):
                if k + p > len(row) or any(len(stage) > 1 for stage in row[k : k + p]):
                    break
                new = {**stages, d: [*row[:k], sum(row[k : k + p], ()), *row[k + p :]]}
                found = self.makespan(new, latency)
                if found is not None and found < best:
                    best, adopted = found, new
            stages = adopted
        return stages, best
