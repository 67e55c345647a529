"""Activities of a torch.profiler trace by stream: when each was called for, and until when its device was busy."""

from typing import Final

import numpy as np

from simsched.model import Ints
from workloads.formats.kineto.events import Activities, HostEvents

_EVER: Final = 2**62


def called_at(acts: Activities, calls: HostEvents, call: Ints) -> tuple[Ints, Ints]:
    """Return when each activity was called for, and the latest that this can have been, in ns.

    Without a call the latest is its start, or the next known call of its stream: streams run in order. An activity that
    runs before the first known call of its stream was called for before the recording.
    """
    known = call >= 0
    latest = np.where(known, calls.start[call] if len(calls) else 0, acts.start)
    if known.all() or not len(calls):
        return latest, latest
    first_call, lanes = int(calls.start.min()), list(zip(acts.device.tolist(), acts.stream.tolist(), strict=True))
    order = np.lexsort((acts.correlation, acts.start)).tolist()
    following: dict[tuple[int, int], int] = {}
    for row in reversed(order):
        if not known[row]:
            latest[row] = min(int(latest[row]), following.get(lanes[row], _EVER))
        following[lanes[row]] = min(int(latest[row]), following.get(lanes[row], _EVER))
    called, begun = np.array(latest), {lanes[row] for row in np.flatnonzero(~known).tolist()}
    begun &= {lanes[row] for row in np.flatnonzero(known).tolist()}  # streams whose first calls are unknown
    for row in order:
        if known[row]:
            begun.discard(lanes[row])
        elif lanes[row] in begun:
            called[row] = min(int(latest[row]), first_call)
    return called, latest


def reached(acts: Activities) -> list[int]:
    """Return, for each activity, the latest end in ns on its device of all activities that started before it."""
    found = [0] * len(acts)
    ends = (acts.start + acts.duration).tolist()
    devices, last = acts.device.tolist(), dict[int, int]()
    for row in np.argsort(acts.start, kind="stable").tolist():
        found[row] = last.get(devices[row], 0)
        last[devices[row]] = max(found[row], ends[row])
    return found
