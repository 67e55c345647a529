"""Interruptions that have to wait: Ctrl-C, where libraries are set up, and the collection of garbage."""

import gc
import signal
import threading
from _thread import interrupt_main
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from time import monotonic
from types import FrameType

# s
_A_MOMENT = 0.01
_LONGEST_IMPORT = 5.0
_IMPATIENT = 1.0  # s between two presses that are meant as one
_stopped: list[str] = []


@contextmanager
def interrupt_later() -> Iterator[None]:
    """Let Ctrl-C wait until the end of the block: native libraries that are cut off in setting up abort the process.

    Only the main thread is ever interrupted.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[FrameType | None] = []
    usual = signal.signal(signal.SIGINT, lambda _number, frame: came.append(frame))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL if usual is None else usual)
        if came and callable(usual):
            usual(signal.SIGINT, came[0])


@contextmanager
def one_interrupt() -> Iterator[None]:
    """Let Ctrl-C pressed twice within a second count once, and wait some seconds for an import to end.

    A second one would interrupt the clean-up after the first. One that cuts off an import may be lost in a callback, or
    be turned into an ImportError by a library in C; one that still waits at the end of the block is raised there. For
    the main thread.
    """
    last = -inf
    pressed = inf

    def interrupt(_number: int, frame: FrameType | None) -> None:
        nonlocal last, pressed
        now = monotonic()
        if _importing(frame) and now - pressed < _LONGEST_IMPORT:
            pressed = min(pressed, now)
            again = threading.Timer(_A_MOMENT, interrupt_main)
            again.daemon = True
            again.start()
        else:
            pressed = inf
            if now - last > _IMPATIENT:
                last = now
                raise KeyboardInterrupt

    usual = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is interrupt:
            signal.signal(signal.SIGINT, usual)
    if pressed < inf:
        raise KeyboardInterrupt


def _importing(frame: FrameType | None) -> bool:
    while frame is not None and not frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    return frame is not None


def searches_stopped() -> int:
    """Return how many searches Ctrl-C has stopped in this process, which then went on with the best they knew."""
    return len(_stopped)


def note_stopped(search: str) -> None:
    """Take note of such a search."""
    _stopped.append(search)


@contextmanager
def without_collector() -> Iterator[None]:
    """Pause the cyclic garbage collector, which would look through all objects at any moment."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
