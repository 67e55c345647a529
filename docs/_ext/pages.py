"""Pages that are made when the site is built, so that they cannot go stale.

A comment on a line of its own stands for text: ``<!-- room simsched.model.graph -->`` for the public names of a
package, ``<!-- schedulers -->`` for those in `SCHEDULERS`, ``<!-- commands -->`` for the command line,
``<!-- priors -->`` for the table of `PRIORS`, ``<!-- importers torch -->`` for the tables of an importer,
``<!-- file ../validation/README.md -->`` for a page of the repository that lies outside of this folder, and
``<!-- pages tutorial/* -->``, in a table of contents, for the pages that there are.
"""

import ast
import importlib
import inspect
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

import simsched
from simsched.cli.run import application
from simsched.model.cluster import PRIORS
from simsched.schedulers import SCHEDULERS
from workloads.formats import FORMATS
from workloads.formats.onnx import operators as onnx_operators
from workloads.formats.onnx.contrib import CONTRIB
from workloads.formats.torch import calls as torch_calls
from workloads.formats.torch import costs as torch_costs
from workloads.formats.torch.bodies import BODIES

if TYPE_CHECKING:  # the tests read this module where Sphinx is not installed
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

DOCS = Path(__file__).resolve().parent.parent
ROOT = DOCS.parent
# pages of the repository outside of docs/, and the pages of the site that hold them
ELSEWHERE = {
    "validation/README.md": "background/validation",
    "validation/hardware/README.md": "background/campaign",
    "CONTRIBUTING.md": "contributing",
    "CHANGELOG.md": "background/changelog",
    "README.md": "index",
}
_COMMENT = re.compile(r"^<!-- (room|schedulers|commands|priors|importers|pages|file) ?(.*?) -->$", re.M)
_OPTION = re.compile(r"(`[^`]*`)|(?<!\S)(--?[a-z][\w-]*)")
_LINK = re.compile(r"(!?\[[^\]]*\])\(([^)\s]+)\)")


def room(package: str, *names: str) -> str:
    """Return what documents the public names of a package, or those given.

    What `simsched` hands on has its place there, in the room that it comes from; what another package hands on, in the
    room of that package.
    """
    module = importlib.import_module(package)
    top = importlib.import_module(package.partition(".")[0])
    directives = []
    for name in names or getattr(module, "__all__", None) or _defined_in(module):
        value = getattr(module, name)
        if top is simsched and name in simsched.__all__ and inspect.unwrap(getattr(simsched, name)) is value:
            directives.append(_directive(f"simsched.{name}", value))
        elif top is module and inspect.unwrap(getattr(simsched, name, None)) is value:
            directives.append(f"`{name}` is `simsched.{name}`.\n")
        elif top in (simsched, module) or inspect.unwrap(getattr(top, name, None)) is not value:
            directives.append(_directive(f"{package}.{name}", value))
    return _rest(directives)


def schedulers() -> str:
    """Return what documents the functions in `SCHEDULERS`, each under its name there."""
    parts = []
    for name, scheduler in SCHEDULERS.items():
        function = inspect.unwrap(scheduler)
        parts += [f"## `{name}`\n", _rest([_directive(f"{function.__module__}.{function.__name__}", function)])]
    return "\n".join(parts)


def _defined_in(module: Any) -> list[str]:
    """Return the public classes, functions and documented constants that a module without ``__all__`` defines."""
    names = []
    body = ast.parse(inspect.getsource(module)).body
    for statement, following in zip(body, [*body[1:], None], strict=True):
        if isinstance(statement, (ast.ClassDef, ast.FunctionDef)):
            names.append(statement.name)
        elif isinstance(following, ast.Expr) and isinstance(statement, (ast.Assign, ast.AnnAssign)):
            target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
            names.append(ast.unparse(target))
    return [name for name in names if not name.startswith("_")]


def _directive(path: str, value: Any) -> str:
    if inspect.isclass(value) and issubclass(value, Exception):
        return f".. autoexception:: {path}\n   :show-inheritance:\n"
    if inspect.isclass(value):
        ours = any(base.__module__.startswith("simsched.") for base in value.__mro__[1:])
        return f".. autoclass:: {path}\n   :members:\n" + ("   :inherited-members: ABC, object\n" if ours else "")
    if inspect.isroutine(value):
        return f".. autofunction:: {path}\n"
    return f".. autodata:: {path}\n   :no-value:\n"


def _rest(directives: list[str]) -> str:
    return "\n".join(["```{eval-rst}", *directives, "```", ""])


def commands() -> str:
    """Return the commands of the application with their arguments and options, as the application declares them."""
    top = typer.main.get_command(application())
    return "\n".join(_command(top, "simsched", 2))


def _command(command: Any, path: str, level: int) -> Iterator[str]:
    if not hasattr(command, "commands"):
        yield from _leaf(command, path, level)
        return
    if level > 2:
        yield f"{'#' * level} `{path}`\n\n{_marked(inspect.cleandoc(command.help or ''))}\n"
    for name, inner in command.commands.items():
        yield from _command(inner, f"{path} {name}", level + (level > 2 or hasattr(inner, "commands")))


def _leaf(command: Any, path: str, level: int) -> Iterator[str]:
    context = command.context_class(command, info_name=path)
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    yield f"{'#' * level} `{path}`\n\n{_marked(inspect.cleandoc(command.help or ''))}\n\n```text\n{usage}\n```\n"
    rows = [row for parameter in command.params if (row := _row(parameter, context))]
    if rows:
        yield "| argument or option | what it does |\n|---|---|"
        yield from rows
        yield ""


def _row(parameter: Any, context: Any) -> str:
    """Return the row of a parameter, or nothing of one that is hidden."""
    if getattr(parameter, "hidden", False):
        return ""
    names, text = (" ".join(cell.split()).replace("|", r"\|") for cell in parameter.get_help_record(context))
    return f"| `{names}` | {_marked(text)} |"


def _marked(text: str) -> str:
    """Return text with the options in it as code."""
    return _OPTION.sub(lambda match: match[1] or f"`{match[2]}`", text)


def priors() -> str:
    """Return a table of the priors: value, interval, source."""
    rows = [
        f"| `{name}` | {each.value:g} [{each.low:g}, {each.high:g}] | {each.source} |" for name, each in PRIORS.items()
    ]
    return "\n".join(["| prior | value [interval] | from |", "|---|---|---|", *rows])


def importers(name: str) -> str:
    """Return the tables of an importer: what it reads, and how; "formats", "torch", "bodies", "onnx" or "contrib"."""
    if name == "formats":
        rows = [
            (
                f"`{key}`",
                entry.holds,
                ", ".join(f"`{x}`" for x in (*entry.suffixes, *entry.keys)),
                "yes" if entry.write else "no",
            )
            for key, entry in FORMATS.items()
        ]
        return _table(("format", "holds", "known by suffix or key", "written"), rows)
    if name == "bodies":
        return _table(("operator", "read as"), [(f"`{key}`", text) for key, text in BODIES.items()])
    if name == "contrib":
        return ", ".join(f"`{key}`" for key in CONTRIB)
    if name == "onnx":
        return ", ".join(sorted(f"`{key}`" for key in onnx_operators.RULES if "." not in key))
    groups = {
        "no kernel, unless they have to copy": torch_calls.VIEWS,
        "copies of what they write": torch_calls.MOVES,
        "rows that are read": torch_calls.PICKS,
        "rows that are written": torch_calls.PUTS,
        "what they fill": torch_calls.FILLS,
        "elements": {*torch_calls.ELEMENTWISE, *torch_calls.CHOICES},
        "reductions": torch_calls.REDUCTIONS,
    }
    taken = set().union(*groups.values())
    groups["by rules of their own"] = frozenset(torch_costs.RULES) - taken
    rows = [(title, ", ".join(f"`{key}`" for key in sorted(keys))) for title, keys in groups.items()]
    return _table(("counted as", "names, without case and underscores"), rows)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def relinked(text: str, source: Path, docname: str) -> str:
    """Return text with the links of a file in `source` led to where they go from a page of the site.

    Links into this folder stay, links to pages in `ELSEWHERE` lead to the page that holds them, and of links to other
    files of the repository, which are no part of the site, the path is left. Sphinx looks at links between pages alone.
    """

    def link(match: re.Match[str]) -> str:
        label, target = match.groups()
        path, _, anchor = target.partition("#")
        if not path or "://" in target or target.startswith("mailto:"):
            return match.group()
        at = (source.parent / path).resolve()
        if at.is_dir() and (at / "README.md").is_file():
            at /= "README.md"
        if not at.exists():
            raise FileNotFoundError(f"{source}: {target} leads nowhere")
        inside = at.relative_to(ROOT).as_posix() if at.is_relative_to(ROOT) else path
        page = DOCS / f"{ELSEWHERE[inside]}.md" if inside in ELSEWHERE else at
        if not page.is_relative_to(DOCS):
            return f"{label[1:-1]} (`{inside}`)"
        shown = os.path.relpath(page, (DOCS / docname).parent)
        return f"{label}({shown}{'#' if anchor else ''}{anchor})"

    return _LINK.sub(link, text)


def pages(pattern: str) -> str:
    """Return the pages of the site that fit a pattern, for a table of contents; there may be none."""
    return "\n".join(sorted(path.relative_to(DOCS).with_suffix("").as_posix() for path in DOCS.glob(f"{pattern}.md")))


def completed(text: str, docname: str) -> str:
    """Return the text of a page with what its comments stand for."""

    def made(match: re.Match[str]) -> str:
        kind, argument = match.groups()
        if kind == "file":
            source = (DOCS / docname).parent / argument
            return relinked(source.read_text(encoding="utf-8"), source, docname)
        makers = {
            "room": room,
            "schedulers": schedulers,
            "commands": commands,
            "priors": priors,
            "pages": pages,
            "importers": importers,
        }
        return makers[kind](*argument.split())

    return _COMMENT.sub(made, relinked(text, DOCS / f"{docname}.md", docname))


def _complete(_app: "Sphinx", docname: str, source: list[str]) -> None:
    source[0] = completed(source[0], docname)


def _made_anew(_app: "Sphinx", env: "BuildEnvironment", *_: Any) -> list[str]:
    """Return the pages that follow from the library: what they are made of is not looked at."""
    return [name for name in env.all_docs if _COMMENT.search(Path(env.doc2path(name)).read_text(encoding="utf-8"))]


def setup(app: "Sphinx") -> dict[str, Any]:
    """Complete pages when they are read."""
    app.connect("source-read", _complete)
    app.connect("env-get-outdated", _made_anew)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
