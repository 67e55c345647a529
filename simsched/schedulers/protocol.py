"""The protocol of schedulers, the tools that they get, the check of their options, and their deadline."""

import logging
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from inspect import unwrap
from math import inf
from types import FrameType, NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Protocol, Union, get_args, get_origin, get_type_hints

import numpy as np

from simsched.base.codec import Among, Range, Refused, Seed, kind_of
from simsched.base.errors import SchedulerError
from simsched.base.jit import running_time
from simsched.base.signals import note_stopped
from simsched.model import Cluster, CostModel, OpGraph, Schedule

if TYPE_CHECKING:
    from simsched.simulator import Evaluator

_logger = logging.getLogger(__name__)

Mode = Annotated[str, Among(("paper", "impl"))]
"""As a paper has it, or as its released code does."""
Rng = np.random.Generator | Seed
Seconds = Annotated[float, Range(0, above=True, infinite=True)]


class Scheduler(Protocol):
    """Any function from a graph, a cluster and a cost model to a schedule; options are keyword-only."""

    def __call__(self, graph: OpGraph, cluster: Cluster, cost: CostModel, /) -> Schedule:
        """Return a valid schedule of `graph` on `cluster`, or of a graph rewritten by `Schedule.rewriting`."""
        ...


@dataclass(frozen=True)
class Tools:
    """Tools for a scheduler that asks for them by a keyword-only parameter ``tools`` without a default.

    Schedulers know neither the simulator nor each other; through this they have both.

    Parameters
    ----------
    stage_latency
        Function from a graph, a cluster, a cost model and, by keyword, the name of a device to a second function: from
        groups of operator names to the simulated latency of their stage in us.
    makespan
        Function from a schedule, a cluster and a cost model to the simulated makespan in us.
    evaluator
        Function from the same to an evaluator, which simulates a schedule that is changed step by step.
    schedule
        Function from a graph, a cluster, a scheduler, a cost model and its options to the scheduler's schedule, proved
        valid.
    """

    stage_latency: Callable[..., Callable[[Sequence[Sequence[str]]], float]]
    makespan: Callable[[Schedule, Cluster, CostModel], float]
    evaluator: Callable[[Schedule, Cluster, CostModel], "Evaluator"]
    schedule: Callable[..., Schedule]


def take_options(scheduler: str, function: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of a function of this library as its hints have them.

    Options whose hints do not describe all values are left to the function; so are options of other functions.

    Raises
    ------
    SchedulerError
        If a value does not fit the hint of its option.
    """
    values = {**getattr(function, "keywords", {}), **options}  # the options of a partial function, too
    function = unwrap(getattr(function, "func", function))
    if not getattr(function, "__module__", "").startswith("simsched."):
        return dict(options)
    for option, value in values.items():
        hint = _hints(function)[option]
        try:
            if _says_all(hint):
                values[option] = kind_of(hint).take(value)
        except Refused as refused:
            raise SchedulerError(f"{scheduler}: {refused.says(option)}") from None
    return {option: values[option] for option in options}


_hints = cache(partial(get_type_hints, include_extras=True))


def _says_all(hint: Any) -> bool:
    if get_origin(hint) in (Union, UnionType):
        return all(map(_says_all, get_args(hint)))
    return get_origin(hint) in (Annotated, Callable) or hint in (bool, NoneType, np.random.Generator)


class Deadline:
    """Within ``with``, reports whether a search has to end with its best result.

    Parameters
    ----------
    scheduler
        Name of the searching scheduler, for the warning.
    time_limit
        Wall time in s above 0, from entering the block, the making of machine code left out; None for no limit.

    Attributes
    ----------
    reason
        Why the search was stopped, ``"time limit"`` or ``"interrupted"``; None if it was not.

    Notes
    -----
    The first Ctrl-C means to stop; in a search within a search, to stop both. A second one interrupts as usual. Only
    the main thread gets Ctrl-C, and a process that ignores it continues to do so. A search that asks `over` and stops
    is warned about in the log.

    >>> with Deadline("search", time_limit=3600.0) as deadline:
    ...     deadline.over()
    False
    """

    def __init__(self, scheduler: str, time_limit: float | None = None) -> None:
        self.reason: str | None = None
        self._scheduler = scheduler
        if time_limit is None:
            self._limit = inf
        else:
            self._limit = float(time_limit)
        self._usual: Any = None  # handler of Ctrl-C before this one
        self._interrupted = False

    def __enter__(self) -> "Deadline":
        self._end = running_time() + self._limit
        in_main = threading.current_thread() is threading.main_thread()
        if in_main and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            self._usual = signal.signal(signal.SIGINT, self._interrupt) or signal.SIG_DFL
        return self

    def __exit__(self, *_error: object) -> None:
        if self._usual is not None:
            signal.signal(signal.SIGINT, self._usual)
            self._usual = None

    def over(self) -> bool:
        """Return whether the search has to stop; the first time that is so, it is logged."""
        if self.reason is None and (self._interrupted or running_time() >= self._end):
            if self._interrupted:
                self.reason = "interrupted"
            else:
                self.reason = "time limit"
            _logger.warning("%s: stopped (%s); this is the best schedule so far", self._scheduler, self.reason)
        return self.reason is not None

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        self._interrupted = True
        usual = self._usual
        note_stopped(self._scheduler)
        self.__exit__()  # a second Ctrl-C is not asked
        if isinstance(getattr(usual, "__self__", None), Deadline):
            usual(number, frame)  # the handler of the search which this one is a part of
