"""Random legal plans, and wrappers of them: right ones, and ones that lack a part of what makes them right."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any, Final

import numpy as np
import torch

from hwbackend.torch.inductor.doors import ORDERED, compile_inductor, ordered_pass
from hwbackend.torch.inductor.plan import Allocation, FusedKernel, Planner, StreamPlan, make_plan
from simsched.model import OpGraph
from validation.inductor.fake_gpu import wrapper_of
from validation.inductor.forks import split_runs

BROKEN: Final = ("no waits", "no kept buffers", "reuse")


Seed = np.random.Generator | int | Callable[[], int]
"""A function is asked for its number whenever a plan is drawn."""


def drawn_planner(rng: Seed, streams: int) -> Planner:
    """Return a planner of random topological orders on random streams."""
    if callable(rng):
        generators: Iterator[np.random.Generator] = map(np.random.default_rng, iter(rng, None))
    else:
        generators = repeat(np.random.default_rng(rng))

    def planner(graph: OpGraph) -> tuple[Sequence[int], Sequence[int]]:
        rng = next(generators)
        missing = np.bincount(graph.dst, minlength=len(graph))
        ready = [i for i in range(len(graph)) if not missing[i]]
        order: list[int] = []
        while ready:
            i = ready.pop(int(rng.integers(len(ready))))
            order.append(i)
            for j in graph.dst[graph.src == i].tolist():
                missing[j] -= 1
                if not missing[j]:
                    ready.append(j)
        return order, rng.integers(streams, size=len(graph)).tolist()

    return planner


def compiler(
    planner: Planner,
    plans: list[StreamPlan],
    broken: str | None = None,
    seen: list[tuple[tuple[FusedKernel, ...], tuple[Allocation, ...]]] | None = None,
    **settings: Any,
) -> Callable[[Any, Sequence[Any]], Any]:
    """Return what compiles a graph under a planner, and adds the plan to a list, kernels and memory to another.

    `broken` is one of `BROKEN`; `settings` are Inductor's.
    """

    def plan(kernels: Any, memory: Any) -> StreamPlan:
        made = make_plan(kernels, memory, planner)
        if seen is not None:
            seen.append((tuple(kernels), tuple(memory)))
        if broken == "no waits":
            made = replace(made, steps=dict.fromkeys(made.steps, ()))
        if broken == "no kept buffers":
            made = replace(made, kept=frozenset())
        return made

    def compile_graph(graph: Any, inputs: Sequence[Any]) -> Any:
        patches = {
            **ORDERED,
            **settings,
            "_post_fusion_custom_pass": ordered_pass(plan, lambda made, _: plans.append(made)),
        }
        if broken == "reuse":
            patches |= {"allow_buffer_reuse": True, "inplace_buffers": True}
        return compile_inductor(graph, inputs, patches)

    return compile_graph


def ordered(module: Any, rng: Seed, plans: list[StreamPlan], **options: Any) -> Any:
    """Return a module of the CPU that `torch.compile` runs in random orders of its C++ kernels.

    Machine code of kernels is kept between orders, which is safe here: nothing else of a compilation is.
    """
    from torch._functorch import config as functorch_config

    settings = {"force_disable_caches": False, "fx_graph_cache": False, "compile_threads": 1}
    planned = compiler(drawn_planner(rng, 4), plans, None, None, **settings)

    def compile_graph(graph: Any, inputs: Sequence[Any]) -> Any:
        with functorch_config.patch(enable_autograd_cache=False):
            return planned(graph, inputs)

    return torch.compile(module, backend=compile_graph, **options)


def drawn_wrapper(
    module: Any, inputs: Sequence[Any], rng: np.random.Generator | int, *, streams: int = 4, broken: str | None = None
) -> str:
    """Return the wrapper of a module on a GPU that is not there, under a random plan."""
    return wrapper_of(compiler(drawn_planner(rng, streams), [], broken), module, *inputs)


@dataclass(frozen=True)
class Drawn:
    """A wrapper and the plan that it is of."""

    text: str
    plan: StreamPlan
    kernels: tuple[FusedKernel, ...]
    memory: tuple[Allocation, ...]


def drawn_wrappers(
    module: Any,
    inputs: Sequence[Any],
    count: int,
    goes_on: Callable[[], bool] = lambda: True,
    *,
    streams: int = 4,
    broken: str | None = None,
) -> Iterator[Drawn]:
    """Yield wrappers as `drawn_wrapper` returns them for the first seeds; the part before the plan runs once."""

    def run(number: Callable[[], int]) -> Drawn:
        plans: list[StreamPlan] = []
        seen: list[tuple[tuple[FusedKernel, ...], tuple[Allocation, ...]]] = []
        compile_graph = compiler(drawn_planner(number, streams), plans, broken, seen)
        text = wrapper_of(compile_graph, module, *inputs)
        (plan,) = plans
        ((kernels, memory),) = seen
        return Drawn(text, plan, kernels, memory)

    return split_runs(run, count, goes_on)
