"""All stages that end each state, compiled: the dynamic program of IOS, or the stages it will ask for."""

from typing import Any

import numpy as np

from simsched.machine_code import compiled
from simsched.machine_columns import floats, ints, longs
from simsched.schedulers.ios.lattice import build
from simsched.schedulers.ios.layout import (
    ASKED,
    ASKED_ROOM,
    BUILD,
    CELL,
    CELLS,
    COLLECT,
    COST,
    COUNT,
    COUNT_MODULO,
    DEPTH,
    DONE,
    END,
    FACTOR,
    FEWER,
    FIRST,
    FORMULA,
    FRAME,
    FRAMES,
    FULL,
    GROUP_ROOTS,
    GROUP_SIZE,
    GROUP_TIME,
    GROUPS,
    JOINED,
    LAST,
    LEFT,
    LENGTH,
    LONGEST,
    MASKS,
    MERGE_COST,
    MERGE_PTR,
    MERGED,
    MODE,
    MOST_GROUPS,
    MOST_OPS,
    N_ASKED,
    N_ENDINGS,
    N_MERGED_ENDINGS,
    N_MERGES,
    N_NODES,
    N_OPS,
    N_SIGNS,
    N_SOURCES_IN,
    N_STAGES,
    N_WORDS,
    N_WRITTEN,
    NEXT,
    NODE,
    NODE_AT,
    NODE_ROOM,
    NODES,
    OPERATOR,
    PARENT,
    PAUSED,
    PHASE,
    POSITION,
    READER_PTR,
    READERS,
    REST,
    SEARCH,
    SIGN_ROOM,
    SINGLE_ROOT,
    STAGE_COST,
    START,
    STATE,
    STATE_ROW,
    STATES,
    STATUS,
    TAKEN,
    TIME,
    TRAIL,
    UNROOTED,
    VALUE,
    VALUES,
    WITHIN,
    WITHIN_PTR,
    WRITTEN_ROOM,
)
from simsched.schedulers.ios.prefixes import ask_for, extended, find_again

word: Any = np.int64
"""Makes a number one of 64 bits; without it a function is compiled again for every constant it is called with."""


@compiled
def _open_state(t: Any, s: int) -> None:
    """Begin with a state: its first frame, and who reads from whom in it."""
    n, words = t[N_OPS], t[N_WORDS]
    mask, ptr, readers = longs(t[MASKS]), ints(t[READER_PTR]), ints(t[READERS])
    within_ptr, within = ints(t[WITHIN_PTR]), ints(t[WITHIN])
    at = 0
    for x in range(n):
        within_ptr[x] = at
        if mask[s * words + (x >> 6)] >> (x & 63) & 1:
            for e in range(ptr[x], ptr[x + 1]):
                u = readers[e]
                if mask[s * words + (u >> 6)] >> (u & 63) & 1:
                    within[at] = u
                    at += 1
    within_ptr[n] = at
    frames, states = longs(t[FRAMES]), ints(t[STATES])
    for i in range(FRAME):
        frames[i] = 0
    frames[POSITION] = states[STATE_ROW * s + START]
    frames[LAST] = frames[POSITION] + states[STATE_ROW * s + LENGTH]
    value, count = floats(t[VALUES]), longs(t[VALUES])
    value[VALUE * s + COST], value[VALUE * s + COUNT] = np.inf, 0.0
    count[VALUE * s + COUNT_MODULO], count[VALUE * s + NEXT] = 0, -1


@compiled
def _merge(t: Any, s: int) -> None:
    """Try the stages that merge operators which nothing in the state reads."""
    cell, states = ints(t[CELLS]), ints(t[STATES])
    ptr, merged, cost = ints(t[MERGE_PTR]), ints(t[MERGED]), floats(t[MERGE_COST])
    value, count = floats(t[VALUES]), longs(t[VALUES])
    for m in range(t[N_MERGES]):
        at = states[STATE_ROW * s + START]
        end = at + states[STATE_ROW * s + LENGTH]
        v = s
        for k in range(ptr[m], ptr[m + 1]):
            while at < end and cell[CELL * at + OPERATOR] > merged[k]:
                at += 1
            if at == end or cell[CELL * at + OPERATOR] != merged[k]:
                v = -1
                break
            v, end = cell[CELL * at + REST], cell[CELL * at + END]
            at = cell[CELL * at + FIRST]
        if v < 0:
            continue
        t[N_MERGED_ENDINGS] += 1
        value[VALUE * s + COUNT] += value[VALUE * v + COUNT]
        count[VALUE * s + COUNT_MODULO] += count[VALUE * v + COUNT_MODULO]
        us = cost[m] + value[VALUE * v + COST]
        if us < value[VALUE * s + COST]:
            value[VALUE * s + COST], count[VALUE * s + NEXT] = us, -1 - m


@compiled
def _search(t: Any) -> int:
    """Go on with the endings of all states, the smallest state first; return the status.

    An ending is built by taking operators off in falling order, so each of them comes once and each
    prefix is an ending too. An operator joins the groups of those that read from it.
    """
    mode, most_ops, most_groups, single_root = t[MODE], t[MOST_OPS], t[MOST_GROUPS], t[SINGLE_ROOT]
    cell, frames, longest = ints(t[CELLS]), longs(t[FRAMES]), floats(t[FRAMES])
    value, modulo = floats(t[VALUES]), longs(t[VALUES])
    within_ptr, within, parent, joined = ints(t[WITHIN_PTR]), ints(t[WITHIN]), ints(t[PARENT]), ints(t[JOINED])
    size, roots, sources_in = ints(t[GROUP_SIZE]), ints(t[GROUP_ROOTS]), ints(t[N_SOURCES_IN])
    time, group_time = floats(t[TIME]), floats(t[GROUP_TIME])
    fewer, factor = ints(t[FEWER]), floats(t[FACTOR])
    nodes, stage_cost = ints(t[NODES]), floats(t[STAGE_COST])
    s, depth, left, endings = t[STATE], t[DEPTH], t[LEFT], t[N_ENDINGS]
    constant = factor[0]
    while s >= 0:
        if depth < 0:
            _open_state(t, s)
            depth = 0
        best, following = value[VALUE * s + COST], modulo[VALUE * s + NEXT]
        count, count_modulo = value[VALUE * s + COUNT], modulo[VALUE * s + COUNT_MODULO]
        status = DONE
        while True:
            f = FRAME * depth
            p = frames[f + POSITION]
            if p == frames[f + LAST]:
                if depth == 0:
                    break
                x = frames[f + TAKEN]
                for j in range(frames[f - FRAME + TRAIL], frames[f + TRAIL]):
                    parent[joined[j]] = joined[j]
                parent[x] = -1
                if single_root:
                    for e in range(within_ptr[x], within_ptr[x + 1]):
                        sources_in[within[e]] -= 1
                depth -= 1
                continue
            if left == 0:
                status = PAUSED
                break
            if mode == COLLECT and (
                t[N_NODES] >= t[NODE_ROOM] or t[N_SIGNS] + depth >= t[SIGN_ROOM]
                or t[N_ASKED] + 1 >= t[ASKED_ROOM] or t[N_WRITTEN] + 2 * depth + 1 >= t[WRITTEN_ROOM]
            ):  # fmt: skip
                status = FULL
                break
            left -= 1
            frames[f + POSITION] = p + 1
            x, v = cell[CELL * p + OPERATOR], cell[CELL * p + REST]
            groups, trail, n_ops, us = frames[f + GROUPS] + 1, frames[f + TRAIL], 1, time[x]
            unrooted, n_roots = frames[f + UNROOTED], 1
            parent[x] = x
            for e in range(within_ptr[x], within_ptr[x + 1]):
                u = within[e]
                if single_root:
                    if sources_in[u] == 0:
                        n_roots -= 1
                    sources_in[u] += 1
                while parent[u] != u:
                    u = parent[u]
                if u != x:
                    parent[u] = x
                    joined[trail] = u
                    trail += 1
                    groups -= 1
                    n_ops += size[u]
                    us += group_time[u]
                    if single_root:
                        n_roots += roots[u]
                        if roots[u] > 1:
                            unrooted -= 1
            if single_root and n_roots > 1:
                unrooted += 1
            group_time[x], size[x], roots[x] = us, n_ops, n_roots
            us = max(us, longest[f + LONGEST])
            node = frames[f + NODE_AT]
            depth += 1
            f += FRAME
            frames[f + POSITION], frames[f + LAST] = cell[CELL * p + FIRST], cell[CELL * p + END]
            frames[f + GROUPS], frames[f + TRAIL], frames[f + TAKEN] = groups, trail, x
            frames[f + UNROOTED], longest[f + LONGEST] = unrooted, us
            if n_ops > most_ops or groups - fewer[x] > most_groups:
                frames[f + POSITION] = frames[f + LAST]  # nothing it is extended by can be a stage
                continue
            if most_ops == 1 and groups == most_groups:
                frames[f + POSITION] = frames[f + LAST]  # likewise, but it is one itself
            if mode != FORMULA:
                node = extended(t, word(N_NODES), node, word(x))
                frames[f + NODE_AT] = node
            if groups > most_groups or unrooted > 0:
                continue
            endings += 1
            if mode == COLLECT:
                if nodes[NODE * node + ASKED] < 0:
                    t[N_STAGES] += 1
                    ask_for(t, depth, node)
                continue
            count += value[VALUE * v + COUNT]
            count_modulo += modulo[VALUE * v + COUNT_MODULO]
            us = us * factor[groups] + constant if mode == FORMULA else stage_cost[node]
            us += value[VALUE * v + COST]
            if us < best:
                best, following = us, v
        value[VALUE * s + COST], modulo[VALUE * s + NEXT] = best, following
        value[VALUE * s + COUNT], modulo[VALUE * s + COUNT_MODULO] = count, count_modulo
        if status != DONE:
            t[STATE], t[DEPTH], t[LEFT], t[N_ENDINGS] = s, depth, left, endings
            return status
        if mode != COLLECT:
            _merge(t, s)
        depth = -1
        s -= 1
    t[STATE], t[DEPTH], t[LEFT], t[N_ENDINGS] = s, depth, left, endings
    return DONE


def search_states(table: int) -> None:
    """Do what the table asks for, see `layout`."""
    t = longs(table)
    if t[PHASE] == BUILD:
        t[STATUS] = build(t)
    elif t[PHASE] == SEARCH:
        t[STATUS] = _search(t)
    else:
        find_again(t, word(N_NODES))
        find_again(t, word(N_SIGNS))
        t[STATUS] = DONE
