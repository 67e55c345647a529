"""Inception v3: its first operators by hand."""

from small import works

from simsched.model.graph import Work
from workloads import load


def test_first_operators_of_inception():
    """(299 - 3) // 2 + 1 = 149 pixels a side, M = 149^2 = 22,201, 3 * 3 * 3 = 27 weights per output.
    FLOP 2 * 22,201 * 32 * 27 = 38,363,328. Bytes 4 * (3 * 299^2 + (27 + 1) * 32 + 32 * 22,201)
    = 1,072,812 + 3,584 + 2,841,728 = 3,918,124.
    Pool: 147 -> (147 - 3) // 2 + 1 = 73: 64 * 73^2 = 341,056 outputs of 9 operations; bytes 4 * (64 * 147^2 + 341,056)
    = 5,531,904 + 1,364,224 = 6,896,128. Join: 256 channels of 35^2 pixels, in and out: 2,508,800 bytes.
    """
    graph = load("inception_v3")
    conv, pool, concat = graph["stem.conv1"], graph["stem.pool1"], graph["mixed_5b.concat"]
    assert (conv.input_shapes, conv.output_shape) == (((1, 3, 299, 299),), (1, 32, 149, 149))
    assert (conv.flops, conv.weight_nbytes, conv.nbytes, conv.intensity) == (38_363_328, 3_584, 3_918_124, "compute")
    assert works(conv) == (
        Work(
            "convolution",
            "strided",
            38_363_328.0,
            1_072_812.0,
            3_584.0,
            2_841_728.0,
            rows=22_201,
            columns=32,
            inner=27,
            window=9,
            elements=3 * 299**2,
            tf32=True,
        ),
    )
    assert works(pool) == (
        Work("elementwise", "pool", 3_069_504.0, 5_531_904.0, 0.0, 1_364_224.0, rows=341_056, window=9),
    )
    window = {"kernel": [3, 3], "stride": [2, 2], "padding": [0, 0]}
    assert dict(conv.attributes) == window | {"groups": 1, "out_channels": 32, "activation": "relu"}
    assert (pool.flops, pool.weight_nbytes, pool.nbytes, pool.intensity) == (3_069_504, 0, 6_896_128, "memory")
    assert dict(pool.attributes) == window | {"pool": "max"}
    assert [shape[1] for shape in concat.input_shapes] == [64, 64, 96, 32]
    assert (concat.flops, concat.nbytes) == (0, 2_508_800)
    assert works(concat) == (Work("elementwise", "copy", 0.0, 1_254_400.0, 0.0, 1_254_400.0, rows=256 * 35**2),)
    assert all(e.nbytes == graph[e.src].output_nbytes for e in graph.edges)
    assert graph.width == 6  # in an E block 1x1, both ends of each of two forks, and the pool
