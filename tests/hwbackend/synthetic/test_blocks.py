"""The surrogate by hand: its block scheduler on small devices; hosts, streams, events, copies and captured graphs; what
is hidden, what varies, what is checked.

Without contention and noise it keeps the rules of the simulator's model, which tests/simulator works by hand. Larger
programs are in `test_synthetic_frozen`.
"""

from dataclasses import dataclass, replace
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shortened import in_order, without

import hwbackend
import workloads
from hwbackend.synthetic.backend import SyntheticBackend
from hwbackend.synthetic.plan import Plan
from hwbackend.synthetic.run import Luck, SyntheticRun
from hwbackend.synthetic.sms import Sms
from hwbackend.synthetic.truth import COSTS, TrueParameters, truth
from simsched import Cluster, Edge, Kernel, Link, Operator, OpGraph, Schedule
from simsched.base.errors import BackendError, UnknownNameError
from simsched.base.jit.pieces import running
from simsched.calibration.training import random_schedule
from simsched.model.cluster.device import OVERHEADS
from simsched.model.program import EXECUTIONS, RECORD, WAIT
from simsched.model.trace import COPY, KERNEL
from simsched.simulator import simulate

A100 = Cluster.preset("a100")
BLOCK = (Kernel(1, 32),)


# Blocks


@dataclass(frozen=True)
class Asked:
    """A kernel: when it arrives, its blocks, and what each takes."""

    blocks: int
    compute: float = 10.0
    memory: float = 0.0
    issue: float = 0.1
    dram: float = 0.0
    warps: int = 1
    registers: int = 0
    shared: int = 0
    priority: int = 0
    arrival: float = 0.0
    device: int = 0


def sms_of(
    kernels, *, sms=2, warps=4, blocks=8, registers=1000, shared=1000, resident=128, interference=0.0, devices=1
):
    device = replace(
        A100.devices[0],
        sms=sms,
        threads_per_sm=32 * warps,
        blocks_per_sm=blocks,
        registers_per_sm=registers,
        shared_memory_per_sm=shared,
        resident_kernels=resident,
    )
    names = ("device", "priority", "warps", "registers", "shared", "issue", "dram")
    columns = {name: [getattr(kernel, name) for kernel in kernels] for name in names}
    return Sms([device] * devices, columns, np.array([kernel.blocks for kernel in kernels]), interference)


def spans_of(kernels, jitter=(1.0,), **limits):
    """Return start and end of each kernel."""
    found = sms_of(kernels, **limits)
    found.clear(np.array(jitter, np.float64))
    for row in sorted(range(len(kernels)), key=lambda row: kernels[row].arrival):
        run_until(found, kernels[row].arrival)
        found.arrive(row, kernels[row].arrival, kernels[row].compute, kernels[row].memory)
    run_until(found, inf)
    return found.spans


def run_until(sms, time):
    while sms.advance(time)[1]:
        pass


STREAM = Asked(2, compute=0.0, memory=10.0, dram=0.8, issue=0.0)
ROOMY = {"warps": 64, "blocks": 32, "registers": 1000, "shared": 1000}
LIMITS = {"warps": 4, "blocks": 2, "registers": 20, "shared": 200}
SIX = [Asked(6, warps=2, registers=10, shared=100)]  # two of whose blocks fit on an SM: two waves on two SMs
HELD = [Asked(1, warps=2, compute=20.0), Asked(1, warps=2), Asked(1, warps=3, arrival=1.0), Asked(1, arrival=2.0)]


@pytest.mark.parametrize(
    ("kernels", "limits", "spans"),
    [
        # on the SM with most room: 3 warps on each of two SMs of 4, beside which none of 2 fits before 10
        ([Asked(2, warps=3), Asked(1, warps=2, arrival=1.0)], {}, [[0, 10], [10, 20]]),
        ([Asked(5, warps=2)], {}, [[0, 20]]),  # waves of four, then one
        *((SIX, ROOMY | {limit: n}, [[0, 20]]) for limit, n in LIMITS.items()),
        (SIX, ROOMY, [[0, 10]]),
        # an SM holds one block: the first kernel takes 0-10, 0-10 and 10-20 before the other SM has room
        ([Asked(3), Asked(2, compute=5.0)], {"warps": 1}, [[0, 20], [10, 20]]),
        # a lower number that arrives later has the SM that is free first
        ([Asked(4), Asked(1, compute=5.0, priority=-1, arrival=1.0)], {"warps": 1}, [[0, 25], [10, 15]]),
        ([Asked(1)] * 3, {"resident": 2}, [[0, 10], [0, 10], [10, 20]]),
        # the third, of 3 warps, fits nowhere at first, and is not forgotten
        (HELD, {"resident": 2}, [[0, 20], [0, 10], [10, 20], [20, 30]]),
        ([Asked(3, issue=0.5)], {"sms": 1}, [[0, 15]]),  # 1.5 of the issue slots that there are
        # the blocks of 0.8 go to an SM each; a third beside the first, 1.6, does not slow the second
        ([Asked(1, issue=0.8), Asked(1, issue=0.8), Asked(1, issue=0.8, compute=5.0)], {}, [[0, 13], [0, 10], [0, 8]]),
        # blocks of other kernels interfere where something is short
        ([Asked(2, issue=0.6)], {"sms": 1, "interference": 0.04}, [[0, 12]]),
        ([Asked(1, issue=0.6)] * 2, {"sms": 1, "interference": 0.04}, [[0, 12.48]] * 2),
        ([Asked(1, issue=0.5)] * 2, {"sms": 1, "interference": 0.04}, [[0, 10]] * 2),
        # DRAM is shared over the whole device: asked for 1.6 times; with 10 of computing 0.8 x 8/10 twice, 8 x 1.28
        ([STREAM], {}, [[0, 16]]),
        ([replace(STREAM, compute=10.0, memory=8.0)], {}, [[0, 10.24]]),
        ([STREAM, replace(STREAM, device=1)], {"devices": 2}, [[0, 16]] * 2),  # another device has its own
        # blocks vary: 0.9, 1.1, 1.0 and 0.9 (again) of 10 us, one after the other
        ([Asked(4)], {"jitter": [0.9, 1.1, 1.0], "sms": 1, "warps": 1}, [[0, 39]]),
    ],
)
def test_blocks_by_hand(kernels, limits, spans):
    """Two SMs of 4 warps and blocks of 10 us, unless said otherwise; start and end of each kernel."""
    np.testing.assert_allclose(spans_of(kernels, **limits), np.array(spans, np.float64), rtol=1e-6)


def test_copies_ask_for_dram_until_they_say_otherwise():
    """The kernel asks for all of DRAM; copies for as much from 4 to 8: 4 us done at 4, 6 at 8, and the rest by 12."""
    sms = sms_of([Asked(1, compute=0.0, memory=10.0, dram=1.0)])
    sms.clear(np.ones(1))
    sms.arrive(0, 0.0, 0.0, 10.0)
    for now, part in ((4.0, 1.0), (8.0, 0.0)):
        assert sms.advance(now) == (now, [])
        sms.set_copy_load(0, now, part)
    assert sms.advance(inf) == (pytest.approx(12.0), [0])


asked = st.builds(
    Asked,
    blocks=st.integers(1, 12),
    compute=st.floats(1.0, 20.0),
    memory=st.floats(0.0, 20.0),
    issue=st.floats(0.0, 1.0),
    warps=st.integers(1, 4),
    registers=st.integers(0, 400),
    shared=st.integers(0, 400),
    priority=st.integers(-1, 1),
    arrival=st.floats(0.0, 50.0),
)


@settings(max_examples=40)
@given(kernels=st.lists(asked, min_size=1, max_size=4), seed=st.integers(0, 2**16), n_sms=st.integers(1, 4))
def test_as_python_and_as_machine_code_it_is_the_same(kernels, seed, n_sms):
    """To the last bit; on two devices, whose DRAM is short."""
    kernels = [replace(kernel, dram=0.3, device=i % 2) for i, kernel in enumerate(kernels)]
    jitter, found = np.random.default_rng(seed).uniform(0.8, 1.2, 997), []
    for how in ("0", "O0", "O3"):
        with running(how):
            found.append(spans_of(kernels, jitter, sms=n_sms, resident=2, interference=0.04, devices=2).tolist())
    assert found[0] == found[1] == found[2]


# Programs


def exact(program, cluster):
    """Run a program on a surrogate that is what its preset says, with nothing that varies."""
    plan = Plan(program, TrueParameters(cluster, startup=0.0, reach=1.0 / cluster.devices[0].saturating_warps, seed=0))
    sms = Sms(plan.devices, plan.columns, plan.blocks, interference=0.0)
    sizes = len(program), len(plan.blocks), len(plan.copy_at), max(1, int(plan.blocks.sum()))
    luck = Luck(*(np.ones(size) for size in sizes))
    return SyntheticRun(plan, sms, luck, [(None, False)] * len(cluster)).times()


@st.composite
def small_graphs(draw):
    """DAGs of operators of one small block each, which get in nobody's way."""
    times = draw(st.lists(st.integers(1, 60), min_size=1, max_size=9))
    operators = [Operator(f"v{i}", time=float(t), kernels=(Kernel(1, 32),)) for i, t in enumerate(times)]
    pairs = [(a, b) for b in range(len(times)) for a in range(b)]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=12)) if pairs else []
    return OpGraph(operators, [Edge(f"v{a}", f"v{b}", transfer=float(7 + a)) for a, b in chosen])


@settings(max_examples=60)
@given(
    graph=small_graphs(),
    gpus=st.integers(1, 3),
    streams=st.integers(1, 5),
    execution=st.sampled_from(EXECUTIONS),
    threads=st.sampled_from(["device", "one"]),
    transfers=st.sampled_from(["async", "blocking"]),
    events=st.sampled_from(["minimal", "literal"]),
    connections=st.sampled_from([2, 32]),
    seed=st.integers(0, 2**16),
)
def test_without_contention_it_runs_as_the_model_says(
    graph, gpus, streams, execution, threads, transfers, events, connections, seed
):
    unknown = {"crowd_latency": 0.0, "graph_issue": 0.0, "graph_join": 0.0, "interference": ((0.0, 0.0), (0.0, 0.0))}
    cluster = Cluster.preset("a100", gpus)
    barrier = cluster.devices[0].barrier
    cluster = cluster.replace_devices(
        connections=connections, launch_latency=0.0, barrier_many=barrier, **unknown
    )  # what the surrogate does not have
    plan = random_schedule(graph, cluster, rng=seed, streams=streams, execution=execution)
    transfers = "async" if execution == "graph" else transfers
    program = plan.lower(cluster, threads=threads, transfers=transfers, events=events)
    trace = simulate(program, cluster)
    for kind, times in zip((KERNEL, COPY), exact(program, cluster), strict=True):
        rows = np.flatnonzero(trace.kind == kind)
        modelled = np.column_stack([trace.start[rows], trace.end[rows]])
        np.testing.assert_allclose(times[trace.item[rows]], modelled, rtol=1e-9, atol=1e-6)
        assert len(times) == len(rows)


def around_a_switch(**device):
    """Devices of 4 SMs with no costs of the host: 100 bytes per us and 5 us from gpu0, 300 to each of the others."""
    cluster = Cluster.preset("a100", 3).without_overheads().replace_devices(sms=4, **device)
    wires = [("gpu0", "switch", Link(100.0, 5.0)), ("gpu1", "switch", Link(300.0)), ("gpu2", "switch", Link(300.0))]
    return replace(cluster, links=tuple(wires))


@pytest.mark.parametrize(
    ("nbytes", "device", "spans"),
    [
        ([1000.0], {}, [[10, 25]]),  # 5 us, then 1000 / 100
        ([1000.0], {"copy_rate": 25.0}, [[10, 55]]),  # an engine moves no more than its rate: 5 us and 1000 / 25
        # both move at 50 bytes per us from 15 on: one until 35; of the other 1000 are left, 10 us
        ([1000.0, 2000.0], {"copy_engines": 2}, [[10, 35], [10, 45]]),
        # one engine: the first until 25, then 5 us and 2000 / 100
        ([1000.0, 2000.0], {"copy_engines": 1}, [[10, 25], [25, 50]]),
    ],
)
def test_copies_by_hand(nbytes, device, spans):
    """Copies to gpu1 and gpu2 of what an operator of gpu0 has made at 10 us."""
    readers = [f"gpu{i + 1}" for i in range(len(nbytes))]
    operators = [Operator(name, time=10.0, kernels=BLOCK) for name in ("make", *readers)]
    edges = [Edge("make", name, nbytes=size) for name, size in zip(readers, nbytes, strict=True)]
    plan, cluster = in_order(OpGraph(operators, edges), range(len(operators))), around_a_switch(**device)
    np.testing.assert_allclose(exact(plan.lower(cluster), cluster)[1], spans)


def test_a_copy_takes_part_of_the_bandwidth_of_both_its_ends():
    """gpu0 has 125 bytes per us. A kernel there that takes all of it for 40 us starts at 10 with a copy of 1000 bytes.
    Alone until 15; then 100 of the link go to the copy, and DRAM is asked for 1.8 of what it has: the kernel gets
    1/1.8 until the copy ends at 25 (links are not slowed by DRAM). It has done 5 + 10 / 1.8 = 10.556 us, and ends
    29.444 us later.
    """
    cluster = around_a_switch(bandwidth=125.0, saturating_warps=8.0)
    stream = Operator("stream", nbytes=40 * 125.0, kind="synth", kernels=(Kernel(4, 256),))
    ends = [Operator(name, time=10.0, kernels=BLOCK) for name in ("make", "read")]
    graph = OpGraph([ends[0], stream, ends[1]], [Edge("make", "read", nbytes=1000.0)])
    launches, copies = exact(in_order(graph, [0, 0, 1]).lower(cluster), cluster)
    np.testing.assert_allclose(copies, [[10.0, 25.0]])
    np.testing.assert_allclose(launches[1], [10.0, 54.4444], rtol=0.02)


def test_what_ran_just_before_is_warm():
    """Two equal operators bound by DRAM: the second finds part of its data in the cache, and takes 1/1.3 to 1/2."""
    cluster = A100.without_overheads()
    first, second, other = (
        Operator(name, nbytes=nbytes, kind="synth", kernels=(Kernel(432, 256),))
        for name, nbytes in (("first", 1e8), ("second", 1e8), ("other", 1.5e8))
    )
    between, behind = (OpGraph([first, other, second]), OpGraph([first, second, other]))
    cold, warm = (np.diff(exact(in_order(graph).lower(cluster), cluster)[0])[:, 0] for graph in (between, behind))
    assert cold[2] == pytest.approx(cold[0])
    assert warm[0] == pytest.approx(cold[0])
    assert 1.3 <= warm[0] / warm[1] <= 2.0


@pytest.mark.parametrize(
    ("execution", "kernel", "dropped", "linked", "says"),
    [
        ("events", BLOCK, RECORD, True, r"waiting are 'second' on gpu0 for event 0, which nobody records"),
        ("graph", BLOCK, RECORD, True, "waits for event 0 before it is recorded"),
        ("events", (Kernel(1, 1024, 255),), None, True, r"'first': a block of 1024 threads, 255 registers"),
        ("events", (Kernel(2**31),), None, True, r"'first' has more blocks than the surrogate"),
        ("events", BLOCK, None, False, r"'first': no links lead from gpu0 to gpu1"),
    ],
)
def test_what_cannot_run_is_refused(execution, kernel, dropped, linked, says):
    """Two operators on two streams, or on two devices that are not linked."""
    operators = [Operator("first", time=50.0, kernels=kernel), Operator("second", time=50.0, kernels=BLOCK)]
    graph = OpGraph(operators, [Edge("first", "second", nbytes=1000.0)])
    cluster = Cluster.preset("a100", 1 if linked else 2)
    program = in_order(graph, [0, len(cluster) - 1], stream=[0, 1], execution=execution).lower(cluster)
    if dropped is not None:
        program = without(program, int(np.flatnonzero(program.action == dropped)[0]))
    with pytest.raises(BackendError, match=says):
        exact(program, cluster if linked else replace(cluster, links=()))


# The backend


def quiet(**options):
    """A surrogate whose repeats differ by the jitter of blocks and hosts only, and by what is asked for."""
    return SyntheticBackend(**({"noise": 0.0, "drift": 0.0, "outliers": 0.0} | options))


SAID = {
    "launch": 4.0,
    "record": 1.0,
    "wait": 1.3,
    "copy": 4.5,
    "barrier": 10.0,
    "gap": 0.9,
    "hop": 2.0,
    "graph_launch": 6.0,
    "graph_node": 0.9,
}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("gpu", ["a40", "h200"])
def test_true_parameters_are_10_to_40_percent_away_from_the_priors(gpu, seed):
    prior = Cluster.preset(gpu, 2).replace_devices(launch_latency=0.0, **SAID)  # as it always was
    true = truth(prior, seed)
    before, device = prior.devices[0], true.cluster.devices[0]
    assert device.launch_latency == 0.0
    assert [getattr(device, name) for name in ("graph_issue", "graph_join", "crowd_latency")] == [0.0, 0.0, 0.0]
    assert device.barrier_many == device.barrier
    for name in COSTS:
        ratio = getattr(device, name) / getattr(before, name)
        assert 1.1 - 1e-9 <= max(ratio, 1 / ratio) <= 1.4 + 1e-9, name
    rates = [
        device.peak["fp32"] / before.peak["fp32"],
        device.bandwidth / before.bandwidth,
        true.cluster.links[0][2].bandwidth / prior.links[0][2].bandwidth,
    ]
    assert all(1 / 1.25 <= rate <= 1 / 1.1 for rate in rates)
    assert 1 / 1.4 <= device.saturating_warps / before.saturating_warps <= 1 / 1.1
    backend = SyntheticBackend(gpu=gpu, gpus=2, seed=seed)
    assert backend.cluster == prior
    assert SyntheticBackend(gpu=gpu, gpus=2, copy_engines=1).cluster == prior.replace_devices(copy_engines=1)


def test_without_contention_a_model_is_far_off_and_the_simulator_is_not():
    """Schedules of a random DAG on 2 to 4 streams. Both models are given the true costs of issuing, SMs and DRAM, and
    the times of operators as they were measured one after the other. (The data sheet alone is off by more.)"""
    errors, backend = {"datasheet": [], "no contention": [], "simulator": []}, quiet()
    graph = backend.realise(workloads.from_spec("random:layered,n_ops=30,n_layers=6,n_edges=60,seed=0"))
    alone = Schedule.from_columns(graph, [graph.index[name] for name in graph.order], ("gpu0",))
    times = backend.replay(alone, repeats=3, warmup=0).trace.operator_times()
    operators = [replace(op, time=times[op.name][1] - times[op.name][0]) for op in graph.operators]
    device = truth(backend.cluster, 0).cluster.devices[0]
    known = {name: getattr(device, name) for name in (*OVERHEADS, "saturating_warps", "bandwidth")}
    model = backend.cluster.replace_devices(**known)
    for streams in (2, 3, 4):
        plan = random_schedule(graph, backend.cluster, rng=streams, streams=streams, execution="events")
        latency = backend.replay(plan, repeats=3, warmup=0).median
        measured = plan.over(OpGraph(operators, graph.edges, graph.name))
        for name, schedule, cluster in (
            ("datasheet", plan, backend.cluster),
            ("no contention", measured, model.replace_devices(contention=False)),
            ("simulator", measured, model),
        ):
            errors[name].append(abs(simulate(schedule, cluster).makespan / latency - 1.0))
    assert np.mean(errors["simulator"]) < 0.03
    assert min(np.mean(errors["no contention"]), np.mean(errors["datasheet"])) > 0.12


@pytest.mark.parametrize("execution", ["events", "graph"])
@pytest.mark.parametrize("gpus", [1, 2])
def test_a_missing_wait_is_caught(gpus, execution):
    """A reader of what takes 500 us on another stream or device; less any wait it is read or copied too early."""
    backend = quiet(gpus=gpus)
    operators = [Operator(name, time=500.0, utilization=0.2) for name in ("writer", "reader")]
    graph = OpGraph(operators, [Edge("writer", "reader", nbytes=4096.0)])
    plan = in_order(backend.realise(graph), [0, gpus - 1], stream=[0, 1], execution=execution)
    program = plan.lower(backend.cluster)
    assert backend.replay(program, repeats=1, warmup=0).max_relative_error == 0.0
    waits = np.flatnonzero(program.action == WAIT).tolist()
    assert len(waits) == gpus
    for row in waits:
        with pytest.raises(BackendError, match=r"the output of 'writer' was not there when"):
            backend.replay(without(program, row), repeats=1, warmup=0)


def test_noise_drift_and_outliers_are_what_was_asked_for():
    """Of an operator of 1 ms: without any only blocks vary, of which the longest counts, by less than 2 %; noise of
    3 % is as much of a run and of its kernel; an outlier takes up to twice as long; drift is slow."""
    plan = in_order(OpGraph([Operator("op", time=1000.0, utilization=0.9, intensity="compute")]))

    def latencies(repeats=60, **options):
        return np.array(quiet(gpu="k80", **options).replay(plan, repeats=repeats).latency)

    usual, noisy = latencies(), latencies(noise=0.03)
    assert usual.std() / usual.mean() < 0.02
    assert 0.025 < noisy.std() / noisy.mean() < 0.065
    outliers = latencies(outliers=1.0) / np.median(usual)
    assert 1.15 <= outliers.min() <= outliers.max() <= 2.1
    drifting = latencies(600, drift=0.05)
    assert 0.01 < drifting.std() / drifting.mean() < 0.12
    assert np.median(np.abs(np.diff(drifting))) / drifting.mean() < 0.02


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"seed": -1}, BackendError, "seed must be a whole number of at least 0, not -1"),
        ({"noise": 2.0}, BackendError, "noise must be from 0 to 0.5, not 2.0"),
        ({"drift": "much"}, BackendError, "drift must be from 0 to 0.5, not 'much'"),
        ({"outliers": float("nan")}, BackendError, "outliers must be from 0 to 1, not nan"),
        ({"gpus": 0}, ValueError, "n_gpus must be a whole number of at least 1, not 0"),
        ({"gpu": "z80"}, UnknownNameError, "unknown gpu 'z80'"),
        ({"copy_engines": 1.5}, BackendError, "copy_engines must be a whole number of at least 1"),
    ],
)
def test_options_that_cannot_be_are_refused(options, kind, message):
    with pytest.raises(kind, match=message):
        hwbackend.get("synthetic", **options)
