"""Traces of torch.profiler by hand: graphs, levels, devices, formats of files."""

import gzip

import pytest
from kineto_traces import A100, KinetoTrace, small_network

from simsched import Operator, OpGraph
from simsched.base.errors import FormatError
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
    assert [op.time for op in timed.operators] == [24.0, 3.0, 0.0, 11.0]
    assert [len(op.kernels) for op in timed.operators] == [2, 1, 0, 1]
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
    args = {"device": 0, "stream": 7, "correlation": 9, "external id": 5, "grid": [2, 2, 2], "block": [32, 4, 1],
            "registers per thread": 0, "shared memory": 0}  # fmt: skip
    trace.event("Kernel", "gemm", 50.0, 7.0, 0, "stream 7", args)
    assert samples(trace) == {"aten::mm#0": (7.0,)}
    launch = read(trace)["aten::mm#0"].kernels[0].launch
    assert (launch.blocks, launch.threads, launch.registers) == (8, 128, 1)  # 0 registers: not reported


def test_device_and_versions(read):
    profile = read(small_network())
    assert profile.device.name == "NVIDIA A100-SXM4-40GB"
    assert (profile.device.sms, profile.device.compute_capability) == (108, "8.0")
    assert profile.device.to_device().model == "a100"
    origin = profile.provenance
    assert (origin.cuda_runtime, origin.cuda_driver) == ("12.1", "12.4")
    assert origin.source.endswith("trace.json")


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


@pytest.mark.parametrize("content", [
    gzip.compress(DATA),  # as torch writes it
    gzip.compress(DATA[:500]) + gzip.compress(DATA[500:]),  # in two members one behind the other
    b"\xef\xbb\xbf" + DATA.replace(b"\n", b"\r\n"),
])  # fmt: skip
def test_gzip_whatever_the_name(content, tmp_path):
    (tmp_path / "a.json").write_bytes(content)
    assert len(read_kineto(tmp_path / "a.json")) == 3


def test_order_of_events_in_the_file_does_not_matter(samples):
    """Old releases write operators by name; times and ids say what belongs where."""
    trace = small_network(annotated=True)
    expected = samples(trace)
    trace.events.reverse()
    assert samples(trace) == expected
