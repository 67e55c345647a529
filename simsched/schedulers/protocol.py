"""What a scheduler is, what it may ask of the rest of the library, and what its options may be."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from inspect import unwrap
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Protocol, Union, get_args, get_origin, get_type_hints

import numpy as np

from simsched.base.codec import Among, Range, Refused, Seed, kind_of
from simsched.base.errors import SchedulerError
from simsched.model import Cluster, CostModel, OpGraph, Schedule

if TYPE_CHECKING:
    from simsched.simulator import Evaluator

Mode = Annotated[str, Among(("paper", "impl"))]
"""As a paper has it, or as its released code does."""
Rng = np.random.Generator | Seed
Seconds = Annotated[float, Range(0, above=True, infinite=True)]


class Scheduler(Protocol):
    """Any function from a graph, a cluster and a cost model to a schedule; options are keyword-only."""

    def __call__(self, graph: OpGraph, cluster: Cluster, cost: CostModel, /) -> Schedule:
        """Return a valid schedule of `graph`, or of a graph that computes the same, on `cluster`."""
        ...


@dataclass(frozen=True)
class Tools:
    """What a scheduler is given when it asks for it by a keyword-only parameter ``tools`` without a default.

    Schedulers know neither the simulator nor each other; through this they have both.

    Parameters
    ----------
    stage_latency
        From a graph, a cluster, a cost model and, by keyword, the name of a device to the simulated latency of a stage
        in us, a function of its groups of operator names.
    makespan
        From a schedule, a cluster and a cost model to the simulated makespan in us.
    evaluator
        From the same to what simulates a schedule that is changed step by step.
    schedule
        From a graph, a cluster, a scheduler, a cost model and its options to what the scheduler makes, proved valid.
    """

    stage_latency: Callable[..., Callable[[Sequence[Sequence[str]]], float]]
    makespan: Callable[[Schedule, Cluster, CostModel], float]
    evaluator: Callable[[Schedule, Cluster, CostModel], "Evaluator"]
    schedule: Callable[..., Schedule]


def taken(scheduler: str, function: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of a function of this library as its hints have them.

    Options whose hints do not say all that a value may be are left to the function; so are those of other functions.

    Raises
    ------
    SchedulerError
        If a value is not what the hint of its option says.
    """
    given = {**getattr(function, "keywords", {}), **options}  # those of a partial function too
    function = unwrap(getattr(function, "func", function))
    if not getattr(function, "__module__", "").startswith("simsched."):
        return dict(options)
    for option, value in given.items():
        hint = _hints(function)[option]
        try:
            if _says_all(hint):
                given[option] = kind_of(hint).take(value)
        except Refused as refused:
            raise SchedulerError(f"{scheduler}: {refused.says(option)}") from None
    return {option: given[option] for option in options}


@cache
def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    return get_type_hints(function, include_extras=True)


def _says_all(hint: Any) -> bool:
    if get_origin(hint) in (Union, UnionType):
        return all(map(_says_all, get_args(hint)))
    return get_origin(hint) in (Annotated, Callable) or hint in (bool, NoneType, np.random.Generator)
