"""All states of a part, compiled: each by taking operators off the whole part from the end, in falling order."""

from typing import Any

from simsched.machine_code import compiled
from simsched.machine_columns import ints, longs
from simsched.schedulers.ios.layout import (
    CELL,
    CELL_ROOM,
    CELLS,
    DONE,
    END,
    FIRST,
    FULL,
    LENGTH,
    MASKS,
    N_CELLS,
    N_STATES,
    N_WORDS,
    OFFSET,
    OPERATOR,
    ORIGIN,
    READER_MASK,
    REST,
    SOURCE_PTR,
    SOURCES,
    START,
    STATE,
    STATE_ROOM,
    STATE_ROW,
    STATES,
    WANTED,
)


@compiled
def _is_free(t: Any, state: int, u: int) -> bool:
    """Return whether no operator of a state reads from `u`."""
    words, masks, readers = t[N_WORDS], longs(t[MASKS]), longs(t[READER_MASK])
    w = 0
    while w < words and not masks[state * words + w] & readers[u * words + w]:
        w += 1
    return bool(w == words)


@compiled
def _take_off(t: Any, s: int, p: int, v: int, first: int) -> int:
    """Write state `v`, which is state `s` without the operator of cell `p`, and its cells; return where they end.

    Cells stand by falling operator: those before the operator stay the same, among those behind it come
    the sources that nothing else reads any more. Returns -1 where there is no room.
    """
    words, masks = t[N_WORDS], longs(t[MASKS])
    cell, states = ints(t[CELLS]), ints(t[STATES])
    sources, start = ints(t[SOURCES]), states[STATE_ROW * s + START]
    end = start + states[STATE_ROW * s + LENGTH]
    x = cell[CELL * p + OPERATOR]
    k, k_end = ints(t[SOURCE_PTR])[x], ints(t[SOURCE_PTR])[x + 1]
    if first + (end - start) + (k_end - k) > t[CELL_ROOM]:
        return -1
    for w in range(words):
        masks[v * words + w] = masks[s * words + w]
    masks[v * words + (x >> 6)] &= ~(1 << (x & 63))
    at = first
    for q in range(start, p):
        cell[CELL * at + OPERATOR] = cell[CELL * q + OPERATOR]
        at += 1
    q = p + 1
    while True:
        while k < k_end and not _is_free(t, v, sources[k]):
            k += 1
        if k < k_end and (q == end or sources[k] > cell[CELL * q + OPERATOR]):
            cell[CELL * at + OPERATOR] = sources[k]
            k += 1
        elif q < end:
            cell[CELL * at + OPERATOR] = cell[CELL * q + OPERATOR]
            q += 1
        else:
            break
        at += 1
    states[STATE_ROW * v + START], states[STATE_ROW * v + LENGTH] = first, at - first
    states[STATE_ROW * v + OFFSET], states[STATE_ROW * v + ORIGIN] = p - start, s
    return at


@compiled
def _point(t: Any, p: int, offset: int, v: int) -> None:
    """Write down which state a cell leads to; `offset` is the cell's own place in its state."""
    cell, states = ints(t[CELLS]), ints(t[STATES])
    first = states[STATE_ROW * v + START]
    cell[CELL * p + REST] = v
    cell[CELL * p + FIRST] = first + offset
    cell[CELL * p + END] = first + states[STATE_ROW * v + LENGTH]


@compiled
def build(t: Any) -> int:
    """Find all states from the one that stands first, with what each of their cells leads to; return the status.

    A state is made once, by the sequence that takes its operators off in falling order. Every other
    cell of a state leads to one that the state before it leads to by two cells.
    """
    s = t[STATE]
    while s < t[N_STATES]:
        states = ints(t[STATES])
        start, length, offset = (
            states[STATE_ROW * s + START],
            states[STATE_ROW * s + LENGTH],
            states[STATE_ROW * s + OFFSET],
        )
        v, at = t[N_STATES], t[N_CELLS]
        for p in range(start + offset, start + length):
            full = v == t[STATE_ROOM]
            at = -1 if full else _take_off(t, s, p, v, at)
            if at < 0:  # this state again, with more room
                t[STATE], t[WANTED] = s, N_STATES if full else N_CELLS
                return FULL
            _point(t, p, p - start, v)
            v += 1
        t[N_STATES], t[N_CELLS] = v, at
        s += 1
    states, cell = ints(t[STATES]), ints(t[CELLS])
    for s in range(1, t[N_STATES]):
        origin, offset = states[STATE_ROW * s + ORIGIN], states[STATE_ROW * s + OFFSET]
        start, before = states[STATE_ROW * s + START], states[STATE_ROW * origin + START]
        x = cell[CELL * (before + offset) + OPERATOR]
        for i in range(offset):
            q = cell[CELL * (before + i) + FIRST]
            while cell[CELL * q + OPERATOR] != x:
                q += 1
            _point(t, start + i, i, cell[CELL * q + REST])
    return DONE
