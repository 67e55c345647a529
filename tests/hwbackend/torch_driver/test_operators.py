"""Operators of PyTorch compute what the interpreter of graphs computes in numpy."""

from dataclasses import replace

import numpy as np
import pytest
from shortened import nasnet_cell, operator

torch = pytest.importorskip("torch")

from rewriting.interpreter import Weights, evaluate  # noqa: E402 - the rest is for those who have PyTorch

import simsched as ss  # noqa: E402
import workloads  # noqa: E402
from hwbackend.torch.backend import TorchBackend  # noqa: E402
from hwbackend.torch.operators import Place, call_of  # noqa: E402
from hwbackend.torch.pieces import drawn_parameters, pieces  # noqa: E402
from hwbackend.torch.values import Values  # noqa: E402
from hwbackend.torch.weights import GraphWeights  # noqa: E402
from simsched.base.errors import BackendError  # noqa: E402
from simsched.model.graph import Edge, Kernel, Operator, OpGraph  # noqa: E402
from simsched.rewriting import merge  # noqa: E402
from workloads.models.network import Network  # noqa: E402

pytestmark = pytest.mark.torch

TOLERANCE = 1e-4
CPU = Place(torch, torch.device("cpu"))


def values(graph, parameters=drawn_parameters):
    """What each operator computes, one after the other, by name."""
    cluster = TorchBackend("cpu").cluster
    program = ss.schedule(graph, cluster, "sequential").lower(cluster)
    with torch.no_grad():
        found = Values(torch, program, [CPU], GraphWeights(graph, [CPU], parameters)).sequential()
    return dict(zip(graph.names, found, strict=True))


def largest_error(graph, original=None):
    """Largest difference from the interpreter's values, relative beyond 1."""
    weights = Weights(original or graph)

    def parameters(piece):
        own = {"of": piece.op} if piece.part is None else {"of": piece.op, "part": piece.part}
        return weights.make(piece.given.get("weights", own))

    wanted, got = evaluate(graph, weights), values(graph, parameters)
    assert wanted.keys() == got.keys()
    return max(
        np.abs(got[name].double().numpy() - wanted[name]).max() / max(1.0, np.abs(wanted[name]).max())
        for name in wanted
    )


@pytest.mark.parametrize("granularity", ["unit", "operator"])
@pytest.mark.parametrize("name", ["tiny_inception", "tiny_resnet"])
def test_tiny_networks(name, granularity):
    assert largest_error(workloads.load(name, granularity=granularity, image_size=16)) <= TOLERANCE


@pytest.mark.parametrize("granularity", ["unit", "operator"])
def test_a_layer_of_a_transformer(granularity):
    """Its input is read by several operators, beside what others wrote: made an operator, it is an edge."""
    graph = workloads.load("tiny_transformer", sequence_length=8, granularity=granularity)
    shape = graph.operator(0).input_shapes[0]
    source = operator("copy", [shape], shape, "tokens")
    n_edges = {op.name: sum(edge.dst == op.name for edge in graph.edges) for op in graph.operators}
    fed = [op.name for op in graph.operators if n_edges[op.name] < len(op.input_shapes)]
    assert len(fed) == 4
    edges = [Edge("tokens", name, 4.0 * np.prod(shape)) for name in fed]
    assert largest_error(OpGraph([source, *graph.operators], [*edges, *graph.edges])) <= TOLERANCE


def test_units_of_several_parts():
    assert largest_error(nasnet_cell()) <= TOLERANCE


@pytest.mark.parametrize("batch", [1, 2])
def test_merged_convolutions_and_what_is_cut_out_of_them(batch):
    """Of one image readers look at slices of the output, of two the parts are copied."""
    net = Network("net")
    x = net.conv("x", net.input(batch, 3, 8, 8), 4, 1)
    outs = [net.conv("c0", x, 4, 1), net.conv("c1", x, 6, 3, padding=1)]
    net.concat("join", outs)
    graph = net.graph()
    merged, _ = merge(graph, [("c0", "c1")])
    assert ("slices" in merged["join"].attributes) == (batch == 1)
    assert largest_error(merged, graph) <= TOLERANCE


@pytest.mark.parametrize(
    ("pool", "options"),
    [
        ("max", {"stride": 2, "padding": 1}),
        ("avg", {"stride": 1, "padding": 1}),
        ("max", {"stride": 2, "ceil_mode": True}),
        ("avg", {"stride": 2, "ceil_mode": True}),
        ("avg", {"stride": 2, "padding": 1, "ceil_mode": True}),
    ],
)
@pytest.mark.parametrize("size", [7, 8])
def test_pools(pool, options, size):
    """An average counts the whole window, with what of it is padding or beyond the image."""
    net = Network("net")
    net.pool("pool", net.conv("x", net.input(1, 3, size, size), 4, 1), pool, 3, **options)
    assert largest_error(net.graph()) <= TOLERANCE


def test_elementwise_and_rows():
    net = Network("net")
    x = net.linear("x", net.input(2, 6, 8), 8, activation="gelu")
    y = net.layer_norm("norm", x)
    z = net.softmax("soft", net.elementwise("mul", "mul", [net.elementwise("square", "square", [x]), y]))
    w = net.elementwise("sub", "sub", [z, net.activation("silu", y, "silu")])
    net.reduce("sum", net.add("add", [w, x, net.elementwise("scale", "mul", [z])]), (2, 6))
    net.elementwise("less", "sub", [net.elementwise("more", "add", [w])])
    assert largest_error(net.graph()) <= TOLERANCE


def test_what_the_interpreter_has_not():
    """A look-up of rows floor(|x| * 1024) modulo 10; a transposed convolution; attention; a tensor twice."""

    graph = OpGraph(
        [
            operator("copy", [(2, 3)], (2, 3), "copy"),
            operator("embedding", [(2, 3)], (2, 3, 4), "rows", rows=10, features=4),
            operator(
                "conv_transpose", [(1, 2, 4, 4)], (1, 3, 8, 8), "up", kernel=[2, 2], stride=[2, 2], padding=[0, 0]
            ),
            operator("attention", [(1, 5, 4)] * 3, (1, 5, 4), "attention"),
            operator("expand", [(2, 3)], (4, 3), "wide"),
        ],
        [Edge("copy", "rows", 24.0), Edge("copy", "wide", 24.0)],
    )
    found = values(graph)
    (piece,) = pieces(graph["rows"])
    table, _ = drawn_parameters(piece)
    index = np.floor(np.abs(found["copy"].double().numpy()) * 1024).astype(int) % 10
    assert np.allclose(found["rows"], table[index], atol=1e-5)
    assert found["up"].shape == (1, 3, 8, 8)
    assert found["attention"].shape == (1, 5, 4)
    assert torch.equal(found["wide"], found["copy"].repeat(2, 1))


def test_a_synthetic_operator_depends_on_all_that_it_reads():
    """0.25 + (a + b) / 4, the shorter input again and again; beyond 256 elements 0.25."""
    op = replace(operator("synth", (), (4,)), flops=2e6, nbytes=1e5)
    call = call_of(op, 16.0, CPU)
    a, b = torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.tensor([8.0, 0.0])
    assert call([a, b]).tolist() == [2.5, 0.75, 3.0, 1.25]
    assert torch.isnan(call([a, torch.tensor([np.nan])])).all()
    assert call([]).tolist() == [0.25] * 4
    wide = call_of(replace(op, output_shape=(300,)), 1200.0, CPU)([a])
    assert wide[[0, 255, 256]].tolist() == [0.75, 2.25, 0.25]


@pytest.mark.parametrize(("flops", "nbytes"), [(3e6, 0.0), (5e8, 1e6), (0.0, 4e6)])
def test_a_synthetic_operator_does_its_flop_and_moves_its_bytes(flops, nbytes, monkeypatch):
    """Within a row of its matrices (at most 131,072 FLOP); products move bytes too, the rest are copies."""
    done = {"flops": 0, "nbytes": 0}
    usual = torch.mm

    def counted(a, b):
        done["flops"] += 2 * a.shape[0] * a.shape[1] * b.shape[1]
        done["nbytes"] += 4 * (2 * a.numel() + b.numel())
        return usual(a, b)

    monkeypatch.setattr(torch, "mm", counted)
    usual_copy = torch.Tensor.copy_
    monkeypatch.setattr(
        torch.Tensor, "copy_", lambda x, y: (done.update(nbytes=done["nbytes"] + 8 * x.numel()), usual_copy(x, y))[1]
    )
    call_of(Operator("s", "synth", flops=flops, nbytes=nbytes, kernels=(Kernel(1),)), 0.0, CPU)([])
    assert abs(done["flops"] - flops) <= 131_072
    assert done["nbytes"] >= nbytes - 8 - 1024  # the rest is the output
    if not flops:
        assert done["nbytes"] <= nbytes


ODD = operator("wavelet", [(1, 4)], (1, 4), "odd")
RELU = replace(ODD, kind="relu")


@pytest.mark.parametrize(
    ("operators", "says"),
    [
        ([ODD], "'odd': the torch backend has no call for kind 'wavelet'"),
        (
            [operator("conv", [(1, 2, 4, 4)], (1, 2, 4, 4), "odd")],
            "'odd' of kind 'conv' cannot be computed by torch: KeyError: 'kernel'",
        ),
        ([replace(RELU, output_shape=None)], "'odd' of kind 'relu' has no output_shape"),
        ([replace(RELU, output_shape=(1, 5))], r"computes shape \(1, 4\), but its output_shape is \(1, 5\)"),
        ([RELU, replace(RELU, name="a"), replace(RELU, name="b")], "'odd' has 1 input_shapes, but 2 edges lead to it"),
    ],
)
def test_what_has_no_call_is_refused(operators, says):
    edges = [Edge(other.name, "odd", 16.0) for other in operators[1:]]
    with pytest.raises(BackendError, match=says):
        values(OpGraph(operators, edges))
