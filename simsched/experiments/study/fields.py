"""Reading the tables of a study: every field known and every value possible, or one line that says why not."""

import json
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from math import isfinite, prod
from typing import Any, Final

from simsched.base.errors import StudyError, UnknownNameError
from simsched.base.numeric import is_count
from simsched.model.lowering.lowering import OPTIONS

Value = str | int | float | bool
Table = dict[str, Any]
Rule = tuple[Callable[[Any], bool], str]  # whether a value holds, and what it must be

_MOST_BITS: Final = 128  # of whole numbers
_MOST_SECONDS: Final = 10_000_000
NESTED: Final = ("device", "links")  # tables inside
SIMULATION_DEFAULTS: Final[Mapping[str, Value]] = {
    "engine": "compiled", "threads": "device", "transfers": "async", "bound": True,
}  # fmt: skip


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


def swept(source: str, field: str, given: Any) -> Any:
    """Return a value, or a list of them to be swept, as JSON values; a value may itself be a list inside of a list."""
    if isinstance(given, list | tuple):
        if not given:
            raise StudyError(f"{source}: {field} is an empty list; give at least one value, or leave it out")
        found = [[_value(source, field, each) for each in v] if isinstance(v, list | tuple)
                 else _value(source, field, v) for v in given]  # fmt: skip
        value, times = Counter(map(json.dumps, found)).most_common(1)[0]
        if times > 1:
            raise StudyError(f"{source}: {field} has {value} twice, so its rows would count twice; remove one")
        return found
    return _value(source, field, given)


def _value(source: str, field: str, given: Any) -> Any:
    """Return one value, numpy's as Python's."""
    if hasattr(given, "item") and not isinstance(given, str):
        given = given.item()
    if isinstance(given, int) and given.bit_length() > _MOST_BITS:  # which Python may refuse to print
        raise StudyError(f"{source}: {field} is a number of {given.bit_length()} bits, of which {_MOST_BITS} are read")
    if not isinstance(given, Value) or (isinstance(given, float) and not isfinite(given)):
        raise StudyError(f"{source}: {field} must be a text, a finite number, true or false, or a list, not {given!r}")
    return given


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
    return _checked(source, "workload", given, {"kind": (_is_text, 'a text such as "layered"')})


def cluster_table(source: str, given: Mapping[str, Any]) -> Table:
    """Return a ``[cluster]`` as checked: a preset, or a file."""
    from simsched.model.cluster import DEVICES, LINKS

    one_table(source, "cluster", given, _CLUSTER)
    if ("gpu" in given) == ("file" in given):
        raise StudyError(f"{source}: [cluster] needs either 'gpu', a preset, or 'file', a cluster or calibration")
    preset = next((key for key in ("gpus", "link", "gpus_per_node") if key in given and "file" in given), None)
    if preset is not None:
        raise StudyError(f"{source}: {preset!r} of [cluster] is part of a preset, but 'file' is given; remove one")
    table = _checked(source, "cluster", given, _CLUSTER)
    for key, known in (("gpu", DEVICES), ("link", LINKS)):
        unknown = next((name for name in values(table, key) if name not in known), None) if key in table else None
        if unknown is not None:
            raise StudyError(f"{source}: {UnknownNameError(key, unknown, list(known))}")
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
    if limit is not None and not (_is_amount(limit) and 0 < limit <= _MOST_SECONDS):
        raise StudyError(
            f"{source}: 'time_limit' of [execution] must be seconds, more than 0 and at most {_MOST_SECONDS:,}, "
            f"not {limit!r}"
        )
    return {key: value for key, value in given.items() if value is not None}


def _checked(source: str, name: str, given: Mapping[str, Any], rules: Mapping[str, Rule], inside: str = "") -> Table:
    """Return a table whose fields may be swept, each value as its rule says; tables inside have none."""
    table: Table = {}
    for key, value in given.items():
        if not isinstance(key, str) or not key:
            raise StudyError(f"{source}: a field of {name} is called {key!r}; a name is a text that is not empty")
        field = f"'{inside}{key}' of [{name}]"
        holds, phrase = rules.get(key, (lambda _: True, ""))
        if key in NESTED and rules is _CLUSTER:
            if not isinstance(value, Mapping):
                raise StudyError(f"{source}: {field} must be a table such as {{launch = 0.0}}, not {value!r}")
            table[key] = _checked(source, name, value, {}, f"{key}.")
        else:
            table[key] = swept(source, field, value)
            wrong = next((each for each in values(table, key) if not holds(each)), None)
            if wrong is not None:
                raise StudyError(f"{source}: {field} must be {phrase}, not {wrong!r}")
    return table


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _is_amount(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


def _one_of(known: Sequence[str]) -> Rule:
    return (lambda value: value in known), f"one of: {', '.join(known)}"


_TRUTH: Final[Rule] = (lambda value: isinstance(value, bool)), "true or false"
_POSITIVE: Final[Rule] = (lambda value: is_count(value, 1)), "a whole number of at least 1"
_CLUSTER: Final[Mapping[str, Rule]] = {
    "gpu": (_is_text, "the name of a preset"), "gpus": _POSITIVE, "link": (_is_text, "the name of a link"),
    "gpus_per_node": _POSITIVE, "file": (_is_text, "the path of a file"), "overheads": _TRUTH,
    **dict.fromkeys(NESTED, (lambda _: True, "")),
}  # fmt: skip
_SIMULATION: Final[Mapping[str, Rule]] = {
    "engine": _one_of(("compiled", "reference")), "jitter": (_is_amount, "a number of at least 0, such as 0.02"),
    "samples": _POSITIVE, **{option: _one_of(known) for option, known in OPTIONS.items()}, "bound": _TRUTH,
}  # fmt: skip
