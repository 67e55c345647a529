"""Parts of tensors that are read where they lie: along one axis, from `begin` up to `end`."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any, Final

from simsched.base.errors import GraphError
from simsched.base.numeric import is_count
from simsched.model.graph import Operator

Slice = tuple[int, int, int]
"""Axis, begin and end."""

ATTRIBUTE: Final = "slices"
"""Attribute in which the operators of a graph have the slices that they read: ``{"0": [axis, begin, end]}``."""


def is_contiguous(shape: Sequence[int], axis: int) -> bool:
    """Say whether a slice along an axis lies in memory in one piece, so that to read it costs nothing.

    >>> is_contiguous((1, 64, 8, 8), 1), is_contiguous((2, 64, 8, 8), 1), is_contiguous((2, 64, 8, 8), 0)
    (True, False, True)
    """
    return prod(shape[:axis]) == 1


def compose(outer: Slice | None, inner: Slice | None) -> Slice | None:
    """Return the slice that is the `inner` part of the `outer` part of a tensor.

    >>> compose((1, 64, 128), (1, 0, 16))
    (1, 64, 80)
    """
    if outer is None or inner is None:
        return outer if inner is None else inner
    if outer[0] != inner[0]:
        raise GraphError(f"a slice along axis {inner[0]} of one along axis {outer[0]} is no slice")
    return (outer[0], outer[1] + inner[1], outer[1] + inner[2])


def sliced_shape(shape: tuple[int, ...], part: Slice | None) -> tuple[int, ...]:
    """Return the shape of a part of a tensor."""
    if part is None:
        return shape
    axis, begin, end = part
    return (*shape[:axis], end - begin, *shape[axis + 1 :])


def joined_shape(shapes: Sequence[tuple[int, ...]], axis: int) -> tuple[int, ...]:
    """Return the shape of tensors behind each other along an axis."""
    return (*shapes[0][:axis], sum(shape[axis] for shape in shapes), *shapes[0][axis + 1 :])


def slices_of(op: Operator, n_reads: int) -> list[Slice | None]:
    """Return what part an operator of a graph reads of each tensor, None for all.

    Raises
    ------
    GraphError
        If its attribute is nothing of the kind.
    """
    found: list[Slice | None] = [None] * n_reads
    given = op.attributes.get(ATTRIBUTE, {})
    if not isinstance(given, Mapping):
        raise _refused(op, given)
    for key, part in given.items():
        if not key.isdecimal() or not int(key) < n_reads or not _is_slice(part):
            raise _refused(op, {key: part})
        found[int(key)] = (part[0], part[1], part[2])
    return found


def _is_slice(part: Any) -> bool:
    return isinstance(part, list) and len(part) == 3 and all(is_count(n) for n in part) and part[1] < part[2]


def _refused(op: Operator, given: Any) -> GraphError:
    return GraphError(
        f"operator {op.name!r}: attribute {ATTRIBUTE!r} gives [axis, begin, end] by the number of an input, "
        f"not {given!r}"
    )


def with_slices(op: Operator, parts: tuple[Slice | None, ...]) -> Operator:
    """Return an operator that says in its attributes what part it reads of each tensor."""
    given = {str(i): list(part) for i, part in enumerate(parts) if part is not None}
    return replace(op, attributes={**op.attributes, ATTRIBUTE: given}) if given else op


def without_slices(op: Operator) -> Operator:
    """Return an operator whose attributes do not say so."""
    if ATTRIBUTE not in op.attributes:
        return op
    return replace(op, attributes={key: value for key, value in op.attributes.items() if key != ATTRIBUTE})


KIND: Final = "slice"
"""Kind of an operator whose output is a slice of its only input: ``attributes`` axis, begin, end."""


def slice_made(op: Operator) -> Slice | None:
    """Return the slice that an operator makes, or None if it is no such operator."""
    found = tuple(op.attributes.get(key) for key in ("axis", "begin", "end"))
    return found if op.kind == KIND and _is_slice(list(found)) else None  # type: ignore[return-value]
