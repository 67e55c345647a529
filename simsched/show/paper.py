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
from simsched.base.signals import interrupt_later
from simsched.model.graph.columns import Floats
from simsched.show.chart import MOST_MARKS, PARTS, Chart, broken, number
from simsched.show.looks import Look, luminance

_TITLE, _TICK, _NOTE = 9.0, 7.0, 6.0  # heights of characters in points, the first two those of the style
_STYLE: Final = Path(__file__).with_name("paper.mplstyle")
_METADATA: Final = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None},
                    "pdf": {"CreationDate": None, "Creator": None, "Producer": None}}  # fmt: skip
# of each shape of `simsched.show.looks`
HATCHES: Final = ("", "/////", ".....", "\\\\\\\\\\", "xxxxx", "-----", "|||||", "+++++")
MARKERS: Final = "osD^vP<>"
DASHES: Final[tuple[Any, ...]] = ("solid", (0, (5, 1.5)), (0, (1, 1.2)), (0, (5, 1.2, 1, 1.2)), (0, (8, 1.5)),
                                  (0, (3, 1, 1, 1, 1, 1)), (0, (2, 2)), (0, (8, 2, 2, 2)))  # fmt: skip
_INCHES: Final = (3.5, 7.2)  # of one column of a paper, and of two
_HEIGHT, _TORNADO, _CELL, _BAR = 2.3, 5.6, 0.27, 0.24  # inches without legend and note; of a row of a map, of a bar
_SLANT: Final = 0.6  # inches
_POINT, _CHARACTER, _LINE = 1 / 72, 0.6, 1.3  # inches; width of a character, and height of a line, by its height
_MOST_IN_ONE, _MOST_TICKS = 14, 6  # bars or boxes in a column of a paper; numbers at an axis
_GROUP, _WIDEST = 0.84, 0.6  # width of a group, and of a bar or box; groups are 1 apart
_ENTRY, _SLANTED, _NAME = 26, 22, 44  # characters on a line of a legend, of a slanted name, of one beside an axis
_MARK: Final[Any] = {"markersize": 3.8, "markeredgecolor": "black", "markeredgewidth": 0.4}
_LEVEL, _SMALL, _POINTS, _EMPTY = "#7F7F7F", "#4D4D4D", "#4D4D4D", "#D9D9D9"
# both can be told apart by all: the one runs from violet over white to orange, the other from dark to light
_DIVERGING, _SEQUENTIAL, _LEAST_SPAN, _DARK = "PuOr_r", "cividis", 1.05, 0.18
_WITHIN: Final = 0.1  # the band around the diagonal


def require_format(*paths: str | os.PathLike[str] | None) -> None:
    """Refuse paths whose suffix, in either case, is no format of pictures; None is no path.

    Raises
    ------
    FileError
        It names the path and the suffixes that are known.
    """
    for path in paths:
        if path is not None and _form(path) not in _METADATA:
            known = ", ".join(f".{each}" for each in _METADATA)
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
def style(grid: str = "y") -> Iterator[None]:
    """Draw and save with the settings of every picture; lines of the grid cross an axis."""
    with interrupt_later():
        import matplotlib

    settings = matplotlib.rc_params_from_file(_STYLE, use_default_template=False)
    with matplotlib.rc_context({**settings, "axes.grid.axis": grid}):
        yield


def encoded(ax: Any, form: str) -> bytes:
    """Return the whole picture that some axes belong to, as a file of a format; call it within `style`."""
    buffer = BytesIO()
    ax.figure.canvas.figure.savefig(buffer, format=form, metadata=_METADATA[form])
    return buffer.getvalue()


def save_figure(ax: Any, path: str | os.PathLike[str]) -> None:
    """Write such a picture in the format of the suffix.

    Raises
    ------
    FileError
        If the file cannot be written.
    """
    write_file(path, encoded(ax, _form(path)))


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
    with style("x" if chart.kind in ("tornado", "stack") else "y"):
        ax = _axes(chart)
        handles = _DRAWN[chart.kind](ax, chart)
        if chart.reference is not None and chart.kind in ("line", "bar", "box"):
            ax.axhline(chart.reference, color=_LEVEL, linewidth=0.7, zorder=0.9)
        for at in chart.upright:
            ax.axvline(at, color=_LEVEL, linewidth=0.7, linestyle=":", zorder=0.9)
        _finish(ax, chart, handles)
        if path is not None:
            save_figure(ax, path)
    return ax


def _axes(chart: Chart) -> Any:
    n = len(chart.series) * (len(chart.places) if chart.kind != "map" else 1)
    many = chart.kind in ("bar", "box") and n > _MOST_IN_ONE
    width, height = _INCHES[(chart.columns or (2 if many else 1)) - 1], _HEIGHT
    if chart.kind == "map":
        height = max(1.9, 0.75 + _CELL * n)
    elif chart.kind in ("tornado", "stack"):
        width, height = _TORNADO, 0.75 + _BAR * len(chart.places)
    elif chart.kind == "scatter":
        width, height = 4.4, 4.0
    return new_figure(width, height).add_subplot()


def _lines(ax: Any, chart: Chart) -> list[Any]:
    handles = []
    places = range(len(chart.places)) if not chart.numeric else chart.places
    at = dict(zip(chart.places, places, strict=True))
    for name, look in chart.looks.items():
        x, mean, low, high = zip(*chart.spread(name), strict=True)
        xs = [at[each] for each in x]
        if low != high:
            opacity = max(0.07, 0.22 - 0.012 * len(chart.series))
            ax.fill_between(xs, low, high, color=look.colour, alpha=opacity, linewidth=0, zorder=1.8)
        handles += ax.plot(xs, mean, color=look.colour, linestyle=DASHES[look.shape], linewidth=1.3,
                           marker=MARKERS[look.shape] if len(x) <= MOST_MARKS else "", label=chart.legend(name),
                           zorder=2.5, **_MARK)  # fmt: skip
    _scale(ax.yaxis, chart.y.log)
    if chart.numeric:
        _scale(ax.xaxis, chart.x.log)
        _ticks_at(ax, np.array(chart.places, np.float64))
    return handles


def _bars(ax: Any, chart: Chart) -> list[Any]:
    handles = []
    at, width = _columns(chart)
    for name, look in chart.looks.items():
        rows = chart.spread(name)
        x, means = [at[name, place] for place, *_ in rows], [mean for _, mean, _, _ in rows]
        handles.append(ax.bar(x, means, width, label=str(name), zorder=2, **_fill(look)))
        errors = [(mean - low, high - mean) for _, mean, low, high in rows]
        if np.any(errors):
            ax.errorbar(x, means, np.transpose(errors), fmt="none", ecolor="black", elinewidth=0.7,
                        capsize=min(2.0, 12 * width), capthick=0.7, zorder=3)  # fmt: skip
    _scale(ax.yaxis, chart.y.log)
    return handles if chart.grouped else []


def _boxes(ax: Any, chart: Chart) -> list[Any]:
    at, width = _columns(chart)
    looks, line = chart.looks, {"color": "black", "linewidth": 0.7}
    cells = [(name, at[name, x], row) for name in looks for x, row in chart.series[name].items()]
    drawn = ax.boxplot(
        [row for *_, row in cells], positions=[x for _, x, _ in cells], widths=0.85 * width if chart.grouped else width,
        patch_artist=True, manage_ticks=False, whiskerprops=line, capprops=line,
        medianprops={"color": "black", "linewidth": 1.2},
        flierprops={"marker": "o", "markersize": 1.8, "markeredgewidth": 0.0, "markerfacecolor": _POINTS},
    )  # fmt: skip
    handles: dict[str, Any] = {}
    for box, (name, *_) in zip(drawn["boxes"], cells, strict=True):
        handles.setdefault(name, box).set(label=str(name))
        box.set(**_fill(looks[name]) | {"linewidth": 0.7})
    ax.ticklabel_format(axis="y", useOffset=False)
    _scale(ax.yaxis, chart.y.log)
    return list(handles.values()) if chart.grouped else []


def _columns(chart: Chart) -> tuple[dict[tuple[Any, Any], float], float]:
    """Return where each bar or box stands, by name and place, and how wide it is."""
    names, n = list(chart.series), len(chart.series)
    if not chart.grouped:
        return {(name, None): float(i) for i, name in enumerate(names)}, _WIDEST
    width = min(_WIDEST, _GROUP / n)
    return {(name, x): k + (i - (n - 1) / 2) * width
            for i, name in enumerate(names) for k, x in enumerate(chart.places)}, width  # fmt: skip


def _fill(look: Look) -> dict[str, Any]:
    return {"facecolor": look.colour, "hatch": HATCHES[look.shape], "edgecolor": "black", "linewidth": 0.5}


def _map(ax: Any, chart: Chart) -> list[Any]:
    import matplotlib
    from matplotlib.colors import LogNorm, Normalize, to_hex

    rows, centre = chart.rows, chart.reference
    means = np.array([[chart.means.get((row, x), np.nan) for x in chart.places] for row in rows])
    low, high = chart.reach
    if centre is None:
        colours, norm = matplotlib.colormaps[_SEQUENTIAL], Normalize(low, high if high > low else low + 1.0)
    else:
        span = max(high / centre, centre / low, _LEAST_SPAN)
        colours, norm = matplotlib.colormaps[_DIVERGING], LogNorm(centre / span, centre * span)
        low, high = min(low, centre / _LEAST_SPAN), max(high, centre * _LEAST_SPAN)
    ax.set_facecolor(_EMPTY)
    ax.grid(visible=False)
    edges = [np.arange(n + 1) - 0.5 for n in reversed(means.shape)]
    mesh = ax.pcolormesh(*edges, np.ma.masked_invalid(means), cmap=colours, norm=norm, edgecolors="white", linewidth=1)
    texts = [[_cell(value) for value in row] for row in means]
    width = float(ax.figure.get_size_inches()[0]) / _POINT * _WIDEST / means.shape[1]  # points
    size = min(_TICK, width / (_CHARACTER * max(len(text) for row in texts for text in row)))
    for (i, j), value in np.ndenumerate(means):
        dark = np.isfinite(value) and luminance(to_hex(colours(norm(value)))) < _DARK
        ax.text(j, i, texts[i][j], color="white" if dark else "black", fontsize=size, ha="center", va="center")
    bar = ax.figure.colorbar(mesh, ax=ax, pad=0.02, aspect=max(15, 4 * len(means)))
    bar.set_label(chart.label)
    bar.outline.set_visible(False)
    bar.ax.set_ylim(low if centre is not None else None, high if centre is not None else None)
    ticks = np.linspace(low, high, 5) if centre is None else np.geomspace(low, high, 5)
    bar.set_ticks(ticks, labels=[f"{tick:.3g}" for tick in ticks], minor=False)
    bar.ax.minorticks_off()
    ax.set_yticks(range(len(rows)), [broken(_text(row), 18) for row in rows])
    ax.tick_params(length=0)
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.spines[:].set_visible(False)
    return []


def _cell(value: float) -> str:
    if not np.isfinite(value):
        return "-"
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}" if abs(value) < 100 else f"{value:.4g}"


def _text(value: Any) -> str:
    return number(float(value)) if isinstance(value, int | float | np.number) else str(value)


def _lying(ax: Any, chart: Chart) -> list[Any]:
    handles = []
    for name, look in chart.looks.items():
        starts, lengths = zip(*chart.segments(name), strict=True)
        handles.append(ax.barh(range(len(starts)), lengths, 0.72, left=starts, label=str(name), **_fill(look)))
    if chart.reference is not None:
        ax.axvline(chart.reference, color="black", linewidth=0.8)
    ax.set_yticks(range(len(chart.places)), [broken(str(x), _NAME) for x in chart.places])
    ax.tick_params(axis="y", length=0)
    ax.set_ylim(len(chart.places) - 0.5, -0.5)
    ax.margins(x=0.06)
    _scale(ax.xaxis, False)
    return handles


def _scatter(ax: Any, chart: Chart) -> list[Any]:
    low, high = chart.diagonal
    ends = np.array([low, high])
    band = ax.fill_between(ends, (1 - _WITHIN) * ends, (1 + _WITHIN) * ends, color="#EFEFEF", linewidth=0,
                           label="within 10 %")  # fmt: skip
    handles = [band, *ax.plot(ends, ends, color=_LEVEL, linewidth=0.8, linestyle="--", label="predicted = measured")]
    for name, look in chart.looks.items():
        for place, (x, y, start, end) in chart.series[name].items():
            ax.plot([start, end], [y, y], color=look.colour, linewidth=1.0, zorder=2.5, solid_capstyle="butt")
            filled = place not in chart.hollow
            edge = {"color": look.colour, "markeredgecolor": "black", "markeredgewidth": 0.5} if filled else {
                "color": "none", "markeredgecolor": look.colour, "markeredgewidth": 1.0}  # fmt: skip
            (mark,) = ax.plot(x, y, MARKERS[look.shape], markersize=5, zorder=3, label=str(name), **edge)
        handles.append(mark)
    ax.set(xlim=(low, high), ylim=(low, high), aspect="equal")
    return handles


_DRAWN: Final[Mapping[str, Callable[[Any, Chart], list[Any]]]] = {
    "line": _lines, "bar": _bars, "box": _boxes, "map": _map, "tornado": _lying, "stack": _lying,
    "scatter": _scatter,
}  # fmt: skip


def _scale(axis: Any, log: bool | None) -> None:
    """Make an axis linear or logarithmic, with plain numbers; what is drawn by then decides on the ticks."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    if log:
        axis.axes.set(**{f"{axis.axis_name}scale": "log"})
        low, high = axis.get_view_interval()
        narrow = low > 0 and np.log10(high / low) < 1.5  # with more there are powers of 10 enough
        axis.set_major_locator(LogLocator(10, (1.0, 2.0, 5.0) if narrow else (1.0,), numticks=_MOST_TICKS))
        axis.set_minor_formatter(NullFormatter())
    else:
        axis.set_major_locator(MaxNLocator(nbins=_MOST_TICKS, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))


def _ticks_at(ax: Any, places: Floats) -> None:
    """Put the ticks of the x axis where the data are, if there is room for the numbers, else where matplotlib would."""
    from matplotlib.ticker import FixedLocator, NullLocator

    ax.figure.draw_without_rendering()
    at = ax.transData.transform(np.column_stack([places, np.full(len(places), np.mean(ax.get_ylim()))]))[:, 0]
    widths = np.array([(len(number(x)) + 1) * _CHARACTER * _TICK * _POINT * ax.figure.dpi for x in places])
    if (np.diff(at) >= (widths[1:] + widths[:-1]) / 2).all():
        ax.xaxis.set_major_locator(FixedLocator(places.tolist()))
        ax.xaxis.set_minor_locator(NullLocator())


def _finish(ax: Any, chart: Chart, handles: Sequence[Any]) -> None:
    """Write titles, names, note and legend, and make room for them."""
    figure = ax.figure
    ax.set(xlabel=chart.x.label, ylabel=chart.y.label)
    width, height = figure.get_size_inches()
    rows = _legend(figure, handles, width) if handles else 0
    lines = [rows * 1.12 * _TICK, len(_wrapped(chart.title, width, _TITLE)) * _TITLE,
             len(_wrapped(chart.note, width, _NOTE)) * _NOTE]  # fmt: skip
    figure.set_size_inches(width, height + _LINE * _POINT * sum(lines))
    figure.draw_without_rendering()  # lays it out: only then the room for names is known
    if chart.kind in ("map", "bar", "box") or (chart.kind == "line" and not chart.numeric):
        air = 0.0 if chart.kind == "map" else 0.05
        names = [_text(x) for x in (chart.places if chart.grouped else chart.series)]
        if _write_names(ax, names):  # what slanted ones take is added
            figure.set_size_inches(figure.get_figwidth(), figure.get_figheight() + _SLANT)
        ax.set_xlim(-0.5 - air, len(names) - 0.5 + air)
    ax.set_title("\n".join(_wrapped(chart.title, _inches(ax), _TITLE)))
    note = _wrapped(chart.note, _inches(ax), _NOTE)
    if note:
        below = {"xycoords": ("axes fraction", ax.xaxis.label), "textcoords": "offset points"}
        ax.annotate("\n".join(note), (0.0, 0.0), (0.0, -3.0), fontsize=_NOTE, color=_SMALL, va="top", ha="left",
                            **below)  # fmt: skip


def _legend(figure: Any, handles: Sequence[Any], width: float) -> int:
    """Put a legend below all axes; return its lines."""
    for handle in handles:
        handle.set_label(broken(handle.get_label(), _ENTRY))
    texts = [handle.get_label().split("\n") for handle in handles]
    entry = 36.0 + max(len(line) for lines in texts for line in lines) * _CHARACTER * _TICK  # points
    columns = max(1, min(len(handles), int(width / _POINT / entry)))
    columns = -(-len(handles) // -(-len(handles) // columns))  # as even as so many rows allow
    figure.legend(handles=handles, loc="outside lower center", ncols=columns)
    rows = -(-len(handles) // columns)
    return max(sum(map(len, texts[i : i + rows])) for i in range(0, len(texts), rows))


def _write_names(ax: Any, names: Sequence[str]) -> bool:
    """Write names below the axes, at 0, 1, ...: level if there is room, else slanted; return whether they are that."""
    room = int(_inches(ax) / len(names) / (_CHARACTER * _TICK * _POINT)) - 1  # characters
    level = max(len(part.strip()) for name in names for part in PARTS.findall(name)) <= room
    look = {} if level else {"rotation": 40, "ha": "right", "va": "top", "rotation_mode": "anchor"}
    ax.set_xticks(range(len(names)), [broken(name, room if level else _SLANTED) for name in names], **look)
    ax.tick_params(axis="x", length=0)
    return not level


def _inches(ax: Any) -> float:
    return float(ax.get_window_extent().width / ax.figure.dpi)


def _wrapped(text: str, width: float, size: float) -> list[str]:
    """Return the lines of a text, none longer than some inches."""
    room = max(20, int(width / (_CHARACTER * size * _POINT)))
    return [line for part in text.split("\n") for line in textwrap.wrap(part, room)]
