"""Speed of the ONNX importer: run with ``pytest -m benchmark --benchmark-enable tests/benchmarks``."""

import pytest

pytest.importorskip("onnx")

from onnx import helper

from workloads.formats.onnx_models import read_onnx

N_NODES = 10_000


def network(n_sizes):
    """Blocks of two branches of two convolutions with activation, and their sum; `n_sizes` numbers of channels."""
    nodes, weights, x, channels = [], [], "x", 16

    def layer(name, x, n, m):
        weights.append(helper.make_tensor(f"{name}.w", 1, [m, n, 1, 1], bytes(4 * n * m), raw=True))
        nodes.append(helper.make_node("Conv", [x, f"{name}.w"], [name], name=name))
        nodes.append(helper.make_node("Relu", [name], [f"{name}.relu"], name=f"{name}.relu"))
        return f"{name}.relu"

    while len(nodes) < N_NODES - 8:
        i = len(nodes)
        wide = 16 + i // 9 % n_sizes
        ends = [layer(f"{i}.{side}1", layer(f"{i}.{side}0", x, channels, wide), wide, wide) for side in "ab"]
        nodes.append(helper.make_node("Add", ends, [f"{i}.sum"], name=f"{i}.sum"))
        x, channels = f"{i}.sum", wide
    while len(nodes) < N_NODES:
        nodes.append(helper.make_node("Sigmoid", [x], [f"{x}.out"]))
        x = f"{x}.out"
    image = helper.make_tensor_value_info("x", 1, [1, 16, 8, 8])
    result = helper.make_tensor_value_info(x, 1, None)
    graph = helper.make_graph(nodes, "wide", [image], [result], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("granularity", ["unit", "operator"])
@pytest.mark.parametrize("n_sizes", [1, 100])
def test_a_file_of_10_000_nodes(benchmark, tmp_path, n_sizes, granularity):
    """From file to graph, the target being 5 s; with many sizes there are that many more shapes to infer."""
    path = tmp_path / "wide.onnx"
    path.write_bytes(network(n_sizes).SerializeToString())
    graph = benchmark.pedantic(read_onnx, (path,), {"granularity": granularity}, rounds=3)
    benchmark.extra_info.update(operators=len(graph), nbytes=path.stat().st_size)
    assert len(graph) == N_NODES if granularity == "operator" else N_NODES // 2 < len(graph) < N_NODES
