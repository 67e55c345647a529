"""Tables, facts and the names of written files, on stdout."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from simsched.cli.options import Graph, Json, Output
from simsched.cli.progress import is_terminal

Pairs = list[tuple[str, str]]
File = tuple[str, str | None, Callable[[str], Any]]
"""How it is called, where it is to be written if it is asked for, and what writes it."""


def print_table(table: Any) -> None:
    """Print a table, its title and caption on lines of their own; a terminal that is too narrow breaks lines."""
    from rich.console import Console

    title, caption, table.title, table.caption = table.title, table.caption, None, None  # as wide as they are
    table.box, table.pad_edge, table.padding = None, False, (0, 2, 0, 0)
    console = Console(width=None if is_terminal() else 160, emoji=False)
    wide = console.options.update(max_width=160)
    for column in table.columns[:-1]:  # in the last one there may be a sentence, to be wrapped
        column.no_wrap = True
        column.min_width = max(console.measure(cell, options=wide).maximum for cell in (column.header, *column.cells))
    # a terminal that is too narrow breaks the lines: better than figures cut short
    console.width = max(console.width, console.measure(table, options=wide).minimum)
    for text, style in ((title, "table.title"), (table, None), (caption, "table.caption")):
        if text:
            console.print(text, style=style, highlight=False, soft_wrap=text is not table)


def print_pairs(pairs: Pairs) -> None:
    """Print names and texts in two columns."""
    width = max(len(name) for name, _ in pairs)
    for name, text in pairs:
        print(f"{name:<{width}}  {text}".rstrip())


def print_json(data: Mapping[str, Any]) -> None:
    """Print JSON."""
    print(json.dumps(data, indent=1, allow_nan=False))


def tell(data: Callable[[], Mapping[str, Any]], shown: Sequence[Any], files: Sequence[File], *, as_json: bool) -> None:
    """Write files, then print.

    Parameters
    ----------
    data
        What is printed as JSON.
    shown
        What is printed otherwise: lines, pairs, tables, or what makes such.
    files
        What is written before anything is printed: a reader who goes away, as `head` does, costs no file.
    as_json
        Whether JSON is printed, and nothing else.
    """
    said = json.dumps(data(), indent=1, allow_nan=False) if as_json else ""  # what goes wrong does so before a file
    for _, path, write in files:
        if path is not None:
            write(path)
    if as_json:
        print(said)
        return
    for one in shown:
        made = one() if callable(one) else one
        if isinstance(made, str):
            print(made)
        elif isinstance(made, list):
            print_pairs(made)
        else:
            print_table(made)
    for name, path, _ in files:
        if path is not None:
            print(f"{name} written to {path}")


def tell_facts(facts: Sequence[Any], files: Sequence[File], *, as_json: bool) -> None:
    """Write files, then print facts as `simsched.show.facts` has them, see `tell`."""
    from simsched.show.facts import pairs

    values = {fact.key: fact.value for fact in facts if fact.key is not None}
    tell(lambda: values, [pairs(facts)], files, as_json=as_json)


def traced_lines(source: Graph) -> list[str]:
    """Return what the dependencies of a graph are worth that is from a profiler trace."""
    if source.traced is None:
        return []
    return [
        "dependencies are those of the traced streams: an upper bound on what is needed (order=waits drops them)",
        f"waits between streams: {source.traced.n_waits}, of which {source.traced.guessed_waits} are guessed",
    ]


@dataclass(frozen=True)
class Result:
    """What becomes of a result."""

    as_json: Json = False
    output: Output = None

    def tell(
        self, found: Any, *shown: Any, files: Sequence[File] = (), name: str = "result",
        data: Callable[[], Mapping[str, Any]] | None = None,
    ) -> None:  # fmt: skip
        """Write the files of a result, then print it, see `tell`; by default its fields or its table."""
        own = (name, self.output, found.save)
        tell(data or found.to_dict, shown or [found.table], [own, *files], as_json=self.as_json)
