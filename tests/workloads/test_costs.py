"""The rules of what operators cost and launch, worked by hand."""

import pytest

from simsched.cluster import Cluster, occupancy
from simsched.graph import DTYPE_NBYTES, Kernel
from workloads.costs import Costs


def test_convolution():
    """2 images, 64 channels in 2 groups to 96 on 10 x 10: 200 pixels are 4 tiles, 48 channels a group 1, 2 groups;
    a weight for each of 32 * 9 inputs and an output's bias.
    """
    work = Costs().conv((2, 96, 10, 10), 64, (3, 3), groups=2)
    assert work.kernel == Kernel(8, 256, 64, 8704)
    assert work.flops == 2 * 2 * 96 * 100 * 32 * 9
    assert work.n_weights == 96 * (32 * 9 + 1)
    assert Costs().conv((2, 96, 10, 10), 64, (3, 3), groups=2, bias=False).n_weights == 96 * 32 * 9


def test_products():
    """100 rows by 200 columns: 2 x 4 tiles of 64; a stack of 3 such products has 24."""
    assert Costs().linear(100, 50, 200).kernel.blocks == 8
    assert Costs().linear(100, 50, 200)[:2] == (2 * 100 * 50 * 200, 51 * 200)
    assert Costs().matmul(3, 100, 50, 200).kernel.blocks == 24
    assert Costs().matmul(3, 100, 50, 200)[:2] == (3 * 2 * 100 * 50 * 200, 0)


@pytest.mark.parametrize(("dtype", "blocks"), [("fp64", 40), ("fp32", 40), ("tf32", 40), ("fp16", 20), ("int8", 10)])
def test_elementwise_threads_handle_four_bytes(dtype, blocks):
    """10,240 elements: a thread each from 4 bytes up, two of 2 bytes or four of 1 a thread; 256 threads a block."""
    work = Costs(dtype).elementwise((10, 1024), flops=3)
    assert work.kernel == Kernel(blocks, 256, 32)
    assert work.flops == 30720


def test_rows_have_a_block_each():
    assert Costs().rows((2, 5, 768), flops=8).kernel == Kernel(10, 256, 32, 1024)


@pytest.mark.parametrize(
    ("rows", "kernel"),
    [
        (128 * 108, Kernel(108, 256, 128, 256 * 68)),  # 128 x 128 fills the 108 SMs exactly
        (128 * 107, Kernel(214, 256, 96, 192 * 68)),  # so 128 x 64
        (64 * 53, Kernel(106 * 2, 128, 64, 96 * 68)),  # 64 x 64 makes 106
        (32, Kernel(4, 64, 64, 64 * 68)),  # nothing does: the smallest
    ],
)
def test_tiles_on_an_a100(rows, kernel):
    """128 columns; `rows` by the tile of the expected kernel."""
    assert Costs(device="a100").linear(rows, 64, 128).kernel == kernel


def test_elementwise_on_an_a100():
    """4 words a thread if that gives 108 blocks: from 107 * 1024 + 1 elements on; then 2, then 1."""
    blocks = [Costs(device="a100").elementwise((n,)).kernel.blocks for n in (107 * 1024 + 1, 107 * 1024, 107 * 512)]
    assert blocks == [108, 214, 214]


@pytest.mark.parametrize("dtype", DTYPE_NBYTES)
def test_every_tile_fits_every_device(dtype):
    for name in ("k80", "v100", "rtx2080ti", "a100", "a40", "h200"):
        device = Cluster.preset(name).devices[0]
        for columns in (32, 64, 128, 4096):
            costs = Costs(dtype if dtype in device.peak else "fp32", name)
            for work in (costs.linear(4096, 64, columns), costs.elementwise((columns,)), costs.rows((columns, 7))):
                assert occupancy(device, work.kernel).blocks >= 1


def test_intensity():
    """On no device by kind. On an A100 in fp32: 19.5 TFLOP/s over 1555 GB/s, 12.5 FLOP a byte."""
    assert Costs().intensity(True, 0.0, 1.0) == "compute"
    assert Costs().intensity(False, 1e9, 1.0) == "memory"
    on_device = Costs(device="a100")
    assert on_device.intensity(True, 12.0, 1.0) == "memory"
    assert on_device.intensity(False, 13.0, 1.0) == "compute"
