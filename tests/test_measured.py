"""Measured times and runs as data: statistics, a cost model, traces, times of a graph; files are in `test_schemas`."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small import made, placements
from strategies import graphs

import simsched as ss
from simsched.base.errors import BackendError, CostError, FormatError, ProgramError, ScheduleError
from simsched.calibration.training import random_schedule
from simsched.model import EXECUTIONS, Edge, Kernel, Operator, OpGraph, operator_times
from simsched.model.cluster import DEVICES
from simsched.model.profile import MeasuredCopy, MeasuredDevice, MeasuredKernel, MeasuredOperator, Provenance
from simsched.model.trace import measured_trace, spans_of

A100 = ss.Cluster.preset("a100").devices[0]


def a_profile():
    kernels = (
        MeasuredKernel("to_nhwc", (4.0, 6.0), Kernel(128)),
        MeasuredKernel("gemm", (15.0, 15.0), Kernel(2160, 256, 32, 67_584), stream=3),
    )
    clear = MeasuredCopy("memset", "Memset (Device)", (1.0, 1.0), nbytes=4096.0)
    return ss.Profile(
        (
            MeasuredOperator("conv", (20.0, 22.0), kernels, (clear,)),
            MeasuredOperator("view", (0.0, 0.0)),
            MeasuredOperator("fc", (8.0, 9.0), (MeasuredKernel("sgemm", (8.0, 9.0)),)),
        ),
        MeasuredDevice("NVIDIA A100-SXM4-40GB", sms=108, compute_capability="8.0", memory=42e9),
        Provenance("trace.json"),
    )


GRAPH = OpGraph(
    [Operator("conv", "conv", flops=5.0, time=1.0), Operator("view", "view"), Operator("fc", kernels=(Kernel(7),))],
    [Edge("conv", "view", 8.0), Edge("view", "fc", 8.0)],
    "net",
)


# Statistics and costs ----------------------------------------------------------------------------


def test_cost_model():
    """Medians 21, 0 and 8.5, whatever the device."""
    profile, h100 = a_profile(), ss.Cluster.preset("h100").devices[0]
    assert operator_times(GRAPH, h100, profile).tolist() == [21.0, 0.0, 8.5]
    schedule = ss.schedule(GRAPH, ss.Cluster.preset("a100").without_overheads(), "sequential", cost=profile)
    assert schedule.estimate == 29.5


def test_cost_of_an_operator_that_was_not_measured():
    profile = a_profile()
    unknown = Operator("gelu", time=3.0)
    with pytest.raises(CostError, match=r"'gelu' was not measured: the profile from trace\.json has 'conv', 'view'"):
        profile(unknown, A100)
    assert ("conv" in profile, "gelu" in profile) == (True, False)


def test_apply():
    """Shares are 5 / 20 and 15 / 20; the launch of fc's kernel is not known, so its kernels stay."""
    found = a_profile().apply(GRAPH)
    assert [op.time for op in found.operators] == [21.0, 0.0, 8.5]
    assert found["conv"].kernels == (Kernel(128, share=0.25), Kernel(2160, 256, 32, 67_584, share=0.75))
    assert found["fc"].kernels == (Kernel(7),)
    assert (found["conv"].flops, found["conv"].kind) == (5.0, "conv")
    assert (found.edges, found.name) == (GRAPH.edges, "net")
    graph = OpGraph([Operator("conv"), Operator("gelu", time=3.0)])
    with pytest.raises(CostError, match="operator 'gelu' was not measured"):
        a_profile().apply(graph)
    assert [op.time for op in a_profile().apply(graph, partial=True).operators] == [21.0, 3.0]


@pytest.mark.parametrize("times", [(0.0, 0.0), (0.0, 5.0), (1e-300, 1e300), (1e308, 1e308, 1e308)])
def test_shares_add_up_even_if_a_kernel_takes_no_time(times):
    kernels = tuple(MeasuredKernel(f"k{i}", (time,), Kernel(1)) for i, time in enumerate(times))
    profile = ss.Profile((MeasuredOperator("a", (1.0,), kernels),))
    (op,) = profile.apply(OpGraph([Operator("a")])).operators
    assert sum(kernel.share for kernel in op.kernels) == pytest.approx(1.0, abs=1e-12)
    assert all(kernel.share > 0 for kernel in op.kernels)


# Devices -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "sms", "preset"),
    [
        ("NVIDIA A100-SXM4-40GB", 108, "a100"),
        ("NVIDIA A100 80GB PCIe", None, "a100-80gb"),
        ("Tesla V100S-PCIE-32GB", 80, "v100s-pcie"),
        ("Tesla K80", 13, "k80"),
        ("NVIDIA H100 80GB HBM3", 132, "h100"),
        ("NVIDIA GeForce RTX 2080 Ti", 68, "rtx2080ti"),
        ("NVIDIA GeForce RTX 2080 SUPER", 48, "rtx2080super"),
        ("NVIDIA H100 PCIe", 114, "h100-pcie"),
        ("NVIDIA H100 PCIe", 132, None),  # another product under the same number
        ("NVIDIA H100 NVL", None, "h100-nvl"),
        ("NVIDIA H200 NVL", 132, "h200"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 188, "rtx-pro-6000"),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", 188, None),  # a lower clock
        ("NVIDIA RTX 6000 Ada Generation", 142, "rtx-6000-ada"),
        ("NVIDIA RTX A6000", 84, "rtx-a6000"),
        ("NVIDIA B300 SXM6 AC", 148, "b300"),
        ("NVIDIA H20", 78, "h20"),
        ("NVIDIA GeForce RTX 3080 Ti", None, None),
        ("NVIDIA A40-48Q", 84, None),
        ("NVIDIA", None, None),
    ],
)
def test_preset_of_a_device(name, sms, preset):
    device = MeasuredDevice(name, sms=sms)
    assert device.preset == preset
    found = device.to_device("gpu3")
    assert (found is None) == (preset is None)
    assert found is None or (found.name, found.model, found.sms) == ("gpu3", preset, DEVICES[preset]["sms"])


def test_measured_limits_replace_those_of_the_preset():
    device = MeasuredDevice("NVIDIA A100-SXM4-80GB", shared_memory_per_block=99_000, memory=8e10).to_device()
    assert (device.memory, device.shared_memory_per_block, device.threads_per_sm) == (8e10, 99_000, 2048)
    assert device.bandwidth == A100.bandwidth


# Bad values --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ss.Profile(()), "a profile needs at least one operator"),
        (lambda: ss.Profile((MeasuredOperator("a", (1.0,)),) * 2), "operator 'a' stands twice in the profile"),
        (lambda: MeasuredOperator("a", ()), "operator 'a': samples must not be empty"),
        (lambda: MeasuredOperator("a", (1.0, -1.0)), "samples[1] must be finite and not negative, not -1.0"),
        (lambda: MeasuredOperator("a", (True,)), "samples[0] must be a number, not True"),
        (
            lambda: MeasuredOperator("a", (1.0, 2.0), (MeasuredKernel("k", (1.0,)),)),
            "operator 'a': 'k' has 1 samples where the operator has 2; there must be one per iteration",
        ),
    ],
)
def test_refused(make, message):
    with pytest.raises(CostError) as caught:
        make()
    assert message in str(caught.value)


# Runs --------------------------------------------------------------------------------------------


def as_measured(trace):
    return measured_trace(trace.program, trace.cluster, *spans_of(trace))


def fork():
    """a, then b and c, then d; b on the second device."""
    graph = made("a=4 b=10 c=6 d=2", "ab=1000 ac bd=1000 cd")
    return ss.Schedule(graph, placements("a b@1 c d")), ss.Cluster.preset("a40", 2)


def test_the_critical_path_leads_back_through_what_ended_last():
    """a 0-4, its copy 5-7, b 7-17, its copy 18-20, d 20-22; c 4-10 lets nothing wait."""
    plan, cluster = fork()
    program, names = plan.lower(cluster), plan.graph.names
    launches = {"a": (0, 4), "b": (7, 17), "c": (4, 10), "d": (20, 22)}
    copies = {"a": (5, 7), "b": (18, 20)}
    found = (launches, program.launches.op), (copies, program.copies.op)
    times = ([known[names[op]] for op in ops] for known, ops in found)
    trace = measured_trace(program, cluster, *times)
    chain, at = [], int(np.argmax(trace.end))
    while at >= 0:
        chain.append(trace.name(at))
        at = int(trace.cause[at])
    assert chain == ["d", "b -> gpu0", "b", "a -> gpu1", "a"]


@settings(max_examples=20)
@given(graph=graphs(), seed=st.integers(0, 2**32), execution=st.sampled_from(EXECUTIONS))
def test_any_simulated_run_comes_back(graph, seed, execution):
    """Kernels and copies have the times of the simulated trace; its waits and host spans are not measured."""
    cluster = ss.Cluster.preset("a100", 2)
    simulated = ss.simulate(random_schedule(graph, cluster, rng=seed, execution=execution), cluster)
    trace = as_measured(simulated)
    assert (trace.makespan, trace.operator_times()) == (simulated.makespan, simulated.operator_times())
    assert {span.kind for span in trace.spans} == {span.kind for span in simulated.spans} & {"kernel", "copy"}
    assert (trace.end[trace.cause[trace.cause >= 0]] <= trace.start[trace.cause >= 0]).all()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda x: x[:-1], "4 launches ran, but 3 were measured"),
        (lambda x: x * np.nan, "was measured from nan to nan us"),
        (lambda x: x[:, ::-1], "was measured from"),
        (lambda x: x - 100.0, "was measured from -"),
    ],
)
def test_times_that_cannot_be_are_refused(change, text):
    trace = ss.simulate(*fork())
    launches, copies = spans_of(trace)
    with pytest.raises(BackendError, match=text):
        measured_trace(trace.program, trace.cluster, change(launches), copies)


def test_a_replay_has_statistics():
    """Of 10, 20, 30, 40, 50 the percentiles 10 and 90 lie 0.4 steps inside: 14 and 46."""
    latency = (50.0, 10.0, 40.0, 20.0, 30.0)
    replay = ss.Replay(latency, as_measured(ss.simulate(*fork())), {"device": "gpu"}, 1e-7, "run")
    assert (replay.median, *replay.summary) == (30.0, 5, 30.0, 14.0, 46.0)
    assert replay.latency == latency


def test_a_profile_keeps_the_common_graph_of_its_runs_once():
    trace = as_measured(ss.simulate(*fork()))
    run, other = ss.Replay((30.0,), trace, {}, None, "run"), ss.Replay((40.0,), trace, {}, None, "other")
    operators = (MeasuredOperator("a", (4.0,)),)
    data = ss.Profile(operators, runs=(run, other), graph=run.program.graph, cluster=run.cluster).to_dict()
    assert (len(data["graphs"]), len(data["clusters"]), len(data["runs"])) == (1, 1, 2)
    again = ss.Profile.from_dict(data)
    assert [r.name for r in again.runs] == ["run", "other"]
    assert again.runs[0].program.graph is again.runs[1].program.graph
    data["runs"][0]["graph"] = 7
    with pytest.raises(FormatError, match="there is no graph 7"):
        ss.Profile.from_dict(data)
    first, second = ss.Profile(operators, runs=(run,)), ss.Profile((MeasuredOperator("b", (5.0,)),), graph=trace.graph)
    both = first.joined(second)
    assert ([op.name for op in both.operators], both.runs, both.graph) == (["a", "b"], (run,), trace.graph)
    with pytest.raises(CostError, match="'a' stands twice"):
        first.joined(first)


def test_a_schedule_and_a_program_take_the_costs_of_another_graph():
    """Every operator twice as long: nothing else changes."""
    plan, cluster = fork()
    graph = plan.graph
    slow = made("a=8 b=20 c=12 d=4", graph.edges)
    assert plan.over(slow) is plan.over(slow)
    assert plan.over(graph) is plan
    assert plan.over(slow).placements == plan.placements
    expected = ss.simulate(plan.over(slow), cluster).makespan
    assert ss.simulate(plan.lower(cluster).over(slow), cluster).makespan == expected
    assert expected > ss.simulate(plan, cluster).makespan
    with pytest.raises(ScheduleError, match="is not one of graph"):
        plan.over(made("z=1"))
    many = made([Operator(name, kernels=(Kernel(1, share=0.5),) * 2) for name in graph.names], graph.edges)
    with pytest.raises(ProgramError, match="is not one of graph"):
        plan.lower(cluster).over(many)
