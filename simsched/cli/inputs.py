"""From what is typed to graphs, clusters, schedulers and plans."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from simsched.errors import FormatError, SchedulerError

if TYPE_CHECKING:
    from simsched.cluster import Cluster
    from simsched.graph import OpGraph
    from simsched.program import Program
    from simsched.schedulers import Scheduler
    from simsched.schedules import Schedule


def read_graph(text: str) -> "OpGraph":
    """Return the graph that a workload name, a ``random:...`` specification or a JSON file stands for."""
    from workloads import from_spec

    return from_spec(text)


def read_plan(text: str) -> "OpGraph | Schedule | Program":
    """Return a graph, schedule or program; a JSON file says by its format which of them it holds."""
    if not text.endswith(".json"):
        return read_graph(text)
    from simsched.graph import OpGraph
    from simsched.io import read_json
    from simsched.program import Program
    from simsched.schedules import Schedule

    data = read_json(text)
    readers: dict[str, Callable[[Any, str], OpGraph | Schedule | Program]] = {
        "simsched.graph": OpGraph.from_dict,
        "simsched.schedule": Schedule.from_dict,
        "simsched.program": Program.from_dict,
    }
    found = data.get("format") if isinstance(data, dict) else None
    if not isinstance(found, str) or found not in readers:
        raise FormatError(f"{text}: field 'format' is {found!r}; expected one of: {', '.join(readers)}")
    return readers[found](data, text)


def make_cluster(gpu: str, gpus: int, link: str | None) -> "Cluster":
    """Return the preset cluster that the options name."""
    from simsched.cluster import Cluster

    return Cluster.preset(gpu, gpus, link=link)


def split_schedulers(text: str) -> "str | list[str | Scheduler]":
    """Return ``fast``, ``all``, or the schedulers of a comma-separated list."""
    from simsched.comparison import SETS

    if text in SETS:
        return text
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise SchedulerError(f"--schedulers {text!r}: a name is empty; give fast, all, or a list such as lios,greedy")
    return list(names)


def read_options(pairs: list[str]) -> dict[str, Any]:
    """Return ``name=value`` pairs as keyword arguments; values are numbers, true, false, none or text."""
    options: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise SchedulerError(f"--option {pair!r}: expected name=value")
        options[name.replace("-", "_")] = _value(value)
    return options


def _value(text: str) -> Any:
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _say_nothing(_what: str) -> None:
    """Stand in for a progress bar where there is no terminal."""


@contextmanager
def progress(total: int) -> Iterator[Any]:
    """Give a function that is told what is being done; draws a bar on a terminal and nothing in a pipe."""
    import sys

    from rich.console import Console

    console = Console(stderr=True)
    if not (console.is_terminal and sys.stdout.isatty()):
        yield _say_nothing
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("starting", total=total)
        begun = 0

        def tell(what: str) -> None:
            nonlocal begun
            bar.update(task, description=what, completed=begun)
            begun += 1

        yield tell
