"""Rows of a draft: an operator and what it reads."""

import json
from collections.abc import Callable, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final, NamedTuple, TypeVar

from simsched.model.graph import Operator
from simsched.rewriting.slices import Slice

T = TypeVar("T")

KEY_MASK: Final = (1 << 64) - 1
_REMEMBERED: Final = 1 << 17


class Read(NamedTuple):
    """A tensor that an operator reads: all that `producer` writes, or its `slice` (axis, begin, end)."""

    producer: str
    slice: Slice | None = None
    nbytes: float = 0.0
    transfer: float | None = None


class Source(NamedTuple):
    """Where a tensor is to be read from instead: see `Draft.replace`."""

    producer: str
    slice: Slice | None = None


class Row:
    """An operator and what it reads, in the order of its inputs; `key` identifies both, whatever the process."""

    __slots__ = ("_found", "key", "operator", "reads", "whole")

    whole: tuple[bool, ...] | None
    """Which inputs are read as they were written, once that is known: see `splitting.carries_all`."""

    def __init__(self, operator: Operator, reads: Sequence[Read] = ()) -> None:
        self.operator = operator
        self.reads = tuple(reads)
        self.key = _row_key(_operator_key(operator), tuple((read.producer, read.slice) for read in self.reads))
        self.whole = None
        self._found: dict[Callable[[Operator], Any], Any] = {}

    def __repr__(self) -> str:
        return f"Row({self.operator.name!r}, {list(self.reads)})"

    def about(self, find: Callable[[Operator], T]) -> T:
        """Return what a function finds out about the operator; it is asked once."""
        try:
            found: T = self._found[find]
        except KeyError:
            found = self._found[find] = find(self.operator)
        return found


@lru_cache(maxsize=_REMEMBERED)
def _operator_key(op: Operator) -> bytes:
    """Return a digest of all that tells operators apart."""
    kernels = [(k.blocks, k.threads, k.registers, k.shared_memory, k.share, k.efficiency) for k in op.kernels]
    fields = (op.name, op.kind, op.dtype, op.block, op.intensity, op.flops, op.nbytes, op.weight_nbytes, op.time,
              op.host)  # fmt: skip
    text = json.dumps(
        [fields, op.utilization, kernels, dict(op.attributes), op.input_shapes, op.output_shape], sort_keys=True
    )
    return blake2b(text.encode(), digest_size=8).digest()


@lru_cache(maxsize=_REMEMBERED)
def _row_key(operator: bytes, reads: tuple[tuple[str, Slice | None], ...]) -> int:
    digest = blake2b(operator + repr(reads).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")
