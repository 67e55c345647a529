"""Traces of torch.profiler by hand: graphs, levels, devices, formats of files."""

import gzip
import logging

import pytest
from kineto_traces import A100, KinetoTrace, small_network

from simsched import Operator, OpGraph
from simsched.base.errors import FormatError
from workloads.formats.kineto import read_kineto

KINDS = {"conv1": "conv", "relu": "relu", "flatten": "flatten", "fc": "linear"}
GRAPH = OpGraph([Operator(name, kind) for name, kind in KINDS.items()])
# (4 + 20), 3, nothing, 10 to 12 us
SAMPLES = {"conv1": (24.0,) * 3, "relu": (3.0,) * 3, "flatten": (0.0,) * 3, "fc": (10.0, 11.0, 12.0)}


def read(trace, tmp_path, **options):
    return read_kineto(trace.write(tmp_path / "trace.json"), **options)


def samples(profile):
    return {op.name: op.samples for op in profile.operators}


@pytest.mark.parametrize("times", ["relative", "decimal", "whole"])
@pytest.mark.parametrize("annotated", [True, False])
def test_joined_with_a_graph(annotated, times, tmp_path):
    """By name or in order; the operator that launches nothing takes 0 us."""
    profile = read(small_network(times, annotated=annotated), tmp_path, graph=GRAPH)
    assert samples(profile) == SAMPLES
    timed = profile.apply(GRAPH)
    assert [op.time for op in timed.operators] == [24.0, 3.0, 0.0, 11.0]
    assert [len(op.kernels) for op in timed.operators] == [2, 1, 0, 1]
    assert [k.shared_memory for k in timed["conv1"].kernels] == [0, 67_584]


def test_joined_with_names_alone(tmp_path):
    """Annotated by name; else so many names as operators that launch kernels: flatten has none."""
    names = list(KINDS)
    assert samples(read(small_network(annotated=True), tmp_path, graph=names)) == SAMPLES
    found = read(small_network(), tmp_path, graph=["a", "b", "c"])
    assert samples(found) == {"a": (24.0,) * 3, "b": (3.0,) * 3, "c": (10.0, 11.0, 12.0)}
    with pytest.raises(FormatError, match="3 operators ran in iteration 0 where the graph has 4"):
        read(small_network(), tmp_path, graph=names)


def test_annotations_inside_annotations(tmp_path):
    """The innermost that is called as an operator has the kernel; "block" and the step are none."""
    trace = KinetoTrace()
    trace.mark("outer", 0.0, 100.0)
    trace.mark("block", 5.0, 80.0)
    trace.mark("inner", 10.0, 20.0)
    trace.launched("aten::a", 12.0, 10.0, [(200.0, 2.0, {})])
    trace.launched("aten::b", 50.0, 10.0, [(210.0, 3.0, {})])
    assert samples(read(trace, tmp_path, graph=["outer", "inner"])) == {"outer": (3.0,), "inner": (2.0,)}


def test_kernels_outside_the_annotations_are_told(tmp_path, caplog):
    trace = small_network(annotated=True)
    trace.launched("aten::extra", 700.0, 10.0, [(800.0, 5.0, {})])
    with caplog.at_level(logging.WARNING):
        assert samples(read(trace, tmp_path, graph=GRAPH)) == SAMPLES
    assert "1 kernels and copies belong to no operator of the graph" in caplog.text


@pytest.mark.parametrize(
    ("kinds", "message"),
    [
        (["conv", "add", "linear"], "operator 1 of the graph is 'op1' of kind 'add', but 'aten::relu' ran"),
        (["conv", "relu"], "operator 2 of the graph is no further operator, but 'aten::linear' ran"),
        (["conv", "relu", "linear", "conv"], "nothing ran for operator 'op3' of kind 'conv'"),
    ],
)
def test_the_first_operator_that_does_not_match_is_named(kinds, message, tmp_path):
    graph = OpGraph([Operator(f"op{k}", kind) for k, kind in enumerate(kinds)])
    with pytest.raises(FormatError, match=message):
        read(small_network(), tmp_path, graph=graph)


def test_an_operator_without_annotation_is_named(tmp_path):
    with pytest.raises(FormatError, match="operator 'softmax' of the graph is not annotated in iteration 0"):
        read(small_network(annotated=True), tmp_path, graph=[*KINDS, "softmax"])


def test_steps_that_are_not_marked(tmp_path):
    """Two runs in one iteration: which of them is meant cannot be known."""
    trace = KinetoTrace()
    for k in range(2):
        trace.mark("conv1", 100.0 * k, 50.0)
        trace.launched("aten::conv2d", 100.0 * k + 1, 10.0, [(500.0 + k, 0.5, {})])
    with pytest.raises(FormatError, match="operator 'conv1' is annotated twice in iteration 0; call the profiler's"):
        read(trace, tmp_path, graph=["conv1"])


def test_operators_in_order_pass_over_what_launches_nothing(tmp_path):
    """A view between, an input and a dropout that PyTorch has no operator for, and a copy of the input."""
    trace = KinetoTrace()
    to = trace.op("aten::to", 0.0, 10.0)
    trace.copy(trace.call("cudaMemcpyAsync", 5.0, external=to), 60.0, 1.0)
    trace.launched("aten::conv2d", 20.0, 10.0, [(100.0, 2.0, {})])
    trace.op("aten::view", 40.0, 2.0)
    trace.launched("aten::linear", 50.0, 10.0, [(110.0, 3.0, {})])
    graph = OpGraph([Operator("x", "input"), Operator("c", "conv"), Operator("d", "dropout"), Operator("f", "linear")])
    assert samples(read(trace, tmp_path, graph=graph)) == {"x": (0.0,), "c": (2.0,), "d": (0.0,), "f": (3.0,)}


def test_names_count_within_the_iteration(tmp_path):
    trace = KinetoTrace()
    for k in range(2):
        trace.mark(f"ProfilerStep#{k}", 1000.0 * k, 900.0)
        for j in range(3):
            trace.launched("aten::mm", 1000.0 * k + 20 * j, 10.0, [(1000.0 * k + 100 + 9 * j, 1.0 + j, {})])
    trace.op("aten::mm", 2500.0, 10.0)  # outside of every step
    assert samples(read(trace, tmp_path)) == {f"aten::mm#{j}": (1.0 + j,) * 2 for j in range(3)}


def test_levels(tmp_path):
    top = read(small_network(), tmp_path)
    leaf = read(small_network(), tmp_path, level="leaf")
    assert list(samples(top)) == ["aten::conv2d#0", "aten::relu#0", "aten::linear#0"]
    assert list(samples(leaf)) == ["aten::cudnn_convolution#0", "aten::clamp_min#0", "aten::addmm#0"]
    assert list(samples(top).values()) == list(samples(leaf).values())


def test_kernels_of_no_operator_stand_for_themselves(tmp_path):
    """A kernel of another library, launched outside of PyTorch's operators."""
    trace = KinetoTrace()
    trace.mark("ProfilerStep#0", 0.0, 900.0)
    trace.kernel(trace.call("cuLaunchKernel", 10.0, cat="cuda_driver"), 60.0, 2.0, "triton_fused_add")
    trace.kernel(999, 70.0, 2.0, "launched_before_the_trace_began")
    assert samples(read(trace, tmp_path)) == {"triton_fused_add#0": (2.0,)}


def test_operator_on_two_streams(tmp_path):
    """0 to 10 on one and 5 to 20 on another stream, then 30 to 32: busy for 22, span 32."""
    trace = KinetoTrace()
    kernels = [(100.0, 10.0, {"stream": 7}), (105.0, 15.0, {"stream": 20}), (130.0, 2.0, {"stream": 7})]
    trace.launched("aten::gru", 0.0, 20.0, kernels)
    assert samples(read(trace, tmp_path)) == {"aten::gru#0": (22.0,)}
    assert samples(read(trace, tmp_path, duration="span")) == {"aten::gru#0": (32.0,)}


def test_an_iteration_that_ran_other_kernels_is_left_out(tmp_path, caplog):
    """Of four steps the third chose another kernel for one operator; the rest of that step counts."""
    trace = KinetoTrace()
    for k, name in enumerate(["gemm", "gemm", "other", "gemm"]):
        trace.mark(f"ProfilerStep#{k}", 1000.0 * k, 900.0)
        trace.launched("aten::mm", 1000.0 * k + 10, 10.0, [(1000.0 * k + 100, 5.0 + k, {"name": name})])
        trace.launched("aten::relu", 1000.0 * k + 30, 10.0, [(1000.0 * k + 200, 1.0, {})])
    with caplog.at_level(logging.WARNING):
        profile = read(trace, tmp_path, skip=0)
    assert samples(profile) == {"aten::mm#0": (5.0, 6.0, 8.0), "aten::relu#0": (1.0,) * 4}
    assert "1 times an operator launched other kernels than usual" in caplog.text


def test_iterations_of_another_name(tmp_path):
    trace = KinetoTrace()
    for k in range(3):
        trace.mark("forward", 1000.0 * k, 900.0)
        trace.launched("aten::mm", 1000.0 * k + 10, 10.0, [(1000.0 * k + 100, 2.0 + 0.1 * k, {})])
    assert samples(read(trace, tmp_path, iteration="forward")) == {"aten::mm#0": (2.0, 2.1, 2.2)}
    assert list(samples(read(trace, tmp_path))) == ["aten::mm#0", "aten::mm#1", "aten::mm#2"]


def test_old_names_of_categories(tmp_path):
    """Releases before 1.11: other categories, lower-case ids, and steps among the operators."""
    trace = KinetoTrace("whole")
    trace.op("ProfilerStep#0", 0.0, 900.0, cat="Operator")
    trace.event("Operator", "aten::mm", 10.0, 20.0, 1, 1, {"external id": 5})
    trace.event("Runtime", "cudaLaunchKernel", 15.0, 3.0, 1, 1, {"cbid": 211, "correlation": 9, "external id": 5})
    args = {"device": 0, "stream": 7, "correlation": 9, "external id": 5, "grid": [2, 2, 2], "block": [32, 4, 1],
            "registers per thread": 0, "shared memory": 0}  # fmt: skip
    trace.event("Kernel", "gemm", 50.0, 7.0, 0, "stream 7", args)
    profile = read(trace, tmp_path)
    assert samples(profile) == {"aten::mm#0": (7.0,)}
    launch = profile["aten::mm#0"].kernels[0].launch
    assert (launch.blocks, launch.threads, launch.registers) == (8, 128, 1)  # 0 registers: not reported


def test_device_and_versions(tmp_path):
    profile = read(small_network(), tmp_path)
    assert profile.device.name == "NVIDIA A100-SXM4-40GB"
    assert (profile.device.sms, profile.device.compute_capability) == (108, "8.0")
    assert profile.device.to_device().model == "a100"
    origin = profile.provenance
    assert (origin.cuda_runtime, origin.cuda_driver) == ("12.1", "12.4")
    assert origin.source.endswith("trace.json")


def test_several_devices(tmp_path):
    trace = KinetoTrace(devices=[A100, A100 | {"id": 1, "name": "NVIDIA A40", "numSms": 84}])
    trace.launched("aten::a", 0.0, 10.0, [(50.0, 2.0, {"device": 0})])
    trace.launched("aten::b", 20.0, 10.0, [(60.0, 3.0, {"device": 1})])
    with pytest.raises(FormatError, match="kernels ran on devices 0, 1; choose one with device="):
        read(trace, tmp_path)
    with pytest.raises(FormatError, match="nothing ran on device 2; there are: 0, 1"):
        read(trace, tmp_path, device=2)
    profile = read(trace, tmp_path, device=1)
    assert samples(profile) == {"aten::b#0": (3.0,)}
    assert profile.device.to_device().model == "a40"


def test_gzip_whatever_the_name(tmp_path):
    """As torch writes it, and in two members one behind the other."""
    data = small_network().text().encode()
    for name, content in (
        ("a.json.gz", gzip.compress(data)),
        ("b.json", gzip.compress(data[:500]) + gzip.compress(data[500:])),
        ("c.json", b"\xef\xbb\xbf" + data.replace(b"\n", b"\r\n")),
    ):
        (tmp_path / name).write_bytes(content)
        assert len(read_kineto(tmp_path / name)) == 3


def test_order_of_events_in_the_file_does_not_matter(tmp_path):
    """Old releases write operators by name; times and ids say what belongs where."""
    trace = small_network(annotated=True)
    expected = samples(read(trace, tmp_path))
    trace.events.reverse()
    assert samples(read(trace, tmp_path)) == expected
