"""Pictures of what analyses found: their numbers in the unit that reads best, with a title that says of what."""

import os
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from simsched.base.numeric import is_number
from simsched.base.units import format_time, time_unit
from simsched.experiments.whatif import BreakEven, Explanation, Robustness, Sweep, Throughput
from simsched.experiments.whatif.changes import is_taken_as_is, shown_unit
from simsched.experiments.whatif.sweep import shown, text_of
from simsched.show.plot import bar_plot, box_plot, heat_map, line_plot
from simsched.simulator import Makespans

_WIDE: Final = 8.0  # numbers further apart than this factor stand on a logarithmic axis
Path = str | os.PathLike[str] | None
draw_samples = box_plot


def draw_robustness(found: Robustness, path: Path = None, *, ax: Any = None) -> Any:
    """Draw a box for each schedule; see `Robustness`."""
    drawn = {name: Makespans(np.array(values)) for name, values in found.samples.items()}
    return box_plot(drawn, path, ax=ax, title=f"{found.graph} on {found.cluster}\n{found.sampling}")


def draw_breakeven(found: BreakEven, path: Path = None, *, ax: Any = None) -> Any:
    """Draw the makespans of both plans over the parameter; see `BreakEven.plot`."""
    scale, unit = time_unit(float(max(found.a_us.max(), found.b_us.max())))
    series = {
        name: dict(zip(found.factors.tolist(), (us / scale).tolist(), strict=True))
        for name, us in zip(found.names, (found.a_us, found.b_us), strict=True)
    }
    return line_plot(
        series, path, ax=ax, title=f"{found.graph} on {found.cluster}", xlabel=f"{found.parameter} (factor)",
        ylabel=f"makespan ({unit})", logx=True, logy=bool(min(found.a_us.min(), found.b_us.min()) > 0),
        note="\n".join(found.sentences()),
    )  # fmt: skip


def draw_explanation(found: Explanation, path: Path = None, *, ax: Any = None) -> Any:
    """Draw what the critical path consists of; see `Explanation.plot`."""
    shares = {name: us / found.makespan_us for name, us in found.blame.items() if us > 0} or {"nothing": 0.0}
    title = f"{found.scheduler} of {found.graph} on {found.cluster}: {format_time(found.makespan_us)}"
    return bar_plot(shares, path, ax=ax, title=title, ylabel="part of the makespan")


def draw_throughput(found: Throughput, path: Path = None, *, ax: Any = None) -> Any:
    """Draw how busy each resource was; see `Throughput.plot`."""
    title = f"{found.graph} on {found.cluster}, {found.in_flight} in flight: {found.requests_per_s:,.0f} requests/s"
    return bar_plot(dict(found.shares), path, ax=ax, title=title, ylabel="busy", reference=1.0)


def draw_sweep(found: Sweep, path: Path = None, *, ax: Any = None) -> Any:
    """Draw makespans as a line, as bars or as a map; see `Sweep.plot`."""
    scale, unit = time_unit(float(np.nanmax(found.makespan_us)))
    title, note = f"{found.graph} on {found.cluster}", "" if not found.reasons else f"{len(found.reasons)} refused"
    x, us = _places(found.parameter, found.values), found.makespan_us / scale
    xlabel = _axis(found.parameter, found.values)
    if found.values2 is None:
        drawn = {place: value for place, value in zip(x, us.tolist(), strict=True) if np.isfinite(value)}
        looks: dict[str, Any] = {"ax": ax, "title": title, "xlabel": xlabel, "ylabel": f"makespan ({unit})",
                                 "reference": found.base_us / scale, "note": note}  # fmt: skip
        if not all(is_number(place) and not isinstance(place, bool) for place in drawn):
            return bar_plot({str(place): value for place, value in drawn.items()}, path, **looks)
        wide = min(drawn) > 0 and max(drawn) / min(drawn) > _WIDE
        return line_plot({found.scheduler: drawn}, path, logx=wide, **looks)
    y = _places(str(found.parameter2), found.values2)
    cells = {row: {place: us[i, j] for i, place in enumerate(x) if np.isfinite(us[i, j])} for j, row in enumerate(y)}
    return heat_map(
        cells, path, ax=ax, title=title, xlabel=xlabel, ylabel=_axis(str(found.parameter2), found.values2),
        label=f"makespan ({unit})", centre=None, note=f"{format_time(found.base_us)} without changes"
        + ("; " + note if note else ""),
    )  # fmt: skip


def _places(parameter: str, values: Sequence[Any]) -> list[Any]:
    """Return where values stand on an axis: at their number if all are of one kind, else by their text."""
    if all(map(is_number, values)):
        return list(values)
    scale = shown_unit(parameter)[1]
    plain = _all_absolute(values)
    return [shown(value) / scale if plain else text_of(parameter, value) for value in values]


def _all_absolute(values: Sequence[Any]) -> bool:
    return all(isinstance(value, dict) and is_number(shown(value)) for value in values)


def _axis(parameter: str, values: Sequence[Any]) -> str:
    """Return what an axis is called."""
    factors = all(is_number(value) for value in values) and not is_taken_as_is(parameter)
    unit = "factor" if factors else shown_unit(parameter)[0] if _all_absolute(values) else ""
    return f"{parameter} ({unit})" if unit else parameter
