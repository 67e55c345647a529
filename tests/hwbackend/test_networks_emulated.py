"""Whole networks, operator by operator, on the CUDA kernels run by the host, against float64.

Each operator reads what the kernels of others wrote, and must make of it what its kind means.
"""

import numpy as np
import pytest
from emulated import close, expected, ran
from rewriting.interpreter import Weights, drawn, evaluate

from hwbackend.cuda_launches import edges_of_inputs, launches_of
from simsched.rewriting import RULES, Draft
from simsched.rewriting.merging import merge
from workloads import load
from workloads.models.nasnet import _normal_cell
from workloads.models.network import Network


def edges_into(graph, i):
    ptr, order = graph.incoming
    return [graph.edge(int(e)) for e in order[ptr[i] : ptr[i + 1]]]


def run(graph, *, values=None, sms=132):
    """Output of each operator of a graph; inputs of the network are drawn by shape and place."""
    options = {} if values is None else {"values": values}
    made, kinds = {}, set()
    for i in graph.order_index.tolist():
        op = graph.operator(i)
        sources = [edge.src for edge in edges_into(graph, i)]
        given = edges_of_inputs(op, [made[name].shape for name in sources])
        xs = [
            drawn(f"input {shape} {k}", shape) if edge is None else made[sources[edge]]
            for k, (edge, shape) in enumerate(zip(given, op.input_shapes, strict=True))
        ]
        shapes = [x.shape for x in xs]
        here = {key: (lambda p, op=op, value=value: value(op, p)) for key, value in options.items()}
        made[op.name] = ran(op, xs, sms=sms, reads=shapes, **here)
        kinds |= {launch.kernel for launch in launches_of(op, sms, shapes)}
        assert close(made[op.name], expected(op, xs, sms=sms, reads=shapes, **here)), op.name
    return made, kinds


@pytest.mark.parametrize("granularity", ["unit", "operator"])
def test_a_cell_of_nasnet(granularity):
    """Units of many parts: sequences that begin with an activation, sums of branches, "identity"."""
    net = Network("cell", granularity=granularity)
    x = net.conv("x", net.input(2, 3, 7, 7), 6, 1)
    before = net.conv("before", net.input(2, 3, 7, 7), 8, 1)
    _normal_cell(net, "cell", x, before, 4, True)
    made, kinds = run(net.graph())
    assert len(made) == len(net.graph())
    assert {"depthwise", "combine", "concat", "pool"} <= kinds


@pytest.mark.parametrize("batch", [1, 2])
def test_merged_convolutions(batch):
    """Branches of 1 x 1 and 3 x 3 become one convolution; with the same weights all values are as before."""
    graph = load("tiny_inception", image_size=10, batch=batch)
    merged, names = merge(graph, [("one", "three_1", "five_1")])
    assert any("slices" in op.attributes for op in merged.operators) == (batch == 1)
    weights = Weights(graph)

    def values(op, parameter):
        recipe = op.attributes.get("weights", {"of": op.name})
        return weights.make(recipe)[("weight", "bias").index(parameter.name)]

    made, _ = run(merged, values=values)
    before = evaluate(graph, weights)
    assert len(names[0]) == (1 if batch == 1 else 4)
    for name in ("three_2", "five_2", "join", "head"):
        assert close(made[name], before[name])


def test_rewritten_graphs():
    """Every rule once, on a block as single operators: what comes out still runs and means what it says."""
    net = Network("block", granularity="operator")
    x = net.conv("x", net.input(1, 3, 6, 6), 4, 1)
    left = net.conv("left", x, 5, 3, padding=1, norm=True)
    right = net.conv("right", x, 5, 1, norm=True)
    both = net.add("both", [net.activation("gate", left, "sigmoid"), net.batch_norm("again", right)])
    net.concat("join", [both, net.pool("pool", both, "avg", 3, stride=1, padding=1)])
    graph, used = net.graph(), []
    for name, rule in RULES.items():
        for match in rule.matches(Draft.from_graph(graph)):
            after = rule.apply(Draft.from_graph(graph), match)
            if after is None:
                continue
            rewritten = after.to_graph()
            made, _ = run(rewritten)
            assert all(np.isfinite(value).all() for value in made.values())
            used.append(name)
            break
    assert len(used) >= 3, used
