"""The walk through a program: the next host thread, the event for which it waits, and the call of a row."""

from collections.abc import Sequence
from typing import Protocol

from hwbackend.executor.lanes import Lane, Row, n_instructions
from simsched.base.errors import BackendError
from simsched.model import BARRIER, COPY, LAUNCH, RECORD, SYNC, WAIT, Program


class Driver(Protocol):
    """The calls that carry out instructions, one after the other.

    A driver that issues at once answers `is_drained` and `has_passed` by asking the device. A driver that writes lists
    of calls for host threads of its own, to be made later, adds the call that blocks and answers yes.

    Attributes
    ----------
    thread
        The host thread of the next instruction; `issue` sets it.
    """

    thread: int

    def launch(self, row: int, device: int, stream: int, /) -> None:
        """Launch row number `row` of the program's launches."""

    def record(self, event: int, device: int, stream: int, /) -> None:
        """Record an event behind the work of a stream."""

    def wait(self, event: int, device: int, stream: int, /) -> None:
        """Have a stream wait for an event, which was recorded."""

    def copy(self, row: int, device: int, stream: int, /) -> None:
        """Start row number `row` of the program's copies."""

    def is_drained(self, device: int, lanes: Sequence[Lane], /) -> bool:
        """Say whether the streams of a device that had launches since its last barrier have done all their work."""

    def has_passed(self, event: int, /) -> bool:
        """Say whether an event, which was recorded, has run."""


def issue(program: Program, threads: Sequence[Sequence[Row]], driver: Driver) -> None:
    """Carry out a program: each host thread goes on until it has to wait, then it is the next one's turn.

    `threads` are the program's `threads_of`. A thread is held up by an event that no other has recorded yet, by a
    barrier until the device has drained, and by a host sync until the event has run; meanwhile the others are served.

    Raises
    ------
    BackendError
        If every thread waits for an event that no thread is going to record.
    """
    issued = [False] * program.n_events
    busy: dict[int, dict[Lane, None]] = {}
    at = [0] * len(threads)
    left = n_instructions(threads)
    while left:
        before = left
        polls = False
        for t, rows in enumerate(threads):
            driver.thread = t
            while at[t] < len(rows):
                action, device, stream, argument = rows[at[t]]
                if action in (WAIT, SYNC) and not issued[argument]:
                    break
                if action == BARRIER:
                    if not driver.is_drained(device, tuple(busy.get(device, ()))):
                        polls = True
                        break
                    busy.pop(device, None)
                elif action == SYNC:
                    if not driver.has_passed(argument):
                        polls = True
                        break
                elif action == LAUNCH:
                    driver.launch(argument, device, stream)
                    busy.setdefault(device, {})[device, stream] = None
                elif action == RECORD:
                    driver.record(argument, device, stream)
                    issued[argument] = True
                elif action == WAIT:
                    driver.wait(argument, device, stream)
                elif action == COPY:
                    driver.copy(argument, device, stream)
                at[t] += 1
                left -= 1
        if left == before and not polls:
            t = next(t for t, rows in enumerate(threads) if at[t] < len(rows))
            event = threads[t][at[t]][3]
            raise BackendError(
                f"{program.graph.name}: host thread {t} waits for event {event}, which is never recorded"
            )
