"""What all pictures have in common: formats, and files that repeat to the byte."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, Final

from simsched.base.errors import FileError
from simsched.base.io import write_file
from simsched.base.signals import interrupt_later

FORMATS: Final = ("png", "svg", "pdf")
_DPI: Final = 200
# fixed, so that the same data gives the same bytes
_STYLE: Final[Any] = {
    "hatch.linewidth": 0.4, "svg.hashsalt": "simsched", "svg.fonttype": "none", "pdf.fonttype": 42,
    "text.parse_math": False,  # a $ in a name is a $
}  # fmt: skip
_METADATA: Final = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None},
                    "pdf": {"CreationDate": None, "Creator": None, "Producer": None}}  # fmt: skip


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
