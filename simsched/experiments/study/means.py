"""Tables of a study's rows: means over instances, and how far it is."""

from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

from simsched.base.units import MS
from simsched.experiments.result import table_of, unit_of
from simsched.experiments.study.choices import text_of
from simsched.experiments.study.store import STATUSES
from simsched.experiments.study.study import Study

Rows = Sequence[Mapping[str, Any]]

_POINT = ("workload.", "cluster.", "simulation.")
_REASONS, _LONGEST = 2, 160  # of each scheduler, and characters of each


def means(columns: Sequence[str], rows: Rows) -> list[dict[str, Any]]:
    """Return a row for each point and scheduler, in the order of the study.

    Returns
    -------
    list of dict
        The columns of the point and ``scheduler``; ``rows`` that there are, ``done`` that came to a result,
        ``failed`` of all other ends; ``makespan_us``, ``speedup``, ``search_s`` as pairs of mean and sample
        standard deviation over the instances, None where there is nothing.
    """
    names = [name for name in columns if name.startswith(_POINT)]
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault((*(row.get(name) for name in names), row["scheduler"]), []).append(row)
    found = []
    for point, alike in groups.items():
        done = [row for row in alike if row["status"] == "ok"]
        mean = dict(zip([*names, "scheduler"], point, strict=True))
        mean |= {"rows": len(alike), "done": len(done), "failed": len(alike) - len(done)}
        for name, column in (("makespan_us", "makespan_us"), ("speedup", "speedup"), ("search_s", "wall.search_s")):
            values = [row[column] for row in done if row.get(column) is not None]
            mean[name] = (fmean(values), stdev(values) if len(values) > 1 else 0.0) if values else None
        found.append(mean)
    return found


def means_table(study: Study, columns: Sequence[str], given: Rows) -> Any:
    """Return `means` as a table of texts; what is the same for all rows stands in the caption."""
    rows = means(columns, given)
    names = [name for name in (rows[0] if rows else ()) if name.startswith(_POINT)]
    varied = [name for name in names if len({row[name] for row in rows}) > 1]
    unit, us = unit_of(row["makespan_us"][0] for row in rows if row["makespan_us"])
    fixed = [f"{name.partition('.')[2]} {text_of(rows[0][name])}" for name in names if name not in varied]
    headings = [*(name.partition(".")[2] for name in varied), "scheduler", f"makespan {us}", "speedup", "search s",
                "rows", "no result"]  # fmt: skip
    cells = [
        (*("-" if row[name] is None else text_of(row[name]) for name in varied), row["scheduler"],
         _pair(row["makespan_us"], unit, 3 if unit == MS else 1), _pair(row["speedup"], 1.0, 3),
         _pair(row["search_s"], 1.0, 4), str(row["rows"]), str(row["failed"] or "-"))
        for row in rows
    ]  # fmt: skip
    title = f"{study.name}: {len(given)} of {len(study)} rows"
    return table_of(title, headings, cells, note=", ".join(fixed), left=[len(varied)])


def _pair(value: tuple[float, float] | None, unit: float, digits: int) -> str:
    return "-" if value is None else f"{value[0] / unit:.{digits}f} ± {value[1] / unit:.{digits}f}"


def status_counts(study: Study, rows: Rows) -> list[dict[str, Any]]:
    """See `Results.counts`."""
    labels = [choice.label for choice in study.choices]
    expected = len(study) // len(labels)
    of: dict[str, list[Mapping[str, Any]]] = {label: [] for label in labels}
    for row in rows:
        of[row["scheduler"]].append(row)
    return [_status(label, found, expected) for label, found in of.items()]


def _status(label: str, rows: Rows, expected: int) -> dict[str, Any]:
    counts = {status: sum(row["status"] == status for row in rows) for status in STATUSES}
    reasons = list(dict.fromkeys(row["reason"] for row in rows if row["reason"]))
    wall_s = sum(row.get("wall.row_s") or 0.0 for row in rows)
    return {"scheduler": label, "rows": len(rows), "missing": expected - len(rows), **counts, "wall_s": wall_s,
            "reasons": reasons}  # fmt: skip


def status_table(study: Study, given: Rows) -> Any:
    """See `Results.status`."""
    rows, counted = status_counts(study, given), ("rows", "missing", *STATUSES)
    notes = [_shortened(f"{row['scheduler']}: {reason}") for row in rows for reason in row["reasons"][:_REASONS]]
    cells = [(row["scheduler"], *(str(row[name] or "-") for name in counted), f"{row['wall_s']:.1f}") for row in rows]
    title = f"{study.name}: {len(given)} of {len(study)} rows"
    return table_of(title, ("scheduler", *counted, "wall s"), cells, note="\n".join(notes))


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."
