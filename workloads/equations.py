"""Equations of sums of products, as `numpy.einsum` has them: indices of axes, and the order of the products."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

_MOST_ORDERED: Final = 8  # tensors of a sum of products up to which all orders are tried


def axes_of(term: str, rank: int) -> tuple[str, ...]:
    """Return the index of each axis of a tensor in an equation; an ellipsis means indices counted from the last.

    >>> axes_of("...ij", 4)
    ('.2', '.1', 'i', 'j')

    Raises
    ------
    ValueError
        If the tensor has another number of axes.
    """
    front, dots, back = term.partition("...")
    hidden = rank - len(front) - len(back)
    if hidden < 0 or (hidden and not dots):
        raise ValueError(f"equation term {term!r} does not fit {rank} axes")
    return (*front, *(f".{i}" for i in range(hidden, 0, -1)), *back)


def pairwise_order(
    operands: Sequence[Sequence[str]], output: Sequence[str], sizes: Mapping[str, int]
) -> list[tuple[int, int]]:
    """Return which two tensors of a sum of products are multiplied first, and so on.

    Positions count among the remaining tensors; the result of a pair comes last. See `Costs.einsum`.
    """
    letters = {index: i for i, index in enumerate(sizes)}
    arguments: list[Any] = []
    for operand in operands:  # of no more memory than one number
        arguments += [
            np.broadcast_to(np.float32(0), [sizes[index] for index in operand]),
            [letters[x] for x in operand],
        ]
    if len(operands) <= _MOST_ORDERED:
        method = "optimal"
    else:
        method = "greedy"
    steps = np.einsum_path(*arguments, [letters[x] for x in output], optimize=method)[0][1:]
    order: list[tuple[int, int]] = []
    n_left = len(operands)
    for step in steps:
        positions = sorted(step)
        while len(positions) > 1:  # several at once where that takes no more: two of them, and the result with the next
            first = positions[0]
            second = positions[1]
            order.append((first, second))
            n_left -= 1
            positions = [x - 2 for x in positions[2:]] + [n_left - 1]
    return order
