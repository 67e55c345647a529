"""When a long search has to stop: a time limit, or Ctrl-C."""

import logging
import signal
import threading
from math import inf
from types import FrameType
from typing import Any

from simsched.base.jit import running_time

_logger = logging.getLogger(__name__)


class Deadline:
    """Within ``with``, says whether a search has to end with the best it has.

    Parameters
    ----------
    scheduler
        Who searches, for the warning.
    time_limit
        Wall time in s above 0, from entering the block, the making of machine code left out; None for no limit.

    Attributes
    ----------
    reason
        Why the search was stopped, ``"time limit"`` or ``"interrupted"``; None if it was not.

    Notes
    -----
    The first Ctrl-C is taken as the wish to stop, of a search within a search as that to stop both; a
    second one interrupts as usual. Only in the main thread does Ctrl-C arrive at all, and a process that
    ignores it goes on doing so. A search that asks `over` and stops is warned about in the log.

    >>> with Deadline("search", time_limit=3600.0) as deadline:
    ...     deadline.over()
    False
    """

    def __init__(self, scheduler: str, time_limit: float | None = None) -> None:
        self.reason: str | None = None
        self._scheduler = scheduler
        self._limit = inf if time_limit is None else float(time_limit)
        self._end = inf
        self._usual: Any = None  # what Ctrl-C did before, while this one hears it
        self._interrupted = False

    def __enter__(self) -> "Deadline":
        self._end = running_time() + self._limit
        in_main = threading.current_thread() is threading.main_thread()
        if in_main and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            self._usual = signal.signal(signal.SIGINT, self._interrupt) or signal.SIG_DFL
        return self

    def __exit__(self, *_error: object) -> None:
        if self._usual is not None:
            signal.signal(signal.SIGINT, self._usual)
            self._usual = None

    def over(self) -> bool:
        """Return whether the search has to stop; the first time that is so, it is logged."""
        if self.reason is None and (self._interrupted or running_time() >= self._end):
            self.reason = "interrupted" if self._interrupted else "time limit"
            _logger.warning("%s: stopped (%s); this is the best schedule so far", self._scheduler, self.reason)
        return self.reason is not None

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        self._interrupted, usual = True, self._usual
        self.__exit__()  # a second Ctrl-C is not asked
        if isinstance(getattr(usual, "__self__", None), Deadline):
            usual(number, frame)  # that of the search which this one is a part of
