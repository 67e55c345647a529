"""Numbers of a figure, taken from the rows of a study: which columns, in which units, and what was left out."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final

from simsched.base.errors import StudyError
from simsched.base.units import GIB, KIB, MIB, time_unit

Row = Mapping[str, Any]

RATIOS: Final = ("speedup", "estimate_speedup", "over_bound")
"""Columns of which 1 means no difference."""

_ROOMS: Final = ("workload", "cluster", "simulation", "option", "search", "wall")
_MOST_LISTED: Final = 24  # columns in an error
_MOST_NAMED: Final = 6  # values in a note
_WORDS: Final = {
    "ops": "operators", "workload.n_ops": "operators", "workload.n_layers": "layers", "workload.n_edges": "edges",
    "workload.comm_ratio": "communication / computation", "workload.kind": "workload", "workload.batch": "batch size",
    "workload.image_size": "image size (pixels)", "workload.sequence_length": "sequence length (tokens)",
    "cluster.gpus": "GPUs", "cluster.gpu": "GPU", "seed": "instance", "makespan_us": "makespan",
    "estimate_us": "estimated makespan", "speedup": "speedup over sequential", "estimate_speedup": "estimated speedup",
    "bound_us": "lower bound", "over_bound": "makespan / lower bound", "syncs": "synchronisations",
    "peak_memory_bytes": "peak memory", "sm_utilization": "SM utilization", "sm_efficiency": "SM efficiency",
    "p50_us": "median makespan", "p95_us": "makespan, 95th percentile", "p99_us": "makespan, 99th percentile",
    "mean_us": "mean makespan", "std_us": "standard deviation of makespans", "wall.search_s": "search time (s)",
    "wall.row_s": "time of a row (s)", "wall.simulate_s": "time of simulation (s)",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Picked:
    """What a figure is drawn from.

    Parameters
    ----------
    values
        By value of column `by` and place on the x axis, a value per instance; the only place is None without an x.
    x, y, by
        Columns.
    n, of
        The most values a point has, and what they are.
    left_out
        How many rows have no place in the figure, and why; empty if all have.
    """

    values: dict[Any, dict[Any, list[float]]]
    x: str | None
    y: str
    by: str
    n: int
    of: str
    left_out: str


def resolve(name: str, rows: Sequence[Row], whose: str) -> str:
    """Return the column that a name means: itself, or that of a workload, a cluster, an option, ... with this name.

    Parameters
    ----------
    name
        ``"workload.n_ops"``, ``"n_ops"``, ``"makespan"`` for ``"makespan_us"``.
    rows, whose
        Rows that have the columns, and what an error calls the figure.

    Raises
    ------
    StudyError
        If there is none, or several; the message lists them.
    """
    columns = list(dict.fromkeys(column for row in rows for column in row))
    if name in columns:
        return name
    endings = (name, f"{name}_us", f"{name}_s")
    found = [column for column in columns if column in endings]
    found += [f"{room}.{end}" for room in _ROOMS for end in endings if f"{room}.{end}" in columns]
    if len(found) == 1:
        return found[0]
    if found:
        raise StudyError(f"{whose}: {name!r} may be {' or '.join(found)}: write the one that is meant")
    close = columns if len(columns) <= _MOST_LISTED else get_close_matches(name, columns, n=6, cutoff=0.0)
    known = "columns are" if len(columns) <= _MOST_LISTED else f"closest of {len(columns)} columns"
    raise StudyError(f"{whose}: the rows have no column {name!r}; {known}: {', '.join(close)}")


def words(column: str) -> str:
    """Return what an axis calls a column.

    >>> words("cluster.gpus"), words("option.max_streams")
    ('GPUs', 'max streams')
    """
    return _WORDS.get(column, column.rpartition(".")[2].removesuffix("_us").replace("_", " "))


def named(column: str, value: Any) -> str:
    """Return what a legend calls a value of a column: schedulers by their label, others with the column."""
    return str(value) if column == "scheduler" else f"{words(column)} = {value}"


def in_units(column: str, values: Mapping[Any, Mapping[Any, Sequence[float]]]) -> tuple[float, str]:
    """Return what values of a column are divided by to read well, and the label of their axis."""
    largest = max((abs(value) for found in values.values() for each in found.values() for value in each), default=0.0)
    if column.endswith("_us"):
        scale, unit = time_unit(largest)
        return scale, f"{words(column)} ({unit})"
    if column.endswith("_bytes"):
        units = ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB"), (1, "B"))
        scale, unit = next((each for each in units if largest >= each[0]), units[-1])
        return float(scale), f"{words(column)} ({unit})"
    return 1.0, words(column)


def matching(rows: Sequence[Row], where: Mapping[str, Any], whose: str) -> list[Row]:
    """Return the rows with some values in some columns; a list stands for any of them.

    Raises
    ------
    StudyError
        If a column is not known, or holds none of the values anywhere.
    """
    kept = list(rows)
    for name, value in where.items():
        column, asked = resolve(name, rows, whose), list(value) if isinstance(value, list | tuple) else [value]
        kept = [row for row in kept if row.get(column) in asked]
        if not kept:
            known = dict.fromkeys(str(row[column]) for row in rows if row.get(column) is not None)
            raise StudyError(f"{whose}: no row is left with {column} = {value!r}; there are: {', '.join(known)}")
    return kept


def of_schedulers(rows: Sequence[Row], schedulers: Sequence[str], whose: str) -> list[Row]:
    """Return the rows of some schedulers in their order: labels, or names that stand for all labels that begin so.

    Raises
    ------
    StudyError
        If one has no row; the message lists those that have.
    """
    if not schedulers:
        return list(rows)
    known = list(dict.fromkeys(str(row["scheduler"]) for row in rows))
    kept: dict[str, None] = {}
    for name in schedulers:
        labels = [label for label in known if name in (label, label.partition(" ")[0])]
        if not labels:
            raise StudyError(f"{whose}: no row is of scheduler {name!r}; there are: {', '.join(known)}")
        kept |= dict.fromkeys(labels)
    return [row for label in kept for row in rows if row["scheduler"] == label]


def pick(
    rows: Sequence[Row], x: str | None, y: str, by: str, swept: Sequence[str], *, scheduler: str | None = None
) -> Picked:
    """Return values of column `y` by columns `by` and `x`, of the rows that have a result.

    Parameters
    ----------
    rows
        All that the figure is about, with their `status`.
    swept
        Columns that a study varies: the note names those that were averaged over.
    scheduler
        Of which scheduler alone.
    """
    if scheduler is not None:
        rows = [row for row in rows if row["scheduler"] == scheduler]
    needed = [column for column in (by, x, y) if column is not None]
    left_out = Counter(_lack(row, needed) for row in rows)
    cells: dict[Any, dict[Any, list[Row]]] = {row[by]: {} for row in rows if row.get(by) is not None}
    for row in rows:
        if _lack(row, needed) is None:
            cells[row[by]].setdefault(None if x is None else row[x], []).append(row)
    values = {value: {at: [float(row[y]) for row in found] for at, found in given.items()}
              for value, given in cells.items() if given}  # fmt: skip
    varied = [column for column in swept if column not in (x, by, "seed", "scheduler")]
    averaged = {column: list(dict.fromkeys(str(row.get(column)) for given in cells.values() for found in given.values()
                                           if len({str(row.get(column)) for row in found}) > 1 for row in found))
                for column in varied if not column.startswith("option.")}  # fmt: skip
    lacks = [f"{n} {lack}" for lack, n in left_out.items() if lack is not None]
    lost = f"{left_out.total() - left_out[None]} of {len(rows)} rows left out: {', '.join(lacks)}" if lacks else ""
    counts = [len(each) for given in values.values() for each in given.values()] or [0]
    return Picked(values, x, y, by, max(counts), _what(counts, averaged), lost)


def _lack(row: Row, needed: Sequence[str]) -> str | None:
    """Return why a row has no place in a figure, None if it has."""
    if row["status"] != "ok":
        return str(row["status"])
    missing = next((column for column in needed if row.get(column) is None), None)
    return None if missing is None else f"without {words(missing)}"


def _what(counts: Sequence[int], averaged: Mapping[str, Sequence[str]]) -> str:
    """Return what the values of a point are."""
    low, high = min(counts), max(counts)
    n = f"{low}" if low == high else f"{low} to {high}"
    over = " and ".join(
        f"{words(column)} {', '.join(among)}"
        if len(among) <= _MOST_NAMED
        else f"{len(among)} values of {words(column)}"
        for column, among in averaged.items()
        if among
    )
    if over:
        return f"{n} values a point: instances, and {over}"
    return f"{n} instances a point" if high > 1 else "one instance a point"
