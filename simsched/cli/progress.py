"""How far a command is: a bar on a terminal; of a study a line a minute where there is none."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from time import monotonic
from typing import Final

_EVERY: Final = 60.0  # s between lines


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


@contextmanager
def watched(name: str) -> Iterator[Callable[[int, int, int], None]]:
    """Give a function that is told how many rows of how many are done, and how many of them have no result."""
    first: tuple[int, float] | None = None
    said = monotonic()
    with _bar(name, None, "starting") as update:

        def tell(done: int, total: int, without: int) -> None:
            nonlocal first, said
            now = monotonic()
            first = first or (done, now)  # those that were done by then say nothing about the pace
            text = _pace(done, total, done - first[0], now - first[1])
            text += f", {without} without a result" if without else ""
            if update is not None:
                update(completed=done, total=total, text=text)
            elif done == total or now - said >= _EVERY:
                said = now
                print(f"{name}: {text}", file=sys.stderr, flush=True)

        yield tell


def _pace(done: int, total: int, made: int, seconds: float) -> str:
    """Return how far it is, how fast rows are made, and how long it has to go."""
    text = f"{done} of {total} rows"
    if made and seconds > 0:
        text += f", {made / seconds:.3g} rows/s"
        if done < total:
            text += f", {_duration((total - done) * seconds / made)} left"
    return text


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {seconds:02} s" if minutes else f"{seconds} s"
