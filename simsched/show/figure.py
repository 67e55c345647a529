"""What all pictures have in common: formats, colours, units of time, and files that repeat to the byte."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import numpy as np

from simsched.base.errors import FileError
from simsched.base.io import write_file
from simsched.base.signals import interrupt_later
from simsched.model.graph import OpGraph
from simsched.model.graph.columns import Ints

FORMATS: Final = ("png", "svg", "pdf")
# Okabe and Ito's palette, distinct for the colour-blind and in grey; black is left to text.
PALETTE: Final = ("#56B4E9", "#E69F00", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7")
_OTHER: Final = "#999999"  # kinds behind the palette
_TINTS: Final = (0.0, 0.6, 0.25, 0.8)  # shares of white
_DPI: Final = 200
# fixed, so that the same data gives the same bytes
_STYLE: Final[Any] = {
    "hatch.linewidth": 0.4, "svg.hashsalt": "simsched", "svg.fonttype": "none", "pdf.fonttype": 42,
    "text.parse_math": False,  # a $ in a name is a $
}  # fmt: skip
_METADATA: Final = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None},
                    "pdf": {"CreationDate": None, "Creator": None, "Producer": None}}  # fmt: skip


def kind_colours(graph: OpGraph) -> tuple[Ints, list[str]]:
    """Return the colour of each operator by its kind, shape (n_ops,), and what each colour is called.

    Colours go to the kinds that the graph has most of; kinds after the seventh share one.
    """
    codes: dict[str | None, int] = {}
    kind = np.array([codes.setdefault(graph.label("kind", i), len(codes)) for i in range(len(graph))])
    rank = np.empty(len(codes), np.int64)
    rank[np.argsort(-np.bincount(kind), kind="stable")] = np.arange(len(codes))
    by_rank = [str(name) for _, name in sorted(zip(rank.tolist(), codes, strict=True))]
    names = by_rank[: len(PALETTE)] + (["other"] if len(by_rank) > len(PALETTE) else [])
    return np.minimum(rank, len(PALETTE))[kind], names


def paint(code: int) -> str:
    """Return the colour of a code of `kind_colours`."""
    return PALETTE[code] if code < len(PALETTE) else _OTHER


def tinted(code: int, tint: int) -> str:
    """Return a colour of the palette, which begins again after its end, in one of four tints."""
    white = _TINTS[tint % len(_TINTS)]
    return "#" + "".join(f"{round(c + (255 - c) * white):02X}" for c in bytes.fromhex(PALETTE[code % len(PALETTE)][1:]))


def ink(background: str) -> str:
    """Return black or white, whichever has more contrast (WCAG 2) on a background.

    >>> ink("#F0E442"), ink("#0072B2")
    ('#000000', '#ffffff')
    """
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4
              for c in (channel / 255 for channel in bytes.fromhex(background[1:]))]  # fmt: skip
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "#000000" if (luminance + 0.05) ** 2 > 1.05 * 0.05 else "#ffffff"


def require_format(*paths: str | os.PathLike[str] | None) -> None:
    """Refuse paths whose suffix, in either case, is no format of pictures; None is no path.

    Raises
    ------
    FileError
        It names the path and the suffixes that are known.
    """
    for path in paths:
        if path is not None and _form(path) not in FORMATS:
            known = ", ".join(f".{each}" for each in FORMATS)
            raise FileError(f"cannot draw {os.fspath(path)!r}: its name must end in one of: {known}")


def _form(path: str | os.PathLike[str]) -> str:
    return Path(path).suffix.lower()[1:]


def new_figure(width: float, height: float) -> Any:
    """Return an empty matplotlib figure of so many inches, outside of pyplot."""
    with interrupt_later():
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


@contextmanager
def style() -> Iterator[None]:
    """Draw and save with the settings of every picture."""
    with interrupt_later():
        import matplotlib

    with matplotlib.rc_context(_STYLE):
        yield


def save_figure(ax: Any, path: str | os.PathLike[str]) -> None:
    """Write the whole picture that some axes belong to, in the format of the suffix; call it within `style`.

    Raises
    ------
    FileError
        If the file cannot be written.
    """
    buffer, form = BytesIO(), _form(path)
    ax.figure.canvas.figure.savefig(buffer, format=form, dpi=_DPI, metadata=_METADATA[form])
    write_file(path, buffer.getvalue())
