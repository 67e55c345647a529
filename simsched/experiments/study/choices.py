"""The schedulers of a study: names, or tables of a name and options that are swept."""

import inspect
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

from simsched.base.errors import StudyError, UnknownNameError
from simsched.experiments.study.fields import NAME, swept, taken, values
from simsched.schedulers import SCHEDULERS

_GIVEN: Final = ("graph", "cluster", "cost", "tools", "progress", "also")  # by whoever calls a scheduler


@dataclass(frozen=True, slots=True)
class Choice:
    """A scheduler with its options.

    Parameters
    ----------
    label
        How rows, tables and figures call it: its name, and the options given, as in ``"hios-lp w=4"``.
    scheduler
        A name in `SCHEDULERS`, or ``package.module:function``.
    options
        Its own, by name, in the order given.
    """

    label: str
    scheduler: str
    options: tuple[tuple[str, Any], ...] = ()


def scheduler_entry(source: str, given: Any) -> Any:
    """Return an entry of ``schedulers`` as checked: a name, or a table with options."""
    table = {"scheduler": given} if isinstance(given, str) else given
    if not isinstance(table, Mapping):
        raise StudyError(f'{source}: a scheduler is a name, or a table such as {{scheduler = "ios"}}, not {given!r}')
    name = taken(source, "the 'scheduler' of a table in 'schedulers'", NAME, table.get("scheduler"))
    if ":" not in name and name not in SCHEDULERS:
        raise StudyError(f"{source}: {UnknownNameError('scheduler', name, [*SCHEDULERS, 'package.module:function'])}")
    known = None if ":" in name else _options_of(name)
    entry: dict[str, Any] = {"scheduler": name}
    if table.get("label") is not None:
        entry["label"] = taken(source, f"the 'label' of scheduler {name!r}", NAME, table["label"])
    for option, value in table.items():
        if option in entry or option == "label":
            continue
        taken(source, f"an option of scheduler {name!r}", NAME, option)
        if known is not None and option not in known:
            listed = ", ".join(known) or "none"
            raise StudyError(f"{source}: scheduler {name!r} has no option {option!r}; known are: {listed}")
        entry[option] = swept(source, f"{option!r} of scheduler {name!r}", value)
    return name if len(entry) == 1 else entry


def _options_of(name: str) -> list[str]:
    """Return the options that a scheduler of the library has."""
    return [option for option in inspect.signature(SCHEDULERS[name]).parameters if option not in _GIVEN]


def choices(entries: Sequence[Any]) -> list[Choice]:
    """Return what the entries stand for, options swept with the last varying fastest."""
    return [choice for entry in entries for choice in _swept({"scheduler": entry} if isinstance(entry, str) else entry)]


def _swept(entry: Mapping[str, Any]) -> list[Choice]:
    name, label = entry["scheduler"], entry.get("label")
    options = [option for option in entry if option not in ("scheduler", "label")]
    # under a label of its own only what is swept needs to be told apart
    said = [option for option in options if label is None or len(values(entry, option)) > 1]
    found = []
    for point in product(*(values(entry, option) for option in options)):
        given = {option: _as_option(value) for option, value in zip(options, point, strict=True)}
        words = [f"{option}={text_of(given[option])}" for option in said]
        found.append(Choice(" ".join([label or name, *words]), name, tuple(given.items())))
    return found


def _as_option(value: Any) -> Any:
    """Return a value as schedulers take it: TOML has no None, and lists are tuples."""
    if isinstance(value, list):
        return tuple(_as_option(item) for item in value)
    return None if value == "none" else value


def text_of(value: Any) -> str:
    """Return a value as labels and columns show it."""
    if isinstance(value, list | tuple):
        return ",".join(text_of(item) for item in value) or "()"
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def require_different(source: str, found: Sequence[Choice]) -> None:
    """Refuse two schedulers of one label."""
    counts = Counter(choice.label for choice in found)
    twice = next((label for label, n in counts.items() if n > 1), None)
    if twice is not None:
        raise StudyError(f"{source}: scheduler {twice!r} stands twice; remove one, or give it a 'label' of its own")
