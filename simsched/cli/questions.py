"""From what is typed to questions: changes, values to sweep over, and what makes the graph anew."""

from collections.abc import Callable
from functools import partial
from inspect import signature
from typing import TYPE_CHECKING, Any

from simsched.base.errors import FormatError, SchedulerError, UnknownNameError, WhatIfError
from simsched.cli.inputs import make_plan, read_options, read_plan, read_scheduler

if TYPE_CHECKING:
    from simsched.experiments.whatif import Change, WhatIf
    from simsched.model.calibrated import Target
    from simsched.model.graph import OpGraph
    from simsched.model.schedule import Schedule


def make_question(
    source: str,
    shape: list[str] | None,
    cluster: "Target",
    *,
    changes: list[str] | None = None,
    fuse: list[str] | None = None,
    remove: list[str] | None = None,
    reschedule: bool = False,
    scheduler: str | None = None,
    option: list[str] | None = None,
) -> "WhatIf":
    """Return the question of a graph or a schedule, with all that is to be different."""
    from simsched.experiments.whatif import what_if
    from simsched.model.graph import OpGraph

    found = read_runnable(source, shape)
    if (scheduler or option) and not reschedule and not isinstance(found, OpGraph):
        raise SchedulerError(f"{source} is scheduled already: --scheduler and --option are for --reschedule")
    name = None if scheduler is None else read_scheduler(scheduler)
    load = _loader(source, shape) if isinstance(found, OpGraph) else None
    asked = what_if(found, cluster, reschedule, scheduler=name, options=read_options(option or []), load=load)
    for text in [*(changes or []), *(f"fuse={names}" for names in fuse or []), *(f"remove={n}" for n in remove or [])]:
        asked = _changed(asked, _read_change(text, source))
    return asked


def read_runnable(source: str, shape: list[str] | None) -> "OpGraph | Schedule":
    """Return a graph or a schedule."""
    from simsched.model.program import Program

    found = read_plan(source, shape)
    if isinstance(found, Program):
        raise FormatError(f"{source}: a program cannot be asked about; give the schedule that it was made from")
    return found


def make_plan_of(
    source: str, shape: list[str] | None, cluster: "Target", scheduler: str | None, option: list[str] | None
) -> "Schedule":
    """Return the schedule that a file holds, or the one that a scheduler makes of a graph, lios unless given."""
    from simsched.model.graph import OpGraph

    found = read_runnable(source, shape)
    if isinstance(found, OpGraph):
        return make_plan(found, cluster, scheduler or "lios", option)
    if scheduler or option:
        raise SchedulerError(f"{source} is scheduled already: --scheduler and --option do not apply")
    return found


def read_side(text: str) -> "Schedule | str":
    """Return the schedule that a file holds, or the name of a scheduler."""
    from simsched.model.schedule import Schedule
    from workloads.registry import split_path

    if split_path(text)[0] is None:
        return read_scheduler(text)
    found = read_runnable(text, None)
    if not isinstance(found, Schedule):
        raise FormatError(f"{text}: give a schedule, as `simsched schedule -o` writes one, or the name of a scheduler")
    return found


def _loader(source: str, shape: list[str] | None) -> "Callable[..., OpGraph] | None":
    """Return what makes the graph of a source with other parameters; None where nothing does."""
    from workloads import load_kind
    from workloads.registry import split_path

    if shape:
        return None
    if split_path(source)[0] is not None:
        return partial(load_kind, source)
    name, *settings = (part.strip() for part in source.split(","))
    return partial(
        load_kind, name, **{key.strip(): text.strip() for key, _, text in (s.partition("=") for s in settings)}
    )


def _read_change(text: str, source: str) -> "Change":
    """Return the change of ``PARAMETER=VALUE``; parameters of the workload may go without ``rebuild.``."""
    from simsched.experiments.whatif import parse_change
    from simsched.experiments.whatif.changes import REBUILD

    try:
        return parse_change(text)
    except UnknownNameError:
        name = text.partition("=")[0].strip()
        if name not in _parameters(source):
            raise
        return parse_change(f"{REBUILD}{text.strip()}")


def read_parameter(name: str, source: str) -> str:
    """Return the name of a parameter in full."""
    from simsched.experiments.whatif.changes import REBUILD, is_taken_as_is

    return f"{REBUILD}{name}" if name in _parameters(source) and not is_taken_as_is(name) else name


def _parameters(source: str) -> list[str]:
    """Return the names of what the workload of a source can be made with."""
    from workloads import WORKLOADS

    name = source.partition(",")[0].strip()
    known = signature(WORKLOADS[name]).parameters if name in WORKLOADS else {}
    return ["seed" if key == "rng" else key for key in known]


def _changed(asked: "WhatIf", change: "Change") -> "WhatIf":
    return asked.set(change.parameter, _value_of(change))


def _value_of(change: "Change") -> Any:
    """Return what `WhatIf.set` takes for a change."""
    from simsched.experiments.whatif import absolute
    from simsched.experiments.whatif.changes import is_taken_as_is

    if is_taken_as_is(change.parameter) or not change.is_absolute:
        return change.value
    return absolute(change.value)


def read_values(parameter: str, text: str) -> list[Any]:
    """Return the values of a list: factors as in ``0.5,1,2``, values as in ``=5us,=10us`` or ``300GB/s,600GB/s``."""
    from simsched.experiments.whatif import parse_change
    from simsched.experiments.whatif.changes import is_taken_as_is

    values = []
    for part in (each.strip() for each in text.split(",")):
        if not part:
            raise WhatIfError(f"values {text!r} of {parameter}: one is empty; give a list such as 0.5,1,2")
        is_factor = not is_taken_as_is(parameter) and part[0] != "=" and not part[-1].isalpha()
        values.append(_value_of(parse_change(f"{parameter}{'*=' if is_factor else '='}{part.removeprefix('=')}")))
    return values
