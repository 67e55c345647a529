"""Interruptions that have to wait: Ctrl-C, where libraries are set up, and the collection of garbage."""

import gc
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


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
def without_collector() -> Iterator[None]:
    """Pause the cyclic garbage collector: it looks through all there is, and comes when nobody asked."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
