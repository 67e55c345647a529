"""Figures of accuracy: each has a value, a target, and the cases that it was computed from."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import log
from statistics import fmean
from typing import Any, Final

from validation.evidence import table

HELD: Final = 0.9
"""Probability with which a range is to hold the truth."""


@dataclass(frozen=True, slots=True)
class Case:
    """A predicted and a measured value of the same quantity, both positive.

    Parameters
    ----------
    name
        Of the case.
    predicted, measured
        In us, or as ratios.
    low, high
        Ends of the predicted 90 % range; None where there is none.
    """

    name: str
    predicted: float
    measured: float
    low: float | None = None
    high: float | None = None

    @property
    def error(self) -> float:
        """The natural logarithm of predicted over measured."""
        return log(self.predicted / self.measured)

    def holds(self, tolerance: float = 0.0) -> bool:
        """Return whether the range holds the measured value, its ends moved out by a part of them."""
        assert self.low is not None, self.name
        assert self.high is not None, self.name
        return self.low * (1 - tolerance) <= self.measured <= self.high * (1 + tolerance)


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of accuracy.

    Parameters
    ----------
    name
        The measured quantity, in words.
    value
        The figure; None where nothing could be computed.
    least, most
        The target: the figure is to lie from `least` to `most`; None is no limit.
    """

    name: str
    value: float | None
    least: float | None = None
    most: float | None = None

    @property
    def target(self) -> str:
        """The target in words."""
        if self.least is not None and self.most is not None:
            if self.least == -self.most:
                return f"abs <= {self.most:g}"
            return f"{self.least:g} to {self.most:g}"
        if self.most is not None:
            return f"<= {self.most:g}"
        return "" if self.least is None else f">= {self.least:g}"

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None where there is none."""
        if self.value is None or not self.target:
            return None
        rounded = round(self.value, 3)
        return (self.least is None or rounded >= self.least) and (self.most is None or rounded <= self.most)


@dataclass(frozen=True, slots=True)
class Section:
    """A table of figures, and the cases that they come from.

    Parameters
    ----------
    title
        Of the section.
    figures
        Figures with their targets.
    columns, rows
        A table of the cases; empty for none.
    notes
        Lines below the tables.
    """

    title: str
    figures: Sequence[Figure]
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[object]] = ()
    notes: Sequence[str] = field(default_factory=tuple)

    def lines(self) -> Iterable[str]:
        """Yield the lines of the section, in Markdown."""
        yield f"## {self.title}"
        yield ""
        shown = {None: "", True: "met", False: "missed"}
        cells = [(figure.name, number(figure.value), figure.target, shown[figure.met]) for figure in self.figures]
        yield from table(("measure", "value", "target", ""), cells)
        if self.rows:
            yield ""
            yield from table(self.columns, self.rows)
        for note in self.notes:
            yield ""
            yield note

    def document(self) -> dict[str, Any]:
        """Return the section as JSON values."""
        figures = {
            figure.name: {"value": figure.value, "target": figure.target, "met": figure.met} for figure in self.figures
        }
        rows = [dict(zip(self.columns, row, strict=True)) for row in self.rows]
        return {"figures": figures, "cases": rows, "notes": [*self.notes]}


def documents(sections: Iterable[Section]) -> dict[str, Any]:
    """Return sections as JSON values by title."""
    return {section.title: section.document() for section in sections}


def number(value: float | None) -> str:
    """Return a figure as a table shows it.

    >>> number(0.12345), number(17.0), number(None)
    ('0.123', '17', '-')
    """
    if value is None:
        return "-"
    return f"{value:.0f}" if value == int(value) and abs(value) >= 1 else f"{value:.3f}"


def mean_error(cases: Sequence[Case]) -> float | None:
    """Return the mean absolute logarithm of predicted over measured.

    >>> round(mean_error([Case("a", 2.0, 1.0), Case("b", 1.0, 2.0)]), 3)
    0.693
    """
    return fmean(abs(case.error) for case in cases) if cases else None


def bias(cases: Sequence[Case]) -> float | None:
    """Return the mean logarithm of predicted over measured.

    >>> bias([Case("a", 2.0, 1.0), Case("b", 1.0, 2.0)])
    0.0
    """
    return fmean(case.error for case in cases) if cases else None


def largest_error(cases: Sequence[Case]) -> float | None:
    """Return the largest absolute logarithm of predicted over measured."""
    return max((abs(case.error) for case in cases), default=None)


def held(cases: Sequence[Case], tolerance: float = 0.0) -> float | None:
    """Return the part of the cases whose range holds the measured value to a tolerance, in per cent.

    >>> held([Case("a", 1.0, 1.1, 0.9, 1.2), Case("b", 1.0, 1.3, 0.9, 1.2)])
    50.0
    """
    ranged = [case for case in cases if case.low is not None]
    return 100 * fmean(case.holds(tolerance) for case in ranged) if ranged else None


def score(cases: Sequence[Case]) -> float | None:
    """Return the mean interval score of the ranges, in logarithms: width, and twenty times each miss; less is better.

    >>> round(score([Case("a", 1.0, 1.0, 0.5, 2.0)]), 3)
    1.386
    """
    ranged = [case for case in cases if case.low is not None and case.high is not None]
    return (
        fmean(_score(log(case.measured), log(case.low or 0), log(case.high or 0)) for case in ranged)
        if ranged
        else None
    )


def constant_score(cases: Sequence[Case]) -> float | None:
    """Return the least interval score of ranges that are the predicted value times two constants.

    The constants are chosen on the cases themselves, which no predicted range can do.
    """
    errors = sorted(-case.error for case in cases if case.low is not None)
    if not errors:
        return None
    return min(
        fmean(_score(error, low, high) for error in errors) for i, low in enumerate(errors) for high in errors[i:]
    )


def _score(truth: float, low: float, high: float) -> float:
    return high - low + 2 / (1 - HELD) * (max(0.0, low - truth) + max(0.0, truth - high))


def wrong_signs(cases: Sequence[Case], least: float = 0.03) -> list[Case]:
    """Return the ratios of which one is a gain or a loss above `least` and the other one is not on the same side of 1.

    >>> gains = [Case("both", 1.5, 1.01), Case("none", 1.0, 1.2), Case("loss", 1.1, 0.9), Case("small", 1.02, 0.99)]
    >>> [case.name for case in wrong_signs(gains)]
    ['none', 'loss']
    """
    return [case for case in cases if _wrong(case.predicted - 1, case.measured - 1, least)]


def _wrong(predicted: float, measured: float, least: float) -> bool:
    return max(abs(predicted), abs(measured)) > least and predicted * measured <= 0


def by(cases: Iterable[Case], group: Callable[[Case], str]) -> Mapping[str, list[Case]]:
    """Return the cases by group, groups in the order of their first case."""
    groups: dict[str, list[Case]] = {}
    for case in cases:
        groups.setdefault(group(case), []).append(case)
    return groups
