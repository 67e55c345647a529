"""Tables, pairs and the names of written files, on stdout."""

from typing import TYPE_CHECKING, Any

from simsched.cli.inputs import check_outputs, is_terminal, read_traced

if TYPE_CHECKING:
    from simsched.model.trace import Trace


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


def print_traced(source: str) -> None:
    """Say what the dependencies of a graph are worth that is from a profiler trace."""
    program = read_traced(source)
    if program is None:
        return
    print("dependencies are those of the traced streams: an upper bound on what is needed (order=waits drops them)")
    print(f"waits between streams: {program.n_waits}, of which {program.guessed_waits} are guessed")


def trace_facts(source: str) -> dict[str, Any]:
    """Return what JSON says of the profiler trace that a graph is from, nothing of anything else."""
    program = read_traced(source)
    if program is None:
        return {}
    return {"trace": {"step": program.step, "waits": program.n_waits, "guessed_waits": program.guessed_waits}}


def print_pairs(pairs: list[tuple[str, str]]) -> None:
    """Print names and texts in two columns."""
    width = max(len(name) for name, _ in pairs)
    for name, text in pairs:
        print(f"{name:<{width}}  {text}")


def check_pictures(source: str, perfetto: str | None, *drawings: str | None, output: str | None = None) -> None:
    """Refuse pictures of unknown formats and files that cannot be written, before anything is computed."""
    from simsched.show.figure import require_format

    require_format(*drawings)
    check_outputs(source, output, perfetto, *drawings)


def write_pictures(trace: "Trace", perfetto: str | None, gantt: str | None) -> None:
    """Write what is asked for of a trace."""
    # before anything is printed: a reader who goes away, as `head` does, costs no file
    if perfetto is not None:
        trace.to_perfetto(perfetto)
    if gantt is not None:
        trace.gantt(gantt)


def print_pictures(name: str, *paths: str | None) -> None:
    """Say what was written."""
    for path in paths:
        if path is not None:
            print(f"{name} written to {path}")
