"""Arguments and options that several commands have."""

from math import isnan
from typing import Annotated

import typer

_MOST_GPUS = 4096  # a slip of the finger is not simulated for days
_MOST_SAMPLES, _MOST_WORKERS = 1_000_000, 256
_MOST_REPEATS, _MOST_VIRTUAL = 100_000, 64
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
USUAL_GPU = "a100"
Gpu = Annotated[str | None, typer.Option("--gpu", help=f"Preset device; see `simsched gpus`.  [default: {USUAL_GPU}]")]
Gpus = Annotated[int | None, typer.Option("--gpus", min=1, max=_MOST_GPUS, help="How many of them.  [default: 1]")]
LinkOption = Annotated[
    str | None, typer.Option("--link", help="Preset link between them; by default the card's usual one.")
]
ClusterOption = Annotated[
    str | None,
    typer.Option(
        "--cluster", metavar="FILE", help="Instead of a preset: a calibration, as `simsched calibrate` writes one."
    ),
]
TargetFile = Annotated[
    str | None,
    typer.Option("--cluster", metavar="FILE", help="Predict it on a calibration, as `simsched calibrate` writes one."),
]
Schedulers = Annotated[str, typer.Option("--schedulers", help="fast, all, or names separated by commas.")]
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


def number(value: float | None) -> float | None:
    """Refuse NaN, which is in every range as far as typer knows."""
    if value is not None and isnan(value):
        raise typer.BadParameter("nan is not a number.")
    return value


Jitter = Annotated[
    float | None,
    typer.Option(
        "--jitter", min=0, max=1000, callback=number, help="Standard deviation of operator times over their mean."
    ),
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

BackendOption = Annotated[
    str, typer.Option("--backend", help="Name, see `simsched backends`, or package.module:factory.")
]
BackendOptions = Annotated[
    list[str] | None,
    typer.Option("--backend-option", metavar="NAME=VALUE", help="Option of the backend, such as gpu=a100; repeatable."),
]
VirtualDevices = Annotated[
    int | None,
    typer.Option(
        "--virtual-devices", min=1, max=_MOST_VIRTUAL, help="Let one device stand for so many, to see whether it works."
    ),
]
Repeats = Annotated[int, typer.Option("--repeats", min=1, max=_MOST_REPEATS, help="Measured runs of each schedule.")]
Warmup = Annotated[int, typer.Option("--warmup", min=0, max=_MOST_REPEATS, help="Unmeasured runs before them.")]
RunSeed = Annotated[int, typer.Option("--seed", min=0, help="Seed of schedules drawn at random.")]
Output = Annotated[str | None, typer.Option("--output", "-o", metavar="FILE", help="Write it to a JSON file.")]
