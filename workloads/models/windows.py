"""Sliding windows: kernel, stride and padding as pairs, and the sizes that come out."""

from simsched.base.errors import GraphError
from workloads.checks import whole

Pair = int | tuple[int, int]


def sliding(name: str, kernel: Pair, stride: Pair, padding: Pair) -> tuple[tuple[int, int], ...]:
    """Return the three as pairs (height, width)."""
    pairs = []
    for what, value, least in (("kernel", kernel, 1), ("stride", stride, 1), ("padding", padding, 0)):
        height, width = value if isinstance(value, tuple) and len(value) == 2 else (value, value)
        pairs.append((whole(name, what, height, least=least), whole(name, what, width, least=least)))
    return tuple(pairs)


def window_output(
    name: str,
    shape: tuple[int, ...],
    window: tuple[int, int],
    step: tuple[int, int],
    margin: tuple[int, int],
    ceil_mode: bool = False,
) -> tuple[int, int]:
    """Return height and width of what a sliding window makes of a tensor."""
    sizes = []
    for size, w, s, m in zip(shape[2:], window, step, margin, strict=True):
        length = (size + 2 * m - w + (s - 1 if ceil_mode else 0)) // s + 1
        # a window that begins in the padding at the end is left out
        sizes.append(length - 1 if ceil_mode and (length - 1) * s >= size + m else length)
    if min(sizes) < 1:
        raise GraphError(
            f"{name}: a window of {window[0]} x {window[1]} does not fit into {shape[2]} x {shape[3]}; use a larger one"
        )
    return sizes[0], sizes[1]
