"""The command `report`: results of any kind as one HTML file."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from simsched.cli.inputs import check_outputs, make_cluster, progress, read_graph, read_schedulers, read_traced
from simsched.cli.options import (
    USUAL_JITTER,
    ClusterOption,
    Gpu,
    Gpus,
    Jitter,
    LinkOption,
    Samples,
    Schedulers,
    Seed,
    Shape,
    Workers,
)
from simsched.cli.printing import print_traced

if TYPE_CHECKING:
    from simsched.experiments.comparison import Comparison
    from simsched.model.calibrated import Target
    from simsched.show.report import Section


def report(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE...",
            help="Folder of a study or validation, JSON file of ours (comparison, what-if, sweep, schedule, replay, "
            "...), or a GRAPH, whose schedulers are compared.",
        ),
    ],
    output: Annotated[str, typer.Option("--output", "-o", metavar="FILE", help="HTML file to write.")],
    title: Annotated[str | None, typer.Option("--title", help="Title of the page.")] = None,
    gpu: Gpu = None,
    gpus: Gpus = None,
    link: LinkOption = None,
    target: ClusterOption = None,
    schedulers: Schedulers = "fast",
    jitter: Jitter = None,
    seed: Seed = 0,
    samples: Samples = None,
    workers: Workers = 1,
    shape: Shape = None,
) -> None:
    """Write results as one HTML file that needs no network: tables that sort, charts that zoom.

    A GRAPH, a schedule and a program are simulated on what --gpu, --gpus,
    --link or --cluster say. With --cluster a replay stands beside what is
    predicted of it.
    """
    from simsched.show.report import write_report
    from simsched.show.report.page import library

    for source in sources:
        check_outputs(source, output)
    cluster = make_cluster(gpu, gpus, link, target, source=sources[0])
    if samples is not None and jitter is None:
        jitter = USUAL_JITTER
    given = {"jitter": jitter, "rng": seed, "samples": samples, "workers": workers}
    results: list[Any] = []
    chosen: list[str] = []
    for source in sources:
        found = _read(source, cluster, predicts=target is not None)
        if found is None:
            library()  # what is missing is said before the schedulers run
            compared = _compare(source, shape, cluster, schedulers, given)
            results.append(compared)
            chosen += _named(compared)
        else:
            results += found
            chosen += [text for each in found for text in _named(each)]
    text = write_report(results, output, title=title, command=shlex.join(["simsched", *sys.argv[1:]]))
    print(f"report written to {output}, {len(text.encode()) / 1e6:.1f} MB")
    for line in chosen:
        print(line)
    for source in sources:
        print_traced(source)


def _named(result: Any) -> list[str]:
    """Return the line that names the recommended scheduler of a comparison."""
    from simsched.experiments.comparison import Comparison
    from simsched.show.report import recommended

    row = recommended(result) if isinstance(result, Comparison) else None
    return [] if row is None else [f"recommended for {result.graph.name} on {result.cluster.name}: {row.scheduler}"]


def _compare(
    source: str, shape: list[str] | None, cluster: "Target", schedulers: str, given: dict[str, Any]
) -> "Comparison":
    from simsched.experiments.comparison import compare

    graph = read_graph(source, shape)
    asked = read_schedulers(schedulers, graph, traced=read_traced(source) is not None)
    with progress(len(asked)) as tell:
        return compare(graph, cluster, asked, progress=tell, **given)


def _read(source: str, cluster: "Target", *, predicts: bool) -> list[Any] | None:
    """Return what a folder or a JSON file of ours holds; None of what is a graph, or unknown."""
    if Path(source).is_dir():
        return [_folder(source)]
    if source.endswith(".json") and Path(source).is_file():
        from simsched.base.io import read_json

        data = read_json(source)
        kind = data.get("format") if isinstance(data, dict) else None
        if isinstance(kind, str) and kind.startswith("simsched.") and kind != "simsched.graph":
            return _document(kind, data, source, cluster, predicts=predicts)
    return None


def _folder(source: str) -> Any:
    """Return the study or the validation of a folder."""
    from simsched.base.errors import FileError
    from simsched.experiments.accuracy.accuracy import NAME, load_accuracy
    from simsched.experiments.study import Results
    from simsched.experiments.study.store import STUDY

    if Path(source, STUDY).exists():
        return Results.open(source)
    if Path(source, NAME).exists():
        return load_accuracy(source)
    raise FileError(
        f"{source}: neither a study, as `simsched study run` writes one, nor a finished validation, as "
        "`simsched validate --resume FOLDER` does"
    )


def _document(kind: str, data: Any, source: str, cluster: "Target", *, predicts: bool) -> list[Any]:
    """Return what a document of ours holds."""
    from simsched.base.errors import FormatError
    from simsched.experiments import whatif
    from simsched.experiments.comparison import Comparison
    from simsched.model.profile import Replay
    from simsched.model.program import Program
    from simsched.model.schedule import Schedule
    from simsched.simulator import simulate

    results = {
        "comparison": Comparison, "whatif": whatif.Answer, "sweep": whatif.Sweep, "sensitivity": whatif.Sensitivity,
        "breakeven": whatif.BreakEven, "explanation": whatif.Explanation, "robustness": whatif.Robustness,
        "throughput": whatif.Throughput,
    }  # fmt: skip
    name = kind.removeprefix("simsched.")
    if name in results:
        made: Any = results[name]
        return [made.from_dict(data, source)]
    if name in ("schedule", "program"):
        plan: Any = Schedule if name == "schedule" else Program
        return [simulate(plan.from_dict(data, source), cluster)]
    if name == "replay":
        run = Replay.from_dict(data, source)
        return _replay(run, cluster) if predicts else [run]
    known = ", ".join([*results, "schedule", "program", "replay"])
    raise FormatError(f"{source}: no report is made of a {name} alone; of these one is: {known}")


def _replay(run: Any, cluster: "Target") -> "list[Section]":
    """Return measured runs beside what is predicted of them."""
    from simsched.show.report.of_trace import replay_sections
    from simsched.simulator import simulate

    return list(replay_sections(run, simulate(run.program, cluster)))
