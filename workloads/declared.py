"""A workload is one function: its signature states its parameters, their defaults and their limits."""

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any, Concatenate, ParamSpec, TypeVar, get_type_hints

from simsched.base.codec import Refused, kind_of
from simsched.base.errors import GraphError
from simsched.model.graph import OpGraph
from workloads.retired import refuse_retired

P = ParamSpec("P")
S = TypeVar("S")

Workload = Callable[..., OpGraph]


def workload(shared: Callable[..., S], **defaults: Any) -> Callable[[Callable[Concatenate[S, P], OpGraph]], Workload]:
    """Make a function that draws or builds a graph a workload, with the parameters that its kind shares.

    Parameters
    ----------
    shared
        Class that is made from the name of the function and the shared parameters, which follow the function's own as
        keywords: `workloads.random_dags.weights.Weights`, or `workloads.models.network.Network`. The function
        receives the instance in front of its own parameters.
    **defaults
        Defaults of shared parameters that differ from the defaults of `shared`.

    Notes
    -----
    Where a hint has limits (`simsched.base.codec`), a value outside is refused by a `GraphError`.
    """

    def declare(function: Callable[Concatenate[S, P], OpGraph]) -> Workload:
        own, common = (list(signature(parameter).parameters.values())[1:] for parameter in (function, shared))
        common = [parameter.replace(kind=Parameter.KEYWORD_ONLY) for parameter in common]
        plain: dict[str, Any] = {}
        limited: dict[str, Any] = {}
        for hinted in (shared.__init__, function):
            plain |= get_type_hints(hinted)
            limited |= get_type_hints(hinted, include_extras=True)
        parameters = [
            parameter.replace(
                annotation=plain[parameter.name],
                default=defaults.get(parameter.name, parameter.default),
            )
            for parameter in (*own, *common)
        ]
        declared = Signature(parameters, return_annotation=OpGraph)
        kinds = {name: kind_of(limited[name]) for name in declared.parameters if limited[name] != plain[name]}

        @wraps(function)
        def make(*args: Any, **given: Any) -> OpGraph:
            refuse_retired(function.__name__, given)
            bound = declared.bind(*args, **given)
            bound.apply_defaults()
            values = bound.arguments
            for name, kind in kinds.items():
                try:
                    values[name] = kind.take(values[name])
                except Refused as refused:
                    raise GraphError(f"{function.__name__}: {refused.says(name)}") from None
            base = shared(function.__name__, **{parameter.name: values.pop(parameter.name) for parameter in common})
            return function(base, **values)  # type: ignore[call-arg]

        make.__signature__ = declared  # type: ignore[attr-defined]
        return make

    return declare
