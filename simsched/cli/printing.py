"""Tables, facts and the names of written files, on stdout."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import simsched as ss
from simsched.cli.options import GraphOptions, Json, Output
from simsched.cli.progress import is_terminal


class Fact(NamedTuple):
    """What is said of something: as JSON if it has a key, as text if it has a text."""

    key: str | None
    value: Any
    text: str | None = None
    label: str | None = None
    """By default the key without its unit."""


def make_table(
    title: str, headings: Sequence[str], rows: Iterable[Sequence[str]], numbers: slice = slice(0), dim: Any = ()
) -> Any:
    """Return a table; `numbers` are the columns that are set to the right, `dim` says which rows matter less."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=escape(title))
    right = range(len(headings))[numbers]
    for i, heading in enumerate(headings):
        table.add_column(escape(heading), justify="right" if i in right else "left")
    dim = list(dim)
    for i, row in enumerate(rows):
        table.add_row(*map(escape, row), style="dim" if dim and dim[i] else None)
    return table


def print_table(table: Any) -> None:
    """Print a table, its title and caption on lines of their own; a terminal that is too narrow breaks lines."""
    from rich.console import Console

    title, caption, table.title, table.caption = table.title, table.caption, None, None  # as wide as they are
    table.box, table.pad_edge, table.padding = None, False, (0, 2, 0, 0)
    console = Console(width=None if is_terminal() else 160)
    wide = console.options.update(max_width=160)
    for column in table.columns[:-1]:  # in the last one there may be a sentence, to be wrapped
        column.no_wrap = True
        column.min_width = max(console.measure(cell, options=wide).maximum for cell in (column.header, *column.cells))
    # a terminal that is too narrow breaks the lines: better than figures cut short
    console.width = max(console.width, console.measure(table, options=wide).minimum)
    for text, style in ((title, "table.title"), (table, None), (caption, "table.caption")):
        if text:
            console.print(text, style=style, highlight=False, soft_wrap=text is not table)


def print_pairs(pairs: Sequence[tuple[str, str]]) -> None:
    """Print names and texts in two columns."""
    width = max(len(name) for name, _ in pairs)
    for name, text in pairs:
        print(f"{name:<{width}}  {text}")


def print_json(data: Mapping[str, Any]) -> None:
    """Print JSON."""
    print(json.dumps(data, indent=1, allow_nan=False))


def print_facts(facts: Sequence[Fact], as_json: bool) -> None:
    """Print facts as JSON or in two columns."""
    if as_json:
        print_json({fact.key: fact.value for fact in facts if fact.key is not None})
        return
    labels = [fact.label or str(fact.key).removesuffix("_us").replace("_", " ") for fact in facts]
    print_pairs([(label, fact.text) for label, fact in zip(labels, facts, strict=True) if fact.text is not None])


def print_written(name: str, *paths: str | None) -> None:
    """Say what was written."""
    for path in paths:
        if path is not None:
            print(f"{name} written to {path}")


def write_pictures(trace: "ss.Trace", perfetto: str | None, gantt: str | None) -> None:
    """Write what is asked for of a trace."""
    # before anything is printed: a reader who goes away, as `head` does, costs no file
    if perfetto is not None:
        trace.to_perfetto(perfetto)
    if gantt is not None:
        trace.gantt(gantt)


def print_traced(source: GraphOptions) -> None:
    """Say what the dependencies of a graph are worth that is from a profiler trace."""
    if source.traced is not None:
        print("dependencies are those of the traced streams: an upper bound on what is needed (order=waits drops them)")
        print(f"waits between streams: {source.traced.n_waits}, of which {source.traced.guessed_waits} are guessed")


@dataclass(frozen=True)
class ResultOptions:
    """What becomes of a result."""

    as_json: Json = False
    output: Output = None

    def tell(
        self,
        found: Any,
        picture: str | None = None,
        *,
        draw: str = "plot",
        name: str = "result",
        text: str | None = None,
        more: Sequence[str] = (),
        leaving_out: Sequence[str] = (),
    ) -> None:
        """Write the files of a result, then print it.

        Parameters
        ----------
        found
            The result.
        picture, draw
            The file, and the method that draws it.
        name
            How it is called.
        text
            What is printed; by default its table.
        more
            Lines below the table.
        leaving_out
            Fields that are for files alone.
        """
        # what goes wrong does so before a file is written
        fields = (
            {key: value for key, value in found.to_dict().items() if key not in leaving_out} if self.as_json else {}
        )
        said = json.dumps(fields, indent=1, allow_nan=False) if self.as_json else text or found.table()
        if picture is not None:
            getattr(found, draw)(picture)
        if self.output is not None:
            found.save(self.output)
        if isinstance(said, str):
            print(said)
        else:
            print_table(said)
        if self.as_json:
            return
        for line in more:
            print(line)
        print_written(name, self.output)
        print_written("picture", picture)
