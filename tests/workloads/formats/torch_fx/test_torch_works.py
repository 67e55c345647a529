"""What calls of PyTorch compute and move, worked by hand."""

from math import prod

import pytest

torch = pytest.importorskip("torch")
nn, F = torch.nn, torch.nn.functional

from small import works  # noqa: E402 - the rest is for those who have PyTorch
from torch_modules import Forward  # noqa: E402

from simsched.base.errors import GraphError  # noqa: E402
from simsched.model import Cluster, default_cost  # noqa: E402
from simsched.model.graph import Work  # noqa: E402
from simsched.model.launches import kernels_on  # noqa: E402
from workloads.formats.torch_fx import from_exported, from_fx, from_module  # noqa: E402

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("default::DeprecationWarning", "default::FutureWarning", "default::UserWarning"),
]

H100 = Cluster.preset("h100").devices[0]


class Many(nn.Module):
    """A module of several inputs that calls a function on itself and on them."""

    def __init__(self, forward, **layers):
        super().__init__()
        self._forward = forward
        for name, layer in layers.items():
            setattr(self, name, layer)

    def forward(self, x, y, z):
        return self._forward(self, x, y, z)


def meta(*shape, dtype=torch.float32):
    return torch.empty(shape, dtype=dtype, device="meta")


def indices(*shape):
    return meta(*shape, dtype=torch.int64)


def last(forward, *inputs, **layers):
    """The last operator of a function of up to three tensors."""
    if len(inputs) == 1:
        return from_module(Forward(forward, **layers), inputs).operators[-1]
    module = Many(lambda m, x, y, z: forward(m, x, y, z), **layers)
    return from_module(module, (*inputs, *[meta(1)] * (3 - len(inputs)))).operators[-1]


def exported(forward, *inputs):
    """The last operator of a function as `torch.export` writes it."""
    module = Many(lambda m, x, y, z: forward(x, y, z))
    inputs = [torch.empty(x.shape, dtype=x.dtype) for x in inputs]
    return from_exported(torch.export.export(module, tuple(inputs))).operators


@pytest.mark.parametrize(("bags", "per_bag"), [(4, 5), (256, 5), (3, 1)])
def test_a_bag_reads_its_rows_and_not_the_table(bags, per_bag):
    """64 values of 4 bytes a row, an index of 8 bytes for each; of a bag's rows all but one are added."""
    rows = bags * per_bag
    table = nn.EmbeddingBag(1_000_000, 64, mode="sum", device="meta")
    op = last(lambda m, x: m.table(x), indices(bags, per_bag), table=table)
    assert works(op) == (
        Work(
            "gather",
            flops=(rows - bags) * 64,
            reads=rows * (256 + 8),
            writes=bags * 256,
            rows=rows,
            columns=64,
            window=per_bag,
        ),
    )
    assert (op.kind, op.nbytes, op.weight_nbytes) == ("embedding_bag", rows * 264 + bags * 256, 256e6)
    assert op.attributes == {"rows": 1_000_000, "features": 64}
    functional = last(lambda m, x, w, _: F.embedding_bag(x, w, mode="sum"), indices(bags, per_bag), meta(1_000_000, 64))
    assert works(functional) == works(op)


def test_a_table_is_read_by_rows():
    (work,) = works(last(lambda m, x: m.table(x), indices(2, 5), table=nn.Embedding(100, 8, device="meta")))
    assert work == Work("gather", reads=10 * (32 + 8), writes=320, rows=10, columns=8)


@pytest.mark.parametrize(
    ("forward", "inputs", "work"),
    [
        # 8 rows of 64 of a table of 100,000
        (
            lambda m, x, i, _: x.index_select(0, i),
            (meta(100_000, 64), indices(8)),
            Work("gather", reads=8 * 264, writes=8 * 256, rows=8, columns=64),
        ),
        (
            lambda m, x, i, _: x[i],
            (meta(100_000, 64), indices(8)),
            Work("gather", reads=8 * 264, writes=8 * 256, rows=8, columns=64),
        ),
        # 8 x 3 single values
        (
            lambda m, x, i, _: torch.take_along_dim(x, i, 0),
            (meta(100_000, 3), indices(8, 3)),
            Work("elementwise", "permute", reads=24 * 12, writes=24 * 4, rows=24),
        ),
        (
            lambda m, x, i, _: x.gather(0, i),
            (meta(100_000, 3), indices(8, 3)),
            Work("elementwise", "permute", reads=24 * 12, writes=24 * 4, rows=24),
        ),
        # 8 rows are written in place, and added to what is there
        (
            lambda m, x, i, y: x.index_copy_(0, i, y),
            (meta(100_000, 64), indices(8), meta(8, 64)),
            Work("gather", reads=8 * 264, writes=8 * 256, rows=8, columns=64),
        ),
        (
            lambda m, x, i, y: x.index_add_(0, i, y),
            (meta(100_000, 64), indices(8), meta(8, 64)),
            Work("gather", flops=512, reads=8 * (256 + 264), writes=8 * 256, rows=8, columns=64),
        ),
        (
            lambda m, x, i, y: x.index_put_((i,), y),
            (meta(100_000, 64), indices(8), meta(8, 64)),
            Work("gather", reads=8 * 264, writes=8 * 256, rows=8, columns=64),
        ),
        (
            lambda m, x, i, y: x.scatter_(0, i, y),
            (meta(100_000, 3), indices(8, 3), meta(8, 3)),
            Work("elementwise", "permute", reads=24 * 12, writes=24 * 4, rows=24),
        ),
    ],
)
def test_only_rows_that_are_named_move(forward, inputs, work):
    op = last(forward, *inputs)
    assert op.works == (work,)
    assert op.nbytes == work.reads + work.writes


def test_rows_written_to_a_copy():
    """What is no longer there afterwards is copied first: 25.6 MB both ways, then 8 rows."""
    whole, rows = last(lambda m, x, i, y: x.index_copy(0, i, y), meta(100_000, 64), indices(8), meta(8, 64)).works
    assert (whole.rule, whole.reads, whole.writes) == ("copy", 25.6e6, 25.6e6)
    assert (rows.rows, rows.writes) == (8, 2048)


def test_rows_assigned_in_an_exported_program():
    """`c[i] = v` of 8 rows of 64: 8 x (256 + 8) bytes read, 2048 written."""

    def assign(c, i, v):
        c[i] = v
        return c

    (op,) = exported(assign, meta(1000, 64), indices(8), meta(8, 64))
    assert op.nbytes == 8 * 264 + 2048


@pytest.mark.parametrize(("make", "gates"), [(nn.LSTM, 4), (nn.GRU, 3), (nn.RNN, 1)])
def test_a_recurrent_layer_is_a_chain_of_steps(make, gates):
    """Each step waits for the one before: 512 steps take nearly twice as long as 256, many times as long as 2."""
    layer = make(128, 64)
    ops = [last(lambda m, x: m.layer(x), meta(steps, 2, 128), layer=layer) for steps in (2, 256, 512)]
    few, half, all_steps = (default_cost(op, H100) for op in ops)
    assert all_steps > 1.5 * half > 5 * few
    (work,) = ops[-1].works
    assert (work.family, work.rows, work.batch, work.columns, work.inner, work.window) == (
        "recurrence",
        512,
        2,
        64,
        128,
        gates,
    )
    assert ops[-1].attributes == {"steps": 512, "hidden": 64}


def test_layers_and_directions():
    """Each layer is a work, both directions beside each other; the second reads what the first writes, 2 * 16 wide."""
    op = last(lambda m, x: m.layer(x), meta(2, 10, 8), layer=nn.LSTM(8, 16, 2, batch_first=True, bidirectional=True))
    sizes = [(work.rows, work.batch, work.columns, work.inner) for work in op.works]
    assert sizes == [(10, 2, 32, 8), (10, 2, 32, 32)]
    assert (op.works[0].writes, op.works[1].reads) == (2 * 10 * 32 * 4, 2 * 10 * 32 * 4)
    assert sum(work.weights for work in op.works) == op.weight_nbytes


def test_convolutions_in_channels_last():
    """As tensors lie in memory; an image of one channel lies both ways."""

    def rule(image, layer):
        return from_module(Forward(lambda m, x: m.layer(x), layer=layer), image).operators[-1].works[0].rule

    layer, image = nn.Conv2d(8, 4, 1), torch.empty(2, 8, 6, 6)
    assert rule(image, layer) == "plain"
    assert rule(image.to(memory_format=torch.channels_last), layer) == "channels_last"
    assert rule(image, nn.Conv2d(8, 4, 3, padding=1)) == "strided"
    assert rule(image, nn.Conv2d(8, 4, 3, padding=1).to(memory_format=torch.channels_last)) == "channels_last"
    assert rule(torch.empty(2, 1, 6, 6).to(memory_format=torch.channels_last), nn.Conv2d(1, 4, 1)) == "plain"


@pytest.mark.parametrize(
    ("forward", "family", "rule"),
    [
        (lambda m, x: x + x, "elementwise", "map"),
        (lambda m, x: x * 2.0, "elementwise", "map"),
        (lambda m, x: x * x.mean((2, 3), keepdim=True), "elementwise", "channels"),
        (lambda m, x: x + x.transpose(2, 3), "elementwise", "channels"),
        (lambda m, x: F.relu(x), "elementwise", "map"),
        (lambda m, x: F.silu(x), "elementwise", "activation"),
        (lambda m, x: x.exp(), "elementwise", "activation"),
        (lambda m, x: torch.where(x > 0, x, x), "elementwise", "map"),
        (lambda m, x: x.permute(0, 2, 3, 1).contiguous(), "elementwise", "permute"),
        (lambda m, x: x.contiguous(memory_format=torch.channels_last), "elementwise", "permute"),
        (lambda m, x: x.transpose(1, 2).contiguous(), "elementwise", "channels"),  # rows of 6 stay together
        (lambda m, x: F.interpolate(x, scale_factor=2.0), "elementwise", "upsample"),
        (lambda m, x: torch.cat([x, x], 1), "elementwise", "copy"),
        (lambda m, x: x.clone(), "elementwise", "copy"),
        (lambda m, x: F.pixel_shuffle(x, 2), "elementwise", "permute"),
        (lambda m, x: F.max_pool2d(x, 3), "elementwise", "pool"),
        (lambda m, x: F.adaptive_avg_pool2d(x, 1), "reduction", "sum"),
        (lambda m, x: x.sum(-1), "reduction", "sum"),
        (lambda m, x: x.argmax(-1), "reduction", "argmax"),
        (lambda m, x: x.cumsum(-1), "rows", "layer_norm"),
        (lambda m, x: x.softmax(-1), "rows", "softmax"),
    ],
)
def test_families(forward, family, rule):
    (work,) = last(forward, meta(2, 4, 6, 6)).works
    assert (work.family, work.rule) == (family, rule)


def test_sizes_of_reductions_and_norms():
    """2 x 4 channels of 36 pixels; rows of 6; half of them by a sum of all; 4 values for each of 4 channels."""
    pool = last(lambda m, x: F.adaptive_avg_pool2d(x, 1), meta(2, 4, 6, 6)).works[0]
    assert (pool.rows, pool.columns) == (8, 36)
    total = last(lambda m, x: x.sum(), meta(2, 4, 6, 6)).works[0]
    assert (total.rows, total.columns) == (1, 288)
    norm = last(lambda m, x: m.norm(x), meta(2, 4, 6, 6), norm=nn.BatchNorm2d(4)).works[0]
    assert (norm.family, norm.batch, norm.columns, norm.rows, norm.weights) == ("batch_norm", 2, 4, 36, 4 * 16)
    rms = last(lambda m, x: m.norm(x), meta(2, 4, 6), norm=nn.RMSNorm(6)).works[0]
    assert (rms.rule, rms.rows, rms.columns) == ("rms_norm", 8, 6)


def test_a_bias_is_added_by_a_kernel_of_its_own_unless_in_a_unit():
    module = nn.Sequential(nn.Conv2d(4, 8, 3), nn.Flatten(), nn.Linear(128, 10))
    for granularity, bias in (("operator", True), ("unit", False)):
        graph = from_module(module, meta(1, 4, 6, 6), granularity=granularity)
        assert [work.bias for op in graph.operators for work in op.works] == [bias, bias]


def test_launch_shapes_follow_the_device():
    """A graph has none; on a device each operator that computes has."""
    graph = from_module(nn.Sequential(nn.Linear(512, 1024), nn.ReLU()), meta(1, 512))
    assert all(op.kernels == () for op in graph.operators)
    assert kernels_on(graph, H100).has_shape.all()
    module, inputs = nn.ReLU(), torch.empty(3)
    reads = (
        lambda: from_module(module, inputs, device="h100"),
        lambda: from_fx(torch.fx.symbolic_trace(module), inputs, device="h100"),
        lambda: from_exported(torch.export.export(module, (inputs,)), device="h100"),
    )
    for read in reads:
        with pytest.raises(GraphError, match="no option 'device' any more: launch shapes follow the device"):
            read()


def test_a_linear_layer_of_scattered_rows_copies_them_and_adds_its_bias_apart():
    """10 x 2 rows of 32 features in the order of another axis: a copy, a product of 20 x 32 by 32 x 8, a sum of 160.

    As for a product that adds it itself, the bias costs no FLOP.
    """
    op = last(lambda m, x: m.layer(x.transpose(0, 1)), meta(10, 2, 32), layer=nn.Linear(32, 8, device="meta"))
    assert (op.kind, op.flops, op.weight_nbytes) == ("linear", 2 * 20 * 32 * 8, 4 * (32 * 8 + 8))
    assert op.nbytes == 4 * (2 * 640 + (640 + 32 * 8 + 160) + (160 + 8 + 160))
    dense = last(lambda m, x: m.layer(x), meta(2, 10, 32), layer=nn.Linear(32, 8, device="meta"))
    assert dense.nbytes == 4 * (640 + 32 * 8 + 8 + 160)


def test_the_copies_of_an_einsum_count():
    """6 products of 5 x 4 by 4 x 3, one factor of which has to be copied before: 2 x 120 values more."""
    op = last(lambda m, x, y, z: torch.einsum("abcd,adbe->abce", x, y), meta(2, 3, 5, 4), meta(2, 4, 3, 3))
    assert op.flops == 2 * 6 * 5 * 4 * 3
    product = 4 * (6 * 5 * 4 + 6 * 4 * 3 + 6 * 5 * 3)
    assert op.nbytes in (product, product + 2 * 4 * 6 * 4 * 3)


def test_the_greatest_elements_are_looked_for_among_all():
    """8 x 100 values are read; 5 a row are written, each with an index of 8 bytes."""
    op = from_module(Forward(lambda m, x: x.topk(5)), [meta(8, 100)])["topk"]
    assert op.nbytes == 4 * 800 + 40 * (4 + 8)


@pytest.mark.parametrize(("name", "shape"), [("scatter_reduce", (12, 4)), ("index_reduce", (12,))])
def test_rows_that_are_reduced_into_others(name, shape):
    """12 rows of 4 go into 3 rows, copied first: each of them is read and written once, since it is in the cache."""

    op = last(lambda m, x, y, z: getattr(x, name)(0, z, y, "amax"), meta(3, 4), meta(12, 4), indices(*shape))
    assert "unknown" not in op.attributes
    assert op.nbytes == 4 * (2 * 12 + 48 + 2 * 12) + 8 * prod(shape)
