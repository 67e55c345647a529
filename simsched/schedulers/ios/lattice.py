"""All states of a part, compiled: each by taking operators off the whole part from the end, in falling order."""

from simsched.base.jit import piece, wrapped
from simsched.schedulers.ios.tables import Run


def holds(s: Run, state: int, x: int) -> bool:
    """Return whether a state holds an operator."""
    return s.masks[state * s.n_words + (x >> 6)] >> (x & 63) & 1 != 0


def _is_free(s: Run, state: int, u: int) -> bool:
    """Return whether no operator of a state reads from `u`."""
    for e in range(s.reader_ptr[u], s.reader_ptr[u + 1]):
        if holds(s, state, s.readers[e]):
            return False
    return True


def _take_off(s: Run, p: int) -> None:
    """Add the state without the operator of cell `p`, with its cells.

    These are the same but for the operator, and the sources that nothing else reads any more.
    """
    v, at, words = s.n_states, s.n_cells, s.n_words
    state, new, x = s.states[s.state], s.states[v], s.cells[p].operator
    for w in range(words):
        s.masks[v * words + w] = s.masks[s.state * words + w]
    w = v * words + (x >> 6)
    s.masks[w] = wrapped(s.masks[w] & ~(1 << (x & 63)))
    new.start, new.offset, new.origin = at, p - state.start, s.state
    for q in range(state.start, state.end):
        if q != p:
            s.cells[at].operator = s.cells[q].operator
            at += 1
    for k in range(s.source_ptr[x], s.source_ptr[x + 1]):
        if _is_free(s, v, s.sources[k]):
            i = at
            while i > new.start and s.cells[i - 1].operator < s.sources[k]:
                s.cells[i].operator = s.cells[i - 1].operator
                i -= 1
            s.cells[i].operator = s.sources[k]
            at += 1
    new.end = at
    s.n_states, s.n_cells = v + 1, at


def _point(s: Run, p: int, offset: int, v: int) -> None:
    """Write down which state a cell leads to; `offset` is the cell's own place in its state."""
    cell, rest = s.cells[p], s.states[v]
    cell.rest, cell.start, cell.end = v, rest.start + offset, rest.end


@piece("search of IOS")
def build_states(s: Run) -> None:
    """Find all states from the one that stands first, with what each of their cells leads to.

    A state is made once, by the sequence that takes its operators off in falling order. Every other
    cell of a state leads to one that the state before it leads to by two cells. `state` is `n_states` if all are found.
    """
    while s.state < s.n_states:
        state = s.states[s.state]
        s.cell = max(s.cell, state.start + state.offset)
        while s.cell < state.end:
            if s.n_states + s.margin > s.states_room or s.n_cells + s.margin > s.cells_room:
                return
            _take_off(s, s.cell)
            _point(s, s.cell, s.cell - state.start, s.n_states - 1)
            s.cell += 1
        s.state += 1
    for v in range(1, s.n_states):
        state, origin = s.states[v], s.states[s.states[v].origin]
        x = s.cells[origin.start + state.offset].operator
        for i in range(state.offset):
            q = s.cells[origin.start + i].start
            while s.cells[q].operator != x:
                q += 1
            _point(s, state.start + i, i, s.cells[q].rest)
