"""Output of commands: tables, facts and the names of written files, and on a terminal their progress."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from simsched.base.io import dump_json
from simsched.base.streams import write_to_stderr
from simsched.base.system import has_threads
from simsched.base.text import join_lines, printable
from simsched.experiments.result import WIDTH, TextTable, write_table

if TYPE_CHECKING:
    from workloads.formats.kineto.facts import TraceFacts

_EVERY: Final = 60.0  # s between lines
Pairs = list[tuple[str, str]]
File = tuple[str, str | None, Callable[[str], Any]]
"""How it is called, where it is to be written if it is asked for, and what writes it."""


def _is_terminal() -> bool:
    """Return whether stdout is read by a person."""
    return sys.stdout is not None and sys.stdout.isatty()


def say(*lines: str) -> None:
    """Print lines, in which control characters and the like are escaped: names are data."""
    print(join_lines(lines))


def print_table(table: TextTable) -> None:
    """Print a table, its title and note on lines of their own; a terminal that is too narrow breaks lines."""
    from rich.console import Console

    write_table(table, Console(width=None if _is_terminal() else WIDTH, emoji=False))


def print_pairs(pairs: Pairs) -> None:
    """Print names and texts in two columns."""
    rows = [(printable(name), printable(text)) for name, text in pairs]
    width = max(len(name) for name, _ in rows)
    say(*(f"{name:<{width}}  {text}".rstrip() for name, text in rows))


def tell(
    data: Callable[[], Mapping[str, Any]],
    shown: Sequence[Any],
    files: Sequence[File],
    *,
    as_json: bool,
    ran: "TraceFacts | None" = None,
) -> None:
    """Write files, then print.

    Parameters
    ----------
    data
        Returns the value to print as JSON.
    shown
        Otherwise printed: lines, pairs, tables, or a function that returns them.
    files
        Writers of files, which run before anything is printed: a reader that ends early, as `head` does, costs no file.
    as_json
        Whether JSON is printed, and nothing else.
    ran
        Facts about the step that a trace ran, printed first; in JSON the field ``ran``.
    """
    if as_json:
        values = dict(data()) | ({} if ran is None else {"ran": ran.to_dict()})
        # Data that cannot be written fail before the first file is opened.
        said: Sequence[Any] = [dump_json(values).rstrip()]
    elif ran is not None:
        said = [ran.rows(), "", *shown]
    else:
        said = shown
    wanted = [(name, path, write) for name, path, write in files if path is not None]
    for _, path, write in wanted:
        write(path)
    for one in said:
        part = one() if callable(one) else one
        if isinstance(part, str):
            say(*part.split("\n"))
        elif isinstance(part, list):
            print_pairs(part)
        else:
            print_table(part)
    for name, path, _ in [] if as_json else wanted:
        say(f"{name} written to {path}")


def tell_facts(facts: Sequence[Any], files: Sequence[File], *, as_json: bool, ran: "TraceFacts | None" = None) -> None:
    """Write files, then print facts in the form of `simsched.show.facts`, see `tell`."""
    from simsched.show.facts import texts

    values = {fact.key: fact.value for fact in facts if fact.key is not None}
    tell(lambda: values, [texts(facts)], files, as_json=as_json, ran=ran)


@contextmanager
def _bar(description: str, total: int | None, text: str) -> Iterator[Callable[..., None] | None]:
    """Yield a function that updates a bar on stderr; None where there is no terminal."""
    if _is_terminal():
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        name, count = (TextColumn(f"{{task.{column}}}", markup=False) for column in ("description", "fields[text]"))
        if (console := Console(stderr=True)).is_terminal:
            columns = (name, BarColumn(), count, TimeElapsedColumn())
            drawn_by_itself = has_threads()
            with Progress(*columns, console=console, transient=True, auto_refresh=drawn_by_itself) as bar:
                task = bar.add_task(printable(description), total=total, text=text)
                yield partial(bar.update, task, refresh=not drawn_by_itself)
                return
    yield None


@contextmanager
def progress(total: int) -> Iterator[Callable[..., None]]:
    """Yield a function that takes a scheduler's name, then its current step.

    Where there is no terminal, it prints a line a minute.
    """
    begun = 0
    printed = monotonic()
    with _bar("starting", total, f"0/{total}") as update:

        def tell(name: str, doing: str = "") -> None:
            nonlocal begun, printed
            begun += not doing
            done = begun - 1
            description = printable(f"{name}: {doing}" if doing else name)
            if update is not None:
                update(description=description, completed=done, text=f"{done}/{total}")
            elif monotonic() - printed >= _EVERY:
                printed = monotonic()
                write_to_stderr(f"{done} of {total} done, {description}")

        yield tell


@contextmanager
def row_progress(name: str) -> Iterator[Callable[[int, int, int], None]]:
    """Yield a function that takes the numbers of rows that are done, that are to do, and that have no result.

    Without a terminal, it prints a line a minute.
    """
    first: tuple[int, float] | None = None
    said = monotonic()
    with _bar(name, None, "starting") as update:

        def tell(done: int, total: int, without: int) -> None:
            nonlocal first, said
            now = monotonic()
            first = first or (done, now)  # rows that were done by then do not count in the pace
            text = f"{done} of {total} rows"
            new = done - first[0]
            seconds = now - first[1]
            if new and seconds > 0:
                text += f", {new / seconds:.3g} rows/s"
                if done < total:
                    text += f", {timedelta(seconds=round((total - done) * seconds / new))} left"
            if without:
                text += f", {without} without a result"
            if update is not None:
                update(completed=done, total=total, text=text)
            elif done == total or now - said >= _EVERY:
                said = now
                write_to_stderr(printable(f"{name}: {text}"))

        yield tell
