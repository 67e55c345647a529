"""Host threads that issue a program: each has a list of calls that is made before time is measured."""

import logging
import threading
from collections.abc import Sequence
from queue import SimpleQueue
from time import sleep
from typing import Final

from hwbackend.cuda.interface import Call

_logger = logging.getLogger(__name__)

_WAKE: Final = 30.0  # s that a host thread is waited for when it should end


class Hosts:
    """Host threads, the calling one among them, that make their calls at the same time; a context manager.

    Parameters
    ----------
    count
        How many.
    gates
        Opened when a thread fails, so that no other one waits for it for ever.

    Notes
    -----
    The others are woken before the first call is made, and wait for the word to begin by yielding rather than sleeping:
    they begin some 10 us apart.
    """

    def __init__(self, count: int, gates: Sequence[threading.Event] = ()) -> None:
        self._gates = gates
        self._begin = False
        self._failed: list[Exception] = []  # the first in time comes first: it may be why the others failed
        self._calls: list[SimpleQueue[Sequence[Call] | None]] = [SimpleQueue() for _ in range(count - 1)]
        self._said: SimpleQueue[int] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._serve, args=(i,), name=f"simsched-host-{i}", daemon=True)
            for i in range(1, count)
        ]

    def __enter__(self) -> "Hosts":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for calls in self._calls:
            calls.put(None)
        for thread in self._threads:
            thread.join(_WAKE)
            if thread.is_alive():
                _logger.warning("%s does not end: a call of CUDA does not return", thread.name)

    def run(self, first: Sequence[Call], calls: Sequence[Sequence[Call]]) -> None:
        """Make the calls `first`, then the calls of all threads at the same time; raise the first failure."""
        for gate in self._gates:
            gate.clear()
        self._failed = []
        self._begin = False
        for queue, mine in zip(self._calls, calls[1:], strict=True):
            queue.put(mine)
        for _ in self._threads:
            self._said.get()
        try:
            self._make(first)
            self._begin = True
            self._make(calls[0])
            for _ in self._threads:
                self._said.get()
        except BaseException:  # an interrupt from the keyboard: let the others come to their end
            self._begin = True
            self._open_gates()
            raise
        if self._failed:
            raise self._failed[0]

    def _make(self, calls: Sequence[Call]) -> None:
        try:
            for call in calls:
                call()
        except Exception as error:  # of the other threads too: each must be told
            self._failed.append(error)
            self._open_gates()

    def _open_gates(self) -> None:
        for gate in self._gates:
            gate.set()

    def _serve(self, thread: int) -> None:
        while (calls := self._calls[thread - 1].get()) is not None:
            self._said.put(thread)
            while not self._begin:
                sleep(0)
            self._make(calls)
            self._said.put(thread)
