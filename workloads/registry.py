"""Workloads by name, and the texts that name them on a command line."""

import re
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from inspect import Parameter, signature
from types import NoneType, UnionType
from typing import Any, Final, get_args, get_origin

from simsched.errors import GraphError, UnknownNameError
from simsched.graph import OpGraph

Workload = Callable[..., OpGraph]

_WHOLE = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_SEED = "seed"
_MOST_SHOWN = 40


class _Imported(Mapping[str, Workload]):
    """A dict of functions whose modules are imported when one is asked for."""

    def __init__(self, places: Mapping[str, str]) -> None:
        self._places = dict(places)

    def __getitem__(self, name: str) -> Workload:
        module, _, function = self._places[name].partition(":")
        found: Workload = getattr(import_module(module), function)
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


WORKLOADS: Final[Mapping[str, Workload]] = _Imported(
    {
        "inception_v3": "workloads.models.inception_v3:inception_v3",
        "random:layered": "workloads.random_dags:random_layered",
    }
)
"""Name -> function that makes the graph; a function that draws takes `rng`, which specs call `seed`."""


def names() -> list[str]:
    """Return the names that `load` knows, in the order in which they were registered."""
    return list(WORKLOADS)


def load(name: str, **parameters: Any) -> OpGraph:
    """Make the graph of a registered workload.

    Parameters
    ----------
    name
        A key of `WORKLOADS`.
    **parameters
        Keyword arguments of its function. Where that takes `rng`, `seed` is another word for it
        and 0 is its default.

    Raises
    ------
    UnknownNameError
        If there is no such workload.
    GraphError
        If it has no such parameter, or refuses the value.

    Examples
    --------
    >>> load("inception_v3")
    OpGraph('inception_v3', 119 operators, 153 edges)
    """
    function = _function(name)
    known = _parameters(function)
    for parameter in parameters:
        if parameter not in known and not (parameter == "rng" and _SEED in known):
            raise _unknown_parameter(name, parameter, known)
    if _SEED in known:
        if _SEED in parameters and "rng" in parameters:
            raise GraphError(f"workload {name!r}: give seed or rng, not both")
        parameters["rng"] = parameters.pop(_SEED, parameters.get("rng", 0))
    return function(**parameters)


def from_spec(spec: str, **defaults: Any) -> OpGraph:
    """Make the graph that a text names: ``name[,parameter=value]...`` or the path of a JSON file.

    Parameters
    ----------
    spec
        A workload with its parameters, such as ``"random:layered,n_ops=500,seed=7"``, or a path
        that ends in ``.json`` (see `OpGraph.load`). A value is a number, a text, ``low:high``
        where a range is wanted, or ``none`` where that is allowed.
    **defaults
        Values for parameters that the spec leaves out. They apply where the workload has such a
        parameter and to nothing else: `seed` can be given for every workload, drawn or not.

    Raises
    ------
    UnknownNameError
        If the workload is not known.
    GraphError
        If the spec cannot be read, or a parameter is unknown, given twice or of the wrong type.
    FileError, FormatError
        If the JSON file cannot be read.

    Examples
    --------
    >>> from_spec("random:layered,n_ops=20,n_layers=5", seed=1)
    OpGraph('layered-20', 20 operators, 40 edges)
    """
    name, *settings = (part.strip() for part in spec.split(","))
    if name not in WORKLOADS and spec.strip().endswith(".json"):
        return OpGraph.load(spec.strip())
    if name.endswith(".json"):
        raise GraphError(f"workload {_short(spec)}: a JSON file takes no parameters")
    known = _parameters(_function(name))
    given: dict[str, Any] = {}
    for setting in settings:
        parameter, equals, text = (part.strip() for part in setting.partition("="))
        if not equals or not parameter:
            raise GraphError(f"workload {_short(spec)}: {_short(setting)} is not of the form parameter=value")
        if parameter not in known:
            raise _unknown_parameter(name, parameter, known)
        if parameter in given:
            raise GraphError(f"workload {_short(spec)}: parameter {parameter!r} is given twice")
        given[parameter] = _parse(name, parameter, text, known)
    return load(name, **{key: value for key, value in defaults.items() if key in known} | given)


def _function(name: str) -> Workload:
    if name not in WORKLOADS:
        raise UnknownNameError("workload", name, [*names(), "a path that ends in .json"])
    return WORKLOADS[name]


def _parameters(function: Workload) -> dict[str, Any]:
    """Return the type of each parameter; `rng` goes by the name of `seed` and is a whole number."""
    found: dict[str, Any] = {}
    for parameter in signature(function, eval_str=True).parameters.values():
        assert parameter.annotation is not Parameter.empty, "the registered functions are annotated"
        if parameter.name == "rng":
            found[_SEED] = int
        else:
            found[parameter.name] = parameter.annotation
    return found


def _unknown_parameter(name: str, parameter: str, known: Mapping[str, Any]) -> GraphError:
    return GraphError(f"workload {name!r} has no parameter {_short(parameter)}; known are: {', '.join(known)}")


def _parse(name: str, parameter: str, text: str, known: Mapping[str, Any]) -> Any:
    wanted = known[parameter]
    choices = get_args(wanted) if get_origin(wanted) is UnionType else (wanted,)
    for choice in choices:
        value = _parse_as(choice, text)
        if value is not None:
            return value
    if NoneType in choices and text == "none":
        return None
    phrases = {int: "a whole number", float: "a number", NoneType: "none", str: "a text"}
    expected = " or ".join(phrases.get(choice, "a range low:high") for choice in choices)
    raise GraphError(
        f"workload {name!r}: {parameter} must be {expected}, not {_short(text)}; its parameters are: {', '.join(known)}"
    )


def _parse_as(wanted: Any, text: str) -> Any:
    """Return the value of a text, or None if it is not one of the wanted type."""
    if wanted is int:
        # Python refuses to read longer numbers, and nothing here needs them
        return int(text) if _WHOLE.fullmatch(text) and len(text) <= _MOST_SHOWN else None
    if wanted is float:
        return float(text) if _NUMBER.fullmatch(text) else None
    if wanted is str:
        return text or None
    if get_origin(wanted) is tuple:
        low, colon, high = text.partition(":")
        ends = (_parse_as(float, low), _parse_as(float, high))
        return ends if colon and None not in ends else None
    return None


def _short(text: str) -> str:
    return repr(text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 3]}...")
