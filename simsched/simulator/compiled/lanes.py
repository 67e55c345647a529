"""Which streams a program uses; one pass over a million instructions takes some milliseconds."""

import numpy as np
import numpy.typing as npt

from simsched.base.jit import Column, Row, Rows, Table, i1, i4, i8, length, piece
from simsched.model.program import BARRIER, COPY, LAUNCH, WAIT, Program


class Use(Row):
    """A stream in use, and what is in it."""

    first: i8  # number of its first instruction, those of all streams counted through
    device: i4
    stream: i4
    launches: i4
    copies: i4
    passes: i4  # instructions that pass a hardware queue


class Search(Table):
    """The instructions of a program, and the streams that are found in them, by device and stream."""

    n: i8
    n_devices: i8
    n_threads: i8
    n_lanes: i8  # -1: their numbers are too far apart for a table
    room: i8
    ahead: i8  # only one thread acts on each device
    thread_ptr: Column[i8]
    action: Column[i1]
    place: Column[i4]
    stream: Column[i4]  # -1: none
    lane_of: Column[i4] = length("n")
    lanes: Rows[Use] = length("n")
    top: Column[i8] = length("n_devices + 1")  # where the streams of each device begin in `number`
    thread: Column[i4] = length("n_devices")  # the last that acts on each device, from 1
    number: Column[i4] = length("room")


def streams_in_use(program: Program) -> Search:
    """Return the streams that the instructions of a program name; barriers and syncs are on none, whatever they say."""
    stream = program.stream
    nowhere = (program.action >= BARRIER) & (stream >= 0)
    if nowhere.any():
        stream = np.where(nowhere, np.int32(-1), stream)
    found = _search(program, stream, 4 * len(stream) + 4096)
    if found.n_lanes < 0:
        streams, ranks = np.unique(stream, return_inverse=True)
        ranks = ranks.reshape(-1) - (streams[0] < 0)
        found = _search(program, ranks.astype(np.int32), len(program.devices) * len(streams))
        found["lanes"]["stream"] = streams[streams >= 0][found["lanes"]["stream"]]
    return found


def _search(program: Program, stream: npt.NDArray[np.int32], room: int) -> Search:
    search = Search(
        n=len(stream), n_devices=len(program.devices), n_threads=len(program.thread_ptr) - 1, room=room,
        thread_ptr=program.thread_ptr, action=program.action, place=program.device, stream=stream,
    )  # fmt: skip
    find_lanes(search)
    return search


@piece("search for streams")
def find_lanes(s: Search) -> None:
    """Give the streams in use numbers by device and stream."""
    _measure(s)
    s.n_lanes = -1
    if s.top[s.n_devices] <= s.room:
        _number(s)
        _count(s)


def _measure(s: Search) -> None:
    """Find how many streams there could be, and whether one thread alone acts on each device."""
    s.ahead = 1
    for t in range(s.n_threads):
        for i in range(s.thread_ptr[t], s.thread_ptr[t + 1]):
            d = s.place[i]
            if s.stream[i] >= s.top[d + 1]:
                s.top[d + 1] = s.stream[i] + 1
            if s.thread[d] != t + 1:
                if s.thread[d]:
                    s.ahead = 0
                s.thread[d] = t + 1
    for d in range(s.n_devices):
        s.top[d + 1] += s.top[d]


def _number(s: Search) -> None:
    for i in range(s.n):
        if s.stream[i] >= 0:
            s.number[s.top[s.place[i]] + s.stream[i]] = 1
    s.n_lanes = 0
    for k in range(s.top[s.n_devices]):
        if s.number[k]:
            s.number[k] = s.n_lanes
            s.n_lanes += 1


def _count(s: Search) -> None:
    for i in range(s.n):
        s.lane_of[i] = -1
        if s.stream[i] >= 0:
            s.lane_of[i] = s.number[s.top[s.place[i]] + s.stream[i]]
            lane = s.lanes[s.lane_of[i]]
            lane.device, lane.stream = s.place[i], s.stream[i]
            lane.first += 1
            lane.launches += s.action[i] == LAUNCH
            lane.copies += s.action[i] == COPY
            lane.passes += s.action[i] in (LAUNCH, WAIT)
    first = 0
    for k in range(s.n_lanes):
        n, s.lanes[k].first = s.lanes[k].first, first
        first += n
