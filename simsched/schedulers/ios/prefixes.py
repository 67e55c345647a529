"""Prefix trees of stages, compiled: the same stage of several states is one node, exactly."""

from typing import Any

from simsched.machine_code import compiled
from simsched.machine_columns import ints, longs
from simsched.schedulers.ios.layout import (
    ASKED,
    ASKED_PTR,
    BEFORE,
    CLASS,
    FRAME,
    FRAMES,
    GROUP_AT,
    N_ASKED,
    N_OPS,
    N_SIGNS,
    N_WRITTEN,
    NODE,
    NODE_HASH,
    NODE_SLOTS,
    NODES,
    PARENT,
    SIGN_HASH,
    SIGN_SLOTS,
    SIGNS,
    SYMBOL,
    TAKEN,
    WRITTEN,
)

_SPREAD = 0x1E3779B97F4A7C15


@compiled
def _slot(slots: Any, n_slots: int, key: int) -> int:
    """Return the slot that holds a key, or the free one where it belongs."""
    i = ((key * _SPREAD) >> 22) & (n_slots - 1)
    while slots[2 * i] != key and slots[2 * i] != 0:
        i = (i + 1) & (n_slots - 1)
    return i


@compiled
def extended(t: Any, of: int, node: int, symbol: int) -> int:
    """Return the node that extends another by a symbol, of the stages (`of` is N_NODES) or of what they look like."""
    signs = of == N_SIGNS
    slots, n_slots = longs(t[SIGN_HASH if signs else NODE_HASH]), t[SIGN_SLOTS if signs else NODE_SLOTS]
    key = node * 2 * t[N_OPS] + symbol + 1
    i = _slot(slots, n_slots, key)
    if slots[2 * i] == 0:
        nodes, new = ints(t[SIGNS if signs else NODES]), t[of]
        slots[2 * i], slots[2 * i + 1] = key, new
        nodes[NODE * new + BEFORE], nodes[NODE * new + SYMBOL], nodes[NODE * new + ASKED] = node, symbol, -1
        t[of] = new + 1
    return int(slots[2 * i + 1])


@compiled
def find_again(t: Any, of: int) -> None:
    """Fill a hash table, which is empty, with the nodes there are."""
    signs = of == N_SIGNS
    slots, n_slots = longs(t[SIGN_HASH if signs else NODE_HASH]), t[SIGN_SLOTS if signs else NODE_SLOTS]
    nodes = ints(t[SIGNS if signs else NODES])
    for node in range(1, t[of]):
        key = nodes[NODE * node + BEFORE] * 2 * t[N_OPS] + nodes[NODE * node + SYMBOL] + 1
        i = _slot(slots, n_slots, key)
        slots[2 * i], slots[2 * i + 1] = key, node


@compiled
def _write_groups(t: Any, depth: int, at: int) -> int:
    """Write the groups of the stage taken up to `depth`, by their first operators; return how many.

    Each is marked by its last operator, and begins where `GROUP_AT` says.
    """
    frames, parent, written, group_at = longs(t[FRAMES]), ints(t[PARENT]), ints(t[WRITTEN]), ints(t[GROUP_AT])
    groups = 0
    for d in range(depth, 0, -1):  # rising
        root = frames[FRAME * d + TAKEN]
        if parent[root] != root:
            continue
        group_at[groups] = at
        groups += 1
        for e in range(d, 0, -1):
            u = frames[FRAME * e + TAKEN]
            while parent[u] != u:
                u = parent[u]
            if u == root:
                written[at] = frames[FRAME * e + TAKEN]
                at += 1
        written[at - 1] = -1 - written[at - 1]
    return groups


@compiled
def _comes_before(t: Any, a: int, b: int) -> bool:
    """Return whether the group written at `a` comes before that at `b`, by the classes of their operators."""
    written, classes = ints(t[WRITTEN]), ints(t[CLASS])
    while True:
        x, y = written[a], written[b]
        over_x, over_y = x < 0, y < 0
        x, y = -1 - x if over_x else x, -1 - y if over_y else y
        if classes[x] != classes[y]:
            return bool(classes[x] < classes[y])
        if over_x or over_y:
            return over_x and not over_y
        a += 1
        b += 1


@compiled
def ask_for(t: Any, depth: int, node: int) -> None:
    """Give the stage of a node, whose operators are taken up to `depth`, the number of what it looks like.

    That is the classes of its operators in order, group by group: groups by their classes, equal ones by
    their first operators. The first stage of a look is written down to be asked for.
    """
    classes, written, group_at, n = ints(t[CLASS]), ints(t[WRITTEN]), ints(t[GROUP_AT]), t[N_OPS]
    start = t[N_WRITTEN]
    groups = _write_groups(t, depth, start + depth)  # behind the room for the same in order
    for i in range(1, groups):
        moved = group_at[i]
        j = i
        while j > 0 and _comes_before(t, moved, group_at[j - 1]):
            group_at[j] = group_at[j - 1]
            j -= 1
        group_at[j] = moved
    sign, at = 0, start
    for i in range(groups):
        a = group_at[i]
        while True:
            x = written[a]
            written[at] = x
            sign = extended(t, N_SIGNS, sign, classes[x] if x >= 0 else classes[-1 - x] + n)
            at += 1
            a += 1
            if x < 0:
                break
    signs = ints(t[SIGNS])
    if signs[NODE * sign + ASKED] < 0:
        signs[NODE * sign + ASKED] = t[N_ASKED]
        t[N_ASKED] += 1
        longs(t[ASKED_PTR])[t[N_ASKED]] = at
        t[N_WRITTEN] = at
    ints(t[NODES])[NODE * node + ASKED] = signs[NODE * sign + ASKED]
