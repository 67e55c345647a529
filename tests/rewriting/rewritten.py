"""Graphs for rules, and what every substitution must keep."""

from dataclasses import replace

import numpy as np
from rewriting.interpreter import largest_error

from simsched.model.graph import Operator, OpGraph
from simsched.rewriting import RULES, DraftRow, GraphDraft
from workloads.models.network import Network

TOLERANCE = 1e-9


def network(granularity="operator", dtype="fp32"):
    return Network("net", dtype, granularity)


def source(net, shape=(1, 4, 6, 6), name="x"):
    """A tensor that an operator writes, another for each name, of a kind that no rule knows."""
    return net.elementwise(name, "source", [net.input(*shape)])


class _Scope(dict):
    """Methods of a network and what they return; any other name is a source of an image."""

    def __init__(self, net):
        super().__init__((name, getattr(net, name)) for name in dir(net) if not name.startswith("_"))
        self.net = net

    def __missing__(self, name):
        self[name] = source(self.net, name=name)
        return self[name]


def of_text(text, granularity="operator", **sources):
    """The graph of "c = conv(x, 4, 3); r = activation(c) | dtype='fp16'": calls of `Network`, each with a name.

    Names that no operator has are sources: of 1 image of 4 channels and 6 x 6 pixels, or of the shape given. Behind a
    bar stand fields and attributes of an operator that are others than the network says.
    """
    net = network(granularity)
    scope, changes = _Scope(net), {}
    scope |= {name: source(net, shape, name) for name, shape in sources.items()}
    for row in text.split("; "):
        (name, call), (_, changed) = row.partition(" | ")[0].split(" = ", 1), row.partition(" | ")[1:]
        scope[name] = eval(call.replace("(", f"({name!r}, ", 1), {}, scope)
        if changed:
            changes[name] = eval(f"dict({changed})")
    graph = net.graph()
    for name, changed in changes.items():
        graph = with_changes(graph, name, **changed)
    return graph


def with_changes(graph, name, **changed):
    """A graph in which an operator has other fields or, by any other name, other attributes."""
    fields = {key: value for key, value in changed.items() if key in Operator.__dataclass_fields__}
    attributes = graph[name].attributes | {key: value for key, value in changed.items() if key not in fields}
    new = replace(graph[name], **{"attributes": attributes, **fields})
    return OpGraph([new if op.name == name else op for op in graph.operators], graph.edges, graph.name)


def block():
    """An Inception-like block of three branches."""
    convs = "; ".join(f"c{i} = conv(x, 2, {k}, padding={k // 2}, norm=True)" for i, k in enumerate((1, 1, 3)))
    return of_text(f"{convs}; join = concat([c0, c1, c2]); out = pool(join, 'max', 2)")


def cut(graph, *blocks):
    """The operators of some blocks as a graph, behind a source for each tensor that comes from outside."""
    rows = [row for row in GraphDraft.from_graph(graph).rows.values() if row.operator.block in blocks]
    inside = [row.operator.name for row in rows]
    outside = dict.fromkeys(read.producer for row in rows for read in row.reads if read.producer not in inside)
    shapes = {name: graph[name].output_shape for name in outside}
    sources = [DraftRow(Operator(name, "source", input_shapes=(s,), output_shape=s)) for name, s in shapes.items()]
    return GraphDraft([*sources, *rows]).to_graph()


def check(draft):
    """What a draft must be whatever was done to it: as if made at once from its rows."""
    again = GraphDraft(draft.rows.values(), draft.name, outside=draft.outside, kept=draft.kept)
    assert draft.signature() == again.signature()
    assert {k: sorted(v) for k, v in draft.readers.items()} == {k: sorted(v) for k, v in again.readers.items()}
    assert dict(draft.kept) == dict(again.kept)
    assert sorted(draft.order()) == sorted(draft.rows)
    place = {name: i for i, name in enumerate(draft.order())}
    for name, row in draft.rows.items():
        assert all(place.get(read.producer, -1) < place[name] for read in row.reads)
        assert not row.operator.input_shapes or len(row.reads) in (0, len(row.operator.input_shapes))


def applied(graph, steps):
    """The graph after "R9 a b; R1", rules and their matches (or the only one), each seen to compute the same."""
    before = graph
    for rule, *match in map(str.split, steps.split("; ")):
        draft = GraphDraft.from_graph(before)
        found = list(RULES[rule].matches(draft))
        assert tuple(match) in found if match else len(found) == 1, found
        after = RULES[rule].apply(draft, tuple(match) or found[0])
        assert after is not None
        check(after)
        rewritten = after.to_graph()
        assert GraphDraft.from_graph(rewritten).signature() == after.signature()
        assert largest_error(before, rewritten, graph) < TOLERANCE
        before = rewritten
    return before


def walked(graph, rng, steps, rules=RULES):
    """The draft after random substitutions, the rules with few matches as often as those with many; and which."""
    rng = np.random.default_rng(rng)
    draft, used = GraphDraft.from_graph(graph), []
    for _ in range(steps):
        found = {name: list(rule.matches(draft)) for name, rule in rules.items()}
        names = [name for name, possible in found.items() if possible]
        if not names:
            break
        name = names[rng.integers(len(names))]
        match = found[name][rng.integers(len(found[name]))]
        after = rules[name].apply(draft, match)
        if after is not None:
            draft = after
            used.append((name, match))
    return draft, used
