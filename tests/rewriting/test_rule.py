"""Random substitutions one after the other, and what all rules have in common."""

from functools import reduce

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rewriting.interpreter import Weights, evaluate, largest_error
from rewritten import TOLERANCE, block, check, cut, network, of_text, source, walked

import workloads
from simsched.model.graph import OpGraph
from simsched.rewriting import RULES, GraphDraft, Source


def test_there_are_thirteen_rules():
    assert [rule.name for rule in RULES.values()] == list(RULES) == [f"R{i}" for i in range(1, 14)]


@st.composite
def small_networks(draw, most=9):
    """A few operators on images of two to four channels, that read each other as they like, and some joins."""
    net = network(draw(st.sampled_from(["unit", "operator"])))
    batch = draw(st.sampled_from([1, 1, 2]))
    tensors = [source(net, (batch, channels, 4, 4), f"x{channels}") for channels in (2, 4)]
    pick = st.sampled_from
    for i in range(draw(st.integers(2, most))):
        x = draw(pick(tensors[-4:]))
        name, channels = f"op{i}", x.shape[1]
        same = [y for y in tensors if y.shape == x.shape]
        kind = draw(pick(["conv", "conv", "conv", "depthwise", "pool", "sum", "act", "join", "join", "norm"]))
        if kind == "conv":
            window = draw(pick([1, 3]))
            activation = draw(pick([None, "relu"]))
            out = net.conv(name, x, draw(pick([2, 4])), window, padding=window // 2, activation=activation)
        elif kind == "depthwise":
            out = net.conv(name, x, channels, 3, padding=1, groups=channels, activation=None)
        elif kind == "pool":
            out = net.pool(name, x, draw(pick(["avg", "max"])), 3, padding=1)
        elif kind == "sum":
            out = net.add(name, [x, draw(pick(same))])
        elif kind == "act":
            out = net.activation(name, x, draw(pick(["relu", "tanh"])))
        elif kind == "norm":
            out = net.batch_norm(name, x)
        else:
            out = net.concat(name, [x, draw(pick(tensors[-3:]))])
        tensors.append(out)
    return net.graph()


@settings(max_examples=60, deadline=None)
@given(graph=small_networks(), seed=st.integers(0, 2**16))
def test_random_substitutions_keep_the_values(graph, seed):
    draft, used = walked(graph, seed, 12)
    check(draft)
    rewritten = draft.to_graph()
    assert largest_error(graph, rewritten) < TOLERANCE, used
    assert GraphDraft.from_graph(rewritten).signature() == draft.signature()


@settings(max_examples=40, deadline=None)
@given(graph=small_networks())
def test_every_match_can_be_made_unless_it_closes_a_circle(graph):
    draft = GraphDraft.from_graph(graph)
    for rule in RULES.values():
        for match in rule.matches(draft):
            after = rule.apply(draft, match)
            if after is None:  # those that join what may depend on each other
                assert rule.name in ("R4", "R5", "R6", "R7", "R10", "R11")
            else:
                check(after)
                assert largest_error(graph, after.to_graph()) < TOLERANCE
                assert after.signature() != draft.signature()
    assert draft.signature() == GraphDraft.from_graph(graph).signature()


REAL = {
    "squeezenet by operators": ({"image_size": 48, "granularity": "operator", "batch": 2}, ["fire6", "fire7"]),
    "inception_v3": ({"image_size": 75}, ["mixed_7b", "mixed_7c"]),
    "autograph_bert": ({"batch": 2, "sequence_length": 4, "layers": 2}, ["layer0", "layer1"]),
    "rnntc_sru": ({"layers": 2, "sequence_length": 3, "features": 8, "granularity": "operator"}, ["layer0", "layer1"]),
    "nasnet_mobile": ({"image_size": 64, "granularity": "operator"}, ["cell1", "reduction1"]),
    "resnext50": ({"image_size": 32}, ["layer1.1", "layer1.2"]),
}


@pytest.mark.parametrize(("name", "given"), REAL.items(), ids=REAL)
def test_blocks_of_real_networks_keep_their_values(name, given):
    options, blocks = given
    graph = cut(workloads.load(name.split()[0], **options), *blocks)
    draft, used = walked(graph, 1, 30)
    assert len(used) >= 2
    check(draft)
    assert largest_error(graph, draft.to_graph()) < TOLERANCE


def test_the_order_of_independent_substitutions_does_not_matter():
    draft = GraphDraft.from_graph(block())
    found = list(RULES["R1"].matches(draft))
    ends = [reduce(RULES["R1"].apply, order, draft) for order in (found, found[::-1])]
    assert ends[0].signature() == ends[1].signature() != draft.signature()
    assert ends[0].to_graph() == ends[1].to_graph()


@pytest.mark.parametrize("batch", [1, 2])
def test_what_somebody_outside_reads_keeps_its_name(batch):
    """Of one image a view stands for a, which costs nothing; p reads the slice itself, as q does that of b."""
    text = "a = conv(x, 4, 1); b = conv(x, 2, 1); p = pool(a, 'max', 2); q = pool(b, 'max', 2)"
    graph = of_text(text, "unit", x=(batch, 4, 6, 6))
    _, *rows = GraphDraft.from_graph(graph).rows.values()
    part = GraphDraft(rows, outside={"x": graph["x"]}, kept=["a"])
    (match,) = RULES["R2"].matches(part)
    after = RULES["R2"].apply(part, match)
    check(after)
    assert sorted(after.rows) == (["a", "a+b", "p", "q"] if batch == 1 else ["a", "a+b", "b", "p", "q"])
    copy = after.rows["a"].operator
    assert (copy.kind, copy.time, copy.works == ()) == ("slice", 0.0 if batch == 1 else None, batch == 1)
    assert after.rows["p"].reads[0][:2] == (("a+b", (1, 0, 4)) if batch == 1 else ("a", None))
    assert after.rows["a+b"].reads[0].producer == "x"


def test_the_interpreter_tells_wrong_graphs():
    """Two inputs exchanged, a slice moved, another weight: each is seen."""
    graph = of_text("a = conv(x, 2, 1); b = conv(x, 2, 1); d = elementwise('sub', [a, b])", "unit")
    edges = list(graph.edges)
    turned = OpGraph(graph.operators, [*edges[:2], edges[3], edges[2]])
    assert largest_error(graph, turned) > 0.1
    draft = GraphDraft.from_graph(graph).replace(["b"], redirect={"b": Source("a")})
    assert largest_error(graph, draft.to_graph()) > 0.1
    assert evaluate(graph, Weights(graph))["d"].any()
