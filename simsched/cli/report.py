"""The command `report`: results of any kind as one HTML file."""

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import simsched as ss
from simsched.base.errors import FileError
from simsched.base.io import naming, read_json
from simsched.cli import options as opt
from simsched.cli import printing as out
from simsched.cli.options import Text, argument, option, written


def report(
    sources: Annotated[list[str], argument(
        "SOURCE...", "Folder of a study or validation, JSON file of ours (comparison, what-if, sweep, schedule, "
        "replay, ...), or a GRAPH, whose schedulers are compared.")],
    output: Annotated[str, written("HTML file to write.", "--output", "-o")],
    target: opt.Target,
    draws: opt.Compare,
    title: Annotated[Text, option("Title of the page.")] = None,
    shape: opt.Shape = None,
    dtype: opt.Dtype = None,
) -> None:  # fmt: skip
    """Write results as one HTML file that needs no network: tables that sort, charts that zoom.

    A GRAPH, a schedule and a program are simulated on what --gpu, --gpus,
    --link or --cluster say. With --cluster a replay stands beside what is
    predicted of it.
    """
    from simsched.show.report.page import library, replay_sections, sections_of

    graphs = [opt.Graph(source, shape, dtype) for source in sources]
    cluster = target.read(graphs[0])
    sections: list[Any] = []
    advised: list[ss.Advice] = []
    for graph in graphs:
        found = _read(graph.graph)
        if found is None:
            library()  # what is missing is said before the schedulers run
            compared, dag = draws.compare(graph, cluster), graph.read()
            names, options = opt.read_schedulers(draws.schedulers, dag), target.text()
            found = ss.advise(dag, cluster, names, comparison=compared, source=graph.spec, options=options)
            advised.append(found)
        if isinstance(found, ss.Schedule | ss.Program):
            found = ss.simulate(found, cluster)
        predicted = isinstance(found, ss.Replay) and target.cluster is not None
        with naming(graph.graph):
            sections += replay_sections(found, ss.simulate(found.program, cluster)) if predicted else sections_of(found)
    text = ss.write_report(sections, output, title=title, command=shlex.join(["simsched", *sys.argv[1:]]))
    print(f"report written to {output}, {len(text.encode()) / 1e6:.1f} MB")
    for advice in advised:
        out.print_pairs([(f"{advice.graph} on {advice.cluster}", advice.best), *advice.commands.items()])
        print("\n".join(advice.verdict))
    for line in (line for graph in graphs for line in graph.traced_lines()):
        print(line)


def _read(source: str) -> Any:
    """Return what a folder or a JSON file of ours holds; None of what is a graph, or unknown."""
    from simsched.experiments.accuracy import NAME, Accuracy
    from simsched.experiments.documents import DOCUMENTS
    from simsched.experiments.study.store import STUDY
    from workloads.formats import format_of
    from workloads.registry import split_path

    if Path(source, STUDY).exists():
        return ss.Results.open(source)
    if Path(source, NAME).exists():
        return Accuracy.load(source)
    if Path(source).is_dir():
        raise FileError(
            f"{source}: neither a study, as `simsched study run` writes one, nor a finished validation, as "
            "`simsched validate --resume FOLDER` does"
        )
    path, settings = split_path(source)
    data = read_json(path) if path is not None and not settings and format_of(path) == "simsched" else None
    kind = data.get("format") if isinstance(data, dict) else None
    if not isinstance(kind, str) or kind not in DOCUMENTS or kind == "simsched.graph":
        return None
    return DOCUMENTS[kind].from_dict(data, source)
