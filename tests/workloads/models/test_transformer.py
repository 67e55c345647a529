"""A layer of a transformer by hand."""

from workloads import load


def test_a_layer_of_a_transformer():
    """Query, key, value; scores; softmax; context; output; norm; inner; outer; norm. As single operators 4 + 2 linear,
    2 matmul; heads are split by a view and a transposition each, and joined by a transposition, a copy and a view.
    """
    graph, single = load("tiny_transformer"), load("tiny_transformer", granularity="operator")
    block, part = zip(*(op.name.split(".")[1:] for op in graph.operators), strict=True)
    assert block == 8 * ("attention",) + 3 * ("feed_forward",)
    assert " ".join(part) == "query key value scores softmax context output norm inner outer norm"
    reads = [e.src for e in graph.edges if e.dst == "layer0.attention.scores"]
    assert reads == ["layer0.attention.query", "layer0.attention.key"]
    assert graph["layer0.feed_forward.inner"].attributes["activation"] == "gelu"
    assert {op.kind for op in single.operators if not op.works} == {"view", "transpose", "dropout"}
    assert all(op.time == 0 for op in single.operators if not op.works)
