"""`Results`: the rows of a study, made by `run_study`, brought together by `merge`, as CSV, Parquet and tables."""

import json
import logging
import os
import re
import secrets
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import version as installed
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Final

import numpy as np

from simsched.base.errors import MissingDependencyError, StudyError
from simsched.base.io import write_file
from simsched.base.units import MS
from simsched.base.views import VIEWS
from simsched.experiments.result import Result, table_of, unit_of
from simsched.experiments.study import store
from simsched.experiments.study.code import code_of, require_loaded
from simsched.experiments.study.evaluate import OK, Evaluate, Loader, file_or_kind, make_target, row_key, target_digest
from simsched.experiments.study.execution import Batches, pool_of
from simsched.experiments.study.growth import join_studies, workload_of
from simsched.experiments.study.rank import Ranking, rank
from simsched.experiments.study.store import STATUSES, WALL
from simsched.experiments.study.study import RowSpec, Study, points, refusing, rows_of, swept_columns, text_of
from simsched.schedulers import resolve

_logger = logging.getLogger(__name__)

_RESULTS: Final = "graph, makespan_us, ..."
_ORDER: Final = (
    "key",
    "unit",
    "index",
    "status",
    "reason",
    "workload.",
    "seed",
    "cluster.",
    "simulation.",
    "scheduler",
    "option.",
    "code",
    _RESULTS,
    "search.",
    WALL,
)  # columns, or prefixes of columns
_POINT: Final = ("workload.", "cluster.", "simulation.")
# reasons of each scheduler, and characters of each
_REASONS = 2
_LONGEST = 160


@dataclass(frozen=True, repr=False)
class Results(Result):
    """The rows of a study, finished or not.

    Parameters
    ----------
    study
        Study that the rows belong to.
    rows
        Existing rows, by index.
    folder
        Where they are from, None if from nowhere.
    n_new
        How many of them the run that returned this has made; None if no run did.
    others
        Rows of the folder that the study no longer names, or whose scheduler's code has changed since.
    """

    VIEW = "results"

    study: Study
    rows: tuple[Mapping[str, Any], ...]
    folder: Path | None = None
    n_new: int | None = None
    others: tuple[Mapping[str, Any], ...] = ()

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> "Results":
        """Read a folder, also while a run is writing to it.

        Raises
        ------
        StudyError
            If it is not the folder of a study, or files of rows disagree.
        FormatError
            If a line is no row.
        """
        path = Path(folder)
        study, _, code = store.read_study(path)
        rows = store.placed_rows(store.rows_paths(path), study, code)
        return cls(study, tuple(rows.placed), path, others=(*rows.stale, *rows.others))

    load = open

    def __len__(self) -> int:
        """Return the number of the study's rows, including missing ones."""
        return len(self.study)

    def __repr__(self) -> str:
        return f"Results({self.study.name!r}, {len(self.rows)} of {len(self)} rows)"

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of any row: identity, settings, facts and results, searches, wall times."""
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
        """Return means over the instances of every point and scheduler as a table of texts.

        Values that all rows share are in the caption.
        """
        rows = means(self.columns, self.rows)
        names = [name for name in (rows[0] if rows else ()) if name.startswith(_POINT)]
        varied = [name for name in names if len({row[name] for row in rows}) > 1]
        unit, us = unit_of(row["makespan_us"][0] for row in rows if row["makespan_us"])
        fixed = [f"{name.partition('.')[2]} {text_of(rows[0][name])}" for name in names if name not in varied]
        headings = [
            *(name.partition(".")[2] for name in varied),
            "scheduler",
            f"makespan {us}",
            "speedup",
            "search s",
            "rows",
            "no result",
        ]
        cells = [
            (
                *("-" if row[name] is None else text_of(row[name]) for name in varied),
                row["scheduler"],
                _pair(row["makespan_us"], unit, 3 if unit == MS else 1),
                _pair(row["speedup"], 1.0, 3),
                _pair(row["search_s"], 1.0, 4),
                str(row["rows"]),
                str(row["failed"] or "-"),
            )
            for row in rows
        ]
        return table_of(self._title, headings, cells, note=", ".join(fixed), left=[len(varied)])

    @property
    def _title(self) -> str:
        return f"{self.study.name}: {len(self.rows)} of {len(self)} rows"

    def counts(self) -> list[dict[str, Any]]:
        """Return each scheduler's numbers of rows by outcome, including missing ones, and their wall time in s."""
        of: dict[str, list[Mapping[str, Any]]] = {choice.label: [] for choice in self.study.choices}
        for row in self.rows:
            of[row["scheduler"]].append(row)
        return [
            {
                "scheduler": label,
                "rows": len(rows),
                "missing": len(self) // len(of) - len(rows),
                **{status: sum(row["status"] == status for row in rows) for status in STATUSES},
                "wall_s": sum(row.get("wall.row_s") or 0.0 for row in rows),
                "reasons": list(dict.fromkeys(row["reason"] for row in rows if row["reason"])),
            }
            for label, rows in of.items()
        ]

    def status(self) -> Any:
        """Return `counts` as a table of texts, with the first reasons of rows without a result."""
        rows = self.counts()
        counted = ("rows", "missing", *STATUSES)
        notes = [f"{row['scheduler']}: {reason}" for row in rows for reason in row["reasons"][:_REASONS]]
        short = [note if len(note) <= _LONGEST else f"{note[:_LONGEST]} ..." for note in notes]
        if self.others:
            short += [self.left_over]
        cells = [
            (row["scheduler"], *(str(row[name] or "-") for name in counted), f"{row['wall_s']:.1f}") for row in rows
        ]
        return table_of(self._title, ("scheduler", *counted, "wall s"), cells, note=short)

    @property
    def left_over(self) -> str:
        """Return a line on rows that no longer count; empty if there are none."""
        if not self.others:
            return ""
        if len(self.others) == 1:
            rows = "1 more row"
        else:
            rows = f"{len(self.others)} more rows"
        return f"{rows} in the folder, of parts that the study no longer has or of code that changed"

    def plot(self, folder: str | os.PathLike[str] | None = None, *, format: str = "png") -> list[Path]:
        """Draw the figures that the study asks for, or the usual ones; return their files.

        Parameters
        ----------
        folder
            Folder of the files; by default the folder ``figures`` in the study's own.
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

    def rank(
        self,
        by: Sequence[str] = (),
        metric: str = "makespan",
        *,
        baseline: str | None = None,
        rng: np.random.Generator | int = 0,
    ) -> Ranking:
        """Return which scheduler wins, by how much, and whether that may be chance.

        Parameters and errors are as in `simsched.experiments.study.rank.rank`.
        """
        labels = [choice.label for choice in self.study.choices]
        return rank(self.study.name, self.rows, labels, by=by, metric=metric, baseline=baseline, rng=rng)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write ``rows.csv``, and ``rows.parquet`` where pyarrow is installed, whole or not at all."""
        write_file(Path(folder, store.ROWS_CSV), self.to_csv(deterministic=False))
        try:
            content = self.to_parquet()
        except MissingDependencyError:
            return
        write_file(Path(folder, store.ROWS_PARQUET), content)


def _place(name: str) -> int:
    """Return the position of a column in the order."""
    places = (i for i, group in enumerate(_ORDER) if name == group or (group[-1] == "." and name.startswith(group)))
    return next(places, _ORDER.index(_RESULTS))


def means(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each point and scheduler, in the order of the study.

    Returns
    -------
    list of dict
        The columns of the point and ``scheduler``; the numbers of ``rows`` that exist, of ``done`` ones with a result,
        of ``failed`` ones with any other end; ``makespan_us``, ``speedup``, ``search_s`` as pairs of mean and sample
        standard deviation over the instances, None where no row has a result.
    """
    names = [name for name in columns if name.startswith(_POINT)]
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault((*(row.get(name) for name in names), row["scheduler"]), []).append(row)
    points_of = []
    for point, alike in groups.items():
        done = [row for row in alike if row["status"] == "ok"]
        mean = dict(zip([*names, "scheduler"], point, strict=True))
        mean |= {"rows": len(alike), "done": len(done), "failed": len(alike) - len(done)}
        for name, column in (("makespan_us", "makespan_us"), ("speedup", "speedup"), ("search_s", "wall.search_s")):
            values = [row[column] for row in done if row.get(column) is not None]
            if values:
                mean[name] = (fmean(values), stdev(values) if len(values) > 1 else 0.0)
            else:
                mean[name] = None
        points_of.append(mean)
    return points_of


def _pair(value: tuple[float, float] | None, unit: float, digits: int) -> str:
    if value is None:
        return "-"
    return f"{value[0] / unit:.{digits}f} ± {value[1] / unit:.{digits}f}"


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
    """Run the missing rows of a study, and write them to a folder.

    Parameters
    ----------
    study
        The study to run.
    folder
        Folder of its rows: ``study.json``, and a line of ``rows.jsonl`` for each, on disk as soon as it is done. At the
        end also ``rows.csv`` and, where pyarrow is installed, ``rows.parquet``.
    load
        ``load(kind, seed=..., **parameters)`` returns the graph of a workload: `workloads.load_kind`, or a function of
        yours that other processes can import. It leaves the seed alone where it draws nothing.
    executor
        ``"serial"``, ``"processes"``, ``"dask"`` (on this machine), or the address of a Dask scheduler such as
        ``"tcp://host:8786"``. No influence on the rows but on their wall times.
    workers
        Processes; by default one per core.
    shard
        ``(i, n)`` or ``"i/n"``, i from 1 to n, or 0 for n: part i alone, in a separate file. The parts may run at once,
        each into its own folder or all into one; see `merge`.
    retry
        Run rows without a result again.
    check
        ``check(kind, **parameters)``, called for every workload before any row runs, raises an error if `load` is
        going to: `workloads.check_kind`.
    progress
        Called with the numbers of rows that are done, that are to do, and that are done without a result.

    Returns
    -------
    Results
        All rows of the folder.

    Raises
    ------
    StudyError
        If the folder holds a study of another name or version, is being written to, a workload or cluster cannot be
        made, a scheduler cannot be imported, or with ``executor="serial"`` was edited after it had been imported.
    FileError
        If the folder cannot be written to.

    Notes
    -----
    A row is run again only if its inputs have changed: its key is the sha256 of the graph's content, the content of the
    cluster or calibration, scheduler and options, seed, simulation and version, and the code of a scheduler outside
    this library, see `simsched.experiments.study.code.code_of`. Graphs are made again for this.

    The folder may hold an earlier form of the study: schedulers, seeds, workloads, clusters and simulations may have
    been added or left out, or have another name or order. Rows of the same key are taken over. Rows that the study
    does not name stay in the folder, and count again when it names them again.
    """
    part = _shard(shard)
    _require_runnable(study, check)
    version = installed("simsched")
    codes = _codes(study, executor)
    path = store.prepare(study, folder, version, codes)
    with store.appending(path / store.rows_file(part)) as append:
        rows = store.placed_rows(store.rows_paths(path), study, codes)
        _tell_changed(study, rows, codes, path)
        before = [row for row in rows.placed if not retry or row["status"] == OK]
        # rows that exist are checked first: later rows then take only their own time
        specs = rows_of(study, {row["index"]: row["key"] for row in before}, part)
        specs = _with_names(specs, rows.others, os.path.realpath(study.folder), version, codes)
        specs.sort(key=lambda spec: spec.known is None)
        wanted = {spec.index for spec in specs}
        n_without = sum(row["status"] != OK for row in before if row["index"] in wanted)
        taken_over = {spec.index: spec.known for spec in specs if spec.same is not None}
        n_new = 0

        def keep(rows: list[dict[str, Any]], done: int) -> None:
            nonlocal n_without, n_new
            n_new += sum(row["key"] != taken_over.get(row["index"]) for row in rows)
            if rows:
                append(rows)
            n_without += sum(row["status"] != OK for row in rows)
            if progress is not None and (rows or done == len(specs)):
                progress(done, len(specs), n_without)

        limit = study.execution.get("time_limit")
        evaluate = Evaluate(load, os.path.realpath(study.folder), version, limit, secrets.token_hex(8), codes)
        preload = [
            module for module in ("simsched.experiments.study.evaluate", load.__module__) if module != "__main__"
        ]
        memory = study.execution.get("memory_limit")
        with pool_of(executor, workers, preload=preload, memory=memory, time_limit=limit) as pool:
            Batches(specs, evaluate, pool, keep, evaluate.rows_of_lost_unit).run()
        if not specs:
            keep([], 0)
    results = replace(Results.open(path), n_new=n_new)
    results.save(path)
    return results


def _codes(study: Study, executor: str) -> dict[str, str]:
    """Return digests of the code of schedulers that are not part of this library."""
    names = dict.fromkeys(choice.scheduler for choice in study.choices)
    with refusing(study.source):
        codes = {name: code for name in names if (code := code_of(name)) is not None}
        if executor == "serial":
            for name, code in codes.items():
                require_loaded(name, code)
    return codes


def _tell_changed(study: Study, rows: store.StoredRows, codes: Mapping[str, str], folder: Path) -> None:
    """Log the schedulers whose rows are run again because their code differs, or may differ, from the rows' code."""
    schedulers = {choice.label: choice.scheduler for choice in study.choices}
    unsigned = [row for row in rows.placed if schedulers[row["scheduler"]] in codes and "code" not in row]
    for why, number in (("has changed", rows.stale), ("was not recorded", unsigned)):
        for name, n in Counter(schedulers[row["scheduler"]] for row in number).items():
            _logger.warning("%s: the code of scheduler %r %s: its rows, %d, are run again", folder, name, why, n)


def _with_names(
    specs: list[RowSpec], rows: Sequence[Mapping[str, Any]], folder: str, version: str, codes: Mapping[str, str]
) -> list[RowSpec]:
    """Return specifications of rows; a key that has a row under another name comes with that row.

    Parameters
    ----------
    rows
        That the study does not name.
    folder, version, codes
        As `Evaluate` has them.
    """
    target = cache(lambda text: target_digest(make_target(json.loads(text), folder)))
    by_key = {row["key"]: row for row in rows if row["status"] == OK}
    graphs: dict[str, dict[str, None]] = {}
    for row in by_key.values():
        graphs.setdefault(workload_of(row), {})[row["graph"]] = None
    if not graphs:
        return specs
    renamed = []
    for spec in specs:
        if spec.known is None:
            candidates = graphs.get(workload_of(spec.columns()), ())
        else:
            candidates = ()
        code = codes.get(spec.choice.scheduler)
        keys = [row_key(spec, version, graph, target(json.dumps(spec.cluster)), code) for graph in candidates]
        key = next((key for key in keys if key in by_key), None)
        renamed.append(spec if key is None else replace(spec, known=key, same=by_key[key]))
    return renamed


def _shard(given: tuple[int, int] | str | None) -> tuple[int, int] | None:
    if given is None:
        return None
    match = re.fullmatch(r"(\d+)/(\d+)", given if isinstance(given, str) else "/".join(map(str, given)))
    if match:
        i, n = map(int, match.groups())
    else:
        i = n = 0
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
            If names, root seeds, fields of the simulation or versions differ, a scheduler of yours has other code, two
        rows disagree in columns other than wall times, or a run is writing to `out`.

    Notes
    -----
    The studies may differ in schedulers, seeds, workloads, clusters and values of the simulation: `out` then covers all
    of them. Rows that no study has run are missing there, and `run_study` runs them.

    Files of shards in `out` stay in place; ``rows.jsonl`` has all their rows.
    """
    if not folders:
        raise StudyError("there are no folders to merge; give at least one")
    paths = [Path(folder) for folder in folders]
    is_there = bool(os.fspath(out)) and Path(out, store.STUDY).exists()
    if is_there and Path(out) not in paths:
        there = [Path(out)]
    else:
        there = []
    described = [store.read_study(path) for path in paths + there]
    study = described[0].study
    version = described[0].version
    code = dict[str, str]()
    for path, one in zip(paths + there, described, strict=True):
        store.require_kin(path, study, version)
        for name, digest in one.code.items():
            if code.setdefault(name, digest) != digest:
                raise StudyError(
                    f"{path}: rows of {name!r} are of other code; run it again with the code of the others"
                )
    study = join_studies([one.study for one in described])
    target = store.prepare(study, out, version, code)
    path = target / store.rows_file()
    with store.appending(path) as append:
        own = store.placed_rows([path], study, code)
        files = [file for folder in dict.fromkeys([target, *paths]) for file in store.rows_paths(folder)]
        rows = store.placed_rows(files, study, code)
        by_index = {row["index"]: row for row in own.placed}
        keys = {row["key"] for row in (*own.stale, *own.others)}
        append([row for row in rows.placed if by_index.get(row["index"]) != row])
        append([row for row in (*rows.stale, *rows.others) if row["key"] not in keys])
    results = Results.open(target)
    results.save(target)
    return results
