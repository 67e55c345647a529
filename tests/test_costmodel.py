"""Times alone worked by hand from shapes, bytes and works; and what a device means, by whatever way it is named.

`tests/libraries` has the kernels that libraries choose.
"""

import json
from dataclasses import replace
from secrets import token_hex

import numpy as np
import pytest

import simsched as ss
import workloads
from simsched.cli.run import run
from simsched.experiments.study.evaluate import Evaluate
from simsched.experiments.study.study import rows_of
from simsched.model import Kernel, Operator, Work, operator_times, roofline
from simsched.model.cluster import DEVICES, PRIORS, Cluster
from simsched.model.costmodel import Rates, rooflines
from simsched.model.launches import kernels_on

# 10 SMs that compute 100 FLOP/us each, 400 with tensor cores; 100 bytes/us, no L2
DEVICE = replace(Cluster.preset("h100").devices[0], sms=10, peak={"fp32": 1e3, "fp16": 4e3}, bandwidth=100.0, l2=0.0)
NETWORK = "squeezenet,dtype=fp16"


def operator(*blocks, **fields):
    """An operator whose kernels, of so many blocks of 256 threads, share its work evenly."""
    return Operator("a", kernels=tuple(Kernel(n, 256, share=1 / len(blocks)) for n in blocks), **fields)


def chained(blocks, chain, **fields):
    """An operator of one kernel whose blocks take so many cycles."""
    return Operator("a", kernels=(Kernel(blocks, 256, chain=chain),), **fields)


def streaming(rows):
    """A copy of so many numbers of 4 bytes."""
    return Work("elementwise", "copy", reads=4.0 * rows, writes=4.0 * rows, rows=rows)


@pytest.mark.parametrize(
    ("op", "us"),
    [
        # without kernels and works: 0.75 of the peak and of the bandwidth
        (operator(), 2.1),
        (operator(flops=750.0), 2.1 + 1.0),
        (operator(nbytes=150.0, flops=750.0), 2.1 + 2.0),  # the slower of the two
        (operator(flops=3000.0, dtype="fp16"), 2.1 + 1.0),
        (operator(flops=750.0, dtype="bf16"), 2.1 + 1.0),  # a format that it does not have: as fp32
        # given kernels: ceil(blocks / SMs) blocks at the peak of an SM
        (operator(10, flops=900.0), 2.1 + 0.9),
        (operator(15, flops=900.0), 2.1 + 2 * 60 / 100),  # an SM has two blocks of 60 FLOP
        (operator(3, flops=900.0), 2.1 + 300 / 100),  # seven SMs have none
        (operator(15, 3, flops=900.0), 2 * 2.1 + 2 * 30 / 100 + 150 / 100),  # each starts by itself
        (operator(10, flops=900.0, dtype="bf16"), 2.1 + 0.9),
        (operator(10, flops=900.0, dtype="fp16"), 2.1 + 90 / (400 * 0.79)),  # what tiles of tensor cores reach
        (Operator("a", flops=900.0, kernels=(Kernel(10, 256, efficiency=0.25),)), 2.1 + 4 * 0.9),
        # their bytes at 0.75 of the bandwidth, or less where they have fewer than 4 warps for each SM
        (operator(15, nbytes=75.0), 2.1 + 1.0),  # 120 warps
        (operator(3, nbytes=75.0), 2.1 + 40 / 24),  # 24 warps of 40
        (operator(10, nbytes=75.0, flops=900.0), 2.1 + 1.0),  # so that DRAM is the slower
        # their chains: 8 blocks of 256 threads on an SM, 1980 cycles a us
        (chained(80, 1980.0), 2.1 + 1.0),
        (chained(81, 1980.0), 2.1 + 2.0),  # a second wave
        (chained(81, 1980.0, flops=81 * 30.0), 2.1 + 9 * 30 / 100),  # computing takes longer
        (chained(81, 1980.0, nbytes=75.0), 2.1 + 2.0),
        # works: 880 bytes at 0.88 of the bandwidth, 1.25 us to start and 0.6 us until the first of them come
        (Operator("a", works=(streaming(110),)), 1.25 + 10.0 + 0.6),
        (Operator("a", works=(streaming(110), streaming(220))), 2 * (1.25 + 0.6) + 30.0),
        (Operator("a", works=(streaming(110),), flops=1e9, nbytes=1e9), 1.25 + 10.0 + 0.6),  # works say it all
        (Operator("a", works=(streaming(110),), kernels=(Kernel(1),), nbytes=15.0), 2.1 + 15 / (75 * 8 / 40)),
    ],
)
def test_times_alone_by_hand(op, us):
    """The time to start and end each kernel, and the longest of its chain, its blocks on an SM and its bytes."""
    assert roofline(op, DEVICE) == pytest.approx(us)


def test_kernels_start_later_before_hopper():
    """1.3 times as long: 2.73 us of a given kernel, and 1.625 us of one that streams."""
    older = replace(DEVICE, capability="8.0")
    assert roofline(operator(10, flops=900.0), older) == pytest.approx(1.3 * 2.1 + 0.9)
    assert roofline(operator(flops=750.0), older) == pytest.approx(1.3 * 2.1 + 1.0)
    assert roofline(Operator("a", works=(streaming(110),)), older) == pytest.approx(1.3 * 1.25 + 10.0 + 0.6)


def test_times_of_all_operators_at_once_and_at_other_rates():
    """Two kernels in one table with others: each term has a factor of its own.

    a: 2.1 us of start and 1.2 of computing. b: 2.1 and 2 of its chain. c: 1.25, 10 of DRAM, and 0.6 that no factor is
    for. d: 2.1 and 0.2848 on tensor cores.
    """
    ops = [
        replace(operator(15, flops=900.0), name="a"),
        replace(chained(81, 1980.0), name="b"),
        Operator("c", works=(streaming(110),)),
        replace(operator(10, flops=900.0, dtype="fp16"), name="d"),
    ]
    graph = ss.OpGraph(ops)
    every = np.arange(4)
    assert rooflines(graph, every, DEVICE).tolist() == pytest.approx([roofline(op, DEVICE) for op in ops])
    rates = Rates(start_factor=2, chain_factor=3, compute_factor=5, tensor_factor=7, memory_factor=11)
    tensor = 90 / (400 * 0.79)
    expected = [4.2 + 5 * 1.2, 4.2 + 3 * 2, 2.5 + 11 * 10 + 0.6, 4.2 + 7 * tensor]
    assert rooflines(graph, every, DEVICE, rates).tolist() == pytest.approx(expected)
    assert rooflines(graph, np.array([3, 0]), DEVICE, rates).tolist() == pytest.approx([expected[3], expected[0]])


def test_parameters_of_a_small_model_stay_in_the_cache():
    """fp32 1 x 1024 x 1024 on an H100, 50 MiB of L2: 4.2 MB of parameters are found there while those of the whole
    model, 16 of such layers, take at most 0.6 of it; those of 8 times as many layers pass through it.

    From DRAM they take 4194304 / (3352e3 x 0.75) = 1.67 us, and 1.7 us until the first come; from L2, at 24 bytes a
    cycle and SM, 4202496 / (132 x 1980 x 24) = 0.67 us.
    """
    work = Work("product", flops=2.0**21, reads=4096, weights=2.0**22, writes=4096, columns=1024, inner=1024)
    h100 = Cluster.preset("h100").devices[0]
    alone, small, large = (
        roofline(Operator("a", works=(replace(work, parameters=float(size)),)), h100) for size in (0, 2**26 / 4, 2**29)
    )
    assert alone == small == pytest.approx(2.3 + (2**22 + 8192) / (132 * 1980 * 24))
    assert large == pytest.approx(2.3 + 1.7 + 2**22 / (3352e3 * 0.75))


@pytest.mark.parametrize("gpu", [name for name in DEVICES if "-" not in name])
@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
@pytest.mark.parametrize("threads", [64, 256, 1024])
def test_three_kernels_side_by_side_do_not_exceed_the_peak(gpu, dtype, threads):
    """Of 2 x SMs + 7 blocks: alone, some SMs have three, and the kernel takes as long as those. Together they have
    6 x SMs + 21 blocks, 7 on some SMs.
    """
    cluster = Cluster.preset(gpu).without_overheads()
    (device,) = cluster.devices
    kernel, flops = Kernel(2 * device.sms + 7, threads), 100.0 * device.peak_rate(dtype)
    graph = ss.OpGraph([Operator(name, flops=flops, kernels=(kernel,), dtype=dtype) for name in "abc"])
    plan = ss.Schedule(graph, [ss.Placement(name, stream=i) for i, name in enumerate(graph.names)])
    assert 3 * flops / ss.simulate(plan, cluster).makespan <= device.peak_rate(dtype) * (1 + 1e-9)


# A device, by whatever way it is named


def by_kernels(graph, device):
    """What the kernels of a graph on a device come to: launches and us of each operator."""
    every = np.arange(len(graph))
    return np.diff(kernels_on(graph, device).ptr).tolist(), pytest.approx(rooflines(graph, every, device).tolist())


def ran(trace):
    """Launches of each operator of a run in which nothing runs beside it, and us for which its kernels ran."""
    spans = {name: [] for name in trace.program.graph.names}
    for span in trace.spans:
        if span.kind == "kernel":
            spans[span.op].append(span.end - span.start)
    return [len(each) for each in spans.values()], [sum(each) for each in spans.values()]


def test_a_cluster_and_a_change_to_its_device_mean_its_kernels():
    """Whichever device the schedule was made for."""
    graph = workloads.load("squeezenet", dtype="fp16")
    by_gpu = {gpu: by_kernels(graph, Cluster.preset(gpu).devices[0]) for gpu in ("k80", "a100", "h100")}
    assert by_gpu["k80"][0] != by_gpu["h100"][0]
    for gpu, expected in by_gpu.items():
        cluster = Cluster.preset(gpu)
        plan = ss.schedule(graph, cluster, "sequential")
        for there, its in by_gpu.items():
            assert ran(ss.simulate(plan, Cluster.preset(there))) == its
            changed = ss.what_if(plan, cluster).device(there)
            assert ran(changed.after) == its
            assert operator_times(graph, changed.cluster.devices[0]).tolist() == its[1]
        assert operator_times(graph, cluster.devices[0]).tolist() == expected[1]


def test_operators_of_a_mixed_cluster_launch_the_kernels_of_their_devices():
    graph = workloads.load("squeezenet", dtype="fp16")
    devices = [replace(Cluster.preset(gpu).devices[0], name=f"gpu{i}") for i, gpu in enumerate(("v100", "k80", "h100"))]
    links = [(a.name, b.name, ss.Link(1e5)) for a, b in zip(devices, devices[1:] + devices[:1], strict=True)]
    cluster = Cluster(devices, links)
    plan = ss.Schedule(graph, [ss.Placement(name, f"gpu{i % 3}") for i, name in enumerate(graph.names)])
    n_launches, us = ran(ss.simulate(plan, cluster))
    for i, device in enumerate(devices):
        expected, times = by_kernels(graph, device)
        assert n_launches[i::3] == expected[i::3]
        assert us[i::3] == pytest.approx(times.expected[i::3])


def test_a_study_and_the_command_line_mean_the_same(tmp_path, capsys):
    graph = workloads.load("squeezenet", dtype="fp16")
    gpus = ("a100", "h100", "k80")
    expected = []
    for gpu in gpus:
        cluster = Cluster.preset(gpu)
        expected.append(ss.simulate(ss.schedule(graph, cluster, "lios"), cluster).makespan)
    found = []
    for gpu in gpus:
        assert run(["simulate", NETWORK, "--gpu", gpu, "--scheduler", "lios", "--json"]) == 0
        found.append(json.loads(capsys.readouterr().out)["makespan_us"])
    assert found == pytest.approx(expected)
    whole = ss.Study("gpus", ["lios"], {"kind": "squeezenet", "dtype": "fp16"}, cluster={"gpu": list(gpus)})
    make = Evaluate(workloads.load_kind, tmp_path, "1.0", None, token_hex())
    assert [row["makespan_us"] for spec in rows_of(whole) for row in make(spec)] == pytest.approx(expected)


def test_a_slice_of_a_gpu_is_a_device():
    """A third of an H100's SMs and half of its memory: no operator is faster there."""
    graph = workloads.load("squeezenet", dtype="fp16")
    whole, part = (operator_times(graph, Cluster.preset(gpu).devices[0]) for gpu in ("h100", "h100-3g.40gb"))
    assert (part >= whole * (1 - 1e-9)).all()
    assert (part > whole).any()


@pytest.mark.parametrize("name", PRIORS)
def test_priors_lie_in_their_intervals(name):
    prior = PRIORS[name]
    assert 0 <= prior.low <= prior.value <= prior.high
    assert prior.source
