"""How many streams and waits Opara and Nimble make of a graph: written down again, apart from the schedulers.

Input is an `OpGraph` of single operators with vertices for inputs and the output (as torch.fx counts), operators in
launch order, edges in the order of arguments.
"""

from typing import NamedTuple


class StreamCounts(NamedTuple):
    operators: int
    opara_streams: int
    nimble_chains: int
    nimble_streams: int  # chains that no two of which can run at once share one
    opara_waits: int
    nimble_waits: int
    least_syncs: int


def stream_counts(graph):
    """The counts of a graph."""
    opara = opara_streams(graph)
    chains, streams, reduced, n_matched = nimble_streams(graph)
    edges = pairs(graph)
    return StreamCounts(
        len(graph),
        len(set(opara)),
        len(set(chains)),
        len(set(streams)),
        len({(i, j) for i, j in edges if opara[i] != opara[j]}),
        sum(streams[i] != streams[j] for i, j in edges),
        sum(map(len, reduced)) - n_matched,
    )


def pairs(graph):
    """Edges as numbers of operators."""
    return list(zip(graph.src.tolist(), graph.dst.tolist(), strict=True))


def opara_streams(graph):
    """Each operator takes the stream of its first producer whose stream nobody took over yet, or a new one."""
    producers = [[] for _ in graph.names]
    for i, j in pairs(graph):
        producers[j].append(i)
    stream, taken, n = [-1] * len(graph), [False] * len(graph), 0
    for v, inputs in enumerate(producers):
        free = next((p for p in inputs if not taken[p]), None)
        if free is None:
            stream[v], n = n, n + 1
        else:
            stream[v], taken[free] = stream[free], True
    return stream


def nimble_streams(graph):
    """Chain and stream of each operator, the transitive reduction by producer, and how many of its edges match."""
    reached = closure(len(graph), pairs(graph))
    children = [[] for _ in graph.names]
    for i, j in sorted(set(pairs(graph))):
        children[i].append(j)
    reduced = [[c for c in row if not any(reached[d] >> c & 1 for d in row)] for row in children]
    producer = matching(reduced)
    chain, ends = chains_of(producer)
    begin = [chain.index(c) for c in range(len(ends))]  # operators are numbered topologically
    follows = [[b for b in range(len(ends)) if b != a and reached[ends[a]] >> begin[b] & 1] for a in range(len(ends))]
    before = closure(len(ends), [(a, b) for a, row in enumerate(follows) for b in row])
    closed = [[b for b in range(len(ends)) if row >> b & 1] for row in before]
    reuse, _ = chains_of(matching(closed))
    return chain, [reuse[c] for c in chain], reduced, sum(p is not None for p in producer)


def closure(n, edges):
    """Of each of n vertices those that it leads to, as bits."""
    children = [[] for _ in range(n)]
    for i, j in edges:
        children[i].append(j)
    reached = [None] * n
    for root in range(n):
        stack = [root]
        while stack:
            v = stack[-1]
            missing = [c for c in children[v] if reached[c] is None]
            if missing:
                stack += missing
                continue
            bits = 0
            for c in children[v]:
                bits |= reached[c] | 1 << c
            reached[stack.pop()] = bits
    return reached


def matching(rows):
    """Kuhn's matching of a bipartite graph, both sides in ascending order: the left partner of each right vertex."""
    partner = [None] * len(rows)
    for i in range(len(rows)):
        seen, stack, chosen = set(), [(i, iter(rows[i]))], []
        while stack:
            j = next((j for j in stack[-1][1] if j not in seen), None)
            if j is None:
                stack.pop()
                if chosen:
                    chosen.pop()
                continue
            seen.add(j)
            chosen.append(j)
            if partner[j] is None:
                for (u, _), right in zip(stack, chosen, strict=True):
                    partner[right] = u
                break
            stack.append((partner[j], iter(rows[partner[j]])))
    return partner


def chains_of(before):
    """Number of the chain that each vertex is in, and the last vertex of each chain, given who stands before it."""
    has_successor = {p for p in before if p is not None}
    chain, ends = [-1] * len(before), [v for v in range(len(before)) if v not in has_successor]
    for number, v in enumerate(ends):
        while v is not None:
            chain[v] = number
            v = before[v]
    return chain, ends
