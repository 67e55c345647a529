"""Networks of torchvision: as many vertices, streams and waits as published code makes of them."""

from collections import Counter
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
nn = torch.nn

from small import works  # noqa: E402 - the rest is for those who have PyTorch
from torch_modules import torchvision_models  # noqa: E402

import simsched as ss  # noqa: E402
import workloads  # noqa: E402
from workloads.formats.torch_fx import from_module  # noqa: E402
from workloads.fusion import fuse, without_io  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("default")]

PRODUCTS = ("conv", "linear", "matmul")


def network(name):
    """A network without weights, and its input."""
    settings = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
    with torch.device("meta"):
        size = 299 if name == "inception_v3" else 224
        return getattr(torchvision_models(), name)(weights=None, **settings), torch.empty(1, 3, size, size)


@cache  # fake tensors take seconds to go through a network
def imported(name):
    return from_module(*network(name), include_io=True)


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("googlenet", (199, 28, 28, 4, 54)),
        ("inception_v3", (316, 36, 36, 6, 70)),
        ("resnet50", (177, 5, 5, 2, 8)),
        ("squeezenet1_1", (68, 9, 9, 2, 16)),
        ("densenet121", (433, 1, 1, 1, 0)),
    ],
)
def test_vertices_streams_and_waits(name, counts):
    """Vertices of torch.fx; streams of Opara, chains of Nimble and streams of its released code; waits of all three."""
    graph, cluster = imported(name), ss.Cluster.preset("a100", 1)
    opara, nimble = ss.schedule(graph, cluster, "opara"), ss.schedule(graph, cluster, "nimble")
    released = ss.schedule(graph, cluster, "nimble", mode="impl")
    assert (len(graph), opara.n_streams, nimble.n_streams, released.n_streams, opara.search["waits"]) == counts
    assert nimble.search["syncs"] == released.search["syncs"] == counts[-1]


@pytest.mark.parametrize("name", ["googlenet", "squeezenet1_1", "shufflenet_v2_x0_5"])
def test_products_are_those_that_pytorch_counts(name):
    """PyTorch counts FLOP of convolutions and matrix products as they are dispatched; weights, as its modules do."""
    module, image = network(name)
    module.eval()
    graph = imported(name)
    n_flops = counted(module, image)
    for each in (graph, fuse(graph)):
        assert sum(op.flops for op in each.operators if op.kind in PRODUCTS) == n_flops
    # auxiliary heads are no part of inference
    parameters = [p.numel() for key, p in module.named_parameters() if not key.startswith("aux")]
    statistics = [b.numel() for key, b in module.named_buffers() if b.dim() and not key.startswith("aux")]
    assert graph.weight_nbytes.sum() == 4 * (sum(parameters) + sum(statistics))


def counted(module, x):
    """FLOP of a module as PyTorch counts them."""
    from torch.utils.flop_counter import FlopCounterMode

    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        module(x)
    return counter.get_total_flops()


LAYERS = {
    "conv": lambda: nn.Conv2d(8, 8, 3, padding=1),
    "grouped": lambda: nn.Conv2d(8, 8, (1, 3), padding=(0, 1), groups=4, bias=False),
    "up": lambda: nn.Sequential(nn.ConvTranspose2d(8, 8, 2, stride=2), nn.AvgPool2d(2)),
    "norm": lambda: nn.BatchNorm2d(8),
    "linear": lambda: nn.Linear(6, 6),
    "relu": lambda: nn.ReLU(inplace=True),
    "drop": lambda: nn.Dropout(),
}


@settings(max_examples=15)
@given(names=st.lists(st.sampled_from(sorted(LAYERS)), min_size=1, max_size=6))
def test_any_stack_of_layers(names):
    """Products are those that PyTorch counts, single or in units; units have no more bytes, and no views."""
    module, x = nn.Sequential(*(LAYERS[name]() for name in names)).eval(), torch.zeros(2, 8, 6, 6)
    graph = from_module(module, x, include_io=True)
    units = fuse(graph)
    for each in (graph, units):
        assert sum(op.flops for op in each.operators if op.kind in (*PRODUCTS, "conv_transpose")) == counted(module, x)
    assert units.nbytes.sum() <= graph.nbytes.sum()
    assert "dropout" not in [op.kind for op in units.operators]
    assert units.depth == len(units)  # still one after the other


def rows(graph):
    fields = ("kind", "flops", "nbytes", "weight_nbytes", "input_shapes", "output_shape", "intensity")
    return Counter((*(getattr(op, field) for field in fields), works(op)) for op in graph.operators)


def test_inception_v3_is_ours():
    """The same single operators, to the byte; units are those of IOS, 4 concatenations in forks and a classifier."""
    theirs = without_io(imported("inception_v3"))
    ours = workloads.load("inception_v3", granularity="operator")
    assert rows(theirs) == rows(ours)
    assert (len(theirs), len(theirs.edges)) == (len(ours), len(ours.edges)) == (314, 348)
    theirs = without_io(fuse(imported("inception_v3")))
    ours = workloads.load("inception_v3")
    more, fewer = rows(theirs) - rows(ours), rows(ours) - rows(theirs)
    assert [(kind[0], n) for kind, n in more.items()] == [("concat", 4), ("concat", 2), ("linear", 1)]
    assert [(kind[0], n) for kind, n in fewer.items()] == [("concat", 2)]
