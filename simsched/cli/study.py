"""Commands of `simsched study`: many graphs, clusters and schedulers, resumable."""

import sys
from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

import simsched as ss
from simsched.base.errors import FileError, StudyError
from simsched.base.io import write_file
from simsched.base.limits import MOST
from simsched.cli import options as opt
from simsched.cli import printing as out
from simsched.cli.options import IncompleteError, Text, argument, drawn, file_option, option, read_name
from simsched.experiments.study.evaluate import FAILED, TIMEOUT

study = typer.Typer(name="study", help="Run many graphs, clusters and schedulers; resumable.", no_args_is_help=True)

Folder = Annotated[str, argument("FOLDER", "Folder of a study, as `simsched study run` makes one.")]


@dataclass(frozen=True)
class Execution:
    """Options of the execution of a study's rows."""

    workers: Annotated[
        int | None, option("Processes at a time.  [default: one per core]", min=1, max=MOST["workers"])
    ] = None
    serial: Annotated[bool, option("Row after row in this process.", "--serial")] = False
    dask: Annotated[
        Text, option("Run on a Dask cluster: tcp://host:port, or local for one made here.", metavar="ADDRESS")
    ] = None
    shard: Annotated[
        Text, option("Part I of N alone, counted from 0 or from 1, into rows of its own; then `merge`.", metavar="I/N")
    ] = None
    retry: Annotated[bool, option("Run rows without a result again.", "--retry")] = False

    def run(self, asked: Any, folder: str) -> None:
        """Run a study and print its results."""
        from workloads import check_kind, load_kind

        dask = self.dask
        workers = self.workers
        if self.serial and (dask is not None or workers is not None):
            raise StudyError("--serial runs in this process: it does not go with --dask or --workers")
        if dask not in (None, "local") and workers is not None:
            raise StudyError(f"--workers: the Dask cluster at {dask} has as many as it has")
        if self.serial:
            executor = "serial"
        else:
            executor = {None: "processes", "local": "dask"}.get(dask) or str(dask)
        # user schedulers are searched for in the current folder, then in the folder of the study's file
        names = [read_name(choice.scheduler) for choice in asked.choices if ":" in choice.scheduler]
        if names and asked.folder not in sys.path:
            sys.path.append(asked.folder)
        with out.row_progress(asked.name) as tell:
            results = ss.run_study(
                asked,
                folder,
                load=load_kind,
                check=check_kind,
                executor=executor,
                workers=workers,
                shard=self.shard,
                progress=tell,
                retry=self.retry,
            )
        out.print_table(results.table())
        n_before = len(results.rows) - (results.n_new or 0)
        if n_before:
            facts = [("run now", f"{results.n_new}, and {n_before} were there")]
        else:
            facts = []
        if results.others:
            left_over = [("left over", results.left_over)]
        else:
            left_over = []
        rows = f"{len(results.rows)} of {len(results)}"
        out.print_pairs([*facts, ("rows", rows), *left_over, ("folder", folder)])
        _require_all(results)


def _require_all(found: "ss.Results") -> None:
    """Raise if rows failed or timed out, with their number and the first one's reason; refusals do not count."""
    counts = Counter(row["status"] for row in found.rows)
    causes = [
        f"{counts[status]} {word}" for status, word in ((FAILED, "failed"), (TIMEOUT, "timed out")) if counts[status]
    ]
    if causes:
        first = next(row for row in found.rows if row["status"] in (FAILED, TIMEOUT))
        where = f"row {first['index']} ({first['scheduler']})"
        raise IncompleteError(f"of {len(found)} rows {' and '.join(causes)}; the first is {where}: {first['reason']}")


@study.command()
@opt.expand_groups
def run(
    file: Annotated[str, argument("FILE", "Study file: .toml.")],
    output: Annotated[str, option("Where its rows are kept.", "--output", "-o", metavar="FOLDER")],
    how: Execution,
) -> None:
    """Run the missing rows of a study, and print its results."""
    how.run(ss.Study.from_file(file), output)


@study.command()
@opt.expand_groups
def resume(folder: Folder, how: Execution) -> None:
    """Continue a study that was stopped: the configuration is the one in its folder."""
    how.run(ss.Results.open(folder).study, folder)


@study.command()
@opt.expand_groups
def status(folder: Folder) -> None:
    """Show how many rows are done, missing, refused, failed or out of time."""
    out.print_table(ss.Results.open(folder).status())


@study.command()
@opt.expand_groups
def table(
    folder: Folder,
    csv: Annotated[bool, option("All rows as CSV, deterministic columns only.", "--csv")] = False,
    output: Annotated[Text, file_option("Write all rows: .csv, .json or .parquet.", "--output", "-o")] = None,
) -> None:
    """Print means and standard deviations over the seeds, or every row as CSV."""
    results = ss.Results.open(folder)
    if output is not None:
        forms: dict[str, Any] = {
            ".csv": partial(results.to_csv, False),
            ".json": results.to_json,
            ".parquet": results.to_parquet,
        }
        if Path(output).suffix not in forms:
            raise FileError(f"{output}: the name must end in one of {', '.join(forms)}")
        write_file(output, forms[Path(output).suffix]())
    if csv:
        out.say(*results.to_csv().splitlines())
    else:
        out.print_table(results.table())


@study.command()
@opt.expand_groups
def plot(
    folder: Folder,
    output: Annotated[Text, option("Where to.  [default: FOLDER/figures]", "--output", "-o", metavar="FOLDER")] = None,
    form: Annotated[str, option("png, svg or pdf.", "--format")] = "png",
) -> None:
    """Draw the figures that the study asks for, or usual ones."""
    for path in ss.Results.open(folder).plot(output, format=form):
        out.say(f"figure written to {path}")


@study.command()
@opt.expand_groups
def rank(
    folder: Folder,
    by: Annotated[str, option("Columns to group by, such as kind,n_ops.")] = "",
    metric: Annotated[str, option("makespan, speedup or search_s.")] = "makespan",
    baseline: Annotated[Text, option("Scheduler that ratios are to.  [default: sequential, else the first]")] = None,
    seed: Annotated[int, option("Seed of the bootstrap.", min=0)] = 0,
    pairs: Annotated[bool, option("Also every pair of schedulers.", "--pairs")] = False,
    tex: Annotated[Text, file_option("Write the table as LaTeX (booktabs).")] = None,
    plot: Annotated[Text, drawn("Draw performance profiles and critical differences: .png, .svg or .pdf.")] = None,
    as_json: opt.Json = False,
) -> None:
    """Show which scheduler wins, by how much, and whether that may be chance.

    Blocks are instances: workload, seed, cluster and simulation. Blocks in which a scheduler has no result are left
    out, and counted.
    """
    columns = [name.strip() for name in by.split(",") if name.strip()]
    ranking = ss.Results.open(folder).rank(columns, metric, baseline=baseline, rng=seed)
    data = {
        "study": ranking.name,
        "metric": ranking.metric,
        "baseline": ranking.baseline,
        "rows": ranking.records(),
        "pairs": ranking.pair_records(),
        "notes": ranking.notes(),
    }
    shown = [ranking.table, *(["", ranking.pairs_table] if pairs else [])]
    out.tell(lambda: data, shown, [("table", tex, ranking.save_tex), ("picture", plot, ranking.plot)], as_json=as_json)


@study.command()
@opt.expand_groups
def merge(
    folders: Annotated[list[str], argument("FOLDER...", "Folders of one study, or of its shards.")],
    output: Annotated[str, option("Where the rows of all go.", "--output", "-o", metavar="FOLDER")],
) -> None:
    """Join the rows of shards, or of runs on several machines."""
    from simsched.experiments.study import merge

    merged = merge(folders, output)
    out.say(f"{len(merged.rows)} rows of {merged.study.name} written to {output}")
