"""Gains on a GPU: networks as plain Inductor, as Inductor's CUDA graph, and as this backend runs them."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib import import_module
from typing import Any, Final

import numpy as np
import torch

from hwbackend.torch.inductor.backend import explain, simsched_backend
from validation.inductor.models import Experts, Towers

BATCHES: Final = (1, 16)
MOST: Final = 0.02
"""Part of the time of Inductor's CUDA graph by which the backend may be slower."""
_CALLS: Final = 20
_PAIRS: Final = 50
_WARMUPS: Final = 4  # until a graph is captured

Network = tuple[Callable[[], Any], tuple[int, ...]]
"""What makes a network, and the shape of one input without the batch."""


def _made(module: str, name: str, **options: Any) -> Callable[[], Any]:
    return lambda: getattr(import_module(module), name)(**options)


NETWORKS: Final[Mapping[str, Network]] = {
    "experts": (lambda: Experts(16, 512), (512,)),
    "towers": (lambda: Towers(512), (512,)),
    "googlenet": (_made("torchvision.models", "googlenet", weights=None, init_weights=False), (3, 224, 224)),
    "inception_v3": (_made("torchvision.models", "inception_v3", weights=None, init_weights=False), (3, 299, 299)),
    "resnet50": (_made("torchvision.models", "resnet50", weights=None), (3, 224, 224)),
    "nasnetalarge": (_made("timm", "create_model", model_name="nasnetalarge"), (3, 331, 331)),
}


def compare_gains(
    rounds: int,
    goes_on: Callable[[], bool],
    networks: Mapping[str, Network] = NETWORKS,
    time_call: Callable[[str, Callable[[], Any]], float] | None = None,
    place: tuple[str, torch.dtype] = ("cuda", torch.float16),
) -> Iterator[tuple[str, bool]]:
    """Compile networks in three ways, time calls in turns, and yield lines and whether they hold.

    Parameters
    ----------
    rounds
        Rounds of fifty calls of each way; the median counts.
    goes_on
        Whether another network may begin.
    networks, place
        What is compiled, and the device and type of its numbers.
    time_call
        Time in us of a call of a way; tests have one that needs no device.
    """
    timed = time_call or _time_on_gpu
    for name, (make, shape) in networks.items():
        for batch in BATCHES:
            if not goes_on():
                return
            try:
                yield _compare(f"{name}, batch {batch}", make, (batch, *shape), rounds, timed, place)
            except ImportError as error:
                yield f"{name}, batch {batch}: not run: {error}", True


def _compare(
    name: str,
    make: Callable[[], Any],
    shape: tuple[int, ...],
    rounds: int,
    timed: Callable[[str, Callable[[], Any]], float],
    place: tuple[str, torch.dtype],
) -> tuple[str, bool]:
    device, dtype = place
    torch._dynamo.reset()
    torch.manual_seed(0)
    module = make().eval().to(device=device, dtype=dtype)
    x = torch.randn(shape, device=device, dtype=dtype)
    ways = {
        "plain": torch.compile(module),
        "graph": torch.compile(module, mode="reduce-overhead"),
        "ours": torch.compile(module, backend=simsched_backend),
    }
    with torch.no_grad():
        outputs = {}
        for way, run in ways.items():
            for _ in range(_WARMUPS):
                outputs[way] = run(x).clone()
        error = float((outputs["ours"] - outputs["plain"]).abs().max() / outputs["plain"].abs().max())
        differing = sum(not torch.equal(ways["ours"](x), outputs["ours"]) for _ in range(_PAIRS))
        rows = [[timed(way, partial(run, x)) for way, run in ways.items()] for _ in range(rounds * _PAIRS)]
    times = np.array(rows)  # (rounds, ways)
    plain, graph, ours = np.median(times, axis=0).tolist()
    slower = float(np.median(times[:, 2] - times[:, 1])) / graph
    (report,) = explain(ways["ours"])
    return (
        f"{name}: plain {plain:.1f}, graph {graph:.1f}, ours {ours:.1f} us ({report.chosen}; {graph / ours:.2f} x the "
        f"graph's speed), error {error:.1e}, {differing} of {_PAIRS} calls differ",
        slower <= MOST and not differing and error < 0.02,
    )


def _time_on_gpu(_way: str, run: Callable[[], Any]) -> float:
    """Return the mean time in us of a call of some in a row."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(_CALLS):
        run()
    end.record()
    end.synchronize()
    return float(1e3 * begin.elapsed_time(end) / _CALLS)
