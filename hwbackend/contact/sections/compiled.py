"""Section: what compilation gains on networks of PyTorch, alone and on streams. Not run on a device yet.

Each network is timed as eager calls, as a captured graph, by `apply` on one stream and on several, and by Inductor: as
it is, captured, and with its kernels on streams. Captured graphs have their input copied in, and are not asked for
copies of their output.
"""

import time
from collections.abc import Callable, Mapping
from functools import partial
from statistics import median
from typing import Any, Final

from hwbackend.contact.device import UnsupportedError
from hwbackend.contact.sections.item import Bench, ContactItem, Json
from hwbackend.torch.apply import apply
from hwbackend.torch.devices import require_torch
from hwbackend.torch.inductor.backend import simsched_backend
from simsched.model import Cluster
from simsched.schedulers import schedule
from workloads.formats.torch_fx import from_module

_SECONDS: Final = 4.0
_COMPILED_SECONDS: Final = 40.0  # Inductor compiles three times
_REPEATS: Final = 30
_BATCH: Final = 1
_SCHEDULER: Final = "nimble"
_Ways = Callable[[Any, Any, Any, Cluster], Mapping[str, Callable[[], Callable[[], Any]]]]
NETWORKS: Final = ("towers", "branches", "experts")
"""Networks that are built here: two towers of linear layers, branches of convolutions, experts beside each other."""


def compile_items() -> list[ContactItem]:
    """Return the items: each network as it is, then each one by Inductor, which takes longest and may fail."""
    plain = [
        ContactItem(f"compile/{name}", _SECONDS, partial(_measure, name=name, ways=_plain_ways)) for name in NETWORKS
    ]
    compiled = [
        ContactItem(f"compile/{name}-inductor", _COMPILED_SECONDS, partial(_measure, name=name, ways=_inductor_ways))
        for name in NETWORKS
    ]
    return plain + compiled


def network(name: str) -> tuple[Any, Any]:
    """Return a network in inference on the CPU, and its input."""
    torch = require_torch()
    nn = torch.nn

    class Branches(nn.Module):  # type: ignore[misc, name-defined]
        """Branches that read the same input and are joined."""

        def __init__(self, branches: list[Any], dim: int) -> None:
            super().__init__()
            self.branches = nn.ModuleList(branches)
            self.dim = dim

        def forward(self, x: Any) -> Any:
            return torch.cat([branch(x) for branch in self.branches], self.dim)

    def tower(width: int) -> Any:
        layers = [layer for _ in range(4) for layer in (nn.Linear(width, width), nn.ReLU())]
        return nn.Sequential(*layers)

    def convolutions(window: int) -> Any:
        return nn.Sequential(nn.Conv2d(64, 32, 1), nn.ReLU(), nn.Conv2d(32, 48, window, padding=window // 2), nn.ReLU())

    torch.manual_seed(0)
    if name == "towers":
        module = Branches([tower(512), tower(512)], -1)
        x = torch.randn(_BATCH, 512)
    elif name == "experts":
        module = Branches([tower(256) for _ in range(8)], -1)
        x = torch.randn(_BATCH, 256)
    else:
        module = Branches([convolutions(window) for window in (1, 3, 5, 7)], 1)
        x = torch.randn(_BATCH, 64, 35, 35)
    return module.eval(), x


def _measure(bench: Bench, name: str, ways: _Ways) -> Json:
    """Return the median us of some ways to run a network, and why a way is missing.

    Raises
    ------
    UnsupportedError
        If there is no PyTorch that sees a GPU, or the device of the contact is not one.
    """
    _require_gpu(bench)
    torch = require_torch()
    module, x = network(name)
    module = module.cuda().half()
    x = x.cuda().half()
    us: dict[str, float] = {}
    failed: dict[str, str] = {}
    with torch.inference_mode():
        expected = module(x)
        for way, make in ways(torch, module, x, bench.device.cluster).items():
            try:
                call = make()
                _require_equal(torch, call(), expected)
                us[way] = _time_calls(torch, call)
            except Exception as error:  # one way must not cost the others
                failed[way] = f"{type(error).__name__}: {error}"
    return {"us": us} | ({"failed": failed} if failed else {})


def _require_gpu(bench: Bench) -> None:
    """Refuse a device that is no GPU, or a machine whose PyTorch sees none."""
    if bench.device.virtual or bench.device.name in ("synthetic", "recorded"):
        raise UnsupportedError(f"{bench.device.name!r} is not a GPU: this section needs one, and PyTorch with CUDA")
    if not require_torch().cuda.is_available():
        raise UnsupportedError("PyTorch sees no GPU: check nvidia-smi, and install a PyTorch with CUDA")


def _plain_ways(torch: Any, module: Any, x: Any, cluster: Cluster) -> Mapping[str, Callable[[], Callable[[], Any]]]:
    """Return by name what makes a call of the network as it is."""

    def streams(scheduler: str) -> Callable[[], Any]:
        graph = from_module(module, x)
        plan = schedule(graph, cluster, scheduler).like(execution="graph", scheduler=scheduler)
        return partial(apply(module, x, plan, copies=False), x)

    return {
        "eager": lambda: partial(module, x),
        "captured": lambda: _capture(torch, module, x),
        "one stream": lambda: streams("sequential"),
        "streams": lambda: streams(_SCHEDULER),
    }


def _inductor_ways(torch: Any, module: Any, x: Any, _cluster: Cluster) -> Mapping[str, Callable[[], Callable[[], Any]]]:
    """Return by name what makes a call of the network by Inductor."""
    return {
        "inductor": lambda: partial(torch.compile(module), x),
        "inductor, captured": lambda: _capture(torch, torch.compile(module), x),
        "inductor, streams": lambda: partial(torch.compile(module, backend=simsched_backend), x),
    }


def _capture(torch: Any, module: Callable[[Any], Any], x: Any) -> Callable[[], Any]:
    """Return a call that copies the input, replays a captured call, and returns its output."""
    memory = x.clone()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            module(memory)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = module(memory)

    def replay() -> Any:
        memory.copy_(x)
        graph.replay()
        return output

    return replay


def _require_equal(torch: Any, got: Any, expected: Any) -> None:
    scale = float(expected.abs().max())
    error = float((got - expected).abs().max()) / max(scale, 1e-9)
    if not error < 0.02:  # of fp16
        raise ValueError(f"the output differs by {error:.2g} of the largest value")
    torch.cuda.synchronize()


def _time_calls(torch: Any, call: Callable[[], Any]) -> float:
    """Return the median us of a call and the host's wait for its end, warmed up by time."""
    begun = time.perf_counter()
    while time.perf_counter() - begun < 0.1:
        call()
    torch.cuda.synchronize()
    times = []
    for _ in range(_REPEATS):
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) * 1e6)
    return median(times)
