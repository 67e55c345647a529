"""Networks built with torch, exported to ONNX, imported, scheduled and simulated."""

import logging
import warnings
from collections import Counter

import pytest

pytest.importorskip("onnx")
pytest.importorskip("torch")

import onnx
import torch
from torch import nn
from torch_modules import Inception, Residual, torchvision_models

import simsched as ss
from workloads import load
from workloads.formats.onnx.models import read_onnx

pytestmark = pytest.mark.torch


def exported(path, network, *inputs, dynamo=True, **options):
    """Write a network to a file, by the exporter that torch.export made or by the older one."""
    if dynamo:
        pytest.importorskip("onnxscript")
    logging.disable(logging.WARNING)  # the exporter's own
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(network.eval(), inputs, path, dynamo=dynamo, verbose=False, **options)
    finally:
        logging.disable(logging.NOTSET)
    return path


def products(graph):
    """Multiply-adds of convolutions and matrix products."""
    return sum(op.flops for op in graph.operators if op.kind in ("conv", "linear", "matmul")) / 2


def makespan(graph):
    cluster = ss.Cluster.preset("a100")
    plan = ss.schedule(graph, cluster, "lios")
    plan.check(cluster)
    return ss.simulate(plan, cluster).makespan


# network, input -> kinds of units, multiply-adds
BLOCKS = {
    # 49 pixels: 8 * 16 and 8 * 16 * 9
    "inception": (Inception(), (1, 8, 7, 7), {"conv": 2, "pool": 1, "concat": 1}, 49 * (128 + 1152)),
    "residual": (Residual(), (1, 8, 4, 4), {"conv": 1, "add": 1, "pool": 1, "linear": 1}, 16 * 8 * 8 * 9 + 80),
    "mlp": (nn.Sequential(nn.Linear(10, 20), nn.Tanh(), nn.Linear(20, 3)), (7, 10), {"linear": 2}, 7 * (200 + 60)),
}


@pytest.mark.parametrize("dynamo", [True, False])
@pytest.mark.parametrize("name", BLOCKS)
def test_blocks(tmp_path, name, dynamo, caplog):
    """The units, the work of all products, and every weight; on an A100 as long as anything takes."""
    network, shape, expected, macs = BLOCKS[name]
    path = exported(tmp_path / f"{name}.onnx", network, torch.zeros(shape), dynamo=dynamo)
    graph, single = read_onnx(path, granularity="unit"), read_onnx(path)
    if "ReduceMean" in {node.op_type for node in onnx.load(path).graph.node}:  # of torch 2.13, for a pool of one pixel
        expected = Counter({"reduce_mean" if kind == "pool" else kind: n for kind, n in expected.items()})
    assert (graph.name, Counter(op.kind for op in graph.operators)) == (name, expected)
    assert products(graph) == products(single) == macs
    assert len(single) > len(graph)
    assert not [record for record in caplog.records if record.name.startswith("workloads")]
    assert 0.0 < makespan(graph) < 1e4


def test_a_layer_of_a_transformer(tmp_path, caplog):
    """2 sequences of 10 tokens, 32 features in 4 heads, 64 inside.

    Products: 20 * 32 * 96 for queries, keys and values, 20 * 32 * 32 after them, 20 * 32 * 64 * 2 in the rest.
    Attention is one operator: 2 * 4 * 10 * 10 * 8 for scores, as much for the mixture, and a softmax. Weights: all
    parameters, 4 bytes each. (The older exporter does not take this layer.)
    """
    torch.backends.mha.set_fastpath_enabled(False)
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, activation="gelu")
    path = exported(tmp_path / "layer.onnx", layer, torch.zeros(2, 10, 32))
    graph = read_onnx(path)
    assert products(graph) == 20 * 32 * 96 + 20 * 32 * 32 + 2 * 20 * 32 * 64
    (attention,) = (op for op in graph.operators if op.kind == "attention")
    assert attention.flops == 2 * (2 * 2 * 4 * 10 * 10 * 8) + 5 * 2 * 4 * 10 * 10
    assert graph.weight_nbytes.sum() == pytest.approx(4 * sum(p.numel() for p in layer.parameters()), rel=0.01)
    kinds = Counter(op.kind for op in graph.operators)
    assert (kinds["softmax"], kinds["gelu"], kinds["layer_norm"]) == (0, 1, 2)
    assert not [record for record in caplog.records if record.name.startswith("workloads")]
    assert makespan(graph) > 0.0


def test_sizes_that_are_open_are_given(tmp_path):
    """The batch is left open by the exporter and given as 6: 6 * 10 * 4 multiply-adds."""
    sizes = ({0: torch.export.Dim("batch", max=64)},)
    path = exported(tmp_path / "x.onnx", nn.Linear(10, 4), torch.zeros(3, 10), input_names=["x"], dynamic_shapes=sizes)
    assert products(read_onnx(path, shapes={"x": (6, 10)})) == 240


def test_inception_v3_of_torchvision(tmp_path):
    """94 convolutions and 5.711 G multiply-adds in them, as in our own network, to 0.1 %."""
    network = torchvision_models().inception_v3(weights=None, aux_logits=False, init_weights=False)
    graph = read_onnx(exported(tmp_path / "v3.onnx", network, torch.zeros(1, 3, 299, 299)))
    ours = load("inception_v3")
    convolutions, expected = ([op.flops for op in each.operators if op.kind == "conv"] for each in (graph, ours))
    assert (len(convolutions), sum(convolutions)) == (94, sum(expected))
    assert sum(convolutions) / 2 == pytest.approx(5.711e9, rel=1e-3)
    assert graph.width >= ours.width
