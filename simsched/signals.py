"""Interruptions that have to wait: native libraries that are cut off while they are set up abort the process."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interrupt_later() -> Iterator[None]:
    """Let Ctrl-C wait until the end of the block; only the main thread is ever interrupted."""
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
