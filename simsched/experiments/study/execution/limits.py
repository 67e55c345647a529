"""Time limits: an exception where Python can be interrupted, the end of the process where it cannot."""

import ctypes
import faulthandler
import os
import signal
import threading
from contextlib import AbstractContextManager, nullcontext
from time import monotonic
from types import FrameType, TracebackType
from typing import IO, Any, Final

from simsched.base.jit import running_time

GRACE: Final = 1.0
"""Seconds that a process has after its limit before it is ended, beside a tenth of the limit."""
_AGAIN: Final = 1.0  # s until the limit rings again: what is raised in a destructor or a callback from C gets lost
_ENTERED: Final = 1e-3  # s, in which a block is entered; much less, and it rings while it is being wound up
_SOON: Final = 1e-6  # s; a timer set to 0 would never ring
_raise_in_thread: Final = ctypes.pythonapi.PyThreadState_SetAsyncExc
_raise_in_thread.argtypes = (ctypes.c_ulong, ctypes.py_object)
_sink: IO[str] | None = None


class TimeLimitReached(BaseException):
    """What is raised in a block that took too long; no `Exception`, so that nobody takes it for an error of his own."""


def time_limited(seconds: float | None) -> AbstractContextManager[None]:
    """Raise `TimeLimitReached` in a block once it has taken so long; never after it.

    Parameters
    ----------
    seconds
        Wall time, the making of machine code left out; None sets no limit.

    Notes
    -----
    In a main thread that knows SIGALRM the block is interrupted even where it sleeps, and the handler and the timer of
    before are restored; in other threads at the next line of Python. Machine code that holds the interpreter's lock
    hears neither: in a process that may be sacrificed (`allow_exit`) that process ends with code 1, `GRACE` and a tenth
    of the limit later. Limits within limits: the inner one alone is heard while it lasts. A block had better be a call:
    CPython 3.12 and 3.13 do not guard the last jump of a loop at the end of the block itself.

    >>> try:
    ...     with time_limited(0.01):
    ...         while True:
    ...             pass
    ... except TimeLimitReached:
    ...     print("too long")
    too long
    """
    if seconds is None:
        return nullcontext()
    if threading.current_thread() is threading.main_thread() and hasattr(signal, "setitimer"):
        return _Alarm(max(seconds, _SOON))
    return _Timer(max(seconds, _SOON))


def allow_exit() -> None:
    """Let time limits end this process where nothing else helps: somebody will notice and start another."""
    global _sink
    if _sink is None:
        _sink = open(os.devnull, "w")  # noqa: SIM115, PTH123 - for as long as the process lives


def disarm() -> None:
    """Forget what a limit may have left that was reached at the very end of its block."""
    if _sink is not None:
        faulthandler.cancel_dump_traceback_later()


def _arm(seconds: float) -> None:
    if _sink is not None:
        faulthandler.dump_traceback_later(1.1 * seconds + GRACE, exit=True, file=_sink)


class _Alarm:
    """A limit in the main thread, by signal."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._active = True
        self._usual: Any = signal.SIG_DFL
        self._left = self._interval = self._begun = self._end = 0.0

    def __enter__(self) -> None:
        _arm(self._seconds)
        self._begun, self._end = monotonic(), running_time() + self._seconds
        self._usual = signal.signal(signal.SIGALRM, self._ring)
        self._left, self._interval = signal.setitimer(signal.ITIMER_REAL, self._seconds, _AGAIN)

    def _ring(self, _number: int, frame: FrameType | None) -> None:
        code = None if frame is None else frame.f_code
        if code in (_Alarm.__enter__.__code__, _Alarm._ring.__code__):  # were it raised there, nobody would stop it
            signal.setitimer(signal.ITIMER_REAL, _ENTERED, _AGAIN)
        elif self._active and code is not _Alarm.__exit__.__code__:  # on its way out it was in time
            left = self._end - running_time()
            if left > 0:  # machine code was made meanwhile
                _arm(left)
                signal.setitimer(signal.ITIMER_REAL, max(left, _ENTERED), _AGAIN)
                return
            raise TimeLimitReached(f"{self._seconds:g} s are over")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._active = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL if self._usual is None else self._usual)
        if self._left:
            left = max(self._left - (monotonic() - self._begun), _SOON)
            signal.setitimer(signal.ITIMER_REAL, left, self._interval)
        disarm()


class _Timer:
    """A limit in any thread, by an exception that another thread raises in it."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._active = True
        self._thread = threading.get_ident()
        self._lock = threading.Lock()
        self._over = threading.Event()

    def __enter__(self) -> None:
        _arm(self._seconds)
        threading.Thread(target=self._ring, name="time limit", daemon=True).start()

    def _ring(self) -> None:
        end = running_time() + self._seconds
        while (left := end - running_time()) > 0:  # longer than told, where machine code is made meanwhile
            if self._over.wait(max(left, _ENTERED)):
                return
        with self._lock:
            if self._active:
                _raise_in_thread(self._thread, TimeLimitReached)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            with self._lock:
                self._active = False
            self._over.set()
            _raise_in_thread(self._thread, ctypes.py_object())  # what was raised and has not been heard yet
        except TimeLimitReached:  # heard only here: the block itself was in time
            pass
        disarm()
