"""The commands. Each imports what it needs when it runs, so that ``--help`` is quick."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from simsched.cli.inputs import (
    check_outputs,
    is_terminal,
    make_cluster,
    progress,
    read_graph,
    read_options,
    read_plan,
    read_scheduler,
    read_schedulers,
    timed,
)

if TYPE_CHECKING:
    from simsched.trace import Trace

app = typer.Typer(
    name="simsched",
    help="Schedule the operators of a deep-learning model on one or several GPUs, in simulation first.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_MOST_GPUS = 4096  # a slip of the finger is not simulated for days
_MOST_SAMPLES, _MOST_WORKERS = 1_000_000, 256
_USUAL_JITTER = 0.02  # from run to run the times of matrix products vary by 1 to 2 %

GraphArgument = Annotated[
    str, typer.Argument(metavar="GRAPH", help="Workload name, random:layered,n_ops=200,... or a JSON file.")
]
PlanArgument = Annotated[str, typer.Argument(metavar="GRAPH|PLAN", help="As GRAPH, or a schedule or program in JSON.")]
Gpu = Annotated[str, typer.Option("--gpu", help="Preset device; see `simsched gpus`.")]
Gpus = Annotated[int, typer.Option("--gpus", min=1, max=_MOST_GPUS, help="How many of them.")]
LinkOption = Annotated[
    str | None, typer.Option("--link", help="Preset link between them; by default the card's usual one.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Perfetto = Annotated[str | None, typer.Option("--perfetto", metavar="FILE", help="Write a trace for ui.perfetto.dev.")]
Gantt = Annotated[str | None, typer.Option("--gantt", metavar="FILE", help="Draw a Gantt chart: .png, .svg or .pdf.")]
SchedulerOption = Annotated[str, typer.Option("--scheduler", help="Name, or package.module:function.")]
MaybeScheduler = Annotated[
    str | None, typer.Option("--scheduler", help="Name, or package.module:function; lios unless given.")
]
Option = Annotated[
    list[str] | None, typer.Option("--option", metavar="NAME=VALUE", help="Option of the scheduler; repeatable.")
]
Jitter = Annotated[
    float | None,
    typer.Option("--jitter", min=0, max=1000, help="Standard deviation of operator times over their mean."),
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of the jitter.")]
Samples = Annotated[
    int | None,
    typer.Option(
        "--samples",
        min=1,
        max=_MOST_SAMPLES,
        help=f"Simulate each schedule so often with jitter, for p50 and p99. Without --jitter it is {_USUAL_JITTER}: "
        "measured matrix products vary by 1 to 2 %.",
    ),
]
Box = Annotated[
    str | None, typer.Option("--box", metavar="FILE", help="Draw a box plot of the samples: .png, .svg or .pdf.")
]
Full = Annotated[
    bool | None,
    typer.Option(
        "--full/--brief",
        help="Say where the time goes, or only what is known without the spans of a run. By default brief from a "
        "million instructions on, where spans take gigabytes, unless a picture needs them.",
    ),
]
Workers = Annotated[int, typer.Option("--workers", min=1, max=_MOST_WORKERS, help="Samples drawn at a time.")]


@app.callback(invoke_without_command=True)
def _top(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        import simsched

        print(f"simsched {simsched.__version__}")
        raise typer.Exit


@app.command()
def compare(
    graph: GraphArgument,
    gpu: Gpu = "a100",
    gpus: Gpus = 1,
    link: LinkOption = None,
    schedulers: Annotated[str, typer.Option("--schedulers", help="fast, all, or names separated by commas.")] = "fast",
    jitter: Jitter = None,
    seed: Seed = 0,
    samples: Samples = None,
    workers: Workers = 1,
    as_json: Json = False,
    perfetto: Perfetto = None,
    gantt: Gantt = None,
    box: Box = None,
) -> None:
    """Schedule GRAPH in several ways, simulate each, and print a table.

    The trace and the chart are of the schedule with the least makespan.

    With --samples, jitter is in p50, p99 and the box plot alone.
    """
    from simsched.comparison import compare
    from simsched.errors import SimulationError

    if box is not None and samples is None:
        raise SimulationError("--box draws samples: say how many with --samples")
    _check_pictures(graph, perfetto, gantt, box)
    if samples is not None and jitter is None:
        jitter = _USUAL_JITTER
    cluster, dag = make_cluster(gpu, gpus, link), read_graph(graph)
    asked = read_schedulers(schedulers, dag)
    with progress(len(asked)) as tell:
        found = compare(dag, cluster, asked, jitter=jitter, rng=seed, samples=samples, workers=workers, progress=tell)
    best, drawn = found.best(), any(path is not None for path in (perfetto, gantt, box))
    if drawn and best is not None:
        _write_pictures(found.traces[best.scheduler], perfetto, gantt)
        if box is not None:
            found.box_plot(box)
    if as_json:
        print(json.dumps(found.to_dict(), indent=1, allow_nan=False))
    else:
        _print_table(found.table())
    if drawn and best is None:
        raise SimulationError("no scheduler found a schedule: there is nothing to draw")
    if best is not None and not as_json:
        _print_pictures(best.scheduler, perfetto, gantt)
        _print_pictures("box plot", box)


@app.command()
def schedule(
    graph: GraphArgument,
    scheduler: SchedulerOption = "lios",
    gpu: Gpu = "a100",
    gpus: Gpus = 1,
    link: LinkOption = None,
    option: Option = None,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="Write the schedule to a JSON file.")
    ] = None,
    program: Annotated[
        str | None, typer.Option("--program", metavar="FILE", help="Write the lowered program too.")
    ] = None,
) -> None:
    """Schedule GRAPH and print the placements, or write them to a file that `simsched simulate` reads."""
    from simsched.io import dump_json
    from simsched.schedulers import schedule

    check_outputs(graph, output, program)
    cluster = make_cluster(gpu, gpus, link)
    plan = schedule(read_graph(graph), cluster, read_scheduler(scheduler), **read_options(option or []))
    lowered = None if program is None else plan.lower(cluster)
    if output is not None:
        plan.save(output)
    if program is not None and lowered is not None:
        lowered.save(program)
    if output is None:
        print(dump_json(plan.to_dict()), end="")
    else:
        print(f"{plan!r} written to {output}")


@app.command()
def simulate(
    plan: PlanArgument,
    scheduler: MaybeScheduler = None,
    gpu: Gpu = "a100",
    gpus: Gpus = 1,
    link: LinkOption = None,
    option: Option = None,
    threads: Annotated[str, typer.Option("--threads", help="Issuing host threads: device or one.")] = "device",
    transfers: Annotated[str, typer.Option("--transfers", help="async or blocking.")] = "async",
    events: Annotated[str, typer.Option("--events", help="Event plan: minimal or literal.")] = "minimal",
    jitter: Jitter = None,
    seed: Seed = 0,
    as_json: Json = False,
    perfetto: Perfetto = None,
    gantt: Gantt = None,
    full: Full = None,
) -> None:
    """Simulate one schedule of GRAPH, or a schedule or program read from a file, and say where its time goes."""
    from simsched.cli import summary
    from simsched.errors import SchedulerError
    from simsched.graph import OpGraph
    from simsched.program import Program
    from simsched.schedulers import schedule
    from simsched.simulator import simulate

    _check_pictures(plan, perfetto, gantt)
    cluster, found = make_cluster(gpu, gpus, link), read_plan(plan)
    seconds: dict[str, float | None] = dict.fromkeys(("scheduling", "lowering", "simulating"))
    if isinstance(found, OpGraph):
        with timed(seconds, "scheduling"):
            found = schedule(found, cluster, read_scheduler(scheduler or "lios"), **read_options(option or []))
    elif scheduler or option:
        raise SchedulerError(f"{plan} is scheduled already: --scheduler and --option do not apply")
    if not isinstance(found, Program):
        with timed(seconds, "lowering"):
            found = found.lower(cluster, threads=threads, transfers=transfers, events=events)
    with timed(seconds, "simulating"):
        trace = simulate(found, cluster, jitter=jitter, rng=seed)
    drawn = perfetto is not None or gantt is not None
    _write_pictures(trace, perfetto, gantt)
    if full is None:
        full = drawn or len(found) <= summary.LARGE
    if as_json:
        facts = summary.full(trace) if full else summary.brief(trace, seconds)
        print(json.dumps(facts, indent=1, allow_nan=False))
    else:
        _print_pairs(summary.full_text(trace) if full else summary.brief_text(trace, seconds, drawn))
        _print_pictures("trace", perfetto, gantt)


@app.command()
def show(graph: GraphArgument, gpu: Gpu = "a100", as_json: Json = False) -> None:
    """Describe GRAPH: operators, edges, width, depth, blocks, flops, and how much parallelism could give."""
    from simsched.cli.describe import describe_graph

    facts = describe_graph(read_graph(graph), make_cluster(gpu, 1, None))
    if as_json:
        print(json.dumps({name: value for name, value, _ in facts}, indent=1, allow_nan=False))
    else:
        _print_pairs([(name.replace("_", " "), text) for name, _, text in facts])


@app.command()
def workloads() -> None:
    """List the workloads and their parameters."""
    from simsched.cli.describe import workload_table

    _print_table(workload_table())


@app.command()
def gpus() -> None:
    """List the preset devices and links."""
    from simsched.cli.describe import gpu_table, link_table

    _print_table(gpu_table())
    _print_table(link_table())


def _print_table(table: Any) -> None:
    from rich.console import Console

    table.box, table.pad_edge, table.padding = None, False, (0, 2, 0, 0)
    console = Console(width=None if is_terminal() else 160)
    wide = console.options.update(max_width=160)
    for column in table.columns[:-1]:  # in the last one there may be a sentence, to be wrapped
        column.no_wrap = True
        column.min_width = max(console.measure(cell, options=wide).maximum for cell in (column.header, *column.cells))
    # a terminal that is too narrow breaks the lines: better than figures cut short
    console.width = max(console.width, console.measure(table, options=wide).minimum)
    console.print(table)


def _print_pairs(pairs: list[tuple[str, str]]) -> None:
    width = max(len(name) for name, _ in pairs)
    for name, text in pairs:
        print(f"{name:<{width}}  {text}")


def _check_pictures(source: str, perfetto: str | None, *drawings: str | None) -> None:
    from simsched.figure import require_format

    require_format(*drawings)
    check_outputs(source, perfetto, *drawings)


def _write_pictures(trace: "Trace", perfetto: str | None, gantt: str | None) -> None:
    # before anything is printed: a reader who goes away, as `head` does, costs no file
    if perfetto is not None:
        trace.to_perfetto(perfetto)
    if gantt is not None:
        trace.gantt(gantt)


def _print_pictures(name: str, *paths: str | None) -> None:
    for path in paths:
        if path is not None:
            print(f"{name} written to {path}")
