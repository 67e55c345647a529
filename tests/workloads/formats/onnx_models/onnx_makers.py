"""ONNX models made by hand, in ONNX's text format."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper
from onnx.parser import parse_model


def model(text, opset=17, **weights):
    """A model; weights by name are shapes of zeros, or numbers, or as they stand in a file."""
    made = parse_model(f'<ir_version: 8, opset_import: ["": {opset}, "com.acme": 1]> by_hand {text}')
    for name, given in weights.items():
        if not isinstance(given, TensorProto):
            values = np.zeros(given, np.float32) if isinstance(given, tuple) else np.array(given)
            given = numpy_helper.from_array(values)
        given.name = name
        made.graph.initializer.append(given)
    return made


def external(elem, *shape):
    """Weights that are said to stand in a file that does not exist."""
    proto = TensorProto(data_type=elem, dims=shape, data_location=TensorProto.EXTERNAL)
    proto.external_data.add(key="location", value="there is no such file")
    return proto


def operator(op_type, *shapes, weights=(), opset=17, n_outputs=1, **attributes):
    """A model of one operator, `y0`, that reads inputs of such shapes and then weights, None for what is left out."""
    reads = [f"x{i}" for i in range(len(shapes))]
    kept = {f"w{i}": given for i, given in enumerate(weights) if given is not None}
    inputs = ", ".join(f"float{list(shape)} {name}" for name, shape in zip(reads, shapes, strict=True))
    made = model(f"({inputs}) => (y0) {{}}", opset, **kept)
    reads += [name if (name := f"w{i}") in kept else "" for i in range(len(weights))]
    made.graph.node.append(helper.make_node(op_type, reads, [f"y{i}" for i in range(n_outputs)], **attributes))
    return made


_HEADS = """ {0} = MatMul (x, w{0})  {0}_bias = Add ({0}, b{0})  {0}_heads = Reshape ({0}_bias, split)
            {0}_turned = Transpose <perm = {1}> ({0}_heads)"""
_Q, _K, _V = (_HEADS.format(part, [0, 2, 3, 1] if part == "k" else [0, 2, 1, 3]) for part in "qkv")
MODELS = {
    # a convolution of 3 channels to 16 on 8 x 8 pixels, normalised, with activation
    "conv_norm_relu": (
        """(float[1, 3, 8, 8] x) => ("conv.relu") {
        conv = Conv <pads = [1, 1, 1, 1]> (x, w)
        "conv.norm" = BatchNormalization (conv, n0, n1, n2, n3)  "conv.relu" = Relu ("conv.norm")
     }""",
        {"w": (16, 3, 3, 3)} | {f"n{i}": (16,) for i in range(4)},
    ),
    # two convolutions of one input, the first with activation, a pool of it, and their concatenation
    "branches": (
        """(float[2, 8, 4, 4] x) => (both) {
        left = Conv (x, v)  "left.relu" = Relu (left)  right = Conv <pads = [1, 1, 1, 1]> (x, w)
        pool = AveragePool <kernel_shape = [3, 3], pads = [1, 1, 1, 1], count_include_pad = 1> (x)
        both = Concat <axis = 1> ("left.relu", right, pool)
     }""",
        {"v": (16, 8, 1, 1), "w": (24, 8, 3, 3)},
    ),
    # three Gemm of a batch of 5 rows of 10 features, with 20, 30 and 4 outputs
    "mlp": (
        """(float[5, 10] x) => (fc2) {
        fc0 = Gemm <transB = 1> (x, w0, b0)            "fc0.relu" = Relu (fc0)
        fc1 = Gemm <transB = 1> ("fc0.relu", w1, b1)   "fc1.relu" = Relu (fc1)
        fc2 = Gemm <transB = 1> ("fc1.relu", w2, b2)
     }""",
        {"w0": (20, 10), "b0": (20,), "w1": (30, 20), "b1": (30,), "w2": (4, 30), "b2": (4,)},
    ),
    # self-attention of 2 sequences of 6 tokens in 4 heads of 8, the shapes worked out in the graph
    "attention": (
        f"""(float[batch, 6, 32] x) => (out)
     <int64 zero = {{0}}, int64 one = {{1}}, int64[1] axis = {{0}}, int64[2] each = {{4, 8}}, int64[1] all = {{32}},
      float scale = {{2.8}}> {{
        shape = Shape (x)
        batch = Gather (shape, zero)  batches = Unsqueeze (batch, axis)
        length = Gather (shape, one)  lengths = Unsqueeze (length, axis)
        split = Concat <axis = 0> (batches, lengths, each)
        joined = Concat <axis = 0> (batches, lengths, all) {_Q} {_K} {_V}
        scores = MatMul (q_turned, k_turned)  scaled = Div (scores, scale)
        weights = Softmax <axis = -1> (scaled)  mixed = MatMul (weights, v_turned)
        mixed_turned = Transpose <perm = [0, 2, 1, 3]> (mixed)
        mixed_joined = Reshape (mixed_turned, joined)  out = MatMul (mixed_joined, wo)
     }}""",
        {f"w{part}": (32, 32) for part in "qkvo"} | {f"b{part}": (32,) for part in "qkv"},
    ),
    # a choice between two ways to go on, in graphs of their own that read a tensor from around them
    "with_if": (
        """(float[1, 4, 8, 8] x, bool choice) => (after) <float[1, 4, 8, 8] chosen> {
        conv = Conv (x, v)
        chosen = If (choice) <
            then_branch = one () => (float[1, 4, 8, 8] a) { a = Relu (conv) },
            else_branch = other () => (float[1, 4, 8, 8] b) { b = Sigmoid (conv) }
        >
        after = Conv (chosen, w)
     }""",
        {"v": (4, 4, 1, 1), "w": (8, 4, 1, 1)},
    ),
}
"""Texts and weights of models; all need no shapes but `attention`, of which the batch is open."""


def made(name):
    """One of `MODELS`."""
    text, weights = MODELS[name]
    return model(text, **weights)
