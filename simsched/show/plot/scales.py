"""Linear and logarithmic axes, and numbers at them."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from simsched.base.errors import StudyError
from simsched.model.graph.columns import Floats
from simsched.show.plot.axes import CHARACTER, POINT, TICK

_LEAST_DECADES: Final = 1.5  # with fewer a logarithmic axis has more than powers of 10 on it
_MOST_TICKS: Final = 6  # as many numbers as a narrow figure has room for
_LEVEL: Final = "#7F7F7F"


def require_positive(values: Mapping[str, Mapping[Any, Floats]], log: bool) -> None:
    """Refuse values that have no place on a logarithmic axis.

    Raises
    ------
    StudyError
        It names the first such value.
    """
    for name, given in values.items() if log else ():
        for x, row in given.items():
            if (row <= 0).any():
                text = f"a logarithmic axis has no place for {row.min():g} of {name!r} at {x!r}"
                raise StudyError(f"{text}: draw it on a linear one")


def level_line(ax: Any, height: float | None) -> None:
    """Draw a thin level line behind the data, unless there is none to draw."""
    if height is not None:
        ax.axhline(height, color=_LEVEL, linewidth=0.7, zorder=0.9)


def scale_axis(axis: Any, log: bool) -> None:
    """Make an axis linear or logarithmic, with plain numbers; what is drawn by then decides on the ticks."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    if log:
        axis.axes.set(**{f"{axis.axis_name}scale": "log"})
        low, high = axis.get_view_interval()
        narrow = low > 0 and np.log10(high / low) < _LEAST_DECADES
        axis.set_major_locator(LogLocator(10, (1.0, 2.0, 5.0) if narrow else (1.0,), numticks=_MOST_TICKS))
        axis.set_minor_formatter(NullFormatter())
    else:
        axis.set_major_locator(MaxNLocator(nbins=_MOST_TICKS, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))


def ticks_at(ax: Any, places: Floats) -> None:
    """Put the ticks of the x axis where the data are, if there is room for the numbers, else where matplotlib would."""
    from matplotlib.ticker import FixedLocator, NullLocator

    ax.figure.draw_without_rendering()
    at = ax.transData.transform(np.column_stack([places, np.full(len(places), np.mean(ax.get_ylim()))]))[:, 0]
    widths = np.array([(len(number(x)) + 1) * CHARACTER * TICK * POINT * ax.figure.dpi for x in places])
    if (np.diff(at) >= (widths[1:] + widths[:-1]) / 2).all():
        ax.xaxis.set_major_locator(FixedLocator(places.tolist()))
        ax.xaxis.set_minor_locator(NullLocator())


def number(value: float) -> str:
    """Return a number of an axis as text.

    >>> number(2000.0), number(0.25), number(1e-5), number(10000.0)
    ('2000', '0.25', '0.00001', '10,000')
    """
    if abs(value) >= 1e4:
        return f"{value:,.6g}" if abs(value) < 1e6 else f"{value:.4g}".replace("e+0", "e")
    return np.format_float_positional(float(f"{value:.6g}"), trim="-") if abs(value) >= 1e-6 else f"{value:.6g}"
