"""Models of PyTorch by each of our importers against a run: FLOP of PyTorch's counter, bytes of tensors touched.

``python -m validation.models torchvision:resnet50 timm:levit_128s ...`` prints a row for each model and path. It needs
PyTorch, onnx and onnxscript, and torchvision or timm for models of these.
"""

import argparse
import importlib
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from math import prod
from pathlib import Path
from typing import Any, Final

from simsched.base.errors import SimschedError
from simsched.model import OpGraph
from workloads.formats.onnx.models import read_onnx
from workloads.formats.torch_fx import from_exported, from_module

PRODUCTS: Final = ("product", "convolution", "attention", "recurrence")
"""Families of works that PyTorch's counter knows, too."""
_VIEWS: Final = frozenset(
    [
        "view",
        "_unsafe_view",
        "t",
        "transpose",
        "permute",
        "expand",
        "select",
        "slice",
        "unsqueeze",
        "squeeze",
        "detach",
        "alias",
        "split",
        "unbind",
        "as_strided",
        "_reshape_alias",
        "split_with_sizes",
        "chunk",
        "lift_fresh",
        "diagonal",
        "empty",
        "empty_like",
        "new_empty",
        "narrow",
        "view_as_real",
        "view_as_complex",
        "_conj",
        "resolve_conj",
        "set",
        "resize",
    ]
)
_TABLES: Final = ("embedding", "_embedding_bag", "_embedding_bag_forward_only")
_PICKS: Final = ("index", "index_select", "gather")
_PUTS: Final = ("index_copy", "index_put", "_index_put_impl")
_ADDS: Final = ("index_add", "scatter_add")
_FILLS: Final = ("fill", "zero", "zeros", "full", "ones", "arange", "zeros_like", "ones_like", "full_like", "new_zeros")


def product_flops(graph: OpGraph) -> float:
    """Return the FLOP of products, convolutions, attention and recurrences, as PyTorch counts them: without softmax."""
    works = [work for op in graph.operators for work in op.works if work.family in PRODUCTS]
    softmax = sum(5.0 * work.batch * work.rows * work.columns for work in works if work.family == "attention")
    return sum(work.flops for work in works) - softmax


def reachability(graph: OpGraph) -> list[list[bool]]:
    """Return whether each product waits for each other one, in the order of the graph; shape (n, n)."""
    names = [op.name for op in graph.operators if any(work.family in PRODUCTS for work in op.works)]
    sources: dict[str, list[str]] = {}
    for edge in graph.edges:
        sources.setdefault(edge.dst, []).append(edge.src)
    before: dict[str, frozenset[str]] = {}
    for name in graph.order:
        direct = sources.get(name, [])
        before[name] = frozenset(direct).union(*(before[src] for src in direct))
    return [[a in before[b] for a in names] for b in names]


def counted_flops(module: Any, inputs: Sequence[Any]) -> float:
    """Return the FLOP that PyTorch's counter sees in a run, with products of recurrences one by one."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    copy = deepcopy(module)
    one_by_one = torch.backends.mkldnn.flags(enabled=False)
    with (
        torch.no_grad(),
        one_by_one,
        sdpa_kernel(SDPBackend.MATH),
        _without_fast_path(),
        FlopCounterMode(display=False) as counter,
    ):
        copy(*inputs)
    return float(counter.get_total_flops())


def touched_bytes(module: Any, inputs: Sequence[Any]) -> float:
    """Return the bytes of tensors that the operators of a run on the CPU read and write, each once per operator.

    Of tables and of tensors that indices number, the rows count that are read or written.
    """
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class Counter(TorchDispatchMode):  # type: ignore[misc]
        """Adds up bytes of each call."""

        total = 0.0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            value = func(*args, **(kwargs or {}))
            self.total += _call_bytes(func._schema.name, args, kwargs or {}, value)
            return value

    copy = deepcopy(module)
    with torch.no_grad(), _without_fast_path(), Counter() as counter:
        copy(*inputs)
    return float(counter.total)


@contextmanager
def _without_fast_path() -> Iterator[None]:
    """Have attention layers run operator by operator: their one fused operator is neither counted nor seen into."""
    import torch

    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


def _call_bytes(name: str, args: Sequence[Any], kwargs: Mapping[str, Any], value: Any) -> float:
    """Return the bytes that a call of ATen reads and writes."""
    in_place = name.endswith("_")
    plain = name.partition("::")[2].rstrip("_")
    outputs = list(_tensors(value))
    if plain in _VIEWS:
        return 0.0
    if plain in _TABLES:
        table, indices = args[0], args[1]
        return float(indices.numel() * table.shape[1] * table.element_size()) + _nbytes(indices) + _nbytes(outputs[0])
    if plain in _PICKS:
        return 2 * _nbytes(outputs[0]) + sum(map(_nbytes, _tensors(args[1:])))
    if plain in (*_PUTS, *_ADDS) and in_place:
        given = sum(map(_nbytes, _tensors(args[1:])))
        rows_touched = _nbytes(list(_tensors(args))[-1])
        if plain in _ADDS:
            return given + 2 * rows_touched
        return given + rows_touched
    if plain == "copy":
        return _nbytes(args[0]) + _nbytes(args[1])
    if plain in _FILLS:
        return sum(map(_nbytes, outputs))
    distinct = {
        (x.untyped_storage()._cdata, x.storage_offset(), tuple(x.shape), tuple(x.stride())): x
        for x in _tensors([*args, *kwargs.values()])
    }
    return sum(map(_nbytes, distinct.values())) + sum(map(_nbytes, outputs))


def _tensors(value: Any) -> Iterator[Any]:
    if hasattr(value, "untyped_storage"):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _tensors(part)


def _nbytes(tensor: Any) -> float:
    """Return the bytes of a tensor in memory, where an expanded axis is stored once."""
    sizes = zip(tensor.shape, tensor.stride(), strict=True)
    return float(prod(size for size, stride in sizes if stride) * tensor.element_size())


def by_layers(module: Any, inputs: Sequence[Any]) -> OpGraph:
    """Return the graph by torch.fx."""
    return from_module(module, tuple(inputs))


def by_export(module: Any, inputs: Sequence[Any]) -> OpGraph:
    """Return the graph by `torch.export`."""
    import torch

    return from_exported(torch.export.export(module, tuple(inputs)))


def by_onnx(module: Any, inputs: Sequence[Any], *, dynamo: bool = False) -> OpGraph:
    """Return the graph of the ONNX file that an exporter of PyTorch writes, with batch norms as operators."""
    import torch

    options: dict[str, Any] = {}
    if not dynamo:
        options = {"training": torch.onnx.TrainingMode.PRESERVE, "opset_version": 17}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        torch.onnx.export(module, tuple(inputs), path, dynamo=dynamo, verbose=False, **options)
        return read_onnx(path)


PATHS: Final[Mapping[str, Callable[[Any, Sequence[Any]], OpGraph]]] = {
    "fx": by_layers,
    "export": by_export,
    "onnx": by_onnx,
}


def rows(name: str, module: Any, inputs: Sequence[Any]) -> Iterator[str]:
    """Yield a row of the table for each path: FLOP and bytes over those of a run, and reachability over that by fx."""
    module = module.eval()
    flops = counted_flops(module, inputs)
    touched = touched_bytes(module, inputs)
    first: list[list[bool]] | None = None
    for path, read in PATHS.items():
        try:
            graph = read(module, inputs)
        except SimschedError as error:
            yield f"| {name} | {path} | {error} | | |"
            continue
        reached = reachability(graph)
        if first is None:
            first = reached
        if reached == first:
            same = "equal"
        else:
            same = f"{len(reached)} products, {len(first)} by torch.fx"
        share = f"{100 * (graph.nbytes.sum() / touched - 1):+.1f} %"
        yield f"| {name} | {path} | {product_flops(graph) / max(1.0, flops):.6f} | {share} | {same} |"


def published(name: str) -> tuple[Any, Sequence[Any]]:
    """Return a model of torchvision or timm without its weights, and an image.

    >>> published("other:resnet50")
    Traceback (most recent call last):
    ValueError: other:resnet50: give torchvision:NAME or timm:NAME
    """
    import torch

    library, _, model = name.partition(":")
    if library == "timm":
        return importlib.import_module("timm").create_model(model), [torch.randn(1, 3, 224, 224)]
    if library != "torchvision":
        raise ValueError(f"{name}: give torchvision:NAME or timm:NAME")
    options: dict[str, Any] = {"weights": None}
    if model in ("googlenet", "inception_v3"):
        options |= {"init_weights": False, "aux_logits": False}
    size = 224
    if model == "inception_v3":
        size = 299
    for operator in ("nms", "qnms"):
        with suppress(RuntimeError):  # torchvision without its compiled half has no operators of these names
            torch.library.define(f"torchvision::{operator}", "(Tensor a, Tensor b, float limit) -> Tensor")
    models = importlib.import_module("torchvision").models
    return getattr(models, model)(**options), [torch.randn(1, 3, size, size)]


def main() -> None:
    """Print the table of the models that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="LIBRARY:NAME", help="models of torchvision or timm")
    warnings.simplefilter("ignore")  # of exporters
    print("| model | path | FLOP over the counter's | bytes over a run's | products that wait for each other |")
    print("|---|---|---|---|---|")
    for name in parser.parse_args().models:
        for row in rows(name, *published(name)):
            print(row, flush=True)


if __name__ == "__main__":
    main()
