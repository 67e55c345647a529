"""What single backticks of docstrings lead to, and whether every public name has a place to lead to."""

import inspect
import re
from collections.abc import Mapping
from pydoc import locate
from typing import Any

import numpy.typing as npt
from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging
from sphinx.util.typing import stringify_annotation

import hwbackend
import simsched
import workloads

_logger = logging.getLogger(__name__)
PUBLIC = {"simsched": simsched.__all__, "workloads": workloads.__all__, "hwbackend": hwbackend.__all__}
_ARRAY_LIKE = stringify_annotation(npt.ArrayLike, "smart")
_NDARRAY = re.compile(r"~numpy\.ndarray\[~?[\w.]*[tT]uple\[~typing\.Any, \.\.\.\], ~numpy\.dtype\[([^\]]*)\]\]")
_OF_FIELDS = ("Parameters", "Returns", "Yields", "Raises", "Warns", "Attributes")
_REFERENCE = re.compile(r"\[(\d+)\]_")
_DEFINITION = re.compile(r"^(\s*)\.\. \[(\d+)\] ")


def _find(
    app: Sphinx, env: BuildEnvironment, node: addnodes.pending_xref, content: nodes.Element
) -> nodes.Element | None:
    """Return a link to a name that is written shorter or longer than it is documented, or the name as code.

    ``Schedule.check`` and ``simsched.model.schedule.Schedule.check`` mean ``simsched.Schedule.check``. Other names,
    such as parameters and types of other libraries, have no place here; one of ours in full has to be importable.
    """
    if node.get("refdomain") != "py":
        return None
    target, domain = node["reftarget"].removeprefix("~"), env.domains["py"]
    parts = target.split(".")
    for name in (f"simsched.{target}", *(f"simsched.{'.'.join(parts[i:])}" for i in range(1, len(parts)))):
        if name in domain.objects:
            return domain.resolve_xref(env, node["refdoc"], app.builder, "obj", name, node, content)
    if parts[0] in PUBLIC and locate(target) is None:
        _logger.warning("%s does not exist", target, location=node)
    return content


def _shortened(
    _app: Sphinx, what: str, _name: str, value: Any, _options: Any, signature: str | None, returns: str | None
) -> tuple[str | None, str | None]:
    """Write types of arrays as the source does, not as what they stand for; protocols are not called."""
    if what == "class" and getattr(value, "_is_protocol", False):
        return "", None

    def short(text: str | None) -> str | None:
        return text and _NDARRAY.sub(r"NDArray[\1]", text.replace(_ARRAY_LIKE, "ArrayLike"))

    return short(signature), short(returns)


def _as_sphinx_reads_it(_app: Sphinx, what: str, _name: str, _value: Any, _options: Any, lines: list[str]) -> None:
    """Head what stands below a section of fields, and make a list of references.

    Below the last field there may be prose or an example, which would be taken for more fields. References are numbered
    anew in each docstring: as footnotes they would clash on a page.
    """
    # of "this: that" on the first line napoleon takes the first for a type; so that is an empty comment
    out: list[str] = ["..", ""] if what in ("property", "attribute", "data") else []
    section = ""
    for i, line in enumerate(lines):
        following = lines[i + 1] if i + 1 < len(lines) else ""
        if line and following and set(following) == {"-"}:
            section = line
        elif section in _OF_FIELDS and out and not out[-1] and line[:1].strip() and not following.startswith(" "):
            section = "Examples" if line.startswith(">>>") else "Notes"
            out += [section, "-" * len(section)]
        out.append(_DEFINITION.sub(r"\1*  [\2] ", _REFERENCE.sub(r"[\1]", line)))
    lines[:] = out


def _say_value(_app: Sphinx, what: str, _name: str, value: Any, _options: Any, lines: list[str]) -> None:
    """Put the value, of a mapping the names, in place of a constant's docstring that is only its type's."""
    own = "\n".join(lines).strip()
    if what != "data" or (own and own != inspect.cleandoc(value.__doc__ or "")):
        return
    lines[:] = [", ".join(f"``{name}``" for name in value) if isinstance(value, Mapping) else f"``{value!r}``"]


def _check_names(_app: Sphinx, env: BuildEnvironment) -> None:
    documented = env.domains["py"].objects
    for package, names in PUBLIC.items():
        for name in names:
            value = getattr(simsched, name, None)
            handed_on = package != "simsched" and name in simsched.__all__ and f"simsched.{name}" in documented
            if f"{package}.{name}" not in documented and not (handed_on and value is not None):
                _logger.warning("%s.%s is public and on no page of the reference", package, name)


def setup(app: Sphinx) -> dict[str, Any]:
    """Resolve names after Sphinx has tried, and look for those without a page."""
    app.connect("missing-reference", _find)
    app.connect("autodoc-process-signature", _shortened)
    app.connect("autodoc-process-docstring", _as_sphinx_reads_it, priority=400)  # before napoleon reads it
    app.connect("autodoc-process-docstring", _say_value, priority=300)
    app.connect("env-check-consistency", _check_names)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
