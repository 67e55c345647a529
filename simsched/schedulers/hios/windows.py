"""Algorithm 2: neighbours on a device become one stage where that shortens the whole."""

from math import inf

from simsched.base.jit import Column, Row, Rows, Table, f8, i4, i8, length, piece


class Stage(Row):
    """An operator, and the stage that begins with it."""

    time: f8  # that the stage takes
    end: f8  # as things are
    trial: f8  # with the stage that is tried
    first: i4  # operator of the stage that this one is in
    size: i4
    place: i4  # in the order
    previous: i4  # operator on the device, or -1
    mark: i4  # the last search that met it


class Windows(Table):
    """Operators device by device, and the window that slides over them."""

    n_ops: i8
    n_devices: i8  # with operators
    width: i8
    turn: i8
    first: i8  # operator in the window
    taken: i8  # operators to be one stage
    best_taken: i8
    stamp: i8  # of the search that marks
    n_merged: i8
    n_refused: i8
    answer: f8  # what the stage asked for takes
    latency: f8  # of the whole
    best: f8
    best_time: f8
    stages: Rows[Stage]
    ptr: Column[i8]
    source: Column[i4]  # of each input
    us: Column[f8]
    order: Column[i4]  # topological
    turns: Column[i4]  # first operators of the windows, one after the other
    last: Column[i4]  # operator of each device
    followers: Column[i4] = length("n_ops")


def stage_of(t: Windows, i: int) -> Stage:
    """Return the stage that an operator is in."""
    return t.stages[t.stages[i].first]


def end_of(t: Windows, s: int) -> float:
    """Return when a stage ends: it starts when the one before it on its device and all inputs are there."""
    stage, start = t.stages[s], 0.0
    if stage.previous >= 0:
        start = stage_of(t, stage.previous).trial
    for e in range(t.ptr[s], t.ptr[s + stage.size]):
        start = max(start, stage_of(t, t.source[e]).trial + t.us[e])
    return start + stage.time


def last_end(t: Windows) -> float:
    """Return when the last device is done; each runs its stages one after the other."""
    makespan = 0.0
    for d in range(t.n_devices):
        makespan = max(makespan, stage_of(t, t.last[d]).trial)
    return makespan


def reads_marked(t: Windows, s: int) -> bool:
    """Return whether a stage has an input from one that is marked."""
    for e in range(t.ptr[s], t.ptr[s + t.stages[s].size]):
        if stage_of(t, t.source[e]).mark == t.stamp:
            return True
    return False


def can_merge(t: Windows, taken: int) -> bool:
    """Mark what follows from the first of `taken` operators up to the last; return whether none of these does.

    What follows in the data, in another device's order, or in both by turns: an in-order execution
    would wait for ever if operators of one stage waited for each other so.
    """
    first, after = t.first, t.first + taken
    t.stamp += 1
    t.stages[first].mark = t.stamp
    for at in range(t.stages[first].place + 1, t.stages[after - 1].place + 1):
        s = t.order[at]
        stage = t.stages[s]
        if stage.first != s:
            continue
        follows, inside = reads_marked(t, s), first < s < after
        if follows and inside:
            return False
        if follows or inside or (stage.previous >= 0 and stage_of(t, stage.previous).mark == t.stamp):
            stage.mark = t.stamp
    return True


def set_stage(t: Windows, size: int, us: float) -> None:
    """Make the first `size` operators of the window a stage that takes `us`, the others stages of their own."""
    for k in range(t.taken):
        t.stages[t.first + k].first = t.first if k < size else t.first + k
    stage = t.stages[t.first]
    stage.size, stage.time = size, us


def evaluate(t: Windows, taken: int, limit: float) -> float:
    """Return the makespan with `taken` joined stages marked by `can_merge`, or infinity once `limit` is reached.

    Of the stages between the joined ones only those that follow change.
    """
    end = t.stages[t.first + taken - 1].place
    for at in range(t.stages[t.first].place, t.n_ops):
        s = t.order[at]
        stage = t.stages[s]
        if stage.first == s and (at > end or stage.mark == t.stamp):
            stage.trial = end_of(t, s)
            if stage.trial >= limit:
                return inf
    return last_end(t)


def settle(t: Windows, keep: bool) -> None:
    """Keep the ends that were tried, or go back to those as things are."""
    for at in range(t.stages[t.first].place, t.n_ops):
        stage = t.stages[t.order[at]]
        if keep:
            stage.end = stage.trial
        else:
            stage.trial = stage.end


def rearrange(t: Windows, taken: int) -> None:
    """Put the joined stage into the order: behind what does not follow it, before what does."""
    begin, end = t.stages[t.first].place, t.stages[t.first + taken - 1].place
    at, n_followers = begin, 0
    for place in range(begin, end + 1):
        stage = t.stages[t.order[place]]
        if stage.mark != t.stamp:
            t.order[at] = t.order[place]
            at += 1
        elif stage.first != t.first:
            t.followers[n_followers] = t.order[place]
            n_followers += 1
    for k in range(taken):
        t.order[at + k] = t.first + k
    for k in range(n_followers):
        t.order[at + taken + k] = t.followers[k]
    for place in range(begin, end + 1):
        t.stages[t.order[place]].place = place


def try_stage(t: Windows) -> None:
    """Take the answer to the question asked, and note the stage if the makespan with it is the least so far."""
    alone = t.stages[t.first].time
    set_stage(t, t.taken, t.answer)
    makespan = evaluate(t, t.taken, t.best)
    set_stage(t, 1, alone)
    settle(t, False)
    if makespan < t.best:
        t.best, t.best_time, t.best_taken = makespan, t.answer, t.taken


def can_widen(t: Windows) -> bool:
    """Return whether the window has room for the operator after it, and both are in no stage of several."""
    after = t.first + t.taken
    if t.taken >= t.width or after >= t.n_ops or t.stages[after].previous < 0:
        return False
    return stage_of(t, t.first).size == 1 and stage_of(t, after).size == 1


def close(t: Windows) -> None:
    """Keep the best stage of the window, if any is better than none."""
    if t.best_taken > 1:
        can_merge(t, t.best_taken)
        set_stage(t, t.best_taken, t.best_time)
        t.latency = evaluate(t, t.best_taken, inf)
        settle(t, True)
        rearrange(t, t.best_taken)
        t.n_merged += 1
    t.turn += 1
    t.taken = 0


@piece("HIOS schedulers")
def run_alone(t: Windows) -> None:
    """Evaluate every operator as a stage of its own."""
    for at in range(t.n_ops):
        stage = t.stages[t.order[at]]
        stage.trial = stage.end = end_of(t, t.order[at])
    t.latency = last_end(t)


@piece("HIOS schedulers")
def next_stage(t: Windows) -> None:
    """Go on to the next stage whose latency has to be asked for, or to the end of the turns."""
    if t.taken > 0:
        try_stage(t)
    while t.turn < t.n_ops:
        if t.taken == 0:
            t.first, t.taken, t.best_taken, t.best = t.turns[t.turn], 1, 1, t.latency
        if can_widen(t):
            if can_merge(t, t.taken + 1):
                t.taken += 1
                return
            t.n_refused += 1
        close(t)
