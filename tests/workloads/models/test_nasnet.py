"""NASNet: cells and separable units as published."""

from collections import Counter

import pytest
from small import macs, n_parameters

from workloads import load
from workloads.models.nasnet import nasnet_a_large, nasnet_mobile


def test_parallel_edges_of_nasnet_are_kept():
    """The end of the second stem cell reads its second sum twice, and that of the first cell of each size its
    left input, once joined and once added.
    """
    pairs = Counter((e.src, e.dst) for e in nasnet_a_large().edges)
    assert {pair for pair, n in pairs.items() if n > 1} == {
        ("stem1.sum1", "stem1.join"),
        *((f"cell{i}.left", f"cell{i}.join") for i in (0, 6, 12)),
    }


def test_nasnet_as_published():
    """4032 channels at the end, six tensors of 4 * 168 joined: the paper prints 23.8 G and 88.9 M parameters, and
    implementations have 88,753,150. Of the mobile one 5.3 M parameters and 564 M multiply-adds, classifier included.
    """
    large, mobile = nasnet_a_large(granularity="operator", variant="paper"), nasnet_mobile(granularity="operator")
    assert large["cell17.join"].output_shape == (1, 4032, 11, 11)
    assert macs(large, "conv") == pytest.approx(23.8e9, rel=2e-3)
    assert n_parameters(large) == 88_753_150
    assert mobile["cell11.join"].output_shape == (1, 1056, 7, 7)
    assert n_parameters(mobile) == pytest.approx(5.3e6, rel=0.01)
    assert macs(mobile, "conv", "linear") == pytest.approx(564e6, rel=1e-3)
    assert load("autograph_nasnet_a")["stem.conv"].input_shapes == ((1, 3, 224, 224),)


def test_separable_unit_of_nasnet():
    """Activation, depthwise 5 x 5 and 1 x 1 over 168 channels of 42 x 42: three works;
    168 * 25 and 168 * (168 + 1) weights, FLOP 42^2 * 168 * (1 + 2 * 25 + 2 * 168). Each work reads and writes.
    """
    op = nasnet_a_large()["cell1.0l.sep1"]
    parts = [(part["kind"], part["inputs"]) for part in op.attributes["parts"]]
    assert parts == [("relu", [-1]), ("conv", [0]), ("conv", [1])]
    assert [(work.rule, work.batch, work.columns, work.inner) for work in op.works] == [
        ("map", 1, 1, 1),
        ("strided", 168, 1, 25),
        ("plain", 1, 168, 168),
    ]
    assert op.weight_nbytes == 4 * (168 * 25 + 168 * 169)
    assert op.flops == 42 * 42 * 168 * (1 + 50 + 336)
    assert op.nbytes == 4 * (6 * 42 * 42 * 168) + op.weight_nbytes
