"""Three models of today as ONNX files: a mixture of experts, a two-tower recommender, a U-Net; then what to deploy.

python examples/onnx_models.py moe && simsched advise moe.onnx --gpu h100 --gpus 2 --dtype fp16
"""

import sys
import tempfile
from itertools import pairwise

import onnx
from onnx import TensorProto, helper

import simsched as ss
import workloads


class Model:
    """Nodes and weights of an ONNX graph, each node named after its output."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def weight(self, name: str, *shape: int) -> str:
        """Add a weight; its values, said to be in another file, count for nothing here."""
        tensor = TensorProto(name=name, dims=shape, data_type=TensorProto.FLOAT, data_location=TensorProto.EXTERNAL)
        tensor.external_data.add(key="location", value="weights.bin")
        self.weights.append(tensor)
        return name

    def add(self, kind: str, name: str, *inputs: str, **attributes: object) -> str:
        """Add a node and return its output."""
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name, **attributes))
        return name

    def linear(self, name: str, x: str, n: int, m: int, then: str = "Relu") -> str:
        """Add a linear layer."""
        y = self.add("MatMul", f"{name}.matmul", x, self.weight(f"{name}.weight", n, m))
        return self.add(then, name, y) if then else y

    def conv(self, name: str, x: str, n: int, m: int) -> str:
        """Add a 3 x 3 convolution."""
        w = self.weight(f"{name}.weight", m, n, 3, 3)
        return self.add("Relu", name, self.add("Conv", f"{name}.conv", x, w, pads=[1, 1, 1, 1]))

    def save(self, path: str, inputs: dict[str, tuple[int, ...]], output: str) -> None:
        """Write the file."""
        made = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()]
        out = helper.make_tensor_value_info(output, TensorProto.FLOAT, None)
        graph = helper.make_graph(self.nodes, "model", made, [out], self.weights)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)


def moe(path: str, tokens: int = 64, width: int = 512, experts: int = 8) -> None:
    """Write two feed-forward layers of eight experts, each of all tokens, weighted by a gate."""
    model, x = Model(), "x"
    for layer in ("layer0", "layer1"):
        gate = model.linear(f"{layer}.gate", x, width, experts, "Softmax")
        parts = [f"{layer}.gate{i}" for i in range(experts)]
        model.nodes.append(helper.make_node("Split", [gate], parts, f"{layer}.split", axis=1))
        outs = []
        for i, part in enumerate(parts):
            hidden = model.linear(f"{layer}.expert{i}.up", x, width, 4 * width)
            down = model.linear(f"{layer}.expert{i}.down", hidden, 4 * width, width, "")
            outs.append(model.add("Mul", f"{layer}.expert{i}", down, part))
        x = model.add("Sum", f"{layer}.sum", x, *outs)
    model.save(path, {"x": (tokens, width)}, x)


def two_tower(path: str, batch: int = 256) -> None:
    """Write two towers of three layers, of users and of items, and the product of what they come to."""
    model, ends = Model(), []
    for tower, width in (("user", 1024), ("item", 768)):
        x = tower
        for i, (n, m) in enumerate([(width, 1024), (1024, 512), (512, 128)]):
            x = model.linear(f"{tower}.layer{i}", x, n, m)
        ends.append(x)
    y = model.add("ReduceSum", "score", model.add("Mul", "product", *ends), keepdims=0)
    model.save(path, {"user": (batch, 1024), "item": (batch, 768)}, y)


def unet(path: str, size: int = 128) -> None:
    """Write three levels down and up again, with skips."""
    model, x, skips = Model(), "image", []
    widths = (3, 32, 64, 128)
    for i, (n, m) in enumerate(pairwise(widths)):
        x = model.conv(f"down{i}.b", model.conv(f"down{i}.a", x, n, m), m, m)
        skips.append((x, m))
        x = model.add("MaxPool", f"down{i}.pool", x, kernel_shape=[2, 2], strides=[2, 2])
    x, n = model.conv("bottom", x, 128, 256), 256
    for i, (skip, m) in enumerate(reversed(skips)):
        w = model.weight(f"up{i}.weight", n, m, 2, 2)
        wide = model.add("ConvTranspose", f"up{i}.up", x, w, strides=[2, 2])
        x = model.conv(f"up{i}.a", model.add("Concat", f"up{i}.skip", wide, skip, axis=1), 2 * m, m)
        n = m
    model.save(path, {"image": (1, 3, size, size)}, x)


MODELS = {"moe": moe, "two_tower": two_tower, "unet": unet}
if __name__ == "__main__":
    kept = [name for name in sys.argv[1:] if name in MODELS]
    for name in kept:
        MODELS[name](f"{name}.onnx")
    with tempfile.TemporaryDirectory() as folder:
        for name in kept or MODELS:
            MODELS[name](path := f"{folder}/{name}.onnx")
            advice = ss.advise(workloads.from_spec(f"{path},dtype=fp16"), ss.Cluster.preset("h100", 2))
            print(f"{name}: {advice.best}", *advice.verdict, sep="\n  ")
