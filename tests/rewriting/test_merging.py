"""Merged convolutions: which may, what they cost, and that they compute the same."""

from dataclasses import replace

import pytest
from rewriting.interpreter import largest_error
from rewritten import of_text, with_changes

from simsched.base.errors import GraphError
from simsched.model import Cluster, Work, roofline
from simsched.rewriting import RULES, GraphDraft, can_merge, merge, merge_key, merged_operators
from workloads.models.network import Network


def branches(*convs, batch=1, channels=4, size=8, joined=True, dtype="fp32"):
    """A 1x1 convolution "x" and convolutions "c0", "c1", ... of it, (channels, kernel, options), then a join."""
    net = Network("net", dtype)
    x = net.conv("x", net.input(batch, 3, size, size), channels, 1)
    outs = [net.conv(f"c{i}", x, out, kernel, **options) for i, (out, kernel, options) in enumerate(convs)]
    if joined:
        net.concat("join", outs)
    return net.graph()


POINT = (4, 1, {})
SAME = (6, 3, {"padding": 1})


def test_a_point_and_a_window_become_one_window():
    """FLOP: (4 + 6) channels x 64 pixels x 4 inputs x 9 x 2 = 46,080. Weights: 10 x (36 + bias) x 4 bytes = 1480.
    Bytes: input 4 x 64 x 4 = 1024 and output 10 x 64 x 4 = 2560 besides. The work: 64 pixels by 10 channels, of
    4 x 9 = 36 products each."""
    graph = branches(POINT, SAME)
    after, names = merge(graph, [("c0", "c1")])
    assert names == [("c0+c1",)]
    op = after["c0+c1"]
    assert (op.flops, op.weight_nbytes, op.nbytes) == (46_080.0, 1480.0, 5064.0)
    (work,) = op.works
    assert (work.family, work.rows, work.columns, work.inner, work.window) == ("convolution", 64, 10, 36, 9)
    assert (work.flops, work.reads, work.weights, work.writes) == (46_080.0, 1024.0, 1480.0, 2560.0)
    assert op.kernels == ()
    assert (op.kind, op.intensity, op.dtype, op.time, op.block) == ("conv", "compute", "fp32", None, None)
    assert op.input_shapes == ((1, 4, 8, 8),)
    assert op.output_shape == (1, 10, 8, 8)
    recipe = {"concat": [{"pad": {"of": "c0"}, "kernel": [3, 3]}, {"of": "c1"}], "axis": 0}
    assert op.attributes == {
        "kernel": [3, 3],
        "stride": [1, 1],
        "padding": [1, 1],
        "groups": 1,
        "out_channels": 10,
        "activation": "relu",
        "weights": recipe,
    }
    assert after.names == ("x", "c0+c1", "join")
    assert after["join"].attributes == {"axis": 1, "slices": {"0": [1, 0, 4], "1": [1, 4, 10]}}
    assert [(e.src, e.nbytes) for e in after.edges if e.dst == "join"] == [("c0+c1", 1024.0), ("c0+c1", 1536.0)]
    assert merged_operators(GraphDraft.from_graph(graph), ("c0", "c1")) == (op,)
    assert largest_error(graph, after) < 1e-9


def test_of_a_batch_the_parts_are_copied():
    """Two images: part c1 is 2 x 6 x 64 = 768 elements, so 3072 bytes, read and written."""
    graph = branches(POINT, SAME, batch=2)
    after, names = merge(graph, [("c0", "c1")])
    assert names == [("c0+c1", "c0", "c1")]
    assert after.names == ("x", "c0+c1", "c0", "c1", "join")
    part = after["c1"]
    assert (part.kind, part.flops, part.nbytes, part.kernels) == ("slice", 0.0, 6144.0, ())
    assert part.works == (Work("elementwise", "copy", reads=3072.0, writes=3072.0, rows=768),)
    assert part.attributes == {"axis": 1, "begin": 4, "end": 10}
    assert (part.input_shapes, part.output_shape) == (((2, 10, 8, 8),), (2, 6, 8, 8))
    assert [op.name for op in merged_operators(GraphDraft.from_graph(graph), ("c0", "c1"))] == ["c0+c1", "c0", "c1"]
    assert largest_error(graph, after) < 1e-9


def test_outputs_of_the_network_keep_their_names_in_views():
    graph = branches(POINT, SAME, joined=False)
    after, names = merge(graph, [("c1", "c0")])
    assert names == [("c1+c0", "c1", "c0")]
    assert after.outputs == ("c0", "c1")
    view = after["c0"]
    assert (view.kind, view.time, view.nbytes, view.kernels) == ("slice", 0.0, 0.0, ())
    assert view.attributes == {"axis": 1, "begin": 6, "end": 10}
    assert largest_error(graph, after) < 1e-9


MERGED = {
    "one kernel": (POINT, (5, 1, {}), (1, 1, {})),
    "1x3 and 3x1": ((4, (1, 3), {"padding": (0, 1)}), (4, (3, 1), {"padding": (1, 0)})),
    "1, 3 and 5": (POINT, SAME, (2, 5, {"padding": 2})),
    "strided": ((4, 1, {"stride": 2}), (4, 3, {"stride": 2, "padding": 1})),
    "no activation": ((4, 1, {"activation": None}), (4, 3, {"padding": 1, "activation": None})),
    "two even sizes": ((4, 2, {"stride": 2}), (4, 4, {"stride": 2, "padding": 1})),
    "even in odd": ((4, 2, {"stride": 2, "size": 9}), (4, 3, {"stride": 2, "size": 9})),
}


@pytest.mark.parametrize("case", MERGED.values(), ids=MERGED)
@pytest.mark.parametrize("batch", [1, 2])
def test_merged_convolutions_compute_the_same(case, batch):
    sizes = [options.get("size", 8) for *_, options in case]
    convs = [(out, kernel, {k: v for k, v in options.items() if k != "size"}) for out, kernel, options in case]
    graph = branches(*convs, batch=batch, size=sizes[0])
    names = [f"c{i}" for i in range(len(convs))]
    (key,) = {merge_key(GraphDraft.from_graph(graph), name) for name in names}
    assert key is not None
    for order in (names, names[::-1]):
        assert can_merge(GraphDraft.from_graph(graph), order)
        after, _ = merge(graph, [order])
        assert largest_error(graph, after) < 1e-9


REFUSED = {
    "kernels do not align": ((4, 2, {"stride": 2}), (4, 3, {"stride": 2, "padding": 1})),  # paste at 0, read at -1
    "kernels do not align ": ((4, 1, {"stride": 4}), (4, 3, {"stride": 4})),  # of 8 pixels 0 and 4, pasted 1 and 5
    "output size differs": (POINT, (4, 3, {})),
    "stride differs": ((4, 1, {"stride": 2}), (4, 1, {})),
    "activation differs": (POINT, (4, 1, {"activation": None})),
    "groups are not 1": ((4, 3, {"padding": 1, "groups": 2}), SAME),
}


@pytest.mark.parametrize(("reason", "convs"), REFUSED.items())
def test_what_cannot_be_merged(reason, convs):
    graph = branches(*convs, joined=False)
    reason, draft = reason.strip(), GraphDraft.from_graph(graph)
    assert (merge_key(draft, "c0") == merge_key(draft, "c1")) == reason.startswith("kernels")
    assert (merge_key(draft, "c0") is None) == ("groups" in reason)
    assert not can_merge(draft, ("c0", "c1"))
    assert not can_merge(draft, ("c1", "c0"))
    with pytest.raises(GraphError, match="cannot merge c0, c1: not convolutions of one tensor"):
        merge(graph, [("c0", "c1")])
    with pytest.raises(GraphError, match="cannot merge c1, c0"):
        merged_operators(draft, ("c1", "c0"))


def test_operators_of_other_tensors_and_kinds():
    image = "conv(input(1, 4, 8, 8), 4, 1)"
    graph = of_text(f"x = {image}; y = {image}; a = conv(x, 4, 1); b = conv(y, 4, 1); p = pool(x, 'max', 3, padding=1)")
    draft = GraphDraft.from_graph(graph)
    # of two tensors, a pool, the same twice, and inputs of the network, which are not known
    assert not any(can_merge(draft, names) for names in ("ab", "ap", "aa", "xy"))
    with pytest.raises(GraphError, match="has no operator 'z'"):
        can_merge(draft, ("a", "z"))
    assert merge_key(draft, "p") is None


@pytest.mark.parametrize(
    "given", [{"activation": ["relu"]}, {"kernel": [0, 0], "padding": [0, 0], "output_shape": (1, 4, 9, 9)}]
)
def test_attributes_that_make_no_sense(given):
    """An activation without a name, and a kernel of no pixels, by whose formula there are 9 by 9 outputs of 8 by 8."""
    graph = branches(POINT, POINT, joined=False)
    for name in ("c0", "c1"):
        graph = with_changes(graph, name, **given)
    assert merge_key(GraphDraft.from_graph(graph), "c0") is None
    assert all(not list(RULES[f"R{k}"].matches(GraphDraft.from_graph(graph))) for k in (2, 3, 4, 5, 6, 8))


def test_a_dilated_window_merges_with_its_like_only():
    """Kernels with holes cannot be padded: only those of one size are merged."""
    graph = branches(SAME, (4, 5, {"padding": 2}), SAME)
    for i, padding in enumerate((2, 4, 2)):
        graph = with_changes(graph, f"c{i}", dilation=[2, 2], padding=[padding, padding])
    assert not can_merge(GraphDraft.from_graph(graph), ("c0", "c1"))
    assert can_merge(GraphDraft.from_graph(graph), ("c0", "c2"))
    assert largest_error(graph, merge(graph, [("c0", "c2")])[0]) < 1e-9


def test_slices_of_one_tensor_are_the_same_only_if_they_are():
    """Readers of c0 and of c1 read other parts of the merged tensor; two readers of c0 read the same part."""
    text = "a = conv(x, 4, 1); b = conv(x, 4, 1); p = conv(a, 4, 1); q = conv(a, 4, 3, padding=1); r = conv(b, 4, 1)"
    graph = of_text(f"{text}; join = concat([p, q, r])", "unit")
    once, _ = merge(graph, [("a", "b")])
    assert can_merge(GraphDraft.from_graph(once), ("p", "q"))
    assert not can_merge(GraphDraft.from_graph(once), ("p", "r"))
    twice, names = merge(graph, [("a", "b"), ("p", "q")])
    assert names == [("a+b",), ("p+q",)]
    assert twice["p+q"].attributes["slices"] == {"0": [1, 0, 4]}
    assert largest_error(graph, once) < 1e-9
    assert largest_error(graph, twice) < 1e-9
    assert merge(once, [("p", "q")])[0] == twice


def test_a_merged_convolution_can_be_merged_again():
    """(c0 + c1) + c2 is all three at once, but for the grid: 4 x 64 outputs a block, rounded up each time."""
    graph = branches(POINT, (5, 1, {}), SAME)
    once, _ = merge(graph, [("c0", "c1")])
    twice, _ = merge(once, [("c0+c1", "c2")])
    at_once, _ = merge(graph, [("c0", "c1", "c2")])
    two, three = twice["c0+c1+c2"], at_once["c0+c1+c2"]
    assert replace(two, kernels=()) == replace(three, kernels=())
    assert twice["join"].attributes["slices"] == {"0": [1, 0, 4], "1": [1, 4, 9], "2": [1, 9, 15]}
    assert largest_error(graph, twice) < 1e-9


def test_times_scale_with_the_estimate():
    """Kernels of 1x1: twice the FLOP, in the time that both took, by what is saved on an A100's estimate."""
    graph = branches(POINT, POINT, channels=256, size=64)
    half = with_changes(graph, "c0", time=7.0)
    timed = with_changes(half, "c1", time=7.0)
    device = Cluster.preset("a100").devices[0]
    plain = merge(graph, [("c0", "c1")])[0]["c0+c1"]
    alone = roofline(graph["c0"], device)
    assert plain.time is None
    merged = merge(timed, [("c0", "c1")])[0]["c0+c1"]
    assert merged.time == pytest.approx(14.0 * roofline(plain, device) / (2 * alone), rel=1e-12)
    assert 3.5 < merged.time < 14.0
    assert merge(half, [("c0", "c1")])[0]["c0+c1"].time is None
