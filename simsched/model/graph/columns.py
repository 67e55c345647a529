"""Columns behind the rows of graphs and schedules: views, and arrays made from values."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from simsched.base.codec import LONGEST_TEXT, Range
from simsched.base.errors import GraphError
from simsched.base.numeric import freeze, twice, whole_numbers
from simsched.model.graph.names import Numbered
from simsched.model.graph.operator import Edge, Kernel

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Indices = npt.NDArray[Any]
"""Whole numbers kept as 32 bits, or as 64 where they may need them: make them 64 before multiplying."""

_NONE = float("nan")
_OPTIONAL = ("time", "utilization", "edge_transfer")
_LAST_NARROW = 2**29
_DEFAULTS = {"flops": 0.0, "nbytes": 0.0, "weight_nbytes": 0.0, "time": _NONE, "utilization": _NONE, "host": 0.0}
COSTS = tuple(_DEFAULTS)
"""Columns of numbers that an operator has."""
KERNELS = tuple(f"kernel_{field.name}" for field in fields(Kernel))
"""Columns of numbers that a kernel has."""
LABELS = ("kind", "dtype", "block")
"""Columns of texts that an operator has."""


class Columnar:
    """What is stored by columns: arrays that cannot be written to, in copies neither."""

    CACHED: ClassVar[tuple[str, ...]] = ()
    """Attributes that follow from the others, and are not copied."""

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key not in self.CACHED}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._freeze()

    def _freeze(self) -> None:
        freeze(self.__dict__)


def distinct(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the values of a column once each, rising; for this alone `numpy.unique` loads masked arrays first."""
    rising = np.sort(values)
    found: npt.NDArray[Any] = rising[np.append(True, rising[1:] != rising[:-1])[: len(rising)]]
    return found


def narrow(values: npt.NDArray[Any], end: int) -> Indices:
    """Return a copy of indices below `end`: in 32 bits where sums of a few of them still fit."""
    return values.astype(np.int32 if end <= _LAST_NARROW else np.int64)


def optional(value: float) -> float | None:
    """Return a value of a column, None for NaN."""
    return None if np.isnan(value) else float(value)


def column(values: Iterable[float | None]) -> Floats:
    """Return values as a column, NaN for None."""
    return np.array([np.nan if v is None else v for v in values], dtype=np.float64)


def spread(values: npt.ArrayLike, n: int, name: str, subject: Callable[[int], str]) -> Floats:
    """Return an array of n rows, or a scalar repeated, as a column; bad rows are refused, the first by its subject."""
    try:
        given = np.array(values, np.float64)
    except (TypeError, ValueError, OverflowError):
        raise GraphError(f"column {name!r} must hold numbers, not {values!r}") from None
    if given.shape not in ((), (n,)):
        raise GraphError(f"column {name!r} must have {n} rows, not {given.shape}")
    span = Range(0, 1, above=True) if name == "utilization" else Range(0)
    good = span.holds(given) | (np.isnan(given) & (name in _OPTIONAL))
    if n and not good.all():
        i = int(np.argmin(good))
        raise GraphError(f"{subject(i)}: {name.removeprefix('edge_')} {span.phrase()}, not {float(given.flat[i])!r}")
    return np.broadcast_to(given, (n,))


def encode(values: Iterable[str | None]) -> tuple[npt.NDArray[np.int32], tuple[str | None, ...]]:
    """Return texts as codes, and the text of each code, in order of first appearance."""
    codes: dict[str | None, int] = {}
    column = np.array([codes.setdefault(value, len(codes)) for value in values], np.int32)
    return column, tuple(codes)


def index_of(names: Sequence[str]) -> Mapping[str, int]:
    """Return the position of each name; one that stands twice is refused."""
    index = {name: i for i, name in enumerate(names)}
    if len(index) != len(names):
        raise GraphError(f"operator {twice(names)!r} stands twice; names must be unique")
    return index


def endpoints(edges: tuple[Edge, ...], index: Mapping[str, int], end: str) -> Indices:
    """Return the operator index of one end of every edge; an unknown name is refused."""
    try:
        return narrow(np.array([index[getattr(edge, end)] for edge in edges], np.int64), len(index))
    except KeyError:
        edge = next(edge for edge in edges if getattr(edge, end) not in index)
        raise GraphError(f"edge {edge.src} -> {edge.dst} names no operator: {getattr(edge, end)!r}") from None


def codes_of(what: str, given: npt.ArrayLike, names: Sequence[str], n_kinds: int) -> Indices:
    """Return which of some things each operator has, shape (n_ops,); one number stands for all."""
    codes = whole_numbers(given)
    if codes is None or codes.shape not in ((), (len(names),)):
        raise GraphError(f"the codes of {what} must be {len(names)} whole numbers, one for each operator")
    outside = (codes < 0) | (codes >= n_kinds)
    if outside.any():
        i = int(np.argmax(outside))
        raise GraphError(f"operator {names[i]!r}: code {codes.flat[i]} is none of the {n_kinds} {what}")
    return np.broadcast_to(codes.astype(np.int32), (len(names),))


def kind_column(names: Sequence[str], kind: Any) -> tuple[npt.NDArray[np.int32], tuple[str, ...]]:
    """Return kinds as a column of codes and the codes' texts; given is one text, or such a pair."""
    codes, texts = (0, (kind,)) if isinstance(kind, str) else kind
    if not all(isinstance(text, str) and text for text in texts):
        raise GraphError(f"a kind must be a text that is not empty: {texts!r}")
    return codes_of("kinds", codes, names, len(texts)), tuple(texts)


def kernel_columns(kernels: Sequence[Kernel]) -> dict[str, npt.NDArray[Any]]:
    """Return kernels by columns."""
    kinds = dict.fromkeys(KERNELS, np.int64) | dict.fromkeys(("kernel_share", "kernel_efficiency"), np.float64)
    return {
        key: np.array([getattr(kernel, key.removeprefix("kernel_")) for kernel in kernels], kind)
        for key, kind in kinds.items()
    }


def repeated_kernels(
    names: Sequence[str], codes: npt.ArrayLike, kinds: Sequence[Sequence[Kernel]]
) -> dict[str, npt.NDArray[Any]]:
    """Return the kernels of operators by columns, and where those of each begin, given a code of each operator."""
    if not kinds:
        return {"kernel_ptr": np.broadcast_to(np.int64(0), len(names) + 1), **kernel_columns([])}
    sizes = np.array([len(kernels) for kernels in kinds], np.int64)
    ptr, rows = gathered(sizes, codes_of("kernels", codes, names, len(kinds)))
    columns = kernel_columns([kernel for kernels in kinds for kernel in kernels])
    return {"kernel_ptr": ptr, **{key: values[rows] for key, values in columns.items()}}


def gathered(sizes: Ints, taken: Indices) -> tuple[Ints, Ints]:
    """Return where the rows of each of some groups begin if they stand one behind the other, and which rows they are.

    Parameters
    ----------
    sizes
        Rows of each group, shape (n_groups,).
    taken
        The groups, perhaps some of them several times.
    """
    ptr = np.concatenate([[0], np.cumsum(sizes[taken])])
    return ptr, np.repeat((np.cumsum(sizes) - sizes)[taken] - ptr[:-1], sizes[taken]) + np.arange(ptr[-1])


def shared_details(
    names: Sequence[str], codes: npt.ArrayLike, attributes: Sequence[Mapping[str, Any]]
) -> dict[int, tuple[Any, ...]]:
    """Return the details of operators that have attributes alone, given a code of each."""
    if not attributes:
        return {}
    shared = [(MappingProxyType(dict(each)), (), None) for each in attributes]
    return {i: shared[code] for i, code in enumerate(codes_of("attributes", codes, names, len(shared)).tolist())}


def require_names(names: Sequence[str]) -> None:
    """Refuse names that are none."""
    if isinstance(names, Numbered):
        return
    bad = next((text for text in names if not isinstance(text, str) or not text), None)
    if bad is not None:
        raise GraphError(f"an operator's name must be a text that is not empty, not {bad!r}")
    longest = max(names, key=len, default="")
    if len(longest) > LONGEST_TEXT:
        raise GraphError(f"operator {longest!r}: its name has more than {LONGEST_TEXT:,} characters")


def edge_ends(names: Sequence[str], src: npt.ArrayLike, dst: npt.ArrayLike) -> tuple[Indices, Indices]:
    """Return the ends of edges as columns of operator indices."""
    source, target = whole_numbers(src), whole_numbers(dst)
    if source is None or target is None:
        raise GraphError("src and dst must hold indices of operators, which are whole numbers")
    if source.shape != target.shape or source.ndim != 1:
        raise GraphError(f"src and dst must have the same length, not {source.shape} and {target.shape}")
    if len(source) and not all(end.min() >= 0 and end.max() < len(names) for end in (source, target)):
        outside = (np.minimum(source, target) < 0) | (np.maximum(source, target) >= len(names))
        edge = int(np.argmax(outside))
        raise GraphError(f"edge {edge} ({source[edge]} -> {target[edge]}) names no operator: there are {len(names)}")
    return narrow(source, len(names)), narrow(target, len(names))


def cost_columns(names: Sequence[str], costs: Mapping[str, npt.ArrayLike]) -> dict[str, Floats]:
    """Return the columns of `COSTS`, those not given at their defaults."""
    unknown = [key for key in costs if key not in COSTS]
    if unknown:
        raise GraphError(f"unknown column {unknown[0]!r}; known are: {', '.join(COSTS)}")
    return {
        key: spread(costs.get(key, default), len(names), key, lambda i: f"operator {names[i]!r}")
        for key, default in _DEFAULTS.items()
    }


def edge_columns(
    names: Sequence[str], src: Indices, dst: Indices, nbytes: npt.ArrayLike, transfer: npt.ArrayLike
) -> dict[str, npt.NDArray[Any]]:
    """Return edges by columns: ends, bytes and exact transfer times."""

    def subject(e: int) -> str:
        return f"edge {names[int(src[e])]} -> {names[int(dst[e])]}"

    columns = {
        key: spread(values, len(src), key, subject)
        for key, values in (("edge_nbytes", nbytes), ("edge_transfer", transfer))
    }
    return {"src": src, "dst": dst} | columns
