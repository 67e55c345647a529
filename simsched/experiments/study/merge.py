"""Rows of several folders, or of the shards of one, in one file."""

import os
from collections.abc import Sequence
from pathlib import Path

from simsched.base.errors import StudyError
from simsched.experiments.study.results import Results
from simsched.experiments.study.store import (
    all_rows,
    appending,
    prepare,
    read_rows,
    read_study,
    require_same,
    rows_file,
    union,
)


def merge(folders: Sequence[str | os.PathLike[str]], out: str | os.PathLike[str]) -> Results:
    """Bring the rows of one study together: of shards, of other machines, of interrupted runs.

    Parameters
    ----------
    folders
        Where they are, in one file or several each.
    out
        The folder that gets all of them in one file, ``rows.jsonl``; it may be one of them. Rows that it has already
        stay.

    Returns
    -------
    Results
        Of `out`.

    Raises
    ------
    StudyError
        If they are not of one study and version, two rows disagree in columns other than wall times, or a run is
        writing to `out`.

    Notes
    -----
    Files of shards in `out` stay where they are; they say nothing that ``rows.jsonl`` does not.
    """
    if not folders:
        raise StudyError("there are no folders to merge; give at least one")
    paths, target = [Path(folder) for folder in folders], Path(out)
    study, version = read_study(paths[0])
    for path in paths[1:]:
        require_same(path, study, version)
    prepare(study, target, version)
    path = target / rows_file()
    with appending(path) as append:
        there = {row["index"]: row for row in read_rows(path)}
        found = union((str(folder), all_rows(folder, study)) for folder in [target, *paths])
        append([row for row in found if there.get(row["index"]) != row])
    results = Results.open(target)
    results.save(target)
    return results
