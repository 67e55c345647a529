"""Graphs from a line of text, and what schedules of them look like."""

from simsched.model.graph import Edge, Operator, OpGraph


def made(times, edges="", transfer=None, **blocks):
    """A graph of "a=3 b=5" (us) and "ab", "a-b" or "a-b:1" (exact transfer in us, else `transfer`).

    `blocks` maps a label to the names in it.
    """
    block_of = {name: label for label, names in blocks.items() for name in names}
    rows = [text.split("=") for text in times.split()]
    operators = [Operator(name, time=float(us), block=block_of.get(name)) for name, us in rows]
    found = []
    for text in edges.split():
        pair, _, us = text.partition(":")
        found.append(Edge(*(pair.split("-") if "-" in pair else pair), transfer=float(us) if us else transfer))
    return OpGraph(operators, found)


def numbered(edges, n, **fields):
    """Operators 1 to n of 10 us, edges as in "1-2 1-3", arguments in their order."""
    return OpGraph(
        [Operator(str(i), time=10.0, **fields) for i in range(1, n + 1)], [Edge(*e.split("-")) for e in edges.split()]
    )


def traced(graph):
    """The graph with an operator for its input, which all without a producer read, and one for its output."""
    operators = [Operator("placeholder", time=0.0), *graph.operators, Operator("output", time=0.0)]
    edges = [*(Edge("placeholder", name) for name in graph.inputs), *graph.edges, Edge(graph.names[-1], "output")]
    return OpGraph(operators, edges, graph.name)


def by_stream(plan):
    """Names of the operators of each stream, in launch order."""
    found = {}
    for row in plan.placements:
        found.setdefault(row.stream, []).append(row.op)
    return [" ".join(found[s]) for s in sorted(found)]
