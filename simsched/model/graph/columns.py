"""Columns that store the rows of graphs and schedules: arrays from values, and the order of edges by their ends."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from heapq import heappop, heappush
from types import MappingProxyType
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
import numpy.typing as npt

from simsched.base.codec import LONGEST_TEXT, Range
from simsched.base.errors import GraphError
from simsched.base.numeric import freeze, frozen, whole_numbers
from simsched.model.graph.operator import Kernel
from simsched.model.graph.views import Numbered

T = TypeVar("T")
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Indices = npt.NDArray[Any]
"""Whole numbers kept as 32 bits, or as 64 where they may need them: make them 64 before multiplying."""

_NONE = float("nan")
_OPTIONAL = ("time", "utilization", "edge_transfer")
_LAST_NARROW = 2**29
_LONGEST_CYCLE_SHOWN = 12
_DEFAULTS = {"flops": 0.0, "nbytes": 0.0, "weight_nbytes": 0.0, "time": _NONE, "utilization": _NONE, "host": 0.0}
COSTS = tuple(_DEFAULTS)
"""Columns of numbers that an operator has."""
KERNELS = tuple(f"kernel_{field.name}" for field in fields(Kernel))
"""Columns of numbers that a kernel has."""
LABELS = ("kind", "dtype", "block", "works", "collective")
"""Columns of values that many operators share: texts, the works that they consist of, and their collective."""


class Columnar:
    """An object stored by columns: read-only arrays, in copies, too."""

    CACHED: ClassVar[tuple[str, ...]] = ()
    """Attributes that follow from the others, and are not copied."""

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key not in self.CACHED}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._freeze()

    def _freeze(self) -> None:
        freeze(self.__dict__)

    def with_values(self, **values: Any) -> Self:
        """Return another object with the same columns, but for some values, which are not checked."""
        copy = type(self).__new__(type(self))
        copy.__dict__.update(Columnar.__getstate__(self), **values)
        return copy


def distinct(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the values of a column once each, rising; for this alone `numpy.unique` loads masked arrays first."""
    rising = np.sort(values)
    values_: npt.NDArray[Any] = rising[np.append(True, rising[1:] != rising[:-1])[: len(rising)]]
    return values_


def narrow(values: npt.NDArray[Any], end: int) -> Indices:
    """Return a copy of indices below `end`: in 32 bits where sums of a few of them still fit."""
    return values.astype(np.int32 if end <= _LAST_NARROW else np.int64)


def optional(value: float) -> float | None:
    """Return a value of a column, None for NaN."""
    if np.isnan(value):
        return None
    return float(value)


def column(values: Iterable[float | None]) -> Floats:
    """Return values as a column, NaN for None."""
    return np.array([np.nan if v is None else v for v in values], dtype=np.float64)


def spread(values: npt.ArrayLike, n: int, name: str, subject: Callable[[int], str]) -> Floats:
    """Return an array of n rows, or a scalar repeated, as a column; bad rows are refused, the first by its subject."""
    try:
        array = np.array(values, np.float64)
    except (TypeError, ValueError, OverflowError):
        raise GraphError(f"column {name!r} must hold numbers, not {values!r}") from None
    if array.shape not in ((), (n,)):
        raise GraphError(f"column {name!r} must have {n} rows, not {array.shape}")
    if name == "utilization":
        span = Range(0, 1, above=True)
    else:
        span = Range(0)
    good = span.holds(array) | (np.isnan(array) & (name in _OPTIONAL))
    if n and not good.all():
        i = int(np.argmin(good))
        raise GraphError(f"{subject(i)}: {name.removeprefix('edge_')} {span.phrase()}, not {float(array.flat[i])!r}")
    return np.broadcast_to(array, (n,))


def encode(values: Iterable[T]) -> tuple[npt.NDArray[np.int32], tuple[T, ...]]:
    """Return values as codes, and the value of each code, in order of first appearance."""
    codes: dict[T, int] = {}
    column = np.array([codes.setdefault(value, len(codes)) for value in values], np.int32)
    return column, tuple(codes)


def codes_of(what: str, given: npt.ArrayLike, names: Sequence[str], n_kinds: int) -> Indices:
    """Return each operator's code, shape (n_ops,), below `n_kinds`; a single code is of all operators."""
    codes = whole_numbers(given)
    if codes is None or codes.shape not in ((), (len(names),)):
        raise GraphError(f"the codes of {what} must be {len(names)} whole numbers, one for each operator")
    outside = (codes < 0) | (codes >= n_kinds)
    if outside.any():
        i = int(np.argmax(outside))
        raise GraphError(f"operator {names[i]!r}: code {codes.flat[i]} is none of the {n_kinds} {what}")
    return np.broadcast_to(codes.astype(np.int32), (len(names),))


def kernel_columns(kernels: Sequence[Kernel]) -> dict[str, npt.NDArray[Any]]:
    """Return kernels by columns."""
    kinds: dict[str, Any] = dict.fromkeys(KERNELS, np.int64)
    kinds |= dict.fromkeys(("kernel_share", "kernel_efficiency", "kernel_chain"), np.float64)
    return {
        key: np.array([getattr(kernel, key.removeprefix("kernel_")) for kernel in kernels], kind)
        for key, kind in kinds.items()
    }


def repeated_kernels(
    names: Sequence[str], codes: npt.ArrayLike, kinds: Sequence[Sequence[Kernel]]
) -> dict[str, npt.NDArray[Any]]:
    """Return the kernels of operators by columns, and each operator's first kernel, given each one's code."""
    if not kinds:
        return {"kernel_ptr": np.broadcast_to(np.int64(0), len(names) + 1), **kernel_columns([])}
    sizes = np.array([len(kernels) for kernels in kinds], np.int64)
    ptr, rows = gather_rows(sizes, codes_of("kernels", codes, names, len(kinds)))
    columns = kernel_columns([kernel for kernels in kinds for kernel in kernels])
    return {"kernel_ptr": ptr, **{key: values[rows] for key, values in columns.items()}}


def gather_rows(sizes: Ints, taken: Indices) -> tuple[Ints, Ints]:
    """Return the begins of some groups' rows if they follow one another, and the rows' indices.

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
    shared = [(MappingProxyType(dict(one)), (), None) for one in attributes]
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


def cost_columns(names: Sequence[str], costs: Mapping[str, npt.ArrayLike]) -> dict[str, Floats]:
    """Return the columns of `COSTS`, missing ones at their defaults."""
    unknown = [key for key in costs if key not in COSTS]
    if unknown:
        raise GraphError(f"unknown column {unknown[0]!r}; known are: {', '.join(COSTS)}")
    return {
        key: spread(costs.get(key, default), len(names), key, lambda i: f"operator {names[i]!r}")
        for key, default in _DEFAULTS.items()
    }


def edge_columns(
    names: Sequence[str], src: npt.ArrayLike, dst: npt.ArrayLike, nbytes: npt.ArrayLike, transfer: npt.ArrayLike
) -> dict[str, npt.NDArray[Any]]:
    """Return edges by columns: ends, bytes and exact transfer times."""
    source = whole_numbers(src)
    target = whole_numbers(dst)
    n = len(names)
    if source is None or target is None:
        raise GraphError("src and dst must hold indices of operators, which are whole numbers")
    if source.shape != target.shape or source.ndim != 1:
        raise GraphError(f"src and dst must have the same length, not {source.shape} and {target.shape}")
    if len(source) and not all(end.min() >= 0 and end.max() < n for end in (source, target)):
        edge = int(np.argmax((np.minimum(source, target) < 0) | (np.maximum(source, target) >= n)))
        raise GraphError(f"edge {edge} ({source[edge]} -> {target[edge]}) names no operator: there are {n}")

    def subject(e: int) -> str:
        return f"edge {names[int(source[e])]} -> {names[int(target[e])]}"

    edge_values = {"edge_nbytes": nbytes, "edge_transfer": transfer}
    columns = {key: spread(values, len(source), key, subject) for key, values in edge_values.items()}
    return {"src": narrow(source, n), "dst": narrow(target, n), **columns}


def edges_by_end(ends: Indices, n: int) -> tuple[Ints, Indices]:
    """Return ``(ptr, edges)``: the edges whose end is i are ``edges[ptr[i]:ptr[i + 1]]``, in given order."""
    ptr = np.concatenate([[0], np.cumsum(np.bincount(ends, minlength=n))])
    keys = (ends.astype(np.int64) << 32) + np.arange(len(ends))  # sorted some times faster than by a stable argsort
    keys.sort()
    return frozen(ptr), frozen(narrow(keys & 0xFFFFFFFF, len(ends)))


def topological_order(n: int, src: Indices, dst: Indices) -> tuple[Indices, list[int]]:
    """Return a topological order of vertices 0 to n-1, and a cycle (empty if there is none).

    Among the vertices that are ready the lowest comes first. O(V + E) if the vertices are
    numbered topologically, else O(V log V + E).
    """
    order = narrow(np.arange(n), n)
    if (src < dst).all():
        return order, []
    ptr, by_src = edges_by_end(src, n)
    missing = np.bincount(dst, minlength=n)
    ready = np.flatnonzero(missing == 0).tolist()
    # elements of a memoryview are Python's numbers, made one by one: lists of them all would take far more room
    bounds = ptr.data
    targets = dst[by_src].data
    left = missing.data
    placed = order.data
    n_found = 0
    while ready:
        i = heappop(ready)
        placed[n_found] = i
        n_found += 1
        for j in targets[bounds[i] : bounds[i + 1]]:
            left[j] -= 1
            if left[j] == 0:
                heappush(ready, j)
    if n_found < n:
        return order[:n_found], _cycle(src, dst, missing > 0)
    return order, []


def _cycle(src: Indices, dst: Indices, stuck: npt.NDArray[np.bool_]) -> list[int]:
    """Walk backwards among the vertices that never became ready until one comes up again."""
    within = stuck[src] & stuck[dst]
    producer: dict[int, int] = {}
    for u, v in zip(src[within].tolist(), dst[within].tolist(), strict=True):
        producer.setdefault(v, u)
    seen: dict[int, int] = {}
    walk = [next(iter(producer))]
    while walk[-1] not in seen:
        seen[walk[-1]] = len(seen)
        walk.append(producer[walk[-1]])
    return walk[seen[walk[-1]] :][::-1]


def describe_cycle(texts: list[str]) -> str:
    """Return a cycle as text, its middle left out if it is long."""
    if len(texts) > _LONGEST_CYCLE_SHOWN:
        half = _LONGEST_CYCLE_SHOWN // 2
        texts = [*texts[:half], f"... {len(texts) - 2 * half} more ...", *texts[-half:]]
    return " -> ".join(texts)
