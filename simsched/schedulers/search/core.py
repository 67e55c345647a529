"""The walk in machine code: changes of a candidate judged by the quick model alone."""

from typing import Any

from simsched.machine_code import compiled
from simsched.machine_columns import floats, longs
from simsched.schedulers.search.layout import (
    ACCEPTED,
    CHAIN,
    CHOICE,
    CLEAR,
    CROSS,
    DEVICE,
    DRAWS,
    EXCHANGE,
    FOLLOW,
    GATHER,
    GUIDED,
    IN_FROM,
    IN_PTR,
    KEPT,
    LONGEST_CHAIN,
    MAKESPAN,
    N_DEVICES,
    N_DRAWS,
    N_OPS,
    N_PATH,
    N_STREAMS,
    NEAR,
    NUMBERS,
    ORDER,
    OUT_PTR,
    OUT_TO,
    PATH,
    PLACE,
    RELOCATE,
    REORDER,
    SPAN,
    STEPS,
    STREAM,
    TEMPERATURE,
    TRIES,
    WINS,
)
from simsched.schedulers.search.model import makespan_of


@compiled
def _reorder(t: Any, op: int, draw: float) -> None:
    """Launch an operator at another place that its producers and consumers leave."""
    order, place = longs(t[ORDER]), longs(t[PLACE])
    first, last = 0, t[N_OPS] - 1
    ptr, others = longs(t[IN_PTR]), longs(t[IN_FROM])
    for k in range(ptr[op], ptr[op + 1]):
        first = max(first, place[others[k]] + 1)
    ptr, others = longs(t[OUT_PTR]), longs(t[OUT_TO])
    for k in range(ptr[op], ptr[op + 1]):
        last = min(last, place[others[k]] - 1)
    at, to = place[op], first + int(draw * (last - first + 1))
    step = 1 if to > at else -1
    while at != to:
        order[at] = order[at + step]
        place[order[at]] = at
        at += step
    order[at] = op
    place[op] = at


@compiled
def _follow(t: Any, op: int, which: float, alike: float, stream: float) -> None:
    """Put an operator where one that it reads from, or that reads from it, is."""
    device, streams = longs(t[DEVICE]), longs(t[STREAM])
    in_ptr, out_ptr = longs(t[IN_PTR]), longs(t[OUT_PTR])
    n_in, n_out = in_ptr[op + 1] - in_ptr[op], out_ptr[op + 1] - out_ptr[op]
    if n_in + n_out == 0:
        return
    k = int(which * (n_in + n_out))
    near = longs(t[IN_FROM])[in_ptr[op] + k] if k < n_in else longs(t[OUT_TO])[out_ptr[op] + k - n_in]
    device[op] = device[near]
    streams[op] = streams[near] if alike < 0.5 else int(stream * t[N_STREAMS])


@compiled
def _cross(t: Any, op: int, other: int, whole: float, length: float) -> None:
    """Let the lanes of two operators exchange what they launch from the first on, for a while or to the end."""
    order, device, stream = longs(t[ORDER]), longs(t[DEVICE]), longs(t[STREAM])
    d, s, to_d, to_s = device[op], stream[op], device[other], stream[other]
    start = longs(t[PLACE])[op]
    end = t[N_OPS]
    if whole < 0.5:
        end = min(end, start + 2 + int(length * (SPAN - 2)))
    for k in range(start, end):
        v = order[k]
        if device[v] == d and stream[v] == s:
            device[v], stream[v] = to_d, to_s
        elif device[v] == to_d and stream[v] == to_s:
            device[v], stream[v] = d, s


@compiled
def _change(t: Any, move: int, op: int, draws: Any, at: int) -> None:
    """Make one move around an operator."""
    n, n_streams = t[N_OPS], t[N_STREAMS]
    order, place, device, stream = longs(t[ORDER]), longs(t[PLACE]), longs(t[DEVICE]), longs(t[STREAM])
    to_device, to_stream = int(draws[at] * t[N_DEVICES]), int(draws[at + 1] * n_streams)
    if move == RELOCATE:
        device[op], stream[op] = to_device, to_stream
    if move in (RELOCATE, REORDER):
        _reorder(t, op, draws[at + 2])
    elif move == EXCHANGE:
        to = place[op] + int(draws[at] * (2 * NEAR + 1)) - NEAR
        other = order[min(n - 1, max(0, to))]
        device[op], device[other] = device[other], device[op]
        stream[op], stream[other] = stream[other], stream[op]
    elif move == FOLLOW:
        _follow(t, op, draws[at + 2], draws[at + 3], draws[at + 1])
    elif move == CHAIN:
        ptr, to = longs(t[OUT_PTR]), longs(t[OUT_TO])
        part = draws[at + 3]
        for _ in range(2 + int(draws[at + 2] * (LONGEST_CHAIN - 1))):
            device[op], stream[op] = to_device, to_stream
            onward = ptr[op + 1] - ptr[op]
            if onward == 0:
                break
            part *= onward
            op = to[ptr[op] + int(part)]
            part -= int(part)  # what is left of it is as random
    elif move == CROSS:
        _cross(t, op, int(draws[at] * n), draws[at + 1], draws[at + 2])
    elif move == GATHER and t[N_PATH] > 1:
        path, m = longs(t[PATH]), t[N_PATH]
        first = int(draws[at] * (m - 1))
        to_device, to_stream = device[op], stream[op]
        for k in range(first, first + 2 + int(draws[at + 1] * (m - first - 1))):
            device[path[k]], stream[path[k]] = to_device, to_stream
    elif move == CLEAR:
        near = 1 + int(draws[at] * (NEAR - 1))
        d, s = device[op], stream[op]
        for k in range(max(0, place[op] - near), min(n, place[op] + near + 1)):
            v = order[k]
            if v != op and device[v] == d and stream[v] == s:
                stream[v] = to_stream


@compiled
def _keep(t: Any, back: bool) -> None:
    """Copy the candidate to what is kept, or back."""
    n, kept = t[N_OPS], longs(t[KEPT])
    for c in range(4):
        column = longs(t[ORDER + c])
        for i in range(n):
            if back:
                column[i] = kept[c * n + i]
            else:
                kept[c * n + i] = column[i]


def walk(table: int) -> None:
    """Take `STEPS` steps from the candidate on: changes that the model calls better, or not too much worse."""
    t = longs(table)
    numbers, draws, choice, path = floats(t[NUMBERS]), floats(t[DRAWS]), floats(t[CHOICE]), longs(t[PATH])
    tries, wins = longs(t[TRIES]), longs(t[WINS])
    now = makespan_of(t)
    _keep(t, False)
    t[ACCEPTED] = 0
    for step in range(t[STEPS]):
        at = step * N_DRAWS
        if t[N_PATH] > 0 and draws[at] < numbers[GUIDED]:
            op = path[int(draws[at + 1] * t[N_PATH])]
        else:
            op = int(draws[at + 1] * t[N_OPS])
        move = 0
        while draws[at + 2] >= choice[move]:
            move += 1
        _change(t, move, op, draws, at + 3)
        found = makespan_of(t)
        tries[move] += 1
        if found < now:
            wins[move] += 1
        if found <= now + numbers[TEMPERATURE] * draws[at + 7]:
            now = found
            t[ACCEPTED] += 1
            _keep(t, False)
        else:
            _keep(t, True)
    numbers[MAKESPAN] = now
