"""The prefix tree of stages, compiled: the same stage of several states is one node, exactly."""

from typing import Final

from simsched.base.jit import piece, wrapped
from simsched.schedulers.ios.tables import END_OF_STAGE, FIRST_NODE, LOOKS, Run

_SPREAD: Final = 0x1E3779B97F4A7C15


def has_room(s: Run) -> bool:
    """Return whether the nodes of another stage, and what is asked for it, can be added."""
    return s.n_nodes + s.margin <= s.nodes_room and s.n_written + s.margin <= s.written_room


def _slot(s: Run, key: int) -> int:
    """Return the slot of the node with a key, or the free one where it belongs."""
    i = (wrapped(key * _SPREAD) >> 22) & (2 * s.nodes_room - 1)
    while s.slots[i] != 0 and s.nodes[s.slots[i]].key != key:
        i = (i + 1) & (2 * s.nodes_room - 1)
    return i


def extended(s: Run, node: int, symbol: int) -> int:
    """Return the node that extends another by a symbol below 2 * n_ops."""
    key = node * 2 * s.n_ops + symbol
    i = _slot(s, key)
    if s.slots[i] == 0:
        new = s.nodes[s.n_nodes]
        new.key, new.asked = key, 0
        s.slots[i] = s.n_nodes
        s.n_nodes += 1
    return s.slots[i]


@piece("search of IOS")
def fill_slots(s: Run) -> None:
    """Fill the hash table, which is empty, with the nodes there are."""
    for node in range(FIRST_NODE, s.n_nodes):
        s.slots[_slot(s, s.nodes[node].key)] = node


def root(s: Run, x: int) -> int:
    """Return the first operator of the group of an operator."""
    while s.groups[x].parent != x:
        x = s.groups[x].parent
    return x


def _draft_groups(s: Run) -> int:
    """Write the groups of the stage that is taken, by their first operators; return how many."""
    at, n_groups = 0, 0
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
    return n_groups


def _symbol(s: Run, at: int) -> int:
    """Return what a drafted operator looks like: the last of a group before others of its class."""
    return 2 * s.classes[s.drafted[at] >> 1] + (s.drafted[at] & 1)


def _comes_before(s: Run, a: int, b: int) -> bool:
    """Return whether the group drafted at `a` comes before that at `b`, by the classes of their operators."""
    while _symbol(s, a) == _symbol(s, b) and s.drafted[a] & 1:
        a += 1
        b += 1
    return _symbol(s, a) < _symbol(s, b)


def ask_for(s: Run, node: int) -> None:
    """Give the stage that is taken, which a node stands for, the number of what it looks like.

    That is the classes of its operators in order, group by group: groups by their classes, equal ones by
    their first operators. The first stage of a look is written down to be asked for.
    """
    look, at = LOOKS, s.n_written
    n_groups = _draft_groups(s)
    for i in range(1, n_groups):
        moved = s.group_at[i]
        j = i
        while j > 0 and _comes_before(s, moved, s.group_at[j - 1]):
            s.group_at[j] = s.group_at[j - 1]
            j -= 1
        s.group_at[j] = moved
    for i in range(n_groups):
        a = s.group_at[i] - 1
        more = 1
        while more:
            a += 1
            more = s.drafted[a] & 1
            s.written[at] = s.drafted[a]
            look = extended(s, look, _symbol(s, a))
            at += 1
    if s.nodes[look].asked == 0:
        s.n_asked += 1
        s.nodes[look].asked = s.n_asked
        s.written[at] = END_OF_STAGE
        s.n_written = at + 1
    s.nodes[node].asked = s.nodes[look].asked
