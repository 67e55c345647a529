"""The walk in machine code: changes of a candidate judged by the quick model alone."""

from typing import Final

from simsched.base.jit import Column, i8, piece
from simsched.schedulers.search.model import Draw, Walked, makespan_of

MOVES: Final = ("relocate", "reorder", "exchange", "follow", "chain", "cross", "gather", "clear")
_RELOCATE, _REORDER, _EXCHANGE, _FOLLOW, _CHAIN, _CROSS, _GATHER, _CLEAR = range(len(MOVES))
_NEAR: Final = 20
"""Places in the launch order within which operators exchange lanes, or are cleared away."""
_LONGEST_CHAIN: Final = 8
_SPAN: Final = 40
"""Places over which two lanes are exchanged, at most, if not to the end."""


@piece("search")
def walk(s: Walked) -> None:
    """Take steps from the candidate on: changes that the model calls better, or not too much worse."""
    now = makespan_of(s)
    _copy(s.candidate, s.kept, 4 * s.n_ops)
    for step in range(s.n_steps):
        draw, m = s.draws[step], 0
        guided = s.n_path > 0 and draw.guided < s.guided
        op = s.path[int(draw.op * s.n_path)] if guided else int(draw.op * s.n_ops)
        while draw.move >= s.moves[m].below:
            m += 1
        _change(s, m, op, draw)
        found, move = makespan_of(s), s.moves[m]
        move.tries += 1
        if found < now:
            move.wins += 1
        if found <= now + s.temperature * draw.patience:
            now = found
            _copy(s.candidate, s.kept, 4 * s.n_ops)
        else:
            _copy(s.kept, s.candidate, 4 * s.n_ops)
    s.makespan = now


def _copy(source: Column[i8], target: Column[i8], n: int) -> None:
    for i in range(n):
        target[i] = source[i]


def _change(s: Walked, move: int, op: int, draw: Draw) -> None:
    """Make one move around an operator."""
    device, stream = int(draw.a * s.n_devices), int(draw.b * s.n_streams)
    if move == _RELOCATE:
        s.device[op], s.stream[op] = device, stream
    if move in (_RELOCATE, _REORDER):
        _reorder(s, op, draw.c)
    elif move == _EXCHANGE:
        to = s.place[op] + int(draw.a * (2 * _NEAR + 1)) - _NEAR
        other = s.order[min(s.n_ops - 1, max(0, to))]
        s.device[op], s.device[other] = s.device[other], s.device[op]
        s.stream[op], s.stream[other] = s.stream[other], s.stream[op]
    elif move == _FOLLOW:
        _follow(s, op, draw)
    elif move == _CHAIN:
        _chain(s, op, draw)
    elif move == _CROSS:
        _cross(s, op, int(draw.a * s.n_ops), draw)
    elif move == _GATHER and s.n_path > 1:
        first = int(draw.a * (s.n_path - 1))
        for k in range(first, first + 2 + int(draw.b * (s.n_path - first - 1))):
            s.device[s.path[k]], s.stream[s.path[k]] = s.device[op], s.stream[op]
    elif move == _CLEAR:
        near = 1 + int(draw.a * (_NEAR - 1))
        for k in range(max(0, s.place[op] - near), min(s.n_ops, s.place[op] + near + 1)):
            v = s.order[k]
            if v != op and s.device[v] == s.device[op] and s.stream[v] == s.stream[op]:
                s.stream[v] = stream


def _reorder(s: Walked, op: int, draw: float) -> None:
    """Launch an operator at another place that its producers and consumers leave."""
    first, last = 0, s.n_ops - 1
    for k in range(s.ops[op].first_input, s.ops[op + 1].first_input):
        first = max(first, s.place[s.inputs[k]] + 1)
    for k in range(s.ops[op].first_reader, s.ops[op + 1].first_reader):
        last = min(last, s.place[s.readers[k].op] - 1)
    at, to = s.place[op], first + int(draw * (last - first + 1))
    step = 1 if to > at else -1
    while at != to:
        s.order[at] = s.order[at + step]
        s.place[s.order[at]] = at
        at += step
    s.order[at] = op
    s.place[op] = at


def _follow(s: Walked, op: int, draw: Draw) -> None:
    """Put an operator where one that it reads from, or that reads from it, is."""
    first_input, first_reader = s.ops[op].first_input, s.ops[op].first_reader
    n_in, n_out = s.ops[op + 1].first_input - first_input, s.ops[op + 1].first_reader - first_reader
    if n_in + n_out == 0:
        return
    k = int(draw.c * (n_in + n_out))
    near = s.inputs[first_input + k] if k < n_in else s.readers[first_reader + k - n_in].op
    s.device[op] = s.device[near]
    s.stream[op] = s.stream[near] if draw.d < 0.5 else int(draw.b * s.n_streams)


def _chain(s: Walked, op: int, draw: Draw) -> None:
    """Put an operator, one that reads from it, one that reads from that and so on, on one stream."""
    part = draw.d
    for _ in range(2 + int(draw.c * (_LONGEST_CHAIN - 1))):
        s.device[op], s.stream[op] = int(draw.a * s.n_devices), int(draw.b * s.n_streams)
        first = s.ops[op].first_reader
        onward = s.ops[op + 1].first_reader - first
        if onward == 0:
            return
        part *= onward
        op = s.readers[first + int(part)].op
        part -= int(part)  # what is left of it is as random


def _cross(s: Walked, op: int, other: int, draw: Draw) -> None:
    """Let the lanes of two operators exchange what they launch from the first on, for a while or to the end."""
    device, stream, to_device, to_stream = s.device[op], s.stream[op], s.device[other], s.stream[other]
    start, end = s.place[op], s.n_ops
    if draw.b < 0.5:
        end = min(end, start + 2 + int(draw.c * (_SPAN - 2)))
    for k in range(start, end):
        v = s.order[k]
        if s.device[v] == device and s.stream[v] == stream:
            s.device[v], s.stream[v] = to_device, to_stream
        elif s.device[v] == to_device and s.stream[v] == to_stream:
            s.device[v], s.stream[v] = device, stream
