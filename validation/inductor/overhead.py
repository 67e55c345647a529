"""The cost of a call where the backend declines, beside a call of Inductor's own backend."""

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import numpy as np
import torch

from hwbackend.torch.inductor.backend import explain, simsched_backend
from validation.inductor.models import MODELS, network

_CALLS: Final = 10
_PAIRS: Final = 300
MOST: Final = 0.01
"""Part of a call's time that the backend may cost."""


def compare_calls(count: int, goes_on: Callable[[], bool]) -> Iterator[tuple[str, bool]]:
    """Time calls of models on the CPU in pairs, in so many rounds, and yield lines and whether they hold.

    Both orders of a pair take turns; the cost is the median difference within pairs of the median time.
    """
    torch.set_num_threads(1)
    for name in ("one sine", *MODELS):
        module: Any = torch.sin
        x: Any = torch.ones(8)
        if name in MODELS:
            module, x = network(name)
        torch._dynamo.reset()
        runs = [torch.compile(_copy(module)), torch.compile(_copy(module), backend=simsched_backend)]
        with torch.no_grad():
            for run in runs:
                run(x)
            (report,) = explain(runs[1])
            costs: list[float] = []
            times = np.zeros((_PAIRS, 2))
            while len(costs) < count and goes_on():
                times = _time_pairs(*(partial(run, x) for run in runs))
                costs.append(float(np.median(times[:, 1] - times[:, 0]) / np.median(times[:, 0])))
        cost = float(np.median(costs)) if costs else float("nan")
        yield (
            f"{name}: {np.median(times[:, 0]):.1f} us a call, {cost:+.2%} in {len(costs)} rounds "
            f"({', '.join(f'{part:+.2%}' for part in costs)}); {report.reason}",
            len(costs) == count and cost <= MOST,
        )


def _copy(function: Any) -> Any:
    """Return a function or module of its own, which dynamo compiles on its own."""
    if isinstance(function, torch.nn.Module):
        return function
    return lambda *args: function(*args)


def _time_pairs(one: Callable[[], object], other: Callable[[], object]) -> np.ndarray:
    """Return times of calls in us, shape (pairs, 2)."""
    times = np.zeros((_PAIRS, 2))
    for k in range(_PAIRS):
        for i in (k % 2, 1 - k % 2):
            run = (one, other)[i]
            begin = time.perf_counter_ns()
            for _ in range(_CALLS):
                run()
            times[k, i] = (time.perf_counter_ns() - begin) / 1e3 / _CALLS
    return times
