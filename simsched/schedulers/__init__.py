"""The algorithms: functions from (graph, cluster, cost) to a `Schedule`, one file each."""

import importlib
import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from simsched.cluster import Cluster
from simsched.costmodel import CostModel, default_cost
from simsched.errors import SchedulerError, UnknownNameError
from simsched.graph import OpGraph
from simsched.schedulers.greedy import greedy
from simsched.schedulers.inter_lp import inter_lp
from simsched.schedulers.lios import lios
from simsched.schedulers.protocol import Scheduler
from simsched.schedulers.round_robin import round_robin
from simsched.schedulers.sequential import sequential
from simsched.schedules import Schedule

__all__ = ["FAST_UP_TO", "SCHEDULERS", "Scheduler", "resolve", "schedule", "scheduler_name"]

SCHEDULERS: Final[Mapping[str, Scheduler]] = MappingProxyType(
    {
        "sequential": sequential,
        "round-robin": round_robin,
        "greedy": greedy,
        "lios": lios,
        "inter-lp": inter_lp,
    }
)
FAST_UP_TO: Final[Mapping[str, int]] = MappingProxyType({"inter-lp": 800})
"""Operators up to which a scheduler answers within a second; those not named here always do in practice."""


def resolve(scheduler: str | Scheduler) -> Scheduler:
    """Return a scheduler by name, by ``package.module:function``, or as it is.

    Raises
    ------
    UnknownNameError
        If the name is not in `SCHEDULERS`; the message lists those that are.
    SchedulerError
        If ``package.module:function`` cannot be imported.
    """
    if not isinstance(scheduler, str):
        if not callable(scheduler):
            raise SchedulerError(f"{scheduler!r} is not a function")
        return scheduler
    if ":" in scheduler:
        module, _, function = scheduler.partition(":")
        try:
            found: Scheduler = getattr(importlib.import_module(module), function)
        except Exception as error:  # whatever a user's module raises when it is imported
            raise SchedulerError(f"cannot import scheduler {scheduler!r}: {error}") from error
        if not callable(found):
            raise SchedulerError(f"{scheduler!r} is not a function")
        return found
    if scheduler not in SCHEDULERS:
        raise UnknownNameError("scheduler", scheduler, [*SCHEDULERS, "package.module:function"])
    return SCHEDULERS[scheduler]


def scheduler_name(scheduler: str | Scheduler) -> str:
    """Return how tables call a scheduler."""
    if isinstance(scheduler, str):
        return scheduler
    by_function = {id(function): name for name, function in SCHEDULERS.items()}
    return by_function.get(id(scheduler), getattr(scheduler, "__name__", type(scheduler).__name__))


def schedule(
    graph: OpGraph, cluster: Cluster, scheduler: str | Scheduler, cost: CostModel | None = None, **options: Any
) -> Schedule:
    """Return what a scheduler makes of a graph, proved valid.

    Parameters
    ----------
    graph, cluster
        What to run, and on what.
    scheduler
        A name in `SCHEDULERS`, ``package.module:function``, or a function.
    cost
        Time of an operator alone on a device in us; by default its `time`, else a roofline.
    **options
        The scheduler's own.

    Raises
    ------
    UnknownNameError
        If the scheduler is not known.
    SchedulerError
        If it has no such option, refuses the graph, or does not return a schedule.
    ScheduleError
        If what it returns cannot run.
    """
    function: Callable[..., Schedule] = resolve(scheduler)
    name = scheduler_name(scheduler)
    _check_options(function, name, options)
    plan = function(graph, cluster, cost or default_cost, **options)
    if not isinstance(plan, Schedule):
        raise SchedulerError(f"scheduler {name!r} returned {type(plan).__name__}, not a Schedule")
    return plan.check(cluster)


def _check_options(function: Callable[..., Any], name: str, options: Mapping[str, Any]) -> None:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # a builtin: Python knows no parameters of it
        return
    missing = [
        p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty and p.name not in options
    ]
    if missing:
        raise SchedulerError(f"scheduler {name!r} needs option {missing[0]!r}")
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return
    known = [p.name for p in parameters[3:] if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)]
    unknown = [option for option in options if option not in known]
    if unknown:
        raise SchedulerError(
            f"scheduler {name!r} has no option {unknown[0]!r}; known are: {', '.join(known) or 'none'}"
        )
