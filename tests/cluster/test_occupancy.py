"""CUDA occupancy against cases worked by hand from the published limits of each compute capability.

Registers are allocated per warp in units of 256 and live in four partitions; a block holds
ceil(threads / 32) warps. From 8.0 on the system takes 1 KiB of shared memory per block.
"""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simsched.base.errors import ClusterError
from simsched.model.cluster import DEVICES, Cluster, footprint, occupancy
from simsched.model.graph import Kernel

K80, V100, TURING, A100, A40, H100 = (
    Cluster.preset(name).devices[0] for name in ("k80", "v100", "rtx2080ti", "a100", "a40", "h100")
)
KIB = 1024

CASES = [
    # cc 3.7: 2048 threads, 16 blocks, 131072 registers, 112 KiB; 48 KiB per block; shared memory by 256 bytes
    ("k80-blocks", K80, (64, 16, 0), 16, "blocks"),  # 2 warps: 64 / 2 = 32; 16 blocks at most
    # 8 warps: 64 / 8 = 8 blocks; a warp takes 64 x 32 = 2048: 32768 / 2048 = 16 x 4 = 64 warps, 8 blocks as well
    ("k80-threads", K80, (256, 64, 0), 8, "threads"),
    # 255 x 32 = 8160 -> 8192 per warp: 32768 / 8192 = 4 x 4 = 16 warps; 8 warps: 2 blocks
    ("k80-registers", K80, (256, 255, 0), 2, "registers"),
    ("k80-shared", K80, (128, 32, 40 * KIB), 2, "shared_memory"),  # 112 / 40 = 2.8
    # cc 7.0: 2048, 32, 65536, 96 KiB; 96 KiB per block
    ("v100-threads", V100, (1024, 32, 0), 2, "threads"),  # 32 warps: 64 / 32; registers: 16384 / 1024 = 16 x 4 / 32 = 2
    ("v100-blocks", V100, (32, 32, 0), 32, "blocks"),  # 1 warp: 64, but 32 blocks
    # 96 x 32 = 3072 per warp: 16384 / 3072 = 5 x 4 = 20 warps; 4 warps: 5 blocks
    ("v100-registers", V100, (128, 96, 0), 5, "registers"),
    ("v100-shared", V100, (128, 32, 33 * KIB), 2, "shared_memory"),  # 96 / 33 = 2.9
    ("v100-whole-sm", V100, (128, 32, 96 * KIB), 1, "shared_memory"),  # one block may have all of it
    # cc 7.5: 1024, 16, 65536, 64 KiB; 64 KiB per block
    ("turing-threads", TURING, (256, 32, 0), 4, "threads"),  # 32 warps / 8
    ("turing-blocks", TURING, (64, 32, 1000), 16, "threads"),  # 32 / 2 = 16 of 16; 1024 bytes: 64; of equals the first
    ("turing-shared", TURING, (64, 32, 9 * KIB), 7, "shared_memory"),  # 64 / 9 = 7.1
    # cc 8.0: 2048, 32, 65536, 164 KiB; 163 KiB per block; 1 KiB reserved, by 128 bytes
    ("a100-shared", A100, (128, 32, 40 * KIB), 4, "shared_memory"),  # 164 / 41 = 4
    # 41 KiB + 1 byte -> 42112 bytes with the next 128: 167936 / 42112 = 3.99
    ("a100-granularity", A100, (128, 32, 40 * KIB + 1), 3, "shared_memory"),
    ("a100-most-shared", A100, (128, 32, 163 * KIB), 1, "shared_memory"),  # 163 + 1 = 164
    # 33 registers -> 1056 -> 1280 per warp: 16384 / 1280 = 12 x 4 = 48 warps; 8 warps: 6 blocks (65536 / 33 / 256 = 7)
    ("a100-register-unit", A100, (256, 33, 0), 6, "registers"),
    # 7 warps of 2048: 8 x 4 = 32 warps / 7 = 4; threads: 64 / 7 = 9
    ("a100-odd-warps", A100, (224, 64, 0), 4, "registers"),
    # 97 threads are 4 warps: 64 / 4 = 16 blocks; registers 64 warps / 4 = 16
    ("a100-part-warp", A100, (97, 32, 0), 16, "threads"),
    # cc 8.6: 1536, 16, 65536, 100 KiB; 99 KiB per block
    ("a40-threads", A40, (512, 32, 0), 3, "threads"),  # 48 / 16
    ("a40-threads-1024", A40, (1024, 32, 0), 1, "threads"),  # 48 / 32 = 1.5
    ("a40-blocks", A40, (64, 32, 0), 16, "blocks"),  # 48 / 2 = 24, but 16
    ("a40-shared", A40, (64, 32, 24 * KIB), 4, "shared_memory"),  # 100 / 25
    ("a40-registers", A40, (256, 128, 0), 2, "registers"),  # 4096 per warp: 4 x 4 = 16 warps / 8
    # cc 9.0: 2048, 32, 65536, 228 KiB; 227 KiB per block
    ("h100-shared", H100, (128, 32, 56 * KIB), 4, "shared_memory"),  # 228 / 57
    # 5376 per warp: 3 x 4 = 12 / 12 = 1; shared 1, named later
    ("h100-most-shared", H100, (384, 168, 227 * KIB), 1, "registers"),
    ("h100-registers", H100, (128, 255, 0), 2, "registers"),  # 8192: 2 x 4 = 8 warps / 4
    ("h100-threads", H100, (128, 32, 12 * KIB), 16, "threads"),  # 64 / 4 = 16; 228 / 13 = 17; registers 16
]


@pytest.mark.parametrize("case", CASES, ids=[case[0] for case in CASES])
def test_occupancy_by_hand(case):
    _, device, kernel, blocks, limited_by = case
    found = occupancy(device, Kernel(1, *kernel))
    assert (found.blocks, found.limited_by) == (blocks, limited_by)


def test_footprint_is_rounded_up_as_allocated():
    """97 threads are 4 warps; 33 x 32 = 1056 -> 1280 registers per warp, 5120; 1000 + 1024 = 2024 -> 2048 bytes."""
    need = footprint(A100, Kernel(1, 97, 33, 1000))
    assert (need.warps, need.registers, need.shared_memory) == (4, 5120, 2048)


def test_no_shared_memory_before_ampere_takes_none():
    assert footprint(V100, Kernel(1, 32, 16, 0)).shared_memory == 0
    assert footprint(A100, Kernel(1, 32, 16, 0)).shared_memory == 1024


@pytest.mark.parametrize(
    ("device", "kernel", "limit"),
    [
        (V100, (32, 256, 0), "registers"),  # at most 255 per thread
        (A100, (1024, 65, 0), "registers"),  # 65 x 32 = 2080 -> 2304 x 32 warps = 73728 > 65536
        (A100, (416, 160, 0), "registers"),  # 13 warps of 5120: three fit a partition, 12 in all
        (V100, (128, 32, 96 * KIB + 1), "shared_memory"),
        (TURING, (128, 32, 65 * KIB), "shared_memory"),
        (A100, (128, 32, 163 * KIB + 1), "shared_memory"),
        (K80, (128, 32, 49 * KIB), "shared_memory"),  # an SM has 112 KiB, but a block may have 48
        (H100, (128, 32, 228 * KIB), "shared_memory"),
        (replace(A100, threads_per_sm=512), (1024, 16, 0), "threads"),
    ],
)
def test_a_kernel_that_fits_nowhere(device, kernel, limit):
    text = rf"a block of {kernel[0]} threads, .* does not fit on an SM of {device.model} \({limit}\)"
    with pytest.raises(ClusterError, match=text):
        occupancy(device, Kernel(1, *kernel))


@settings(deadline=None, max_examples=200)
@given(st.sampled_from(sorted(DEVICES)), st.integers(1, 1024), st.integers(1, 255), st.integers(0, 100 * KIB))
def test_resident_blocks_fit_and_one_more_does_not(gpu, threads, registers, shared_memory):
    """Counted out: four partitions dealt to warps one by one, until something runs short."""
    device = Cluster.preset(gpu).devices[0]
    warps, per_warp = (threads + 31) // 32, (registers * 32 + 255) // 256 * 256
    unit = device.shared_memory_granularity
    shared = -(-(shared_memory + device.shared_memory_reserved) // unit) * unit

    def fits(blocks):
        return (
            blocks <= device.blocks_per_sm
            and blocks * warps * 32 <= device.threads_per_sm
            and blocks * warps <= 4 * (device.registers_per_sm // 4 // per_warp)
            and blocks * shared <= device.shared_memory_per_sm
        )

    too_large = shared_memory > device.shared_memory_per_block or per_warp * ((warps + 3) // 4 * 4) > 65536
    try:
        blocks = occupancy(device, Kernel(1, threads, registers, shared_memory)).blocks
    except ClusterError:
        assert too_large or not fits(1)
    else:
        assert not too_large
        assert fits(blocks)
        assert not fits(blocks + 1)
