"""Time limits: an exception where Python can be interrupted, the end of the process where it cannot."""

import ctypes
import faulthandler
import os
import signal
import threading
from collections.abc import Callable
from typing import IO, Any, Final, TypeVar

from simsched.base.jit import running_time

Found = TypeVar("Found")

GRACE: Final = 1.0
"""Seconds that a process has after its limit before it is ended, beside a tenth of the limit."""
_AGAIN: Final = 1.0  # s until the limit rings again: what is raised in a destructor or a callback from C gets lost
_SOON: Final = 1e-6  # s; a timer set to 0 would never ring
_raise_in_thread: Final = ctypes.pythonapi.PyThreadState_SetAsyncExc
_raise_in_thread.argtypes = (ctypes.c_ulong, ctypes.py_object)
_sink: IO[str] | None = None


class TimeLimitReached(BaseException):
    """What is raised in a call that took too long; no `Exception`, so that nobody takes it for an error of his own."""


def call_within(seconds: float | None, function: Callable[..., Found], *given: Any) -> Found:
    """Return what a function returns, and raise `TimeLimitReached` in it once it has taken so long; never after it.

    Parameters
    ----------
    seconds
        Wall time, the making of machine code left out; None sets no limit.
    function, given
        What is called with what.

    Notes
    -----
    In a main thread it is raised even where that sleeps, or in C that listens to signals; in others at the next line of
    Python. Machine code that holds the interpreter's lock hears neither: in a process that may be sacrificed
    (`allow_exit`) that process ends with code 1, `GRACE` and a tenth of the limit later. While a limit within a limit
    lasts it alone is heard, and other timers stand still.

    >>> try:
    ...     call_within(0.01, lambda: [None for _ in iter(int, 1)])
    ... except TimeLimitReached:
    ...     print("too long")
    too long
    """
    if seconds is None:
        return function(*given)
    alarm = threading.current_thread() is threading.main_thread() and hasattr(signal, "setitimer")
    limit = _Alarm(seconds) if alarm else _Timer(seconds)
    try:
        try:
            limit.start()
            return function(*given)
        finally:
            limit.active = False  # cannot itself be interrupted; what is raised from here on is of before
    finally:
        limit.end()


def allow_exit() -> None:
    """Let time limits end this process where nothing else helps: somebody will notice and start another."""
    global _sink
    if _sink is None:
        _sink = open(os.devnull, "w")  # noqa: SIM115, PTH123 - for as long as the process lives


def disarm() -> None:
    """Forget what a limit may have left that was reached at the very end of its call."""
    if _sink is not None:
        faulthandler.cancel_dump_traceback_later()


class _Limit:
    active = True

    def __init__(self, seconds: float) -> None:
        self._end = running_time() + seconds

    def left(self) -> float:
        """Return how many seconds there are left; after these and some more the process is ended."""
        left = self._end - running_time()  # more than told, where machine code was made meanwhile
        if left > 0 and _sink is not None:
            faulthandler.dump_traceback_later(1.1 * left + GRACE, exit=True, file=_sink)
        return left


class _Alarm(_Limit):
    """A limit in the main thread, by signal."""

    def start(self) -> None:
        self._before = signal.getitimer(signal.ITIMER_REAL)
        self._usual = signal.signal(signal.SIGALRM, self._ring)
        signal.setitimer(signal.ITIMER_REAL, max(self.left(), _SOON), _AGAIN)

    def _ring(self, *_: Any) -> None:
        if self.active and (left := self.left()) > 0:
            signal.setitimer(signal.ITIMER_REAL, left, _AGAIN)
        elif self.active:
            raise TimeLimitReached

    def end(self) -> None:
        self.active = False
        disarm()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._usual or signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, *self._before)


class _Timer(_Limit):
    """A limit in any thread, by an exception that another thread raises in it."""

    def start(self) -> None:
        self._target, self._over = threading.get_ident(), threading.Event()
        self._thread = threading.Thread(target=self._ring, name="time limit", daemon=True)
        self._thread.start()

    def _ring(self) -> None:
        wait = self.left()
        while not self._over.wait(max(wait, _SOON)) and self.active:
            wait = self.left()
            if wait <= 0:
                _raise_in_thread(self._target, TimeLimitReached)
                wait = _AGAIN

    def end(self) -> None:
        try:
            self._stop()
        except TimeLimitReached:  # heard only here: the function itself was in time
            self._stop()
        # What has not been heard yet is replaced, and heard. To withdraw it would leave the interpreter looking for it
        # at every call, and Python 3.11 would hang at the next one that a debugger or a coverage tool traces.
        try:
            _raise_in_thread(self._target, TimeLimitReached)
            while True:
                pass
        except TimeLimitReached:
            disarm()

    def _stop(self) -> None:
        self._over.set()
        self._thread.join()
