"""What a chart shows, whoever draws it: `paper` with matplotlib, `report.figures` in pages."""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from simsched.base.errors import StudyError
from simsched.base.numeric import is_number
from simsched.base.units import time_unit
from simsched.model.graph.columns import Floats
from simsched.show.looks import PALETTE, Look, looks_of

Values = Mapping[Any, Mapping[Any, npt.ArrayLike]]
"""By name and place on the x axis, a number or text: a value, or one of each instance."""
WIDE, WIDEST = 8.0, 30.0  # where the largest of what lies along, or up, is more times the least its axis is logarithmic
MOST_MARKS: Final = 24
"""Points of a line up to which each has a mark."""
PARTS: Final = re.compile(r"[^:./_\-\s]*[:./_\-\s]+|[^:./_\-\s]+")  # of a name, to be broken between
_FLAT: Final = 0.04  # part of the axis
_LEAST_SIZES, _LEAST_SPAN = 3, 4.0  # of a law: how many sizes there are, and the largest over the least
_LEAST_EXPONENT, _MOST_ERROR = 0.2, 0.15  # what is flatter, or known worse, grows by no power that could be told


@dataclass(frozen=True, slots=True)
class Axis:
    """What an axis shows, and whether it is logarithmic; None where the values decide."""

    label: str = ""
    log: bool | None = False


@dataclass(frozen=True, slots=True)
class PowerLaw:
    """``time = factor * size ** exponent``, fitted to times of one scheduler.

    Parameters
    ----------
    exponent, factor
        Of the law.
    standard_error
        Of the exponent; NaN where fewer than three times leave none.
    n
        How many times were fitted.
    sizes, span
        How many sizes they are of, and the largest of these over the least.
    """

    exponent: float
    factor: float
    standard_error: float
    n: int
    sizes: int = 0
    span: float = 1.0

    def __call__(self, size: float) -> float:
        """Return the time at a size."""
        return self.factor * math.pow(size, self.exponent)

    @property
    def known(self) -> bool:
        """Whether it may be told: of three sizes or more, over a factor of 4 or more, neither flat nor badly fitted."""
        enough = self.sizes >= _LEAST_SIZES and self.span >= _LEAST_SPAN
        return enough and self.exponent >= _LEAST_EXPONENT and self.standard_error <= _MOST_ERROR


def power_law(times: Mapping[Any, Floats]) -> PowerLaw | None:
    """Return the power law of least squares in the logarithms of sizes and times, None of a single size.

    Parameters
    ----------
    times
        Positive times by positive size; every time counts alike.

    Notes
    -----
    The standard error is that of the slope of an ordinary linear regression: it tells how well the law is known if it
    holds, and not whether it holds. O(n).
    """
    x = np.log(np.concatenate([np.full(len(row), float(size)) for size, row in times.items()]))
    y = np.log(np.concatenate(list(times.values())))
    away = x - x.mean()
    squares = float(away @ away)
    if squares <= 0:
        return None
    slope = float(away @ y) / squares
    left = y - y.mean() - slope * away
    error = math.sqrt(float(left @ left) / (len(x) - 2) / squares) if len(x) > 2 else math.nan
    factor, span = math.exp(float(y.mean() - slope * x.mean())), math.exp(float(x.max() - x.min()))
    return PowerLaw(slope, factor, error, len(x), len(times), span)


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
        place, of the values of all names one behind the other. A scatter has points (x, y, from, to), with a bar along
        x from the one to the other.
    series
        Values by name and place.
    x, y
        Its axes; of a map `y` is that of the rows, of a tornado and of stacks that of the values is `x`.
    title, note
        Above and below.
    reference
        A level line of lines, bars and boxes: 1 of speedups, say. Where the colours of a map turn; where a tornado
        begins. None: there is none.
    upright
        Where upright lines stand.
    geometric
        Whether means and deviations are those of logarithms, and the legend tells how a line grows.
    label, limits
        What the colours of a map mean, and values that they reach at least.
    columns
        Width in columns of a paper, 1 or 2; None: what there is to draw decides.
    hollow
        Points of a scatter, by place, that are drawn hollow.

    Raises
    ------
    StudyError
        If there is nothing to draw, a value is not finite, one on a logarithmic axis not positive, or places that must
        be numbers are not.
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
    columns: int | None = None
    hollow: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if self.columns not in (None, 1, 2):
            raise StudyError(f"a figure is 1 or 2 columns wide, not {self.columns!r}")
        found = {name: {x: _row(each, f"{name!r} at {x!r}") for x, each in given.items()}
                 for name, given in self.series.items()}  # fmt: skip
        if not any(found.values()):
            raise StudyError("there is nothing to draw: no name has any values")
        object.__setattr__(self, "series", {name: given for name, given in found.items() if given})
        if self.geometric and not self.numeric:
            raise StudyError("times are drawn over sizes, which must be numbers: try a bar plot")
        values = [value for given in self.series.values() for row in given.values() for value in (row.min(), row.max())]
        for name, among, wide in (("x", self.places if self.numeric else (), WIDE), ("y", values, WIDEST)):
            axis: Axis = getattr(self, name)
            if axis.log is None:
                log = self.kind == "line" and bool(len(among)) and spans(among, wide)
                object.__setattr__(self, name, replace(axis, log=log))
        if self.x.log and self.numeric and min(self.places) <= 0:
            raise StudyError(f"a logarithmic axis has no place for {min(self.places):g} of the x axis")
        if self.kind == "map" and self.reference is not None and min(self.reference, self.reach[0]) <= 0:
            raise StudyError("a map of ratios needs positive values: give centre=None for others")
        for name, given in self.series.items() if self.y.log else ():
            for x, row in given.items():
                if row.min() <= 0:
                    text = f"a logarithmic axis has no place for {row.min():g} of {name!r} at {x!r}"
                    raise StudyError(f"{text}: draw it on a linear one")

    @cached_property
    def places(self) -> list[Any]:
        """All places: numbers from the smallest to the largest, anything else in the order of its first use."""
        return ordered(x for given in self.series.values() for x in given)

    @property
    def numeric(self) -> bool:
        """Whether places are numbers."""
        return all(map(is_number, self.places))

    @property
    def grouped(self) -> bool:
        """Whether there are several places, so that names are told by a legend."""
        return self.places != [None]

    @cached_property
    def means(self) -> dict[tuple[Any, Any], float]:
        """Mean by name and place."""
        return {(name, x): float(row.mean()) for name, given in self.series.items() for x, row in given.items()}

    @property
    def looks(self) -> dict[Any, Look]:
        """What each name looks like; the two of a tornado, and those of stacks, are no schedulers."""
        if self.kind == "tornado":
            return dict(zip(self.series, (Look(PALETTE[0], 1), Look(PALETTE[5], 0)), strict=True))
        return {name: Look(look.colour, 0) if self.kind == "stack" else look
                for name, look in looks_of(self.series).items()}  # fmt: skip

    def segments(self, name: Any) -> list[tuple[float, float]]:
        """Return where the bar of a name begins at each place of a tornado or a stack, and how long it is."""
        names = list(self.series)
        before = names[: names.index(name)] if self.kind == "stack" else []
        starts = [sum((self.means.get((other, x), 0.0) for other in before), self.reference or 0.0)
                  for x in self.places]  # fmt: skip
        base = self.reference or 0.0
        return [(start, self.means.get((name, x), base) - base) for x, start in zip(self.places, starts, strict=True)]

    @property
    def rows(self) -> list[Any]:
        """Rows of a map from the top: numbers grow upwards, anything else comes in the order of its first use."""
        rows = ordered(self.series)
        return rows[::-1] if all(map(is_number, rows)) else rows

    @property
    def reach(self) -> tuple[float, float]:
        """The least and the most that the colours of a map reach."""
        given = (*self.means.values(), *(self.limits or ()))
        return min(given), max(given)

    @property
    def diagonal(self) -> tuple[float, float]:
        """From where to where both axes of a scatter go."""
        given = [value for points in self.series.values() for row in points.values() for value in row[:2].tolist()]
        room = 0.06 * (max(given) - min(given)) or 0.5 * max(given) or 1.0
        return max(0.0, min(given) - room), max(given) + room

    @property
    def panels(self) -> "tuple[Chart, ...]":
        """Itself; where most boxes, each alone, would hardly be seen, also the same against the median of each.

        That is in per cent; all that is 0 stays 0.
        """
        if self.kind != "box" or self.grouped or self.y.log:
            return (self,)
        rows = {name: given[None] for name, given in self.series.items()}
        heights = [float(np.subtract(*np.percentile(row, (75, 25)))) for row in rows.values()]
        span = max(float(row.max()) for row in rows.values()) - min(float(row.min()) for row in rows.values())
        if max(heights) <= 0 or float(np.median(heights)) >= _FLAT * span:
            return (self,)
        medians = {name: float(np.median(row)) or 1.0 for name, row in rows.items()}
        series = {name: {None: 100 * (row - medians[name]) / medians[name]} for name, row in rows.items()}
        return self, Chart("box", series, y=Axis("vs. median (%)"), title=f"{self.title}, against their medians")

    def spread(self, name: Any) -> list[tuple[Any, float, float, float]]:
        """Return place, mean, and what is a sample standard deviation below and above it, in the order of the places.

        On a logarithmic axis, which has no place for 0, what would reach that ends at the least value.
        """
        found = []
        for x in self.places:
            if (row := self.series[name].get(x)) is not None:
                given = np.log(row) if self.geometric else row
                mean, std = float(given.mean()), float(given.std(ddof=1)) if len(given) > 1 else 0.0
                ends = (mean, mean - std, mean + std)
                mean, low, high = (float(value) for value in np.exp(ends)) if self.geometric else ends
                found.append((x, mean, float(row.min()) if self.y.log and low <= 0 else low, high))
        return found

    @cached_property
    def laws(self) -> dict[Any, PowerLaw]:
        """How times grow, of names with several sizes; empty but of a geometric chart."""
        laws = {name: power_law(given) for name, given in self.series.items()} if self.geometric else {}
        return {name: law for name, law in laws.items() if law is not None}

    def legend(self, name: Any) -> str:
        """Return what a legend says of a name: how it grows, where that is known."""
        law = self.laws.get(name)
        return f"{name} O(n^{law.exponent:.2f})" if law is not None and law.known else str(name)


def timed(chart: Chart) -> Chart:
    """Return a chart whose values are times in us in the unit that reads best, which their axis names."""
    scale, unit = time_unit(max(float(row.max()) for given in chart.series.values() for row in given.values()))
    series = {name: {x: row / scale for x, row in given.items()} for name, given in chart.series.items()}
    told: dict[str, Any] = {"label": f"{chart.label} ({unit})"}
    if chart.kind != "map":
        axes = {"tornado": "x", "stack": "x", "scatter": "xy"}.get(chart.kind, "y")
        told = {each: replace(getattr(chart, each), label=f"{getattr(chart, each).label} ({unit})") for each in axes}
    return replace(chart, series=series, reference=None if chart.reference is None else chart.reference / scale, **told)


def ordered(places: Iterable[Any]) -> list[Any]:
    """Return places once each: numbers from the smallest to the largest, others in the order of their first use."""
    found = list(dict.fromkeys(places))
    return sorted(found) if all(map(is_number, found)) else found


def spans(values: Iterable[float], factor: float) -> bool:
    """Return whether positive values lie further apart than a factor."""
    low, high = min(values), max(values)
    return low > 0 and high > factor * low


def named(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values by name and place, of values by name alone; the place is None then.

    Raises
    ------
    StudyError
        If only some names have places.
    """
    nested = [isinstance(each, Mapping) for each in values.values()]
    if any(nested) and not all(nested):
        raise StudyError(f"{list(values)[nested.index(False)]!r} has no categories, as others have: give it some")
    return dict(values) if any(nested) else {name: {None: each} for name, each in values.items()}


def broken(name: str, width: int) -> str:
    """Return a name on as many lines as it needs, broken behind punctuation where it has any.

    >>> broken("my_package.my_module:round_robin", 12).split()
    ['my_package.', 'my_module:', 'round_robin']
    """
    lines = [""]
    for part in PARTS.findall(name):
        for piece in (part[i : i + width] for i in range(0, len(part), width)):
            if lines[-1] and len(lines[-1] + piece.rstrip()) > width:
                lines.append("")
            lines[-1] += piece
    return "\n".join(line.strip() for line in lines)


def number(value: float) -> str:
    """Return a number of an axis as text.

    >>> number(2000.0), number(0.25), number(1e-5), number(10000.0)
    ('2000', '0.25', '0.00001', '10,000')
    """
    if abs(value) >= 1e4:
        return f"{value:,.6g}" if abs(value) < 1e6 else f"{value:.4g}".replace("e+0", "e")
    return np.format_float_positional(float(f"{value:.6g}"), trim="-") if abs(value) >= 1e-6 else f"{value:.6g}"


def _row(values: npt.ArrayLike, whose: str) -> Floats:
    """Return one or more numbers as an array, shape (n_instances,)."""
    try:
        row = np.atleast_1d(np.asarray(values, np.float64))
    except (TypeError, ValueError):
        raise StudyError(f"cannot draw the values of {whose}: they are no numbers") from None
    if row.ndim != 1 or not row.size or not np.isfinite(row).all():
        raise StudyError(f"cannot draw the values of {whose}: give one or more finite numbers")
    return row
