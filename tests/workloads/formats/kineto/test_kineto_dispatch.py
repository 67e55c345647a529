"""Which kernels of a trace get their places first: by hand, times in us.

On an A100 of 108 SMs, of 2,048 threads each, 8 blocks of 256 threads fit on an SM: 864 blocks are a wave.
"""

import pytest

from simsched.experiments.whatif import parse_change
from workloads.formats.kineto.dispatch import as_dispatched
from workloads.formats.kineto.replay import replay_traced

WAVE = 108 * 8
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)"


def beside(program):
    """The replay with contention."""
    return replay_traced(program, [parse_change("contention=true")])


def test_a_kernel_of_unequal_blocks_leaves_room(made):
    """Ten waves of 60 us, were the blocks equal: others would get places after 540 us. One starts after 70 already.

    A kernel of as many equal blocks, 1,000 us later, makes the next one wait until its last wave, as measured.
    """
    made.launch(0, 1, 3, 600, name="cat", grid=10 * WAVE)
    made.launch(10, 1, 73, 20, stream=20, name="small")
    made.launch(1000, 1, 1003, 600, name="equal", grid=10 * WAVE)
    made.launch(1010, 1, 1545, 20, stream=20, name="small")
    program = made.program()
    blocks = as_dispatched(program).graph.kernel_blocks.tolist()
    assert blocks == [WAVE // 2, 64, 10 * WAVE, 64]
    assert program.graph.kernel_blocks.tolist()[0] == 10 * WAVE
    measured, simulated = beside(program).starts.T
    assert simulated == pytest.approx(measured, abs=65)  # a wave and a launch


def test_a_stream_of_collectives_goes_first(made):
    """A collective starts at the next end of a block of a kernel of ten waves; another kernel in its last wave."""
    made.launch(0, 1, 3, 600, name="long", grid=10 * WAVE)
    made.launch(10, 1, 65, 100, stream=21, name=NCCL, grid=8)
    made.launch(20, 1, 545, 20, stream=20, name="small")
    program = made.program()
    assert as_dispatched(program).priority.tolist() == [0, -1, 0]
    replay = beside(program)
    measured, simulated = replay.starts.T
    assert simulated == pytest.approx(measured, abs=60)  # a wave
    assert abs(replay.error) < 0.02


def test_streams_have_priority_by_most_of_their_kernels(made):
    """Kernels of stream 20 start sooner beside two kernels of three; those of stream 22 beside one of two."""
    for k in range(3):
        at = 2000.0 * k
        made.launch(at, 1, at + 3, 600, name="long", grid=10 * WAVE)
        made.launch(at + 10, 1, at + (65 if k else 545), 20, stream=20, name="first")
        made.launch(at + 20, 1, at + (75 if k == 1 else 570), 20, stream=22, name="last")
    program = made.program()
    is_first = {
        op.attributes["stream"]: row < 0
        for op, row in zip(program.graph.operators, as_dispatched(program).priority, strict=True)
    }
    assert is_first == {7: False, 20: True, 22: False}
