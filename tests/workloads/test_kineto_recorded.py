"""Traces that torch recorded on a CPU: one kept beside this file, one made now.

``kineto_cpu.json.gz`` is what ``record("kineto_cpu.json.gz")`` below wrote with torch 2.13.0 on a virtual
machine of two cores; any release may write it anew.
"""

from pathlib import Path

import pytest

from simsched import Edge, Operator, OpGraph
from workloads.formats.kineto import read_kineto

RECORDED = Path(__file__).parent / "kineto_cpu.json.gz"
# as torch.fx calls the operators of the network below, and in which order they run
KINDS = {"conv1": "conv", "relu": "relu", "conv2": "conv", "add": "add", "flatten": "flatten", "fc": "linear"}
GRAPH = OpGraph(
    [Operator(name, kind, flops=1.0) for name, kind in KINDS.items()],
    [Edge("conv1", "relu"), Edge("relu", "conv2"), Edge("relu", "add"), Edge("conv2", "add"), Edge("add", "flatten"),
     Edge("flatten", "fc")],
)  # fmt: skip


def record(path, n_steps=4):
    """Run a small network under the profiler, each operator annotated with its name in the fx graph."""
    import torch
    from torch import nn
    from torch.profiler import ProfilerActivity, profile, record_function, schedule

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1, self.relu = nn.Conv2d(3, 8, 3, padding=1), nn.ReLU()
            self.conv2, self.fc = nn.Conv2d(8, 8, 3, padding=1), nn.Linear(512, 10)

        def forward(self, x):
            a = self.relu(self.conv1(x))
            return self.fc(torch.flatten(self.conv2(a) + a, 1))

    class Annotated(torch.fx.Interpreter):
        def run_node(self, node):
            with record_function(node.name):
                return super().run_node(node)

    network = Annotated(torch.fx.symbolic_trace(Net().eval()))
    image = torch.zeros(1, 3, 8, 8)
    with torch.no_grad(), profile(
        activities=[ProfilerActivity.CPU], schedule=schedule(wait=1, warmup=1, active=n_steps), record_shapes=True,
        on_trace_ready=lambda prof: prof.export_chrome_trace(str(path)),
    ) as prof:  # fmt: skip
        for _ in range(n_steps + 2):
            network.run(image)
            prof.step()


@pytest.fixture(scope="module")
def recorded_now(tmp_path_factory):
    pytest.importorskip("torch")
    path = tmp_path_factory.mktemp("kineto") / "now.json.gz"
    record(path)
    return path


def assert_is_the_network(path):
    """Joined by name, by order and by neither, the times of the operators are the same."""
    plain = read_kineto(path, skip=0)
    assert [op.name for op in plain.operators] == [
        "aten::conv2d#0", "aten::relu#0", "aten::conv2d#1", "aten::add#0", "aten::flatten#0", "aten::linear#0",
    ]  # fmt: skip
    assert plain.provenance.iterations == 4
    assert plain.device is None
    assert all(0 < op.median < 1e6 and not op.kernels for op in plain.operators)
    named = read_kineto(path, graph=GRAPH, skip=0)
    assert [op.samples for op in named.operators] == [op.samples for op in plain.operators]
    timed = named.apply(GRAPH)
    assert [op.time for op in timed.operators] == [op.median for op in plain.operators]
    assert timed["conv1"].flops == 1.0
    assert timed.edges == GRAPH.edges


def test_recorded_trace():
    assert_is_the_network(RECORDED)
    assert read_kineto(RECORDED).provenance.date.startswith("20")


@pytest.mark.torch
def test_trace_recorded_now(recorded_now):
    assert_is_the_network(recorded_now)


def test_innermost_operators_on_a_cpu():
    """Each leaf counts once: together they take no longer than the outermost operators."""
    top, leaf = read_kineto(RECORDED, skip=0), read_kineto(RECORDED, skip=0, level="leaf")
    assert len(leaf) > len(top)
    assert sum(op.samples[0] for op in leaf.operators) <= sum(op.samples[0] for op in top.operators)
