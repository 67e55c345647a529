"""Algorithm 2 in machine code: neighbours on a device become one stage where that shortens the whole."""

from typing import Any

import numpy as np

from simsched.machine_code import compiled
from simsched.machine_columns import floats, ints
from simsched.schedulers.hios.layout import (
    ANSWER,
    ASKS,
    BEST,
    BEST_TAKEN,
    BEST_TIME,
    DONE,
    ENDS_AT,
    FIRST,
    GROUPED,
    LAST,
    LATENCY_NOW,
    MARK,
    N_MERGED,
    N_REFUSED,
    NONE,
    NUMBERS,
    ORDER,
    PLACE,
    SIZE,
    STAGE_OF,
    STAGE_TIME,
    STAMP,
    TAKEN,
    TRIAL,
    TURN,
    TURNS,
    W_DEVICE,
    W_DEVICES,
    W_FROM,
    W_OPS,
    W_PTR,
    W_US,
    WIDTH,
)


@compiled
def _end_of(t: Any, s: int) -> float:
    """Return when a stage ends: it starts when the one before it on its device and all inputs are there."""
    ptr, come_from, us = ints(t[W_PTR]), ints(t[W_FROM]), floats(t[W_US])
    stage_of, device, trial = ints(t[STAGE_OF]), ints(t[W_DEVICE]), floats(t[TRIAL])
    start = 0.0
    if s > 0 and device[s - 1] == device[s]:
        start = trial[stage_of[s - 1]]
    for e in range(ptr[s], ptr[s + ints(t[SIZE])[s]]):
        start = max(start, trial[stage_of[come_from[e]]] + us[e])
    return start + floats(t[STAGE_TIME])[s]  # type: ignore[no-any-return]


@compiled
def _makespan(t: Any) -> float:
    """Return when the last device is done; each runs its stages one after the other."""
    last, stage_of, trial = ints(t[LAST]), ints(t[STAGE_OF]), floats(t[TRIAL])
    makespan = 0.0
    for d in range(t[W_DEVICES]):
        if last[d] >= 0:
            makespan = max(makespan, trial[stage_of[last[d]]])
    return makespan


@compiled
def _can_merge(t: Any, first: int, taken: int) -> bool:
    """Mark what follows from stage `first` up to the last of `taken`; return whether none of these does.

    What follows in the data, in another device's order, or in both by turns: an in-order execution
    would wait for ever if operators of one stage waited for each other so.
    """
    ptr, come_from, stage_of, size = ints(t[W_PTR]), ints(t[W_FROM]), ints(t[STAGE_OF]), ints(t[SIZE])
    device, order, place, mark = ints(t[W_DEVICE]), ints(t[ORDER]), ints(t[PLACE]), ints(t[MARK])
    t[STAMP] += 1
    stamp = t[STAMP]
    mark[first] = stamp
    for at in range(place[first] + 1, place[first + taken - 1] + 1):
        s = order[at]
        if s < 0:
            continue
        follows = False
        for e in range(ptr[s], ptr[s + size[s]]):
            if mark[stage_of[come_from[e]]] == stamp:
                follows = True
        if first < s < first + taken:
            if follows:
                return False
            follows = True
        elif s > 0 and device[s - 1] == device[s] and mark[stage_of[s - 1]] == stamp:
            follows = True
        if follows:
            mark[s] = stamp
    return True


@compiled
def _set_stage(t: Any, first: int, taken: int, joined: int, us: float) -> None:
    """Make `taken` operators one stage that takes `us`, or with `joined` of 0 stages of their own again."""
    for k in range(taken):
        ints(t[STAGE_OF])[first + k] = first if joined else first + k
    ints(t[SIZE])[first] = taken if joined else 1
    floats(t[STAGE_TIME])[first] = us


@compiled
def _evaluate(t: Any, first: int, taken: int, limit: float) -> float:
    """Return the makespan with `taken` joined stages marked by `_can_merge`, or infinity once `limit` is reached.

    Of the stages between the joined ones only those that follow change, and are evaluated after it.
    """
    order, place, mark, trial = ints(t[ORDER]), ints(t[PLACE]), ints(t[MARK]), floats(t[TRIAL])
    stamp, end = t[STAMP], place[first + taken - 1]
    trial[first] = _end_of(t, first)
    if trial[first] >= limit:
        return np.inf
    for at in range(place[first] + 1, end + 1):
        s = order[at]
        if s >= 0 and mark[s] == stamp and not first <= s < first + taken:
            trial[s] = _end_of(t, s)
            if trial[s] >= limit:
                return np.inf
    for at in range(end + 1, t[W_OPS]):
        s = order[at]
        if s >= 0:
            trial[s] = _end_of(t, s)
            if trial[s] >= limit:
                return np.inf
    return _makespan(t)


@compiled
def _copy_ends(t: Any, start: int, into: Any, come_from: Any) -> None:
    """Copy the ends of the stages from a place of the order on."""
    order = ints(t[ORDER])
    for at in range(start, t[W_OPS]):
        s = order[at]
        if s >= 0:
            into[s] = come_from[s]


@compiled
def _rearrange(t: Any, first: int, taken: int) -> None:
    """Put the joined stage into the order: behind what does not follow it, before what does."""
    order, place, mark, stamp = ints(t[ORDER]), ints(t[PLACE]), ints(t[MARK]), t[STAMP]
    work, start, end = ints(t[GROUPED] + 4 * t[W_OPS]), place[first], place[first + taken - 1]
    n = 0
    for follows in range(2):
        if follows:
            work[n] = first
            n += 1
        for at in range(start, end + 1):
            s = order[at]
            if s >= 0 and not first <= s < first + taken and (mark[s] == stamp) == (follows == 1):
                work[n] = s
                n += 1
    for at in range(start, end + 1):
        order[at] = work[at - start] if at - start < n else NONE
        if order[at] >= 0:
            place[order[at]] = at
    for k in range(taken):
        ints(t[GROUPED])[first + k] = 1


@compiled
def _try(t: Any) -> None:
    """Take the answer to the question asked, and note the stage if the makespan with it is the least so far."""
    numbers, first, taken = floats(t[NUMBERS]), t[FIRST], t[TAKEN]
    start, alone = ints(t[PLACE])[first], floats(t[STAGE_TIME])[first]
    _set_stage(t, first, taken, 1, numbers[ANSWER])
    makespan = _evaluate(t, first, taken, numbers[BEST])
    _set_stage(t, first, taken, 0, alone)
    _copy_ends(t, start, floats(t[TRIAL]), floats(t[ENDS_AT]))
    if makespan < numbers[BEST]:
        numbers[BEST], numbers[BEST_TIME] = makespan, numbers[ANSWER]
        t[BEST_TAKEN] = taken


@compiled
def _close(t: Any) -> None:
    """Keep the best stage of the window, if any is better than none."""
    numbers, first, taken = floats(t[NUMBERS]), t[FIRST], t[BEST_TAKEN]
    if taken > 1:
        _can_merge(t, first, taken)
        start = ints(t[PLACE])[first]
        _set_stage(t, first, taken, 1, numbers[BEST_TIME])
        numbers[LATENCY_NOW] = _evaluate(t, first, taken, np.inf)
        _rearrange(t, first, taken)
        _copy_ends(t, start, floats(t[ENDS_AT]), floats(t[TRIAL]))
        t[N_MERGED] += 1
    t[TURN] += 1
    t[TAKEN] = 0


@compiled
def begin_windows(t: Any) -> int:
    """Evaluate every operator as a stage of its own; return the new status."""
    order, numbers = ints(t[ORDER]), floats(t[NUMBERS])
    for at in range(t[W_OPS]):
        floats(t[TRIAL])[order[at]] = _end_of(t, order[at])
    _copy_ends(t, 0, floats(t[ENDS_AT]), floats(t[TRIAL]))
    numbers[LATENCY_NOW] = _makespan(t)
    return DONE


@compiled
def next_window(t: Any) -> int:
    """Go on to the next stage whose latency has to be asked for; return the new status."""
    grouped, device, numbers = ints(t[GROUPED]), ints(t[W_DEVICE]), floats(t[NUMBERS])
    if t[TAKEN] > 0:
        _try(t)
    while t[TURN] < t[W_OPS]:
        if t[TAKEN] == 0:
            t[FIRST] = ints(t[TURNS])[t[TURN]]
            if grouped[t[FIRST]]:
                t[TURN] += 1
                continue
            t[TAKEN] = t[BEST_TAKEN] = 1
            numbers[BEST] = numbers[LATENCY_NOW]
        first, after = t[FIRST], t[FIRST] + t[TAKEN]
        there = t[TAKEN] < t[WIDTH] and after < t[W_OPS] and device[after] == device[first] and not grouped[after]
        if there and _can_merge(t, first, t[TAKEN] + 1):
            t[TAKEN] += 1
            return ASKS
        if there:
            t[N_REFUSED] += 1
        _close(t)
    return DONE
