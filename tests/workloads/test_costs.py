"""The rules of what operators cost and launch, worked by hand."""

import pytest

import workloads
from simsched.model import DTYPE_NBYTES, Cluster, Kernel, occupancy
from simsched.schedulers import schedule
from simsched.simulator import simulate
from workloads.costs import Costs


@pytest.mark.parametrize(("work", "kernel", "flops", "n_weights"), [
    # 200 pixels are 4 tiles, 48 channels a group 1, in 48 of 64 columns, 2 groups; 32 * 9 inputs an output, a bias
    (Costs().conv((2, 96, 10, 10), 64, (3, 3), groups=2), Kernel(8, 256, 64, 8704, efficiency=48 / 64),
     2 * 2 * 96 * 100 * 32 * 9, 96 * (32 * 9 + 1)),
    (Costs().conv((2, 96, 10, 10), 64, (3, 3), bias=False), Kernel(8, 256, 64, 8704),
     2 * 2 * 96 * 100 * 64 * 9, 96 * 64 * 9),
    (Costs().conv((2, 256, 10, 10), 64, (1, 1), groups=2), Kernel(16, 256, 64, 8704), 2 * 2 * 256 * 100 * 32, 256 * 33),
    # 1225 pixels by 96 channels in tiles of 32 x 32, of which a block makes one channel after the other
    (Costs(device="a100").conv((1, 96, 35, 35), 96, (3, 3), groups=96),
     Kernel(39 * 3, 128, 86, 64 * 68, efficiency=1 / 32), 2 * 96 * 1225 * 9, 96 * 10),
    # of 4 channels of 25 pixels each goes through 8 * 2 * 2 weights; the output has 100 pixels
    (Costs().conv_transpose((1, 8, 10, 10), (1, 4, 5, 5), (4, 8, 2, 2), groups=1), Kernel(2, 256, 64, 8704),
     2 * 4 * 25 * 8 * 4, 8 * 17),
    # 100 rows by 200 columns: 2 x 4 tiles of 64; a stack of 3 such products
    (Costs().linear(100, 50, 200), Kernel(8, 256, 64, 8704), 2 * 100 * 50 * 200, 51 * 200),
    (Costs().matmul(3, 100, 50, 200), Kernel(24, 256, 64, 8704), 3 * 2 * 100 * 50 * 200, 0),
    (Costs().rows((2, 5, 768), flops=8), Kernel(10, 256, 32, 1024), 10 * 768 * 8, 0),
    # 128 x 128 fills the 108 SMs exactly; else 128 x 64; 64 x 64 makes 106; where nothing does, the smallest
    (Costs(device="a100").linear(128 * 108, 64, 128), Kernel(108, 256, 128, 256 * 68), 2 * 128**2 * 108 * 64, 8320),
    (Costs(device="a100").linear(128 * 107, 64, 128), Kernel(214, 256, 96, 192 * 68), 2 * 128**2 * 107 * 64, 8320),
    (Costs(device="a100").linear(64 * 53, 64, 128), Kernel(212, 256, 82, 96 * 68), 2 * 128 * 64 * 53 * 64, 8320),
    (Costs(device="a100").linear(32, 64, 128), Kernel(4, 128, 86, 64 * 68), 2 * 128 * 32 * 64, 8320),
])  # fmt: skip
def test_work(work, kernel, flops, n_weights):
    assert work == (flops, n_weights, kernel)


@pytest.mark.parametrize(("dtype", "blocks"), [("fp64", 40), ("fp32", 40), ("tf32", 40), ("fp16", 20), ("int8", 10)])
def test_elementwise_threads_handle_four_bytes(dtype, blocks):
    """10,240 elements: a thread each from 4 bytes up, two of 2 bytes or four of 1 a thread; 256 threads a block."""
    work = Costs(dtype).elementwise((10, 1024), flops=3)
    assert (work.kernel, work.flops) == (Kernel(blocks, 256, 32), 30720)


def test_parts_of_the_inner_dimension():
    """128 x 1024 outputs, 12 warps that fill each of 108 SMs: 1296 warps.

    1024 values make 4 parts of 256: 128 x 64 tiles have 16 x 4 blocks, 64 x 64 have 32 x 4 = 128, the first to give
    every SM one. 4096 make 16: of 8 blocks of 128 x 128 with 8 warps each 1296 / 64 = 20 times as many would fill all.
    A convolution's are not cut.
    """
    costs = Costs(device="a100")
    assert costs.linear(128, 1024, 1024).kernel == Kernel(32 * 4, 256, 64, 128 * 68)
    assert costs.linear(128, 4096, 1024).kernel == costs.matmul(1, 128, 4096, 1024).kernel
    assert costs.linear(128, 4096, 1024).kernel == Kernel(8 * 16, 256, 128, 256 * 68)
    assert costs.conv((1, 1024, 8, 16), 4096, (1, 1)).kernel == Kernel(4 * 32, 128, 86, 64 * 68)


@pytest.mark.parametrize(
    "name", ["inception_v3", "randwire", "nasnet_mobile", "resnext50", "densenet121", "tiny_resnet"]
)
def test_newer_cards_are_quicker(name):
    """One operator after the other, in kernels tiled for each: a K80 takes longer than a V100, that than an A100."""
    clusters = {gpu: Cluster.preset(gpu) for gpu in ("k80", "v100", "a100")}
    plans = [schedule(workloads.load(name, device=gpu), cluster, "sequential") for gpu, cluster in clusters.items()]
    k80, v100, a100 = (simulate(*one).makespan for one in zip(plans, clusters.values(), strict=True))
    assert k80 > v100 > a100


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
    assert Costs(device="a100").intensity(True, 12.0, 1.0) == "memory"
    assert Costs(device="a100").intensity(False, 13.0, 1.0) == "compute"
