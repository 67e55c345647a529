"""Commands that schedule and simulate."""

import json
from typing import Annotated

import typer

from simsched.cli.inputs import (
    check_outputs,
    make_cluster,
    make_plan,
    progress,
    read_graph,
    read_plan,
    read_schedulers,
    read_traced,
    timed,
)
from simsched.cli.options import (
    USUAL_JITTER,
    Box,
    ClusterOption,
    Full,
    Gantt,
    Gpu,
    Gpus,
    GraphArgument,
    Jitter,
    Json,
    LinkOption,
    MaybeScheduler,
    Option,
    Output,
    Perfetto,
    PlanArgument,
    Samples,
    SchedulerOption,
    Schedulers,
    Seed,
    Shape,
    Workers,
)
from simsched.cli.printing import (
    check_pictures,
    print_pairs,
    print_pictures,
    print_table,
    print_traced,
    trace_facts,
    write_pictures,
)


def compare(
    graph: GraphArgument,
    gpu: Gpu = None,
    gpus: Gpus = None,
    link: LinkOption = None,
    target: ClusterOption = None,
    schedulers: Schedulers = "fast",
    jitter: Jitter = None,
    seed: Seed = 0,
    samples: Samples = None,
    workers: Workers = 1,
    as_json: Json = False,
    perfetto: Perfetto = None,
    gantt: Gantt = None,
    box: Box = None,
    output: Output = None,
    shape: Shape = None,
) -> None:
    """Schedule GRAPH in several ways, simulate each, and print a table.

    The trace and the chart are of the schedule with the least makespan.

    With --samples, jitter is in p50, p99 and the box plot alone.

    --json prints the table; --output writes schedules and cluster too, for
    `simsched report`.
    """
    from simsched.base.errors import SimulationError
    from simsched.experiments.comparison import compare

    if box is not None and samples is None:
        raise SimulationError("--box draws samples: say how many with --samples")
    check_pictures(graph, perfetto, gantt, box, output=output)
    if samples is not None and jitter is None:
        jitter = USUAL_JITTER
    cluster, dag = make_cluster(gpu, gpus, link, target, source=graph), read_graph(graph, shape)
    asked = read_schedulers(schedulers, dag, traced=read_traced(graph) is not None)
    with progress(len(asked)) as tell:
        found = compare(dag, cluster, asked, jitter=jitter, rng=seed, samples=samples, workers=workers, progress=tell)
    best, drawn = found.best(), any(path is not None for path in (perfetto, gantt, box))
    if drawn and best is not None:
        write_pictures(found.traces[best.scheduler], perfetto, gantt)
        if box is not None:
            found.box_plot(box)
    if output is not None and (best is not None or not drawn):
        found.save(output)
    if as_json:
        print(json.dumps(found.summary() | trace_facts(graph), indent=1, allow_nan=False))
    else:
        print_table(found.table())
        print_traced(graph)
    if drawn and best is None:
        raise SimulationError("no scheduler found a schedule: there is nothing to draw")
    if best is not None and not as_json:
        print_pictures(best.scheduler, perfetto, gantt)
        print_pictures("box plot", box)
    if not as_json:
        print_pictures("comparison", output)


def schedule(
    graph: GraphArgument,
    scheduler: SchedulerOption = "lios",
    gpu: Gpu = None,
    gpus: Gpus = None,
    link: LinkOption = None,
    target: ClusterOption = None,
    option: Option = None,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="Write the schedule to a JSON file.")
    ] = None,
    program: Annotated[
        str | None, typer.Option("--program", metavar="FILE", help="Write the lowered program too.")
    ] = None,
    shape: Shape = None,
) -> None:
    """Schedule GRAPH and print the placements, or write them to a file that `simsched simulate` reads."""
    from simsched.base.io import dump_json

    check_outputs(graph, output, program)
    cluster = make_cluster(gpu, gpus, link, target, source=graph)
    plan = make_plan(read_graph(graph, shape), cluster, scheduler, option)
    lowered = None if program is None else plan.lower(cluster)
    if output is not None:
        plan.save(output)
    if program is not None and lowered is not None:
        lowered.save(program)
    if output is None:
        print(dump_json(plan.to_dict()), end="")
    else:
        print(f"{plan!r} written to {output}")


def simulate(
    plan: PlanArgument,
    scheduler: MaybeScheduler = None,
    gpu: Gpu = None,
    gpus: Gpus = None,
    link: LinkOption = None,
    target: ClusterOption = None,
    option: Option = None,
    threads: Annotated[str, typer.Option("--threads", help="Issuing host threads: device or one.")] = "device",
    transfers: Annotated[str, typer.Option("--transfers", help="async or blocking.")] = "async",
    events: Annotated[
        str | None, typer.Option("--events", help="Event plan: minimal or literal; by default the schedule's own.")
    ] = None,
    jitter: Jitter = None,
    seed: Seed = 0,
    as_json: Json = False,
    perfetto: Perfetto = None,
    gantt: Gantt = None,
    full: Full = None,
    shape: Shape = None,
) -> None:
    """Simulate one schedule of GRAPH, or a schedule or program read from a file, and say where its time goes."""
    from simsched.base.errors import SchedulerError
    from simsched.cli import summary
    from simsched.model.graph import OpGraph
    from simsched.model.program import Program
    from simsched.simulator import simulate

    check_pictures(plan, perfetto, gantt)
    cluster, found = make_cluster(gpu, gpus, link, target), read_plan(plan, shape)
    seconds: dict[str, float | None] = dict.fromkeys(("scheduling", "lowering", "simulating"))
    if isinstance(found, OpGraph):
        with timed(seconds, "scheduling"):
            found = make_plan(found, cluster, scheduler or "lios", option)
    elif scheduler or option:
        raise SchedulerError(f"{plan} is scheduled already: --scheduler and --option do not apply")
    if not isinstance(found, Program):
        with timed(seconds, "lowering"):
            found = found.lower(cluster, threads=threads, transfers=transfers, events=events)
    with timed(seconds, "simulating"):
        trace = simulate(found, cluster, jitter=jitter, rng=seed)
    drawn = perfetto is not None or gantt is not None
    write_pictures(trace, perfetto, gantt)
    if full is None:
        full = drawn or len(found) <= summary.LARGE
    if as_json:
        facts = summary.full(trace) if full else summary.brief(trace, seconds)
        print(json.dumps(facts, indent=1, allow_nan=False))
    else:
        print_pairs(summary.full_text(trace) if full else summary.brief_text(trace, seconds, drawn))
        print_pictures("trace", perfetto, gantt)
