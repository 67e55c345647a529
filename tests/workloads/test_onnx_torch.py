"""Networks built with torch, exported to ONNX, imported, scheduled and simulated."""

import logging
import warnings
from collections import Counter

import pytest

pytest.importorskip("onnx")
pytest.importorskip("torch")

import torch
from torch import nn

import simsched as ss
from simsched.base.errors import FormatError
from workloads import load
from workloads.formats.onnx_models import read_onnx

pytestmark = pytest.mark.torch
EXPORTERS = ("torch.export", "torchscript")


def exported(path, network, *inputs, exporter="torch.export"):
    """Write a network to a file."""
    if exporter == "torch.export":
        pytest.importorskip("onnxscript")
    logging.disable(logging.WARNING)  # the exporter's own
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(network.eval(), inputs, path, dynamo=exporter == "torch.export", verbose=False)
    finally:
        logging.disable(logging.NOTSET)
    return path


def kinds(graph):
    return dict(Counter(op.kind for op in graph.operators))


def products(graph):
    """Multiply-adds of convolutions and matrix products."""
    return sum(op.flops for op in graph.operators if op.kind in ("conv", "linear", "matmul")) / 2


def makespan(graph):
    cluster = ss.Cluster.preset("a100")
    plan = ss.schedule(graph, cluster, "lios")
    plan.check(cluster)
    return ss.simulate(plan, cluster).makespan


class Fire(nn.Module):
    """A module of SqueezeNet: 1 x 1 to squeeze, then 1 x 1 and 3 x 3 side by side."""

    def __init__(self, channels, squeezed, expanded):
        super().__init__()
        self.squeeze = nn.Conv2d(channels, squeezed, 1)
        self.one = nn.Conv2d(squeezed, expanded, 1)
        self.three = nn.Conv2d(squeezed, expanded, 3, padding=1)

    def forward(self, x):
        x = torch.relu(self.squeeze(x))
        return torch.cat([torch.relu(self.one(x)), torch.relu(self.three(x))], 1)


class Residual(nn.Module):
    """A block of ResNet with a projection."""

    def __init__(self, channels, out_channels):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(channels, out_channels, 3, 2, 1, bias=False), nn.BatchNorm2d(out_channels))
        self.second = nn.Sequential(nn.Conv2d(out_channels, out_channels, 3, 1, 1), nn.BatchNorm2d(out_channels))
        self.project = nn.Conv2d(channels, out_channels, 1, 2)

    def forward(self, x):
        return torch.relu(self.second(torch.relu(self.first(x))) + self.project(x))


class Inception(nn.Module):
    """Three branches of different length and a concatenation."""

    def __init__(self):
        super().__init__()
        self.one = nn.Conv2d(16, 8, 1)
        self.three = nn.Sequential(nn.Conv2d(16, 4, 1), nn.ReLU(), nn.Conv2d(4, 12, (1, 3), padding=(0, 1)))
        self.pool = nn.Sequential(nn.AvgPool2d(3, 1, 1), nn.Conv2d(16, 4, 1))

    def forward(self, x):
        return torch.cat([self.one(x), self.three(x), self.pool(x)], 1)


# network, input -> kinds of units, multiply-adds
BLOCKS = {
    # 64 pixels: 8 * 4, then 4 * 6 and 4 * 6 * 9
    "fire": (Fire(8, 4, 6), (1, 8, 8, 8), {"conv": 3, "concat": 1}, 64 * (32 + 24 + 216)),
    # 16 pixels: 8 * 12 * 9, 12 * 12 * 9 and 8 * 12
    "residual": (Residual(8, 12), (1, 8, 8, 8), {"conv": 3, "add": 1}, 16 * (864 + 1296 + 96)),
    # 2 images of 36 pixels: 16 * 8, 16 * 4, 4 * 12 * 3 and 16 * 4
    "inception": (Inception(), (2, 16, 6, 6), {"conv": 4, "pool": 1, "concat": 1}, 72 * (128 + 64 + 144 + 64)),
    "mlp": (nn.Sequential(nn.Linear(10, 20), nn.Tanh(), nn.Linear(20, 3)), (7, 10), {"linear": 2}, 7 * (200 + 60)),
}  # fmt: skip


@pytest.mark.parametrize("exporter", EXPORTERS)
@pytest.mark.parametrize("name", BLOCKS)
def test_blocks(tmp_path, name, exporter, caplog):
    """The units, the work of all products, and every weight; on an A100 as long as anything takes."""
    network, shape, expected, macs = BLOCKS[name]
    path = exported(tmp_path / f"{name}.onnx", network, torch.zeros(shape), exporter=exporter)
    graph = read_onnx(path)
    assert graph.name == name
    assert kinds(graph) == expected
    assert products(graph) == macs
    assert not [record for record in caplog.records if record.name.startswith("workloads")]
    assert 0.0 < makespan(graph) < 1e4
    single = read_onnx(path, granularity="operator")
    assert len(single) > len(graph)
    assert products(single) == macs


def test_a_layer_of_a_transformer(tmp_path, caplog):
    """2 sequences of 10 tokens, 32 features in 4 heads, 64 inside.

    Products: 20 * 32 * 96 for queries, keys and values, twice 2 * 4 * 10 * 10 * 8 for scores and mixture,
    20 * 32 * 32 after them, 20 * 32 * 64 * 2 in the rest. Weights: all parameters, 4 bytes each. (The older
    exporter does not take this layer.)
    """
    torch.backends.mha.set_fastpath_enabled(False)
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, activation="gelu")
    path = exported(tmp_path / "layer.onnx", layer, torch.zeros(2, 10, 32))
    graph = read_onnx(path)
    assert products(graph) == 20 * 32 * 96 + 2 * 2 * 4 * 10 * 10 * 8 + 20 * 32 * 32 + 2 * 20 * 32 * 64
    assert graph.weight_nbytes.sum() == pytest.approx(4 * sum(p.numel() for p in layer.parameters()), rel=0.01)
    assert kinds(graph)["softmax"] == 1
    assert kinds(graph)["layer_norm"] == 2
    assert not [record for record in caplog.records if record.name.startswith("workloads")]
    assert makespan(graph) > 0.0


def test_sizes_that_are_open_are_given(tmp_path):
    """The batch is left open by the exporter and given as 6: 6 * 10 * 4 multiply-adds."""
    pytest.importorskip("onnxscript")
    path = tmp_path / "open.onnx"
    logging.disable(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        batch = torch.export.Dim("batch", max=64)
        torch.onnx.export(nn.Linear(10, 4).eval(), (torch.zeros(3, 10),), path, input_names=["x"], dynamo=True,
                          dynamic_shapes=({0: batch},), verbose=False)  # fmt: skip
    logging.disable(logging.NOTSET)
    with pytest.raises(FormatError, match="input 'x' has unknown size 'batch'; give --shape x=1,10"):
        read_onnx(path)
    assert products(read_onnx(path, shapes={"x": (6, 10)})) == 240


def test_inception_v3_of_torchvision(tmp_path):
    """94 convolutions and 5.711 G multiply-adds in them, as in our own network, to 0.1 %."""
    try:
        from torchvision.models import inception_v3
    except (ImportError, RuntimeError) as error:  # RuntimeError: one that was built for another torch
        pytest.skip(f"torchvision cannot be imported: {error}")
    network = inception_v3(weights=None, aux_logits=False, init_weights=False)
    graph = read_onnx(exported(tmp_path / "v3.onnx", network, torch.zeros(1, 3, 299, 299)))
    assert kinds(graph)["conv"] == 94
    convolutions = sum(op.flops for op in graph.operators if op.kind == "conv")
    assert convolutions / 2 == pytest.approx(5.711e9, rel=1e-3)
    ours = load("inception_v3")
    assert convolutions == sum(op.flops for op in ours.operators if op.kind == "conv")
    assert graph.width >= ours.width
