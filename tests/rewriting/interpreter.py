"""What a graph computes, in numpy and float64, with random weights: the same values whatever it was rewritten to.

Weights are drawn for each operator of the graph as it was at first, by its name; a rewritten one makes its own
of them by the recipe in its attributes. An input of the network is drawn by its shape, what an operator of kind
"source" writes by its name. What a graph does not say (the order of axes of a transposition, the part that an
imported slice cuts out) is made up, always the same way.
"""

from itertools import pairwise
from math import prod
from zlib import crc32

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

EPSILON = 1e-5
IDENTITIES = ("dropout", "flatten", "view", "transpose", "copy", "placeholder", "output")
ACTIVATIONS = {
    "relu": lambda x: np.maximum(x, 0.0),
    "sigmoid": lambda x: 1.0 / (1.0 + np.exp(-x)),
    "tanh": np.tanh,
    "gelu": lambda x: 0.5 * x * (1.0 + np.tanh(0.7978845608 * (x + 0.044715 * x**3))),
    "silu": lambda x: x / (1.0 + np.exp(-x)),
}


def centred(x):
    return (x - x.mean(-1, keepdims=True)) / (x.std(-1, keepdims=True) + EPSILON)


OF_ONE = ACTIVATIONS | {
    "square": lambda x: x**2,
    "softmax": lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True),
    "layer_norm": centred,
    "rms_norm": centred,
    **dict.fromkeys(IDENTITIES, lambda x: x),
}


def drawn(label, shape):
    return np.random.default_rng(crc32(label.encode())).normal(size=shape)


class Weights:
    """The parameters of a graph's operators, drawn by their names."""

    def __init__(self, graph):
        self.operators = {op.name: op for op in graph.operators}

    def of(self, name, part=None):
        """Parameters of an operator, or of a part of it, as (weight, bias)."""
        given, inputs = parts_of(self.operators[name])[part or 0]
        kind, output = given["kind"], given["output_shape"]
        name = name if part is None else f"{name}[{part}]"
        if kind == "conv":
            channels = inputs[0][1] // given["groups"]
            shape = (output[1], channels, *given["kernel"])
            return drawn(f"{name}.weight", shape) / np.sqrt(prod(shape[1:])), drawn(f"{name}.bias", output[1])
        if kind == "linear":
            bias = drawn(f"{name}.bias", output[-1]) * given.get("bias", True)
            return drawn(f"{name}.weight", (output[-1], inputs[0][-1])) / np.sqrt(inputs[0][-1]), bias
        if kind == "batch_norm":
            gamma, beta, mean, spread = (drawn(f"{name}.{what}", inputs[0][1]) for what in ("g", "b", "m", "v"))
            scale = gamma / np.sqrt(1.0 + np.abs(spread) + EPSILON)
            return scale, beta - mean * scale
        return drawn(f"{name}.constant", ()), None

    def make(self, recipe):
        """Parameters as a recipe says."""
        if "of" in recipe:
            return self.of(recipe["of"], recipe.get("part"))
        if "concat" in recipe:
            weights, biases = zip(*map(self.make, recipe["concat"]), strict=True)
            bias = np.concatenate(biases) if recipe["axis"] == 0 else sum(biases)
            return np.concatenate(weights, recipe["axis"]), bias
        if "pad" in recipe:
            weight, bias = self.make(recipe["pad"])
            before = [(big - small) // 2 for big, small in zip(recipe["kernel"], weight.shape[2:], strict=True)]
            after = [big - small - b for big, small, b in zip(recipe["kernel"], weight.shape[2:], before, strict=True)]
            return np.pad(weight, [(0, 0), (0, 0), *zip(before, after, strict=True)]), bias
        if "sum" in recipe:
            return tuple(map(sum, zip(*map(self.make, recipe["sum"]), strict=True)))
        if "normalized" in recipe:
            (weight, bias), (scale, shift) = self.make(recipe["normalized"]), self.make(recipe["by"])
            return weight * scale.reshape(-1, *[1] * (weight.ndim - 1)), bias * scale + shift
        if "bias" in recipe:
            weight, bias = self.make(recipe["bias"])
            return weight, bias * recipe["times"]
        if "ungrouped" in recipe:
            weight, bias = self.make(recipe["ungrouped"])
            before, after = recipe["groups"]
            per_group, channels = weight.shape[0] // before, weight.shape[1]
            wide = np.zeros((weight.shape[0], channels * before // after, *weight.shape[2:]))
            for o in range(weight.shape[0]):
                start = o // per_group % (before // after) * channels
                wide[o, start : start + channels] = weight[o]
            return wide, bias
        raise AssertionError(f"no recipe: {recipe}")


def parts_of(op):
    """The parts of an operator, or itself as the only one, each with the shapes of what it reads."""
    alone = {"kind": op.kind, "inputs": [~i for i in range(len(op.input_shapes))], "output_shape": op.output_shape}
    parts = op.attributes.get("parts", [op.attributes | alone])
    return [
        (part, [op.input_shapes[~r] if r < 0 else parts[r]["output_shape"] for r in part["inputs"]]) for part in parts
    ]


def convolved(x, weight, bias, given):
    n_axes = weight.ndim - 2
    x = np.pad(x, [(0, 0), (0, 0), *((p, p) for p in given["padding"])])
    reach = [d * (k - 1) + 1 for d, k in zip(given.get("dilation", [1] * n_axes), weight.shape[2:], strict=True)]
    windows = sliding_window_view(x, reach, axis=tuple(range(2, 2 + n_axes)))
    steps = tuple(slice(None, None, s) for s in given["stride"])
    holes = tuple(slice(None, None, d) for d in given.get("dilation", [1] * n_axes))
    windows = windows[(slice(None), slice(None), *steps, *holes)]
    groups = given.get("groups", 1)
    outs = []
    for mine, kernels in zip(np.split(windows, groups, 1), np.split(weight, groups, 0), strict=True):
        axes = [1, *range(mine.ndim - n_axes, mine.ndim)]
        outs.append(np.moveaxis(np.tensordot(mine, kernels, (axes, range(1, kernels.ndim))), -1, 1))
    return np.concatenate(outs, 1) + bias.reshape(1, -1, *[1] * n_axes)


def pooled(x, given, output):
    fill = -np.inf if "max" in given["pool"] else 0.0
    n_axes = len(given["kernel"])
    wide = [(0, 0), (0, 0)]
    for size, out, k, s, p in zip(
        x.shape[2:], output[2:], given["kernel"], given["stride"], given["padding"], strict=True
    ):
        wide.append((p, max(p, (out - 1) * s + k - size - p)))
    windows = sliding_window_view(np.pad(x, wide, constant_values=fill), given["kernel"], tuple(range(2, 2 + n_axes)))
    windows = windows[(slice(None), slice(None), *(slice(None, None, s) for s in given["stride"]))]
    windows = windows[(slice(None), slice(None), *(slice(out) for out in output[2:]))]
    axes = tuple(range(-n_axes, 0))
    return windows.max(axes) if "max" in given["pool"] else windows.mean(axes)


def computed(kind, xs, weight, bias, given, output):
    """Value of one operator or part; `weight` is a number for those that have no weights."""
    if kind == "conv":
        value = convolved(xs[0], weight, bias, given)
    elif kind == "linear":
        value = xs[0] @ weight.T + bias
    elif kind == "batch_norm":
        column = (1, -1, *[1] * (xs[0].ndim - 2))
        value = xs[0] * weight.reshape(column) + bias.reshape(column)
    elif kind == "matmul":
        value = xs[0] @ xs[1]
    elif kind == "pool":
        value = pooled(xs[0], given, output)
    elif kind == "concat":
        value = np.concatenate(xs, given["axis"])
    elif kind == "add":
        value = sum(xs) if len(xs) > 1 else xs[0] + weight
    elif kind == "mul":
        value = np.prod(xs, 0) if len(xs) > 1 else xs[0] * given.get("factor", weight)
    elif kind == "sub":
        value = xs[0] - xs[1] if len(xs) > 1 else weight - xs[0]
    elif kind == "reduce_sum":
        value = xs[0].reshape(*output, -1).sum(-1)
    elif kind == "embedding":
        value = np.sin(np.arange(output[-1]) * xs[0][..., None])
    elif kind == "slice" and "begin" in given:
        value = xs[0].take(range(given["begin"], given["end"]), given["axis"])
    elif kind == "slice":
        value = xs[0].reshape(-1)[: prod(output)]
    else:
        value = OF_ONE[kind](xs[0])
    value = value.reshape(output) if kind in (*IDENTITIES, "slice") else value
    assert value.shape == tuple(output), (kind, value.shape, output)
    return ACTIVATIONS[given["activation"]](value) if given.get("activation") else value


def evaluate(graph, weights):
    """Value of each operator of a graph, by name."""
    values = {}
    ptr, order = graph.incoming
    bounds = list(pairwise(ptr.tolist()))
    for i in graph.order_index.tolist():
        op = graph.operator(i)
        edges = [graph.edge(e) for e in order[slice(*bounds[i])].tolist()]
        values[op.name] = value_of(op, [read(values[e.src], op, j) for j, e in enumerate(edges)], weights)
    return values


def read(value, op, j):
    part = op.attributes.get("slices", {}).get(str(j))
    if part is None:
        return value
    axis, begin, end = part
    assert end <= value.shape[axis]
    return value.take(range(begin, end), axis)


def has_weights(kind, n_inputs, given):
    """Weights, or a constant that is no input."""
    return kind in ("conv", "linear", "batch_norm") or (
        kind in ("add", "mul", "sub") and n_inputs == 1 and "factor" not in given
    )


def value_of(op, xs, weights):
    if op.kind == "source":
        return drawn(f"source {op.name}", op.output_shape)
    if not xs:
        xs = [drawn(f"input {shape} {i}", shape) for i, shape in enumerate(op.input_shapes)]
    assert len(xs) == len(op.input_shapes), f"{op.name}: which inputs are the network's?"
    # an edge of a unit may carry a part, or what it carries be seen in another shape
    xs = [x.reshape(-1)[: prod(shape)].reshape(shape) for x, shape in zip(xs, op.input_shapes, strict=True)]
    made = []
    for i, (part, shapes) in enumerate(parts_of(op)):
        weight, bias = None, None
        if has_weights(part["kind"], len(shapes), part):
            own = {"of": op.name, "part": i} if "parts" in op.attributes else {"of": op.name}
            weight, bias = weights.make(part.get("weights", own))
        inputs = [xs[~r] if r < 0 else made[r] for r in part["inputs"]]
        inputs = [x.reshape(s) if x.size == prod(s) else x for x, s in zip(inputs, shapes, strict=True)]
        made.append(computed(part["kind"], inputs, weight, bias, part, part["output_shape"]))
    return made[-1]


def largest_error(graph, rewritten, original=None):
    """Largest difference, relative beyond 1, between the values of operators of both graphs; outputs are among them.

    `original` is what `graph` was rewritten from, if it was.
    """
    weights = Weights(original or graph)
    before, after = evaluate(graph, weights), evaluate(rewritten, weights)
    assert set(graph.outputs) <= set(after)
    assert all(np.isfinite(value).all() for value in before.values())
    common = [name for name in before if name in after]
    assert any(before[name].any() for name in common)
    return max(np.abs(before[name] - after[name]).max() / max(1.0, np.abs(before[name]).max()) for name in common)
