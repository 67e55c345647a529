"""Workloads by name, and the texts that name them on a command line."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from inspect import signature
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Final, Union, get_args, get_origin

from simsched.base.errors import GraphError, UnknownNameError, brief_text
from simsched.base.io import is_stream, reading_once
from simsched.base.views import Imported
from simsched.model.graph import OpGraph
from workloads.costs import in_fp32
from workloads.declared import Workload
from workloads.formats.registry import PYTHON, SUFFIXES, format_of, read, read_graph, reader_of
from workloads.retired import refuse_retired

if TYPE_CHECKING:
    from workloads.formats.kineto.traced import TracedProgram
    from workloads.formats.registry import Document

_WHOLE = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_SEED = "seed"
_STEPS = "llm"
_MOST_SHOWN = 40

_MODELS: Final = {
    "inception_v3": ("inception_v3",),
    "squeezenet": ("squeezenet", "squeezenet1_1"),
    "googlenet": ("googlenet",),
    "resnet": ("resnet50", "resnext50"),
    "densenet": ("densenet121",),
    "randwire": ("randwire",),
    "nasnet": ("nasnet_a_large", "nasnet_mobile", "autograph_nasnet_a"),
    "bert": ("bert_base", "bert_large", "autograph_bert"),
    "t5": ("t5_small_encoder", "t5_base_encoder"),
    "deepfm": ("deepfm",),
    "sru": ("rnntc_sru",),
    "tiny": ("tiny_inception", "tiny_resnet", "tiny_transformer"),
}  # module of workloads.models -> its networks
_FAMILIES: Final = (
    "layered",
    "erdos-renyi",
    "watts-strogatz",
    "fork-join",
    "series-parallel",
    "wavefront",
    "in-tree",
    "out-tree",
    "cholesky",
    "lu",
    "fft",
    "inception-like",
    "transformer-like",
)  # of workloads.random_dags

WORKLOADS: Final[Mapping[str, Workload]] = Imported(
    {name: f"workloads.models.{module}:{name}" for module, names in _MODELS.items() for name in names}
    | {_STEPS: f"workloads.llm:{_STEPS}"}
    | {f"random:{family}": f"workloads.random_dags:random_{family.replace('-', '_')}" for family in _FAMILIES}
)
"""Name -> function that makes the graph; a function that draws takes `rng`, which specs call `seed`."""


def names() -> list[str]:
    """Return the names that `load` knows, in the order in which they were registered."""
    return list(WORKLOADS)


def load(name: str, **parameters: Any) -> OpGraph:
    """Make the graph of a registered workload, or read the graph of a file.

    Parameters
    ----------
    name
        A key of `WORKLOADS`, or the path of a file in one of the formats of `workloads.formats`.
    **parameters
        Keyword arguments of its function, or options of the reader of the file. Where a function takes `rng`, `seed` is
        the word for it, and 0 its default.

    Raises
    ------
    UnknownNameError
        If the workload does not exist.
    GraphError
        If it has no such parameter, or refuses the value.
    FileError, FormatError
        If the file cannot be read, or has no such option.

    Examples
    --------
    >>> load("inception_v3")
    OpGraph('inception_v3', 119 operators, 153 edges)
    """
    if name not in WORKLOADS and split_path(name)[0] == name:
        return read_graph(name, **parameters)
    function = _function(name)
    hints = _parameters(function)
    for parameter in parameters:
        if parameter not in hints:
            raise _unknown_parameter(name, parameter, hints)
    if "rng" in signature(function).parameters:
        parameters["rng"] = parameters.pop(_SEED, 0)
    return in_fp32(function(**parameters), parameters.get("dtype"))


@reading_once()
def load_kind(kind: str, **parameters: Any) -> OpGraph:
    """Make the graph of a point of a study.

    Parameters
    ----------
    kind
        A spec, see `from_spec`; of a random family with or without ``random:``.
    **parameters
        Parameters of the workload, or options of the reader of the file; they replace those in the spec. A text is read
        as `from_spec` reads one: ``"50:150"`` is a range, ``"none"`` is None. `seed` is left out where nothing is
        drawn.

    Raises
    ------
    UnknownNameError, GraphError, FileError, FormatError
        As `from_spec` does.

    Examples
    --------
    >>> load_kind("layered", n_ops=20, n_layers=5, time="10:20", seed=1)
    OpGraph('layered-20', 20 operators, 40 edges)
    >>> load_kind("inception_v3", seed=1)
    OpGraph('inception_v3', 119 operators, 153 edges)
    """
    make, arguments = _of_kind(kind, parameters)
    return make(**arguments)


def check_kind(kind: str, **parameters: Any) -> None:
    """Refuse everything that `load_kind` would refuse by names and texts alone, before any graph is made."""
    _of_kind(kind, parameters)


def takes(kind: str, parameter: str) -> bool:
    """Return whether a workload, not a file, has a parameter.

    >>> takes("llm:llama-2-7b", "microbatches"), takes("inception_v3", "microbatches"), takes("a.onnx", "batch")
    (True, False, False)
    """
    return split_path(kind)[0] is None and parameter in _parameters(_function(_split_name(kind)[0]))


def _of_kind(kind: str, parameters: Mapping[str, Any]) -> tuple[Workload, dict[str, Any]]:
    """Return the function that makes the graph of a kind, and its arguments."""
    path, settings = split_path(kind)
    if path is None:
        name, settings = _split_name(kind)
        if f"random:{name}" in WORKLOADS:
            name = f"random:{name}"
        make = partial(load, name)
        hints = _parameters(_function(name))
    else:
        name = kind
        make = partial(read_graph, path)
        hints = _parameters(reader_of(path))
    arguments = _read_settings(kind, path or name, settings, hints)
    for parameter, value in parameters.items():
        if parameter in hints:
            if isinstance(value, str):
                arguments[parameter] = _parse(name, parameter, value, hints)
            else:
                arguments[parameter] = value
        elif parameter != _SEED:
            raise _unknown_parameter(name, parameter, hints)
    return make, arguments


@reading_once()
def from_spec(spec: str, *, shapes: Mapping[str, Sequence[int]] | None = None, **defaults: Any) -> OpGraph:
    """Make the graph that a text names: ``name[,parameter=value]...`` or ``path[,option=value]...``.

    Parameters
    ----------
    spec
        A workload with its parameters, such as ``"random:layered,n_ops=500,seed=7"``, or a file in one of the
        formats of `workloads.formats` with options of its reader, such as ``"model.onnx,granularity=operator"``.
        A value is a number, a text, ``low:high`` where a range is wanted, or ``none`` where that is allowed.
    shapes
        Sizes of the inputs that a file leaves open, by name.
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
        If the file cannot be read.

    Examples
    --------
    >>> from_spec("random:layered,n_ops=20,n_layers=5", seed=1)
    OpGraph('layered-20', 20 operators, 40 edges)
    """
    path, settings = split_path(spec)
    if path is not None:
        return read_graph(path, shapes=shapes, **_read_settings(spec, path, settings, _parameters(reader_of(path))))
    if shapes:
        raise GraphError(f"workload {brief_text(spec)}: shapes are for files; a workload has parameters")
    name, settings = _split_name(spec)
    hints = _parameters(_function(name))
    arguments = _read_settings(spec, name, settings, hints)
    return load(name, **{key: value for key, value in defaults.items() if key in hints} | arguments)


@reading_once()
def read_spec(spec: str, *, shapes: Mapping[str, Sequence[int]] | None = None) -> "Document":
    """Make the graph that a text names, or read whatever the file that it names holds: a schedule, for one.

    Parameters and errors are the same as of `from_spec`.
    """
    path, settings = split_path(spec)
    if path is None:
        return from_spec(spec, shapes=shapes)
    hints = _parameters(reader_of(path, graph=False))
    return read(path, shapes=shapes, **_read_settings(spec, path, settings, hints))


@reading_once()
def read_traced(spec: str) -> "TracedProgram | None":
    """Return the program of a profiler trace that a text names, with options after the path; None for other texts.

    Errors are the same as of `from_spec`.
    """
    path, settings = split_path(spec)
    if path is None or format_of(path) != "kineto":
        return None
    from workloads.formats.kineto.program import read_kineto_program

    return read_kineto_program(path, **_read_settings(spec, path, settings, _parameters(read_kineto_program)))


def split_path(spec: str) -> tuple[str | None, list[str]]:
    """Return the path that a spec begins with, None if it is a workload, and the settings after it.

    ``-`` is stdin; of a pipe or a device the name may be any.
    """
    parts = [part.strip() for part in spec.split(",")]
    if parts[0] in WORKLOADS or parts[0].startswith(f"{_STEPS}:"):
        return None, []
    whole = spec.strip().split(",")
    for n in range(len(parts), 0, -1):  # the longest, since a comma may be part of a path
        path = ",".join(whole[:n]).strip()
        if path.lower().endswith(SUFFIXES) or PYTHON.fullmatch(path):
            return path, parts[n:]
    if parts[0] == "-":
        first = "/dev/stdin"
    else:
        first = parts[0]
    if is_stream(first):
        return (first, parts[1:])
    return (None, [])


def _split_name(spec: str) -> tuple[str, list[str]]:
    """Return the workload that a spec names, and its settings; ``llm:CONFIG`` is ``llm,config=CONFIG``.

    >>> _split_name("llm:llama-2-7b,batch=4")
    ('llm', ['config=llama-2-7b', 'batch=4'])
    """
    parts = [part.strip() for part in spec.split(",")]
    if not parts[0].startswith(f"{_STEPS}:"):
        return parts[0], parts[1:]
    whole = spec.strip().removeprefix(f"{_STEPS}:").split(",")
    ends = [n for n in range(len(whole), 0, -1) if whole[n - 1].strip().lower().endswith(".json")]
    n = next((n for n in ends if all("=" not in part for part in whole[:n])), 1)  # a comma may be part of a path
    return _STEPS, [f"config={','.join(whole[:n]).strip()}", *parts[n:]]


def _read_settings(spec: str, name: str, settings: Sequence[str], hints: Mapping[str, Any]) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    for setting in settings:
        parameter, equals, text = (part.strip() for part in setting.partition("="))
        if not equals or not parameter:
            raise GraphError(f"workload {brief_text(spec)}: {brief_text(setting)} is not of the form parameter=value")
        if parameter not in hints:
            raise _unknown_parameter(name, parameter, hints)
        if parameter in arguments:
            raise GraphError(f"workload {brief_text(spec)}: parameter {parameter!r} is given twice")
        arguments[parameter] = _parse(name, parameter, text, hints)
    return arguments


def _function(name: str) -> Workload:
    if name not in WORKLOADS:
        files = ", ".join(SUFFIXES)
        raise UnknownNameError(
            "workload", name[:_MOST_SHOWN], names(), f"; or give a path that ends in {files}, or my_model.py:make"
        )
    return WORKLOADS[name]


def _parameters(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the type of each parameter that a spec can give; `rng` goes by the name of `seed`, a whole number."""
    hints = {item.name: item.annotation for item in signature(function, eval_str=True).parameters.values()}
    return {
        _SEED if name == "rng" else name: int if name == "rng" else hint
        for name, hint in hints.items()
        if name not in ("path", "shapes")
    }


def _unknown_parameter(name: str, parameter: str, hints: Mapping[str, Any]) -> GraphError:
    refuse_retired(f"workload {name!r}", [parameter])
    return GraphError(
        f"workload {name!r} has no parameter {brief_text(parameter)}; known are: {', '.join(hints) or 'none'}"
    )


def _parse(name: str, parameter: str, text: str, hints: Mapping[str, Any]) -> Any:
    wanted = hints[parameter]
    if get_origin(wanted) in (Union, UnionType):
        choices = get_args(wanted)
    else:
        choices = (wanted,)
    if NoneType in choices and text == "none":
        return None
    for choice in choices:
        value = _parse_as(choice, text)
        if value is not None:
            return value
    phrases = {int: "a whole number", float: "a number", NoneType: "none", str: "a text", bool: "true or false"}
    expected = " or ".join(phrases.get(choice, "a range low:high") for choice in choices)
    raise GraphError(
        f"workload {name!r}: {parameter} must be {expected}, not {brief_text(text)};"
        f" its parameters are: {', '.join(hints)}"
    )


def _parse_as(wanted: Any, text: str) -> Any:
    """Return the value of a text, or None if it is not one of the wanted type."""
    if wanted is int:
        # Python refuses to read longer numbers, and nothing here needs them
        if _WHOLE.fullmatch(text) and len(text) <= _MOST_SHOWN:
            return int(text)
        return None
    if wanted is float:
        if _NUMBER.fullmatch(text):
            return float(text)
        return None
    if wanted is str:
        return text or None
    if wanted is bool:
        return {"true": True, "false": False}.get(text)
    if get_origin(wanted) is tuple:
        low, colon, high = text.partition(":")
        ends = (_parse_as(float, low), _parse_as(float, high))
        if colon and None not in ends:
            return ends
        return None
    return None
