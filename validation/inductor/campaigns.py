"""What is counted over many plans: kernels, races, values. Each campaign yields lines and whether they hold."""

from collections.abc import Callable, Iterator
from functools import partial
from math import ceil
from typing import Any, Final

import torch

from hwbackend.torch.inductor.doors import compile_inductor
from hwbackend.torch.inductor.plan import StreamPlan
from validation.inductor.caches import keep_answers
from validation.inductor.drawn import BROKEN, drawn_wrappers, ordered
from validation.inductor.expected import is_broken
from validation.inductor.fake_gpu import wrapper_of
from validation.inductor.forks import split_runs
from validation.inductor.models import CHANGING, MODELS, SHARED, network
from validation.inductor.races import kernels_of, names_of, races

_APART: Final = {"allow_buffer_reuse": False, "inplace_buffers": False}
_BACKWARD: Final = 5  # orders of a backward pass for each one of the forward pass
Line = tuple[str, bool]
Orders = tuple[tuple[int, ...], ...]


def compare_kernels(count: int, goes_on: Callable[[], bool]) -> Iterator[Line]:
    """Compare names with those of plain Inductor, and sources with those of Inductor without in-place buffers."""
    for name in MODELS:
        module, x = network(name)
        plain = names_of(wrapper_of(compile_inductor, module, x))
        apart = kernels_of(wrapper_of(lambda graph, inputs: compile_inductor(graph, inputs, _APART), module, x))
        texts = [drawn.text for drawn in drawn_wrappers(module, [x], count, goes_on)]
        equal = sum(names_of(text) == plain and kernels_of(text) == apart for text in texts)
        yield f"{name}: {len(plain)} kernels, equal in {equal} of {len(texts)} plans", equal == count


def count_races(count: int, goes_on: Callable[[], bool]) -> Iterator[Line]:
    """Draw plans on four streams for each model, right ones and a third as many that are broken on purpose.

    A broken plan need not go wrong: a program without frees has none too early. So the plan itself says whether it can
    (`is_broken`), and the checker has to say the same of the wrapper.
    """
    keep_answers()
    for name in MODELS:
        module, x = network(name)
        counts = [len(races(drawn.text)) for drawn in drawn_wrappers(module, [x], count, goes_on)]
        yield f"{name}: {sum(counts)} races in {len(counts)} of {count} plans", len(counts) == count and not sum(counts)
    third = max(1, count // 3)
    for broken in BROKEN:
        rows = []
        for name in (*MODELS, *SHARED):
            module, x = network(name)
            for drawn in drawn_wrappers(module, [x], third, goes_on, broken=broken):
                rows.append((is_broken(drawn, broken), bool(races(drawn.text))))
        wrong = sum(is_wrong for is_wrong, _ in rows)
        caught = sum(is_wrong and is_caught for is_wrong, is_caught in rows)
        alarms = sum(is_caught and not is_wrong for is_wrong, is_caught in rows)
        yield (
            f"{broken}: caught in {caught} of the {wrong} of {len(rows)} programs that it breaks, "
            f"false alarms in {alarms} of the others",
            0 < caught == wrong and not alarms and len(rows) == third * (len(MODELS) + len(SHARED)),
        )


def run_orders(count: int, goes_on: Callable[[], bool]) -> Iterator[Line]:
    """Run models in random orders: in inference, in training, with dynamic shapes; those that write to buffers, too.

    So many runs of each, on one core; in training each order of the forward pass has several of the backward pass.
    """
    torch.set_num_threads(1)
    keep_answers()
    total = set[tuple[str, str, Orders]]()
    for name in (*MODELS, *CHANGING):
        for kind in ("inference", "training", "dynamic"):
            if name in CHANGING and kind == "training":
                continue  # what it writes to is in its gradient
            wanted = _values(name, lambda module, options: torch.compile(module, **options), kind)
            run = partial(_reordered, wanted, name, kind)
            first = run(lambda: count)  # compiles the kernels, and the processes of the others have them
            if kind == "training":
                counts: tuple[int, ...] = (ceil(count / _BACKWARD), _BACKWARD)
            else:
                counts = (count,)
            runs = [first, *split_runs(run, counts, goes_on)]
            equal = sum(is_equal for is_equal, _ in runs)
            orders = {(name, kind, orders) for _, orders in runs}
            total |= orders
            yield (
                f"{name}, {kind}: equal in {equal} of {len(runs)} runs of {len(orders)} orders, {len(total)} in all",
                equal == len(runs) > count,
            )


def _reordered(wanted: list[Any], name: str, kind: str, number: Callable[[], int]) -> tuple[bool, Orders]:
    """Return whether a run in a random order has the same values, and the orders of its graphs."""
    plans: list[StreamPlan] = []
    got = _values(name, lambda module, options: ordered(module, number, plans, **options), kind)
    return len(got) == len(wanted) and all(map(torch.equal, got, wanted)), tuple(plan.order for plan in plans)


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
