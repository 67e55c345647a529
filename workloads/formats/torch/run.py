"""Graphs of torch.fx run on fake tensors: values, memory that each node reads and writes, and the calls inside it.

A fake tensor has a storage like a real one, views share it, and PyTorch knows of each of its operators which arguments
it writes to (``alias_info``). So no analysis of aliases is needed: a node touches the memory that the operators
of ATen touch that run while it runs, whatever it calls.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from workloads.formats.torch.calls import VIEWS, key_of


class Effect(NamedTuple):
    """Storages that a node reads and writes, by number, each with the bytes of the largest tensor in it."""

    reads: Mapping[int, float]
    writes: Mapping[int, float]

    def touched(self) -> dict[int, float]:
        """Return the bytes of each storage that it reads or writes."""
        return {**self.reads, **self.writes}


class Inner(NamedTuple):
    """A call of an operator of ATen while a node runs."""

    target: Any
    arguments: Sequence[Any]
    keywords: Mapping[str, Any]
    value: Any

    @property
    def written(self) -> list[Any]:
        """The arguments that it writes to."""
        schema = getattr(self.target, "_schema", None)
        if schema is None:
            return []
        given = dict(zip((one.name for one in schema.arguments), self.arguments, strict=False)) | dict(self.keywords)
        return [given[one.name] for one in schema.arguments if _is_written(one) and one.name in given]


def _is_written(argument: Any) -> bool:
    """Say whether an operator writes to an argument of its schema."""
    return argument.alias_info is not None and argument.alias_info.is_write


class Autocast(NamedTuple):
    """A region of ``torch.autocast``."""

    device_type: str
    dtype: Any
    enabled: bool = True


@dataclass
class Run:
    """Values, effects and inner calls of the nodes of a graph.

    Parameters
    ----------
    values
        Results of each node: a tensor or a nest of tensors and other values.
    effects
        Memory that nodes read and write; empty if the graph was not run.
    inner
        Calls of ATen inside each node.
    regions
        Name of a node -> the regions of autocast around it.
    place
        Returns the storage of a tensor, by number, and the offset in it, in elements; None for a value without one.
    ran
        Whether it was run.
    """

    values: Mapping[Any, Any]
    effects: Mapping[Any, Effect] = field(default_factory=dict)
    inner: Mapping[Any, Sequence[Inner]] = field(default_factory=dict)
    regions: Mapping[str, Sequence[Autocast]] = field(default_factory=dict)
    place: Callable[[Any], tuple[int, int] | None] = lambda _: None
    ran: bool = False

    @property
    def written(self) -> frozenset[int]:
        """Storages that a node writes to."""
        return frozenset(storage for effect in self.effects.values() for storage in effect.writes)


@cache
def _recorder() -> type:
    """Return the class of a recorder, which has a base class in PyTorch."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Recorder(TorchDispatchMode):  # type: ignore[misc]
        """Notes the calls of ATen that go through it, with the storages that they touch."""

        supports_higher_order_operators = True

        def __init__(self, fake: Callable[[Any], Any]) -> None:
            super().__init__()
            self._fake = fake
            self._storages: dict[int, tuple[int, Any]] = {}  # a storage that is kept does not give its address away
            self.reads: dict[int, float] = {}
            self.writes: dict[int, float] = {}
            self.calls: list[Inner] = []

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            value = func(*args, **kwargs)
            self.calls.append(Inner(func, args, kwargs, value))
            schema = getattr(func, "_schema", None)
            if schema is None:  # an operator of higher order: nothing says that it writes
                self._note(self.reads, (args, kwargs))
            elif key_of(schema.name.partition("::")[2]) not in VIEWS:
                for i, argument in enumerate(schema.arguments):
                    if i < len(args):
                        argument_value = args[i]
                    else:
                        argument_value = kwargs.get(argument.name)
                    self._note(self.writes if _is_written(argument) else self.reads, argument_value)
            return value

        def place(self, tensor: Any) -> tuple[int, int] | None:
            """Return the number of the storage of a tensor, and the offset in it."""
            try:
                real = self._fake(tensor)
                storage = real.untyped_storage()
            except (AttributeError, NotImplementedError, RuntimeError):  # sparse tensors and the like have none
                return None
            number, _ = self._storages.setdefault(storage._cdata, (len(self._storages), storage))
            return number, int(real.storage_offset())

        def _note(self, touched: dict[int, float], argument_value: Any) -> None:
            for tensor in _tensors(argument_value):
                place = self.place(tensor)
                if place is not None:
                    nbytes = float(tensor.numel() * tensor.element_size())
                    touched[place[0]] = max(nbytes, touched.get(place[0], 0.0))

        def taken(self) -> tuple[Effect, list[Inner]]:
            """Return the notes since the last time."""
            noted = Effect(self.reads, self.writes), self.calls
            self.reads = {}
            self.writes = {}
            self.calls = []
            return noted

    return Recorder


def _tensors(value: Any) -> Iterator[Any]:
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _tensors(part)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))


def run_fake(
    graph_module: Any,
    arguments: Sequence[Any],
    mode: Any,
    fake: Callable[[Any], Any],
    regions: Mapping[str, Sequence[Autocast]],
) -> tuple[Run, str, Exception | None]:
    """Run a graph module on fake tensors.

    Parameters
    ----------
    graph_module, arguments
        The graph to run, and one argument for each placeholder.
    mode
        The mode of all fake tensors.
    fake
        Returns a fake tensor for a real one.
    regions
        By the name of a node the regions of autocast that it is in, outermost first.

    Returns
    -------
    Run, str, Exception or None
        The results, and the node at which it stopped with an error, if it did.
    """
    import torch
    from torch.fx.node import map_aggregate

    recorder = _recorder()(fake)
    effects: dict[Any, Effect] = {}
    inner: dict[Any, Sequence[Inner]] = {}

    class Interpreter(torch.fx.Interpreter):  # type: ignore[misc]
        def run_node(self, node: Any) -> Any:
            with ExitStack() as stack:
                for region in regions.get(node.name, ()):
                    stack.enter_context(torch.autocast(region.device_type, region.dtype, region.enabled))
                value = super().run_node(node)
            if node.op.startswith("call"):
                effects[node], inner[node] = recorder.taken()
            return value

        def fetch_attr(self, target: str) -> Any:
            # of a true tensor a graph might change the values
            return fake(super().fetch_attr(target))

    interpreter = Interpreter(graph_module, garbage_collect_values=False)
    stopped = ""
    error = None
    try:
        with mode, torch.no_grad(), recorder:
            interpreter.run(*map_aggregate(tuple(arguments), fake))
    except Exception as raised:  # whatever the module's own code raises
        stopped = next((node.name for node in graph_module.graph.nodes if node not in interpreter.env), "output")
        error = raised
    return Run(dict(interpreter.env), effects, inner, regions, recorder.place, True), stopped, error
