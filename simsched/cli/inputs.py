"""From what is typed to shapes, options, schedulers and plans."""

import re
import sys
import traceback
from functools import wraps
from pathlib import Path
from typing import Any

import simsched as ss
from simsched.base.errors import FormatError, GraphError, ScheduleError, SchedulerError, SimschedError
from simsched.base.numeric import plain_value

_SIZE = re.compile(r"[1-9][0-9]{0,17}")
_NOT_OPTIONS = ("graph", "cluster", "scheduler", "cost", "tools", "progress")  # what `simsched.schedule` takes besides


class BrokenSchedulerError(Exception):
    """A scheduler of the user's that failed, which is not to refuse a graph."""


def read_shapes(texts: list[str] | None) -> dict[str, tuple[int, ...]]:
    """Return the shapes that ``--shape NAME=1,3,224,224`` gives, by name of the input."""
    shapes: dict[str, tuple[int, ...]] = {}
    for text in texts or []:
        name, equals, sizes = text.rpartition("=")
        parts = [part.strip() for part in sizes.split(",")]
        if not equals or not name or not all(_SIZE.fullmatch(part) for part in parts):
            raise GraphError(f"--shape {text[:60]!r}: give NAME=1,3,224,224, sizes of at least 1")
        shapes[name] = tuple(map(int, parts))
    return shapes


def read_plan(text: str, shapes: list[str] | None = None) -> "ss.OpGraph | ss.Schedule | ss.Program":
    """Return a graph, schedule or program; a file says by its format which of them it holds."""
    from workloads import read_spec

    found = read_spec(text, shapes=read_shapes(shapes))
    if not isinstance(found, ss.OpGraph) and isinstance(found, ss.Profile):  # not imported for graphs
        raise FormatError(f"{text}: a profile holds times, not a graph or schedule")
    return found


def read_schedulers(text: str, graph: "ss.OpGraph", *, traced: bool = False) -> "list[str | ss.Scheduler]":
    """Return the schedulers of a comma-separated list, ``fast`` and ``all`` spelled out, each once.

    What a trace ran is the first one.
    """
    from simsched.experiments.comparison import scheduler_set

    names: list[str] = []
    for name in (part.strip() for part in text.split(",")):
        if not name:
            raise SchedulerError(
                f"--schedulers {text!r}: a name is empty; give fast, all, or a list such as lios,greedy"
            )
        names += map(str, scheduler_set(name, graph))
    found = [read_scheduler(name) for name in dict.fromkeys(names)]
    if traced:
        from workloads.formats.kineto_replay import traced as as_traced

        found.insert(0, as_traced)
    return found


def read_scheduler(name: str) -> "str | ss.Scheduler":
    """Return a scheduler: its name, or the function of a ``package.module:function``.

    What such a function raises, other than to refuse a graph, becomes a `BrokenSchedulerError`.
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
        except (SimschedError, MemoryError):
            raise
        except Exception as error:
            below = error.__traceback__ and error.__traceback__.tb_next  # without this frame
            text = described(error.with_traceback(below))
            raise BrokenSchedulerError(f"scheduler {name!r} raised {text}") from error

    run.__name__ = name
    return run


def read_name(name: str) -> str:
    """Return the name; for a ``package.module:function`` the current folder is looked into first."""
    here = str(Path.cwd())
    if ":" in name and here not in sys.path:  # `python -m` puts it there, a console script does not
        sys.path.insert(0, here)
    return name


def described(error: Exception) -> str:
    """Return an error that nobody thought of, and where it was raised unless that was in a builtin."""
    where = [f" ({frame.filename}, line {frame.lineno})" for frame in traceback.extract_tb(error.__traceback__)[-1:]]
    return f"{type(error).__name__}: {error}{''.join(where)}"


def read_options(pairs: list[str] | None, option: str = "--option") -> dict[str, Any]:
    """Return ``name=value`` pairs as keyword arguments; values are numbers, true, false, none or text, or some of them.

    Some are written with commas between, ``rules=R2,R3``; none of them as ``rules=()``.
    """
    options: dict[str, Any] = {}
    for pair in pairs or []:
        name, equals, value = pair.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or not name:
            raise SchedulerError(f"{option} {pair!r}: expected name=value")
        if option == "--option" and name in _NOT_OPTIONS:
            raise SchedulerError(f"{option} {pair!r}: no scheduler has such an option")
        options[name] = _value(value.strip())
    return options


def _value(text: str) -> Any:
    if text == "()":
        return ()
    if "," in text:
        return tuple(_value(part.strip()) for part in text.split(",") if part.strip())
    return None if text.lower() == "none" else plain_value(text)
