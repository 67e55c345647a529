"""Replays with PyTorch on the CPU, and the way of one on CUDA with a fake that runs streams in an odd order; what needs
CUDA is refused where there is none."""

import gc
import weakref

import pytest
from fake_torch_cuda import FakeTorchCuda
from kineto_traces import KinetoTrace
from shortened import in_order, operator

torch = pytest.importorskip("torch")


import simsched as ss  # noqa: E402
import workloads  # noqa: E402
from hwbackend.measuring.synth import realised  # noqa: E402
from hwbackend.torch import backend as torch_backend  # noqa: E402
from hwbackend.torch import traces as torch_traces  # noqa: E402
from hwbackend.torch import values as torch_values  # noqa: E402
from hwbackend.torch.backend import TorchBackend, availability  # noqa: E402
from hwbackend.torch.devices import cuda_cluster, pin_algorithms  # noqa: E402
from hwbackend.torch.pieces import drawn_parameters  # noqa: E402
from simsched.base.errors import BackendError  # noqa: E402
from simsched.calibration.training import random_schedule  # noqa: E402
from simsched.model.graph import Edge, Kernel, Operator, OpGraph  # noqa: E402

A100 = ss.Cluster.preset("a100")
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("default::UserWarning")]  # of a profiler without CUDA
TINY = workloads.load("tiny_inception", image_size=8)
IMAGE, SEQUENCE = {"image_size": 32}, {"sequence_length": 4}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("tiny_resnet", IMAGE),
        ("squeezenet", IMAGE | {"granularity": "operator"}),
        ("densenet121", IMAGE),
        ("nasnet_mobile", IMAGE),
        ("tiny_transformer", SEQUENCE),
        ("t5_small_encoder", SEQUENCE),
        ("deepfm", {}),
        ("rnntc_sru", SEQUENCE),
        *(("tiny_inception", {"image_size": 16, "dtype": dtype}) for dtype in ("fp16", "bf16", "fp64", "int8")),
    ],
)
def test_networks(name, options):
    backend = TorchBackend("cpu")
    plan = ss.schedule(backend.realise(workloads.load(name, **options)), backend.cluster, "opara")
    assert backend.replay(plan, repeats=1, warmup=0).max_relative_error == 0.0


def test_kernels_of_an_operator_share_its_span():
    """Of 2 kernels, 1/4 and 3/4 of the time."""
    kernels = (Kernel(1, share=0.25), Kernel(1, share=0.75))
    graph = OpGraph([Operator("s", "synth", flops=1e7, nbytes=1e5, kernels=kernels)])
    found = TorchBackend("cpu").replay(in_order(graph), repeats=1, warmup=0)
    first, second = found.trace.end - found.trace.start
    assert second == pytest.approx(3 * first)
    assert found.trace.start[1] == found.trace.end[0]
    assert found.environment["torch"] == torch.__version__


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
    with pytest.raises(BackendError, match=says.format(TINY.names[2])):
        TorchBackend("cpu").replay(in_order(TINY))


def test_values_that_are_not_finite_are_named():
    """1e30 times 1e30 is more than float32 holds."""
    rows = [operator("mul", [(1, 4)], (1, 4), name, factor=1e30) for name in ("large", "larger")]
    graph = OpGraph(rows, [Edge("large", "larger", 16.0)])
    with pytest.raises(BackendError, match="operator 'larger' computes values that are not finite"):
        TorchBackend("cpu").replay(in_order(graph))


def test_memory_is_free_again_behind_an_error(monkeypatch):
    """While the error is being looked at, nothing holds the tensors of the run any more."""
    made = []

    def fail(values, i):
        made.extend(weakref.ref(tensor) for tensor in values._written)
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(torch_values.Values, "compute", fail)
    with pytest.raises(BackendError, match="illegal memory access") as error:
        TorchBackend("cpu").replay(in_order(TINY))
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
        ("gpu0", "h200", 132, 150e9),
        ("gpu1", "h200", 132, 150e9),
    ]
    assert cluster.route("gpu0", "gpu1").bandwidth == ss.Cluster.preset("h200", 2).route("gpu0", "gpu1").bandwidth
    assert caplog.messages == []
    monkeypatch.setattr(Properties, "name", "NVIDIA B900")
    (device,) = cuda_cluster(torch, 1).devices
    assert (device.model, device.sms, device.capability) == ("NVIDIA B900", 132, "9.0")
    assert "no preset of NVIDIA B900: rates and overheads are those of an h200" in caplog.text


@pytest.mark.parametrize(
    ("capability", "sms", "threads", "similar"),
    [("8.9", 140, 1536, "l40s"), ("9.0", 130, 2048, "h200"), ("13.0", 200, 2048, "a100")],
)
def test_a_device_without_a_preset_has_its_own_limits(monkeypatch, caplog, capability, sms, threads, similar):
    """Rates and costs are those of the most similar preset of the same capability, if there is one."""
    major, minor = map(int, capability.split("."))
    for name, value in {"name": "NVIDIA X1", "major": major, "minor": minor, "multi_processor_count": sms}.items():
        monkeypatch.setattr(Properties, name, value)
    monkeypatch.setattr(Properties, "max_threads_per_multi_processor", threads)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda i: Properties)
    (device,) = cuda_cluster(torch, 1).devices
    assert (device.sms, device.threads_per_sm, device.capability) == (sms, threads, capability)
    assert device.memory == 150e9
    assert caplog.text.strip().endswith(f"are those of an {similar}")
    assert device.launch == ss.Cluster.preset(similar).devices[0].launch


def test_settings_are_pinned_and_given_back():
    before = (torch.get_float32_matmul_precision(), torch.get_num_threads(), torch.backends.cudnn.benchmark)
    torch.set_float32_matmul_precision("high")
    try:
        with pin_algorithms(torch, one_thread=True):
            assert torch.get_float32_matmul_precision() == "highest"
            assert torch.get_num_threads() == 1
            assert torch.backends.cudnn.deterministic
            assert not torch.backends.cudnn.benchmark
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision(before[0])
    assert (torch.get_num_threads(), torch.backends.cudnn.benchmark) == before[1:]


# On CUDA


class Faked(TorchBackend):
    """Operators are run by the streams that they were issued to, when these get to it."""

    def __init__(self, n_devices=1, rng=0):
        super().__init__("cpu", n_devices)
        self._api = FakeTorchCuda(n_devices, rng)

    def _host(self, program, values, **options):
        self.host = self._api.host(program, values.compute, values.move, **options)
        return self.host


@pytest.fixture
def quick(monkeypatch):
    """A name for the device, and a profiler that is quick and sees as much as PyTorch's does without CUDA."""
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda i: "NVIDIA Fake")
    monkeypatch.setattr(torch_traces, "record_trace", recorded)


def recorded(torch, run, count, path):
    trace = KinetoTrace()
    for i in range(count):
        run()
        trace.mark(f"{torch_traces.ITERATION}#{i}", 10.0 * i, 9.0)
        trace.op("aten::op", 10.0 * i + 1, 1.0)
    trace.write(path)


@pytest.mark.parametrize("execution", ["events", "graph", "stages"])
@pytest.mark.parametrize("seed", [1, 2])
def test_a_replay(execution, seed, quick):
    """Streams overtake each other wherever events allow, and yet the outputs are those of sequential execution."""
    backend = Faked(rng=seed)
    plan = random_schedule(TINY, backend.cluster, rng=seed, streams=3, execution=execution)
    assert plan.n_streams > 1
    found = backend.replay(plan, repeats=3, warmup=1)
    assert found.max_relative_error == 0.0
    assert len(found.trace) == len(plan.graph)
    assert found.environment["device"] == "NVIDIA Fake"
    how = "events" if execution != "graph" else "events, of a run that was not captured"
    assert found.environment["spans"] == how  # the profiler saw no kernels


def test_weights_are_made_once_for_a_graph():
    """Replays of other schedules use the same; another graph has its own."""
    made = []

    def parameters(*arguments):
        made.append(arguments)
        return drawn_parameters(*arguments)

    backend = TorchBackend("cpu", parameters=parameters)
    backend.replay(random_schedule(TINY, backend.cluster, rng=0), repeats=1, warmup=0)
    once = len(made)
    assert once > 0
    backend.replay(random_schedule(TINY, backend.cluster, rng=1, streams=3), repeats=1, warmup=0)
    assert len(made) == once
    other = workloads.load("tiny_inception", image_size=9)
    backend.replay(random_schedule(other, backend.cluster, rng=0), repeats=1, warmup=0)
    assert len(made) == 2 * once


def test_nodes_are_counted_once_for_a_graph(monkeypatch, quick):
    """Other schedules of it launch the same kernels; a profiler session takes longer than a replay."""
    sessions = []

    def read_counts(_torch, _run, program):
        sessions.append(program)
        return dict.fromkeys(program.graph.names, 1)

    monkeypatch.setattr(torch_backend, "read_counts", read_counts)
    backend = Faked()
    for seed in range(3):
        plan = random_schedule(TINY, backend.cluster, rng=seed, streams=3, execution="graph")
        assert backend.replay(plan, repeats=1, warmup=0).max_relative_error == 0.0
    assert len(sessions) == 1


def test_two_devices(quick):
    backend = Faked(2)
    plan = random_schedule(TINY, backend.cluster, rng=2, streams=2, execution="events")
    found = backend.replay(plan, repeats=1, warmup=0)
    assert len(found.program.copies.op) > 0
    assert found.max_relative_error == 0.0
    with pytest.raises(BackendError, match="captures a graph of one device only"):
        backend.replay(random_schedule(TINY, backend.cluster, rng=2, execution="graph"))


def test_a_capture_that_fails_names_where(monkeypatch, quick):
    """The convolution "three_1" waits for the device, which no capture allows."""
    backend = Faked()
    usual = backend._api.work

    def work(action):
        if backend._api.cuda._captures and backend.host.at == "three_1":
            raise RuntimeError("synchronize while a graph is captured")
        usual(action)

    monkeypatch.setattr(backend._api, "work", work)
    plan = ss.schedule(backend.realise(TINY), backend.cluster, "opara")
    with pytest.raises(BackendError, match="capture as a CUDA graph failed at 'three_1': synchronize while"):
        backend.replay(plan, repeats=1)


def test_kernels_stay_where_the_profiler_sees_none(caplog):
    """PyTorch's own profiler: the kernels are those that the libraries of the device would choose."""
    backend = Faked()
    found = backend.realise(TINY)
    assert [op.kernels for op in found.operators] == [op.kernels for op in realised(TINY, backend.cluster).operators]
    assert "kernels stay as the graph has them" in caplog.text
    assert backend.realise(found) is found
