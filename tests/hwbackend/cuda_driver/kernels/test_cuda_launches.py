"""The launches of synthetic operators: kernels, grids, arguments and costs, as plain data."""

import numpy as np
import pytest

from hwbackend.cuda.kernels import launches as cuda
from hwbackend.cuda.kernels.sources import variant_of
from simsched.base.errors import BackendError
from simsched.model.graph import Kernel, Operator


def test_a_synthetic_operator():
    """8192 FLOP in 4 blocks of 32 threads are 64 of a thread, 8 for an iteration; 1280 bytes are 10 words a block."""
    kernel = Kernel(4, 32, 32, 10_000)
    op = Operator("s", "synth", flops=8192, nbytes=1280, kernels=(kernel,))
    (launch,) = cuda.launches_of(op, [256, 15])
    assert (launch.kernel, launch.grid, launch.block) == ("synth", (4, 1, 1), (32, 1, 1))
    assert launch.shared_memory == 10_000 - 4
    assert launch.arguments == (
        cuda.WordTable((cuda.Input(0), 256, cuda.Input(1), 15)),
        2,
        cuda.NumberArgument("constant", 0.5, 0.1),
        cuda.Output(),
        256,
        8,
        4,
        10,
        cuda.StreamBuffer("source"),
        cuda.StreamBuffer("sink"),
        cuda.STREAM_NBYTES // 16,
        0,
        cuda.Stamps(),
        cuda.BlockStamps(),
    )
    assert {type(n) for n in launch.arguments if not hasattr(n, "__dataclass_fields__")} == {np.int32}
    (alone,) = cuda.launches_of(op)
    assert alone.arguments[:2] == (None, 0)
    assert cuda.output_size(op) == 256
    assert cuda.output_size(Operator("s", "synth", output_shape=(2, 3))) == 6


def test_chains_and_time_of_each_kernel():
    """Two kernels that share FLOP 1 to 3 and last 1.5 and 2 us: only the second writes the output."""
    kernels = (Kernel(1, 32, share=0.25), Kernel(1, 32, share=0.75))
    op = Operator("s", "synth", flops=32 * 8 * 4, kernels=kernels, attributes={"chains": 1, "hold": [1.5, 2.0]})
    first, second = cuda.launches_of(op)
    assert [[int(launch.arguments[k]) for k in (5, 6, 11)] for launch in (first, second)] == [
        [1, 1, 1500],
        [3, 1, 2000],
    ]
    assert (first.arguments[3], second.arguments[3]) == (cuda.Scratch(0, 1024), cuda.Output())
    assert cuda.scratch_of([first, second]) == (cuda.Scratch(0, 1024),)


@pytest.mark.parametrize(
    ("registers", "threads", "name"),
    [
        (1, 1024, "synth"),
        (32, 256, "synth"),
        (33, 1024, "synth_64"),
        (60, 512, "synth_128"),  # that of 64 has 59 as compiled
        (128, 512, "synth_128"),
        (128, 544, "synth_64"),  # no block of more than 512 threads has 128
        (168, 384, "synth_168"),
        (255, 32, "synth_255"),  # the most there is
    ],
)
def test_which_kernel_has_the_registers(registers, threads, name):
    assert variant_of(Kernel(1, threads, registers)) == name


@pytest.mark.parametrize(
    ("op", "reads", "reason"),
    [
        (Operator("op", "conv", kernels=(Kernel(1),)), (), "realise the graph first"),
        (Operator("op", "synth"), (), "must have a kernel"),
        (Operator("op", "synth", flops=1e15, kernels=(Kernel(1, 1),)), (), "more than 32 bits"),
        (Operator("op", "synth", kernels=(Kernel(1),), attributes={"hold": [3e6]}), (), "more than 32 bits"),
        (Operator("op", "synth", kernels=(Kernel(1),), output_shape=(2**30 + 1,)), (), "more than 2\\^30"),
        (Operator("op", "synth", kernels=(Kernel(1),)), (2**30 + 1,), "more than 2\\^30"),
        (Operator("op", "synth", kernels=(Kernel(1),), attributes={"chains": 3}), (), "one of 1, 2, 4, not 3"),
        (Operator("op", "synth", kernels=(Kernel(1),), attributes={"hold": []}), (), "0 times, but it has 1 kernels"),
    ],
)
def test_an_operator_that_cannot_be_launched_is_refused(op, reads, reason):
    """In one line, that names the operator and its kind and what to do instead."""
    with pytest.raises(BackendError, match=rf"operator 'op' of kind {op.kind!r}.*{reason}.*\Z"):
        cuda.launches_of(op, reads)
