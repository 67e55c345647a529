"""What is counted over many plans: kernels, races, values. Each campaign yields lines and whether they hold."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import torch

from hwbackend.inductor.doors import compile_inductor
from hwbackend.inductor.plan import StreamPlan
from validation.inductor.drawn import BROKEN, drawn_wrapper, ordered
from validation.inductor.fake_gpu import wrapper_of
from validation.inductor.models import CHANGING, MODELS, network
from validation.inductor.races import kernels_of, names_of, races

_APART: Final = {"allow_buffer_reuse": False, "inplace_buffers": False}
Line = tuple[str, bool]


def compare_kernels(count: int, goes_on: Callable[[], bool]) -> Iterator[Line]:
    """Compare names with those of plain Inductor, and sources with those of Inductor without in-place buffers."""
    for name in MODELS:
        module, x = network(name)
        plain = names_of(wrapper_of(compile_inductor, module, x))
        apart = kernels_of(wrapper_of(lambda graph, inputs: compile_inductor(graph, inputs, _APART), module, x))
        equal = 0
        drawn = 0
        while drawn < count and goes_on():
            text = drawn_wrapper(module, [x], drawn)
            equal += names_of(text) == plain and kernels_of(text) == apart
            drawn += 1
        yield f"{name}: {len(plain)} kernels, equal in {equal} of {drawn} plans", equal == count


def count_races(count: int, goes_on: Callable[[], bool]) -> Iterator[Line]:
    """Draw plans on four streams, a model after the other; then ones that are broken on purpose."""
    for name in MODELS:
        module, x = network(name)
        found = [0]
        drawn = 0
        while drawn < count and goes_on():
            found.append(len(races(drawn_wrapper(module, [x], drawn))))
            drawn += 1
        yield f"{name}: {sum(found)} races in {drawn} of {count} plans", drawn == count and not sum(found)
    for broken in BROKEN:
        caught = 0
        drawn = 0
        for name in MODELS:
            module, x = network(name)
            for rng in (0, 1):
                if goes_on():
                    caught += bool(races(drawn_wrapper(module, [x], rng, broken=broken)))
                    drawn += 1
        yield f"{broken}: races in {caught} of {drawn} programs", caught > 0


def run_orders(count: int, goes_on: Callable[[], bool]) -> Iterator[Line]:
    """Run models in random orders: in inference, in training, with dynamic shapes; those that write to buffers, too."""
    torch.set_num_threads(1)
    for name in (*MODELS, *CHANGING):
        for kind in ("inference", "training", "dynamic"):
            if name in CHANGING and kind == "training":
                continue  # what it writes to is in its gradient
            wanted = _values(name, lambda module, options: torch.compile(module, **options), kind)
            equal = 0
            drawn = 0
            plans: list[StreamPlan] = []
            while drawn < count and goes_on():
                got = _values(name, partial(_reordered, drawn, plans), kind)
                equal += len(got) == len(wanted) and all(map(torch.equal, got, wanted))
                drawn += 1
            changed = len({plan.order for plan in plans})
            yield f"{name}, {kind}: equal in {equal} of {drawn} runs of {changed} orders", equal == count


def _reordered(rng: int, plans: list[StreamPlan], module: Any, options: dict[str, Any]) -> Any:
    return ordered(module, rng, plans, **options)


def _values(name: str, compiled: Callable[[Any, dict[str, Any]], Any], kind: str) -> list[Any]:
    """Return outputs, buffers after the run and, in training, gradients of a model that is compiled anew."""
    torch._dynamo.reset()
    module, x = network(name)
    run = compiled(module, {"dynamic": True} if kind == "dynamic" else {})
    with torch.set_grad_enabled(kind == "training"):
        outputs = run(x)
    rows = list(outputs) if isinstance(outputs, tuple) else [outputs]
    if kind == "training":
        sum(row.float().square().sum() for row in rows if row.is_floating_point()).backward()
        rows += [value.grad for value in module.parameters() if value.grad is not None]
    return [row.detach().clone() for row in (*rows, *module.buffers())]
