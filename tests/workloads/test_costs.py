"""The rules of what operators compute and move, worked by hand."""

from math import prod

import pytest

import workloads
from simsched.base.errors import GraphError
from simsched.model import Cluster
from simsched.model.graph import Work
from simsched.model.launches import kernels_on
from workloads import names
from workloads.costs import Costs, conv_layout, with_bytes
from workloads.models.network import Network

COSTS = Costs()


@pytest.mark.parametrize(
    ("work", "expected"),
    [
        # 2 images of 100 pixels, 48 channels of each of 2 groups of 32 inputs times 9; 32 * 9 weights an output, a bias
        (
            COSTS.conv((2, 96, 10, 10), (2, 64, 10, 10), (3, 3), groups=2, adds_bias=True),
            Work(
                "convolution",
                "strided",
                2 * 2 * 96 * 100 * 32 * 9,
                weights=4 * 96 * (32 * 9 + 1),
                batch=2,
                rows=200,
                columns=48,
                inner=288,
                window=9,
                elements=12800,
                images=2,
                bias=True,
                tf32=True,
            ),
        ),
        (
            COSTS.conv((1, 96, 35, 35), (1, 96, 35, 35), (1, 1), groups=96, bias=False, layout="plain"),
            Work(
                "convolution",
                "plain",
                2 * 96 * 1225,
                weights=4 * 96,
                batch=96,
                rows=1225,
                elements=96 * 1225,
                tf32=True,
            ),
        ),
        # one pixel, as in squeeze and excitation: its channels lie one after the other
        (
            COSTS.conv((1, 8, 1, 1), (1, 4, 1, 1), (1, 1), bias=False, layout="plain"),
            Work("convolution", "channels_last", 64, weights=128, columns=8, inner=4, elements=4, tf32=True),
        ),
        # of 4 channels of 25 pixels each goes through 8 * 2 * 2 weights; an output pixel has one tap of the four
        (
            COSTS.conv_transpose((1, 8, 10, 10), (1, 4, 5, 5), (4, 8, 2, 2)),
            Work(
                "convolution",
                "strided",
                2 * 4 * 25 * 8 * 4,
                weights=4 * (128 + 8),
                rows=100,
                columns=8,
                inner=4,
                elements=100,
                tf32=True,
            ),
        ),
        # 3 x 3 taps at a stride of 2: of 4 x 4 pixels 8 x 8, 2.25 taps each
        (
            COSTS.conv_transpose((1, 8, 8, 8), (1, 4, 4, 4), (4, 8, 3, 3), bias=False),
            Work(
                "convolution",
                "strided",
                2 * 4 * 16 * 8 * 9,
                weights=4 * 288,
                rows=64,
                columns=8,
                inner=12,
                window=3,
                elements=64,
                tf32=True,
            ),
        ),
        (
            Costs("fp16").linear(100, 50, 200, adds_bias=True),
            Work("product", flops=2 * 100 * 50 * 200, weights=2 * 51 * 200, rows=100, columns=200, inner=50, bias=True),
        ),
        (
            COSTS.matmul(3, 100, 50, 200),
            Work("product", flops=6 * 100 * 50 * 200, batch=3, rows=100, columns=200, inner=50),
        ),
        (COSTS.pool((1, 8, 4, 4), (3, 3)), Work("elementwise", "pool", 128 * 9, rows=128, window=9)),
        (COSTS.global_pool((2, 8, 1, 1), (7, 7)), Work("reduction", "sum", 16 * 49, rows=16, columns=49)),
        (COSTS.activation("gelu", (5, 8)), Work("elementwise", "activation", 320, rows=40)),
        (COSTS.activation("relu", (5, 8)), Work("elementwise", "map", 40, rows=40)),
        (COSTS.copy((5, 8)), Work("elementwise", "copy", reads=160, writes=160, rows=40)),
        (COSTS.batch_norm((2, 8, 3, 3)), Work("batch_norm", flops=288, weights=128, batch=2, rows=9, columns=8)),
        (COSTS.batch_norm((2, 8)), Work("batch_norm", flops=32, weights=128, batch=2, columns=8)),
        (
            COSTS.rows("layer_norm", 10, 768, n_weights=1536),
            Work("rows", "layer_norm", 10 * 768 * 8, weights=6144, rows=10, columns=768),
        ),
        (COSTS.rows("log_softmax", 10, 768), Work("rows", "softmax", 10 * 768 * 6, rows=10, columns=768)),
        # 10 rows of 8, 5 for each of 2 bags: 4 additions of 8 for each
        (
            COSTS.gather(10, 8, indices=80.0, window=5),
            Work("gather", flops=64, reads=320 + 80, writes=64, rows=10, columns=8, window=5),
        ),
        # 6 heads, 4 queries on 7 keys of 5 features: two products of 2 * 4 * 7 * 5 FLOP and 5 for each score
        (COSTS.attention(6, 4, 7, 5), Work("attention", flops=6 * 28 * 25, batch=6, rows=4, columns=7, inner=5)),
        # 10 steps of 2 sequences, both ways: 4 gates of 16 units, of 8 inputs and 16 states each
        (
            COSTS.recurrence("lstm", 10, 2, 8, 16, directions=2, bias=2),
            Work(
                "recurrence",
                "lstm",
                2 * 20 * 2 * 64 * 24,
                weights=4 * 2 * 64 * 26,
                batch=2,
                rows=10,
                columns=32,
                inner=8,
                window=4,
            ),
        ),
    ],
)
def test_work(work, expected):
    assert work == expected


@pytest.mark.parametrize(
    ("stride", "padding", "dilation", "layout"),
    [
        (1, 0, 1, "plain"),
        ((1, 1), [0, 0], (1, 1), "plain"),
        (1, "valid", 1, "plain"),
        (2, 0, 1, "strided"),
        ((1, 2), 0, 1, "strided"),
        (1, (0, 1), 1, "strided"),
        (1, "same", 1, "strided"),
        (1, 0, 2, "strided"),
    ],
)
def test_layout_of_convolutions(stride, padding, dilation, layout):
    assert conv_layout(stride, padding, dilation) == layout


def test_bytes_of_several_works():
    """The first reads, the last writes; of 30 bytes of parameters a third is the first's, as the works say."""
    first, last = Work("product", weights=4.0, writes=8.0), Work("product", reads=8.0, weights=8.0)
    assert with_bytes([first, last], 100.0, 30.0, 200.0) == (
        Work("product", reads=100.0, weights=10.0, writes=8.0),
        Work("product", reads=8.0, weights=20.0, writes=200.0),
    )
    assert with_bytes([Work("rows")], 1.0, 2.0, 3.0) == (Work("rows", reads=1.0, weights=2.0, writes=3.0),)
    assert with_bytes([], 1.0, 2.0, 3.0) == ()


NETWORKS = [name for name in names() if not name.startswith(("random:", "llm"))]


@pytest.mark.parametrize(
    ("name", "options"),
    [*((name, {"granularity": size}) for name in NETWORKS for size in ("unit", "operator")), ("llm", {})],
)
def test_operators_are_the_sums_of_their_works(name, options):
    """What launches nothing has no work, no FLOP, no bytes and a time of 0; no graph has kernels."""
    for op in workloads.load(name, **options).operators:
        assert op.kernels == ()
        assert op.flops == pytest.approx(sum(work.flops for work in op.works), rel=1e-9)
        assert op.nbytes == pytest.approx(sum(w.reads + w.weights + w.writes for w in op.works), rel=1e-9)
        assert (op.time == 0.0) == (not op.works)
        assert all(prod((work.batch, work.rows, work.columns, work.inner)) >= 1 for work in op.works)


def test_a_product_with_a_bias_of_its_own():
    """A single convolution adds its bias by itself; a unit, and one whose normalisation follows, does not."""
    for granularity, expected in (("unit", [False, False, False]), ("operator", [True, False, True])):
        net = Network("net", granularity=granularity)
        x = net.conv("plain", net.input(1, 4, 8, 8), 8, 1, activation=None)
        x = net.conv("folded", x, 8, 1, activation=None, norm=True)
        net.linear("last", net.view("flat", x, (1, 512)), 10)
        works = [work for op in net.graph().operators for work in op.works if work.family != "batch_norm"]
        assert [work.bias for work in works] == expected


@pytest.mark.parametrize(
    "name", ["inception_v3", "randwire", "nasnet_mobile", "resnext50", "densenet121", "tiny_resnet", "bert_base"]
)
def test_every_device_has_kernels_for_every_work(name):
    """One launch for each work at least, in the order of the operators, whose FLOP are those of the graph."""
    graph = workloads.load(name)
    for gpu in ("k80", "v100", "a100", "h100"):
        launches = kernels_on(graph, Cluster.preset(gpu).devices[0])
        for i, op in enumerate(graph.operators):
            rows = slice(launches.ptr[i], launches.ptr[i + 1])
            assert (launches.blocks[rows] > 0).all() == bool(op.works)
            assert launches.ptr[i + 1] - launches.ptr[i] >= max(1, len(op.works))


def test_a_grid_that_no_device_has_is_refused_where_kernels_are_chosen():
    graph = workloads.load("inception_v3", batch=3_000_000)
    with pytest.raises(GraphError, match=r"operator 'stem\.\w+': .* blocks of a kernel, and a grid has at most"):
        kernels_on(graph, Cluster.preset("a100").devices[0])


def test_works_know_the_parameters_that_the_model_reads():
    """4 x 8 weights of a unit and its 8 biases, 8 x 10 and 10; of the table some rows, which are no parameters."""
    net = Network("net")
    x = net.conv("point", net.input(1, 4, 8, 8), 8, 1)
    net.linear("scores", net.view("flat", net.global_pool("pool", x), (1, 8)), 10)
    net.embedding("rows", net.input(3), 1000, 16)
    assert {work.parameters for op in net.graph().operators for work in op.works} == {4.0 * (40 + 90)}
