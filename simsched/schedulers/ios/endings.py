"""All stages that end each state, compiled: the dynamic program of IOS, or the stages it will ask for."""

from math import inf

from simsched.base.jit import piece, wrapped
from simsched.schedulers.ios.lattice import holds
from simsched.schedulers.ios.prefixes import ask_for, extended, has_room, root
from simsched.schedulers.ios.tables import COLLECT, FORMULA, STAGES, Cell, Frame, Run


def _open_state(s: Run) -> None:
    """Begin with a state: its first frame, and who reads from whom in it."""
    at = 0
    for x in range(s.n_ops):
        s.within_ptr[x] = at
        if holds(s, s.state, x):
            for e in range(s.reader_ptr[x], s.reader_ptr[x + 1]):
                if holds(s, s.state, s.readers[e]):
                    s.within[at] = s.readers[e]
                    at += 1
    s.within_ptr[s.n_ops] = at
    state, value, frame = s.states[s.state], s.values[s.state], s.frames[0]
    s.depth = 0
    frame.cell, frame.end, frame.node = state.start, state.end, STAGES
    value.cost, value.count, value.count_modulo = inf, 0.0, 0


def _add(s: Run, us: float, rest: int, merge: int) -> None:
    """Try a stage that takes so long and leaves a state; it merges the operators of that number, -1: none."""
    value, then = s.values[s.state], s.values[rest]
    value.count += then.count
    value.count_modulo = wrapped(value.count_modulo + then.count_modulo)
    us += then.cost
    if us < value.cost:
        value.cost, value.next, value.merge = us, rest, merge


def _merge(s: Run) -> None:
    """Try the stages that merge operators which nothing in the state reads."""
    for m in range(s.n_merges):
        rest, at, end = s.state, s.states[s.state].start, s.states[s.state].end
        k = s.merge_ptr[m]
        while k < s.merge_ptr[m + 1] and at < end:
            cell = s.cells[at]
            if cell.operator == s.merged[k]:
                rest, at, end = cell.rest, cell.start, cell.end
                k += 1
            else:
                at += 1
        if k == s.merge_ptr[m + 1]:
            s.n_merged_endings += 1
            _add(s, s.merge_cost[m], rest, m)


def _take(s: Run, frame: Frame, after: Frame, cell: Cell) -> None:
    """Take an operator off: it joins the groups of those that read from it."""
    x = cell.operator
    us, size, n_roots = s.time[x], 1, 1
    n_groups, n_unrooted, trail = frame.n_groups + 1, frame.n_unrooted, frame.trail
    s.groups[x].parent = x
    for e in range(s.within_ptr[x], s.within_ptr[x + 1]):
        if s.single_root:
            reader = s.groups[s.within[e]]
            n_roots -= reader.n_sources == 0
            reader.n_sources += 1
        u = root(s, s.within[e])
        if u != x:
            group = s.groups[u]
            group.parent = x
            s.joined[trail] = u
            trail += 1
            n_groups -= 1
            us += group.time
            size += group.size
            if s.single_root:
                n_roots += group.n_roots
                n_unrooted -= group.n_roots > 1
    taken = s.groups[x]
    taken.time, taken.size, taken.n_roots = us, size, n_roots
    after.longest = max(us, frame.longest)
    after.cell, after.end, after.operator = cell.start, cell.end, x
    after.n_groups, after.n_unrooted, after.trail = n_groups, n_unrooted + (n_roots > 1), trail


def _put_back(s: Run) -> None:
    """Put back the operator taken last."""
    frame = s.frames[s.depth]
    s.depth -= 1
    for j in range(s.frames[s.depth].trail, frame.trail):
        s.groups[s.joined[j]].parent = s.joined[j]
    if s.single_root:
        for e in range(s.within_ptr[frame.operator], s.within_ptr[frame.operator + 1]):
            s.groups[s.within[e]].n_sources -= 1


def _try_stage(s: Run, frame: Frame, rest: int) -> None:
    """Try the stage that is taken if it is within the limits, and see whether it can be extended by others."""
    x = frame.operator
    if s.groups[x].size > s.most_ops or frame.n_groups - s.fewer[x] > s.most_groups:
        frame.cell = frame.end  # nothing it is extended by can be a stage
        return
    if s.most_ops == 1 and frame.n_groups == s.most_groups:
        frame.cell = frame.end  # likewise, but it is one itself
    if s.mode != FORMULA:
        frame.node = extended(s, s.frames[s.depth - 1].node, x)
    if frame.n_groups > s.most_groups or frame.n_unrooted > 0:
        return
    s.n_endings += 1
    if s.mode == FORMULA:
        _add(s, frame.longest * s.factor[frame.n_groups] + s.factor[0], rest, -1)
    elif s.mode != COLLECT:
        _add(s, s.nodes[frame.node].cost, rest, -1)
    elif s.nodes[frame.node].asked == 0:
        s.n_stages += 1
        ask_for(s, frame.node)


def _search_state(s: Run) -> bool:
    """Go on with the endings of a state; return whether they are all tried.

    An ending is built by taking operators off in falling order, so each of them comes once and each
    prefix is an ending too.
    """
    while True:
        frame = s.frames[s.depth]
        if frame.cell == frame.end:
            if s.depth == 0:
                return True
            _put_back(s)
        elif s.left == 0 or (s.mode == COLLECT and not has_room(s)):
            return False
        else:
            s.left -= 1
            s.depth += 1
            cell = s.cells[frame.cell]
            frame.cell += 1
            _take(s, frame, s.frames[s.depth], cell)
            _try_stage(s, s.frames[s.depth], cell.rest)


@piece("search of IOS")
def search_endings(s: Run) -> None:
    """Go on with the endings of all states, the smallest state first, until `left` or the room is used up.

    `state` is below 0 if all are tried.
    """
    while s.state >= 0:
        if s.depth < 0:
            _open_state(s)
        if not _search_state(s):
            return
        if s.mode != COLLECT:
            _merge(s)
        s.depth = -1
        s.state -= 1
