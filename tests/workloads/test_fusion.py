"""Single operators to schedule units."""

from dataclasses import replace
from itertools import pairwise

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small import edges

from simsched.base.errors import GraphError
from simsched.model.graph import Edge, Kernel, Operator, OpGraph, Work
from workloads.fusion import fuse, without_io
from workloads.models.network import Network


def chain(*operators):
    names = [op.name for op in operators]
    return OpGraph(operators, [Edge(a, b, 4.0) for a, b in pairwise(names)], "chain")


def op(name, kind, **more):
    if kind in ("view", "placeholder", "output"):
        return Operator(name, kind, time=0.0)
    return Operator(name, kind, **{"kernels": (Kernel(1),), "output_shape": (1, 8), "nbytes": 64.0} | more)


def built(granularity):
    """Everything that `Network` makes one operator at granularity "unit"."""
    net = Network("net", granularity=granularity)
    image = net.input(2, 3, 16, 16)
    a = net.conv("a", image, 8, 3, padding=1, norm=True)
    b = net.conv("b", a, 8, 3, padding=1, norm=True, activation=None)
    c = net.conv("c", a, 8, (1, 3), padding=(0, 1), groups=2, activation="sigmoid")
    d = net.add("d", [b, c], activation="relu")
    e = net.concat("e", [d, a])
    f = net.linear("f", net.global_pool("pool", e), 1, activation="gelu")
    net.linear("g", f, 5, bias=False, activation="tanh")
    return net.graph()


def test_units_are_those_of_a_network_built_by_units():
    units = fuse(built("operator"))
    assert units == built("unit")
    assert units["a"].attributes["activation"] == "relu"
    assert len(built("operator")) == len(units) + 2 + 1 + 1 + 1 + 1 + 1  # a and b, c, d, f, g


def test_bytes_of_a_unit():
    """Input 10 + weights 32 + output 32 = 74 bytes; bias (32) added, the sum's own 64 + 32 bytes forgotten: 106."""
    product = op("product", "matmul", nbytes=74.0, weight_nbytes=32.0, flops=16.0)
    bias = op("bias", "add", nbytes=96.0, weight_nbytes=32.0, flops=8.0)
    (unit,) = fuse(chain(product, bias, op("active", "gelu", flops=64.0))).operators
    assert (unit.name, unit.attributes) == ("product", {"activation": "gelu"})
    assert (unit.nbytes, unit.weight_nbytes, unit.flops, unit.kernels) == (106.0, 64.0, 16.0, (Kernel(1),))


def test_works_of_a_unit():
    """The product adds its own bias no more; its weights are those with the sum's 32 bytes, and all bytes 106."""
    works = (Work("product", flops=16.0, reads=10.0, weights=32.0, writes=32.0, bias=True),)
    product = op("product", "matmul", nbytes=74.0, weight_nbytes=32.0, flops=16.0, works=works, kernels=())
    bias = op("bias", "add", nbytes=96.0, weight_nbytes=32.0, flops=8.0)
    (unit,) = fuse(chain(product, bias, op("active", "gelu", flops=64.0))).operators
    assert unit.works == (Work("product", flops=16.0, reads=10.0, weights=64.0, writes=32.0, parameters=64.0),)
    assert (unit.nbytes, unit.weight_nbytes) == (106.0, 64.0)


@pytest.mark.parametrize(
    ("kind", "flops", "weights", "bias"),
    [
        ("conv", 2.0 * 8 * 27, 8 * 27, 8),
        ("conv", 2.0 * 8 * 27, 8 * 27 + 8, 0),
        ("conv_transpose", 1.0, 216, 8),
    ],
)
def test_a_normalisation_leaves_one_bias_per_channel(kind, flops, weights, bias):
    """Weights of 8 x 27, one output pixel: 8 values more if there was no bias; the norm's own 4 x 8 never count."""
    shape = (1, 8, 1, 1)
    attributes = {"bias": False} if kind == "conv_transpose" else {}
    first = op("c", kind, flops=flops, weight_nbytes=4.0 * weights, output_shape=shape, attributes=attributes)
    (unit,) = fuse(chain(first, op("n", "batch_norm", weight_nbytes=128.0, output_shape=shape))).operators
    assert (unit.weight_nbytes, unit.nbytes) == (4.0 * (weights + bias), first.nbytes + 4.0 * bias)
    assert unit.attributes == ({"bias": True} if attributes else {})


CONV, NORM = {"weight_nbytes": 96.0}, {"weight_nbytes": 128.0}
LINKS = {  # what may stand in a chain: kind, weights and so on; 8 channels of 4 bytes
    "conv": ("conv", CONV),
    "norm": ("batch_norm", NORM),
    "linear": ("linear", CONV | {"output_shape": (4, 8)}),
    "bias": ("add", {"weight_nbytes": 32.0, "output_shape": (4, 8)}),
    "sum": ("add", {"weight_nbytes": 32.0, "output_shape": (4, 8), "input_shapes": ((4, 8), (4, 8))}),
    "number": ("add", {"output_shape": (4, 8)}),
    "table": ("add", {"weight_nbytes": 128.0, "output_shape": (4, 8)}),  # a weight for each element
    "flatconv": ("conv", CONV | {"output_shape": (8,)}),
    "flatnorm": ("batch_norm", {"weight_nbytes": 4.0, "output_shape": (8,)}),
    "unknown": ("conv", CONV | {"output_shape": None}),
    "unknownbias": ("add", {"weight_nbytes": 4.0, "output_shape": None}),
}


@pytest.mark.parametrize(
    ("kinds", "units"),
    [
        ("conv relu relu", "conv0 relu2"),
        ("conv relu norm", "conv0 norm2"),
        ("conv norm relu", "conv0"),
        ("add relu", "add0"),
        ("mul sigmoid", "mul0"),
        ("pool relu", "pool0 relu1"),
        ("add norm", "add0 norm1"),
        ("matmul norm relu", "matmul0 norm1 relu2"),  # no weights to fold it into
        ("linear bias", "linear0"),
        ("linear sum", "linear0 sum1"),
        ("linear number", "linear0 number1"),
        ("linear table", "linear0 table1"),
        ("flatconv flatnorm relu", "flatconv0 flatnorm1 relu2"),  # without channels nothing but an activation
        ("flatconv relu", "flatconv0"),
        ("unknown unknownbias", "unknown0 unknownbias1"),
        ("unknown relu", "unknown0"),
    ],
)
def test_what_takes_in_what(kinds, units):
    links = [(f"{link}{i}", *LINKS.get(link, (link, {}))) for i, link in enumerate(kinds.split())]
    assert fuse(chain(*(op(name, kind, **more) for name, kind, more in links))).names == tuple(units.split())


@pytest.mark.parametrize(
    ("operators", "pairs", "units", "read"),
    [
        ("c:conv r:relu s:add", "cr rs cs", "c r s", "cr rs cs"),  # a tensor that is read twice
        ("c:conv s:mul r:relu", "cs cs sr", "c s", "cs cs"),  # by one operator, which takes its own
        ("x:placeholder c:conv r:relu o:output", "xc cr ro co", "c r", "cr"),  # one that is returned
        # each part is read from `a`; the size of `z` that was read, 0 bytes, is forgotten
        ("a:pool z:pool p:view q:view s:view b:concat", "ap aq zs=0 sq=0 pb=2 qb=2", "a z b", "ab=2 ab=2"),
        ("v:view a:pool", "va", "a", ""),  # a view of an input leaves no edge
        ("a:pool b:pool j:view c:pool", "aj bj jc", "a b j c", "aj bj jc"),  # one of two joins them
    ],
)
def test_what_is_left(operators, pairs, units, read):
    graph = OpGraph([op(*one.split(":")) for one in operators.split()], edges(pairs, nbytes=4.0))
    found = fuse(graph, io=False)
    assert (found.names, list(found.edges)) == (tuple(units.split()), edges(read, nbytes=4.0))
    assert found == without_io(fuse(graph))


def test_views_alone_are_nothing_to_run():
    with pytest.raises(GraphError, match="nothing but inputs, outputs and views"):
        fuse(chain(op("v", "view"), op("w", "view")))


def test_an_activation_behind_a_view_is_folded():
    """The view of 16 elements out of 4 x 4: its activation is the convolution's, of the view's shape."""
    conv = op("c", "conv", output_shape=(1, 1, 4, 4))
    (unit,) = fuse(chain(conv, op("v", "view"), op("r", "relu", output_shape=(1, 16)))).operators
    assert (unit.name, unit.output_shape, unit.nbytes) == ("c", (1, 16), conv.nbytes)


def test_times_add_up_where_all_have_one():
    conv, relu = op("c", "conv", time=3.0), op("r", "relu", time=1.0)
    assert fuse(chain(conv, relu))["c"].time == 4.0
    assert fuse(chain(conv, replace(relu, time=None)))["c"].time is None


ADD = {  # what folding looks at: x and y are tensors that are there
    "conv": lambda net, name, x, y: net.conv(name, x, 4, 1, activation=None),
    "norm": lambda net, name, x, y: net.batch_norm(name, x),
    "relu": lambda net, name, x, y: net.activation(name, x),
    "add": lambda net, name, x, y: net.add(name, [x, y]),
    "view": lambda net, name, x, y: net.view(name, x, x.shape),
    "bias": lambda net, name, x, y: net.add_operator(
        name, "add", [x], x.shape, Work("elementwise", weights=16.0, rows=64)
    ),
}


@st.composite
def networks(draw):
    """Networks of every kind that folding looks at, wired at random."""
    net = Network("drawn", granularity="operator")
    tensors = [net.input(1, 4, 4, 4)]
    for i, kind in enumerate(draw(st.lists(st.sampled_from(sorted(ADD)), min_size=1, max_size=12))):
        x, y = draw(st.sampled_from(tensors)), draw(st.sampled_from(tensors))
        tensors.append(ADD[kind](net, f"{kind}{i}", x, y))
    return net.graph()


@given(networks())
def test_fusion_keeps_what_there_is_to_compute(graph):
    """Reachability among what is left is as before, no FLOP of a product is lost, and a second pass changes nothing."""
    try:
        units = fuse(graph)
    except GraphError:
        assert all(op.kind == "view" for op in graph.operators)
        return
    assert all(op.kind != "view" for op in units.operators)
    convolutions = [sum(op.flops for op in each.operators if op.kind == "conv") for each in (graph, units)]
    assert convolutions[0] == convolutions[1]
    assert units.nbytes.sum() <= graph.nbytes.sum()
    before, after = reachable(graph), reachable(units)
    assert after == {name: before[name] & set(units.names) for name in units.names}
    assert fuse(units) == units


def reachable(graph):
    """Names that each operator leads to."""
    dag = nx.DiGraph((edge.src, edge.dst) for edge in graph.edges)
    dag.add_nodes_from(graph.names)
    return {name: nx.descendants(dag, name) for name in graph.names}
