"""Programs of torch.export."""

import pytest

torch = pytest.importorskip("torch")
nn, F = torch.nn, torch.nn.functional

from torch_modules import Forward  # noqa: E402 - the rest is for those who have PyTorch

from simsched.base.errors import GraphError  # noqa: E402
from workloads.formats.torch_fx import from_exported, from_fx, from_module, traced  # noqa: E402

pytestmark = [
    pytest.mark.torch,
    # torch.export warns of changes in itself
    pytest.mark.filterwarnings("default::DeprecationWarning", "default::FutureWarning", "default::UserWarning"),
]


def convolutional():
    """What torch.export turns into other calls than torch.fx."""
    return Forward(
        lambda m, x: m.fc(m.up(F.max_pool2d(F.relu(m.norm(m.conv(x))), 3, 2, 1)).mean((2, 3))),
        conv=nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False),
        norm=nn.BatchNorm2d(8),
        up=nn.ConvTranspose2d(8, 4, 2, stride=2),
        fc=nn.Linear(4, 5),
    )


IMAGE = (1, 3, 16, 16)


@pytest.fixture(scope="module")
def encoder():
    """A layer of a transformer encoder: 2 sequences of 10 positions, 32 features, 4 heads."""
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    return torch.export.export(layer.eval(), (torch.empty(2, 10, 32),))


@pytest.fixture(scope="module")
def convolutions():
    return torch.export.export(convolutional().eval(), (torch.empty(IMAGE),))


def test_an_encoder_layer(encoder):
    """Units: 4 products, attention, 2 sums, 2 normalisations and the copy that the packed projection needs.

    20 positions: 2 FLOP for each of 32 x 96, 32 x 32, 32 x 64 and 64 x 32 weights.
    """
    graph = from_exported(encoder, granularity="unit", name="encoder")
    kinds = "linear copy attention linear add layer_norm linear linear add layer_norm"
    assert " ".join(op.kind for op in graph.operators) == kinds
    assert [op.flops / 40 for op in graph.operators if op.kind == "linear"] == [32 * 96, 32 * 32, 2048, 2048]
    assert [op.attributes.get("activation") for op in graph.operators if op.kind == "linear"][2] == "relu"
    assert graph["scaled_dot_product_attention"].flops == 8 * (4 * 10 * 10 * 8 + 5 * 100)
    assert graph.weight_nbytes.sum() == 4 * sum(p.numel() for p in encoder.parameters())
    assert graph.depth == 10
    # each of queries, keys and values is a third of what the copy writes
    assert [e.nbytes for e in graph.edges if e.dst == "scaled_dot_product_attention"] == [2560.0] * 3


def test_a_decomposed_program_does_the_same_products(encoder):
    """Products alone (softmax apart): attention is two stacks of products, and `addmm` has weights and bias."""
    graph = from_exported(encoder.run_decompositions())
    kinds = ("linear", "matmul")
    projections = 40 * (32 * 96 + 32 * 32 + 2048 + 2048)
    assert sum(op.flops for op in graph.operators if op.kind in kinds) == projections + 8 * 4 * 10 * 10 * 8
    assert {op.kind for op in graph.operators} >= {"softmax", "layer_norm", "view", "copy"}
    assert graph["addmm"].weight_nbytes == 4 * 33 * 32


def test_both_ways_to_trace_cost_the_same(convolutions):
    traced = from_module(convolutional(), torch.empty(IMAGE))
    for program in (convolutions, convolutions.run_decompositions()):
        exported = from_exported(program)
        by_kind = {op.kind: op for op in exported.operators}
        for op in traced.operators:
            other = by_kind[op.kind]
            for field in ("flops", "weight_nbytes", "attributes", "output_shape"):
                assert getattr(op, field) == getattr(other, field), (op.name, field)
            if op.kind not in ("batch_norm", "pool"):  # decomposed they return more: statistics, indices
                assert (op.nbytes, op.works) == (other.nbytes, other.works)


def test_inputs_and_output_count_and_parameters_do_not(convolutions):
    graph = from_exported(convolutions, include_io=True)
    assert [op.name for op in graph.operators if op.kind == "placeholder"] == ["x"]
    assert (graph.name, graph.names[-1]) == ("Forward", "output")
    assert from_exported(convolutions).names == graph.names[1:-1]


def test_what_torch_fx_cannot_trace_is_exported():
    """It looks at the size of its input. Names are those of ATen then, where torch.fx has those of the layers, and
    the layers themselves.
    """
    module = nn.Sequential(nn.Linear(8, 4)).train()
    assert traced(module, torch.empty(2, 8)).get_submodule("0") is module[0]
    assert module.training
    undecided = Forward(lambda m, x: m.linear(x) if x.shape[0] > 1 else x, linear=nn.Linear(8, 4))
    assert isinstance(traced(undecided, torch.empty(2, 8)), torch.export.ExportedProgram)
    graph = from_module(undecided, torch.empty(2, 8))
    assert (graph.names, graph.name) == (("linear",), "Forward")
    assert graph["linear"].flops == 2 * 2 * 8 * 4
    module = nn.LSTM(8, 16)
    assert from_module(module, torch.empty(5, 2, 8))["lstm"].attributes == {"steps": 5, "hidden": 16}
    assert module.training
    picky = Forward(lambda m, x: x + 1 if float(x.sum()) > 0 else x)
    with pytest.raises(GraphError, match=r"Forward: cannot be traced by torch.fx \(.*\) nor by torch.export \(.*\)"):
        from_module(picky, torch.ones(3))


def test_a_dynamic_size_needs_example_inputs():
    """A batch of 4 costs four times what a batch of 1 does; the inputs may be those of the export."""
    four, sizes = torch.empty(4, *IMAGE[1:]), {"x": {0: torch.export.Dim("batch", min=2)}}
    dynamic = torch.export.export(convolutional().eval(), (four,), dynamic_shapes=sizes)
    with pytest.raises(GraphError, match=r"input 'x' has no fixed size on axis 0 \(it is s\d+\); give example inputs"):
        from_exported(dynamic)
    fixed = from_exported(dynamic, four)
    one = from_module(convolutional(), torch.empty(IMAGE))
    assert (fixed["conv2d"].flops, fixed["conv2d"].input_shapes) == (4 * one["conv"].flops, ((4, 3, 16, 16),))
    with pytest.raises(GraphError, match="does not run on the example inputs"):
        from_exported(dynamic, torch.empty(4, 5))


def test_nested_inputs():
    class Sum(nn.Module):
        def forward(self, xs, y):
            return torch.cat(xs, 1) + y

    nested = ([torch.empty(4, 3), torch.empty(4, 5)], torch.empty(4, 8))
    assert [e.dst for e in from_module(Sum(), nested, include_io=True).edges] == ["cat", "add", "add", "output"]
    program = torch.export.export(Sum(), nested)
    graph = from_exported(program, nested, include_io=True)
    assert graph == from_exported(program, include_io=True)
    assert graph["cat"].input_shapes == ((4, 3), (4, 5))


def test_a_program_as_a_module(convolutions):
    """It refuses to change to inference, but is in it; its check of the inputs computes nothing."""
    for inputs in (None, torch.empty(IMAGE)):
        graph = from_fx(convolutions.module(), inputs)
        assert [name for name in graph.names if graph[name].works] == list(from_exported(convolutions).names)
