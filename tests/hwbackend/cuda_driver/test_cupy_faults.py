"""Each fault of a GPU, and of what is asked of it, gives one line and leaves nothing behind."""

import re
from dataclasses import replace

import pytest
from fake_cuda import H200, FakeCuda, on_fake
from shortened import in_order, synths

from hwbackend.cuda.backend import CupyBackend
from hwbackend.cuda.errors import insufficient_driver, translate_error
from simsched.base.errors import BackendError
from simsched.model import Cluster, OpGraph

ABC = synths("abc", ["ab", "bc"])
OUT_OF_MEMORY = "cudaErrorMemoryAllocation: out of memory"


def failing(execution="events", sticky=False, **faults):
    """Return the message with which a replay fails."""
    _, backend = on_fake(faults=faults, sticky=sticky)
    with pytest.raises(BackendError) as caught:
        backend.replay(in_order(ABC, stream=[0, 1, 0], stage=[0, 1, 2], execution=execution), repeats=2)
    text = str(caught.value)
    assert text.isprintable()
    return text


CALLS = ("stream", "event", "record", "wait", "launch", "write", "read", "fill", "synchronize", "elapsed", "compile")
CAPTURING = ("begin_capture", "wait", "launch", "end_capture", "upload_graph", "launch_graph")
UNKNOWN = "cudaErrorUnknown: unknown error"
INVALIDATED = "cudaErrorStreamCaptureInvalidated: operation failed due to a previous error"
FAULTS = [
    # outputs, parameters, stamps and two shared buffers: five in sequence, five under the schedule
    *(("events", "malloc", n, OUT_OF_MEMORY, "^gpu0: 512 MiB are needed: out of GPU memory") for n in range(1, 11)),
    *(("events", call, 1 if call == "compile" else 4, UNKNOWN, f"CUDA refused a call: {UNKNOWN}$") for call in CALLS),
    # the sequential run before it makes 3 launches and no wait
    *(
        (
            "graph",
            call,
            5 if call == "launch" else 1,
            INVALIDATED,
            "the capture of a graph was invalidated .* run the schedule as 'events'$",
        )
        for call in CAPTURING
    ),
]


@pytest.mark.parametrize(("execution", "call", "number", "error", "says"), FAULTS)
def test_any_call_may_fail(execution, call, number, error, says):
    assert re.search(says, failing(execution, **{call: (number, error)}))


def test_that_is_all_that_is_allocated():
    _, backend = on_fake(faults={"malloc": (11, OUT_OF_MEMORY)})
    assert backend.replay(in_order(ABC, stream=[0, 1, 0]), repeats=2).max_relative_error == 0.0


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
    text = failing(execution, sticky=True, synchronize=(4, error))
    assert says in text
    assert error in text


def test_errors_of_host_threads_are_told():
    _, backend = on_fake("two", faults={"copy_peer": (1, "cudaErrorPeerAccessUnsupported: no")})
    with pytest.raises(BackendError, match="synths: CUDA refused a call: cudaErrorPeerAccessUnsupported: no"):
        backend.replay(in_order(ABC, device=[0, 1, 0]), repeats=1)


@pytest.mark.parametrize(
    ("asked", "allowed"), [([40_000], 0), ([100_000], 1), ([100_000, 60_000], 1)], ids=["little", "more", "less again"]
)
def test_more_than_48_kib_of_shared_memory_are_allowed_first(asked, allowed):
    """What a second launch needs would be too little for the first: what was allowed stays so."""
    fake, backend = on_fake()
    graph = OpGraph([synths("ab"[i], [], shared_memory=n).operator(0) for i, n in enumerate(asked)])
    assert backend.replay(in_order(graph), repeats=1).max_relative_error == 0.0
    assert (fake.count["allow_shared_memory"] > 0) == allowed


def test_more_shared_memory_than_a_block_can_have():
    with pytest.raises(BackendError, match=r"operator 'a': .* bytes of shared memory are more than a block can have"):
        on_fake()[1].replay(in_order(synths("a", [], shared_memory=300_000)), repeats=1)


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (insufficient_driver(0, 12000), "there is no NVIDIA driver here"),
        (insufficient_driver(11080, 12000), "supports CUDA 11.8, CuPy needs 12.0: update the driver"),
        (
            translate_error(RuntimeError("cudaErrorNoKernelImageForDevice: no kernel image is available")),
            "this build of CuPy does not serve the GPU",
        ),
        (
            translate_error(RuntimeError("NVRTC_ERROR_COMPILATION (6): invalid value for --gpu-architecture")),
            "NVRTC must be installed and know the GPU",
        ),
    ],
)
def test_what_cuda_says_is_translated(error, says):
    assert says in str(error)


@pytest.mark.parametrize(
    ("api", "options", "says"),
    [
        (FakeCuda(0), {}, "there is no GPU that CUDA can see"),
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
        H200,
        name="Tesla T40",
        capability="7.5",
        sms=40,
        threads_per_sm=1024,
        blocks_per_sm=16,
        clock=1590.0,
        bandwidth=320_000.0,
    )
    device = CupyBackend(api=FakeCuda(device=found)).cluster.devices[0]
    assert (device.model, device.capability) == ("Tesla T40", "7.5")
    assert device.peak["fp32"] == 40 * 64 * 2 * 1590.0
    assert (device.bandwidth, device.shared_memory_granularity, device.blocks_per_sm) == (320_000.0, 256, 16)
    unknown = replace(found, clock=0.0, bandwidth=0.0)
    cluster = CupyBackend(api=FakeCuda(2, device=unknown)).cluster
    assert (cluster.devices[1].clock, cluster.devices[1].name) == (1500.0, "gpu1")
    assert cluster.route("gpu0", "gpu1").bandwidth == 24_000.0


def test_a_gpu_without_a_preset_has_the_costs_of_its_capability():
    """78 SMs of 128 lanes of capability 9.0: launches and pauses take as long as on an H100."""
    device = CupyBackend(api=FakeCuda(device=replace(H200, name="NVIDIA H99", sms=78, clock=1980.0))).cluster.devices[0]
    known = Cluster.preset("h100").devices[0]
    for name in ("launch", "record", "wait", "gap", "hop", "barrier", "graph_launch", "graph_node", "capability"):
        assert getattr(device, name) == getattr(known, name), name
    assert device.peak["fp32"] == 78 * 128 * 2 * 1980.0
    assert device.shared_memory_per_sm == H200.shared_memory_per_sm


def test_a_gpu_with_a_preset():
    """The H200's 4.8 TB/s are the preset's, its memory what the driver says; two are linked by NVLink4."""
    cluster = CupyBackend(api=FakeCuda(2)).cluster
    assert [(d.name, d.model, d.bandwidth, d.memory) for d in cluster.devices] == [
        (f"gpu{i}", "h200", 4.8e6, 141e9) for i in range(2)
    ]
    assert cluster.route("gpu0", "gpu1").bandwidth == 400_000.0
    assert cluster.name == "2 x h200"
