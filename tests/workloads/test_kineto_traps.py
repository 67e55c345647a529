"""What is easily misread in a torch.profiler trace, a test for each; times worked by hand."""

import pytest
from kineto_traces import CPU, KinetoTrace, forked, small_network

from simsched import Cluster
from simsched.model.cluster.occupancy import occupancy

A100 = Cluster.preset("a100").devices[0]


def test_estimated_occupancy(trace, read):
    """The profiler says 0 % for 67,584 bytes of shared memory; an SM of 164 KiB holds 2 blocks of 66 + 1 KiB."""
    op = trace.op("aten::conv2d", 0.0, 50.0)
    trace.kernel(
        trace.call("cudaLaunchKernel", 10.0, external=op), 60.0, 20.0, grid=(2160, 1, 1), block=(256, 1, 1),
        registers=32, shared=67_584, **{"est. achieved occupancy %": 0, "warps per SM": "inf", "blocks per SM": "inf"},
    )  # fmt: skip
    (kernel,) = read(trace)["aten::conv2d#0"].kernels
    assert (kernel.launch.blocks, kernel.launch.threads, kernel.launch.shared_memory) == (2160, 256, 67_584)
    assert occupancy(A100, kernel.launch).blocks == 2


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


@pytest.mark.parametrize(("ids", "options", "names", "expected"), [
    # four kernels of one correlation id are four operators, in the order of the nodes
    (True, {}, "stem left right join", [(1.0, 2.0), (2.0, 3.0), (3.0, 4.0), (4.0, 5.0)]),
    # without ids: stream 7 has stem, left, join, then stream 13 has right, whichever of left and right is first
    (False, {}, "stem left join right", [(1.0, 2.0), (2.0, 3.0), (4.0, 5.0), (3.0, 4.0)]),
    # the operators that were captured: stem and left are conv's, 1 + 2 us and 2 + 3 us
    (True, {"captured": ["conv", "conv", "relu", "add"]}, "stem left right join", [(3.0, 5.0), (3.0, 4.0), (4.0, 5.0)]),
])  # fmt: skip
def test_nodes_of_a_graph(ids, options, names, expected, read):
    profile = read(forked(ids), skip=0, **options)
    assert " ".join(kernel.name for op in profile.operators for kernel in op.kernels) == names
    assert [op.samples for op in profile.operators] == expected
    names = ["conv", "relu", "add"] if options else [f"cudaGraphLaunch#0.{k}" for k in range(4)]
    assert [op.name for op in profile.operators] == names


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
