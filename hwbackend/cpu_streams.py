"""Streams, events and captured graphs: which launches and copies may run next. No threads, no clock.

Launches and copies are named by the places of their instructions in the program.
"""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from simsched.base.errors import BackendError
from simsched.model.program import BARRIER, COPY, LAUNCH, RECORD, SYNC, WAIT, Program
from simsched.simulator.deadlock import deadlock


class Streams:
    """Streams of one run of a program, fed by its host threads.

    Whoever uses it holds a lock.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self._action: list[int] = program.action.tolist()
        self._argument: list[int] = program.argument.tolist()
        self._device: list[int] = program.device.tolist()
        self._place = list(zip(self._device, program.stream.tolist(), strict=True))
        self._queues: dict[tuple[int, int], deque[int]] = {place: deque() for place in self._place if place[1] >= 0}
        self._outstanding = [0] * len(program.devices)  # kernels issued and not over
        self._reached = [False] * program.n_events
        self._held: list[list[deque[int]]] = [[] for _ in range(program.n_events)]
        self.issued = [False] * program.n_events
        self.host_at = program.thread_ptr[:-1].tolist()

    def holds(self, i: int) -> bool:
        """Return whether a host thread has to wait before it issues instruction `i`."""
        action = self._action[i]
        if action == WAIT:
            return not self.issued[self._argument[i]]
        if action == SYNC:
            return not self._reached[self._argument[i]]
        return action == BARRIER and self._outstanding[self._device[i]] > 0

    def issue(self, i: int) -> list[int]:
        """Put an instruction behind the others of its stream; return what is ready now."""
        action = self._action[i]
        if action in (BARRIER, SYNC):
            return []
        if action == LAUNCH:
            self._outstanding[self._device[i]] += 1
        elif action == RECORD:
            self.issued[self._argument[i]] = True
        queue = self._queues[self._place[i]]
        queue.append(i)
        return self._advance(queue) if len(queue) == 1 else []

    def over(self, i: int) -> list[int]:
        """Take note that a launch or copy is over; return those that are ready now, in launch order."""
        if self._action[i] == LAUNCH:
            self._outstanding[self._device[i]] -= 1
        queue = self._queues[self._place[i]]
        queue.popleft()
        return self._advance(queue)

    def _advance(self, queue: deque[int]) -> list[int]:
        ready, agenda = [], [queue]
        while agenda:
            queue = agenda.pop()
            while queue:
                i = queue[0]
                if self._action[i] in (LAUNCH, COPY):
                    ready.append(i)
                    break
                event = self._argument[i]
                if self._action[i] == RECORD:
                    self._reached[event] = True
                    agenda += self._held[event]
                elif not self._reached[event]:
                    self._held[event].append(queue)
                    break
                queue.popleft()
        return sorted(ready)

    @property
    def heads(self) -> list[tuple[int, int, int]]:
        """Device, stream and instruction at the head of each stream that has something left."""
        return [(*place, queue[0]) for place, queue in sorted(self._queues.items()) if queue]

    def deadlock(self) -> BackendError:
        """Return the error that says what waits for what."""
        return BackendError(str(deadlock(self._program, self.host_at, self.heads, self.issued)))


class Capture(NamedTuple):
    """A program as a graph of launches and copies, made once and launched as often as wanted.

    By instruction, `counts` says how many others it must follow, `successors` what follows it; `roots` follow none.
    """

    counts: Sequence[int]
    successors: Sequence[Sequence[int]]
    roots: Sequence[int]


def capture(program: Program) -> Capture:
    """Return the graph of a program of one host thread.

    Raises
    ------
    BackendError
        If a stream waits for an event that is never recorded.
    """
    counts, successors = [0] * len(program), [list[int]() for _ in range(len(program))]
    behind: dict[tuple[int, int], tuple[int, ...]] = {}  # what the next of a stream must follow
    recorded: dict[int, tuple[int, ...]] = {}
    roots = []
    columns = (program.action, program.device, program.stream, program.argument)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    for i, (action, device, stream, argument) in enumerate(rows):
        before = behind.get((device, stream), ())
        if action == RECORD:
            recorded[argument] = before
        elif action == WAIT:
            if argument not in recorded:
                raise BackendError(str(deadlock(program, [i], [], [False] * program.n_events)))
            behind[device, stream] = tuple(dict.fromkeys(before + recorded[argument]))
        else:
            counts[i] = len(before)
            for j in before:
                successors[j].append(i)
            behind[device, stream] = (i,)
            if not before:
                roots.append(i)
    return Capture(counts, successors, roots)


class Captured:
    """One run of a captured graph."""

    def __init__(self, graph: Capture) -> None:
        self._left = list(graph.counts)
        self._successors = graph.successors

    def over(self, i: int) -> list[int]:
        """Take note that a launch or copy is over; return those that are ready now, in launch order."""
        ready = []
        for j in self._successors[i]:
            self._left[j] -= 1
            if not self._left[j]:
                ready.append(j)
        return ready
