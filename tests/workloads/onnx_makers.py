"""ONNX models made by hand, a call per node."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

FLOAT = TensorProto.FLOAT


class Maker:
    """Collects the parts of a model; every call returns the name of a tensor."""

    def __init__(self, opset=17, domains=()):
        self.nodes, self.inputs, self.weights, self.infos = [], [], [], []
        self.opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]

    def input(self, name, shape, elem=FLOAT):
        self.inputs.append(helper.make_tensor_value_info(name, elem, shape))
        return name

    def info(self, name, shape, elem=FLOAT):
        """Declare the shape of a tensor that inference cannot size."""
        self.infos.append(helper.make_tensor_value_info(name, elem, shape))

    def weight(self, name, *shape, elem=FLOAT):
        """Weights of zeros."""
        return self.numbers(name, np.zeros(shape), helper.tensor_dtype_to_np_dtype(elem))

    def external(self, name, *shape, elem=FLOAT):
        """Weights that are said to stand in a file that does not exist."""
        proto = TensorProto(name=name, data_type=elem, dims=shape, data_location=TensorProto.EXTERNAL)
        proto.external_data.add(key="location", value="there is no such file")
        self.weights.append(proto)
        return name

    def numbers(self, name, values, kind=np.int64):
        self.weights.append(numpy_helper.from_array(np.array(values, kind), name))
        return name

    def op(self, op_type, inputs, output, *, name=None, domain="", **attributes):
        outputs = output if isinstance(output, list) else [output]
        name = outputs[0] if name is None else name
        self.nodes.append(helper.make_node(op_type, inputs, outputs, name=name, domain=domain, **attributes))
        return outputs[0]

    def conv(self, name, x, channels, out_channels, kernel=1, *, norm=False, relu=False):
        """A convolution of a square window as exporters write it: with bias, or normalisation; and activation."""
        weights = [self.weight(f"{name}.w", out_channels, channels, kernel, kernel)]
        weights += [] if norm else [self.weight(f"{name}.b", out_channels)]
        x = self.op("Conv", [x, *weights], name, kernel_shape=[kernel] * 2, pads=[kernel // 2] * 4)
        if norm:
            statistics = [self.weight(f"{name}.norm.{i}", out_channels) for i in range(4)]
            x = self.op("BatchNormalization", [x, *statistics], f"{name}.norm")
        return self.op("Relu", [x], f"{name}.relu") if relu else x

    def model(self, *outputs):
        results = [helper.make_value_info(name, helper.make_tensor_type_proto(FLOAT, None)) for name in outputs]
        graph = helper.make_graph(self.nodes, "by hand", self.inputs, results, self.weights, value_info=self.infos)
        return helper.make_model(graph, opset_imports=self.opsets, ir_version=8)


def conv_norm_relu():
    """A convolution of 3 channels to 16 on 8 x 8 pixels, normalised, with activation."""
    made = Maker()
    return made.model(made.conv("conv", made.input("x", [1, 3, 8, 8]), 3, 16, 3, norm=True, relu=True))


def branches():
    """Two convolutions of one input, the first with activation, and their concatenation."""
    made = Maker()
    x = made.input("x", [2, 8, 4, 4])
    parts = [made.conv("left", x, 8, 16, relu=True), made.conv("right", x, 8, 24, 3)]
    return made.model(made.op("Concat", parts, "both", axis=1))


def mlp():
    """Three Gemm of a batch of 5 rows of 10 features, with 20, 30 and 4 outputs."""
    made = Maker()
    x = made.input("x", [5, 10])
    for i, (n, m) in enumerate([(10, 20), (20, 30), (30, 4)]):
        x = made.op("Gemm", [x, made.weight(f"w{i}", m, n), made.weight(f"b{i}", m)], f"fc{i}", transB=1)
        x = made.op("Relu", [x], f"{x}.relu") if i < 2 else x
    return made.model(x)


def attention():
    """Self-attention of 2 sequences of 6 tokens in 4 heads of 8, the shapes worked out in the graph."""
    made = Maker()
    x = made.input("x", ["batch", 6, 32])
    made.op("Shape", [x], "shape")
    made.numbers("zero", 0), made.numbers("one", 1), made.numbers("axis", [0])
    for place in ("zero", "one"):
        made.op("Gather", ["shape", place], f"size_{place}")
        made.op("Unsqueeze", [f"size_{place}", "axis"], f"list_{place}")
    made.numbers("heads", [4, 8]), made.numbers("all", [32])
    made.op("Concat", ["list_zero", "list_one", "heads"], "split", axis=0)
    made.op("Concat", ["list_zero", "list_one", "all"], "joined", axis=0)
    for part in "qkv":
        made.op("MatMul", [x, made.weight(f"w{part}", 32, 32)], f"{part}.product")
        made.op("Add", [f"{part}.product", made.weight(f"b{part}", 32)], f"{part}.bias")
        made.op("Reshape", [f"{part}.bias", "split"], f"{part}.heads")
        order = [0, 2, 3, 1] if part == "k" else [0, 2, 1, 3]
        made.op("Transpose", [f"{part}.heads"], f"{part}.turned", perm=order)
    made.op("MatMul", ["q.turned", "k.turned"], "scores")
    made.op("Div", ["scores", made.numbers("scale", 8.0**0.5, np.float32)], "scaled")
    made.op("Softmax", ["scaled"], "weights", axis=-1)
    made.op("MatMul", ["weights", "v.turned"], "mixed")
    made.op("Transpose", ["mixed"], "mixed.turned", perm=[0, 2, 1, 3])
    made.op("Reshape", ["mixed.turned", "joined"], "mixed.joined")
    return made.model(made.op("MatMul", ["mixed.joined", made.weight("wo", 32, 32)], "out"))


def inception_block():
    """The first block with a 5x5 branch of Inception v3 (35 x 35 pixels), as an exporter writes it."""
    made = Maker()
    x = made.input("x", [1, 192, 35, 35])

    def conv(name, x, channels, out_channels, kernel=1):
        return made.conv(name, x, channels, out_channels, kernel, norm=True, relu=True)

    one = conv("branch1x1", x, 192, 64)
    five = conv("branch5x5_2", conv("branch5x5_1", x, 192, 48), 48, 64, 5)
    double = conv("branch3x3dbl_2", conv("branch3x3dbl_1", x, 192, 64), 64, 96, 3)
    double = conv("branch3x3dbl_3", double, 96, 96, 3)
    made.op("AveragePool", [x], "pool", kernel_shape=[3, 3], strides=[1, 1], pads=[1] * 4, count_include_pad=1)
    last = conv("branch_pool", "pool", 192, 32)
    return made.model(made.op("Concat", [one, five, double, last], "concat", axis=1))


def with_if():
    """A choice between two ways to go on, in graphs of their own that read a tensor from around them."""
    made = Maker()
    made.conv("conv", made.input("x", [1, 4, 8, 8]), 4, 4)
    made.input("choice", [], TensorProto.BOOL)
    ways = []
    for op_type in ("Relu", "Sigmoid"):
        out = helper.make_tensor_value_info(op_type, FLOAT, [1, 4, 8, 8])
        ways.append(helper.make_graph([helper.make_node(op_type, ["conv"], [op_type])], op_type, [], [out]))
    made.info("chosen", [1, 4, 8, 8])
    made.op("If", ["choice"], "chosen", then_branch=ways[0], else_branch=ways[1])
    return made.model(made.conv("after", "chosen", 4, 8))


MODELS = {make.__name__: make for make in (conv_norm_relu, branches, mlp, attention, inception_block, with_if)}
"""All that need no shapes but `attention`, of which the batch is open."""
