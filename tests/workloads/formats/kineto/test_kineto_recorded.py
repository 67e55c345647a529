"""Traces that torch recorded on a CPU: one kept beside this file, one made now.

``kineto_cpu.json.gz`` is what ``record("kineto_cpu.json.gz")`` below wrote with torch 2.13.0 on a virtual
machine of two cores; any release may write it anew.
"""

from pathlib import Path

import pytest
from small import edges

from simsched import Operator, OpGraph
from workloads.formats.kineto import read_kineto

RECORDED = Path(__file__).parent / "kineto_cpu.json.gz"
# as torch.fx calls the operators of the network below, and in which order they run
KINDS = {"conv1": "conv", "relu": "relu", "conv2": "conv", "add": "add", "flatten": "flatten", "fc": "linear"}
GRAPH = OpGraph(
    [Operator(name, kind, flops=1.0) for name, kind in KINDS.items()],
    edges("conv1-relu relu-conv2 relu-add conv2-add add-flatten flatten-fc"),
)


def record(path, n_steps=4):
    """Run a small network under the profiler, each operator annotated with its name in the fx graph."""
    import torch
    from torch import nn
    from torch.profiler import ProfilerActivity, profile, record_function, schedule
    from torch_modules import Forward

    net = Forward(
        lambda m, x: m.fc(torch.flatten(m.conv2(a := m.relu(m.conv1(x))) + a, 1)),
        conv1=nn.Conv2d(3, 8, 3, padding=1),
        relu=nn.ReLU(),
        conv2=nn.Conv2d(8, 8, 3, padding=1),
        fc=nn.Linear(512, 10),
    )

    class Annotated(torch.fx.Interpreter):
        def run_node(self, node):
            with record_function(node.name):
                return super().run_node(node)

    network = Annotated(torch.fx.symbolic_trace(net.eval()))
    image = torch.zeros(1, 3, 8, 8)
    with (
        torch.no_grad(),
        profile(
            activities=[ProfilerActivity.CPU],
            schedule=schedule(wait=1, warmup=1, active=n_steps),
            record_shapes=True,
            on_trace_ready=lambda prof: prof.export_chrome_trace(str(path)),
        ) as prof,
    ):
        for _ in range(n_steps + 2):
            network.run(image)
            prof.step()


def assert_is_the_network(path):
    """Joined by name, by order and by neither, the times of the operators are the same."""
    plain = read_kineto(path, skip=0)
    names = "conv2d#0 relu#0 conv2d#1 add#0 flatten#0 linear#0"
    assert [op.name for op in plain.operators] == [f"aten::{name}" for name in names.split()]
    assert (plain.provenance.iterations, plain.device) == (4, None)
    assert all(0 < op.median < 1e6 and not op.kernels for op in plain.operators)
    named = read_kineto(path, graph=GRAPH, skip=0)
    assert [op.samples for op in named.operators] == [op.samples for op in plain.operators]
    timed = named.apply(GRAPH)
    assert [op.time for op in timed.operators] == [op.median for op in plain.operators]
    assert (timed["conv1"].flops, timed.edges) == (1.0, GRAPH.edges)


def test_recorded_trace():
    assert_is_the_network(RECORDED)
    assert read_kineto(RECORDED).provenance.date.startswith("20")


@pytest.mark.torch
def test_trace_recorded_now(tmp_path):
    pytest.importorskip("torch")
    record(tmp_path / "now.json.gz")
    assert_is_the_network(tmp_path / "now.json.gz")


def test_innermost_operators_on_a_cpu():
    """Each leaf counts once: together they take no longer than the outermost operators."""
    top, leaf = read_kineto(RECORDED, skip=0), read_kineto(RECORDED, skip=0, level="leaf")
    assert len(leaf) > len(top)
    assert sum(op.samples[0] for op in leaf.operators) <= sum(op.samples[0] for op in top.operators)
