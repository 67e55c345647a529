"""Modules under a schedule on CUDA, with a fake: what a call issues, what it returns, which memory is kept."""

from types import SimpleNamespace

import pytest
from fake_cuda import FakeTorchCuda

torch = pytest.importorskip("torch")

from torch.utils import _pytree as pytree  # noqa: E402 - the rest is for those who have PyTorch
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch_networks import agree, network  # noqa: E402

import simsched as ss  # noqa: E402
from hwbackend.torch import apply as torch_apply  # noqa: E402
from hwbackend.torch.hosts import CudaHost  # noqa: E402
from hwbackend.torch.nodes import trace_module  # noqa: E402
from simsched.base.errors import ScheduleError  # noqa: E402
from simsched.calibration.training import random_schedule  # noqa: E402
from workloads.formats.torch_fx import from_module  # noqa: E402

A100 = ss.Cluster.preset("a100")
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("default::UserWarning")]


class AtOnce(FakeTorchCuda):
    """Work is done when it is issued, that of a graph when it is launched: what is returned is there to be read."""

    def __init__(self, _torch):
        super().__init__()
        self.current = self.stream(0, 0)

    def work(self, action):
        captured = self.cuda._captures
        if not captured:
            action()
        super().work(action if captured else list)

    def launch(self, graph):
        super().launch(graph)
        self.synchronize(0)


class Recorder(TorchDispatchMode):
    """Keeps the operators of PyTorch that run, to run them again where a captured graph would launch its kernels."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        returned = function(*args, **(kwargs or {}))
        self.calls.append((function, args, kwargs or {}, returned))
        return returned

    @torch.inference_mode()  # a device writes to all memory
    def replay(self):
        """Run them on the same memory: those that return new memory write into that of the first time."""
        for function, args, kwargs, returned in self.calls:
            pairs = zip(pytree.tree_leaves(returned), pytree.tree_leaves(function(*args, **kwargs)), strict=True)
            for old, new in pairs:
                if isinstance(old, torch.Tensor) and old.data_ptr() != new.data_ptr():
                    old.copy_(new)


class Again(CudaHost):
    """Computes each operator again when its graph is launched, where CUDA would run its kernels again."""

    def __init__(self, api, program, compute, move):
        def issue(i):
            if not api.cuda._captures:
                api.work(lambda: compute(i))
                return
            with Recorder() as recorder:
                compute(i)
            api.work(recorder.replay)

        super().__init__(api, program, issue, move)


def scheduled(monkeypatch, module, x, plan, name="module", **options):
    """What `apply` returns for a device of CUDA that is not there."""
    monkeypatch.setattr(torch_apply, "CudaHost", Again)
    monkeypatch.setattr(torch_apply, "TorchCuda", AtOnce)
    inputs = [x] if isinstance(x, torch.Tensor) else x
    where = SimpleNamespace(type="cuda")
    return torch_apply.schedule_module(trace_module(module, inputs, name), inputs, plan, where, **options)


@pytest.mark.parametrize("name", ["inception", "transformer", "residual"])
@pytest.mark.parametrize("execution", ["events", "graph"])
def test_a_module_under_a_schedule(name, execution, monkeypatch):
    """A graph is captured once, reads copies of the inputs, and returns copies of the outputs."""
    module, x = network(name)
    graph = from_module(module, x)
    plan = random_schedule(graph, A100, rng=0, streams=3, execution=execution)
    run = scheduled(monkeypatch, module, x, plan, name)
    with torch.no_grad():
        first, second = run(x), run(-x)
        assert agree(first, module(x))
        assert agree(second, module(-x))
    count = run._api.cuda.count
    assert count["launch_graph"] == (2 if execution == "graph" else 0)
    assert count["keep"] == (0 if execution == "graph" else 2)
    assert count["work"] == len(graph) * 2  # run once before it is captured


class Two(torch.nn.Module):
    """Two inputs that are tensors and one that is not; a dictionary of outputs, one of them a view."""

    def __init__(self):
        super().__init__()
        self.left, self.right = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)

    def forward(self, x, y, factor):
        left, right = self.left(x).relu(), self.right(y).tanh()
        return {"sum": left + right * factor, "view": left.t()}


TWO_INPUTS = [torch.randn(4, 8), torch.randn(4, 8), 2.0]


@pytest.mark.parametrize("scheduler", ["sequential", "opara"])
@pytest.mark.parametrize("copies", [True, False])
def test_a_call_of_a_captured_module_copies_launches_and_does_nothing_else(scheduler, copies, monkeypatch):
    """As a captured eager model: one copy for each of two inputs and one replay; then one for each output, if asked.

    Counted are operators of PyTorch, and all calls of the driver: no stream is switched, no event is recorded.
    """
    module = Two().eval()
    plan = ss.schedule(from_module(module, TWO_INPUTS), A100, scheduler).like(execution="graph", scheduler=scheduler)
    run = scheduled(monkeypatch, module, TWO_INPUTS, plan, copies=copies)
    launches = []
    monkeypatch.setattr(run._host._api, "launch", launches.append)
    cuda = run._api.cuda
    before = dict(cuda.count)
    with torch.no_grad(), Recorder() as recorder:
        run(*TWO_INPUTS)
    names = [str(function) for function, *_ in recorder.calls]
    assert names == ["aten.copy_.default"] * 2 + ["aten.clone.default"] * 2 * copies
    assert len(launches) == 1
    assert dict(cuda.count) == before


@pytest.mark.parametrize("copies", [True, False])
def test_outputs_are_copies_unless_they_need_not_be(copies, monkeypatch):
    """The second call writes over what the first one returned, or it does not; both in whatever mode PyTorch is."""
    module = Two().eval()
    plan = ss.schedule(from_module(module, TWO_INPUTS), A100, "opara").like(execution="graph", scheduler="opara")
    with torch.inference_mode():
        run = scheduled(monkeypatch, module, TWO_INPUTS, plan, copies=copies)
        first = run(*TWO_INPUTS)
    kept = {name: value.clone() for name, value in first.items()}
    others = [-TWO_INPUTS[0], 3 * TWO_INPUTS[1].requires_grad_(), 2.0]
    second = run(*others)
    TWO_INPUTS[1].requires_grad_(False)
    with torch.no_grad():
        wanted = module(*others)
        assert all(agree(second[name], wanted[name]) and not second[name].requires_grad for name in wanted)
        assert all(torch.equal(first[name], kept[name]) == copies for name in wanted)


def test_memory_that_one_stream_alone_uses_is_free_early(monkeypatch):
    """Three layers on one stream and a sum on another: what the sum reads stays, and so do inputs and outputs.

    a = relu(x), b = exp(a), c = sin(b), d = a view of c, and e = d + b on stream 1: it reads b, and c by the view.
    """

    class Chain(torch.nn.Module):
        def forward(self, x):
            a = x.relu()
            b = a.exp()
            c = b.sin()
            return c.view(-1) + b.view(-1)

    x = torch.randn(4)
    graph = from_module(Chain().eval(), x)
    *chain, last = [op.name for op in graph.operators if op.time != 0.0]
    assert chain == ["relu", "exp", "sin"]
    views = [op.name for op in graph.operators if op.time == 0.0]
    kept = {}
    for lane in (0, 1):
        streams = {last: lane}
        placements = [ss.Placement(name, stream=streams.get(name, 0)) for name in (*chain, *views, last)]
        run = scheduled(monkeypatch, Chain().eval(), x, ss.Schedule(graph, placements, execution="graph"))
        let_go = [node.name for nodes in run._runner._last.values() for node in nodes]
        kept[lane] = set(chain) - set(let_go)
        assert agree(run(x), Chain()(x))
    assert kept == {0: set(), 1: {"exp", "sin"}}


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
    found = trace_module(module, [x], "counting")
    graph = from_module(module, x)
    with pytest.raises(ScheduleError, match="'add_' of counting changes an input, a parameter or a buffer"):
        torch_apply.schedule_module(found, [x], ss.schedule(graph, A100, "opara"), SimpleNamespace(type="cuda"))
    torch_apply.schedule_module(found, [x], ss.schedule(graph, A100, "greedy"), SimpleNamespace(type="cuda"))
    assert module.n == 0.0
