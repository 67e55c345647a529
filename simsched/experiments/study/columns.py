"""Columns of the rows of a study by the names that people give them."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from simsched.base.errors import StudyError, UnknownNameError

_ROOMS: Final = ("workload", "cluster", "simulation", "option", "search", "wall")


def column_of(name: str, rows: Sequence[Mapping[str, Any]], whose: str) -> str:
    """Return the column that a name means: itself, or a column of a workload, a cluster, an option, ... with this name.

    Parameters
    ----------
    name
        ``"workload.n_ops"``, ``"n_ops"``, ``"makespan"`` for ``"makespan_us"``.
    rows, whose
        Rows that have the columns, and the asking object's name for errors.

    Raises
    ------
    StudyError
        If there is none, or several; the message lists them.
    """
    columns = list(dict.fromkeys(column for row in rows for column in row))
    if name in columns:
        return name
    endings = (name, f"{name}_us", f"{name}_s")
    matches = [column for column in columns if column in endings]
    matches += [f"{room}.{end}" for room in _ROOMS for end in endings if f"{room}.{end}" in columns]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise StudyError(f"{whose}: {name!r} may be {' or '.join(matches)}: write the one that is meant")
    raise StudyError(f"{whose}: {UnknownNameError('column', name, columns)}")
