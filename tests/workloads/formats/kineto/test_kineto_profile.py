"""Traces of torch.profiler by hand: graphs, levels, devices, formats of files."""

import gzip
from pathlib import Path

import pytest
from kineto_traces import A100, CPU, KinetoTrace, forked, small_network

from simsched import Cluster, Operator, OpGraph
from simsched.base.errors import FormatError
from simsched.model.cluster import occupancy
from workloads.formats.kineto import read_kineto

KINDS = {"conv1": "conv", "relu": "relu", "flatten": "flatten", "fc": "linear"}
GRAPH = OpGraph([Operator(name, kind) for name, kind in KINDS.items()])
# (4 + 20), 3, nothing, 10 to 12 us
SAMPLES = {"conv1": (24.0,) * 3, "relu": (3.0,) * 3, "flatten": (0.0,) * 3, "fc": (10.0, 11.0, 12.0)}


@pytest.mark.parametrize("times", ["relative", "decimal", "whole"])
@pytest.mark.parametrize("annotated", [True, False])
def test_joined_with_a_graph(annotated, times, read, samples):
    """By name or in order; the operator that launches nothing takes 0 us."""
    trace = small_network(times, annotated=annotated)
    assert samples(trace, graph=GRAPH) == SAMPLES
    timed = read(trace, graph=GRAPH).apply(GRAPH)
    assert [(op.time, len(op.kernels)) for op in timed.operators] == [(24.0, 2), (3.0, 1), (0.0, 0), (11.0, 1)]
    assert [k.shared_memory for k in timed["conv1"].kernels] == [0, 67_584]


def test_joined_with_names_alone(samples):
    """Annotated by name; else so many names as operators that launch kernels: flatten has none."""
    assert samples(small_network(annotated=True), graph=list(KINDS)) == SAMPLES
    found = samples(small_network(), graph=["a", "b", "c"])
    assert found == {"a": (24.0,) * 3, "b": (3.0,) * 3, "c": (10.0, 11.0, 12.0)}


def test_annotations_inside_annotations(trace, samples):
    """The innermost that is called as an operator has the kernel; "block" and the step are none."""
    trace.mark("outer", 0.0, 100.0)
    trace.mark("block", 5.0, 80.0)
    trace.mark("inner", 10.0, 20.0)
    trace.launched("aten::a", 12.0, 10.0, [(200.0, 2.0, {})])
    trace.launched("aten::b", 50.0, 10.0, [(210.0, 3.0, {})])
    assert samples(trace, graph=["outer", "inner"]) == {"outer": (3.0,), "inner": (2.0,)}


def test_kernels_outside_the_annotations_are_told(samples, caplog):
    trace = small_network(annotated=True)
    trace.launched("aten::extra", 700.0, 10.0, [(800.0, 5.0, {})])
    assert samples(trace, graph=GRAPH) == SAMPLES
    assert "1 kernels and copies belong to no operator of the graph" in caplog.text


def test_operators_in_order_pass_over_what_launches_nothing(trace, samples):
    """A view between, an input and a dropout that PyTorch has no operator for, and a copy of the input."""
    to = trace.op("aten::to", 0.0, 10.0)
    trace.copy(trace.call("cudaMemcpyAsync", 5.0, external=to), 60.0, 1.0)
    trace.launched("aten::conv2d", 20.0, 10.0, [(100.0, 2.0, {})])
    trace.op("aten::view", 40.0, 2.0)
    trace.launched("aten::linear", 50.0, 10.0, [(110.0, 3.0, {})])
    graph = OpGraph([Operator("x", "input"), Operator("c", "conv"), Operator("d", "dropout"), Operator("f", "linear")])
    assert samples(trace, graph=graph) == {"x": (0.0,), "c": (2.0,), "d": (0.0,), "f": (3.0,)}


def test_names_count_within_the_iteration(trace, samples):
    for _, t in trace.steps(2):
        for j in range(3):
            trace.launched("aten::mm", t + 20 * j, 10.0, [(t + 100 + 9 * j, 1.0 + j, {})])
    trace.op("aten::mm", 2500.0, 10.0)  # outside of every step
    assert samples(trace) == {f"aten::mm#{j}": (1.0 + j,) * 2 for j in range(3)}


def test_levels(samples):
    top, leaf = samples(small_network()), samples(small_network(), level="leaf")
    assert list(top) == ["aten::conv2d#0", "aten::relu#0", "aten::linear#0"]
    assert list(leaf) == ["aten::cudnn_convolution#0", "aten::clamp_min#0", "aten::addmm#0"]
    assert list(top.values()) == list(leaf.values())


def test_kernels_of_no_operator_stand_for_themselves(trace, samples):
    """A kernel of another library, launched outside of PyTorch's operators."""
    list(trace.steps(1))
    trace.kernel(trace.call("cuLaunchKernel", 10.0, cat="cuda_driver"), 60.0, 2.0, "triton_fused_add")
    trace.kernel(999, 70.0, 2.0, "launched_before_the_trace_began")
    assert samples(trace) == {"triton_fused_add#0": (2.0,)}


def test_operator_on_two_streams(trace, samples):
    """0 to 10 on one and 5 to 20 on another stream, then 30 to 32: 22 with something on the device."""
    kernels = [(100.0, 10.0, {"stream": 7}), (105.0, 15.0, {"stream": 20}), (130.0, 2.0, {"stream": 7})]
    trace.launched("aten::gru", 0.0, 20.0, kernels)
    assert samples(trace) == {"aten::gru#0": (22.0,)}


def test_an_iteration_that_ran_other_kernels_is_left_out(trace, samples, caplog):
    """Of four steps the third chose another kernel for one operator; the rest of that step counts."""
    for k, t in trace.steps(4):
        trace.launched("aten::mm", t + 10, 10.0, [(t + 100, 5.0 + k, {"name": "other" if k == 2 else "gemm"})])
        trace.launched("aten::relu", t + 30, 10.0, [(t + 200, 1.0, {})])
    assert samples(trace, skip=0) == {"aten::mm#0": (5.0, 6.0, 8.0), "aten::relu#0": (1.0,) * 4}
    assert "1 times an operator launched other kernels than usual" in caplog.text


def test_iterations_of_another_name(trace, samples):
    for k, t in trace.steps(3, "forward"):
        trace.launched("aten::mm", t + 10, 10.0, [(t + 100, 2.0 + 0.1 * k, {})])
    assert samples(trace, iteration="forward") == {"aten::mm#0": (2.0, 2.1, 2.2)}
    assert list(samples(trace)) == ["aten::mm#0", "aten::mm#1", "aten::mm#2"]


def test_old_names_of_categories(read, samples):
    """Releases before 1.11: other categories, lower-case ids, and steps among the operators."""
    trace = KinetoTrace("whole")
    trace.op("ProfilerStep#0", 0.0, 900.0, cat="Operator")
    trace.event("Operator", "aten::mm", 10.0, 20.0, 1, 1, {"external id": 5})
    trace.event("Runtime", "cudaLaunchKernel", 15.0, 3.0, 1, 1, {"cbid": 211, "correlation": 9, "external id": 5})
    args = {
        "device": 0,
        "stream": 7,
        "correlation": 9,
        "external id": 5,
        "grid": [2, 2, 2],
        "block": [32, 4, 1],
        "registers per thread": 0,
        "shared memory": 0,
    }
    trace.event("Kernel", "gemm", 50.0, 7.0, 0, "stream 7", args)
    assert samples(trace) == {"aten::mm#0": (7.0,)}
    launch = read(trace)["aten::mm#0"].kernels[0].launch
    assert (launch.blocks, launch.threads, launch.registers) == (8, 128, 1)  # 0 registers: not reported


def test_device_and_versions(read):
    device, origin = read(small_network()).device, read(small_network()).provenance
    assert (device.name, device.sms, device.compute_capability) == ("NVIDIA A100-SXM4-40GB", 108, "8.0")
    assert device.to_device().model == "a100"
    assert (origin.cuda_runtime, origin.cuda_driver, Path(origin.source).name) == ("12.1", "12.4", "trace.json")


def test_several_devices(read, samples):
    trace = KinetoTrace(devices=[A100, A100 | {"id": 1, "name": "NVIDIA A40", "numSms": 84}])
    trace.launched("aten::a", 0.0, 10.0, [(50.0, 2.0, {"device": 0})])
    trace.launched("aten::b", 20.0, 10.0, [(60.0, 3.0, {"device": 1})])
    for device, message in ((None, "devices 0, 1; choose one with device="), (2, "nothing ran on device 2; .*: 0, 1")):
        with pytest.raises(FormatError, match=message):
            read(trace, device=device)
    assert samples(trace, device=1) == {"aten::b#0": (3.0,)}
    assert read(trace, device=1).device.to_device().model == "a40"


DATA = small_network().text().encode()


@pytest.mark.parametrize(
    "content",
    [
        gzip.compress(DATA, mtime=0),  # as torch writes it
        gzip.compress(DATA[:500], mtime=0) + gzip.compress(DATA[500:], mtime=0),  # in two members one behind the other
        b"\xef\xbb\xbf" + DATA.replace(b"\n", b"\r\n"),
    ],
)
def test_gzip_whatever_the_name(content, tmp_path):
    (tmp_path / "a.json").write_bytes(content)
    assert len(read_kineto(tmp_path / "a.json")) == 3


def test_order_of_events_in_the_file_does_not_matter(samples):
    """Old releases write operators by name; times and ids say what belongs where."""
    trace = small_network(annotated=True)
    expected = samples(trace)
    trace.events.reverse()
    assert samples(trace) == expected


# What is easily misread -----------------------------------------------------------------------------


def test_estimated_occupancy(trace, read):
    """The profiler says 0 % for 67,584 bytes of shared memory; an SM of 164 KiB holds 2 blocks of 66 + 1 KiB."""
    op = trace.op("aten::conv2d", 0.0, 50.0)
    trace.kernel(
        trace.call("cudaLaunchKernel", 10.0, external=op),
        60.0,
        20.0,
        grid=(2160, 1, 1),
        block=(256, 1, 1),
        registers=32,
        shared=67_584,
        **{"est. achieved occupancy %": 0, "warps per SM": "inf", "blocks per SM": "inf"},
    )
    (kernel,) = read(trace)["aten::conv2d#0"].kernels
    assert (kernel.launch.blocks, kernel.launch.threads, kernel.launch.shared_memory) == (2160, 256, 67_584)
    assert occupancy(Cluster.preset("a100").devices[0], kernel.launch).blocks == 2


@pytest.mark.parametrize("times", ["relative", "decimal", "whole"])
def test_three_formats_of_time(times, read, samples):
    """A launch 1 ns before the end of the first operator is the first's, and one at the end is the second's.

    As floats the two instants since 1970 are the same. In whole us the first ends at 20, so that both
    launches (19 and 20) are still told apart. Durations 3.141 and 2.718 us are cut to 3 and 2.
    """
    trace = KinetoTrace(times)
    trace.op("aten::first", 0.0, 20.0)
    trace.op("aten::second", 20.0, 20.0)
    trace.kernel(trace.call("cudaLaunchKernel", 19.999), 50.0, 3.141)
    trace.kernel(trace.call("cudaLaunchKernel", 20.0), 60.0, 2.718)
    a, b = (3.0, 2.0) if times == "whole" else (3.141, 2.718)
    assert samples(trace) == {"aten::first#0": (a,), "aten::second#0": (b,)}
    assert read(trace).provenance.date == "2023-09-27T17:25:35+00:00"


def test_times_that_change_within_a_trace(trace, read):
    """The first 300 operators are in the first second; what follows is 10^15 us later and still read to the ns."""
    for k in range(300):
        trace.op("aten::early", 10.0 * k, 5.0)
    late = f'{{"ph": "X", "cat": "cpu_op", "name": "aten::late", "pid": {CPU}, "tid": {CPU}, "dur": 1.5, "args": {{}}'
    trace.events.append(f'{late}, "ts": {1e15:.0f}.001}}')
    profile = read(trace)
    assert profile["aten::late#0"].samples == (1.5,)
    assert len(profile) == 301


@pytest.mark.parametrize(
    "api", ["cudaLaunchKernelExC", "cudaLaunchCooperativeKernel", "cuLaunchKernel", "cuLaunchKernelEx"]
)
def test_calls_are_known_by_correlation(api, trace, samples):
    """Kernels that come back in another order than they were launched, and calls that launch nothing between."""
    cat = "cuda_driver" if api.startswith("cuL") else "cuda_runtime"
    a, b = trace.op("aten::a", 0.0, 20.0), trace.op("aten::b", 30.0, 20.0)
    first = trace.call(api, 5.0, external=a, cat=cat)
    trace.call("cudaEventRecord", 10.0, external=a)
    second = trace.call(api, 35.0, external=b, cat=cat)
    trace.call("cudaStreamWaitEvent", 40.0, external=b)
    trace.kernel(second, 60.0, 2.0, "second", stream=9, external=b)
    trace.kernel(first, 80.0, 1.0, "first", external=a)
    assert samples(trace) == {"aten::a#0": (1.0,), "aten::b#0": (2.0,)}


def test_runtime_and_driver_share_a_correlation(trace, samples):
    """A call of the runtime, and that of the driver inside it: one kernel, of the operator of the first."""
    a = trace.op("aten::a", 0.0, 20.0)
    call = trace.call("cudaLaunchKernel", 5.0, external=a)
    trace.event("cuda_driver", "cuLaunchKernel", 6.0, 1.0, CPU, CPU, {"cbid": 307, "correlation": call})
    trace.kernel(call, 60.0, 2.0)
    assert samples(trace) == {"aten::a#0": (2.0,)}


def test_without_external_id_the_thread_decides(trace, samples):
    """Two threads at the same time: the call on the second belongs to the operator there."""
    trace.op("aten::here", 0.0, 20.0)
    trace.op("aten::there", 0.0, 20.0, tid=99)
    trace.op("aten::inner", 2.0, 10.0, tid=99)
    trace.kernel(trace.call("cudaLaunchKernel", 5.0, tid=99), 60.0, 2.0)
    assert samples(trace) == {"aten::there#0": (2.0,)}
    assert samples(trace, level="leaf") == {"aten::inner#0": (2.0,)}


def test_a_lost_call(trace, samples):
    """The profiler dropped the call; the kernel's own External id says whose it is, and in which step."""
    list(trace.steps(1))
    a = trace.op("aten::a", 10.0, 20.0)
    trace.kernel(77, 60.0, 2.0, external=a)
    assert samples(trace) == {"aten::a#0": (2.0,)}


@pytest.mark.parametrize(
    ("ids", "options", "names", "expected"),
    [
        # four kernels of one correlation id are four operators, in the order of the nodes
        (True, {}, "stem left right join", [(1.0, 2.0), (2.0, 3.0), (3.0, 4.0), (4.0, 5.0)]),
        # without ids: stream 7 has stem, left, join, then stream 13 has right, whichever of left and right is first
        (False, {}, "stem left join right", [(1.0, 2.0), (2.0, 3.0), (4.0, 5.0), (3.0, 4.0)]),
        # the operators that were captured: stem and left are conv's, 1 + 2 us and 2 + 3 us
        (
            True,
            {"captured": ["conv", "conv", "relu", "add"]},
            "stem left right join",
            [(3.0, 5.0), (3.0, 4.0), (4.0, 5.0)],
        ),
    ],
)
def test_nodes_of_a_graph(ids, options, names, expected, read):
    profile = read(forked(ids), skip=0, **options)
    assert " ".join(kernel.name for op in profile.operators for kernel in op.kernels) == names
    assert [op.samples for op in profile.operators] == expected
    named = ["conv", "relu", "add"] if options else [f"cudaGraphLaunch#0.{k}" for k in range(4)]
    assert [op.name for op in profile.operators] == named


def test_two_graphs_in_a_step(trace, read):
    for _ in range(2):
        call = trace.call("cudaGraphLaunch", 10.0 + 10 * len(trace.events))
        trace.kernel(call, 500.0 + call, 1.0)
        trace.copy(call, 501.0 + call, 2.0, cat="gpu_memset", name="Memset (Device)")
    profile = read(trace)
    assert [op.name for op in profile.operators] == [f"cudaGraphLaunch#{n}.{k}" for n in range(2) for k in range(2)]
    assert profile["cudaGraphLaunch#1.1"].copies[0].kind == "memset"


def test_memset_before_a_kernel(trace, read):
    """Split-k clears its output first: 1.5 + 8 us. It is a copy, not a kernel."""
    op = trace.op("aten::conv2d", 0.0, 50.0)
    trace.copy(trace.call("cudaMemsetAsync", 5.0, external=op), 60.0, 1.5, cat="gpu_memset", name="Memset (Device)")
    trace.kernel(trace.call("cudaLaunchKernel", 9.0, external=op), 62.0, 8.0)
    found = read(trace)["aten::conv2d#0"]
    assert (found.samples, len(found.kernels)) == ((9.5,), 1)
    assert [(copy.kind, copy.nbytes, copy.samples) for copy in found.copies] == [("memset", 4096.0, (1.5,))]


def test_iterations_that_autotune_are_discarded(read):
    """Steps 0 and 1 ran another kernel. Left: fc takes 12, 13 and 14 us."""
    profile = read(small_network(n_steps=5, warm=2))
    assert profile["aten::linear#0"].samples == (12.0, 13.0, 14.0)
    assert (profile.provenance.iterations, profile.provenance.discarded) == (3, 2)


def test_slow_first_iteration_is_discarded(trace, read):
    """Same kernels, but the first of four takes 60 us where the others take 10: over 1.2 times their median."""
    for k, t in trace.steps(4):
        trace.launched("aten::mm", t + 10, 20.0, [(t + 100, (60.0, 10.0, 11.0, 10.0)[k], {})])
    assert read(trace)["aten::mm#0"].samples == (10.0, 11.0, 10.0)
    assert read(trace, skip=0)["aten::mm#0"].samples == (60.0, 10.0, 11.0, 10.0)
    assert read(trace, skip=3)["aten::mm#0"].samples == (10.0,)


def test_a_kernel_belongs_to_the_step_that_launched_it(trace, samples):
    """Launched at 890 in the first step, run at 1500 during the second."""
    list(trace.steps(2))
    trace.launched("aten::mm", 880.0, 15.0, [(1500.0, 3.0, {})])
    trace.launched("aten::mm", 1010.0, 15.0, [(1600.0, 3.5, {})])
    assert samples(trace, skip=0) == {"aten::mm#0": (3.0, 3.5)}
