"""JSON Schemas of the files that simsched writes: draft 2020-12, one for each format, units in the descriptions."""

import json
from collections.abc import Iterator
from importlib import resources
from typing import Any, Final

from simsched.base.errors import UnknownNameError

SCHEMAS: Final = (
    "simsched.graph",
    "simsched.schedule",
    "simsched.program",
    "simsched.cluster",
    "simsched.profile",
    "simsched.replay",
    "simsched.calibration",
    "simsched.study",
    "simsched.row",
    "simsched.validation",
    "simsched.accuracy",
    "simsched.comparison",
    "simsched.whatif",
    "simsched.sweep",
    "simsched.sensitivity",
    "simsched.breakeven",
    "simsched.explanation",
    "simsched.robustness",
    "simsched.throughput",
)
"""What there is a schema of: formats; ``simsched.row``, a line of a study's ``rows.jsonl``; ``simsched.validation``,
which ``simsched validate --json`` prints."""
_VERSION: Final = 1


def schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema of a format.

    Parameters
    ----------
    name
        One of `SCHEMAS`.

    Returns
    -------
    dict
        The schema, draft 2020-12. It refers to nothing outside: schemas of formats that stand inside of this one,
        such as the graph of a schedule, are among its ``$defs``, each under an ``$id`` of its own.

    Raises
    ------
    UnknownNameError
        If there is no such format; the message lists those that there are.

    Notes
    -----
    What it accepts is what the loaders accept, but for what a schema cannot say: that names are unique and those that
    are referred to exist, that a graph has no cycle, that lists which belong together are as long, and the like. See
    ``docs/formats.md``.

    >>> found = schema("simsched.graph")
    >>> found["$defs"]["operator"]["properties"]["time"]["description"]
    'Time alone on the device in us; null to have it estimated from the rest.'
    """
    if name not in SCHEMAS:
        raise UnknownNameError("schema", name, list(SCHEMAS))
    found = _read(name)
    inside: dict[str, Any] = {}
    missing = list(_references(found))
    while missing:
        other = missing.pop(0)
        if other != name and other not in inside:
            inside[other] = _read(other)
            missing += _references(inside[other])
    if inside:
        found["$defs"] = {**found.get("$defs", {}), **inside}
    return found


def _read(name: str) -> dict[str, Any]:
    file = resources.files(__name__) / f"{name}-{_VERSION}.json"
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def _references(part: Any) -> Iterator[str]:
    """Yield the names of the schemas that a part of one refers to, such as ``urn:simsched:graph:1#/$defs/edge``."""
    if isinstance(part, dict):
        target = part.get("$ref")
        if isinstance(target, str) and target.startswith("urn:"):
            yield ".".join(target.split(":")[1:3])
        part = list(part.values())
    if isinstance(part, list):
        for each in part:
            yield from _references(each)
