"""Charts as data: values and looks, drawn by `paper` with matplotlib and by `report.figures` in pages."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import takewhile
from typing import Any, Final, NamedTuple

import numpy as np

from simsched.base.errors import StudyError
from simsched.base.numeric import is_number
from simsched.base.text import printable, printable_lines
from simsched.base.units import time_unit
from simsched.model import Floats, Ints, OpGraph

# where the largest place, or value, is more times the least its axis is logarithmic
WIDE = 8.0
WIDEST = 30.0
MOST_MARKS: Final = 24
"""Points of a line up to which each has a mark."""
BREAKS: Final = re.compile(r"(?<=[:./_\-\s])")
"""Where names are broken."""
# between ticks, as a part of an axis; of colours to either side
_LEAST_ROOM = 0.14
_LEAST_FACTOR = 1.05
# of a law: number of sizes, and the largest over the least
_LEAST_SIZES = 3
_LEAST_SPAN = 4.0
# a flatter or less certain exponent is not reported
_LEAST_EXPONENT = 0.2
_MOST_ERROR = 0.15
# Okabe and Ito's palette, distinct for the colour-blind and in grey; black is left to text.
PALETTE: Final = ("#56B4E9", "#E69F00", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7")
GREY: Final = "#999999"  # kinds after the palette
# of schedulers: the same with grey for yellow, because a yellow line is not seen on white
COLOURS: Final = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#737373")
_TINTS: Final = (0.0, 0.6, 0.25, 0.8)  # shares of white
# the shape of each scheduler: of lists, stages, baselines, captured graphs and searches; and, by their order, its
# colour: the one that no earlier one has, as long as there is one
_SHAPES: Final = {
    "lios": 0,
    "hios-lp": 1,
    "heft": 0,
    "ios": 1,
    "nimble": 3,
    "greedy": 1,
    "sequential": 2,
    "search": 4,
    "etf": 0,
    "opara": 3,
    "inter-lp": 1,
    "peft": 0,
    "autograph": 4,
    "round-robin": 2,
    "hios-mr": 1,
    "inter-mr": 1,
    "lios-rand": 0,
    "lios-rand1": 0,
    "lios-rand2": 0,
}
_OTHERS: Final = 5
SHAPES: Final = 8
"""How many kinds of lines, markers and hatches there are."""


class Look(NamedTuple):
    """Look of a scheduler: its colour, and its kind of line, marker and hatch."""

    colour: str
    shape: int


@dataclass(frozen=True, slots=True)
class Axis:
    """Title of an axis, and whether it is logarithmic; None where the values decide."""

    label: str = ""
    log: bool | None = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "label", printable_lines(self.label))


def growth(times: Mapping[Any, Floats]) -> float | None:
    """Return the exponent of the power law of least squares of positive times over sizes; None where it is not known.

    That takes three sizes or more, over a factor of 4 or more, and a law that is neither flat nor badly fitted.
    """
    if len(times) < _LEAST_SIZES or max(times) < _LEAST_SPAN * min(times):
        return None
    sizes = np.repeat(np.array(list(times), np.float64), [len(row) for row in times.values()])
    (exponent, _), covariance = np.polyfit(np.log(sizes), np.log(np.concatenate(list(times.values()))), 1, cov=True)
    is_known = exponent >= _LEAST_EXPONENT and covariance[0, 0] <= _MOST_ERROR**2
    return float(exponent) if is_known else None


@dataclass(frozen=True)
class Chart:
    """A chart, before it is drawn.

    Parameters
    ----------
    kind
        ``"line"``, ``"bar"``, ``"box"``, ``"map"``, ``"tornado"``, ``"stack"`` or ``"scatter"``. A line goes through
        the means of each name, in a band of a sample standard deviation (n - 1). Bars are means, with such a deviation;
        boxes quartiles; in groups by place, or one by one where the only place is None. A map has a row of cells for
        each name. A tornado has a bar per place, from `reference` to the values of two names. A stack has a bar per
        place, of the values of all names one after the other. A scatter has points (x, y, from, to), with a bar along x
        from the one to the other.
    series
        Values by name and place.
    x, y
        Axes of the places and of the values; a map's `y` is the axis of the rows, a scatter's the axis of both values.
    title, note
        Above and below.
    reference
        A line across all values: 1 of speedups, say. Where the colours of a map turn; where a tornado begins. None: no
        line.
    upright
        Positions of upright lines.
    geometric
        Whether means and deviations are of logarithms, and the legend shows the growth of a line.
    label, limits
        Meaning of a map's colours, and values that they reach at least.
    columns
        Width in columns of a paper, 1 or 2.
    hollow
        Points of a scatter, by place, that are drawn hollow.

    Raises
    ------
    StudyError
        If there is nothing to draw, a value on a logarithmic axis is not positive, or places that must be numbers are
        not.
    """

    kind: str
    series: Mapping[Any, Mapping[Any, Any]]
    x: Axis = Axis()
    y: Axis = Axis()
    title: str = ""
    note: str = ""
    reference: float | None = None
    upright: tuple[float, ...] = ()
    geometric: bool = False
    label: str = ""
    limits: tuple[float, float] | None = None
    columns: int = 1
    hollow: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        arrays = {
            name: {x: np.atleast_1d(np.asarray(row, np.float64)) for x, row in cells.items()}
            for name, cells in self.series.items()
        }
        if not any(arrays.values()):
            raise StudyError("there is nothing to draw: no name has any values")
        for text in ("title", "note", "label"):
            object.__setattr__(self, text, printable_lines(getattr(self, text)))
        object.__setattr__(self, "series", {name: cells for name, cells in arrays.items() if cells})
        if self.geometric and not self.numeric:
            raise StudyError("times are drawn over sizes, which must be numbers: try a bar plot")
        values = [value for cells in self.series.values() for row in cells.values() for value in (row.min(), row.max())]
        for name, among, wide in (("x", self.places if self.numeric else (), WIDE), ("y", values, WIDEST)):
            axis: Axis = getattr(self, name)
            if axis.log is None:
                log = self.kind == "line" and len(among) > 0 and 0.0 < wide * min(among) < max(among)
                object.__setattr__(self, name, replace(axis, log=log))
        if self.x.log and self.numeric and min(self.places) <= 0:
            raise StudyError(f"a logarithmic axis has no place for {min(self.places):g} of the x axis")
        for name, cells in self.series.items() if self.y.log else ():
            for x, row in cells.items():
                if row.min() <= 0:
                    text = f"a logarithmic axis has no place for {row.min():g} of {name!r} at {x!r}"
                    raise StudyError(f"{text}: draw it on a linear one")

    @cached_property
    def places(self) -> list[Any]:
        """All places: numbers from the smallest to the largest, others in the order of their first use."""
        return distinct_places(x for cells in self.series.values() for x in cells)

    @property
    def numeric(self) -> bool:
        """Whether places are numbers."""
        return all(map(is_number, self.places))

    @property
    def has_groups(self) -> bool:
        """Whether there are several places, so that a legend distinguishes the names."""
        return self.places != [None]

    @property
    def legend(self) -> bool:
        """Whether a legend has the names."""
        return self.kind != "map" and self.has_groups

    @property
    def lying(self) -> bool:
        """Whether places, or names, are listed from top to bottom."""
        return self.kind in ("bar", "box", "tornado", "stack")

    @property
    def ticks(self) -> list[float]:
        """Places that are numbers far enough apart for labels at an axis, else none."""
        if not self.numeric or len(self.places) < 2:
            return []
        if self.x.log:
            at = np.log(self.places)
        else:
            at = np.array(self.places)
        if np.diff(at).min() > _LEAST_ROOM * np.ptp(at):
            return self.places
        return []

    @cached_property
    def means(self) -> dict[tuple[Any, Any], float]:
        """Mean by name and place."""
        return {(name, x): float(row.mean()) for name, cells in self.series.items() for x, row in cells.items()}

    @property
    def looks(self) -> dict[Any, Look]:
        """Look of each name; names of tornadoes and stacks are no schedulers."""
        return {
            name: Look(look.colour, 0) if self.kind in ("tornado", "stack") else look
            for name, look in looks_of(self.series).items()
        }

    def bars(self, name: Any) -> list[tuple[Any, float, float, float, float]]:
        """Return of each bar of a name its place, start, length and mean, and the deviation from that."""
        if self.kind == "stack":
            before = list(takewhile(name.__ne__, self.series))
        else:
            before = []
        if self.kind == "tornado":
            base = self.reference or 0.0
        else:
            base = 0.0
        return [
            (x, base + sum(self.means.get((other, x), 0.0) for other in before), mean - base, mean, high - mean)
            for x, mean, _, high in self.spread(name)
        ]

    @property
    def rows(self) -> list[Any]:
        """Rows of a map from the top: numbers grow upwards, others are in the order of their first use."""
        rows = distinct_places(self.series)
        if all(map(is_number, rows)):
            return rows[::-1]
        return rows

    @property
    def colours(self) -> list[float]:
        """Values in the legend of a map's colours, evenly spaced: from the least to the most, or by factors."""
        shown_values = (*self.means.values(), *(self.limits or ()))
        low = min(shown_values)
        high = max(shown_values)
        if self.reference is None:
            return list(np.linspace(low, high if high > low else low + 1.0, 5))
        span = max(high / self.reference, self.reference / low, _LEAST_FACTOR)  # half is as far as twice
        return list(self.reference * np.geomspace(1 / span, span, 5))

    @property
    def diagonal(self) -> tuple[float, float]:
        """Ends of both axes of a scatter."""
        coordinates = [
            value for points in self.series.values() for row in points.values() for value in row[:2].tolist()
        ]
        room = 0.06 * (max(coordinates) - min(coordinates)) or 0.5 * max(coordinates) or 1.0
        return max(0.0, min(coordinates) - room), max(coordinates) + room

    def spread(self, name: Any) -> list[tuple[Any, float, float, float]]:
        """Return by place the mean, and the ends of a sample standard deviation below and above it, in order.

        On a logarithmic axis, which has no place for 0, a lower end that would reach 0 is the least value.
        """
        rows = []
        for x in self.places:
            if (row := self.series[name].get(x)) is not None:
                if self.geometric:
                    sample = np.log(row)
                else:
                    sample = row
                mean = float(sample.mean())
                if len(sample) > 1:
                    std = float(sample.std(ddof=1))
                else:
                    std = 0.0
                ends = (mean, mean - std, mean + std)
                if self.geometric:
                    mean, low, high = (float(value) for value in np.exp(ends))
                else:
                    mean, low, high = ends
                rows.append((x, mean, float(row.min()) if self.y.log and low <= 0 else low, high))
        return rows

    def legend_text(self, name: Any) -> str:
        """Return the legend's text for a name; in a geometric chart with its growth, where it is known."""
        if self.geometric:
            power = growth(self.series[name])
        else:
            power = None
        if power is None:
            return str(name)
        return f"{name} O(n^{power:.2f})"


def in_time_unit(chart: Chart) -> Chart:
    """Return a chart whose values are times in us with the times in the unit that reads best, named on their axis."""
    scale, unit = time_unit(max(float(row.max()) for cells in chart.series.values() for row in cells.values()))
    series = {name: {x: row / scale for x, row in cells.items()} for name, cells in chart.series.items()}
    changes: dict[str, Any] = {"label": f"{chart.label} ({unit})"}
    if chart.kind != "map":
        if chart.kind == "scatter":
            axes = "xy"
        else:
            axes = "y"
        changes = {
            field: replace(getattr(chart, field), label=f"{getattr(chart, field).label} ({unit})") for field in axes
        }
    return replace(
        chart, series=series, reference=None if chart.reference is None else chart.reference / scale, **changes
    )


def distinct_places(places: Iterable[Any]) -> list[Any]:
    """Return places once each: numbers from the smallest to the largest, others in the order of their first use."""
    distinct_ = list(dict.fromkeys(places))
    if all(map(is_number, distinct_)):
        return sorted(distinct_)
    return distinct_


def by_name(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values by name and place, of values by name alone: the place is None."""
    return {name: {None: value} for name, value in values.items()}


def break_name(name: str, width: int) -> str:
    """Return a printable name on as many lines as it needs, broken after punctuation where possible.

    >>> break_name("my_package.my_module:round_robin", 12).split()
    ['my_package.', 'my_module:', 'round_robin']
    """
    lines = re.findall(rf".{{1,{width}}}(?:\s|{BREAKS.pattern}|$)|.{{1,{width}}}", printable(name))
    return "\n".join(map(str.strip, lines))


def number(value: float) -> str:
    """Return a number of an axis as text.

    >>> number(2000.0), number(0.25), number(1e-5), number(10000.0)
    ('2000', '0.25', '0.00001', '10,000')
    """
    if abs(value) >= 1e4:
        if abs(value) < 1e6:
            return f"{value:,.6g}"
        return f"{value:.4g}".replace("e+0", "e")
    if abs(value) >= 1e-6:
        return np.format_float_positional(float(f"{value:.6g}"), trim="-")
    return f"{value:.6g}"


def looks_of(names: Iterable[str]) -> dict[str, Look]:
    """Return the look of each scheduler of a figure, or of any other names.

    Parameters
    ----------
    names
        Names of `SCHEDULERS`, also with options after a blank such as ``"hios-lp w=4"``, are of that scheduler's kind:
        lists, stages, baselines, captured graphs or searches. All others are of one kind.

    Notes
    -----
    Kinds differ by shape. No colour is there twice in a figure of up to seven names, and no look in one of up to 56.
    Names choose in the order of `_SHAPES`, then alphabetically: each gets its usual colour if that is free, else the
    one that the fewest have. So a scheduler looks the same in most figures, and the same names look alike in any order.

    >>> looks_of(["sequential", "lios"])
    {'sequential': Look(colour='#737373', shape=2), 'lios': Look(colour='#0072B2', shape=0)}
    """
    names_ = list(dict.fromkeys(names))
    place = {name: i for i, name in enumerate(_SHAPES)}
    used: Counter[str] = Counter()
    look_of: dict[str, Look] = {}
    for name in sorted(names_, key=lambda name: place.get(name, len(place))):
        stem = name.partition(" ")[0]
        kind = _SHAPES.get(stem, _OTHERS)
        own = place.get(stem, 0)
        # stable: among the least used colours, its usual one first
        colours = sorted((COLOURS[(own + i) % len(COLOURS)] for i in range(len(COLOURS))), key=used.__getitem__)
        shapes = (kind, *range(_OTHERS, SHAPES), *range(_OTHERS))
        looks = [Look(colour, shape) for shape in shapes for colour in colours]
        look_of[name] = next((look for look in looks if look not in look_of.values()), looks[0])
        used[look_of[name].colour] += 1
    return {name: look_of[name] for name in names_}


def kind_colours(graph: OpGraph) -> tuple[Ints, list[tuple[str, str]]]:
    """Return each operator's number of colour by its kind, shape (n_ops,); the names of the colours; and the colours.

    Colours go to the kinds that the graph has most of; kinds after the seventh share one.
    """
    codes, labels = graph.labels("kind")
    counts = np.bincount(codes, minlength=len(labels))
    order = np.argsort(-counts, kind="stable")
    rank = np.argsort(order)
    n_kinds = np.count_nonzero(counts)
    names = [printable(str(labels[i])) for i in order[: min(n_kinds, len(PALETTE))]]
    if n_kinds > len(PALETTE):
        names += ["other"]
    return np.minimum(rank, len(PALETTE))[codes], list(zip(names, (*PALETTE, GREY), strict=False))


def tint_colour(code: int, tint: int) -> str:
    """Return a colour of the palette, which begins again after its end, in one of four tints."""
    white = _TINTS[tint % len(_TINTS)]
    return "#" + "".join(f"{round(c + (255 - c) * white):02X}" for c in bytes.fromhex(PALETTE[code % len(PALETTE)][1:]))


def luminance(colour: str) -> float:
    """Return how light ``#rrggbb`` is, from 0, black, to 1, white (the relative luminance of sRGB)."""
    channels = (channel / 255 for channel in bytes.fromhex(colour[1:]))
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def ink(background: str) -> str:
    """Return black or white, whichever has more contrast (WCAG 2) on a background.

    >>> ink("#F0E442"), ink("#0072B2")
    ('#000000', '#ffffff')
    """
    if (luminance(background) + 0.05) ** 2 > 1.05 * 0.05:
        return "#000000"
    return "#ffffff"
