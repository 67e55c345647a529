"""Tables, facts and the names of written files, on stdout."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from simsched.cli.options import Graph, Json, Output
from simsched.cli.progress import is_terminal
from simsched.experiments.result import WIDTH, Table, write_table

Pairs = list[tuple[str, str]]
File = tuple[str, str | None, Callable[[str], Any]]
"""How it is called, where it is to be written if it is asked for, and what writes it."""


def print_table(table: Table) -> None:
    """Print a table, its title and note on lines of their own; a terminal that is too narrow breaks lines."""
    from rich.console import Console

    write_table(table, Console(width=None if is_terminal() else WIDTH, emoji=False))


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
    from simsched.show.facts import texts

    values = {fact.key: fact.value for fact in facts if fact.key is not None}
    tell(lambda: values, [texts(facts)], files, as_json=as_json)


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
