"""What nodes of torch.fx do besides returning a value: what they write over, and what they draw or switch.

No edge of a graph says so, and where it matters the nodes cannot be run in another order.
"""

from collections.abc import Iterator
from typing import Any, Final

from hwbackend.torch.nodes import Traced, attribute_of, launches_nothing
from simsched.base.errors import ScheduleError

_IN_PLACE: Final = (
    "iadd",
    "isub",
    "imul",
    "itruediv",
    "ifloordiv",
    "imod",
    "ipow",
    "imatmul",
    "iand",
    "ior",
    "ixor",
    "setitem",
)
_STATEFUL: Final = ("_set_grad_enabled", "_enter_", "_exit_", "manual_seed", "set_rng_state")
_RANDOM: Final = (
    "bernoulli",
    "cauchy",
    "exponential",
    "geometric",
    "gumbel_softmax",
    "log_normal",
    "multinomial",
    "normal",
    "poisson",
    "rand",
    "rand_like",
    "randint",
    "randint_like",
    "randn",
    "randn_like",
    "randperm",
    "random",
    "uniform",
)
_NORMS: Final = ("batch_norm", "instance_norm")


def require_pure(traced: Traced) -> None:
    """Refuse operators whose order among others matters beyond the edges of the graph.

    Raises
    ------
    ScheduleError
        If one writes over what others use too, draws random numbers, is a normalisation in training, or changes the
        state of PyTorch.
    """
    module = traced.graph_module
    for node in module.graph.nodes:
        if name_of_call(node).startswith(_STATEFUL):
            raise ScheduleError(
                f"operator {node.name!r} of {traced.name} changes how others run, which no edge says; it cannot be run "
                "under a schedule"
            )
        if draws(module, node):
            raise ScheduleError(
                f"operator {node.name!r} of {traced.name} draws random numbers, which would be others in another order"
            )
        if node.op == "call_module" and any(map(_averages, attribute_of(module, node.target).modules())):
            raise ScheduleError(
                f"operator {node.name!r} of {traced.name} is in training, where it changes its averages"
            )
        for written in _overwritten_nodes(traced, node):
            other = next((user for user in written.users if user is not node), None)
            if other is not None and len(written.users) > 1:
                raise ScheduleError(
                    f"operator {node.name!r} of {traced.name} writes over {written.name!r}, which {other.name!r} uses "
                    "too; have it write elsewhere (inplace=False) to run it under a schedule"
                )


def changes_what_stays(traced: Traced) -> str | None:
    """Return the first node that writes over an input, a parameter or a buffer, or None."""
    for node in traced.graph_module.graph.nodes:
        if any(written.op in ("placeholder", "get_attr") for written in _overwritten_nodes(traced, node)):
            return str(node.name)
    return None


def draws(module: Any, node: Any) -> bool:
    """Say whether a node of a graph module draws random numbers, as a dropout in training does."""
    if node.op == "call_module":
        parts = attribute_of(module, node.target).modules()
        return any(part.training and "dropout" in type(part).__name__.lower() for part in parts)
    name = name_of_call(node).rstrip("_")
    if name == "multi_head_attention_forward":
        return bool(_argument(node, 10, "dropout_p", 0.0)) and _argument(node, 13, "training", True) is not False
    if name == "scaled_dot_product_attention":
        return bool(_argument(node, 4, "dropout_p", 0.0))
    if name == "rrelu":
        return _argument(node, 3, "training", False) is not False
    if "dropout" in name:
        return _argument(node, 2, "train" if "train" in node.kwargs else "training", True) is not False
    return name in _RANDOM


def name_of_call(node: Any) -> str:
    """Return the name of the function or method that a node calls, without the name of an overload."""
    if node.op not in ("call_function", "call_method"):
        return ""
    target = getattr(node.target, "overloadpacket", node.target)
    if isinstance(target, str):
        return target
    return str(getattr(target, "__name__", ""))


def _averages(part: Any) -> bool:
    return bool(part.training) and getattr(part, "running_mean", None) is not None


def _argument(node: Any, place: int, name: str, default: Any) -> Any:
    if len(node.args) > place:
        return node.args[place]
    return node.kwargs.get(name, default)


def _overwritten_nodes(traced: Traced, node: Any) -> Iterator[Any]:
    """Yield the nodes whose values a node writes over, and of views what they look at."""
    for written in _written_by(traced.graph_module, node):
        while written is not None and hasattr(written, "users"):
            yield written
            is_view = written.name in traced.full.index and launches_nothing(traced.full[written.name])
            if is_view and written.args:
                written = written.args[0]
            else:
                written = None


def _written_by(module: Any, node: Any) -> list[Any]:
    """Return what a call writes over itself."""
    if node.op == "call_module":
        part = attribute_of(module, node.target)
        if getattr(part, "inplace", False):
            return list(node.args[:1])
        return []
    name = name_of_call(node)
    out = node.kwargs.get("out")
    if out is not None:
        if isinstance(out, list | tuple):
            return list(out)
        return [out]
    if name in _NORMS and _argument(node, 5, "training", name == "instance_norm") is not False:
        return list(node.all_input_nodes[1:])  # averages, and its weights, which it leaves alone
    in_place = name in _IN_PLACE or (name.endswith("_") and not name.endswith("__"))
    if in_place or node.kwargs.get("inplace") is True:
        return list(node.args[:1])
    return []
