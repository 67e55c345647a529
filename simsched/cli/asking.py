"""Commands that ask: what if, over a range, how sensitive, why, from where on, how robust, how many per second."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from simsched.cli.inputs import check_outputs, make_cluster, progress, read_graph, read_schedulers
from simsched.cli.options import (
    USUAL_JITTER,
    Box,
    ClusterOption,
    Gpu,
    Gpus,
    GraphArgument,
    Json,
    LinkOption,
    MaybeScheduler,
    Option,
    Output,
    Seed,
    Shape,
    Workers,
    number,
)
from simsched.cli.printing import check_pictures, print_pairs, print_pictures, print_table
from simsched.cli.questions import make_plan_of, make_question, read_parameter, read_side, read_values

if TYPE_CHECKING:
    from simsched.experiments.whatif import Answer

_MOST_IN_FLIGHT, _MOST_SAMPLES = 4096, 1_000_000

Asked = Annotated[
    str, typer.Argument(metavar="GRAPH|PLAN", help="As GRAPH, see `simsched compare`, or a file with a schedule.")
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="CHANGE",
        help="PARAMETER*=FACTOR or PARAMETER=VALUE: link.bandwidth*=2, gpus=4, device=h100, overhead.launch=5us, "
        "operators.conv.speed*=1.3, batch=16, ...; repeatable.",
    ),
]
Fuse = Annotated[
    list[str] | None, typer.Option("--fuse", metavar="A,B,...", help="Make one operator of these; repeatable.")
]
Remove = Annotated[
    list[str] | None, typer.Option("--remove", metavar="A,...", help="Take these operators out; repeatable.")
]
Reschedule = Annotated[bool, typer.Option("--reschedule", help="Make the plan anew after the changes.")]
Parameter = Annotated[
    str,
    typer.Argument(metavar="PARAMETER", help="Such as link.bandwidth, gpus or overhead.launch; see --set of whatif."),
]
Plot = Annotated[str | None, typer.Option("--plot", metavar="FILE", help="Draw it: .png, .svg or .pdf.")]


def whatif(
    plan: Asked,
    changes: Set = None,
    fuse: Fuse = None,
    remove: Remove = None,
    reschedule: Reschedule = False,
    scheduler: MaybeScheduler = None,
    option: Option = None,
    gpu: Gpu = None,
    gpus: Gpus = None,
    link: LinkOption = None,
    target: ClusterOption = None,
    as_json: Json = False,
    output: Output = None,
    shape: Shape = None,
) -> None:
    """Say what would be if something were different: makespan and where the time goes, before and after.

    With --reschedule it is also said how much comes from making the plan anew.
    """
    check_outputs(plan, output)
    cluster = make_cluster(gpu, gpus, link, target)
    asked = make_question(
        plan, shape, cluster, changes=changes, fuse=fuse, remove=remove, reschedule=reschedule, scheduler=scheduler,
        option=option,
    )  # fmt: skip
    answer = asked.answer()
    said = _short(answer) if as_json else answer.table()
    if output is not None:
        answer.save(output)
    if as_json:
        print(said, end="")
        return
    print_table(said)
    print_pairs([("before", _shares(answer.blame_before)), ("after", _shares(answer.blame))])
    print_pictures("answer", output)


def _short(answer: "Answer") -> str:
    """Return an answer as JSON without its schedules and clusters, which are for files."""
    from simsched.base.io import dump_json

    return dump_json({key: value for key, value in answer.to_dict().items() if key not in ("before", "kept", "after")})


def _shares(blame: Mapping[str, float]) -> str:
    """Return what the time of a critical path goes to in per cent."""
    total = sum(blame.values())
    return ", ".join(f"{name} {100 * us / total:.1f} %" for name, us in blame.items() if us > 0) or "-"


def sweep(
    plan: Asked,
    parameter: Parameter,
    values: Annotated[
        str,
        typer.Argument(metavar="VALUES", help="Factors 0.5,1,2, or values =5us,=10us or 300GB/s,600GB/s; gpus 1,2,4."),
    ],
    parameter2: Annotated[str | None, typer.Argument(metavar="PARAMETER2", help="A second one.")] = None,
    values2: Annotated[str | None, typer.Argument(metavar="VALUES2", help="Its values.")] = None,
    changes: Set = None,
    reschedule: Reschedule = False,
    scheduler: MaybeScheduler = None,
    option: Option = None,
    gpu: Gpu = None,
    gpus: Gpus = None,
    link: LinkOption = None,
    target: ClusterOption = None,
    plot: Plot = None,
    as_json: Json = False,
    output: Output = None,
    shape: Shape = None,
) -> None:
    """Say how the makespan changes with a parameter, or with two."""
    from simsched.base.errors import WhatIfError
    from simsched.experiments.whatif import sweep

    check_pictures(plan, output, plot)
    if parameter2 is not None and values2 is None:
        raise WhatIfError(f"PARAMETER2 {parameter2!r} has no values: give them after it")
    first = read_parameter(parameter, plan)
    second = None if parameter2 is None else read_parameter(parameter2, plan)
    given, given2 = read_values(first, values), None
    if second is not None and values2 is not None:
        given2 = read_values(second, values2)
    cluster = make_cluster(gpu, gpus, link, target)
    asked = make_question(
        plan, shape, cluster, changes=changes, reschedule=reschedule, scheduler=scheduler, option=option
    )
    _tell(sweep(asked, first, given, second, given2), as_json, output, plot)


def sensitivity(
    plan: Asked,
    changes: Set = None,
    per_operator: Annotated[bool, typer.Option("--per-operator", help="Also to the time of each operator.")] = False,
    reschedule: Reschedule = False,
    scheduler: MaybeScheduler = None,
    option: Option = None,
    gpu: Gpu = None,
    gpus: Gpus = None,
    link: LinkOption = None,
    target: ClusterOption = None,
    tornado: Annotated[
        str | None, typer.Option("--tornado", metavar="FILE", help="Draw a tornado chart: .png, .svg or .pdf.")
    ] = None,
    as_json: Json = False,
    output: Output = None,
    shape: Shape = None,
) -> None:
    """Say how much the makespan changes with each parameter, per cent for per cent, and rank them."""
    from simsched.experiments.whatif import sensitivity

    check_pictures(plan, output, tornado)
    cluster = make_cluster(gpu, gpus, link, target)
    asked = make_question(
        plan, shape, cluster, changes=changes, reschedule=reschedule, scheduler=scheduler, option=option
    )
    _tell(sensitivity(asked, per_operator=per_operator), as_json, output, tornado, draw="tornado")


def explain(
    plan: Asked,
    scheduler: MaybeScheduler = None,
    option: Option = None,
    gpu: Gpu = None,
    gpus: Gpus = None,
    link: LinkOption = None,
    target: ClusterOption = None,
    as_json: Json = False,
    output: Output = None,
    shape: Shape = None,
) -> None:
    """Say in words what bounds a schedule, and which three changes would help most."""
    from simsched.experiments.whatif import explain

    check_outputs(plan, output)
    cluster = make_cluster(gpu, gpus, link, target)
    found = explain(make_plan_of(plan, shape, cluster, scheduler, option), cluster)
    if as_json:
        _tell(found, as_json, output)
    else:
        if output is not None:
            found.save(output)
        print(found)
        print_pictures("result", output)


def breakeven(
    graph: GraphArgument,
    parameter: Parameter,
    first: Annotated[str, typer.Argument(metavar="A", help="Scheduler, or a file with a schedule.")],
    second: Annotated[str, typer.Argument(metavar="B", help="As A. Schedulers make their plan anew for each value.")],
    low: Annotated[float, typer.Option("--low", help="Least factor of the parameter.")] = 1 / 64,
    high: Annotated[float, typer.Option("--high", help="Largest factor.")] = 64.0,
    gpu: Gpu = None,
    gpus: Gpus = None,
    link: LinkOption = None,
    target: ClusterOption = None,
    plot: Plot = None,
    as_json: Json = False,
    output: Output = None,
    shape: Shape = None,
) -> None:
    """Say at which values of a parameter the better one of two schedules of GRAPH changes."""
    from simsched.experiments.whatif import breakeven

    check_pictures(graph, output, plot)
    for side in (first, second):
        check_outputs(side, output, plot)
    cluster, dag = make_cluster(gpu, gpus, link, target), read_graph(graph, shape)
    sides = read_side(first), read_side(second)
    _tell(breakeven(parameter, *sides, cluster, low=low, high=high, graph=dag), as_json, output, plot)


def throughput(
    plan: Asked,
    in_flight: Annotated[
        int, typer.Option("--in-flight", min=1, max=_MOST_IN_FLIGHT, help="Requests under way at a time.")
    ] = 1,
    scheduler: MaybeScheduler = None,
    option: Option = None,
    gpu: Gpu = None,
    gpus: Gpus = None,
    link: LinkOption = None,
    target: ClusterOption = None,
    as_json: Json = False,
    output: Output = None,
    shape: Shape = None,
) -> None:
    """Say how many requests a schedule serves per second when one follows the other."""
    from simsched.experiments.whatif import throughput

    check_outputs(plan, output)
    cluster = make_cluster(gpu, gpus, link, target)
    _tell(throughput(make_plan_of(plan, shape, cluster, scheduler, option), cluster, in_flight), as_json, output)


def robust(
    graph: GraphArgument,
    schedulers: Annotated[str, typer.Option("--schedulers", help="fast, all, or names separated by commas.")] = "fast",
    jitter: Annotated[
        float,
        typer.Option(
            "--jitter", min=0, max=1000, callback=number, help="Standard deviation of operator times over their mean."
        ),
    ] = USUAL_JITTER,
    samples: Annotated[int, typer.Option("--samples", min=1, max=_MOST_SAMPLES, help="Runs of each schedule.")] = 1000,
    seed: Seed = 0,
    workers: Workers = 1,
    gpu: Gpu = None,
    gpus: Gpus = None,
    link: LinkOption = None,
    target: ClusterOption = None,
    box: Box = None,
    as_json: Json = False,
    output: Output = None,
    shape: Shape = None,
) -> None:
    """Say which schedule of GRAPH is best when operator times vary: medians, tails, and how often each is quickest."""
    from simsched.base.errors import SchedulerError
    from simsched.experiments.comparison import compare
    from simsched.experiments.whatif import robust

    check_pictures(graph, output, box)
    cluster, dag = make_cluster(gpu, gpus, link, target), read_graph(graph, shape)
    asked = read_schedulers(schedulers, dag)
    with progress(len(asked)) as tell:
        compared = compare(dag, cluster, asked, progress=tell)
    refused = [f"{row.scheduler}: no schedule: {row.reason}" for row in compared.rows if row.reason is not None]
    if not compared.plans:
        raise SchedulerError(f"no scheduler found a schedule; {refused[0]}")
    found = robust(compared.plans, cluster, jitter=jitter, samples=samples, rng=seed, workers=workers)
    _tell(found, as_json, output, box, draw="box_plot", notes=refused)


def _tell(
    found: Any,
    as_json: bool,
    output: str | None,
    picture: str | None = None,
    *,
    draw: str = "plot",
    notes: list[str] | None = None,
) -> None:
    """Write the files of a result, then print it."""
    from simsched.base.io import dump_json

    said = dump_json(found.to_dict()) if as_json else found.table()  # what goes wrong does so before a file is written
    if picture is not None:
        getattr(found, draw)(picture)
    if output is not None:
        found.save(output)
    if as_json:
        print(said, end="")
        return
    print_table(said)
    for note in notes or []:
        print(note)
    print_pictures("result", output)
    print_pictures("picture", picture)
