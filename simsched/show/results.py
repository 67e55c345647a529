"""Charts of experiments' results: numbers in the unit that reads best, with a title that names the subject."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from simsched.base.errors import BackendError, SimulationError, WhatIfError
from simsched.base.numeric import is_number
from simsched.base.units import format_time
from simsched.show.chart import Axis, Chart, by_name, in_time_unit, number
from simsched.show.paper import draw
from simsched.simulator import Makespans

if TYPE_CHECKING:
    from simsched.experiments import accuracy, advise, comparison, duel, overlap, whatif

_BARS: Final = 15  # of a tornado


def draw_result(found: Any, path: str | os.PathLike[str] | None = None) -> Any:
    """Draw a result of an experiment; return the axes."""
    return draw(chart_of(found), path)


def chart_of(found: Any) -> Chart:
    """Return the chart of a result; WhatIfError is raised where there is nothing to draw."""
    if found.VIEW not in _CHARTS:
        raise WhatIfError(f"no chart is known of a {type(found).__name__}")
    return _CHARTS[found.VIEW](found)


def boxes_of(samples: Mapping[str, Any], title: str) -> Chart:
    """Return boxes of makespans in us by schedule."""
    if not samples:
        raise SimulationError("there are no samples to draw: ask for some with `samples`")
    values = by_name(
        {name: sample.values if isinstance(sample, Makespans) else sample for name, sample in samples.items()}
    )
    return in_time_unit(Chart("box", values, y=Axis("latency"), title=title))


def _samples(found: "comparison.Comparison | whatif.Robustness") -> Chart:
    names = (subject if isinstance(subject, str) else subject.name for subject in (found.graph, found.cluster))
    return boxes_of(found.samples, f"{' on '.join(names)}\n{found.sampling}")


def _breakeven(found: "whatif.BreakEven") -> Chart:
    series = {
        name: dict(zip(found.factors.tolist(), us, strict=True))
        for name, us in zip(found.names, (found.a_us, found.b_us), strict=True)
    }
    x = Axis(f"{found.parameter} (factor)", True)
    y = Axis("makespan", None)
    title = f"{found.graph} on {found.cluster}"
    upright = tuple(crossing.factor for crossing in found.crossings)
    return in_time_unit(Chart("line", series, x, y, title, "\n".join(found.sentences()), upright=upright))


def _outcome(found: "whatif.Answer | whatif.WhatIf") -> Chart:
    """Return the makespans before and after changes, and with the old schedule if a new one was made."""
    times = {name: run.makespan for name, run in found.runs.items()}
    return in_time_unit(Chart("bar", by_name(times), y=Axis("makespan"), title=found.title))


def _explanation(found: "whatif.Explanation") -> Chart:
    title = f"{found.scheduler} of {found.graph} on {found.cluster}: {format_time(found.makespan_us)}"
    shares = {cause: us / found.makespan_us for cause, us in found.blame.items() if us > 0} or {"nothing": 0.0}
    return Chart("bar", by_name(shares), y=Axis("part of the makespan"), title=title)


def _duel(found: "duel.Duel") -> Chart:
    times = {found.loser: found.losing_us, found.winner: found.winning_us}
    title = f"{found.graph.name} on {found.cluster.name}: {number(found.factor)} times as long"
    return in_time_unit(Chart("bar", by_name(times), y=Axis("makespan"), title=title))


def _throughput(found: "whatif.Throughput") -> Chart:
    title = f"{found.graph} on {found.cluster}, {found.in_flight} in flight: {found.requests_per_s:,.0f} requests/s"
    times = {"alone": found.alone_us, "latency": found.latency_us, "period": found.period_us}
    return in_time_unit(Chart("bar", by_name(times), y=Axis("time"), title=title))


def _advice(found: "advise.Advice") -> Chart:
    speedups = {row.name: row.speedup for row in found.rows if row.speedup is not None}
    title = f"{found.graph} on {found.cluster}"
    return Chart("bar", by_name(speedups), y=Axis("speedup over one stream captured"), title=title, reference=1.0)


def _overlaps(found: "overlap.Overlaps") -> Chart:
    """Return gains in per cent over the parameter, or of each overlap where none was varied."""
    title = f"{found.graph} on {found.cluster}"
    gain = Axis("gain in %")
    if not found.points:
        bars = by_name({row.name: 100 * row.gain for row in found.rows} or {"nothing": 0.0})
        return Chart("bar", bars, y=gain, title=title, reference=0.0)
    names = dict.fromkeys(name for point in found.points for name in point.gain)
    series = {
        name: {point.value: 100 * point.gain[name] for point in found.points if name in point.gain} for name in names
    }
    note = "\n".join(found.sentences()[: len(found.turns)])
    return Chart("line", series, Axis(str(found.parameter), True), gain, title, note, 0.0)


def _sweep(found: "whatif.Sweep") -> Chart:
    title = f"{found.graph} on {found.cluster}"
    us = found.makespan_us
    if found.reasons:
        refused = f"{len(found.reasons)} refused"
    else:
        refused = ""
    x, xlabel = _places(found.parameter, found.values)
    if found.values2 is not None:
        y, ylabel = _places(str(found.parameter2), found.values2)
        cells = {row: {at: us[i, j] for i, at in enumerate(x) if np.isfinite(us[i, j])} for j, row in enumerate(y)}
        note = "; ".join(filter(None, (f"{format_time(found.base_us)} without changes", refused)))
        return in_time_unit(Chart("map", cells, Axis(xlabel), Axis(ylabel), title, note, label="makespan"))
    drawn = {at: value for at, value in zip(x, us.tolist(), strict=True) if np.isfinite(value)}
    numeric = all(map(is_number, drawn))
    if numeric:
        series = {found.scheduler: drawn}
    else:
        series = by_name({str(at): value for at, value in drawn.items()})
    x_axis = Axis(xlabel, None)
    y_axis = Axis("makespan")
    return in_time_unit(Chart("line" if numeric else "bar", series, x_axis, y_axis, title, refused, found.base_us))


def _places(parameter: str, values: Sequence[Any]) -> tuple[list[Any], str]:
    """Return the positions of values on an axis (numbers if all are of one kind, else texts), and the axis' name."""
    from simsched.experiments.whatif.changes import is_taken_as_is, unit_of
    from simsched.experiments.whatif.whatif import plain_value, text_of

    numbers = all(map(is_number, values))
    absolute = all(isinstance(value, dict) and is_number(value.get("absolute")) for value in values)
    unit, scale = unit_of(parameter)
    if numbers and not is_taken_as_is(parameter):
        unit = "factor"
    elif absolute:
        unit = unit
    else:
        unit = ""
    if unit:
        label = f"{parameter} ({unit})"
    else:
        label = parameter
    if numbers:
        return list(values), label
    return [plain_value(value) / scale if absolute else text_of(parameter, value) for value in values], label


def _sensitivity(found: "whatif.Sensitivity") -> Chart:
    rows = found.moving()[:_BARS]
    if not rows:
        raise WhatIfError("there is nothing to draw: no parameter moves the makespan")
    swings = [(row.low, row.high) for row in rows]
    low, high = (f"parameter at {number(100 * part)} %" for part in max(swings, key=swings.count))
    sides = {low: {row.parameter: row.low_us for row in rows}, high: {row.parameter: row.high_us for row in rows}}
    title = f"{found.graph} on {found.cluster}: makespan {format_time(found.base_us)}"
    return in_time_unit(Chart("tornado", sides, y=Axis("makespan"), title=title, reference=found.base_us, columns=2))


def _accuracy(found: "accuracy.Accuracy") -> Chart:
    """Return predicted over measured makespans of the last round; bars reach from the 10th to the 90th percentile."""
    from simsched.experiments.rounds import percent

    last = found.rounds[-1]
    rows = [row for row in last.schedules if row.measured_us is not None]
    if not rows:
        raise BackendError("nothing was measured: there is nothing to draw")
    series: dict[str, dict[str, Any]] = {}
    for row in rows:
        us = [row.measured_us, row.predicted_us, row.measured_p10_us, row.measured_p90_us]
        point = [(row.measured_us if value is None else value) or 0.0 for value in us]
        series.setdefault("random" if row.is_random else row.scheduler, {})[row.scheduler] = point
    title = f"{found.graph} on {found.backend}, round {len(found.rounds)}\nmean error {percent(last.mean_error)}"
    hollow = frozenset(row.scheduler for row in rows if not row.held_out)
    x = Axis("measured makespan")
    y = Axis("predicted makespan")
    return in_time_unit(Chart("scatter", series, x, y, title, hollow=hollow))


# by the views of results: no package is imported without need
_CHARTS: Final[Mapping[str, Callable[[Any], Chart]]] = {
    "comparison": _samples,
    "robustness": _samples,
    "breakeven": _breakeven,
    "explanation": _explanation,
    "throughput": _throughput,
    "sweep": _sweep,
    "sensitivity": _sensitivity,
    "accuracy": _accuracy,
    "whatif": _outcome,
    "answer": _outcome,
    "advice": _advice,
    "duel": _duel,
    "overlaps": _overlaps,
}
