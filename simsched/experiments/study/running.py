"""`run_study`: the rows of a study that are not there yet, on whatever executes them."""

import os
import re
import secrets
from collections.abc import Callable
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any

from simsched.base.errors import StudyError
from simsched.experiments.study.evaluate import OK, Evaluate, Loader, file_or_kind, make_target
from simsched.experiments.study.execution import Batches, pool_of
from simsched.experiments.study.results import Results
from simsched.experiments.study.store import all_rows, appending, prepare, rows_file
from simsched.experiments.study.study import Study, points, refusing, rows_of
from simsched.schedulers import resolve


def run_study(
    study: Study,
    folder: str | os.PathLike[str],
    *,
    load: Loader,
    executor: str = "processes",
    workers: int | None = None,
    shard: tuple[int, int] | str | None = None,
    retry: bool = False,
    check: Callable[..., None] | None = None,
    progress: Callable[[int, int, int], None] | None = None,
) -> Results:
    """Run what is missing of a study, and write it to a folder.

    Parameters
    ----------
    study
        What to run.
    folder
        Where its rows are, or will be: ``study.json``, and a line of ``rows.jsonl`` for each, on disk as soon as it
        is done. At the end also ``rows.csv`` and, where pyarrow is installed, ``rows.parquet``.
    load
        ``load(kind, seed=..., **parameters)`` returns the graph of a workload: `workloads.load_kind`, or a function of
        yours that other processes can import. It leaves the seed alone where it draws nothing.
    executor
        ``"serial"``, ``"processes"``, ``"dask"`` (on this machine), or the address of a Dask scheduler such as
        ``"tcp://host:8786"``. No influence on the rows but on their wall times.
    workers
        Processes; by default one per core.
    shard
        ``(i, n)`` or ``"i/n"``, i from 1 to n, or 0 for n: part i alone, in a file of its own. The parts may run at
        once and into folders of their own or into one; see `merge`.
    retry
        Run rows without a result again.
    check
        ``check(kind, **parameters)``, called for every workload before any row runs, raises an error if `load` is
        going to: `workloads.check_kind`.
    progress
        Called with how many rows are done, how many there are to do, and how many of those done have no result.

    Returns
    -------
    Results
        All rows of the folder.

    Raises
    ------
    StudyError
        If the folder holds another study, is being written to, a workload or cluster cannot be made, or a scheduler
        cannot be imported.
    FileError
        If the folder cannot be written to.

    Notes
    -----
    A row is run again only if what it is made from has changed: its key is the sha256 of the graph's content, of that
    of the cluster or calibration, of scheduler and options, seed, simulation and version. Graphs are made again to see.
    A scheduler of yours goes by its name: use another folder, or another name, where its code has changed.
    """
    part = _shard(shard)
    _require_runnable(study, check)
    version = installed("simsched")
    path = prepare(study, folder, version)
    with appending(path / rows_file(part)) as append:
        before = [row for row in all_rows(path, study) if not retry or row["status"] == OK]
        # those that are known are looked at first: from then on it goes as fast as it will
        specs = rows_of(study, {row["index"]: row["key"] for row in before}, part)
        specs.sort(key=lambda spec: spec.known is None)
        asked = {spec.index for spec in specs}
        n_without = sum(row["status"] != OK for row in before if row["index"] in asked)

        def keep(rows: list[dict[str, Any]], done: int) -> None:
            nonlocal n_without
            if rows:
                append(rows)
            n_without += sum(row["status"] != OK for row in rows)
            if progress is not None and (rows or done == len(specs)):
                progress(done, len(specs), n_without)

        limit = study.execution.get("time_limit")
        evaluate = Evaluate(load, os.path.realpath(study.folder), version, limit, secrets.token_hex(8))
        preload = ["simsched.experiments.study.evaluate", load.__module__]
        with pool_of(executor, workers, preload=[name for name in preload if name != "__main__"]) as pool:
            Batches(specs, evaluate, pool, keep, evaluate.died).run()
        if not specs:
            keep([], 0)
    results = Results.open(path)
    results.save(path)
    return results


def _shard(given: tuple[int, int] | str | None) -> tuple[int, int] | None:
    if given is None:
        return None
    found = re.fullmatch(r"(\d+)/(\d+)", given if isinstance(given, str) else "/".join(map(str, given)))
    i, n = map(int, found.groups()) if found else (0, 0)
    if n < max(1, i):
        raise StudyError(f"a shard is i/n, part i of n with i from 1 to n, not {given!r}")
    return i or n, n


def _require_runnable(study: Study, check: Callable[..., None] | None) -> None:
    """Refuse clusters that cannot be made, workloads that the loader is going to refuse, and unknown schedulers."""
    for point in points(*study.cluster):
        with refusing(f"{study.source}: [cluster]"):
            make_target(point, study.folder)
    for point in points(*study.workload):
        kind = file_or_kind(point["kind"], os.path.realpath(study.folder))
        with refusing(f"{study.source}: [workload]"):
            if kind != point["kind"] and not Path(kind).is_file():
                raise StudyError(f"there is no file {kind}")
            if check is not None:
                check(kind, **{key: value for key, value in point.items() if key != "kind"})
    for name in dict.fromkeys(choice.scheduler for choice in study.choices):
        with refusing(study.source):
            resolve(name)
