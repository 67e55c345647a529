"""Sections of sweeps, sensitivities, break-even points, explanations, robustness and throughput."""

from typing import TYPE_CHECKING, Any

import numpy as np

from simsched.base.units import format_time
from simsched.show.figure import PALETTE
from simsched.show.report.figures import bars, boxes, heat, lines, time_axis
from simsched.show.report.html import plain
from simsched.show.report.sections import Column, Figure, Pairs, Section, Table, Text, percent_column, time_column

if TYPE_CHECKING:
    from simsched.experiments.whatif import BreakEven, Explanation, Robustness, Sensitivity, Sweep, Throughput


def sweep_sections(found: "Sweep") -> tuple[Section, ...]:
    """Return makespans over one parameter or two."""
    title = f"{found.parameter}{'' if found.parameter2 is None else f' and {found.parameter2}'}, swept"
    names = [_value(value) for value in found.values]
    reasons = tuple(Text(f"{_place(found, i, j)}: {text}", "note") for i, j, text in found.reasons)
    table = np.asarray(found.makespan_us, np.float64)
    known = table[np.isfinite(table)]
    scale, label = time_axis("makespan", [float(known.max())] if len(known) else [])
    column = time_column("makespan", known.tolist())
    if table.ndim == 2:
        seconds = [_value(value) for value in found.values2 or ()]
        cells = {name: {s: _known(table[i, j] / scale) for j, s in enumerate(seconds)} for i, name in enumerate(names)}
        pairs = [(name, s, _known(table[i, j])) for i, name in enumerate(names) for j, s in enumerate(seconds)]
        columns: tuple[Column, ...] = (Column(found.parameter), Column(found.parameter2 or ""), column)
        drawn = heat(f"{label} over both", cells, found.parameter2 or "", found.parameter, label)
        return (Section(title, (drawn, Table("Makespans", columns, tuple(pairs)), *reasons)),)
    numbers = [_number(value) for value in found.values]
    x = numbers if all(value is not None for value in numbers) else names
    series = {"makespan": {v: [us / scale] for v, us in zip(x, table.tolist(), strict=True) if np.isfinite(us)}}
    rows = [(name, _known(us), found.base_us / us if us and np.isfinite(us) else None)
            for name, us in zip(names, table.tolist(), strict=True)]  # fmt: skip
    least = int(np.nanargmin(table)) if len(known) else None
    columns = (Column(found.parameter), column, Column("speedup", 3, suffix="x"))
    blocks: list[Any] = [Text(f"Without the change it takes {format_time(found.base_us)}.")]
    if len(known):
        reference = found.base_us / scale
        blocks.append(lines(f"Makespan over {found.parameter}", series, found.parameter, label, reference=reference))
    blocks.append(Table("Makespans", columns, tuple(rows), least, "least"))
    return (Section(title, (*blocks, *reasons)),)


def _place(found: "Sweep", i: int, j: int | None) -> str:
    first = f"{found.parameter} {_value(found.values[i])}"
    if found.values2 is None or j is None:
        return first
    return f"{first}, {found.parameter2} {_value(found.values2[j])}"


def _value(value: Any) -> str:
    return (
        f"= {value['absolute']:g}"
        if isinstance(value, dict)
        else f"{value:g}"
        if isinstance(value, float)
        else str(value)
    )


def _number(value: Any) -> float | None:
    value = value.get("absolute") if isinstance(value, dict) else value
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _known(us: float) -> float | None:
    return float(us) if np.isfinite(us) else None


def sensitivity_sections(found: "Sensitivity") -> tuple[Section, ...]:
    """Return what the makespan depends on, most of all first, as a table and a tornado."""
    rows = found.rows
    times = [us for row in rows for us in (row.low_us, row.high_us)]
    columns = (Column("parameter"), Column("value"), Column("elasticity", 3), time_column("makespan with less", times),
               time_column("makespan with more", times))  # fmt: skip
    cells = tuple((row.parameter, row.value, row.elasticity, row.low_us, row.high_us) for row in rows)
    blocks: list[Any] = []
    if rows:
        first = rows[0]
        text = (
            f"The makespan of {format_time(found.base_us)} depends most on {first.parameter}: 1 % more of it makes the "
            f"makespan {abs(first.elasticity):.3f} % {'longer' if first.elasticity > 0 else 'shorter'}."
        )
        blocks += [Text(text, "lead"), _tornado(found)]
    note = "elasticity: change of the makespan in per cent for one per cent more of the parameter"
    return (Section("What the makespan depends on", (*blocks, Table("Sensitivity", columns, cells, note=note))),)


def _tornado(found: "Sensitivity") -> Figure:
    rows = [row for row in found.rows if row.low_us is not None and row.high_us is not None][:20]
    base = found.base_us
    names = [plain(row.parameter) for row in rows]
    traces = []
    for name, field, colour in (("less of it", "low", PALETTE[0]), ("more of it", "high", PALETTE[5])):
        values = [100 * (getattr(row, f"{field}_us") / base - 1) if base else 0.0 for row in rows]
        hover = f"%{{y}}, {name}: %{{x:+.3g}} %<extra></extra>"
        traces.append({"type": "bar", "orientation": "h", "y": names, "x": values, "name": name,
                       "marker": {"color": colour}, "hovertemplate": hover})  # fmt: skip
    layout = {
        "barmode": "overlay", "bargap": 0.3, "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom"},
        "yaxis": {"type": "category", "autorange": "reversed", "automargin": False},
        "xaxis": {"title": {"text": "change of the makespan (%)"}, "zeroline": True},
        "margin": {"l": min(300, 24 + 7.2 * max((len(name) for name in names), default=1)), "r": 40, "t": 36, "b": 48},
    }  # fmt: skip
    summary = f"A tornado of {len(rows)} parameters, {rows[0].parameter if rows else 'none'} the widest"
    return Figure("What a little more or less of each does", tuple(traces), layout, summary, 120 + 26 * len(rows))


def breakeven_sections(found: "BreakEven") -> tuple[Section, ...]:
    """Return where the better of two plans changes."""
    scale, label = time_axis("makespan", [us for us in (*found.a_us, *found.b_us) if np.isfinite(us)])
    series = {name: {x: [us / scale] for x, us in zip(found.factors, each, strict=True) if np.isfinite(us)}
              for name, each in zip(found.names, (found.a_us, found.b_us), strict=True)}  # fmt: skip
    crossings = found.crossings
    blocks: list[Any] = []
    if crossings:
        parts = (f"Below {c.factor:.4g} times its present value {c.better_below} is better, above {c.better_above}."
                 for c in crossings)  # fmt: skip
        text = " ".join(parts)
    else:
        ends = f"{min(found.factors):g} and {max(found.factors):g}"
        text = f"Nowhere between {ends} times its value does the better plan change."
    blocks.append(Text(text, "lead"))
    upright = [c.factor for c in crossings]
    over = f"{found.parameter}, times its present value"
    blocks.append(lines(f"Makespan over {found.parameter}", series, over, label, logx=True, upright=upright))
    columns = (Column("times its value", 4), Column("value"), Column("better below"), Column("better above"))
    if crossings:
        rows = tuple((c.factor, c.value, c.better_below, c.better_above) for c in crossings)
        blocks.append(Table("Where the better plan changes", columns, rows))
    return (Section(f"Break-even of {' and '.join(found.names)} over {found.parameter}", tuple(blocks)),)


def explanation_sections(found: "Explanation") -> tuple[Section, ...]:
    """Return in words what bounds a schedule, and what would help most."""
    blocks: list[Any] = [Text(sentence) for sentence in found.sentences]
    if found.suggestions:
        times = [each.makespan_us for each in found.suggestions]
        columns = (Column("change"), time_column("makespan", times), percent_column("gain"))
        rows = tuple((each.text, each.makespan_us, each.gain) for each in found.suggestions)
        blocks.append(Table("What would help most, each simulated", columns, rows))
    return (Section("What bounds it", tuple(blocks)),)


def robustness_sections(found: "Robustness") -> tuple[Section, ...]:
    """Return which plan is best when operator times vary."""
    rows = found.rows
    best = min(range(len(rows)), key=lambda i: rows[i].p95_us)
    times = [us for row in rows for us in (row.p50_us, row.p99_us)]
    keys = ("p50", "p95", "p99", "mean", "std")
    columns = (Column("schedule"), *(time_column(key, times) for key in keys), percent_column("quickest in"))
    cells = tuple((row.name, *(getattr(row, f"{key}_us") for key in keys), row.wins) for row in rows)
    lead = Text(f"{rows[best].name} has the least 95th percentile, {format_time(rows[best].p95_us)}.", "lead")
    scale, label = time_axis("makespan", [row.p99_us for row in rows])
    drawn = boxes(
        "Makespans of runs that vary", {name: np.asarray(each) / scale for name, each in found.samples.items()}, label
    )
    return (
        Section(
            f"Schedules of {found.graph} when times vary",
            (lead, Table(str(found.sampling), columns, cells, best), drawn),
        ),
    )


def throughput_sections(found: "Throughput") -> tuple[Section, ...]:
    """Return how many requests a plan serves per second."""
    rows = [("requests per second", f"{found.requests_per_s:,.1f}"), ("period", format_time(found.period_us)),
            ("latency", format_time(found.latency_us)), ("alone", format_time(found.alone_us)),
            ("requests in flight", str(found.in_flight)), ("bound by", found.bound_by),
            ("requests simulated", f"{found.requests:,}")]  # fmt: skip
    blocks: list[Any] = [Pairs("Steady state", tuple(rows))]
    if not found.settled:
        blocks.append(Text("The period had not settled: take the figures for estimates.", "warning"))
    if found.shares:
        busy = {name: (100 * share,) for name, share in found.shares.items()}
        blocks.append(bars("How busy each resource is", busy, "busy (%)"))
    return (Section(f"Throughput of {found.graph} on {found.cluster}", tuple(blocks)),)
