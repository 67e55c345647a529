"""A program for many requests: issued one after the other, some of them in flight at a time."""

from typing import Any, Final, NamedTuple

import numpy as np

from simsched.model.graph.columns import Floats, Ints
from simsched.model.graph.derived import side_by_side
from simsched.model.program import ACTIONS, COPY, LAUNCH, RECORD, WAIT, Copies, Program

Place = tuple[int, int]  # device and stream
_ALWAYS, _FIRST, _LATER = range(3)  # in all requests, in the first of each slot, in all but these


class _Row(NamedTuple):
    """An instruction of requests: of request r, in slot s, on ``stream + s * step``, of ``argument + r * stride``.

    `row` is the instruction of the program that it is; -1: none.
    """

    action: int
    device: int
    stream: int
    argument: int
    stride: int
    step: int
    when: int
    row: int = -1


_TABLE: Final = np.dtype([(name, np.int64) for name in _Row._fields])


def repeated(
    program: Program, times: Floats, starts: Floats, requests: int, graph_launch: float | None = None
) -> Program:
    """Return a program of many requests, of which request r + k begins when request r has ended.

    Parameters
    ----------
    program
        Of one request.
    times
        Time of each operator in us, shape (n_ops,), to be written into the graph.
    starts
        When the first k requests begin at the earliest, in us, shape (k,): of k slots, each with streams of its own.
    requests
        How many there are in all, at least k.
    graph_launch
        Time in us of an operator that stands for the launch of a captured graph; None where nothing is captured.

    Returns
    -------
    Program
        Operator i of request r is operator ``r * n_ops + i``. Behind those of all requests come k that end when a slot
        starts, and in a captured program one for each launch of a graph, on a stream of their own.

    Notes
    -----
    Requests of a slot are joined by events: of the streams on which one ends the last waits for the others, and those
    on which the next one begins wait for it. Where one stream is both, it takes no event. O(requests (V + E)).
    """
    slots, launched = len(starts), 0 if graph_launch is None else requests
    before, behind, n_events = _joins(program, slots, requests, launched > 0)
    thread_of = _thread_of(program)
    tables, thread_ptr = [], [0]
    for t in range(len(program.thread_ptr) - 1):
        ends = [np.array([row for row in rows if thread_of[row.device] == t], _TABLE) for rows in (before, behind)]
        request = np.concatenate([ends[0], _body(program, t, n_events), ends[1]])
        tables.append(_spread(request, slots, requests))
        thread_ptr.append(thread_ptr[-1] + len(tables[-1]))
    table = np.concatenate(tables)
    copies = program.copies
    whose = np.repeat(np.arange(requests) * len(program.graph), len(copies.op))
    every = Copies(
        np.asarray(np.tile(copies.op, requests) + whose, np.int32), np.tile(copies.device, requests),
        np.tile(copies.nbytes, requests), np.tile(copies.transfer, requests),
    )  # fmt: skip
    behind_all = np.append(starts, np.full(launched, graph_launch or 0.0))
    return Program(
        side_by_side(program.graph, times, requests, behind_all), program.devices, program.execution, thread_ptr,
        table["action"], table["device"], table["stream"], table["argument"], every, requests * n_events + slots,
        np.append(np.tile(program.priority, requests), np.zeros(slots + launched, np.int64)),
        _host_times(program.lead, table["row"], 0.0), _host_times(program.own, table["row"], np.nan),
    )  # fmt: skip


def _host_times(times: Floats | None, row: Ints, of_others: float) -> Floats | None:
    """Return the host times of instructions that are rows of a program or, where that is -1, none of it."""
    return None if times is None else np.where(row < 0, of_others, times[row])


def _streams(program: Program) -> Ints:
    """Return how many streams a request has on each device, counted to the last one in use."""
    width = np.zeros(len(program.devices), np.int64)
    np.maximum.at(width, program.device, program.stream.astype(np.int64) + 1)
    return width


def _thread_of(program: Program) -> dict[int, int]:
    """Return the host thread that acts on each device, of several the first."""
    found: dict[int, int] = {}
    for t in range(len(program.thread_ptr) - 1):
        for d in np.flatnonzero(np.bincount(program.device[_rows_of(program, t)])).tolist():
            found.setdefault(d, t)
    return found


def _rows_of(program: Program, t: int) -> slice:
    return slice(int(program.thread_ptr[t]), int(program.thread_ptr[t + 1]))


def _ends(program: Program) -> tuple[list[Place], list[Place]]:
    """Return the streams on which a request begins, and those on which it ends, in launch order."""
    graph = program.graph
    rows = np.flatnonzero(program.action == LAUNCH)
    row_of = np.empty(len(rows), np.int64)  # by launch
    row_of[program.argument[rows]] = rows
    reads, is_read = (np.bincount(column, minlength=len(graph)) > 0 for column in (graph.dst, graph.src))
    begin = np.sort(row_of[program.launch_ptr[:-1][~reads]])
    end = np.sort(row_of[program.launch_ptr[1:][~is_read] - 1])[::-1]

    def places(at: Ints) -> list[Place]:
        return list(dict.fromkeys(zip(program.device[at].tolist(), program.stream[at].tolist(), strict=True)))

    return places(begin), places(end)[::-1]


def _joins(program: Program, slots: int, requests: int, captured: bool) -> tuple[list[_Row], list[_Row], int]:
    """Return what comes before and behind the instructions of each request, and the events that it has."""
    begin, (*others, last) = _ends(program)
    waiting = [place for place in begin if place != last]
    width, here = _streams(program).tolist(), int(program.device[0])
    free, launch = slots * width[here], requests * len(program.launch_op)  # behind those of all requests
    gathered, done = program.n_events, program.n_events + len(others)
    launched = done + bool(waiting)
    n_events = launched + captured
    started = requests * n_events  # an event of each slot
    before = [
        _Row(LAUNCH, here, free, launch, 1, 1, _FIRST),
        _Row(RECORD, here, free, started, 1, 1, _FIRST),
        *(_Row(WAIT, *place, started, 1, width[place[0]], _FIRST) for place in begin),
    ]
    if captured:
        host = (here, free + slots)
        before.append(_Row(LAUNCH, *host, launch + slots, 1, 0, _ALWAYS))
        before.append(_Row(RECORD, *host, launched, n_events, 0, _ALWAYS))
        before += [_Row(WAIT, *place, launched, n_events, width[place[0]], _ALWAYS) for place in begin]
    end = done - slots * n_events  # of the request before in the slot
    before += [_Row(WAIT, *place, end, n_events, width[place[0]], _LATER) for place in waiting]
    gather = [(RECORD, *place, gathered + i) for i, place in enumerate(others)]
    gather += [(WAIT, *last, gathered + i) for i in range(len(others))]
    behind = [_Row(*row, n_events, width[row[1]], _ALWAYS) for row in gather]
    if waiting:
        behind.append(_Row(RECORD, *last, done, n_events, width[last[0]], _ALWAYS))
    return before, behind, n_events


def _body(program: Program, t: int, n_events: int) -> Any:
    """Return the instructions of a thread as a table."""
    mine = _rows_of(program, t)
    table = np.zeros(mine.stop - mine.start, _TABLE)
    for name in ("action", "device", "stream", "argument"):
        table[name] = getattr(program, name)[mine]
    strides = np.full(len(ACTIONS), n_events)
    strides[LAUNCH], strides[COPY] = len(program.launch_op), len(program.copies.op)
    table["stride"] = np.where(table["argument"] < 0, 0, strides[table["action"]])
    table["step"] = np.where(table["stream"] < 0, 0, _streams(program)[table["device"]])
    table["row"] = np.arange(mine.start, mine.stop)
    return table


def _spread(request: Any, slots: int, requests: int) -> Any:
    """Return the instructions of a thread for all requests, as a table."""
    number = np.repeat(np.arange(requests), len(request))
    table = np.tile(request, requests)
    table["stream"] += number % slots * table["step"]
    table["argument"] += number * table["stride"]
    return table[np.where(number < slots, table["when"] != _LATER, table["when"] != _FIRST)]
