"""stdout and stderr, which may be closed, missing or full."""

import os
import sys
from contextlib import suppress
from typing import Any

_NAMES = ("stdin", "stdout", "stderr")


def fill_in_missing() -> None:
    """Open the null device for each of stdin, stdout and stderr that a process was started without.

    Else the next file that is opened gets the number of one, and with it all that libraries in C print there.
    """
    for number, name in enumerate(_NAMES):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the least number that is free: this one
        if getattr(sys, name) is None:
            mode = "w" if number else "r"
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115


def failure_of(stream: Any) -> str | None:
    """Return why nothing can be written to a stream any more, None if something can."""
    try:
        if stream is not None:
            stream.write("")
            stream.flush()
    except (OSError, ValueError) as error:  # a full disk; a stream that was closed
        return getattr(error, "strerror", None) or str(error)
    return None


def give_up(stream: Any) -> None:
    """Discard a stream's buffer, so that flushing it cannot fail when the process ends."""
    with suppress(OSError, ValueError, AttributeError):  # a stream that is no file
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


def write_to_stderr(line: str) -> None:
    """Write a line to stderr, if there is one that takes it."""
    stream = sys.stderr
    if stream is None:
        return
    try:
        stream.write(f"{line}\n")
        stream.flush()
    except (OSError, ValueError):
        give_up(stream)
