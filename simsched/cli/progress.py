"""How far a command is: a bar on a terminal; of a study a line a minute where there is none."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from time import monotonic
from typing import Final

_EVERY: Final = 60.0  # s between lines

Clock = Callable[[], float]
Told = Callable[[int, int, int], None]
"""Called with how many rows of how many are done, and how many of them have no result."""


def is_terminal() -> bool:
    """Return whether stdout is read by a person."""
    return sys.stdout is not None and sys.stdout.isatty()


@contextmanager
def _bar(description: str, total: int | None, text: str) -> Iterator[Callable[..., None] | None]:
    """Give what updates a bar on stderr; None where there is no terminal."""
    if not is_terminal():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    texts = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[text]}"), TimeElapsedColumn())
    with Progress(*texts, console=console, transient=True) as bar:
        yield partial(bar.update, bar.add_task(description, total=total, text=text))


@contextmanager
def progress(total: int) -> Iterator[Callable[..., None]]:
    """Give a function that is told a scheduler's name, then what it is doing."""
    begun = 0
    with _bar("starting", total, f"0/{total}") as update:

        def tell(name: str, doing: str = "") -> None:
            nonlocal begun
            if update is None:
                return
            begun += not doing
            update(description=f"{name}: {doing}" if doing else name, completed=begun - 1, text=f"{begun - 1}/{total}")

        yield tell


class Pace:
    """How fast rows are made; those done when it is first told say nothing about it.

    Parameters
    ----------
    clock
        Returns seconds.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._first: tuple[int, float] | None = None

    def text(self, done: int, total: int, without: int) -> str:
        """Return how far it is, how fast, how long it has to go, and how many rows have no result."""
        now = self._clock()
        if self._first is None:
            self._first = done, now
        made, seconds = done - self._first[0], now - self._first[1]
        text = f"{done} of {total} rows"
        if made and seconds > 0:
            text += f", {made / seconds:.3g} rows/s"
            if done < total:
                text += f", {_duration((total - done) * seconds / made)} left"
        return text + (f", {without} without a result" if without else "")


@contextmanager
def watched(name: str) -> Iterator[Told]:
    """Give a function that shows how far a study is."""
    with _bar(name, None, "starting") as update:
        if update is None:
            yield lines(name, lambda line: print(line, file=sys.stderr, flush=True), monotonic)
            return
        pace = Pace(monotonic)

        def tell(done: int, total: int, without: int) -> None:
            update(completed=done, total=total, text=pace.text(done, total, without))

        yield tell


def lines(name: str, write: Callable[[str], None], clock: Clock) -> Told:
    """Return a function that writes a line a minute, and one at the end."""
    pace, said = Pace(clock), clock()

    def tell(done: int, total: int, without: int) -> None:
        nonlocal said
        text = pace.text(done, total, without)
        if done == total or clock() - said >= _EVERY:
            said = clock()
            write(f"{name}: {text}")

    return tell


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {seconds:02} s" if minutes else f"{seconds} s"
