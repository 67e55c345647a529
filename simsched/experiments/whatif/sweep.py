"""`sweep`: makespans over values of one parameter, or of two."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

import numpy as np

from simsched.base.codec import Checked, Count, Gaps
from simsched.base.errors import WhatIfError
from simsched.base.io import json_copy
from simsched.base.numeric import is_number
from simsched.base.units import format_time
from simsched.experiments.result import Finding, table_of
from simsched.experiments.whatif.changes import Absolute, with_unit
from simsched.experiments.whatif.question import Question
from simsched.model.graph.columns import Floats

_ABSOLUTE: Final = "absolute"


@dataclass(frozen=True, repr=False, eq=False)
class Sweep(Finding):
    """Makespans over one parameter or two; prints as a table.

    It plots as a line, of values with names as bars, of two parameters as a map. The thin line is the makespan without
    changes. Numbers that span more than a factor of eight stand on a logarithmic axis; what was refused is left out.

    Parameters
    ----------
    graph, cluster, scheduler
        Names of what ran, on what, and of who made the plan.
    parameter, values
        What was varied, and its values: factors, ``{"absolute": x}``, or what else the parameter takes.
    parameter2, values2
        The same of the second parameter; None if there is none.
    makespan_us
        In us, shape (n,), or (n, m) with two parameters; NaN where the question was refused.
    reasons
        Why, as (i, j, text) with the places of the values; j is 0 where there is one parameter.
    base_us
        Makespan in us without the changes of the sweep.
    """

    FORMAT = "simsched.sweep"
    scheduler: str
    parameter: str
    values: tuple[Any, ...]
    parameter2: str | None
    values2: tuple[Any, ...] | None
    makespan_us: Annotated[Floats, Gaps()]
    reasons: tuple[tuple[Count, Count, str], ...]
    base_us: float

    def __post_init__(self) -> None:
        Checked.__post_init__(self)
        shape = (len(self.values),) if self.values2 is None else (len(self.values), len(self.values2))
        if self.makespan_us.shape != shape or (self.parameter2 is None) != (self.values2 is None):
            raise self.refusal("makespan_us must hold a number for each of the values")
        if not np.isfinite(self.makespan_us).any():
            raise self.refusal("makespan_us must hold at least one number")
        if any(i >= shape[0] or j >= (*shape, 1)[1] for i, j, _ in self.reasons):
            raise self.refusal("reasons must be of values that there are")

    def records(self) -> list[dict[str, Any]]:
        """Return a row of plain values for each point."""
        why, names = {(i, j): text for i, j, text in self.reasons}, (self.parameter, self.parameter2)
        us = self.makespan_us.reshape(len(self.values), -1).tolist()
        return [
            {name: shown(value) for name, value in zip(names, pair, strict=True) if name is not None}
            | {"makespan_us": None if np.isnan(us[i][j]) else us[i][j], "reason": why.get((i, j))}
            for i, value in enumerate(self.values)
            for j, pair in enumerate((value, second) for second in self.values2 or (None,))
        ]

    def table(self) -> Any:
        """Return makespans as a table of texts: a row per value, a column per second value."""
        first, us = [text_of(self.parameter, value) for value in self.values], self.makespan_us.tolist()
        second = [f"{self.parameter2} {text_of(str(self.parameter2), value)}" for value in self.values2 or ()]
        notes = [f"{format_time(self.base_us)} without changes"]
        for i, j, text in self.reasons:
            notes.append(", ".join([f"{self.parameter} {first[i]}", *second[j : j + 1]]) + f": {text}")
        headings, best = (self.parameter, *second), -1
        rows: list[Any] = [(text, *map(_cell, row)) for text, row in zip(first, us, strict=True) if second]
        if not second:
            headings, best = (self.parameter, "makespan", "speedup"), int(np.nanargmin(self.makespan_us))
            rows = [(text, _cell(x), f"{self.base_us / x:.2f}x" if x > 0 else "-")
                    for text, x in zip(first, us, strict=True)]  # fmt: skip
        return table_of(f"{self.graph} on {self.cluster}", headings, rows, note="\n".join(notes), best=best)


def sweep(
    asked: Question, parameter: str, values: Sequence[Any], parameter2: str | None = None,
    values2: Sequence[Any] | None = None,
) -> Sweep:  # fmt: skip
    """Ask a question for each of some values of a parameter, or for all pairs of two.

    Parameters
    ----------
    asked
        A question; its changes stay, and what is swept comes on top of them.
    parameter, values
        As `WhatIf.set` takes them: factors, `absolute` values, presets, ...
    parameter2, values2
        A second parameter, or None.

    Returns
    -------
    Sweep
        Points that are refused - fewer devices than the plan uses, say - are NaN, with the reason.

    Raises
    ------
    WhatIfError
        If there are no values, a second parameter has none or values have none, or all points are refused.
    UnknownNameError
        If there is no such parameter, preset, operator or kind.

    >>> import simsched as ss
    >>> graph = ss.OpGraph([ss.Operator("a", time=30.0), ss.Operator("b", time=10.0)], [ss.Edge("a", "b")])
    >>> asked = ss.what_if(graph, ss.Cluster.preset("a100").without_overheads())
    >>> sweep(asked, "operators.speed", [1, 2, 4]).makespan_us.tolist()
    [40.0, 20.0, 10.0]
    """
    if (parameter2 is None) != (values2 is None):
        raise WhatIfError("a second parameter and its values belong together: give both or neither")
    for name, given in ((parameter, values), (parameter2, values2)):
        if given is not None and (isinstance(given, str) or not len(given)):
            raise WhatIfError(f"sweep over {name}: give a list of values, not {given!r}")
    seconds = [None] if values2 is None else list(values2)
    found = np.full((len(values), len(seconds)), np.nan)
    reasons: list[tuple[int, int, str]] = []
    for i, value in enumerate(values):
        for j, second in enumerate(seconds):
            us = asked.tried((parameter, value), *([] if parameter2 is None else [(parameter2, second)]))
            if isinstance(us, str):
                reasons.append((i, j, us))
            else:
                found[i, j] = us
    if np.isnan(found).all():
        raise WhatIfError(f"sweep over {parameter}: every value is refused: {reasons[0][2]}")
    return Sweep(
        asked.graph.name, asked.cluster.name, asked.plan.scheduler, parameter, tuple(map(_plain, values)), parameter2,
        None if values2 is None else tuple(map(_plain, values2)), found[:, 0] if values2 is None else found,
        tuple(reasons), asked.makespan,
    )  # fmt: skip


def _plain(value: Any) -> Any:
    """Return a value as JSON."""
    return {_ABSOLUTE: float(value.value)} if isinstance(value, Absolute) else json_copy(value)


def shown(value: Any) -> Any:
    """Return the number of an absolute value, any other as it is."""
    return value[_ABSOLUTE] if isinstance(value, dict) and _ABSOLUTE in value else value


def text_of(parameter: str, value: Any) -> str:
    """Return a value as tables show it: numbers with their unit, and behind ``=`` where they have none."""
    number = shown(value)
    if number is value:
        return f"{value:g}" if is_number(value) else str(value)
    text = with_unit(parameter, number)
    return text if " " in text else f"={text}"


def _cell(us: float) -> str:
    return "-" if np.isnan(us) else format_time(us)
