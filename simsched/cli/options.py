"""Arguments and options that several commands share, and the objects made from their texts.

Options that belong together are a dataclass, which a command takes as one parameter: `expand_groups` puts its fields
there.
"""

import logging
import os
import shlex
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cached_property, partial, wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import simsched as ss
from simsched.base.errors import ClusterError, FileError, FormatError, ScheduleError, SchedulerError
from simsched.base.io import read_json, reading_once, require_writable
from simsched.base.limits import LARGEST_VARIATION, MOST
from simsched.base.pairs import read_pairs, read_shapes
from simsched.cli import traces
from simsched.cli.printing import File, progress, tell

if TYPE_CHECKING:
    import hwbackend
    from simsched.model import costmodel
    from workloads.formats.kineto.facts import TraceFacts
    from workloads.formats.kineto.traced import TracedProgram

_logger = logging.getLogger(__name__)
_USUAL_GPU = "a100"
_USUAL_SCHEDULER = "lios"
_NOT_OPTIONS = ("graph", "cluster", "scheduler", "cost", "tools", "progress")  # other parameters of `simsched.schedule`
_written: list[str] = []  # files that the running command was asked to write
Text = str | None
Texts = list[str] | None
USUAL_JITTER = 0.02  # from run to run the times of matrix products vary by 1 to 2 %


def expand_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command with the fields of dataclasses, where it takes such, in the place of each.

    It reads pipes once, and does not write a file that it names twice.
    """
    typed = signature(command)
    groups: dict[str, Any] = {p.name: p.annotation for p in typed.parameters.values() if is_dataclass(p.annotation)}
    parameters = [
        parameter.replace(kind=Parameter.KEYWORD_ONLY)
        for one in typed.parameters.values()
        for parameter in (signature(groups[one.name]).parameters.values() if one.name in groups else [one])
    ]

    @wraps(command)
    def run(**values: Any) -> None:
        _require_apart(values.values())
        objects = {name: kind(**{f.name: values.pop(f.name) for f in fields(kind)}) for name, kind in groups.items()}
        with reading_once():
            command(**objects, **values)

    run.__signature__ = typed.replace(parameters=parameters)  # type: ignore[attr-defined]
    return run


def option(text: str, *names: str, **more: Any) -> Any:
    """Return an option with its help; by default it has the name of the parameter."""
    return typer.Option(*names, help=text, **more)


def file(text: str, *names: str, **more: Any) -> Any:
    """Return an option that names a file."""
    return option(text, *names, metavar="FILE", **more)


def file_option(text: str, *names: str, is_picture: bool = False) -> Any:
    """Return an option that names a file to write: one that cannot be written is refused before the command runs."""

    def note_file(path: Text) -> Text:
        if path is not None and is_picture:
            from simsched.show.paper import require_format

            require_format(path)
        if path is not None:
            require_writable(path)
            _written.append(path)
        return path

    return file(text, *names, callback=note_file)


drawn = partial(file_option, is_picture=True)
"""Return an option that names a picture to draw, in the format that its name says; see `file_option`."""


def _require_apart(values: Iterable[Any]) -> None:
    """Refuse a file that a command would write, and that it also reads or writes elsewhere."""
    texts = [text for value in values for text in (value if isinstance(value, list) else [value])]
    while _written:
        from workloads.registry import split_path

        path = _written.pop()
        named = [split_path(text)[0] or text for text in texts if isinstance(text, str)]
        if [*map(os.path.realpath, named)].count(os.path.realpath(path)) > 1:
            raise FileError(f"cannot write {path}: this command already uses the file")


def argument(metavar: str, text: str) -> Any:
    """Return an argument with its help."""
    return typer.Argument(metavar=metavar, help=text)


class IncompleteError(Exception):
    """A command is complete, but parts of it failed: rows of a study, or a check."""


class BrokenSchedulerError(Exception):
    """A scheduler of the user's that failed, as opposed to refusing a graph."""


def read_plan(text: str, shapes: list[str] | None = None) -> "ss.OpGraph | ss.Schedule | ss.Program":
    """Return a graph, schedule or program; the file's format decides which."""
    from workloads import read_spec
    from workloads.registry import read_traced

    traced = None if shapes else read_traced(text)
    if traced is not None:
        return traced.graph
    subject = read_spec(text, shapes=read_shapes(shapes))
    if not isinstance(subject, ss.OpGraph) and isinstance(subject, ss.Profile):  # not imported for graphs
        raise FormatError(f"{text}: a profile holds times, not a graph or schedule")
    return subject


def read_schedulers(text: str, graph: "ss.OpGraph", *, traced: bool = False) -> "list[str | ss.Scheduler]":
    """Return the schedulers of a comma-separated list, ``fast`` and ``all`` spelled out, each once.

    With `traced`, the first is the schedule that the profiler trace ran.
    """
    from simsched.experiments.comparison import scheduler_set

    names: list[str] = []
    for name in (part.strip() for part in text.split(",")):
        if not name:
            raise SchedulerError(f"--schedulers {text!r}: a name is empty; give fast, all, or names as in lios,greedy")
        names += map(str, scheduler_set(name, graph))
    schedulers = [read_scheduler(name) for name in dict.fromkeys(names)]
    if traced:
        from workloads.formats.kineto.replay import traced as as_traced

        schedulers.insert(0, as_traced)
    return schedulers


def read_scheduler(name: str) -> "str | ss.Scheduler":
    """Return a scheduler: its name, or the function of a ``package.module:function``.

    An error of such a function, other than a refusal of the graph, becomes a `BrokenSchedulerError`.
    """
    from simsched.schedulers import resolve

    function = resolve(read_name(name))
    if ":" not in name:
        return name

    @wraps(function)
    def run(*arguments: Any, **options: Any) -> "ss.Schedule":
        try:
            return function(*arguments, **options)
        except ScheduleError as error:  # it made a schedule that cannot be: that refuses no graph
            raise BrokenSchedulerError(f"scheduler {name!r}: {error}") from error
        except (ss.SimschedError, MemoryError):
            raise
        except Exception as error:
            raise BrokenSchedulerError(f"scheduler {name!r} raised {describe_error(error)}") from error

    run.__name__ = name
    return run


def read_name(name: str) -> str:
    """Return the name; for a ``package.module:function`` the current folder is looked into first."""
    here = str(Path.cwd())
    if ":" in name and here not in sys.path:  # `python -m` puts it there, a console script does not
        sys.path.insert(0, here)
    return name


def describe_error(error: Exception) -> str:
    """Return an unexpected error, and the place where it was raised."""
    where = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({where.filename}, line {where.lineno})"


def read_options(pairs: list[str] | None, option: str = "--option") -> dict[str, Any]:
    """Return ``name=value`` pairs as keyword arguments, see `simsched.base.pairs`; some names are no options."""
    options = read_pairs(pairs or [], option)
    wrong = next((name for name in options if name in _NOT_OPTIONS), None) if option == "--option" else None
    if wrong is not None:
        raise SchedulerError(f"{option} {wrong!r}: no scheduler has such an option")
    return options


Gpu = Annotated[
    Text,
    option(
        "Preset device, see `simsched list gpus`; or a file with its numbers, see `simsched list gpus --template`.  "
        f"[default: {_USUAL_GPU}]"
    ),
]
Gpus = Annotated[int | None, option("How many of them.  [default: 1]", min=1, max=MOST["gpus"])]
Link = Annotated[Text, option("Preset link between them; by default the card's usual one.")]
Shape = Annotated[Texts, option("Size of an input that the file leaves open; repeatable.", metavar="NAME=1,3,224,224")]
Dtype = Annotated[
    Text,
    option("Number format of the model: fp32, tf32, fp16, bf16 or fp8; by default its own, else fp32.", metavar="NAME"),
]
Option = Annotated[Texts, option("Option of the scheduler; repeatable.", metavar="NAME=VALUE")]
BackendOption = Annotated[Texts, option("Option of the backend, such as gpu=a100; repeatable.", metavar="NAME=VALUE")]
Schedulers = Annotated[str, option("fast, all, or names separated by commas.")]
Json = Annotated[bool, option("Print JSON.", "--json")]
Output = Annotated[Text, file_option("Write it to a JSON file.", "--output", "-o")]
Perfetto = Annotated[Text, file_option("Write a trace for ui.perfetto.dev.")]
Box = Annotated[Text, drawn("Draw a box plot of the samples: .png, .svg or .pdf.")]
JITTER = option("Standard deviation of operator times over their mean.", min=0, max=LARGEST_VARIATION)
Trust = Annotated[bool, option("Load a .pt2 file, which can run code of whoever wrote it.", "--trust")]
Jitter = Annotated[float | None, JITTER]
Seed = Annotated[int, option("Seed of the jitter.", min=0)]
Execution = Annotated[
    str,
    option(
        "How schedules run: own, as their schedulers mean them to; events or stages, launched by the host; or graph, "
        "captured as a CUDA graph."
    ),
]
RunSeed = Annotated[int, option("Seed of schedules drawn at random.", min=0)]
Repeats = Annotated[int, option("Measured runs of each schedule.", min=1, max=MOST["repeats"])]
Warmup = Annotated[int, option("Unmeasured runs before them.", min=0, max=MOST["warmup"])]


def _is_program(source: str) -> bool:
    return source.split(",")[0].lower().endswith(".pt2")


def trusted(source: str) -> str:
    """Return a source whose exported program, if it is one, is loaded."""
    return f"{source},trust=true" if _is_program(source) else source


@dataclass(frozen=True)
class Graph:
    """A graph."""

    graph: Annotated[
        str,
        argument(
            "GRAPH",
            "Workload name, random:layered,n_ops=200,... or a file: .json, .onnx, "
            ".pt2, my_model.py:make, .dot, ...; - is stdin.",
        ),
    ]
    shape: Shape = None
    dtype: Dtype = None
    trust: Trust = False

    @property
    def spec(self) -> str:
        """Name or file of the graph, with its number format, and whether its file is trusted."""
        spec = self.graph if self.dtype is None else f"{self.graph},dtype={self.dtype}"
        return trusted(spec) if self.trust else spec

    @property
    def backend(self) -> str:
        """The backend to measure the graph with: PyTorch's own kernels where it came from PyTorch."""
        is_python = ".py:" in self.graph.split(",")[0].lower()
        return "torch" if is_python or _is_program(self.graph) else "cupy"

    @cached_property
    def traced(self) -> "TracedProgram | None":
        """The program of a profiler trace; None for anything else."""
        from workloads.registry import read_traced

        return None if self.shape else read_traced(self.spec)

    @cached_property
    def made_for(self) -> "ss.Cluster | None":
        """The cluster in a duel's file; None for anything else."""
        from workloads.formats import format_of
        from workloads.registry import split_path

        path, _ = split_path(self.graph)
        if path is None or not Path(path).is_file():  # of a pipe nothing would be left for the graph
            return None
        data = read_json(path) if format_of(path) == "simsched" else None
        is_duel = isinstance(data, dict) and data.get("format") == "simsched.duel"
        return ss.Duel.from_dict(data, path).cluster if is_duel else None

    def read(self) -> "ss.OpGraph":
        """Return the graph."""
        from workloads import from_spec

        return from_spec(self.spec, shapes=read_shapes(self.shape)) if self.traced is None else self.traced.graph

    def require_one_rank(self) -> None:
        """Refuse to schedule the ranks of a trace anew."""
        traces.require_one_rank(self.traced, self.graph)

    def traced_facts(self, fastest_us: float | None = None) -> "TraceFacts | None":
        """Return facts about the step that a trace ran, beside the fastest alternative in us; None of anything else."""
        return traces.facts(self.traced, fastest_us)

    def traced_lines(self) -> list[str]:
        """Return lines on the dependencies of a graph that is from a profiler trace."""
        return traces.lines(self.traced)


@dataclass(frozen=True)
class ScheduledGraph(Graph):
    """A graph and its scheduler."""

    scheduler: Annotated[Text, option(f"Name, or package.module:function; {_USUAL_SCHEDULER} unless given.")] = None
    option: Option = None

    def schedule(self, graph: "ss.OpGraph", cluster: "costmodel.Target") -> "ss.Schedule":
        """Return the schedule that the scheduler makes of a graph."""
        from simsched.schedulers import takes

        options = read_options(self.option)
        name, scheduler = self.choose_scheduler()
        with progress(1) as tell:
            tell(name)
            if takes(scheduler, "progress"):
                options["progress"] = partial(tell, name)
            return ss.schedule(graph, cluster, scheduler, **options)

    def choose_scheduler(self) -> "tuple[str, str | ss.Scheduler]":
        """Return the scheduler with its name: the given one, for a trace the trace's own schedule, or the default."""
        if self.scheduler is None and self.traced is not None:
            from workloads.formats.kineto.replay import traced

            return "traced", traced
        self.require_one_rank()
        name = self.scheduler or _USUAL_SCHEDULER
        return name, read_scheduler(name)


@dataclass(frozen=True)
class PlanArguments(ScheduledGraph):
    """A schedule, or a graph and its scheduler."""

    graph: Annotated[str, argument("GRAPH|PLAN", "As GRAPH, see `simsched compare`, or a file with a schedule.")]
    execution: Execution = "own"

    @cached_property
    def _subject(self) -> "ss.OpGraph | ss.Schedule | ss.Program":
        """A workload that a name or a file denotes; a pipe is read once."""
        return read_plan(self.spec, self.shape) if self.traced is None else self.traced.graph

    @cached_property
    def made_for(self) -> "ss.Cluster | None":
        """The cluster that a file with a schedule or a duel holds; None of anything else."""
        return self._subject.cluster if isinstance(self._subject, ss.Schedule) else super().made_for

    def read_subject(self, anew: bool | None = None, *, programs: bool = False) -> Any:
        """Return a graph or schedule, or a program where `programs` is true.

        `anew`, if it can be given, asks for a new schedule.
        """
        subject = self._subject
        if (self.scheduler or self.option) and not isinstance(subject, ss.OpGraph) and not anew:
            apply = "do not apply" if anew is None else "are for --reschedule"
            raise SchedulerError(f"{self.graph} is scheduled already: --scheduler and --option {apply}")
        if isinstance(subject, ss.Program) and not programs:
            raise FormatError(f"{self.graph}: a program cannot be asked about; give the schedule that it was made from")
        return subject

    def plan(self, cluster: "costmodel.Target") -> "ss.Schedule":
        """Return the schedule."""
        subject = self.read_subject()
        plan: ss.Schedule = self.schedule(subject, cluster) if isinstance(subject, ss.OpGraph) else subject
        run: ss.Schedule = self.run_as(plan)
        return run

    def run_as(self, plan: Any) -> Any:
        """Return a schedule in the execution of --execution.

        Raises
        ------
        FormatError
            If a program is given and an execution is asked for: a program runs in one way.
        """
        from simsched.experiments.baselines import OWN, require_execution, with_execution

        if isinstance(plan, ss.Schedule):
            return with_execution(plan, self.execution)
        if require_execution(self.execution) != OWN:
            raise FormatError(f"{self.graph}: a program runs as it is; --execution is for schedules")
        return plan


@dataclass(frozen=True)
class Target:
    """The target: a preset, or a file with a cluster or a calibration."""

    gpu: Gpu = None
    gpus: Gpus = None
    link: Link = None
    cluster: Annotated[Text, file("Instead of a preset: a calibration, as `simsched calibrate` writes one.")] = None

    def read(self, source: Graph | None = None) -> "costmodel.Target":
        """Return it; where none is named, what the source ran on or was made for.

        That is the device of a profiler trace, with contention, and the cluster of a file with a schedule.

        Raises
        ------
        ClusterError
            If a file and a preset are given, or more devices than the file has and no link is known to join them.
        """
        traced = None if source is None else source.traced
        if source is not None and traced is not None:
            if not (self.gpu or self.link or self.cluster):
                traces.require_stated(traced, source.graph)
                return self._resize(traced.cluster.replace_devices(contention=True), source.graph)
            _logger.warning(
                "%s was recorded on %s: its kernels keep the times that were measured there",
                source.graph,
                traced.cluster.devices[0].model,
            )
        if source is not None and not (self.gpu or self.link or self.cluster) and source.made_for is not None:
            return self._resize(source.made_for, source.graph)
        if self.cluster is None:
            return self._devices_of_file() if self._names_file() else self._preset()
        for option, value in (("--gpu", self.gpu), ("--link", self.link)):
            if value is not None:
                raise ClusterError(f"{option} {value} is part of the preset that --cluster {self.cluster} replaces")
        from simsched.calibration import read_target

        return self._resize(read_target(self.cluster), self.cluster)

    def _names_file(self) -> bool:
        """Return whether --gpu names a file with the numbers of a GPU."""
        return self.gpu is not None and self.gpu.lower().endswith(".json")

    def _preset(self) -> "ss.Cluster":
        return ss.Cluster.preset(self.gpu or _USUAL_GPU, self.gpus or 1, link=self.link)

    def _devices_of_file(self) -> "ss.Cluster":
        """Return equal devices of the numbers that the file of --gpu holds."""
        from simsched.model.cluster import GpuSheet

        sheet = GpuSheet.load(self.gpu or "")
        return ss.Cluster.of_equal(sheet.to_device(), self.gpus or 1, link=self.link or sheet.link)

    def bare(self, source: Graph | None = None) -> "ss.Cluster":
        """Return the cluster itself, see `read`."""
        from simsched.model.costmodel import bare

        return bare(self.read(source))

    def text(self) -> str:
        """Return the options that name it, as they were typed."""
        options = (("gpu", self.gpu), ("gpus", self.gpus), ("link", self.link), ("cluster", self.cluster))
        return shlex.join(word for name, value in options if value is not None for word in (f"--{name}", str(value)))

    def _resize(self, target: "costmodel.Target", path: str) -> "costmodel.Target":
        """Return a target with as many devices as are asked for, see `resize`."""
        from simsched.model.cluster import resize
        from simsched.model.costmodel import bare, with_cluster

        if self.gpus in (None, len(bare(target))):
            return target
        try:
            return with_cluster(target, resize(bare(target), self.gpus))
        except ClusterError as error:
            raise ClusterError(f"--gpus {self.gpus}: {path}: {error}") from error


@dataclass(frozen=True)
class Compare:
    """Schedulers, and the samples that are drawn of their schedules."""

    schedulers: Schedulers = "fast"
    jitter: Jitter = None
    seed: Seed = 0
    samples: Annotated[
        int | None,
        option(
            "Simulate each schedule so often with jitter, for p50 and p99. Without --jitter it is "
            f"{USUAL_JITTER}: measured matrix products vary by 1 to 2 %.",
            min=1,
            max=MOST["samples"],
        ),
    ] = None
    execution: Execution = "own"
    baseline: Annotated[
        Text,
        option("Speedups are over this: a deployment on one stream, or a scheduler; by default one stream captured."),
    ] = None


@dataclass(frozen=True)
class BackendOptions:
    """A backend."""

    backend: Annotated[str, option("Name, see `simsched list backends`, or package.module:factory.")]
    backend_option: BackendOption = None
    virtual_devices: Annotated[
        int | None,
        option("Let one device stand for so many, to see whether it works.", min=1, max=MOST["virtual_devices"]),
    ] = None

    def make(self) -> "hwbackend.Backend":
        """Return the backend."""
        from hwbackend import get

        options = read_options(self.backend_option, "--backend-option")
        if self.virtual_devices is not None:
            options["virtual_devices"] = self.virtual_devices
        return get(read_name(self.backend), **options)


@dataclass(frozen=True)
class Pictures:
    """Pictures of a run."""

    perfetto: Perfetto = None
    gantt: Annotated[Text, drawn("Draw a Gantt chart: .png, .svg or .pdf.")] = None

    def files(self, name: str, trace: "ss.Trace") -> list[File]:
        """Return the writers of the files, for `tell`."""
        return [(name, self.perfetto, trace.to_perfetto), (name, self.gantt, trace.gantt)]


@dataclass(frozen=True)
class ResultOptions:
    """Output options of a result."""

    as_json: Json = False
    output: Output = None

    def tell(
        self,
        found: Any,
        *shown: Any,
        files: Sequence[File] = (),
        name: str = "result",
        data: Callable[[], Mapping[str, Any]] | None = None,
        ran: "TraceFacts | None" = None,
    ) -> None:
        """Write the files of a result, then print it, see `tell`; by default its fields or its table.

        Facts about what a trace ran come first.
        """
        own = (name, self.output, found.save)
        shown = shown or (found.table,)
        tell(data or found.to_dict, shown, [own, *files], as_json=self.as_json, ran=ran)
