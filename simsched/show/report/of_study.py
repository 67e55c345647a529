"""Sections of a study: means, figures, how far it is, what its searches say, what it is made of."""

import json
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, Final

import numpy as np

from simsched.base.errors import StudyError
from simsched.base.units import format_time
from simsched.experiments.study import Results
from simsched.experiments.study.grid import swept_columns
from simsched.experiments.study.means import means
from simsched.show.plot.scales import require_positive
from simsched.show.report.figures import bars, boxes, heat, lines
from simsched.show.report.sections import Block, Column, Figure, Pairs, Section, Table, Text, time_column
from simsched.show.study.panels import Panel, panels

_POINT: Final = ("workload.", "cluster.", "simulation.")


def study_sections(results: Results) -> tuple[Section, ...]:
    """Return what a study found."""
    done = sum(row["status"] == "ok" for row in results.rows)
    text = f"{len(results.rows):,} of {len(results):,} rows are there, {done:,} of them with a result."
    if not done:
        return (Section(results.study.name, (Text(text, "warning"), _status(results))), _about(results))
    blocks: list[Block] = [Text(f"{_quickest(results)}{text}", "lead"), _means(results)]
    drawn = [_drawn(panel) for panel in panels(results.rows, results.study.figure, swept_columns(results.study))]
    sections = [Section(results.study.name, tuple(blocks)), Section("Figures", tuple(drawn))]
    said = _searches(results.rows)
    return (*sections, Section("Rows and searches", (_status(results), *said)), _about(results))


def _quickest(results: Results) -> str:
    """Return in a sentence which scheduler has the best mean speedup over all points, if rows have one."""
    speedups: dict[str, list[float]] = {}
    for row in results.rows:
        if row["status"] == "ok" and row.get("speedup") is not None:
            speedups.setdefault(row["scheduler"], []).append(row["speedup"])
    if not speedups:
        return ""
    best = max(speedups, key=lambda name: fmean(speedups[name]))
    return f"{best} has the best mean speedup over all points, {fmean(speedups[best]):.2f}. "


def _means(results: Results) -> Table:
    """Return means over the instances of each point; what is the same for all stands below."""
    rows = means(results.columns, results.rows)
    names = [name for name in rows[0] if name.startswith(_POINT)]
    varied = [name for name in names if len({str(row[name]) for row in rows}) > 1]
    fixed = ", ".join(f"{name.partition('.')[2]} {rows[0][name]}" for name in names if name not in varied)
    columns = [Column("scheduler"), *(Column(name.partition(".")[2]) for name in varied)]
    figures: list[tuple[str, int, Column]] = []
    for name, column in (
        ("makespan_us", time_column("makespan", [row["makespan_us"][0] for row in rows if row["makespan_us"]])),
        ("speedup", Column("speedup", 3)), ("search_s", Column("search (s)", 4)),
    ):  # fmt: skip
        spread = Column(f"\u00b1 {column.heading}", column.digits, column.scale)
        figures += [(name, 0, column), (name, 1, spread)]
    columns += [column for _, _, column in figures] + [Column("rows"), Column("no result")]
    cells = tuple(
        (row["scheduler"], *(row[name] for name in varied), *(row[name] and row[name][i] for name, i, _ in figures),
         row["rows"], row["failed"])
        for row in rows
    )  # fmt: skip
    note = "\u00b1: sample standard deviation over the instances" + (f"; everywhere: {fixed}" if fixed else "")
    return Table("Means over the instances of each point", tuple(columns), cells, note=note)


def _status(results: Results) -> Table:
    counts = results.counts()
    keys = [key for key in counts[0] if key not in ("scheduler", "reasons", "wall_s")]
    columns = (Column("scheduler"), *map(Column, keys), Column("wall (s)", 1), Column("why there is no result"))
    rows = tuple((row["scheduler"], *(row[key] for key in keys), row["wall_s"], "; ".join(row["reasons"][:2]) or None)
                 for row in counts)  # fmt: skip
    return Table("How far the study is", columns, rows)


def _searches(rows: Sequence[Mapping[str, Any]]) -> tuple[Table, ...]:
    """Return the means of what searches say in numbers, by scheduler."""
    found: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        for key, value in row.items():
            if key.startswith("search.") and isinstance(value, int | float):
                found.setdefault((row["scheduler"], key.removeprefix("search.")), []).append(float(value))
    if not found:
        return ()
    columns = (Column("scheduler"), Column("figure"), Column("mean"), Column("least"), Column("most"))
    cells = tuple((name, key, fmean(values), min(values), max(values)) for (name, key), values in found.items())
    return (Table("What searches say, over all rows", columns, cells),)


def _drawn(panel: Panel) -> Figure | Text:
    """Return a picture of a study as a figure of the page, or why there is none: zeros on a logarithmic axis."""
    figure, series = panel.figure, panel.series
    what = f"{panel.ylabel} over {panel.xlabel}" if panel.xlabel and figure.kind != "heatmap" else panel.ylabel
    title = figure.title.replace("\n", ", ")
    title = f"{what}: {title}" if title else what
    common: dict[str, Any] = {"note": panel.note}
    try:
        require_positive(
            {name: {x: np.asarray(each) for x, each in given.items()} for name, given in series.items()},
            figure.logy or figure.kind == "search-time",
        )
    except StudyError as error:
        return Text(f"{title} is not drawn: {error}", "note")
    if figure.kind in ("line", "search-time"):
        log = figure.kind == "search-time"
        return lines(title, series, panel.xlabel, panel.ylabel, logx=figure.logx or log, logy=figure.logy or log,
                     geometric=log, reference=panel.reference, **common)  # fmt: skip
    if figure.kind == "heatmap":
        cells = {row: {x: fmean(each) for x, each in given.items()} for row, given in panel.cells.items()}
        return heat(
            title, cells, panel.xlabel, panel.rows, panel.ylabel, centre=panel.reference, limits=panel.limits, **common
        )
    flat = {name if panel.x is None else f"{name}, {panel.xlabel} {x}": each for name, given in series.items()
            for x, each in given.items()}  # fmt: skip
    if figure.kind == "box":
        return boxes(title, flat, panel.ylabel, logy=figure.logy, reference=panel.reference, **common)
    looks = [name for name, given in series.items() for _ in given]
    return bars(title, flat, panel.ylabel, looks=looks, logx=figure.logy, reference=panel.reference, **common)


def _about(results: Results) -> Section:
    found = results.study.to_dict()
    rows = [(key, value if isinstance(value, str) else json.dumps(value)) for key, value in found.items()
            if value not in ((), [], {})]  # fmt: skip
    walls = [row["wall.row_s"] for row in results.rows if row.get("wall.row_s") is not None]
    facts = [("folder", str(results.folder))] if results.folder is not None else []
    facts += [("time of all rows", format_time(sum(walls) * 1e6))] if walls else []
    return Section(
        "Parameters", (Pairs("The study", tuple(rows)), *([Pairs("Its rows", tuple(facts))] if facts else []))
    )
