"""GoogLeNet as in its paper."""

import pytest
from small import macs

from workloads.models.googlenet import googlenet


def test_googlenet_of_the_paper():
    """5x5 windows add 16 weights per channel pair in the third branches: 28^2 * 16 * (16 * 32 + 32 * 96)
    + 14^2 * 16 * (16 * 48 + 2 * 24 * 64 + 32 * 64 + 32 * 128) + 7^2 * 16 * (32 * 128 + 48 * 128)
    = 44,957,696 + 31,309,824 + 8,028,160 = 84,295,680. The 3x3 pool leaves 7 x 7 pixels of 14 x 14, as the 2x2.
    """
    graph, paper = googlenet(), googlenet(form="paper")
    assert macs(paper, "conv") - macs(graph, "conv") == 84_295_680
    assert (paper["pool4"].flops, graph["pool4"].flops) == (832 * 49 * 9, 832 * 49 * 4)
    assert paper.edge_nbytes == pytest.approx(graph.edge_nbytes)
