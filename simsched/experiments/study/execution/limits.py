"""Time limits: an exception where Python can be interrupted, the end of the process where it cannot."""

import faulthandler
import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeVar

from simsched.base.jit import running_time

Found = TypeVar("Found")

_GRACE: Final = 1.0  # s that a process has after its limit before it is ended, beside a tenth of the limit
_AGAIN: Final = 1.0  # s until the limit rings again: an error raised in a destructor or a callback from C gets lost
_SHORTEST: Final = 1e-6  # s; a timer set to less would never ring
REPORT_LATER: Final = b"+"
"""What a process reports at its limit if it has time left, because it made machine code."""
REPORT_LIMIT: Final = b"Timeout"
"""What it reports before its limit ends it: the first word of `faulthandler`."""
_report: int | None = None


class TimeLimitReached(BaseException):
    """Raised in a call that took too long; no `Exception`, so that no function catches it as its own error."""


def call_within(seconds: float | None, function: Callable[..., Found], *given: Any) -> Found:
    """Return a function's result; raise `TimeLimitReached` in it after the time limit, and never after it has ended.

    Parameters
    ----------
    seconds
        Wall time, the making of machine code left out; None sets no limit.
    function, given
        The function and its arguments.

    Notes
    -----
    It is raised even where the function sleeps, or is in C that handles signals, but in the main thread alone: in
    others there is no limit. Machine code that holds the interpreter's lock does not react to it: in a process that may
    be sacrificed (`allow_exit`) that process ends, a second and a tenth of the limit later. While a limit within a
    limit lasts, only the inner one is active, and other timers are stopped.

    >>> try:
    ...     call_within(0.01, lambda: [None for _ in iter(int, 1)])
    ... except TimeLimitReached:
    ...     print("too long")
    too long
    """
    if seconds is None or threading.current_thread() is not threading.main_thread():
        return function(*given)
    end = running_time() + seconds
    active = True

    def ring(*heard: Any) -> None:
        left = end - running_time()  # longer than the limit, if machine code was compiled meanwhile
        if active and left < _SHORTEST:
            raise TimeLimitReached
        if active:
            if _report is not None:
                faulthandler.dump_traceback_later(longest(left), exit=True, file=_report)
                if heard:
                    with suppress(OSError):
                        os.write(_report, REPORT_LATER)
            signal.setitimer(signal.ITIMER_REAL, left, _AGAIN)

    before = signal.getitimer(signal.ITIMER_REAL)
    usual = signal.signal(signal.SIGALRM, ring)
    try:
        try:
            ring()
            return function(*given)
        finally:
            active = False  # cannot itself be interrupted; errors raised from here on are older
    finally:
        active = False
        if _report is not None:
            faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, usual or signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, *before)


def longest(seconds: float) -> float:
    """Return after how many seconds a process with a limit ends itself where nothing else helps."""
    return 1.1 * seconds + _GRACE


def allow_exit(report: int) -> None:
    """Let time limits end this process where nothing else helps, and write to a file that one does, or will later."""
    global _report
    _report = report
