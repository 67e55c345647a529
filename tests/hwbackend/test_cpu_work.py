"""Which calls the cpu backend makes of operators, on two workers of 100,000 FLOP and 10,000 bytes per us."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import workloads
from hwbackend import cpu_work
from hwbackend.cpu_backend import _cluster
from hwbackend.cpu_work import Buffers, Piecework, Rates, measured_rates, realised_on, work_of
from simsched.base.errors import BackendError
from simsched.model.graph import Edge, Kernel, Operator, OpGraph
from simsched.model.schedule import Schedule

RATES = Rates(1e5, 1e4)
CLUSTER = _cluster(1, 2, RATES)


def realised(*operators):
    return realised_on(OpGraph(operators, [], "g"), CLUSTER, RATES).operators


def test_a_long_product_is_cut_into_blocks_of_200_us():
    """1.7e8 FLOP are 1700 us of one worker: 8 blocks of 212.5 us, four on each of two: 850 us."""
    (op,) = realised(Operator("a", "conv", flops=1.7e8, nbytes=1e6, kernels=(Kernel(500, 256, 64, 4096),)))
    assert (op.kind, op.flops, op.nbytes, op.intensity) == ("conv", 1.7e8, 1e6, "compute")
    assert op.kernels == (Kernel(8, 32, 32, 0),)
    assert op.time == pytest.approx(850.0)


def test_a_grid_has_at_most_its_blocks():
    """3 blocks of 1e8 FLOP / 3 take 333.3 us, in two waves."""
    (op,) = realised(Operator("a", "conv", flops=1e8, kernels=(Kernel(3),)))
    assert (op.kernels[0].blocks, op.time) == (3, pytest.approx(2000 / 3))


def test_no_more_than_eight_waves():
    """1e10 FLOP are 100,000 us of one worker: 16 blocks of 6250 us."""
    (op,) = realised(Operator("a", "conv", flops=1e10, kernels=(Kernel(1000),)))
    assert (op.kernels[0].blocks, op.time) == (16, pytest.approx(50_000.0))


def test_a_short_copy_becomes_one_block_of_200_us():
    """1e5 bytes would take 10 us; in 200 us 2e6 bytes are moved, and FLOP grow by the same factor."""
    (op,) = realised(Operator("a", "relu", flops=1e4, nbytes=1e5, kernels=(Kernel(80),)))
    assert (op.nbytes, op.flops, op.time, op.intensity) == (pytest.approx(2e6), pytest.approx(2e5), 200.0, "memory")
    assert op.kernels == (Kernel(1, 32, 32, 0),)


def test_kernels_keep_their_number_and_share_the_work():
    """Of 8e7 FLOP, 800 us, the kernel of one block has 1/5 of the time on one worker, that of two 4/5 on both: parts
    1/9 and 8/9. So 88.9 us become 200, and two blocks take 355.6 us each."""
    kernels = (Kernel(1, share=0.2), Kernel(2, share=0.8))
    (op,) = realised(Operator("a", "conv", flops=8e7, kernels=kernels))
    assert [kernel.blocks for kernel in op.kernels] == [1, 2]
    assert op.time == pytest.approx(200.0 + 800 * 8 / 9 / 2)
    assert [kernel.share * op.time for kernel in op.kernels] == pytest.approx([200.0, 800 * 4 / 9])


def test_a_kernel_of_which_only_the_time_is_known():
    """600 us on the whole device are 1200 us of one worker: six blocks, in three waves."""
    (op,) = realised(Operator("a", "op", time=600.0, kernels=(Kernel(100),)))
    assert (op.kernels[0].blocks, op.time, op.flops) == (6, pytest.approx(600.0), pytest.approx(1.2e8))


def test_an_operator_without_kernels():
    """A launch takes 30 us, 25 of them 750: 3000 us at utilization 1 are four kernels of two blocks, at half of one."""
    full, half = realised(
        Operator("a", time=3000.0, utilization=1.0, intensity="compute"),
        Operator("b", time=3000.0, utilization=0.5, intensity="memory"),
    )
    assert ([kernel.blocks for kernel in full.kernels], full.kind) == ([2] * 4, "synth")
    assert full.flops == pytest.approx(6e8)
    assert [kernel.blocks for kernel in half.kernels] == [1] * 4
    assert half.nbytes == pytest.approx(3e7)


def test_two_thirds_and_four_fifths_of_two_workers():
    """Of two blocks 0.66 are 1.3, which is one, and 0.8 are 1.6, which is two."""
    some, most = realised(
        Operator("a", time=500.0, utilization=0.66, intensity="compute"),
        Operator("b", time=500.0, utilization=0.8, intensity="compute"),
    )
    assert [len(op.kernels) for op in (some, most)] == [1, 1]
    assert [op.kernels[0].blocks for op in (some, most)] == [1, 2]


@pytest.mark.parametrize("time", [0.0, 20.0])
def test_one_that_is_too_short_takes_200_us(time):
    (op,) = realised(Operator("a", time=time, utilization=1.0, intensity="compute"))
    assert (op.time, op.kernels[0].blocks, op.flops) == (200.0, 2, pytest.approx(4e7))


def test_synthetic_operators_with_kernels_stay():
    given = Operator("a", "synth", flops=1e5, time=1.0, kernels=(Kernel(1, 32),))
    assert realised(given) == (given,)


@given(seed=st.integers(0, 1000))
def test_realising_twice_changes_nothing(seed):
    rng = np.random.default_rng(seed)
    operators = [
        Operator(
            f"op{i}",
            "conv",
            flops=float(rng.choice([0.0, 10 ** rng.uniform(4, 10)])),
            nbytes=float(rng.choice([0.0, 10 ** rng.uniform(3, 9)])),
            time=float(rng.uniform(0, 5000)) if rng.random() < 0.5 else None,
            kernels=tuple(
                Kernel(int(rng.integers(1, 300)), share=1 / n) for _ in range(n)
            ),
        )
        for i, n in enumerate(rng.integers(1, 4, size=5).tolist())
    ]  # fmt: skip
    once = realised_on(OpGraph(operators, [Edge("op0", "op1", 8.0)], "g"), CLUSTER, RATES)
    assert realised_on(once, CLUSTER, RATES) is once
    assert all(op.time >= 200.0 * len(op.kernels) * (1 - 1e-9) for op in once.operators)


def test_a_network_keeps_its_names_and_edges():
    graph = workloads.load("squeezenet")
    found = realised_on(graph, CLUSTER, RATES)
    assert found.names == graph.names
    assert list(found.edges) == list(graph.edges)
    assert all(len(new.kernels) == len(old.kernels) for new, old in zip(found.operators, graph.operators, strict=True))


def test_blocks_do_what_the_operator_says():
    """2.6e7 FLOP are a product of 198 rows of 256 with 256 x 256; 4e6 bytes are 500,000 floats, read and written."""
    graph = OpGraph(
        [
            Operator("a", "synth", flops=5.2e7, nbytes=1e5, kernels=(Kernel(2, 32),)),
            Operator("b", "synth", flops=1e6, nbytes=4e6, kernels=(Kernel(1, 32),)),
        ],
        [],
        "g",
    )
    program = Schedule.from_columns(graph, [0, 1], ("gpu0",)).lower(CLUSTER)
    work = work_of(program, Buffers(), 2, RATES)
    assert [len(blocks) for blocks in work.launches] == [2, 1]
    for (call,) in work.launches[0]:
        left, right, out = call.args
        assert call.func is np.matmul
        assert 2 * left.shape[0] * 256 * 256 == pytest.approx(2.6e7, rel=0.01)
        call()
        assert np.array_equal(out, left @ right)
    ((call,),) = work.launches[1]
    assert call.func is np.copyto
    assert [part.nbytes for part in call.args] == [2_000_000] * 2
    call()
    assert np.array_equal(*call.args)


def test_blocks_have_memory_of_their_own_until_all_is_given_away(monkeypatch):
    """Of a pool of 1000 floats, blocks of 400: the third begins from the front again."""
    monkeypatch.setattr(cpu_work, "_POOL", 1000)
    monkeypatch.setattr(cpu_work, "_LARGEST", 500)
    buffers = Buffers()
    first, second, third = (block[0].args[0] for block in buffers.blocks([Piecework(False, 3200.0)] * 3))
    assert not np.shares_memory(first, second)
    assert np.shares_memory(first, third)


def test_a_long_block_is_several_calls(monkeypatch):
    """1100 floats in calls of at most 500: three of 366."""
    monkeypatch.setattr(cpu_work, "_LARGEST", 500)
    (block,) = Buffers().blocks([Piecework(False, 8 * 1100.0)])
    assert [call.args[0].size for call in block] == [366] * 3


def test_without_memory(monkeypatch):
    def full(*args):
        raise MemoryError

    monkeypatch.setattr(np, "full", lambda shape, *rest: full() if shape != (256, 256) else np.ones(shape))
    with pytest.raises(BackendError, match="there is no memory for 8 MB of buffers"):
        Buffers().blocks([Piecework(False, 8e6)])


def test_rates_are_measured_once():
    rates = measured_rates()
    assert rates.flops > 0
    assert rates.nbytes > 0
    assert measured_rates() is rates
