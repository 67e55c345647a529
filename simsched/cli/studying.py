"""Commands of `simsched study`: many graphs, clusters and schedulers, resumable."""

from typing import Annotated, Any

import typer

from simsched.cli.printing import print_pairs, print_table

study = typer.Typer(
    name="study", help="Run many graphs, clusters and schedulers, and see what comes of it.", no_args_is_help=True
)

Folder = Annotated[str, typer.Argument(metavar="FOLDER", help="Folder of a study, as `simsched study run` makes one.")]
Workers = Annotated[
    int | None, typer.Option("--workers", min=1, max=4096, help="Processes at a time.  [default: one per core]")
]
Serial = Annotated[bool, typer.Option("--serial", help="Row after row in this process.")]
DaskOption = Annotated[
    str | None,
    typer.Option(
        "--dask", metavar="ADDRESS", help="Run on a Dask cluster: tcp://host:port, or local for one made here."
    ),
]
Shard = Annotated[
    str | None,
    typer.Option(
        "--shard",
        metavar="I/N",
        help="Part I of N alone, counted from 0 or from 1, into rows of its own; then `merge`.",
    ),
]
Retry = Annotated[bool, typer.Option("--retry", help="Run rows that failed or took too long again.")]


@study.command()
def run(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Study file: .toml.")],
    output: Annotated[str, typer.Option("--output", "-o", metavar="FOLDER", help="Where its rows are kept.")],
    workers: Workers = None,
    serial: Serial = False,
    dask: DaskOption = None,
    shard: Shard = None,
    retry: Retry = False,
) -> None:
    """Run what is missing of a study, and say what came of it."""
    from simsched.experiments.study import Study

    _run(Study.from_file(file), output, workers, serial, dask, shard, retry)


@study.command()
def resume(
    folder: Folder,
    workers: Workers = None,
    serial: Serial = False,
    dask: DaskOption = None,
    shard: Shard = None,
    retry: Retry = False,
) -> None:
    """Go on with a study that was stopped: the configuration is the one in its folder."""
    from simsched.experiments.study import Results

    _run(Results.open(folder).study, folder, workers, serial, dask, shard, retry)


@study.command()
def status(folder: Folder) -> None:
    """Say how many rows are done, missing, refused, failed or out of time."""
    from simsched.experiments.study import Results

    found = Results.open(folder)
    print_table(found.status())


@study.command()
def table(
    folder: Folder,
    csv: Annotated[bool, typer.Option("--csv", help="All rows as CSV, deterministic columns only.")] = False,
) -> None:
    """Print means and standard deviations over the seeds, or every row as CSV."""
    from simsched.experiments.study import Results

    found = Results.open(folder)
    if csv:
        print(found.to_csv(), end="")
    else:
        print_table(found.table())


@study.command()
def plot(
    folder: Folder,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FOLDER", help="Where to.  [default: FOLDER/figures]")
    ] = None,
    form: Annotated[str, typer.Option("--format", help="png, svg or pdf.")] = "png",
) -> None:
    """Draw the figures that the study asks for, or those that suit it."""
    from simsched.experiments.study import Results

    for path in Results.open(folder).plot(output, format=form):
        print(f"figure written to {path}")


@study.command()
def merge(
    folders: Annotated[list[str], typer.Argument(metavar="FOLDER...", help="Folders of one study, or of its shards.")],
    output: Annotated[str, typer.Option("--output", "-o", metavar="FOLDER", help="Where the rows of all go.")],
) -> None:
    """Join the rows of shards, or of runs on several machines."""
    from simsched.experiments.study import merge

    found = merge(folders, output)
    print(f"{len(found.rows)} rows of {found.study.name} written to {output}")


def _look_for_schedulers(asked: Any) -> None:
    """Let those of the user's be found: in the current folder, else in that of the study's file."""
    import sys

    from simsched.cli.inputs import read_scheduler

    names = [choice.scheduler for choice in asked.choices if ":" in choice.scheduler]
    for name in names:
        read_scheduler(name)
    if names and asked.folder not in sys.path:
        sys.path.append(asked.folder)


def _run(
    asked: Any, folder: str, workers: int | None, serial: bool, dask: str | None, shard: str | None, retry: bool
) -> None:
    """Run a study and print what came of it."""
    from simsched.base.errors import StudyError
    from simsched.cli.watching import watched
    from simsched.experiments.study import run_study
    from workloads import check_kind, load_kind

    if serial and (dask is not None or workers is not None):
        raise StudyError(f"--serial runs in this process: it does not go with {'--dask' if dask else '--workers'}")
    if dask is not None and workers is not None and dask != "local":
        raise StudyError(f"--workers: the Dask cluster at {dask} has as many as it has")
    if dask is not None and dask != "local" and "://" not in dask:
        raise StudyError(f"--dask {dask!r} is no address: give tcp://host:port, or local")
    executor = "serial" if serial else "processes" if dask is None else "dask" if dask == "local" else dask
    _look_for_schedulers(asked)
    with watched(asked.name) as tell:
        found = run_study(
            asked, folder, load=load_kind, check=check_kind, executor=executor, workers=workers, shard=shard,
            progress=tell, retry=retry,
        )  # fmt: skip
    print_table(found.table())
    print_pairs([("rows", f"{len(found.rows)} of {len(found)}"), ("folder", folder)])
