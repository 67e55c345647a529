"""States of a part, the stages that end each, and the prefix tree of these, compiled.

Operators of a part are numbered topologically from 0. A state is a set of operators still to be scheduled: with an
operator it contains all its producers. Stages are taken off its end, so the rest is a state again. All states come from
taking operators off the whole part, in falling order. The same stage of several states is one node of the tree.
"""

from math import inf
from typing import Final

from simsched.base.jit import Column, Row, Rows, Table, f8, i4, i8, length, native, piece, wrapped

FORMULA, COLLECT, LOOK_UP = range(3)
"""What `mode` asks for: costs by formula, the distinct stages only, or costs of these."""
STAGES, LOOKS, FIRST_NODE = range(3)
"""Nodes that all stages, and all looks of stages, extend; and the first that extends one of them."""
END_OF_STAGE: Final = -1
NOT_TAKEN: Final = -1


class PartState(Row):
    """A state; its cells, by falling operator, are `cells[start:end]`.

    It is state `origin` without the operator of that state's cell `offset`; from the cell `offset` on its own cells are
    below that operator.
    """

    start: i4
    end: i4
    offset: i4
    origin: i4


class Cell(Row):
    """An operator that may be taken off a state, the state without it, and that state's cells below the operator."""

    operator: i4
    rest: i4
    start: i4
    end: i4


class StateValue(Row):
    """The fastest way to run a state: us to the end, the state after its stage, and the stage's merge or -1.

    Also how many ways there are, as a float and modulo 2^64.
    """

    cost: f8
    count: f8
    count_modulo: i8
    next: i4
    merge: i4


class StageGroup(Row):
    """An operator; its `parent` is the operator whose group it joins, or itself as the first of its group.

    `n_sources` is the number of its producers that are taken, too.
    """

    time: f8
    size: i4
    n_sources: i4
    parent: i4


class Frame(Row):
    """A step of the search: the operator taken, its stage, and the cells that are still to be tried.

    `longest` is the time of the longest group, `n_roots` how many operators read from none in the stage (each group has
    one), and `trail` how many groups have joined others so far.
    """

    longest: f8
    cell: i4
    end: i4
    operator: i4
    n_groups: i4
    n_roots: i4
    trail: i4
    node: i4


class Node(Row):
    """A node of the prefix tree of stages and classes: the node it extends and its own operator, as one number.

    `asked` is the number of the stage to ask for, from 1; or 0. `cost` is the answer.
    """

    key: i8
    cost: f8
    asked: i4


class PartTable(Table):
    """Tables of the search, which returns for more room where a number `n_...` is within `n_ops` of the end."""

    n_ops: i8
    n_words: i8
    mode: i8
    most_ops: i8
    most_groups: i8
    single_root: i8
    state: i8
    cell: i8
    depth: i8
    left: i8
    n_endings: i8
    n_merges: i8
    n_merged_endings: i8
    n_stages: i8
    n_asked: i8
    n_states: i8
    states_room: i8
    n_cells: i8
    cells_room: i8
    n_nodes: i8
    nodes_room: i8
    n_written: i8
    written_room: i8
    time: Column[f8]
    classes: Column[i4]  # operators of a class look the same to the stage latency
    fewer: Column[i4]  # number by which earlier operators can lessen the groups of a stage
    factor: Column[f8]  # factor of a stage by its number of groups; the constant comes first
    reader_ptr: Column[i4]
    readers: Column[i4]
    source_ptr: Column[i4]
    sources: Column[i4]  # falling
    merge_ptr: Column[i4]
    merged: Column[i4]  # falling
    merge_cost: Column[f8]
    masks: Column[i8] = length("states_room * n_words")
    states: Rows[PartState] = length("states_room")
    cells: Rows[Cell] = length("cells_room")
    values: Rows[StateValue]
    frames: Rows[Frame] = length("n_ops + 1")
    groups: Rows[StageGroup] = length("n_ops")
    joined: Column[i4] = length("n_ops")
    nodes: Rows[Node] = length("nodes_room")
    slots: Column[i4] = length("2 * nodes_room")  # a hash table of nodes by key; rooms of nodes are powers of 2
    written: Column[i4] = length("written_room")  # the stages to ask for, operators as in `drafted`
    drafted: Column[i4] = length("n_ops")  # 2 * operator + 1, of the last in a group 2 * operator
    group_at: Column[i4] = length("n_ops")


@native
def _is_free(s: PartTable, state: int, u: int) -> bool:
    """Return whether no operator of a state reads from `u`."""
    for e in range(s.reader_ptr[u], s.reader_ptr[u + 1]):
        x = s.readers[e]
        if s.masks[state * s.n_words + (x >> 6)] >> (x & 63) & 1:
            return False
    return True


@native
def _take_off(s: PartTable, p: int) -> None:
    """Add the state without the operator of cell `p`, with its cells.

    These are the same but for the operator, and the sources that nothing else reads any more.
    """
    v = s.n_states
    at = s.n_cells
    words = s.n_words
    state = s.states[s.state]
    new = s.states[v]
    x = s.cells[p].operator
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
    s.n_states = v + 1
    s.n_cells = at


@native
def _point(s: PartTable, p: int, offset: int, v: int) -> None:
    """Write down which state a cell leads to; `offset` is the cell's own place in its state."""
    cell = s.cells[p]
    rest = s.states[v]
    cell.rest = v
    cell.start = rest.start + offset
    cell.end = rest.end


@piece("search of IOS")
def build_states(s: PartTable) -> None:
    """Build all states from the first one, with the successor state of each cell.

    A state is made once, by the sequence that takes its operators off in falling order. Every other
    cell of a state leads to one that the state before it leads to by two cells. `state` is `n_states` if all are found.
    """
    while s.state < s.n_states:
        state = s.states[s.state]
        s.cell = max(s.cell, state.start + state.offset)
        while s.cell < state.end:
            if s.n_states + s.n_ops >= s.states_room or s.n_cells + s.n_ops >= s.cells_room:
                return
            _take_off(s, s.cell)
            _point(s, s.cell, s.cell - state.start, s.n_states - 1)
            s.cell += 1
        s.state += 1
    for v in range(1, s.n_states):
        state = s.states[v]
        origin = s.states[s.states[v].origin]
        x = s.cells[origin.start + state.offset].operator
        for i in range(state.offset):
            q = s.cells[origin.start + i].start
            while s.cells[q].operator != x:
                q += 1
            _point(s, state.start + i, i, s.cells[q].rest)


_SPREAD: Final = 0x1E3779B97F4A7C15


@native
def _slot(s: PartTable, key: int) -> int:
    """Return the slot of the node with a key, or the free one where it belongs."""
    i = (wrapped(key * _SPREAD) >> 22) & (2 * s.nodes_room - 1)
    while s.slots[i] != 0 and s.nodes[s.slots[i]].key != key:
        i = (i + 1) & (2 * s.nodes_room - 1)
    return i


@native
def extend(s: PartTable, node: int, symbol: int) -> int:
    """Return the node that extends another by a symbol below 2 * n_ops."""
    key = node * 2 * s.n_ops + symbol
    i = _slot(s, key)
    if s.slots[i] == 0:
        new = s.nodes[s.n_nodes]
        new.key = key
        new.asked = 0
        s.slots[i] = s.n_nodes
        s.n_nodes += 1
    return s.slots[i]


@piece("search of IOS")
def fill_slots(s: PartTable) -> None:
    """Fill the hash table, which is empty, with the nodes there are."""
    for node in range(FIRST_NODE, s.n_nodes):
        s.slots[_slot(s, s.nodes[node].key)] = node


@native
def root(s: PartTable, x: int) -> int:
    """Return the first operator of the group of an operator."""
    while s.groups[x].parent != x:
        x = s.groups[x].parent
    return x


@native
def _symbol(s: PartTable, at: int) -> int:
    """Return the class of a drafted operator, marked if it is the last of a group before others of its class."""
    return 2 * s.classes[s.drafted[at] >> 1] + (s.drafted[at] & 1)


@native
def _comes_before(s: PartTable, a: int, b: int) -> bool:
    """Return whether the group drafted at `a` comes before that at `b`, by the classes of their operators."""
    while _symbol(s, a) == _symbol(s, b) and s.drafted[a] & 1:
        a += 1
        b += 1
    return _symbol(s, a) < _symbol(s, b)


@native
def ask_for(s: PartTable, node: int) -> None:
    """Ask for the latency of the taken stage of a node, by the number of its classes.

    That is the classes of its operators in order, group by group: groups by their classes, equal ones by
    their first operators. The first stage of a look is written down to be asked for.
    """
    at = 0
    n_groups = 0
    for d in range(s.depth, 0, -1):  # rising
        first = s.frames[d].operator
        if s.groups[first].parent == first:
            s.group_at[n_groups] = at
            n_groups += 1
            for e in range(d, 0, -1):
                if root(s, s.frames[e].operator) == first:
                    s.drafted[at] = 2 * s.frames[e].operator + 1
                    at += 1
            s.drafted[at - 1] -= 1
    for i in range(1, n_groups):
        moved = s.group_at[i]
        j = i
        while j > 0 and _comes_before(s, moved, s.group_at[j - 1]):
            s.group_at[j] = s.group_at[j - 1]
            j -= 1
        s.group_at[j] = moved
    look = LOOKS
    at = s.n_written
    for i in range(n_groups):
        a = s.group_at[i] - 1
        more = 1
        while more:
            a += 1
            more = s.drafted[a] & 1
            s.written[at] = s.drafted[a]
            look = extend(s, look, _symbol(s, a))
            at += 1
    if s.nodes[look].asked == 0:
        s.n_asked += 1
        s.nodes[look].asked = s.n_asked
        s.written[at] = END_OF_STAGE
        s.n_written = at + 1
    s.nodes[node].asked = s.nodes[look].asked


@native
def _add(s: PartTable, us: float, rest: int, merge: int) -> None:
    """Try a stage that takes so long and leaves a state; it merges the operators of that number, -1: none."""
    value = s.values[s.state]
    then = s.values[rest]
    value.count += then.count
    value.count_modulo = wrapped(value.count_modulo + then.count_modulo)
    us += then.cost
    if us < value.cost:
        value.cost = us
        value.next = rest
        value.merge = merge


@native
def _merge(s: PartTable) -> None:
    """Try the stages that merge operators which nothing in the state reads."""
    for m in range(s.n_merges):
        rest = s.state
        at = s.states[s.state].start
        end = s.states[s.state].end
        k = s.merge_ptr[m]
        while k < s.merge_ptr[m + 1] and at < end:
            cell = s.cells[at]
            if cell.operator == s.merged[k]:
                rest = cell.rest
                at = cell.start
                end = cell.end
                k += 1
            else:
                at += 1
        if k == s.merge_ptr[m + 1]:
            s.n_merged_endings += 1
            _add(s, s.merge_cost[m], rest, m)


@native
def _take(s: PartTable, frame: Frame, after: Frame, cell: Cell) -> None:
    """Take an operator off: it joins the groups of its readers."""
    x = cell.operator
    us = s.time[x]
    size = 1
    n_groups = frame.n_groups + 1
    n_roots = frame.n_roots + 1
    trail = frame.trail
    s.groups[x].parent = x
    for e in range(s.reader_ptr[x], s.reader_ptr[x + 1]):
        reader = s.groups[s.readers[e]]
        if reader.parent < 0:
            continue
        if s.single_root:
            n_roots -= reader.n_sources == 0
            reader.n_sources += 1
        u = root(s, s.readers[e])
        if u != x:
            group = s.groups[u]
            group.parent = x
            s.joined[trail] = u
            trail += 1
            n_groups -= 1
            us += group.time
            size += group.size
    own_group = s.groups[x]
    own_group.time = us
    own_group.size = size
    after.longest = max(us, frame.longest)
    after.cell = cell.start
    after.end = cell.end
    after.operator = x
    after.n_groups = n_groups
    after.n_roots = n_roots
    after.trail = trail


@native
def _put_back(s: PartTable) -> None:
    """Put back the operator taken last."""
    frame = s.frames[s.depth]
    s.depth -= 1
    for j in range(s.frames[s.depth].trail, frame.trail):
        s.groups[s.joined[j]].parent = s.joined[j]
    s.groups[frame.operator].parent = NOT_TAKEN
    if s.single_root:
        for e in range(s.reader_ptr[frame.operator], s.reader_ptr[frame.operator + 1]):
            s.groups[s.readers[e]].n_sources -= s.groups[s.readers[e]].parent >= 0


@native
def _try_stage(s: PartTable, frame: Frame, rest: int) -> None:
    """Try the stage that is taken if it is within the limits, and see whether it can be extended by others."""
    x = frame.operator
    if s.groups[x].size > s.most_ops or frame.n_groups - s.fewer[x] > s.most_groups:
        frame.cell = frame.end  # nothing it is extended by can be a stage
        return
    if s.most_ops == 1 and frame.n_groups == s.most_groups:
        frame.cell = frame.end  # likewise, but it is one itself
    if s.mode != FORMULA:
        frame.node = extend(s, s.frames[s.depth - 1].node, x)
    if frame.n_groups > s.most_groups or (s.single_root and frame.n_roots > frame.n_groups):
        return
    s.n_endings += 1
    if s.mode == FORMULA:
        _add(s, frame.longest * s.factor[frame.n_groups] + s.factor[0], rest, -1)
    elif s.mode != COLLECT:
        _add(s, s.nodes[frame.node].cost, rest, -1)
    elif s.nodes[frame.node].asked == 0:
        s.n_stages += 1
        ask_for(s, frame.node)


@native
def _search_state(s: PartTable) -> bool:
    """Continue with the endings of a state; return whether all are tried.

    An ending is built by taking operators off in falling order, so each of them comes once and each
    prefix is an ending too.
    """
    while True:
        frame = s.frames[s.depth]
        if frame.cell == frame.end:
            if s.depth == 0:
                return True
            _put_back(s)
        elif s.left == 0 or s.n_nodes + s.n_ops >= s.nodes_room or s.n_written + s.n_ops >= s.written_room:
            return False
        else:
            s.left -= 1
            s.depth += 1
            cell = s.cells[frame.cell]
            frame.cell += 1
            _take(s, frame, s.frames[s.depth], cell)
            _try_stage(s, s.frames[s.depth], cell.rest)


@piece("search of IOS")
def search_endings(s: PartTable) -> None:
    """Continue with the endings of all states, the smallest state first, until `left` or the room is used up.

    `state` is below 0 if all are tried.
    """
    while s.state >= 0:
        if s.depth < 0:
            state = s.states[s.state]
            value = s.values[s.state]
            frame = s.frames[0]
            frame.cell = state.start
            frame.end = state.end
            frame.node = STAGES
            value.cost = inf
            value.count = 0.0
            value.count_modulo = 0
            s.depth = 0
        if not _search_state(s):
            return
        if s.mode != COLLECT:
            _merge(s)
        s.depth = -1
        s.state -= 1
