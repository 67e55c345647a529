"""Times of Inductor's kernels from a profile: those of the trace, or a reason why there are none; never wrong ones."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kineto_traces import CPU, KinetoTrace

import simsched as ss
from hwbackend.torch.inductor.plan import FusedKernel, sources, with_profile
from hwbackend.torch.inductor.profiled import read_kernels
from hwbackend.torch.traces import ITERATION
from simsched.base.errors import CostError, FormatError

FUNCTIONS = {"op0": ["triton_poi_fused_relu_0"], "op1": [], "op2_op3": ["triton_red_fused_sum_1"], "op4": []}
TIMES = {"op0": 2.0, "op1": 7.0, "op2_op3": 3.5, "op4": 0.0}


def traced(count=3, names=("triton_poi_fused_relu_0", "triton_red_fused_sum_1"), **more):
    """Calls of four kernels: of Triton, of a library with two functions, of Triton after a memset, and a silent one."""
    trace = KinetoTrace()
    for k, t in trace.steps(count, f"{ITERATION}#{{}}"):
        launch(trace, "op0", t + 10, [(2.0 + 0.5 * (k - 1), names[0], (8, 1, 1))], "cuLaunchKernelEx", **more)
        launch(trace, "op1", t + 100, [(4.0, "gemm", (108, 1, 1)), (3.0, "splitK", (16, 2, 1))], "cudaLaunchKernel")
        trace.mark("op2_op3", t + 200, 50.0)
        trace.copy(trace.call("cudaMemsetAsync", t + 205), t + 300, 0.5, cat="gpu_memset", name="Memset (Device)")
        trace.kernel(trace.call("cuLaunchKernel", t + 215), t + 310, 3.0, names[1], grid=(4, 1, 1))
        trace.mark("op4", t + 260, 10.0)
    return trace


def launch(trace, mark, start, kernels, api, **more):
    trace.mark(mark, start, 50.0)
    for i, (time, name, grid) in enumerate(kernels):
        call = trace.call(api, start + 5 + 10 * i)
        trace.kernel(call, start + 40 + 10 * i, time, name, grid=grid, **more)


def read(trace, tmp_path, functions=None, count=3):
    return read_kernels(trace.write(tmp_path / "trace.json"), functions or FUNCTIONS, count)


def test_times_are_those_of_the_kernels_alone(tmp_path):
    """Medians of three calls: 1.5, 2 and 2.5; a library's functions 4 + 3; the memset before a kernel 0.5 + 3."""
    profile = read(traced(), tmp_path)
    assert {op.name: op.median for op in profile.operators} == TIMES
    rows = [
        FusedKernel("op0", (), (0,), time=9.0, elements=8),
        FusedKernel("view", (0,), (0,), launches=False),
        FusedKernel("op1", (1,), (1,), kind="extern", elements=8),
        FusedKernel("op2_op3", (2,), (2,)),
        FusedKernel("op4", (), (3,), kind="extern", elements=64 * 64),
    ]
    assert sources(rows) == {"estimated": 1, "model": 3}
    timed = with_profile(rows, profile)
    assert [kernel.time for kernel in timed] == [2.0, None, 7.0, 3.5, 0.0]
    assert sources(timed) == {"measured": 4}
    assert timed[0].launch == (ss.Kernel(8, 128),)
    assert [(kernel.blocks, kernel.share) for kernel in timed[2].launch] == [(108, 4 / 7), (32, 3 / 7)]
    assert timed[4].launch == rows[4].launch  # by rule: it launched nothing


def test_a_profile_of_other_kernels_is_refused(tmp_path):
    with pytest.raises(CostError, match="op9"):
        with_profile([FusedKernel("op9", (), ())], read(traced(), tmp_path))


def test_names_of_triton_may_be_switched_off(tmp_path):
    """Then all functions have one name, and only the annotations tell them apart."""
    assert read(traced(names=("triton_", "triton_")), tmp_path)["op0"].median == 2.0


@pytest.mark.parametrize(
    ("trace", "message"),
    [
        (traced(2), "2 calls are annotated where there were 3"),
        (traced(names=("triton_red_fused_sum_1", "triton_poi_fused_relu_0")), "'op0' calls triton_poi_fused_relu_0"),
        (traced(names=("another", "triton_red_fused_sum_1")), "but nothing of Triton was launched"),
        (traced(stream=13), "kernels ran on 2 streams"),
        (KinetoTrace(), "recorded no kernels"),
    ],
    ids=["calls", "swapped", "another", "streams", "empty"],
)
def test_what_is_not_exactly_as_told_is_refused(trace, message, tmp_path):
    with pytest.raises(FormatError, match=message):
        read(trace, tmp_path)


def test_a_kernel_that_launches_other_functions_from_call_to_call_is_refused(tmp_path):
    trace = traced(2)
    trace.mark(f"{ITERATION}#2", 2000.0, 900.0)
    for mark in FUNCTIONS:
        launch(trace, mark, 2000.0 + 60 * list(FUNCTIONS).index(mark), [(1.0, "gemm", (1, 1, 1))], "cudaLaunchKernel")
    with pytest.raises(FormatError, match="launched other functions in one call than in another"):
        read(trace, tmp_path)


def test_kernels_of_a_captured_graph_are_refused(tmp_path):
    trace = traced()
    trace.kernel(trace.call("cudaGraphLaunch", 600.0), 650.0, 1.0)
    with pytest.raises(FormatError, match="a captured graph was launched"):
        read(trace, tmp_path)


def test_what_runs_outside_of_kernels_is_not_theirs(tmp_path):
    """A copy of an input before the first kernel, and what another thread launches."""
    trace = traced()
    trace.copy(trace.call("cudaMemcpyAsync", 5.0), 6.0, 1.0)
    trace.kernel(trace.call("cudaLaunchKernel", 20.0, tid=CPU + 1), 30.0, 1.0)
    assert {op.name: op.median for op in read(trace, tmp_path).operators} == TIMES


EVENTS = len(traced().events)


@given(order=st.permutations(range(EVENTS)))
def test_the_order_of_events_does_not_matter(order, tmp_path_factory):
    trace = traced()
    trace.events = [trace.events[i] for i in order]
    profile = read(trace, tmp_path_factory.mktemp("shuffled"))
    assert {op.name: op.median for op in profile.operators} == TIMES


@pytest.mark.parametrize("change", ["missing", "doubled"])
def test_no_event_that_is_missing_or_doubled_makes_a_wrong_time(change, tmp_path):
    """Each event in turn: times are right, or there are none; without any kernel, launch or annotation there are none.

    What may be missing: flows, and the launch of a memset or a call that kernels are still joined with.
    """
    refused = set()
    for i in range(EVENTS):
        trace = traced()
        event = trace.events.pop(i) if change == "missing" else trace.events[i]
        if change == "doubled":
            trace.events.append(event)
        try:
            profile = read(trace, tmp_path)
        except FormatError:
            refused.add(json.loads(event)["cat"])
        else:
            assert {op.name: op.median for op in profile.operators} == TIMES, event
    assert refused >= {"kernel", "gpu_memset", "user_annotation"}
    assert ("cuda_runtime" in refused) == (change == "missing")
    assert "ac2g" not in refused
