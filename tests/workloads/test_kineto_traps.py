"""What is easily misread in a torch.profiler trace, a test for each; times worked by hand."""

import pytest
from kineto_traces import CPU, KinetoTrace, small_network

from simsched import Cluster
from simsched.base.errors import FormatError
from simsched.model.cluster.occupancy import occupancy
from workloads.formats.kineto import read_kineto

A100 = Cluster.preset("a100").devices[0]
ONE_STEP = ("ProfilerStep#0", 0.0, 900.0)


def read(trace, tmp_path, **options):
    return read_kineto(trace.write(tmp_path / "trace.json"), **options)


def samples(profile):
    return {op.name: op.samples for op in profile.operators}


def test_trap_1_estimated_occupancy(tmp_path):
    """The profiler says 0 % for 67,584 bytes of shared memory; an SM of 164 KiB holds 2 blocks of 66 + 1 KiB."""
    trace = KinetoTrace()
    op = trace.op("aten::conv2d", 0.0, 50.0)
    trace.kernel(
        trace.call("cudaLaunchKernel", 10.0, external=op), 60.0, 20.0, grid=(2160, 1, 1), block=(256, 1, 1),
        registers=32, shared=67_584, **{"est. achieved occupancy %": 0, "warps per SM": "inf", "blocks per SM": "inf"},
    )  # fmt: skip
    (kernel,) = read(trace, tmp_path)["aten::conv2d#0"].kernels
    assert (kernel.launch.blocks, kernel.launch.threads, kernel.launch.shared_memory) == (2160, 256, 67_584)
    assert occupancy(A100, kernel.launch).blocks == 2


@pytest.mark.parametrize("times", ["relative", "decimal", "whole"])
def test_trap_2_three_formats_of_time(times, tmp_path):
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
    profile = read(trace, tmp_path)
    assert samples(profile) == {"aten::first#0": (a,), "aten::second#0": (b,)}
    assert profile.provenance.date == "2023-09-27T17:25:35+00:00"


def test_trap_2_times_that_change_within_a_trace(tmp_path):
    """The first 300 operators are in the first second; what follows is 10^15 us later and still read to the ns."""
    trace = KinetoTrace("relative")
    for k in range(300):
        trace.op("aten::early", 10.0 * k, 5.0)
    late = 1e15
    trace.events.append(
        f'{{"ph": "X", "cat": "cpu_op", "name": "aten::late", "pid": {CPU}, "tid": {CPU}, '
        f'"ts": {late:.0f}.001, "dur": 1.5, "args": {{}}}}'
    )
    profile = read(trace, tmp_path)
    assert profile["aten::late#0"].samples == (1.5,)
    assert len(profile) == 301


@pytest.mark.parametrize(
    "api", ["cudaLaunchKernelExC", "cudaLaunchCooperativeKernel", "cuLaunchKernel", "cuLaunchKernelEx"]
)
def test_trap_3_calls_are_known_by_correlation(api, tmp_path):
    """Kernels that come back in another order than they were launched, and calls that launch nothing between."""
    trace, cat = KinetoTrace(), "cuda_driver" if api.startswith("cuL") else "cuda_runtime"
    a, b = trace.op("aten::a", 0.0, 20.0), trace.op("aten::b", 30.0, 20.0)
    first = trace.call(api, 5.0, external=a, cat=cat)
    trace.call("cudaEventRecord", 10.0, external=a)
    second = trace.call(api, 35.0, external=b, cat=cat)
    trace.call("cudaStreamWaitEvent", 40.0, external=b)
    trace.kernel(second, 60.0, 2.0, "second", stream=9, external=b)
    trace.kernel(first, 80.0, 1.0, "first", external=a)
    assert samples(read(trace, tmp_path)) == {"aten::a#0": (1.0,), "aten::b#0": (2.0,)}


def test_trap_3_runtime_and_driver_share_a_correlation(tmp_path):
    """A call of the runtime, and that of the driver inside it: one kernel, of the operator of the first."""
    trace = KinetoTrace()
    a = trace.op("aten::a", 0.0, 20.0)
    call = trace.call("cudaLaunchKernel", 5.0, external=a)
    trace.event("cuda_driver", "cuLaunchKernel", 6.0, 1.0, CPU, CPU, {"cbid": 307, "correlation": call})
    trace.kernel(call, 60.0, 2.0)
    assert samples(read(trace, tmp_path)) == {"aten::a#0": (2.0,)}


def test_trap_3_without_external_id_the_thread_decides(tmp_path):
    """Two threads at the same time: the call on the second belongs to the operator there."""
    trace = KinetoTrace()
    trace.op("aten::here", 0.0, 20.0)
    trace.op("aten::there", 0.0, 20.0, tid=99)
    trace.op("aten::inner", 2.0, 10.0, tid=99)
    trace.kernel(trace.call("cudaLaunchKernel", 5.0, tid=99), 60.0, 2.0)
    assert samples(read(trace, tmp_path)) == {"aten::there#0": (2.0,)}
    assert samples(read(trace, tmp_path, level="leaf")) == {"aten::inner#0": (2.0,)}


def test_trap_3_a_lost_call(tmp_path):
    """The profiler dropped the call; the kernel's own External id says whose it is, and in which step."""
    trace = KinetoTrace()
    trace.mark(*ONE_STEP)
    a = trace.op("aten::a", 10.0, 20.0)
    trace.kernel(77, 60.0, 2.0, external=a)
    assert samples(read(trace, tmp_path)) == {"aten::a#0": (2.0,)}


def graph_trace(node_ids):
    """Two steps, in each one launch of a graph: a fork of two branches whose order in time changes between them."""
    trace = KinetoTrace()
    for k in range(2):
        t = 1000.0 * k
        trace.mark(f"ProfilerStep#{k}", t, 900.0)
        call = trace.call("cudaGraphLaunch", t + 10, 1240.0)
        starts = {"stem": 300, "left": 320 + 5 * k, "right": 322 - k, "join": 360}
        for node, (name, stream) in enumerate([("stem", 7), ("left", 7), ("right", 13), ("join", 7)]):
            more = {"graph id": 5, "graph node id": (5 << 32) + node} if node_ids else {}
            trace.kernel(call, t + starts[name], 1.0 + node + k, name, stream=stream, **more)
    return trace


def test_trap_3_nodes_of_a_graph_by_id(tmp_path):
    """Four kernels of one correlation id are four operators, in the order of the nodes."""
    profile = read(graph_trace(True), tmp_path, skip=0)
    assert [op.kernels[0].name for op in profile.operators] == ["stem", "left", "right", "join"]
    assert samples(profile) == {f"cudaGraphLaunch#0.{k}": (1.0 + k, 2.0 + k) for k in range(4)}


def test_trap_3_nodes_of_a_graph_by_order_on_each_stream(tmp_path):
    """Without ids: stream 7 has stem, left, join, then stream 13 has right, whichever of left and right is first."""
    profile = read(graph_trace(False), tmp_path, skip=0)
    assert [op.kernels[0].name for op in profile.operators] == ["stem", "left", "join", "right"]
    assert [op.samples for op in profile.operators] == [(1.0, 2.0), (2.0, 3.0), (4.0, 5.0), (3.0, 4.0)]


def test_trap_3_nodes_of_a_graph_by_name(tmp_path):
    """The operators that were captured: stem and left are conv's, 1 + 2 us and 2 + 3 us."""
    profile = read(graph_trace(True), tmp_path, skip=0, captured=["conv", "conv", "relu", "add"])
    assert samples(profile) == {"conv": (3.0, 5.0), "relu": (3.0, 4.0), "add": (4.0, 5.0)}


def test_trap_3_nodes_without_ids_are_not_taken_in_order(tmp_path):
    """Which of two kernels of a launch is which operator only their ids say."""
    with pytest.raises(FormatError, match="the nodes of the captured graph have no ids"):
        read(graph_trace(False), tmp_path, skip=0, captured=["conv", "conv", "relu", "add"])


def test_trap_3_two_graphs_in_a_step(tmp_path):
    trace = KinetoTrace()
    for _ in range(2):
        call = trace.call("cudaGraphLaunch", 10.0 + 10 * len(trace.events))
        trace.kernel(call, 500.0 + call, 1.0)
        trace.copy(call, 501.0 + call, 2.0, cat="gpu_memset", name="Memset (Device)")
    profile = read(trace, tmp_path)
    assert [op.name for op in profile.operators] == [f"cudaGraphLaunch#{n}.{k}" for n in range(2) for k in range(2)]
    assert profile["cudaGraphLaunch#1.1"].copies[0].kind == "memset"


def test_trap_4_memset_before_a_kernel(tmp_path):
    """Split-k clears its output first: 1.5 + 8 us. It is a copy, not a kernel."""
    trace = KinetoTrace()
    op = trace.op("aten::conv2d", 0.0, 50.0)
    trace.copy(trace.call("cudaMemsetAsync", 5.0, external=op), 60.0, 1.5, cat="gpu_memset", name="Memset (Device)")
    trace.kernel(trace.call("cudaLaunchKernel", 9.0, external=op), 62.0, 8.0)
    found = read(trace, tmp_path)["aten::conv2d#0"]
    assert (found.samples, len(found.kernels)) == ((9.5,), 1)
    assert [(copy.kind, copy.nbytes, copy.samples) for copy in found.copies] == [("memset", 4096.0, (1.5,))]


def test_trap_7_iterations_that_autotune_are_discarded(tmp_path):
    """Steps 0 and 1 ran another kernel. Left: fc takes 12, 13 and 14 us."""
    profile = read(small_network(n_steps=5, warm=2), tmp_path)
    assert profile["aten::linear#0"].samples == (12.0, 13.0, 14.0)
    assert (profile.provenance.iterations, profile.provenance.discarded) == (3, 2)


def test_trap_7_slow_first_iteration_is_discarded(tmp_path):
    """Same kernels, but the first of four takes 60 us where the others take 10: over 1.2 times their median."""
    trace = KinetoTrace()
    for k, dur in enumerate((60.0, 10.0, 11.0, 10.0)):
        trace.mark(f"ProfilerStep#{k}", 1000.0 * k, 900.0)
        trace.launched("aten::mm", 1000.0 * k + 10, 20.0, [(1000.0 * k + 100, dur, {})])
    assert read(trace, tmp_path)["aten::mm#0"].samples == (10.0, 11.0, 10.0)
    assert read(trace, tmp_path, skip=0)["aten::mm#0"].samples == (60.0, 10.0, 11.0, 10.0)
    assert read(trace, tmp_path, skip=3)["aten::mm#0"].samples == (10.0,)


def test_trap_7_a_kernel_belongs_to_the_step_that_launched_it(tmp_path):
    """Launched at 890 in the first step, run at 1500 during the second."""
    trace = KinetoTrace()
    for k in range(2):
        trace.mark(f"ProfilerStep#{k}", 1000.0 * k, 900.0)
    trace.launched("aten::mm", 880.0, 15.0, [(1500.0, 3.0, {})])
    trace.launched("aten::mm", 1010.0, 15.0, [(1600.0, 3.5, {})])
    assert samples(read(trace, tmp_path, skip=0)) == {"aten::mm#0": (3.0, 3.5)}
