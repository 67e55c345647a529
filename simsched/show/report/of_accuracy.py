"""Sections of a report on a validation: errors by round, predicted against measured, simulated over measured."""

from typing import Any, Final

from simsched.base.units import format_time, time_unit
from simsched.experiments.accuracy.accuracy import Accuracy, Outcome, percent, relative_error
from simsched.show.plot import looks_of
from simsched.show.report import Column, Figure, Gantt, Pairs, Section, Table, Tabs, Text
from simsched.show.report.describe import parameters
from simsched.show.report.html import plain
from simsched.show.report.sections import percent_column, time_column

_RANDOM: Final = "#8A8A8A"
_MOST_CHARTS: Final = 4
_WITHIN: Final = 0.1


def accuracy_sections(accuracy: Accuracy) -> tuple[Section, ...]:
    """Return how well predictions met measurements, with the charts of the simulator's first choices."""
    last = accuracy.rounds[-1]
    title = f"{accuracy.graph} on {accuracy.backend}: predicted against measured"
    ran = {"device": accuracy.device, "seed": str(accuracy.seed)} | dict(accuracy.environment)
    facts = Pairs("What was measured on", tuple(ran.items()))
    head = Section(title, (Text(_lead(accuracy), "lead"), _rounds(accuracy), _scatter(accuracy), _outcomes(accuracy)))
    made = [row for row in last.schedules if row.scheduler in accuracy.traces and not row.is_random]
    made.sort(key=lambda row: row.predicted_us or 0.0)
    panels = tuple((row.scheduler, (Gantt(f"{row.scheduler}: simulated over measured", trace, replay.trace),))
                   for row in made[:_MOST_CHARTS] for trace, replay in (accuracy.traces[row.scheduler],))  # fmt: skip
    charts = (Section("What ran when", (Tabs("Schedulers", panels),)),) if panels else ()
    trace = next(iter(accuracy.traces.values()))[0]
    about = parameters(trace.graph, accuracy.calibration.cluster)
    return (head, *charts, Section("Parameters", (facts, _fitted(accuracy), *about.blocks)))


def _lead(accuracy: Accuracy) -> str:
    last = accuracy.rounds[-1]
    rounds = len(accuracy.rounds)
    text = f"After {rounds} round{'' if rounds == 1 else 's'} predictions of schedules that no fit has seen are off by "
    text += f"{percent(last.mean_error)} on average; {percent(last.uncalibrated_error)} before calibration."
    if last.chosen is None or last.chosen.measured_us is None:
        return text
    text += f" The simulator's choice is {last.chosen.scheduler}, measured {format_time(last.chosen.measured_us)}"
    if last.regret is not None:
        text += ", the fastest that was measured" if last.regret == 0 else f", {percent(last.regret)} above the fastest"
    return text + "."


def _rounds(accuracy: Accuracy) -> Table:
    columns = (Column("round"), Column("held out"), *map(percent_column, ("mean error", "p90 error", "no contention",
               "uncalibrated")), Column("Kendall tau", 2), percent_column("regret"))  # fmt: skip
    rows = tuple((str(i), len(each.held_out), each.mean_error, each.p90_error, each.no_contention_error,
                  each.uncalibrated_error, each.kendall_tau, each.regret)
                 for i, each in enumerate(accuracy.rounds, 1))  # fmt: skip
    note = "errors: of held-out schedules, seen by no fit; regret: of the scheduler ranked first"
    return Table("Rounds", columns, rows, note=note)


def _outcomes(accuracy: Accuracy) -> Table:
    rows = accuracy.rounds[-1].schedules
    times = [us for row in rows for us in (row.measured_us, row.predicted_us)]
    columns = (Column("scheduler"), time_column("predicted", times), time_column("measured", times),
               time_column("p10", times), time_column("p90", times), percent_column("error"),
               percent_column("no contention"), percent_column("uncalibrated"), Column("rank predicted"),
               Column("rank measured"), Column("held out"))  # fmt: skip
    cells = tuple(
        (row.scheduler, row.predicted_us, row.measured_us, row.measured_p10_us, row.measured_p90_us,
         *(relative_error(us, row.measured_us) for us in (row.predicted_us, row.no_contention_us, row.uncalibrated_us)),
         row.rank_predicted, row.rank_measured, row.held_out if row.measured_us is not None else None)
        for row in rows
    )  # fmt: skip
    chosen = accuracy.rounds[-1].chosen
    best = None if chosen is None else rows.index(chosen)
    note = "\n".join(f"{row.scheduler}: not measured: {row.reason}" for row in rows if row.reason)
    return Table(f"Schedules of round {len(accuracy.rounds)}", columns, cells, best, "predicted fastest", note)


def _scatter(accuracy: Accuracy) -> Figure:
    """Return predicted over measured makespans of the last round, with the diagonal and a band of 10 %."""
    rows = [row for row in accuracy.rounds[-1].schedules if row.measured_us is not None]
    made, at_random = ([row for row in rows if row.is_random is drawn] for drawn in (False, True))
    scale, unit = time_unit(max((max(row.measured_us or 0.0, row.predicted_us or 0.0) for row in rows), default=1.0))
    ends = [us / scale for row in rows for us in (row.measured_us or 0.0, row.predicted_us or 0.0)] or [0.0, 1.0]
    room = 0.06 * (max(ends) - min(ends)) or 0.5 * max(ends) or 1.0
    low, high = max(0.0, min(ends) - room), max(ends) + room
    corners = [(1 - _WITHIN) * low, (1 - _WITHIN) * high, (1 + _WITHIN) * high, (1 + _WITHIN) * low]
    common = {"type": "scatter", "hoverinfo": "skip"}
    band = common | {"mode": "none", "fill": "toself", "fillcolor": "rgba(128,128,128,0.14)", "name": "within 10 %",
                     "x": [low, high, high, low], "y": corners}  # fmt: skip
    diagonal = common | {"mode": "lines", "x": [low, high], "y": [low, high], "line": {"dash": "dash", "width": 1},
                         "name": "predicted = measured", "meta": "ink"}  # fmt: skip
    points = [_points([row], row.scheduler, colour, scale, unit)
              for row, (colour, _) in zip(made, looks_of([row.scheduler for row in made]), strict=True)]  # fmt: skip
    if at_random:
        points.append(_points(at_random, "random", _RANDOM, scale, unit))
    layout = {"xaxis": {"title": {"text": f"measured makespan ({unit})"}, "range": [low, high]},
              "yaxis": {"title": {"text": f"predicted makespan ({unit})"}, "range": [low, high]},
              "margin": {"l": 70, "r": 20, "t": 16, "b": 52}}  # fmt: skip
    mean = percent(accuracy.rounds[-1].mean_error)
    summary = f"Predicted over measured makespans of {len(rows)} schedules, mean error {mean}"
    note = "bars: from the 10th to the 90th percentile of what was measured; hollow: a fit has seen it"
    return Figure("Predicted against measured", (band, diagonal, *points), layout, summary, 460, note)


def _points(rows: list[Outcome], name: str, colour: str, scale: float, unit: str) -> dict[str, Any]:
    measured = [row.measured_us or 0.0 for row in rows]
    up, down = ([abs((us if us is not None else m) - m) / scale for us, m in zip(each, measured, strict=True)]
                for each in ([row.measured_p90_us for row in rows], [row.measured_p10_us for row in rows]))  # fmt: skip
    symbols = ["circle" if row.held_out else "circle-open" for row in rows]
    return {
        "type": "scatter", "mode": "markers", "name": plain(name), "x": [m / scale for m in measured],
        "y": [(row.predicted_us or 0.0) / scale for row in rows], "text": [plain(row.scheduler) for row in rows],
        "marker": {"color": colour, "size": 9, "symbol": symbols, "line": {"width": 1}},
        "error_x": {"type": "data", "symmetric": False, "array": up, "arrayminus": down, "color": colour, "width": 3},
        "hovertemplate": f"%{{text}}: predicted %{{y:.4g}} {unit}, measured %{{x:.4g}} {unit}<extra></extra>",
    }  # fmt: skip


def _fitted(accuracy: Accuracy) -> Table:
    columns = tuple(map(Column, ("parameter", "value", "prior", "95 % from", "to", "identified", "note")))
    rows = tuple((row.name, row.value, row.prior, row.low, row.high, row.identified, row.note)
                 for row in accuracy.calibration.parameters)  # fmt: skip
    return Table("Fitted parameters, in us and bytes per us", columns, rows)
