"""Charts as files for papers, drawn with matplotlib."""

import os
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import numpy as np

from simsched.base.errors import FileError
from simsched.base.io import write_file
from simsched.base.numeric import is_number
from simsched.base.signals import interrupt_later
from simsched.base.text import printable
from simsched.show.chart import BREAKS, MOST_MARKS, Chart, Look, break_name, ink, number

# heights of characters in points, as in the style
_TITLE = 9.0
_TICK = 7.0
_NOTE = 6.0
_STYLE: Final = Path(__file__).with_name("paper.mplstyle")
_METADATA: Final = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
# of each shape of `simsched.show.chart`
HATCHES: Final = ("", "/////", ".....", "\\\\\\\\\\", "xxxxx", "-----", "|||||", "+++++")
MARKERS: Final = "osD^vP<>"
DASHES: Final[tuple[Any, ...]] = (
    "solid",
    (0, (5, 1.5)),
    (0, (1, 1.2)),
    (0, (5, 1.2, 1, 1.2)),
    (0, (8, 1.5)),
    (0, (3, 1, 1, 1, 1, 1)),
    (0, (2, 2)),
    (0, (8, 2, 2, 2)),
)
_INCHES: Final = (3.5, 7.2)  # of one column of a paper, and of two
# inches of axes, of a row of a map or a bar, and at first of all
_HEIGHT = 1.7
_ROW = 0.25
_ROOM = 20.0
_CHARACTER: Final = 0.6 / 72  # inches: width of a character by its height
# width of a group, and of a bar or box; groups are 1 apart
_GROUP = 0.84
_WIDEST = 0.6
# characters on a line of a name; numbers at an axis
_NAME = 22
_MOST_TICKS = 6
_LEVEL: Final[Any] = {"color": "#7F7F7F", "linewidth": 0.7, "zorder": 0.9}
_SMALL = "#4D4D4D"
_EMPTY = "#D9D9D9"
# colour-blind readers distinguish both: the one runs from violet over white to orange, the other from dark to light
_DIVERGING = "PuOr_r"
_SEQUENTIAL = "cividis"
_WITHIN: Final = 0.1  # the band around the diagonal


def require_format(path: str | os.PathLike[str] | None) -> None:
    """Refuse a path whose suffix, in either case, is no format of pictures; None is no path.

    Raises
    ------
    FileError
        It names the path and the suffixes that are known.
    """
    if path is not None and _form(path) not in _METADATA:
        formats = ", ".join(f".{suffix}" for suffix in _METADATA)
        raise FileError(f"cannot draw {os.fspath(path)!r}: its name must end in one of: {formats}")


def _form(path: str | os.PathLike[str]) -> str:
    return Path(path).suffix.lower()[1:]


@contextmanager
def style(grid: str = "y") -> Iterator[Any]:
    """Draw and save with the settings of every picture; lines of the grid cross an axis. Its value makes figures."""
    with interrupt_later():
        import matplotlib.backends.backend_agg
        import matplotlib.figure

    settings = matplotlib.rc_params_from_file(_STYLE, use_default_template=False)
    with matplotlib.rc_context({**settings, "axes.grid.axis": grid}):
        yield matplotlib.figure.Figure


def encode(ax: Any, form: str) -> bytes:
    """Return the whole picture that some axes belong to, as a file of a format; call it within `style`."""
    buffer = BytesIO()
    ax.figure.savefig(buffer, format=form, metadata=_METADATA[form])
    return buffer.getvalue()


def save_figure(ax: Any, path: str | os.PathLike[str] | None) -> None:
    """Write such a picture in the format of the suffix; None: nowhere.

    Raises
    ------
    FileError
        If the file cannot be written.
    """
    if path is not None:
        write_file(path, encode(ax, _form(path)))


def draw(chart: Chart, path: str | os.PathLike[str] | None = None) -> Any:
    """Draw a chart; return its axes, outside of pyplot.

    Parameters
    ----------
    path
        Where to write the figure; the suffix, ``.png``, ``.svg`` or ``.pdf``, gives the format.

    Raises
    ------
    FileError
        If the suffix is not known or the file cannot be written.
    """
    require_format(path)
    with style("x" if chart.lying else "y") as new_figure:
        width = _INCHES[chart.columns - 1]
        figure = new_figure((width, _ROOM))
        ax = figure.add_subplot()
        height = _DRAWN[chart.kind](ax, chart)
        if chart.lying:
            along = chart.y
            up = chart.x
        else:
            along = chart.x
            up = chart.y
        ax.set(xlabel=along.label, ylabel=up.label)
        if chart.reference is not None and chart.kind != "map":
            (ax.axvline if chart.lying else ax.axhline)(chart.reference, **_LEVEL)
        for at in chart.upright:
            ax.axvline(at, linestyle=":", **_LEVEL)
        figure.suptitle(_wrap(chart.title, width, _TITLE), x=0.02, ha="left")
        if chart.legend:
            handles, names = ax.get_legend_handles_labels()
        else:
            handles = []
            names = []
        note = figure.legend(
            handles,
            names,
            loc="outside lower left",
            ncols=2 * chart.columns,
            alignment="left",
            title=_wrap(chart.note, width, _NOTE),
        ).get_title()
        note.set(fontsize=_NOTE, color=_SMALL)
        figure.draw_without_rendering()  # lays it out: whatever else takes room, the axes are to have theirs
        figure.set_figheight(_ROOM + height - _ROOM * ax.get_position(original=True).height)
        save_figure(ax, path)
    return ax


def _lines(ax: Any, chart: Chart) -> float:
    at = {x: x if chart.numeric else i for i, x in enumerate(chart.places)}
    for name, look in chart.looks.items():
        x, mean, low, high = zip(*chart.spread(name), strict=True)
        xs = [at[place] for place in x]
        ax.fill_between(xs, low, high, color=look.colour, alpha=0.15, linewidth=0, zorder=1.8)
        ax.plot(
            xs,
            mean,
            color=look.colour,
            linestyle=DASHES[look.shape],
            linewidth=1.3,
            marker=MARKERS[look.shape],
            markevery=-(-len(xs) // MOST_MARKS),
            markersize=3.8,
            markeredgecolor="black",
            markeredgewidth=0.4,
            label=_legend_name(chart.legend_text(name)),
            zorder=2.5,
        )
    _scale(ax.yaxis, chart.y.log)
    if not chart.numeric:
        _name_columns(ax, chart.places)
        return _HEIGHT
    _scale(ax.xaxis, chart.x.log)
    if chart.ticks:
        ax.set_xticks(chart.ticks)
        ax.xaxis.minorticks_off()
    return _HEIGHT


def _bars(ax: Any, chart: Chart) -> float:
    at, width, height = _rows(ax, chart)
    for name, look in chart.looks.items():
        places, starts, lengths, _, errors = zip(*chart.bars(name), strict=True)
        ax.barh(
            [at[name, x] for x in places],
            lengths,
            width,
            left=starts,
            label=_legend_name(name),
            zorder=2,
            xerr=errors if any(errors) else None,
            error_kw={"elinewidth": 0.7, "capsize": 2.0, "capthick": 0.7},
            **_fill(look),
        )
    _scale(ax.xaxis, chart.y.log)
    return height


def _boxes(ax: Any, chart: Chart) -> float:
    at, width, height = _rows(ax, chart)
    line = {"color": "black", "linewidth": 0.7}
    for name, look in chart.looks.items():
        ax.boxplot(
            list(chart.series[name].values()),
            positions=[at[name, x] for x in chart.series[name]],
            widths=0.85 * width,
            orientation="horizontal",
            patch_artist=True,
            manage_ticks=False,
            label=_legend_name(name),
            boxprops=_fill(look) | {"linewidth": 0.7},
            whiskerprops=line,
            capprops=line,
            medianprops={"color": "black", "linewidth": 1.2},
            flierprops={"marker": "o", "markersize": 1.8, "markeredgewidth": 0.0, "markerfacecolor": _SMALL},
        )
    _scale(ax.xaxis, chart.y.log)
    return height


def _rows(ax: Any, chart: Chart) -> tuple[dict[tuple[Any, Any], float], float, float]:
    """Name the places, from top to bottom; return the position and width of each bar or box, and the inches of all."""
    names = list(chart.series)
    if chart.has_groups:
        rows = chart.places
    else:
        rows = names
    _name_rows(ax, rows)
    # Columns or boxes side by side in a group.
    if chart.has_groups and chart.kind in ("bar", "box"):
        n = len(names)
    else:
        n = 1
    width = min(_WIDEST, _GROUP / n)
    at = {
        (name, x): (k if chart.has_groups else i) + (i % n - (n - 1) / 2) * width
        for i, name in enumerate(names)
        for k, x in enumerate(chart.places)
    }
    return at, width, _ROW * len(rows) * max(1.0, 0.45 * n)


def _fill(look: Look) -> dict[str, Any]:
    return {"facecolor": look.colour, "hatch": HATCHES[look.shape], "edgecolor": "black", "linewidth": 0.5}


def _map(ax: Any, chart: Chart) -> float:
    from matplotlib.colors import LogNorm, Normalize, to_hex

    means = np.array([[chart.means.get((row, x), np.nan) for x in chart.places] for row in chart.rows])
    if chart.reference is None:
        norm = Normalize
    else:
        norm = LogNorm
    ax.set_facecolor(_EMPTY)
    ax.grid(visible=False)
    edges = [np.arange(n + 1) - 0.5 for n in reversed(means.shape)]
    mesh = ax.pcolormesh(
        *edges,
        np.ma.masked_invalid(means),
        norm=norm(chart.colours[0], chart.colours[-1]),
        cmap=_SEQUENTIAL if chart.reference is None else _DIVERGING,
        edgecolors="white",
        linewidth=1,
    )
    size = min(_TICK, 45.0 * chart.columns / means.shape[1])  # of texts that fit their cells
    for (i, j), value in np.ndenumerate(means):
        if np.isfinite(value):
            text = f"{value:.3g}"
            colour = ink(to_hex(mesh.to_rgba(value)))
        else:
            text = "-"
            colour = "black"
        ax.text(j, i, text, color=colour, fontsize=size, ha="center", va="center")
    bar = ax.figure.colorbar(mesh, ax=ax, pad=0.02, label=chart.label)
    bar.outline.set_visible(False)
    bar.set_ticks(chart.colours, labels=[f"{value:.3g}" for value in chart.colours], minor=False)
    bar.ax.minorticks_off()
    _name_rows(ax, chart.rows)
    _name_columns(ax, chart.places)
    ax.spines[:].set_visible(False)
    return max(4, len(means)) * _ROW


def _scatter(ax: Any, chart: Chart) -> float:
    ends = np.array(chart.diagonal)
    ax.fill_between(
        ends, (1 - _WITHIN) * ends, (1 + _WITHIN) * ends, color="#EFEFEF", linewidth=0, zorder=0.5, label="within 10 %"
    )
    ax.plot(ends, ends, linestyle="--", label="predicted = measured", **_LEVEL)
    for name, look in chart.looks.items():
        x, y, start, end = np.transpose(list(chart.series[name].values()))
        hollow = [place in chart.hollow for place in chart.series[name]]
        ax.hlines(y, start, end, color=look.colour, linewidth=1.0, zorder=2.5)
        ax.scatter(
            x,
            y,
            25,
            marker=MARKERS[look.shape],
            zorder=3,
            linewidth=0.8,
            label=_legend_name(name),
            facecolors=["none" if is_hollow else look.colour for is_hollow in hollow],
            edgecolors=[look.colour if is_hollow else "black" for is_hollow in hollow],
        )
    ax.set(xlim=ends, ylim=ends, aspect="equal")
    return 0.8 * _INCHES[chart.columns - 1]


_DRAWN: Final[Mapping[str, Callable[[Any, Chart], float]]] = {
    "line": _lines,
    "bar": _bars,
    "box": _boxes,
    "map": _map,
    "tornado": _bars,
    "stack": _bars,
    "scatter": _scatter,
}
"""What draws each kind into axes, and returns how many inches high these are to be."""


def _scale(axis: Any, log: bool | None) -> None:
    """Make an axis linear or logarithmic, with plain numbers."""
    from matplotlib.ticker import LogLocator, NullFormatter

    if log:
        axis.axes.set(**{f"{axis.axis_name}scale": "log"})
        low, high = axis.get_view_interval()
        narrow = low > 0 and np.log10(high / low) < 1.5  # a wider range has enough powers of 10
        axis.set_major_locator(LogLocator(10, (1.0, 2.0, 5.0) if narrow else (1.0,), numticks=_MOST_TICKS))
        axis.set_minor_formatter(NullFormatter())
    else:
        axis.axes.locator_params(axis.axis_name, nbins=_MOST_TICKS)
    axis.set_major_formatter(lambda value, _: number(value))


def _text(value: Any) -> str:
    if is_number(value):
        return number(float(value))
    return printable(str(value))


def _legend_name(name: Any) -> str:
    return legend_name(break_name(str(name), _NAME))


def legend_name(text: str) -> str:
    """Return a name for a legend of matplotlib, which leaves out names that begin with an underscore."""
    if text.startswith("_"):
        return f" {text}"
    return text


def _name_rows(ax: Any, names: Sequence[Any]) -> None:
    """Write names beside the axes, from the top at 0, 1, ..."""
    ax.set_yticks(range(len(names)), [break_name(_text(name), _NAME) for name in names])
    ax.tick_params(length=0)
    ax.set_ylim(len(names) - 0.5, -0.5)


def _name_columns(ax: Any, names: Sequence[Any]) -> None:
    """Write names below the axes, at 0, 1, ...: level if there is room, else slanted."""
    texts = [_text(name) for name in names]
    room = int(0.7 * ax.figure.get_figwidth() / len(texts) / (_CHARACTER * _TICK)) - 1
    level = max(len(part.strip()) for text in texts for part in BREAKS.split(text)) <= room
    if level:
        look = {}
    else:
        look = {"rotation": 40, "ha": "right", "va": "top", "rotation_mode": "anchor"}
    ax.set_xticks(range(len(texts)), [break_name(text, room if level else _NAME) for text in texts], **look)
    ax.set_xlim(-0.5, len(texts) - 0.5)


def _wrap(text: str, width: float, size: float) -> str:
    """Return a text in lines of at most some inches."""
    return "\n".join(textwrap.fill(line, int(width / (_CHARACTER * size))) for line in text.split("\n"))
