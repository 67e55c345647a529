"""Modules of PyTorch, traced by torch.fx."""

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")
nn, F = torch.nn, torch.nn.functional

from small import edges  # noqa: E402 - the rest is for those who have PyTorch
from torch_modules import Forward, Inception, Residual  # noqa: E402

from simsched.base.errors import GraphError  # noqa: E402
from workloads.formats.torch_fx import from_exported, from_fx, from_module  # noqa: E402
from workloads.models.network import Network  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("default::DeprecationWarning")]


def imported(forward, *shape, granularity="operator", include_io=False, dtype=torch.float32, **layers):
    x = torch.empty(shape, dtype=dtype, device="meta")
    return from_module(Forward(forward, **layers), x, granularity=granularity, include_io=include_io)


@pytest.mark.parametrize("granularity", ["operator", "unit"])
def test_costs_and_works_are_those_of_our_networks(granularity):
    """The same as `Inception`, layer by layer."""
    net = Network("Inception", granularity=granularity)
    x = net.input(1, 8, 7, 7)
    one = net.conv("one", x, 16, 1, norm=True)
    three = net.conv("three", x, 16, 3, padding=1)
    pool = net.pool("pool", x, "max", 3, padding=1, ceil_mode=True)
    net.concat("cat", [one, three, pool])
    ours = net.graph()
    theirs = from_module(Inception(), torch.empty(1, 8, 7, 7), granularity=granularity)
    names = {"norm": "one.norm", "relu": "one.relu", "relu_1": "three.relu"}
    assert theirs.name == "Inception"
    renamed = [replace(op, name=names.get(op.name, op.name)) for op in theirs.operators]
    assert renamed == [replace(op, block=None) for op in ours.operators]
    assert [(names.get(e.src, e.src), names.get(e.dst, e.dst), e.nbytes) for e in theirs.edges] == [
        (e.src, e.dst, e.nbytes) for e in ours.edges
    ]


def test_vertices_of_torch_fx():
    """Placeholder, 8 calls and output; the sum reads the input too, 1 x 8 x 4 x 4 values of 4 bytes."""
    graph = from_module(Residual(), torch.empty(1, 8, 4, 4), include_io=True)
    assert graph.names == ("x", "conv", "norm", "add", "relu", "pool", "flatten", "drop", "fc", "output")
    kinds = "placeholder conv batch_norm add relu pool flatten dropout linear output"
    assert " ".join(op.kind for op in graph.operators) == kinds
    assert [(e.src, e.nbytes) for e in graph.edges if e.dst == "add"] == [("norm", 512.0), ("x", 512.0)]
    without_works = {op.name: op.time for op in graph.operators if not op.works}
    assert without_works == dict.fromkeys(("x", "flatten", "drop", "output"), 0.0)
    assert from_module(Residual(), torch.empty(1, 8, 4, 4)).names == graph.names[1:-1]


def test_the_module_stays_as_it_was():
    """In training, with one layer in inference; statistics and gradients untouched."""
    module = Residual()
    module.norm.eval()
    before = {key: value.clone() for key, value in module.state_dict().items()}
    assert "drop" in from_module(module, torch.empty(2, 8, 4, 4)).names
    assert (module.training, module.norm.training, module.drop.training) == (True, False, True)
    assert all(torch.equal(value, before[key]) for key, value in module.state_dict().items())


def test_a_module_that_counts_its_calls_counts_none():
    layer = nn.BatchNorm1d(3)  # keeps a buffer of statistics, and one that counts batches
    layer.register_buffer("calls", torch.zeros(3))

    def forward(m, x):
        m.layer.calls.add_(1.0)
        return x + m.layer.calls

    imported(forward, 2, 3, layer=layer)
    assert layer.calls.tolist() == [0.0, 0.0, 0.0]


def test_nothing_is_computed():
    """A layer of 4 TB of weights on a tensor of 4 TB: only sizes are looked at."""
    with torch.device("meta"):
        module = nn.Linear(10**6, 10**6)
    (op,) = from_module(module, torch.empty(10**6, 10**6, device="meta")).operators
    assert (op.flops, op.weight_nbytes) == (2e18, 4e12 + 4e6)


def test_a_tensor_read_twice_is_one_edge():
    graph = imported(lambda m, x: (y := x.exp()) * y, 2, 3)
    assert (list(graph.edges), graph["mul"].nbytes) == (edges("exp-mul=24"), 48.0)


def test_parts_of_a_split():
    """Parts of 2 x 4 and 2 x 2 values; the sum reads 16 bytes of the second, the product both."""

    def forward(m, x):
        a, b = torch.split(x.exp(), [4, 2], 1)
        return a.sum(1), torch.cat([b, a], 1)

    graph = imported(forward, 2, 6)
    assert list(graph.edges) == edges(
        "exp-split=48 split-getitem=32 split-getitem_1=16 getitem-sum_1=32 getitem_1-cat=16 getitem-cat=32"
    )
    assert [graph[name].time for name in ("split", "getitem", "getitem_1")] == [0.0] * 3
    units = imported(forward, 2, 6, granularity="unit")
    assert list(units.edges) == edges("exp-sum_1=32 exp-cat=16 exp-cat=32")


def test_sizes_are_no_tensors():
    """size() and what is computed of it are no operators; where torch.fx's nodes are asked for they take no time."""
    whole, graph, units = (
        imported(lambda m, x: x.exp().view(x.size(0) * 2, -1).neg(), 4, 6, granularity=granularity, include_io=io)
        for granularity, io in (("operator", True), ("operator", False), ("unit", False))
    )
    assert whole.names == ("x", "exp", "size", "mul", "view", "neg", "output")
    assert (whole["mul"].kind, whole["mul"].time) == ("size", 0.0)
    assert graph.names == ("exp", "view", "neg")
    assert list(graph.edges) == edges("exp-view=96 view-neg=96")
    assert list(units.edges) == edges("exp-neg=96")


@pytest.mark.parametrize(
    ("forward", "shape", "facts"),
    [
        # reshaping a transposed tensor moves it, 24 values read and written; a slice of it does not
        (lambda x: x.transpose(0, 1).reshape(24), (4, 6), "transpose:transpose:fp32:0 reshape:copy:fp32:192"),
        (lambda x: x.reshape(24).exp(), (4, 6), "reshape:reshape:fp32:0 exp:exp:fp32:192"),
        # an expanded tensor is as large as in memory: a row of 3 values, added to 5 x 3, 12 + 60 bytes read, 60 written
        (
            lambda x: x.exp() + x[:1].exp().expand(5, 3),
            (5, 3),
            "exp:exp:fp32:120 getitem:getitem:fp32:0 exp_1:exp:fp32:24 expand:expand:fp32:0 add:add:fp32:132",
        ),
        # a cast of 6 values from 4 to 2 bytes moves 36; then 2 bytes each; one to the format that it has, none
        (lambda x: x.half().exp(), (6,), "half:half:fp16:36 exp:exp:fp16:24"),
        (lambda x: x.float().exp(), (3,), "float_1:view:fp32:0 exp:exp:fp32:24"),
    ],
)
def test_what_is_moved(forward, shape, facts):
    """Of each operator: name, kind, format and bytes."""
    graph = imported(lambda m, x: forward(x), *shape)
    assert facts == " ".join(f"{op.name}:{op.kind}:{op.dtype}:{op.nbytes:g}" for op in graph.operators)


def test_a_table():
    """10 rows of 8 values read and written, and indices of 8 bytes."""
    op = imported(lambda m, x: m.table(x), 2, 5, dtype=torch.int64, table=nn.Embedding(100, 8))["table"]
    assert (op.nbytes, op.dtype) == (2 * 2 * 5 * 8 * 4 + 2 * 5 * 8, "fp32")


def test_inputs_that_are_parameters_are_weights():
    """As in graphs of dynamo: 2 rows by 8 inputs and 4 outputs; the weights' 4 x 8 floats are those of the operator."""
    graph_module = torch.fx.symbolic_trace(lambda x, w: F.linear(x, w))
    inputs = torch.empty(2, 8), torch.empty(4, 8)
    read = from_fx(graph_module, inputs, parameters=[False, True], include_io=True)
    assert read.names == ("x", "linear", "output")
    assert (read["linear"].kind, read["linear"].weight_nbytes) == ("linear", 4 * 8 * 4)
    given = from_fx(graph_module, inputs, include_io=True)
    assert (given.names, given["linear"].weight_nbytes) == (("x", "w", "linear", "output"), 0)


def test_weights_read_by_functions():
    """A matrix of 8 x 16 and a bias used as they are, the matrix also transposed: weights, not operators."""
    graph = imported(
        lambda m, x: (F.linear(x, m.layer.weight, m.layer.bias), x @ m.layer.weight.t()), 4, 8, layer=nn.Linear(8, 16)
    )
    assert graph.names == ("linear", "matmul")
    for op, bias in zip(graph.operators, (16, 0), strict=True):
        assert (op.kind, op.flops, op.weight_nbytes) == ("linear", 2 * 4 * 8 * 16, 4 * (128 + bias))
        assert op.nbytes == 4 * (128 + bias + 32 + 64)
        assert op.attributes == {"in_features": 8, "out_features": 16, "bias": bool(bias)}


def test_arguments_by_name_in_any_order():
    def forward(m, x):
        return F.conv2d(bias=m.layer.bias, padding=1, weight=m.layer.weight, input=x)

    op = imported(forward, 1, 3, 6, 6, layer=nn.Conv2d(3, 8, 3))["conv2d"]
    assert (op.flops, op.attributes["padding"], op.input_shapes) == (2 * 8 * 36 * 27, [1, 1], ((1, 3, 6, 6),))


@pytest.mark.parametrize(
    ("layer", "shape", "kind", "macs"),
    [
        (nn.Conv1d(4, 8, 3, stride=2), (2, 4, 9), "conv", 2 * 8 * 4 * 4 * 3),
        (nn.Conv2d(4, 8, 3, groups=4, dilation=2), (1, 4, 9, 9), "conv", 8 * 25 * 9),
        (nn.Conv2d(4, 8, 3), (4, 9, 9), "conv", 8 * 49 * 36),  # no batch
        (nn.ConvTranspose2d(4, 8, 2, stride=2), (1, 4, 5, 5), "conv_transpose", 4 * 25 * 8 * 4),
        (nn.Linear(4, 8), (2, 3, 4), "linear", 6 * 32),
        (nn.LSTM(8, 16), (10, 2, 8), "lstm", 20 * 4 * 16 * 24),
        (nn.LSTM(8, 16, 2, batch_first=True, bidirectional=True), (2, 10, 8), "lstm", 20 * 128 * (24 + 48)),
        (nn.GRU(8, 16), (10, 8), "gru", 10 * 3 * 16 * 24),
    ],
)
def test_products(layer, shape, kind, macs):
    """Multiply-adds: outputs times window and channels; of a transposed convolution, inputs times both.

    An LSTM of 8 features and 16 hidden has 4 gates of 16 x (8 + 16) weights for each of 10 steps x 2 sequences;
    the second of two layers in both directions reads 32.
    """
    op = imported(lambda m, x: m.layer(x), *shape, layer=layer)["layer"]
    assert (op.kind, op.flops / 2, op.intensity) == (kind, macs, "compute")
    assert sum(work.flops for work in op.works) == op.flops
    assert op.weight_nbytes == 4 * sum(p.numel() for p in layer.parameters())


def test_products_of_tensors():
    """Stacks of 6 products of 4 x 5 by 5 x 7; attention of 6 heads, 4 queries and keys of 5 features.

    Scores and their sums are 2 x 4 x 4 x 5 multiply-adds a head, and a softmax 5 FLOP for each of 4 x 4 scores.
    """
    graph = imported(lambda m, x: (x @ x.transpose(2, 3).exp(), torch.einsum("abij,abkj->abik", x, x)), 2, 3, 4, 5)
    assert graph["matmul"].flops == graph["einsum"].flops == 2 * 6 * 4 * 4 * 5
    for name in ("matmul", "einsum"):
        (work,) = graph[name].works
        assert (work.batch, work.rows, work.inner, work.columns) == (6, 4, 5, 4)
    attention = imported(lambda m, x: F.scaled_dot_product_attention(x, x, x.exp()), 2, 3, 4, 5)
    assert attention["scaled_dot_product_attention"].flops == 6 * (4 * 4 * 4 * 5 + 5 * 16)


def test_attention_of_one_layer():
    """10 queries and keys of 32 features, 2 sequences: 4 projections of 32 x 32, and 4 heads of 8 features."""
    layer = nn.MultiheadAttention(32, 4, batch_first=True)
    op = imported(lambda m, x: m.layer(x, x, x)[0], 2, 10, 32, layer=layer)["layer"]
    assert op.flops == 2 * 20 * 4 * 32 * 32 + 2 * 4 * (4 * 10 * 10 * 8 + 5 * 100)
    product, inner, output = op.works  # of queries, keys and values at once
    assert (product.rows, product.inner, product.columns, product.bias) == (20, 32, 96, True)
    assert (inner.family, inner.batch, inner.rows, inner.columns, inner.inner) == ("attention", 8, 10, 10, 8)
    assert (product.writes, inner.reads, inner.writes, output.reads) == (4 * 1920, 4 * 1920, 4 * 640, 4 * 640)
    between = 2 * (1920 + 640)
    assert op.nbytes == 4 * (4 * 32 * 33 + 2 * 640 + 200 + between)


def test_rows():
    """2 rows, then 8, in a group norm 2 images x 2 groups; FLOP per element 8, 5, 8."""
    graph = imported(lambda m, x: m.g(m.n(x).softmax(-1)), 2, 4, 3, n=nn.LayerNorm((4, 3)), g=nn.GroupNorm(2, 4))
    found = [(op.kind, op.works[0].rows, op.flops) for op in graph.operators]
    assert found == [("layer_norm", 2, 192.0), ("softmax", 8, 120.0), ("group_norm", 4, 192.0)]


@pytest.mark.parametrize(
    ("function", "kind", "kernel", "stride", "padding", "flops"),
    [
        (lambda x: F.max_pool2d(x, 2), "max", [2, 2], [2, 2], [0, 0], 64),
        (lambda x: F.avg_pool2d(x, 3, 1, 1), "avg", [3, 3], [1, 1], [1, 1], 576),
        (lambda x: F.adaptive_avg_pool2d(x, 1), "global_avg", [8, 8], [1, 1], [0, 0], 64),
        (lambda x: F.adaptive_max_pool2d(x, (4, 2)), "max", [2, 4], [2, 4], [0, 0], 64),
    ],
)
def test_pools(function, kind, kernel, stride, padding, flops):
    """Of 8 x 8 values; a window's FLOP for each output: 16 x 4, 64 x 9, 1 x 64, 8 x 8."""
    (op,) = imported(lambda m, x: function(x), 1, 1, 8, 8).operators
    assert (op.kind, op.flops) == ("pool", flops)
    assert op.attributes == {"pool": kind, "kernel": kernel, "stride": stride, "padding": padding}


def test_reductions_fills_and_what_moves():
    def forward(m, x):
        total = x.mean((2, 3)).cumsum(1)
        return total + torch.zeros(3), F.interpolate(x, scale_factor=2.0), F.pad(x, (1, 1)), x[torch.tensor([0, 0])]

    graph = imported(forward, 2, 3, 4, 4)
    assert {
        "mean": ("reduce", 96.0, 4 * (96 + 6)),
        "cumsum": ("reduce", 6.0, 4 * 12),
        "pad": ("pad", 0.0, 4 * (96 + 144)),
        "interpolate": ("interpolate", 0.0, 4 * (96 + 384)),
        "getitem": ("index", 0.0, 2 * 4 * 96 + 2 * 8),
    }.items() <= {op.name: (op.kind, op.flops, op.nbytes) for op in graph.operators}.items()


def test_an_unknown_operation_counts_its_bytes(caplog):
    unknown = imported(lambda m, x: torch.erfinv(torch.erfinv(x)).abs(), 4, 4)["erfinv"]
    assert (unknown.kind, unknown.flops, unknown.nbytes, len(unknown.works)) == ("erfinv", 0.0, 64 + 64, 1)
    assert [record.getMessage() for record in caplog.records] == [
        "Forward: 2 operators of unknown kinds count their bytes and no FLOP, 66.7 % of all bytes: erfinv (2)"
    ]


def test_a_graph_module_that_knows_its_shapes():
    """As ShapeProp leaves it; without shapes, example inputs are asked for, and its nodes are left as they are."""
    from torch.fx.passes.shape_prop import ShapeProp

    traced = torch.fx.symbolic_trace(Residual().eval())
    with pytest.raises(GraphError, match="node 'x' has no shape; give example inputs"):
        from_fx(traced)
    expected = from_fx(traced, torch.empty(1, 8, 4, 4))
    assert not any("val" in node.meta for node in traced.graph.nodes)
    ShapeProp(traced).propagate(torch.zeros(1, 8, 4, 4))
    assert from_fx(traced) == expected == from_fx(traced, torch.empty(1, 8, 4, 4, dtype=torch.float32))
    assert from_fx(traced, name="mine").name == "mine"


IMAGE = torch.empty(1, 8, 4, 4)


@pytest.mark.parametrize(
    ("read", "says"),
    [
        (lambda: from_module(Residual(), IMAGE, granularity="layer"), "must be 'unit' or 'operator', not 'layer'"),
        (lambda: from_module("resnet", IMAGE), "a torch.nn.Module is needed, not str"),
        (lambda: from_fx(Residual()), "a torch.fx.GraphModule is needed, not Residual"),
        (lambda: from_exported(Residual()), "a torch.export.ExportedProgram is needed, not Residual"),
        (
            lambda: from_module(Residual(), torch.empty(1, 3, 4, 4)),
            "Residual: does not run on the example inputs, at 'conv': .*channels",
        ),
        (lambda: from_module(Residual(), ()), "does not run on the example inputs, at 'x'"),
        (lambda: from_module(Residual(), (IMAGE,) * 3), "Residual: 2 example inputs more than it takes"),
        (lambda: from_module(Residual(), {"x": IMAGE}), "not in a dict"),
        (lambda: from_module(Forward(lambda m, x: 1 / 0), torch.empty(1)), "^Forward: .*division by zero"),
        *(
            (lambda inputs=inputs: from_module(nn.Linear(3, 4), inputs), r"^Linear: .* inputs, at '\w+': [^\n]{1,200}$")
            for inputs in ("text", None, 7, [None], [[1, 2]], object(), torch.empty(2, 5), torch.empty(()))
        ),
    ],
)
def test_what_is_wrong_is_said_and_nothing_printed(read, says, capfd):
    with pytest.raises(GraphError, match=says):
        read()
    assert capfd.readouterr() == ("", "")
