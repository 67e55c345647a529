"""From what is typed to graphs, clusters, schedulers, plans and files to write."""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from tempfile import TemporaryFile
from time import perf_counter
from typing import TYPE_CHECKING, Any, cast

from simsched.base.errors import BackendError, ClusterError, FileError, FormatError, GraphError, SchedulerError
from simsched.cli.options import USUAL_GPU

if TYPE_CHECKING:
    from hwbackend import Backend
    from simsched.model.calibrated import Target
    from simsched.model.graph import OpGraph
    from simsched.model.profile import Profile
    from simsched.model.program import Program
    from simsched.model.schedule import Schedule
    from simsched.schedulers import Scheduler
    from workloads.formats.kineto_traced import TracedProgram

_SIZE = re.compile(r"[1-9][0-9]{0,17}")
_NOT_OPTIONS = ("graph", "cluster", "scheduler", "cost", "tools", "progress")  # what `simsched.schedule` takes besides


def read_shapes(texts: list[str] | None) -> dict[str, tuple[int, ...]]:
    """Return the shapes that ``--shape NAME=1,3,224,224`` gives, by name of the input."""
    shapes: dict[str, tuple[int, ...]] = {}
    for text in texts or []:
        name, equals, sizes = text.rpartition("=")
        parts = [part.strip() for part in sizes.split(",")]
        if not equals or not name or not all(_SIZE.fullmatch(part) for part in parts):
            raise GraphError(f"--shape {text[:60]!r}: give NAME=1,3,224,224, sizes of at least 1")
        if name in shapes:
            raise GraphError(f"--shape: input {name!r} is given twice")
        shapes[name] = tuple(map(int, parts))
    return shapes


def read_graph(text: str, shapes: list[str] | None = None) -> "OpGraph":
    """Return the graph that a workload name, a ``random:...`` specification or a file stands for."""
    from workloads import from_spec

    traced = None if shapes else read_traced(text)
    return from_spec(text, shapes=read_shapes(shapes)) if traced is None else traced.graph


@lru_cache(maxsize=1)
def read_traced(text: str) -> "TracedProgram | None":
    """Return the program of a profiler trace, with options of its reader behind the path; None for anything else."""
    from workloads.registry import read_traced

    return read_traced(text)


def read_plan(text: str, shapes: list[str] | None = None) -> "OpGraph | Schedule | Program":
    """Return a graph, schedule or program; a file says by its format which of them it holds."""
    from simsched.model.graph import OpGraph
    from workloads import read_spec

    found = read_spec(text, shapes=read_shapes(shapes))
    if isinstance(found, OpGraph):
        return found
    from simsched.model.profile import Profile

    if isinstance(found, Profile):
        raise FormatError(f"{text}: a profile holds times, not a graph or schedule")
    return found


def make_cluster(
    gpu: str | None, gpus: int | None, link: str | None, cluster: str | None = None, *, source: str | None = None
) -> "Target":
    """Return the preset cluster that the options name, or what a file holds: a cluster or a calibration.

    Where none is named and the source is a profiler trace, it is the device of the trace, with contention.

    Raises
    ------
    ClusterError
        If a file and a preset are given, or more devices than those of a file and it is not known how they are joined.
    """
    from simsched.model.cluster import Cluster

    traced = None if source is None or gpu or link or cluster else read_traced(source)
    if traced is not None:
        found = traced.cluster.replace_devices(contention=True)
        return found if gpus is None else _of_many(found, gpus, str(source))
    if cluster is None:
        return Cluster.preset(gpu or USUAL_GPU, gpus or 1, link=link)
    for option, given in (("--gpu", gpu), ("--link", link)):
        if given is not None:
            raise ClusterError(f"{option} {given} is part of the preset that --cluster {cluster} takes the place of")
    from simsched.calibration import read_target

    target = read_target(cluster)
    return target if gpus is None else _of_many(target, gpus, cluster)


def _of_many(target: "Target", n: int, path: str) -> "Target":
    """Return a target with another number of devices, see `widened`."""
    from simsched.model.calibrated import bare
    from simsched.model.cluster import Cluster
    from simsched.model.cluster.widening import widened

    cluster = bare(target)
    if n == len(cluster):
        return target
    try:
        many = widened(cluster, n)
    except ClusterError as error:
        raise ClusterError(f"--gpus {n}: {path}: {error}") from error
    return many if isinstance(target, Cluster) else cast("Target", replace(cast(Any, target), cluster=many))


def make_backend(name: str, options: list[str] | None, virtual_devices: int | None) -> "Backend":
    """Return the backend of a name or ``package.module:factory``, made with ``name=value`` options."""
    from hwbackend import get

    given = read_options(options or [], "--backend-option")
    if virtual_devices is not None:
        if "virtual_devices" in given:
            raise BackendError("--virtual-devices is given twice")
        given["virtual_devices"] = virtual_devices
    return get(read_scheduler(name), **given)


def require_devices(target: "Target", path: str, backend: "Backend") -> None:
    """Refuse a file with other devices than those that a backend runs on: it predicts nothing there.

    Raises
    ------
    ClusterError
        If names or numbers of SMs differ.
    """
    from simsched.model.calibrated import bare

    theirs, mine = ([(d.name, d.sms) for d in one.devices] for one in (bare(target), backend.cluster))
    if theirs != mine:
        given, there = (", ".join(f"{name} with {sms} SMs" for name, sms in found) for found in (theirs, mine))
        raise ClusterError(f"{path} is of {given}, but the backend {backend.name!r} runs on {there}; calibrate that")


def read_measurable(path: str) -> "Schedule | Program":
    """Return the schedule or program that a file holds."""
    from simsched.model.graph import OpGraph

    found = read_plan(path)
    if isinstance(found, OpGraph):
        raise FormatError(f"{path}: a graph does not say what runs where; `simsched schedule {path} -o FILE` does")
    return found


def read_profile(path: str) -> "Profile":
    """Return the profile that a file holds, our own or another tool's."""
    from simsched.model.profile import Profile
    from workloads import read_spec

    found = read_spec(path)
    if not isinstance(found, Profile):
        raise FormatError(f"{path}: not a profile, as `simsched profile GRAPH --backend NAME -o FILE` writes one")
    return found


def read_schedulers(text: str, graph: "OpGraph", *, traced: bool = False) -> "list[str | Scheduler]":
    """Return the schedulers of a comma-separated list, ``fast`` and ``all`` spelled out, each once.

    What a trace ran is the first one.
    """
    from simsched.experiments.comparison import SETS, scheduler_set

    names: list[str] = []
    for name in (part.strip() for part in text.split(",")):
        if not name:
            raise SchedulerError(
                f"--schedulers {text!r}: a name is empty; give fast, all, or a list such as lios,greedy"
            )
        names += scheduler_set(name, graph) if name in SETS else [read_scheduler(name)]
    found: list[str | Scheduler] = list(dict.fromkeys(names))
    if traced:
        from workloads.formats.kineto_replay import traced as as_traced

        found.insert(0, as_traced)
    return found


def read_scheduler(name: str) -> str:
    """Return the name; for a ``package.module:function`` the current folder is looked into first."""
    here = str(Path.cwd())
    if ":" in name and here not in sys.path:  # `python -m` puts it there, a console script does not
        sys.path.insert(0, here)
    return name


def make_plan(graph: "OpGraph", cluster: "Target", name: str, options: list[str] | None) -> "Schedule":
    """Return the schedule that a scheduler makes of a graph, with ``name=value`` options."""
    from simsched.schedulers import schedule, takes

    scheduler, given = read_scheduler(name), read_options(options or [])
    with progress(1) as tell:
        tell(name)
        if takes(scheduler, "progress"):
            given["progress"] = partial(tell, name)
        return schedule(graph, cluster, scheduler, **given)


def read_options(pairs: list[str], option: str = "--option") -> dict[str, Any]:
    """Return ``name=value`` pairs as keyword arguments; values are numbers, true, false, none or text, or some of them.

    Some are written with commas between, ``rules=R2,R3``; none of them as ``rules=()``.
    """
    options: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or not name:
            raise SchedulerError(f"{option} {pair!r}: expected name=value")
        if option == "--option" and name in _NOT_OPTIONS:
            raise SchedulerError(f"{option} {pair!r}: no scheduler has such an option")
        if name in options:
            raise SchedulerError(f"{option} {pair!r}: {name!r} is given twice")
        options[name] = _value(value.strip())
    return options


def _value(text: str) -> Any:
    if text == "()":
        return ()
    if "," in text:
        return tuple(_value(part.strip()) for part in text.split(",") if part.strip())
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def check_outputs(source: str, *paths: str | None) -> None:
    """Refuse files that cannot be written, before anything is computed.

    Raises
    ------
    FileError
        Also if two of them, or one of them and the source, are one file.
    """
    from workloads.registry import split_path

    given = [path for path in paths if path is not None]
    for path in given:
        try:
            if not path:
                raise FileError("cannot write a file without a name")
            target = Path(os.path.realpath(path))
            if target.is_dir():
                raise FileError(f"cannot write {path}: it is a folder")
            if target.is_file() or not target.exists():  # not a pipe or a device
                TemporaryFile(dir=target.parent).close()
        except FileError:
            raise
        except (OSError, ValueError) as error:
            raise FileError(f"cannot write {path}: {getattr(error, 'strerror', None) or error}") from error
    used = [os.path.realpath(path) for path in (split_path(source)[0] or "", *given)]
    for i, path in enumerate(given, 1):
        if used[i] in used[:i]:
            raise FileError(f"cannot write {path}: this command already uses the file")


@contextmanager
def timed(seconds: dict[str, float | None], step: str) -> Iterator[None]:
    """Write down the wall time of a step in s."""
    start = perf_counter()
    yield
    seconds[step] = perf_counter() - start


def is_terminal() -> bool:
    """Return whether stdout is read by a person."""
    return sys.stdout is not None and sys.stdout.isatty()


def _say_nothing(_name: str, _doing: str = "") -> None:
    """Stand in for a progress bar where there is no terminal."""


@contextmanager
def progress(total: int) -> Iterator[Any]:
    """Give a function that is told a scheduler's name, then what it is doing; draws a bar, but not in a pipe."""
    if not is_terminal():
        yield _say_nothing
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _say_nothing
        return

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("starting", total=total)
        begun = 0

        def tell(name: str, doing: str = "") -> None:
            nonlocal begun
            if not doing:
                begun += 1
            bar.update(task, description=f"{name}: {doing}" if doing else name, completed=begun - 1)

        yield tell
