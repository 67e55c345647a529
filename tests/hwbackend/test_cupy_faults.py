"""Each fault of a GPU, and of what is asked of it, gives one line and leaves nothing behind."""

from dataclasses import replace
from itertools import pairwise

import pytest
from fake_cuda import H200, FakeCuda
from shortened import synths

from hwbackend.cupy_backend import CupyBackend
from hwbackend.cupy_errors import insufficient_driver, translated
from simsched.base.errors import BackendError
from simsched.model import OpGraph, Placement, Schedule

OUT_OF_MEMORY = "cudaErrorMemoryAllocation: out of memory"


def plan(execution="events", n=3, shared_memory=0):
    graph = synths("abc"[:n], pairwise("abc"[:n]), shared_memory=shared_memory)
    placements = [Placement(name, stream=i % 2, stage=i) for i, name in enumerate(graph.names)]
    return Schedule(graph, placements, execution=execution)


def failing(execution="events", gpus=1, **faults):
    """Return the message with which a replay fails; nothing is left on the fake."""
    fake = FakeCuda(gpus, faults=faults)
    with pytest.raises(BackendError) as caught:
        CupyBackend(api=fake, devices=1).replay(plan(execution), repeats=2)
    text = str(caught.value)
    assert text.isprintable()
    assert not fake.live
    return text


@pytest.mark.parametrize("number", range(1, 11))
def test_out_of_memory_at_each_allocation(number):
    """Outputs, parameters, stamps and two shared buffers: five in sequence, five under the schedule."""
    text = failing(malloc=(number, OUT_OF_MEMORY))
    assert text.startswith("gpu0: 512 MiB are needed: out of GPU memory: free some")


def test_that_is_all_that_is_allocated():
    fake = FakeCuda(faults={"malloc": (11, OUT_OF_MEMORY)})
    assert CupyBackend(api=fake).replay(plan(), repeats=2).max_relative_error == 0.0


@pytest.mark.parametrize(
    "call",
    ["stream", "event", "record", "wait", "launch", "write", "read", "fill", "synchronize", "elapsed", "compile"],
)
@pytest.mark.parametrize("number", [1, 4])
def test_any_call_may_fail(call, number):
    number = 1 if call == "compile" else number
    text = failing(**{call: (number, "cudaErrorUnknown: unknown error")})
    assert text.endswith("CUDA refused a call: cudaErrorUnknown: unknown error")


@pytest.mark.parametrize("call", ["begin_capture", "wait", "launch", "end_capture", "upload_graph", "launch_graph"])
def test_a_capture_that_is_invalidated(call):
    """The sequential run before it makes 3 launches and no wait."""
    number = 5 if call == "launch" else 1
    text = failing(
        "graph", **{call: (number, "cudaErrorStreamCaptureInvalidated: operation failed due to a previous error")}
    )
    assert "the capture of a graph was invalidated" in text
    assert text.endswith("run the schedule as 'events'")


@pytest.mark.parametrize(
    ("error", "says"),
    [
        ("cudaErrorLaunchTimeout: the launch timed out and was terminated", "ran into the driver's time limit"),
        ("cudaErrorIllegalAddress: an illegal memory access was encountered", "a kernel failed on the device"),
        ("CUDA_ERROR_LAUNCH_FAILED: unspecified launch failure", "a kernel failed on the device"),
    ],
)
@pytest.mark.parametrize("execution", ["events", "stages", "graph"])
def test_after_a_kernel_has_failed_all_calls_fail(execution, error, says):
    """Streams, events, graphs and buffers are given back all the same, which fails too; the first error is told."""
    fake = FakeCuda(faults={"synchronize": (4, error)}, sticky=True)
    with pytest.raises(BackendError, match=says) as caught:
        CupyBackend(api=fake).replay(plan(execution), repeats=2)
    assert error in str(caught.value)
    assert not fake.live


def test_errors_of_host_threads_are_told():
    fake = FakeCuda(2, faults={"copy_peer": (1, "cudaErrorPeerAccessUnsupported: no")})
    graph = synths("abc", pairwise("abc"))
    two = Schedule(graph, [Placement(name, f"gpu{i % 2}") for i, name in enumerate(graph.names)])
    with pytest.raises(BackendError, match="synths: CUDA refused a call: cudaErrorPeerAccessUnsupported: no"):
        CupyBackend(api=fake).replay(two, repeats=1)
    assert not fake.live


@pytest.mark.parametrize(("nbytes", "allowed"), [(40_000, False), (100_000, True)])
def test_more_than_48_kib_of_shared_memory_are_allowed_first(nbytes, allowed):
    fake = FakeCuda()
    CupyBackend(api=fake).replay(plan(n=1, shared_memory=nbytes), repeats=1)
    assert (fake.count["allow_shared_memory"] > 0) == allowed


def test_shared_memory_that_was_allowed_stays_so():
    """100 KiB, then 60 KiB: what the second launch is allowed would be too little for the first."""
    one, other = (synths(name, [], shared_memory=n).operator(0) for name, n in (("a", 100_000), ("b", 60_000)))
    fake = FakeCuda()
    plan = Schedule(OpGraph([one, other], []), [Placement("a"), Placement("b")])
    assert CupyBackend(api=fake).replay(plan, repeats=1).max_relative_error == 0.0
    assert not fake.live


def test_more_shared_memory_than_a_block_can_have():
    fake = FakeCuda()
    with pytest.raises(BackendError, match=r"operator 'a': .* bytes of shared memory are more than a block can have"):
        CupyBackend(api=fake).replay(plan(n=1, shared_memory=300_000), repeats=1)
    assert not fake.live


def test_what_cuda_says_is_translated():
    """A missing driver and the wrong wheel are in `test_cupy_api`."""
    assert str(insufficient_driver(11080, 12000)).endswith("CuPy needs 12.0: update the driver")
    text = str(translated(RuntimeError("cudaErrorNoKernelImageForDevice: no kernel image is available")))
    assert "this build of CuPy does not serve the GPU" in text
    text = str(translated(RuntimeError("NVRTC_ERROR_COMPILATION (6): invalid value for --gpu-architecture")))
    assert "NVRTC must be installed and know the GPU" in text


class NoGpu(FakeCuda):
    def devices(self):
        return ()


@pytest.mark.parametrize(
    ("api", "options", "says"),
    [
        (NoGpu(), {}, "there is no GPU that CUDA can see"),
        (FakeCuda(2), {"devices": 3}, "3 GPUs were asked for, but there are 2"),
        (FakeCuda(2), {"devices": 0}, "devices must be a whole number of at least 1, not 0"),
        (FakeCuda(2), {"virtual_devices": 2, "devices": 2}, "virtual devices are parts of one GPU"),
        (FakeCuda(), {"virtual_devices": "2"}, "virtual_devices must be a whole number of at least 1, not '2'"),
    ],
)
def test_what_cannot_be_had(api, options, says):
    with pytest.raises(BackendError, match=says):
        CupyBackend(api=api, **options)


def test_a_gpu_without_a_preset():
    """7.5 with 40 SMs of 64 lanes at 1590 MHz: 8.1 TFLOP/s; 320 GB/s; no clock known: 1500 MHz."""
    found = replace(
        H200, name="Tesla T4", capability="7.5", sms=40, threads_per_sm=1024, blocks_per_sm=16, clock=1590.0,
        bandwidth=320_000.0,
    )  # fmt: skip
    device = CupyBackend(api=FakeCuda(device=found)).cluster.devices[0]
    assert device.model == "Tesla T4"
    assert device.peak["fp32"] == 40 * 64 * 2 * 1590.0
    assert (device.bandwidth, device.shared_memory_granularity, device.blocks_per_sm) == (320_000.0, 256, 16)
    unknown = replace(found, clock=0.0, bandwidth=0.0)
    cluster = CupyBackend(api=FakeCuda(2, device=unknown)).cluster
    assert (cluster.devices[1].clock, cluster.devices[1].name) == (1500.0, "gpu1")
    assert cluster.route("gpu0", "gpu1").bandwidth == 24_000.0


def test_a_gpu_with_a_preset():
    """The H200's 4.8 TB/s are the preset's, its memory what the driver says; two are linked by NVLink4."""
    cluster = CupyBackend(api=FakeCuda(2)).cluster
    assert [(d.name, d.model, d.bandwidth, d.memory) for d in cluster.devices] == [
        (f"gpu{i}", "h200", 4.8e6, 141e9) for i in range(2)
    ]
    assert cluster.route("gpu0", "gpu1").bandwidth == 400_000.0
    assert cluster.name == "2 x h200"
