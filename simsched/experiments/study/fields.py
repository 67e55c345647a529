"""Reading the tables of a study: every field known and every value possible, or one line that says why not."""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from math import prod
from typing import Any, Final

from simsched.base.codec import (
    Among,
    Amount,
    Either,
    Kind,
    Many,
    Name,
    Number,
    Range,
    Refused,
    Size,
    Text,
    Truth,
    kind_of,
)
from simsched.base.errors import StudyError
from simsched.model.cluster import DEVICES, LINKS
from simsched.model.lowering.lowering import OPTIONS

Table = dict[str, Any]
Kinds = Mapping[str, Kind]

_LARGEST: Final = 2.0**128  # Python may refuse to print much longer ones
_SCALAR: Final = Either([Text(filled=False), Number(False, Range(-_LARGEST, _LARGEST)), Truth()])
_ANY: Final = Either([_SCALAR, Many(_SCALAR)])
NAME: Final = kind_of(Name)
_SIZE: Final = kind_of(Size)
NESTED: Final = ("device", "links")  # tables inside
_CLUSTER: Final[Kinds] = {
    "gpu": Among(DEVICES), "gpus": _SIZE, "link": Among(LINKS), "gpus_per_node": _SIZE, "file": NAME,
    "overheads": Truth(), **dict.fromkeys(NESTED, _ANY),
}  # fmt: skip
_SIMULATION: Final[Kinds] = {
    "engine": Among(("compiled", "reference")), "jitter": kind_of(Amount), "samples": _SIZE,
    **{option: Among(known) for option, known in OPTIONS.items()}, "bound": Truth(),
}  # fmt: skip
_LIMIT: Final = Number(False, Range(0, 1e7, above=True))  # s
SIMULATION_DEFAULTS: Final[Mapping[str, Any]] = {
    "engine": "compiled", "threads": "device", "transfers": "async", "bound": True,
}  # fmt: skip


def taken(source: str, field: str, kind: Kind, given: Any) -> Any:
    """Return a value as a kind of field takes it, or refuse it."""
    try:
        return kind.take(given)
    except Refused as refused:
        raise StudyError(f"{source}: {refused.says(field)}") from None


def known_only(source: str, table: Mapping[str, Any], known: Collection[str], of: str = "") -> None:
    """Refuse fields that are none of the known."""
    unknown = [key for key in table if key not in known]
    if unknown:
        raise StudyError(f"{source}: unknown field {unknown[0]!r}{of}; known are: {', '.join(known)}")


def one_table(source: str, name: str, given: Any, known: Collection[str]) -> None:
    """Refuse what is no table, or has fields that are none of the known."""
    if not isinstance(given, Mapping):
        raise StudyError(f"{source}: {name!r} must be a table, [{name}]")
    known_only(source, given, known, f" of [{name}]")


def tables(source: str, name: str, given: Any) -> tuple[Mapping[str, Any], ...]:
    """Return a table, or an array of tables, as a tuple of at least one."""
    found = [given] if isinstance(given, Mapping) else given
    if not isinstance(found, Sequence) or isinstance(found, str) or not all(isinstance(t, Mapping) for t in found):
        raise StudyError(f"{source}: {name!r} must be a table, [{name}], or several, [[{name}]]")
    if not found:
        raise StudyError(f"{source}: there is no [{name}]; give at least one")
    return tuple(found)


def swept(source: str, field: str, given: Any, kind: Kind = _ANY) -> Any:
    """Return a value, or a list of them to be swept, as JSON values; a value may itself be a list inside of a list."""
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        return taken(source, field, kind, given)
    found = [taken(source, field, kind, value) for value in given]
    if not found:
        raise StudyError(f"{source}: {field} is an empty list; give at least one value, or leave it out")
    value, times = Counter(map(json.dumps, found)).most_common(1)[0]
    if times > 1:
        raise StudyError(f"{source}: {field} has {value} twice, so its rows would count twice; remove one")
    return found


def values(table: Mapping[str, Any], key: str) -> list[Any]:
    """Return the values that a field takes: those of a list, or the one."""
    given = table[key]
    return given if isinstance(given, list) else [given]


def n_points(table: Mapping[str, Any]) -> int:
    """Return how many points a table has, of which there may be too many to make them."""
    inner = [value for key in NESTED if isinstance(table.get(key), Mapping) for value in table[key].values()]
    return prod(len(value) for value in [*table.values(), *inner] if isinstance(value, list))


def workload_table(source: str, given: Mapping[str, Any]) -> Table:
    """Return a ``[workload]`` as checked."""
    if "kind" not in given:
        raise StudyError(f"{source}: [workload] has no 'kind'; give a random family, a network or a file")
    return _checked(source, "workload", given, {"kind": NAME})


def cluster_table(source: str, given: Mapping[str, Any]) -> Table:
    """Return a ``[cluster]`` as checked: a preset, or a file."""
    one_table(source, "cluster", given, _CLUSTER)
    if ("gpu" in given) == ("file" in given):
        raise StudyError(f"{source}: [cluster] needs either 'gpu', a preset, or 'file', a cluster or calibration")
    preset = next((key for key in ("gpus", "link", "gpus_per_node") if key in given and "file" in given), None)
    if preset is not None:
        raise StudyError(f"{source}: {preset!r} of [cluster] is part of a preset, but 'file' is given; remove one")
    table = _checked(source, "cluster", given, _CLUSTER)
    return table if "file" in table else {**table, "gpus": table.get("gpus", 1)}


def simulation_table(source: str, given: Any) -> Table:
    """Return the ``[simulation]`` as checked, defaults written out."""
    one_table(source, "simulation", given, _SIMULATION)
    full = {**SIMULATION_DEFAULTS, **given}
    table = _checked(source, "simulation", {key: full[key] for key in _SIMULATION if key in full}, _SIMULATION)
    if "samples" in table and "jitter" not in table:
        raise StudyError(f"{source}: [simulation] has 'samples' but no 'jitter', so all would be alike; give one")
    if "samples" in table and "reference" in values(table, "engine"):
        raise StudyError(f"{source}: samples are drawn by the compiled engine; leave out 'engine' or 'samples'")
    return table


def execution_table(source: str, given: Any) -> Table:
    """Return the ``[execution]`` as checked."""
    one_table(source, "execution", given, ("time_limit",))
    limit = given.get("time_limit")
    return {} if limit is None else {"time_limit": taken(source, "'time_limit' of [execution]", _LIMIT, limit)}


def _checked(source: str, name: str, given: Mapping[str, Any], known: Kinds, inside: str = "") -> Table:
    """Return a table whose fields may be swept, each value of its kind; tables inside have none."""
    table: Table = {}
    for key, value in given.items():
        field = f"'{inside}{taken(source, f'a field of [{name}]', NAME, key)}' of [{name}]"
        if key in NESTED and known is _CLUSTER:
            if not isinstance(value, Mapping):
                raise StudyError(f"{source}: {field} must be a table such as {{launch = 0.0}}, not {value!r}")
            table[key] = _checked(source, name, value, {}, f"{key}.")
        else:
            table[key] = swept(source, field, value, known.get(key, _ANY))
    return table
