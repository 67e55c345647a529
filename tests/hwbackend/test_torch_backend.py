"""Replays with PyTorch on the CPU; what needs CUDA is refused where there is none."""

import gc
import weakref
from dataclasses import replace

import pytest
from shortened import without

torch = pytest.importorskip("torch")

import simsched as ss  # noqa: E402 - the rest is for those who have PyTorch
import workloads  # noqa: E402
from hwbackend import torch_values  # noqa: E402
from hwbackend.torch_backend import TorchBackend, availability  # noqa: E402
from hwbackend.torch_devices import cuda_cluster, pinned  # noqa: E402
from simsched.base.errors import BackendError  # noqa: E402
from simsched.model.graph import Edge, Kernel, Operator, OpGraph  # noqa: E402
from simsched.model.program import WAIT  # noqa: E402

pytestmark = pytest.mark.torch


def tiny(name="tiny_inception", **options):
    return workloads.load(name, **({"image_size": 16} | options))


IMAGE, SEQUENCE = {"image_size": 32}, {"sequence_length": 4}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("tiny_resnet", IMAGE), ("squeezenet", IMAGE | {"granularity": "operator"}), ("densenet121", IMAGE),
        ("nasnet_mobile", IMAGE), ("tiny_transformer", SEQUENCE), ("t5_small_encoder", SEQUENCE), ("deepfm", {}),
        ("rnntc_sru", SEQUENCE), *(("tiny_inception", {"image_size": 16, "dtype": dtype})
                                   for dtype in ("fp16", "bf16", "fp64", "int8")),
    ],
)  # fmt: skip
def test_networks(name, options):
    backend = TorchBackend("cpu")
    plan = ss.schedule(backend.realise(workloads.load(name, **options)), backend.cluster, "opara")
    assert backend.replay(plan, repeats=1, warmup=0).max_relative_error == 0.0


def test_kernels_of_an_operator_share_its_span():
    """Of 2 kernels, 1/4 and 3/4 of the time."""
    backend = TorchBackend("cpu")
    kernels = (Kernel(1, share=0.25), Kernel(1, share=0.75))
    graph = OpGraph([Operator("s", "synth", flops=1e7, nbytes=1e5, kernels=kernels)])
    found = backend.replay(ss.schedule(graph, backend.cluster, "sequential"), repeats=1, warmup=0)
    first, second = found.trace.end - found.trace.start
    assert second == pytest.approx(3 * first)
    assert found.trace.start[1] == found.trace.end[0]
    assert found.environment["torch"] == torch.__version__


def test_a_schedule_that_lacks_a_wait_is_refused():
    backend = TorchBackend("cpu")
    program = ss.schedule(tiny(), backend.cluster, "opara").lower(backend.cluster)
    broken = without(program, program.action == WAIT)
    with pytest.raises(BackendError, match="may run before what it reads of 'stem' is there: the program lacks a wait"):
        backend.replay(broken)


USUAL = torch_values.Values.compute


def other_values(values, i):
    USUAL(values, i)
    if i == 2 and values._poisoned:
        values._written[i].mul_(1.01)


def timed_out(values, i):
    raise RuntimeError("CUDA error: the launch timed out and was terminated\nCompile with TORCH_USE_CUDA_DSA")


def out_of_memory(values, i):
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.\nmore")


@pytest.mark.parametrize(
    ("compute", "says"),
    [
        (out_of_memory, r"^tiny_inception: out of memory: CUDA out of memory\. .*GiB\.; use"),
        # never run, an operator leaves its buffer as it was, and who reads it computes NaN
        (lambda values, i: None if i == 2 else USUAL(values, i), "operator '{}' wrote NaN under the schedule"),
        (other_values, "'{}' computes other values .* relative error 0.01"),
        (timed_out, "PyTorch failed: CUDA error: the launch timed out and was terminated$"),
    ],
)
def test_what_goes_wrong_is_one_line(compute, says, monkeypatch):
    monkeypatch.setattr(torch_values.Values, "compute", compute)
    backend = TorchBackend("cpu")
    with pytest.raises(BackendError, match=says.format(tiny().names[2])):
        backend.replay(ss.schedule(tiny(), backend.cluster, "sequential"))


def test_values_that_are_not_finite_are_named():
    """1e30 times 1e30 is more than float32 holds."""
    shape = (1, 4)
    large = Operator("large", "mul", input_shapes=(shape,), output_shape=shape, attributes={"factor": 1e30},
                     kernels=(Kernel(1),))  # fmt: skip
    rows = [large, replace(large, name="larger")]
    backend = TorchBackend("cpu")
    with pytest.raises(BackendError, match="operator 'larger' computes values that are not finite"):
        backend.replay(ss.schedule(OpGraph(rows, [Edge("large", "larger", 16.0)]), backend.cluster, "sequential"))


def test_memory_is_free_again_behind_an_error(monkeypatch):
    """While the error is being looked at, nothing holds the tensors of the run any more."""
    made = []

    def fail(values, i):
        made.extend(weakref.ref(tensor) for tensor in values._written)
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(torch_values.Values, "compute", fail)
    backend = TorchBackend("cpu")
    with pytest.raises(BackendError, match="illegal memory access") as error:
        backend.replay(ss.schedule(tiny(), backend.cluster, "sequential"))
    gc.collect()
    assert error.value is not None
    assert made
    assert [ref for ref in made if ref() is not None] == []


def test_devices_that_are_not_there_are_refused(monkeypatch):
    with pytest.raises(BackendError, match="'cuda' or 'cpu', not on 'tpu'"):
        TorchBackend("tpu")
    with pytest.raises(BackendError, match="n_devices must be a whole number of at least 1, not 0"):
        TorchBackend("cpu", 0)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(BackendError, match="finds no CUDA device"):
        TorchBackend("cuda")
    assert availability() == (True, f"PyTorch {torch.__version__} finds no CUDA device; it runs on one core of the CPU")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(BackendError, match="2 devices were asked for, but PyTorch finds 1"):
        TorchBackend("cuda", 2)
    assert availability() == (True, f"PyTorch {torch.__version__} with 1 CUDA device")


class Properties:
    name, multi_processor_count, major, minor, total_memory = "NVIDIA H200", 132, 9, 0, 150_000_000_000
    max_threads_per_multi_processor, regs_per_multiprocessor = 2048, 65536


def test_a_device_is_its_preset_with_the_limits_that_the_driver_tells(monkeypatch, caplog):
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda i: Properties)
    cluster = cuda_cluster(torch, 2)
    assert [(d.name, d.model, d.sms, d.memory) for d in cluster.devices] == [
        ("gpu0", "h200", 132, 150e9), ("gpu1", "h200", 132, 150e9),
    ]  # fmt: skip
    assert cluster.route("gpu0", "gpu1").bandwidth == ss.Cluster.preset("h200", 2).route("gpu0", "gpu1").bandwidth
    assert caplog.messages == []
    monkeypatch.setattr(Properties, "name", "NVIDIA B900")
    (device,) = cuda_cluster(torch, 1).devices
    assert (device.model, device.sms) == ("NVIDIA B900", 132)
    assert "no preset of NVIDIA B900" in caplog.text


def test_settings_are_pinned_and_given_back():
    before = (torch.get_float32_matmul_precision(), torch.get_num_threads(), torch.backends.cudnn.benchmark)
    torch.set_float32_matmul_precision("high")
    try:
        with pinned(torch, one_thread=True):
            assert torch.get_float32_matmul_precision() == "highest"
            assert torch.get_num_threads() == 1
            assert torch.backends.cudnn.deterministic
            assert not torch.backends.cudnn.benchmark
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision(before[0])
    assert (torch.get_num_threads(), torch.backends.cudnn.benchmark) == before[1:]
