"""The way of a replay on CUDA, with tensors on the CPU and a fake that runs streams in an odd order."""

import json
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from fake_cuda import FakeTorchCuda  # noqa: E402 - the rest is for those who have PyTorch
from torch_networks import agree, network  # noqa: E402

import simsched as ss  # noqa: E402
import workloads  # noqa: E402
from hwbackend import torch_apply, torch_traces  # noqa: E402
from hwbackend.torch_backend import TorchBackend  # noqa: E402
from hwbackend.torch_hosts import CudaHost  # noqa: E402
from hwbackend.torch_nodes import traced  # noqa: E402
from simsched.base.errors import BackendError, ScheduleError  # noqa: E402
from simsched.calibration.training import random_schedule  # noqa: E402
from workloads.formats.torch_fx import from_module  # noqa: E402

A100 = ss.Cluster.preset("a100")
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("default::UserWarning")]  # of a profiler without CUDA


class Faked(TorchBackend):
    """Operators are run by the streams that they were issued to, when these get to it."""

    def __init__(self, n_devices=1, rng=0):
        super().__init__("cpu", n_devices)
        self._api = FakeTorchCuda(n_devices, rng)

    def _host(self, program, values, **options):
        api = self._api
        self.host = CudaHost(
            api, program, lambda i: api.work(lambda: values.compute(i)), lambda row: api.work(lambda: values.move(row)),
            **options,
        )  # fmt: skip
        return self.host


@pytest.fixture(autouse=True)
def _device(monkeypatch):
    """A name for the device, and a profiler that is quick and sees as much as PyTorch's does without CUDA."""
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda i: "NVIDIA Fake")
    monkeypatch.setattr(torch_traces, "recorded", recorded)


def recorded(torch, run, count, path):
    events = []
    for i in range(count):
        run()
        event = {"ph": "X", "name": "aten::op", "cat": "cpu_op", "pid": 1, "tid": 1, "ts": 10.0 * i + 1, "dur": 1.0}
        events += [event, event | {"name": f"{torch_traces.ITERATION}#{i}", "cat": "user_annotation", "ts": 10.0 * i,
                                   "dur": 9.0}]  # fmt: skip
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))


def tiny():
    return workloads.load("tiny_inception", image_size=8)


@pytest.mark.parametrize("execution", ["events", "graph", "stages"])
@pytest.mark.parametrize("seed", [1, 2])
def test_a_replay(execution, seed):
    """Streams overtake each other wherever events allow, and yet the outputs are those of sequential execution."""
    backend = Faked(rng=seed)
    plan = random_schedule(tiny(), backend.cluster, rng=seed, streams=3, execution=execution)
    assert plan.n_streams > 1
    found = backend.replay(plan, repeats=3, warmup=1)
    assert found.max_relative_error == 0.0
    assert len(found.trace) == len(plan.graph)
    assert found.environment["device"] == "NVIDIA Fake"
    how = "events" if execution != "graph" else "events, of a run that was not captured"
    assert found.environment["spans"] == how  # the profiler saw no kernels


def test_two_devices():
    backend = Faked(2)
    plan = random_schedule(tiny(), backend.cluster, rng=2, streams=2, execution="events")
    found = backend.replay(plan, repeats=1, warmup=0)
    assert len(found.program.copies.op) > 0
    assert found.max_relative_error == 0.0
    with pytest.raises(BackendError, match="captures a graph of one device only"):
        backend.replay(random_schedule(tiny(), backend.cluster, rng=2, execution="graph"))


def test_a_capture_that_fails_names_where(monkeypatch):
    """The convolution "three_1" waits for the device, which no capture allows."""
    backend = Faked()
    usual = backend._api.work

    def work(action):
        if backend._api.cuda._captures and backend.host.at == "three_1":
            raise RuntimeError("synchronize while a graph is captured")
        usual(action)

    monkeypatch.setattr(backend._api, "work", work)
    plan = ss.schedule(backend.realise(tiny()), backend.cluster, "opara")
    with pytest.raises(BackendError, match="capture as a CUDA graph failed at 'three_1': synchronize while"):
        backend.replay(plan, repeats=1)


def test_kernels_stay_where_the_profiler_sees_none(caplog, monkeypatch):
    monkeypatch.undo()  # PyTorch's own profiler
    backend = Faked()
    found = backend.realise(tiny())
    assert [op.kernels for op in found.operators] == [op.kernels for op in tiny().operators]
    assert "kernels stay as the graph has them" in caplog.text
    assert backend.realise(found) is found


class AtOnce(FakeTorchCuda):
    """Work is done when it is issued, that of a graph when it is launched: what is returned is there to be read."""

    def __init__(self, _torch):
        super().__init__()
        self.stream(0, 0)  # what is current

    def work(self, action):
        captured = self.cuda._captures
        if not captured:
            action()
        super().work(action if captured else list)

    def launch(self, graph):
        super().launch(graph)
        self.synchronize(0)


class Again(CudaHost):
    """Computes each operator again when its graph is launched, where CUDA would run its kernels again."""

    def __init__(self, api, program, compute, move):
        runner = compute.__self__

        def again(i):
            for node in runner._parts[i]:
                runner._values.pop(node, None)
            compute(i)

        super().__init__(api, program, lambda i: api.work(lambda: again(i)), move)


@pytest.mark.parametrize("name", ["inception", "transformer"])
@pytest.mark.parametrize("execution", ["events", "graph"])
def test_a_module_under_a_schedule(name, execution, monkeypatch):
    """A graph is captured once, reads copies of the inputs, and returns copies of the outputs."""
    module, x = network(name)
    graph = from_module(module, x)
    plan = random_schedule(graph, A100, rng=0, streams=3, execution=execution)

    monkeypatch.setattr(torch_apply, "CudaHost", Again)
    monkeypatch.setattr(torch_apply, "TorchCuda", AtOnce)
    with torch.no_grad():
        run = torch_apply.scheduled(traced(module, [x], name), [x], plan, SimpleNamespace(type="cuda"))
        first, second = run(x), run(-x)
        assert agree(first, module(x))
        assert agree(second, module(-x))
    count = run._api.cuda.count
    assert count["launch_graph"] == (2 if execution == "graph" else 0)
    assert count["keep"] == (0 if execution == "graph" else 2)
    assert count["work"] == len(graph) * 2  # run once before it is captured


def test_what_would_be_changed_once_too_often_is_not_captured(monkeypatch):
    """A module that counts its calls: to capture it, it would be run once more than it is called."""

    class Counting(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("n", torch.zeros(()))

        def forward(self, x):
            return x * self.n.add_(1)

    monkeypatch.setattr(torch_apply, "TorchCuda", AtOnce)
    module, x = Counting().eval(), torch.ones(4)
    found = traced(module, [x], "counting")
    graph = from_module(module, x)
    with pytest.raises(ScheduleError, match="'add_' of counting changes an input, a parameter or a buffer"):
        torch_apply.scheduled(found, [x], ss.schedule(graph, A100, "opara"), SimpleNamespace(type="cuda"))
    torch_apply.scheduled(found, [x], ss.schedule(graph, A100, "greedy"), SimpleNamespace(type="cuda"))
    assert module.n == 0.0
