"""Schedulers: functions from (graph, cluster, cost) to a `Schedule`, one file each."""

import importlib
import inspect
from collections.abc import Callable, Mapping
from functools import WRAPPER_ASSIGNMENTS, WRAPPER_UPDATES, wraps
from types import MappingProxyType
from typing import Any, Final, cast

from simsched.base.errors import ScheduleError, SchedulerError, UnknownNameError, brief_text
from simsched.base.views import Imported
from simsched.model import Cluster, CostModel, OpGraph, Schedule, Target, bind, default_cost
from simsched.model.exchange import of_one_rank
from simsched.rewriting.accounting import account_for, refuse_changes
from simsched.rewriting.rule import Rule
from simsched.schedulers.protocol import Scheduler, Tools, take_options

__all__ = [
    "FAST_UP_TO",
    "SCHEDULERS",
    "Scheduler",
    "Tools",
    "equip",
    "resolve",
    "schedule",
    "scheduler_name",
    "takes",
]


def equip(function: Callable[..., Schedule]) -> Callable[..., Schedule]:
    """Return a scheduler with its ``tools`` bound; return one without this parameter unchanged."""
    signature = inspect.signature(function)
    parameter = signature.parameters.get("tools")
    if parameter is None or parameter.kind is not parameter.KEYWORD_ONLY or parameter.default is not parameter.empty:
        return function

    @wraps(function)
    def with_tools(*arguments: Any, **options: Any) -> Schedule:
        from simsched.simulator import Evaluator, StageLatency, simulate

        tools = Tools(StageLatency, lambda *given: simulate(*given).makespan, Evaluator, schedule)
        return function(*arguments, tools=tools, **options)

    rest = [p for name, p in signature.parameters.items() if name != "tools"]
    with_tools.__signature__ = signature.replace(parameters=rest)  # type: ignore[attr-defined]
    return with_tools


_MODULES: Final = {
    "sequential": "sequential",
    "round-robin": "round_robin",
    "greedy": "greedy",
    "lios": "lios",
    "lios-rand1": "lios",
    "lios-rand2": "lios",
    "lios-rand": "lios",
    "heft": "heft",
    "peft": "peft",
    "etf": "etf",
    "ios": "ios",
    "inter-lp": "hios",
    "hios-lp": "hios",
    "inter-mr": "hios",
    "hios-mr": "hios",
    "nimble": "nimble",
    "opara": "opara",
    "autograph": "autograph",
    "search": "search",
}
SCHEDULERS: Final = Imported[Scheduler](
    {name: f"{__name__}.{module}:{name.replace('-', '_')}" for name, module in _MODULES.items()}, equip
)
"""Schedulers by name; the module of one is imported when it is asked for."""
FAST_UP_TO: Final[Mapping[str, int]] = MappingProxyType({"ios": 150, "autograph": 80, "search": 0})
"""Operators up to which a scheduler answers within a second; those not named here always do in practice."""


def resolve(scheduler: str | Scheduler) -> Scheduler:
    """Return a scheduler, given by name, by ``package.module:function``, or as a function.

    Raises
    ------
    UnknownNameError
        If the name is not in `SCHEDULERS`; the message lists all names, or the closest.
    SchedulerError
        If ``package.module:function`` cannot be imported, takes no graph, cluster and cost model, or is an object whose
        attributes raise something else than AttributeError.
    """
    if isinstance(scheduler, str) and ":" not in scheduler:
        if scheduler not in SCHEDULERS:
            raise UnknownNameError("scheduler", scheduler, [*SCHEDULERS, "package.module:function"])
        return SCHEDULERS[scheduler]
    function_: Any = scheduler
    if isinstance(scheduler, str):
        module, _, function = scheduler.partition(":")
        try:
            function_ = getattr(importlib.import_module(module), function)
        except Exception as error:  # whatever a user's module raises when it is imported
            raise SchedulerError(f"cannot import scheduler {scheduler!r}: {error}") from error
    try:
        inspect.signature(function_).bind_partial(None, None, None)
        for attribute in (*WRAPPER_ASSIGNMENTS, *WRAPPER_UPDATES):  # that are asked for later on
            getattr(function_, attribute, None)
        name = getattr(function_, "__name__", "")
    except (TypeError, ValueError) as error:
        raise SchedulerError(f"{brief_text(scheduler)} is no function of (graph, cluster, cost): {error}") from None
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        raise SchedulerError(f"{brief_text(scheduler)} cannot be asked what it is ({why}); give a function") from None
    if not isinstance(name, str):
        raise SchedulerError(f"{brief_text(scheduler)} has no text for a __name__; give a function")
    return cast("Scheduler", function_)


def scheduler_name(scheduler: str | Scheduler) -> str:
    """Return how tables call a scheduler."""
    if isinstance(scheduler, str):
        return scheduler
    return SCHEDULERS.name_of(resolve(scheduler)) or str(getattr(scheduler, "__name__", type(scheduler).__name__))


def takes(scheduler: str | Scheduler, option: str) -> bool:
    """Return whether a scheduler names an option."""
    return option in inspect.signature(resolve(scheduler)).parameters


def schedule(
    graph: OpGraph, cluster: Target, scheduler: str | Scheduler, cost: CostModel | None = None, **options: Any
) -> Schedule:
    """Return a scheduler's schedule of a graph, proved valid and compared with the graph: see `account_for`.

    Parameters
    ----------
    graph, cluster
        The graph to run, and the cluster or calibration that runs it; with a calibration the schedule has the measured
        graph. Where a collective is symmetric, the graph is one rank's, and the first device alone is scheduled.
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
        If the scheduler has no such option, an option does not fit its type hint, or the scheduler refuses the graph.
    ScheduleError
        If its result is no schedule, is one of another graph and does not say how that came about, or cannot run; or if
        it changed the graph.
    """
    name = scheduler_name(scheduler)
    function = equip(resolve(scheduler))
    parameters = list(inspect.signature(function).parameters.values())
    needed = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    names = [p.name for p in parameters[3:] if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)]
    for option in needed:
        if option not in options:
            raise SchedulerError(f"scheduler {name!r} needs option {option!r}")
    if not any(p.kind is p.VAR_KEYWORD for p in parameters):
        for option in options:
            if option not in names:
                raise SchedulerError(
                    f"scheduler {name!r} has no option {option!r}; known are: {', '.join(names) or 'none'}"
                )
        options = take_options(name, function, options)
    if cost is None:
        # operators that it makes cost as measured
        if isinstance(cluster, Cluster):
            cost = default_cost
        else:
            cost = cluster
    graph, cluster = bind(graph, cluster)
    with refuse_changes(graph, name):
        plan = function(graph, of_one_rank(graph, cluster), cost, **options)
    if not isinstance(plan, Schedule):
        raise ScheduleError(f"scheduler {name!r} returned {type(plan).__name__}, not a Schedule")
    return account_for(plan, graph, name, _own_rules(options)).check(cluster).made_for(cluster, by=name)


def _own_rules(options: Mapping[str, Any]) -> list[Rule]:
    """Return the substitution rules among a scheduler's options: the caller vouches for them."""
    rules = options.get("rules")
    if isinstance(rules, list | tuple):
        return [rule for rule in rules if isinstance(rule, Rule)]
    return []
