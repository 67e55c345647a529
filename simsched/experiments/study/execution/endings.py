"""The end of a process with all its descendants, also in other groups and sessions."""

import ctypes
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import sleep
from typing import Any, Final

_END_WITH_PARENT: Final = 1  # PR_SET_PDEATHSIG
_ADOPT_ORPHANS: Final = 36  # PR_SET_CHILD_SUBREAPER
_ROUNDS: Final = 50  # looks for remaining processes: just ended ones still show up for some looks
_SHORT: Final = 0.002  # s between two rounds
_ENDED: Final = "ZX"  # states of ended processes

_prctl: Final[Callable[..., Any]] = ctypes.CDLL(None).prctl if sys.platform == "linux" else lambda *_: None
# both are made before anything forks
end_with_parent: Final[Callable[[], object]] = partial(_prctl, _END_WITH_PARENT, signal.SIGKILL)
"""Has the system kill this process when the thread that made it ends."""
adopt_orphans: Final[Callable[[], object]] = partial(_prctl, _ADOPT_ORPHANS, 1)
"""Makes this process the parent of all that it started whose own parents end: so `end_tree` finds them."""


def end_tree(pid: int) -> None:
    """End a process, stopped or not, its group, and all that it started.

    Outside of Linux, processes of other groups are left running.
    """
    if pid != os.getpid():
        send(pid, signal.SIGSTOP)  # it starts nothing more
    for _ in range(_ROUNDS):
        started = descendants(pid)
        if not started:
            break
        for process in started:
            send(process, signal.SIGKILL)
        sleep(_SHORT)
    with suppress(OSError):
        os.killpg(pid, signal.SIGKILL)
    send(pid, signal.SIGKILL)


def send(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process that may have ended."""
    with suppress(OSError):
        os.kill(pid, number)


def descendants(pid: int) -> list[int]:
    """Return the processes that a process started, and their descendants, unless they have ended."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError):
            state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
            if state not in _ENDED:
                children.setdefault(int(parent), []).append(int(folder.name))
    started = list(children.get(pid, ()))
    for process in started:  # grows as it is read
        started += children.get(process, ())
    return started
