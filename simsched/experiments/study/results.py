"""`Results`: the rows of a study, as CSV, Parquet, data frame and tables."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from simsched.base.errors import MissingDependencyError
from simsched.base.io import write_file
from simsched.base.shown import VIEWS
from simsched.experiments.result import Result
from simsched.experiments.study.grid import swept_columns
from simsched.experiments.study.means import means_table, status_counts, status_table
from simsched.experiments.study.store import WALL, all_rows, read_study
from simsched.experiments.study.study import Study

_RESULTS: Final = "graph, makespan_us, ..."
_ORDER: Final = (
    "key", "unit", "index", "status", "reason", "workload.", "seed", "cluster.", "simulation.", "scheduler", "option.",
    _RESULTS, "search.", WALL,
)  # fmt: skip  # of columns, or of all that begin so


@dataclass(frozen=True, repr=False)
class Results(Result):
    """The rows of a study, finished or not.

    Parameters
    ----------
    study
        What they are of.
    rows
        Those that there are, by index.
    folder
        Where they are from, None if from nowhere.
    """

    study: Study
    rows: tuple[Mapping[str, Any], ...]
    folder: Path | None = None

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> "Results":
        """Read what a folder holds, also while a run is writing to it.

        Raises
        ------
        StudyError
            If it is not the folder of a study, or files of rows disagree.
        FormatError
            If a line is no row.
        """
        path = Path(folder)
        study, _ = read_study(path)
        return cls(study, tuple(all_rows(path, study)), path)

    load = open

    def __len__(self) -> int:
        """Return how many rows the study has, those included that are not there yet."""
        return len(self.study)

    def __repr__(self) -> str:
        return f"Results({self.study.name!r}, {len(self.rows)} of {len(self)} rows)"

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of any row: what the row is, what it is of, facts and results, searches, wall times."""
        return tuple(sorted(dict.fromkeys(name for row in self.rows for name in row), key=_place))

    def to_csv(self, deterministic: bool = True) -> str:
        """Return the rows as CSV, with or without wall times.

        Numbers are written so that they read back the same. Without wall times the text of a study is the same
        whatever machine of one kind, executor, number of workers or order it was run on.
        """
        return self._csv([name for name in self.columns if not deterministic or not name.startswith(WALL)])

    def records(self) -> tuple[Mapping[str, Any], ...]:
        """Return the rows."""
        return self.rows

    def table(self) -> Any:
        """Return means over the instances of every point and scheduler as a table of texts."""
        return means_table(self.study, self.columns, self.rows)

    def counts(self) -> list[dict[str, Any]]:
        """Return for each scheduler how many rows there are, are missing and came to what, and their wall time in s."""
        return status_counts(self.study, self.rows)

    def status(self) -> Any:
        """Return `counts` as a table of texts, with the first reasons of rows without a result."""
        return status_table(self.study, self.rows)

    def plot(self, folder: str | os.PathLike[str] | None = None, *, format: str = "png") -> list[Path]:
        """Draw the figures that the study asks for, or those that suit it; return their files.

        Parameters
        ----------
        folder
            Where to; by default the folder ``figures`` in that of the study.
        format
            ``"png"``, ``"svg"`` or ``"pdf"``.

        Raises
        ------
        StudyError
            If there is nothing to draw, or a figure asks for columns that no row has.
        FileError
            If the format is not known or a file cannot be written.
        """
        into = Path(self.folder or ".", "figures") if folder is None else folder
        files: list[Path] = VIEWS["study"](self.rows, self.study.figure, swept_columns(self.study), into, format)
        return files

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write ``rows.csv``, and ``rows.parquet`` where pyarrow is installed, whole or not at all."""
        write_file(Path(folder, "rows.csv"), self.to_csv(deterministic=False))
        try:
            content = self.to_parquet()
        except MissingDependencyError:
            return
        write_file(Path(folder, "rows.parquet"), content)


def _place(name: str) -> int:
    """Return where a column stands in the order."""
    known = (i for i, group in enumerate(_ORDER) if name == group or (group[-1] == "." and name.startswith(group)))
    return next(known, _ORDER.index(_RESULTS))
