"""BERT as AutoGraph counts it."""

from small import macs

from workloads import load


def test_bert_of_autograph():
    """8 layers of attention: four products of 1024 rows with 1024 x 1024 weights, and for each of 16 * 16 heads two
    of 64 x 64 by 64 x 64.
    """
    assert macs(load("autograph_bert"), "linear", "matmul") == 8 * (4 * 1024**3 + 2 * 256 * 64**3)
    assert len(load("autograph_bert", layers=2).blocks) == 2
