"""Arguments and options that several commands have."""

from typing import Annotated

import typer

_MOST_GPUS = 4096  # a slip of the finger is not simulated for days
_MOST_SAMPLES, _MOST_WORKERS = 1_000_000, 256
USUAL_JITTER = 0.02  # from run to run the times of matrix products vary by 1 to 2 %

GraphArgument = Annotated[
    str,
    typer.Argument(
        metavar="GRAPH", help="Workload name, random:layered,n_ops=200,... or a file: .json, .onnx, .dot, ..."
    ),
]
PlanArgument = Annotated[
    str, typer.Argument(metavar="GRAPH|PLAN", help="As GRAPH, or a file with a schedule or program.")
]
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
        help=f"Simulate each schedule so often with jitter, for p50 and p99. Without --jitter it is {USUAL_JITTER}: "
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
Shape = Annotated[
    list[str] | None,
    typer.Option("--shape", metavar="NAME=1,3,224,224", help="Size of an input that the file leaves open; repeatable."),
]
