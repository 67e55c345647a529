"""JSON Schema of classes: the parts that follow from their docstrings."""

import re
from inspect import cleandoc
from typing import Any


def or_null(found: dict[str, Any]) -> dict[str, Any]:
    """Return a schema that also allows null."""
    if isinstance(found.get("type"), str):
        return {**found, "type": [found["type"], "null"]}
    if "enum" in found:
        return {**found, "enum": [*found["enum"], None]}
    if not found or "null" in found.get("type", ()):
        return found
    return {"anyOf": [found, {"type": "null"}]}


def object_schema(cls: type[Any], required: list[str], properties: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a class's JSON objects, described by the summary of its docstring."""
    return {
        "title": cls.__name__,
        "description": cleandoc(cls.__doc__ or "").split("\n")[0],
        "type": "object",
        "required": required,
        "properties": properties,
        "additionalProperties": False,
    }


def descriptions_of(cls: type[Any]) -> dict[str, str]:
    """Return the descriptions of a class's parameters, by name, from its docstring and from its bases'."""
    descriptions: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        text = cleandoc(base.__doc__ or "")
        section = re.search(r"^(?:Parameters|Attributes)\n-+\n(.*?)(?=^\w[^\n]*\n-+$|\Z)", text, re.M | re.S)
        for names, text_of in re.findall(r"^(\w[\w, ]*)\n((?:[ ]+[^\n]*\n?|\n)*)", section[1] if section else "", re.M):
            descriptions |= dict.fromkeys(names.split(", "), " ".join(text_of.split()))
    return descriptions
