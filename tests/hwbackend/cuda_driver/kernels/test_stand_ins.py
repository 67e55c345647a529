"""Operators of networks without their kernels: stand-ins of the same launch shapes, bytes and time."""

import pytest
from fake_cuda import on_fake
from shortened import in_order

import workloads
from hwbackend.cuda.kernels.stand_ins import stand_in, with_stand_ins
from simsched.base.errors import BackendError
from simsched.calibration.training import random_schedule
from simsched.model import Cluster, Edge, Kernel, Operator, OpGraph
from simsched.model.costmodel import default_cost
from simsched.model.launches import kernels_on

H200 = Cluster.preset("h200").devices[0]


def test_a_recorded_operator():
    """264 blocks, of which 132 SMs hold one each (200 KB of shared memory of 228): two waves.

    Of 100 us the kernel has 0.6, so that a block lasts 30 us; the other, of one wave, 40 us. 1 GB takes longer than
    100 us, so that fewer bytes are moved; 1 GFLOP does not take as long, so that all is computed.
    """
    kernels = (Kernel(264, 384, 168, 200_000, share=0.6), Kernel(132, 128, 64, share=0.4))
    op = Operator("gemm", "linear", flops=1e9, nbytes=1e9, time=100.0, kernels=kernels, dtype="fp16", block="b")
    stand = stand_in(op, op.kernels, H200)
    assert (stand.name, stand.kind, stand.block, stand.time) == ("gemm", "synth", "b", 100.0)
    assert stand.kernels == kernels
    assert stand.attributes["hold"] == pytest.approx([30.0, 40.0])
    assert stand.flops == 1e9
    assert stand.nbytes == pytest.approx(100.0 * H200.bandwidth)


def test_flop_of_tensor_cores_do_not_take_longer_than_the_time():
    """One block of 8 warps: of 132 SMs, with 8 of the warps that fill one, it has 8 / (132 w) of the peak rate."""
    op = Operator("gemm", "linear", flops=1e12, time=10.0, kernels=(Kernel(1, 256),), dtype="fp16")
    load = 8 / (H200.sms * H200.saturating_warps)
    assert stand_in(op, op.kernels, H200).flops == pytest.approx(10.0 * load * H200.peak_rate("fp32"))


def test_libraries_choose_where_nothing_is_recorded():
    """A network without kernels has those of the model; operators that say nothing are left to be realised."""
    graph = workloads.load("tiny_inception")
    stands = with_stand_ins(graph, H200)
    assert stands.names == graph.names
    assert stands.edges == graph.edges
    for i, (op, stand) in enumerate(zip(graph.operators, stands.operators, strict=True)):
        assert stand.kernels == kernels_on(graph, H200).kernels(i)
        assert stand.time == pytest.approx(default_cost(op, H200))
    assert with_stand_ins(stands, H200) is stands
    plain = OpGraph([Operator("a", time=5.0)])
    assert with_stand_ins(plain, H200) is plain


def test_a_block_that_does_not_fit_is_named():
    op = Operator("huge", "conv", time=1.0, kernels=(Kernel(1, shared_memory=300_000),))
    with pytest.raises(BackendError, match=r"operator 'huge' of kind 'conv': .*shared memory"):
        stand_in(op, op.kernels, H200)


@pytest.mark.parametrize("execution", ["events", "stages", "graph"])
@pytest.mark.parametrize("name", ["tiny_inception", "tiny_resnet,granularity=operator", "tiny_transformer"])
def test_networks_are_replayed_and_said_to_be_stand_ins(name, execution):
    _, backend = on_fake("one", 1)
    graph = backend.realise(workloads.from_spec(name))
    assert {op.kind for op in graph.operators} == {"synth"}
    assert backend.realise(graph) is graph
    plan = random_schedule(graph, backend.cluster, rng=2, streams=3, execution=execution)
    replay = backend.replay(plan, repeats=1, warmup=0)
    assert replay.max_relative_error == 0.0
    assert replay.environment["kernels"] == "stand-ins"


def test_a_launch_has_the_shape_that_was_recorded():
    fake, backend = on_fake()
    kernels = (Kernel(7, 96, 100, 5000, share=0.5), Kernel(3, 64, 20, 0, share=0.5))
    op = Operator("a", "conv", flops=1e6, nbytes=1e5, time=8.0, kernels=kernels)
    graph = backend.realise(OpGraph([op, Operator("b", "relu", time=1.0, kernels=kernels)], [Edge("a", "b", 64.0)]))
    replay = backend.replay(in_order(graph), repeats=1, warmup=0)
    assert replay.environment["kernels"] == "stand-ins"
    (first, second) = graph.operators[0].kernels
    assert (first.blocks, first.threads, first.registers, first.shared_memory) == (7, 96, 136, 5000)
    assert (second.blocks, second.threads, second.registers, second.shared_memory) == (3, 64, 40, 16)
    launches = [call for call in fake.calls if call[0] == "launch"]
    assert {(call[2], call[3]) for call in launches} >= {((7, 1, 1), (96, 1, 1)), ((3, 1, 1), (64, 1, 1))}


def test_synthetic_operators_are_not_stand_ins():
    _, backend = on_fake()
    graph = OpGraph([Operator("a", time=5.0)])
    assert backend.replay(in_order(backend.realise(graph)), repeats=1).environment["kernels"] == "synthetic"
