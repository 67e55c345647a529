"""Kernels chosen for works, and their times, worked by hand from the rules of each family.

An H100 has 132 SMs of 128 lanes at 1980 MHz, 3352 GB/s, 50 MiB of L2; fp32 66.9, fp16 989.4 TFLOP/s.
"""

from dataclasses import replace

import pytest

from simsched.base.errors import GraphError
from simsched.model.cluster import Cluster
from simsched.model.graph import Kernel, Work
from simsched.model.libraries import choose, given_terms, unshaped_terms

H100, A100, V100 = (Cluster.preset(name).devices[0] for name in ("h100", "a100", "v100"))
IEEE = replace(H100, peak={dtype: rate for dtype, rate in H100.peak.items() if dtype != "tf32"})


def product(rows, columns, inner, width=4, **sizes):
    return Work(
        "product",
        flops=2.0 * rows * columns * inner,
        reads=rows * inner * width,
        weights=inner * columns * width,
        writes=rows * columns * width,
        rows=rows,
        columns=columns,
        inner=inner,
        **sizes,
    )


def convolution(images, channels, size, taps, columns, width, rule="strided", **sizes):
    """A convolution that keeps the size of its images."""
    pixels = images * size * size
    return Work(
        "convolution",
        rule,
        2.0 * pixels * columns * channels * taps,
        channels * pixels * width,
        columns * channels * taps * width,
        pixels * columns * width,
        rows=pixels,
        columns=columns,
        inner=channels * taps,
        window=taps,
        elements=channels * pixels,
        images=images,
        **sizes,
    )


def time(work, dtype, device, cached=True):
    return sum(launch.time for launch in choose(work, dtype, device, weights_cached=cached))


def test_a_small_product_of_tensor_cores_is_as_long_as_feeding_its_tiles():
    """64 x 512 by 512 x 1024: 64 x 8 tiles make 128 blocks, one an SM.

    Sequence: 512 x 2 bytes / 128 = 8 steps of 160 cycles, .65 us. Feed: 72 rows and columns x 1024 bytes / 52 a
    cycle = 1418 cycles, .716 us. Start 2.1 us.
    """
    (launch,) = choose(product(64, 1024, 512, 2), "fp16", H100, weights_cached=True)
    assert (launch.blocks, launch.threads, launch.registers, launch.efficiency) == (128, 384, 168, 1.0)
    assert launch.chain == 1280
    assert launch.chained == pytest.approx(8 * 160 / 1980)
    assert launch.compute == pytest.approx(72 * 1024 / 52 / 1980)
    assert launch.time == pytest.approx(2.1 + 0.7161, abs=1e-4)
    assert launch.tensor
    assert launch.traffic == 0


def test_a_product_of_whole_waves_takes_whole_tiles():
    """fp32 2048 x 2048 x 2048: 256 tiles of 128 x 128, two an SM, which holds two: 2 x 2 x 128 x 128 x 2048 FLOP
    at 1.04 of the 506.9 GFLOP/s of an SM, over 1 + 24 (1/128 + 1/128) = 1.375: 350.1 us. Start 2.3.

    It reads and writes 50.3 MB, 67 with what is written counted twice: no activations are found.
    """
    work = product(2048, 2048, 2048)
    (launch,) = choose(work, "fp32", H100, weights_cached=True)
    assert (launch.blocks, launch.registers, launch.efficiency) == (256, 255, 1.0)
    assert launch.compute == pytest.approx(2 * 2 * 128 * 128 * 2048 * 1.375 / (66.90816e6 / 132 * 1.04), rel=1e-6)
    assert launch.time == pytest.approx(2.3 + 350.05 + launch.tail, abs=0.1)


def test_one_row_is_a_product_by_a_vector():
    """fp32 1 x 4096 x 4096: 512 blocks; 67.1 MB of parameters from DRAM at .75 of 3352 GB/s: 26.7 us; 2.3 + 1.7."""
    work = product(1, 4096, 4096)
    (launch,) = choose(work, "fp32", H100, weights_cached=False)
    assert (launch.blocks, launch.threads) == (512, 128)
    assert launch.traffic == pytest.approx(4096 * 4096 * 4, rel=1e-6)
    assert launch.time == pytest.approx(2.3 + 67108864 / (3352e3 * 0.75) + 1.7, rel=1e-6)
    assert time(work, "fp32", H100) < launch.time / 2


def test_a_long_sum_of_few_tiles_is_taken_in_parts():
    """fp32 64 x 2048 x 512 without bias: two kernels. With one the parts take twice as long."""
    plain, biased = product(64, 512, 2048), product(64, 512, 2048, bias=True)
    first, last = choose(plain, "fp32", H100, weights_cached=True)
    assert first.blocks > 64
    assert (last.flops, first.flops) == (0, plain.flops)
    assert time(biased, "fp32", H100) > 1.3 * time(plain, "fp32", H100)


def test_tf32_is_for_convolutions_of_fp32_not_for_products():
    """As PyTorch has it; without the format on the device both are fp32."""
    work, image = product(4096, 4096, 4096), convolution(16, 256, 56, 9, 256, 4, tf32=True)
    assert not choose(work, "fp32", H100, weights_cached=True)[0].tensor
    assert choose(work, "tf32", H100, weights_cached=True)[0].tensor
    assert [launch.tensor for launch in choose(image, "fp32", H100, weights_cached=True)] == [False, False, True, False]
    assert [launch.tensor for launch in choose(image, "fp32", IEEE, weights_cached=True)] == [False]
    assert not choose(work, "bf16", V100, weights_cached=True)[0].tensor  # has no such tensor cores


def test_fp32_convolutions_before_hopper():
    """On a V100, 80 SMs of 64 lanes, by traces of it: tiles of at least 128 x 32, Winograd's algorithm for 3 x 3.

    ResNet-50, 32 images: the trace has 247 to 283 us for each of these 1 x 1 convolutions.
    """
    for size, channels, columns in ((14, 1024, 256), (14, 256, 1024), (7, 512, 2048)):
        (launch,) = choose(convolution(32, channels, size, 1, columns, 4, "plain"), "fp32", V100, weights_cached=False)
        assert launch.time == pytest.approx(265, rel=0.1)
    few = [choose(convolution(1, 256, 14, taps, 32, 4), "fp32", V100, weights_cached=True)[0] for taps in (1, 9)]
    assert [launch.blocks for launch in few] == [2, 2]
    assert few[1].chain == pytest.approx(9 * few[0].chain)
    assert few[1].compute == pytest.approx(9 * 0.77 * few[0].compute)
    strided = convolution(1, 256, 14, 9, 32, 4)
    strided = replace(strided, elements=4 * strided.elements)
    assert choose(strided, "fp32", V100, weights_cached=True)[0].compute == pytest.approx(9 * few[0].compute)


def test_pools_are_as_slow_as_an_sm_issues_instructions():
    """Four warps a cycle, whatever its lanes: 3 x 3 on 32 x 64 x 56 x 56, 166 us in a trace of an A100 of 64 lanes."""
    pixels = 32 * 64 * 56 * 56
    work = Work("elementwise", "pool", 9.0 * pixels, 16.0 * pixels, 0, 4.0 * pixels, rows=pixels, window=9)
    assert time(work, "fp32", A100) == pytest.approx(166, rel=0.15)


def test_layout_kernels_of_convolutions():
    """fp16: the image, the weights if there are several taps, and the output are turned round, tile by tile of 32 x 32.

    4 images of 28 x 28 and 128 channels: 25 x 4 x 4 = 400 tiles; weights 128 x 4 x 1 = 512. Not of plain products: 784
    pixels x 2 bytes are a multiple of 16; 289 x 2 are none. Not where channels lie last in memory.
    """
    works = {
        "taps": (convolution(4, 128, 28, 9, 128, 2), [400, 512, None, 400]),
        "plain": (convolution(4, 128, 28, 1, 128, 2, "plain"), [None]),
        "unaligned": (convolution(4, 768, 17, 1, 192, 2, "plain"), [960, None, 240]),
        "last": (convolution(4, 128, 28, 9, 128, 2, "channels_last"), [None]),
        "few channels": (convolution(4, 3, 28, 9, 128, 2), [None]),
    }
    for work, expected in works.values():
        launches = choose(work, "fp16", H100, weights_cached=True)
        assert [None if launch.flops else launch.blocks for launch in launches] == expected
        assert sum(launch.flops for launch in launches) == work.flops


def test_a_bias_of_a_convolution_is_a_kernel():
    plain, biased = (
        choose(convolution(1, 64, 28, 9, 64, 4, bias=bias), "fp32", IEEE, weights_cached=True) for bias in (False, True)
    )
    assert (len(plain), len(biased)) == (1, 2)
    assert biased[0] == plain[0]


def test_elementwise_streams():
    """relu of 2^28 numbers: 2.15 GB at .88 of 3352 GB/s: 728 us, and 1.25 and .6 us; a small one is found in L2."""
    n = 1 << 28
    (launch,) = choose(Work("elementwise", "map", n, 4 * n, 0, 4 * n, rows=n), "fp32", H100, weights_cached=True)
    assert (launch.blocks, launch.threads) == (1 << 18, 128)
    assert launch.time == pytest.approx(1.25 + 8 * n / (3352e3 * 0.88) + 0.6, rel=1e-6)
    (small,) = choose(Work("elementwise", "map", 1024, 4096, 0, 4096, rows=1024), "fp32", H100, weights_cached=True)
    assert (small.blocks, small.traffic) == (1, 0)
    assert small.time == pytest.approx(1.25 + 300 / 1980)


def test_only_rows_that_are_read_count():
    """256 rows of 64: 65536 bytes, and as many written, whatever the table; 160 cycles of an SM a row: .16 us."""
    work = Work("gather", "plain", 0, 0, 65536, 65536, rows=256, columns=64)
    (launch,) = choose(work, "fp32", H100, weights_cached=False)
    assert (launch.blocks, launch.traffic) == (256, 0)
    assert launch.compute == pytest.approx(160 * 256 / 132 / 1980)
    assert len(choose(replace(work, rows=1280, window=5), "fp32", H100, weights_cached=True)) == 2


def test_a_recurrence_is_a_chain_of_steps():
    """256 steps of 128 units: (36 + 1.65 x 256) us, one block."""
    work = Work("recurrence", rows=256, columns=128, inner=128, window=4, flops=16.0 * 256 * 128 * 128)
    *_, steps = choose(work, "fp32", H100, weights_cached=True)
    assert steps.blocks == 1
    assert steps.time == pytest.approx(36 + 1.65 * 256)


def test_decoding_is_a_block_for_each_head():
    """32 heads, 512 keys: 8 steps of .85 us and 3.2; 8192 keys in 8 parts and an adding kernel."""
    work = Work("attention", batch=32, rows=1, columns=512, inner=128, flops=4.0 * 32 * 512 * 128, reads=1e6)
    (launch,) = choose(work, "fp16", H100, weights_cached=True)
    assert launch.blocks == 32
    assert launch.time == pytest.approx(3.2 + 8 * 0.85)
    long = choose(replace(work, columns=8192), "fp16", H100, weights_cached=True)
    assert [launch.blocks for launch in long] == [256, 16]


def test_the_name_of_a_device_does_not_matter():
    work = product(64, 1024, 512)
    other = choose(work, "fp32", replace(H100, name="other", model="mine"), weights_cached=True)
    assert choose(work, "fp32", H100, weights_cached=True) == other


def test_a_device_without_a_capability_has_the_kernels_of_the_preset_most_like_it():
    work = product(512, 1024, 1024, 2)
    for device in (H100, A100, V100):
        unnamed = choose(work, "fp16", replace(device, capability=""), weights_cached=True)
        assert choose(work, "fp16", device, weights_cached=True) == unnamed


def test_grids_have_limits():
    with pytest.raises(GraphError, match=r"^relu1 needs 34,359,738,368 blocks of a kernel, and .* 2,147,483,647"):
        choose(Work("elementwise", "map", rows=1 << 45), "fp32", H100, weights_cached=True, name="relu1")


def test_given_kernels_are_no_faster_than_the_fullest_sm():
    """271 blocks on 132 SMs: one SM has three, and takes 3/271 of the FLOP at the peak of an SM."""
    flops = 1e12
    kernel = Kernel(2 * 132 + 7, 256)
    launch = given_terms(kernel, flops, 1e6, "fp32", H100)
    assert launch.compute == pytest.approx(3 * flops / 271 / (66.90816e6 / 132))
    assert flops / launch.time <= 271 / (3 * 132) * 66.90816e6
    assert given_terms(replace(kernel, efficiency=0.5), flops, 1e6, "fp32", H100).compute == 2 * launch.compute


def test_given_kernels_take_their_waves_of_chains():
    """An SM holds 8 blocks of 256 threads: 132 x 9 blocks are two waves of 19800 cycles, 20 us."""
    launch = given_terms(Kernel(132 * 9, 256, chain=19800.0), 0.0, 0.0, "fp32", H100)
    assert launch.chained == pytest.approx(20)
    assert launch.time == pytest.approx(22.1)


def test_operators_of_unknown_kernels_take_the_rates_of_the_device():
    """2.1 us and the longer of 1e12 FLOP at .75 of the peak and 1 GB at .75 of the bandwidth."""
    launch = unshaped_terms(1e12, 1e9, "fp32", H100)
    assert launch.blocks == 0
    assert launch.time == pytest.approx(2.1 + 1e12 / (66.90816e6 * 0.75))
    assert unshaped_terms(0, 1e9, "fp32", H100).time == pytest.approx(2.1 + 1e9 / (3352e3 * 0.75))


def test_engines_divide_keys_among_blocks():
    """One head, 8,192 keys: in 128 parts of a step of .85 us each, and 2.1 us for a kernel that adds them up.

    528 heads of 64 keys are two blocks for each place of 132 SMs, one step each: nothing is divided.
    """
    work = Work("attention", "divided", rows=8, columns=8192, inner=128, flops=1.0, reads=1e6)
    main, adding = choose(work, "fp16", H100, weights_cached=True)
    assert main.blocks == 128
    assert main.time == pytest.approx(3.2 + 0.85)
    assert adding.start == pytest.approx(2.1)
    (whole,) = choose(replace(work, batch=528, columns=64), "fp16", H100, weights_cached=True)
    assert whole.blocks == 528
    assert whole.time == pytest.approx(3.2 + 2 * 0.85)


def test_engines_divide_queries_among_blocks_of_64():
    """128 heads that share their keys, as in latent attention: two blocks for each part of the keys."""
    work = Work("attention", "divided", rows=128, columns=64, inner=576, flops=1.0, reads=1e6)
    (launch,) = choose(work, "fp16", H100, weights_cached=True)
    assert launch.blocks == 2


def test_engines_have_small_tiles_before_hopper():
    """A row of an expert is padded to 16 on an A100, not to 64; an H100's libraries have tiles of 8 rows anyway."""
    plain = replace(product(1, 8192, 4096, width=2), batch=8)
    engine = replace(plain, rule="engine")
    tiles = [choose(work, "fp16", A100, weights_cached=False)[0] for work in (plain, engine)]
    assert [launch.efficiency for launch in tiles] == [pytest.approx(1 / 64), pytest.approx(1 / 16)]
    assert tiles[1].compute < tiles[0].compute
    assert choose(engine, "fp16", H100, weights_cached=False) == choose(plain, "fp16", H100, weights_cached=False)
