"""Facts of a program that every driver needs: its rows, its streams, and the streams that may end last."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from simsched.model import BARRIER, COPY, LAUNCH, RECORD, SYNC, WAIT, Program

Row = tuple[int, int, int, int]
"""Action, device, stream and argument of an instruction."""

Lane = tuple[int, int]
"""Device and number of a stream."""


def threads_of(program: Program) -> list[list[Row]]:
    """Return the instructions of each host thread."""
    columns = (program.action, program.device, program.stream, program.argument)
    rows = list(zip(*(column.tolist() for column in columns), strict=True))
    return [rows[a:b] for a, b in pairwise(program.thread_ptr.tolist())]


def thread_of_rows(program: Program) -> list[int]:
    """Return the host thread of each instruction."""
    lengths = np.diff(program.thread_ptr)
    threads: list[int] = np.repeat(np.arange(len(lengths)), lengths).tolist()
    return threads


def first_rows(program: Program) -> dict[int, int]:
    """Return the operators by the rows of their first launches."""
    ptr = program.launches.ptr.tolist()
    return dict(zip(ptr[:-1], range(len(ptr) - 1), strict=True))


def lanes_of(program: Program) -> dict[Lane, int | None]:
    """Return the streams of a program with their priorities, in the order in which instructions first name them.

    The priority of a stream is the most urgent, the least number, among its operators; None if it has no operator.
    Barriers and synchronisations of the host name no stream.
    """
    lanes: dict[Lane, int | None] = {}
    priority = program.priority[program.launches.op].tolist()
    columns = (program.action, program.device, program.stream, program.argument)
    for action, device, stream, argument in zip(*(column.tolist() for column in columns), strict=True):
        if stream < 0:
            continue
        urgent = lanes.setdefault((device, stream), None)
        if action == LAUNCH:
            wanted = priority[argument]
            if urgent is None:
                lanes[device, stream] = wanted
            else:
                lanes[device, stream] = min(urgent, wanted)
    return lanes


def priorities_of(program: Program) -> dict[Lane, int]:
    """Return the priority of each stream as CUDA numbers them: 0 is the least urgent, and those before it are below.

    The priorities of a program that differ are numbered from 0 downwards; CUDA takes as many as it has.
    """
    urgent = lanes_of(program)
    levels = sorted({level for level in urgent.values() if level is not None}, reverse=True)
    return {lane: 0 if level is None else -levels.index(level) for lane, level in urgent.items()}


def crossing_events(program: Program) -> tuple[int, ...]:
    """Return the events that one host thread records and another waits for.

    Where host threads issue at the same time, the waiting thread has to be held until the record is issued: CUDA takes
    a wait for an event that was never recorded as done.
    """
    thread = np.array(thread_of_rows(program), np.int64)
    recorder = np.full(program.n_events, -1, np.int64)
    records = np.flatnonzero(program.action == RECORD)
    recorder[program.argument[records]] = thread[records]
    waits = np.flatnonzero((program.action == WAIT) | (program.action == SYNC))
    events = program.argument[waits]
    return tuple(np.unique(events[recorder[events] != thread[waits]]).tolist())


def ends_of(program: Program) -> dict[Lane, int]:
    """Return the streams whose work may end last, each with the host thread that names it last.

    They are in the order in which they are last named, backwards. The work that ends last is on a stream behind whose
    last work nothing waits that has work after it. Events behind the others would only cost time: a host that is behind
    the device records them when all has run. Where several host threads name one stream, which no lowered schedule
    does, all streams are taken. O(V + E), and the streams for each barrier.
    """
    lanes: list[Lane] = list(zip(program.device.tolist(), program.stream.tolist(), strict=True))
    rows = list(zip(program.action.tolist(), lanes, thread_of_rows(program), program.argument.tolist(), strict=True))
    work: dict[Lane, int] = {}  # row of the last launch or copy of a stream
    busy: dict[int, int] = {}  # likewise of a host thread
    recorded: dict[int, int] = {}
    for row, (action, lane, thread, argument) in enumerate(rows):
        if action in (LAUNCH, COPY):
            work[lane] = busy[thread] = row
        elif action == RECORD:
            recorded[argument] = row
    last_named = {lane: thread for _, lane, thread, _ in rows}
    shared = any(last_named[lane] != thread for _, lane, thread, _ in rows if lane[1] >= 0)

    waited_for: set[Lane] = set()
    for row, (action, lane, thread, argument) in enumerate(rows):
        if shared or (work.get(lane, -1) if action == WAIT else busy.get(thread, -1)) < row:
            continue
        if action in (WAIT, SYNC):
            before = recorded[argument]
            if work.get(lanes[before], before) < before:
                waited_for.add(lanes[before])
        elif action == BARRIER:
            waited_for.update(
                other
                for other, last in work.items()
                if last < row and rows[last][:3:2] == (LAUNCH, thread) and other[0] == lane[0]
            )

    ends: dict[Lane, int] = {}
    for _, lane, thread, _ in reversed(rows):
        if lane in work and lane not in waited_for:
            ends.setdefault(lane, thread)
    return ends


def devices_of(program: Program) -> list[int]:
    """Return the device that each operator runs on, -1 where it is never launched."""
    return _by_operator(program, program.device)


def streams_of(program: Program) -> list[int]:
    """Return the stream that each operator runs on, -1 where it is never launched."""
    return _by_operator(program, program.stream)


def _by_operator(program: Program, column: np.ndarray) -> list[int]:
    values = np.full(len(program.graph), -1)
    launched = np.flatnonzero(program.action == LAUNCH)
    values[program.launches.op[program.argument[launched]]] = column[launched]
    by_operator: list[int] = values.tolist()
    return by_operator


def n_instructions(threads: Sequence[Sequence[Row]]) -> int:
    """Return the number of instructions of all host threads."""
    return sum(map(len, threads))
