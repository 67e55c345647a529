"""Nodes of captured graphs in a torch.profiler trace: the nodes that each one waited for, by measured times."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

_FEW: Final = 5
"""Fewest gaps of which a median is taken."""
_USUAL: Final = 1_000
"""Ns between two nodes of a stream, where a launch has too few nodes to measure it."""
_LATE: Final = 2
"""Times the usual gap after which a node did not start because its stream was free."""
_WHOLE: Final = 1_000
_STEP: Final = 32
"""Ns between two readings of a device's clock, in traces that do not round times to whole us."""


class CapturedNode(NamedTuple):
    """A node of a captured graph.

    Parameters
    ----------
    op
        Its operator.
    previous
        The previous node of the launch on its stream, or -1.
    sources
        The nodes of other streams that it waited for, one for each stream.
    lag
        Ns from the end of the last source to its start; -1 if it did not start later than its stream allows.
    """

    op: int
    previous: int
    sources: tuple[int, ...]
    lag: int


def nodes_of(
    ops: Sequence[int], lane_of: Sequence[int], start: Sequence[int], end: Sequence[int]
) -> list[CapturedNode]:
    """Return the nodes of one launch of a captured graph, without the first one.

    Parameters
    ----------
    ops
        Operators of the nodes, by start.
    lane_of, start, end
        Number of the stream, start and end in ns of each operator.

    Notes
    -----
    The first node of a stream waited for the node that ended last before it: a fork. A node that starts more than twice
    the usual gap after the previous node of its stream waited for the nodes that ended last before it on those other
    streams that are idle when it starts, unless they ended before the previous node did, or another node waited for
    them: a join. So did a node that starts when no other one
    runs: streams of a captured graph are joined, and this may be where.
    """
    if all(start[op] % _WHOLE == 0 for op in ops):
        rounding = _WHOLE
    else:
        rounding = _STEP
    lanes: dict[int, list[int]] = defaultdict(list)
    previous = []
    for op in ops:
        before_it = lanes[lane_of[op]]
        previous.append(before_it[-1] if before_it else -1)
        before_it.append(op)
    gaps = [start[op] - end[before] for op, before in zip(ops, previous, strict=True) if before >= 0]
    if len(gaps) >= _FEW:
        usual = int(np.median(gaps))
    else:
        usual = _USUAL
    ends = {lane: np.maximum.accumulate([end[op] for op in its]).tolist() for lane, its in lanes.items()}
    place = {op: k for k, op in enumerate(ops)}
    awaited: set[int] = set()
    running: list[int] = []
    nodes = []
    for op, before in zip(ops[1:], previous[1:], strict=True):
        if before >= 0:
            free = end[before]
        else:
            free = -1
        is_late = before < 0 or start[op] - free > _LATE * usual + rounding
        running = [other for other in (*running, ops[place[op] - 1]) if end[other] > start[op] + rounding]
        sources = []
        if is_late or not running:
            for lane, its in lanes.items():
                k = bisect_right(ends[lane], start[op] + rounding) - 1
                if lane != lane_of[op] and k >= 0 and place[its[k]] < place[op]:
                    is_idle = k + 1 == len(its) or start[its[k + 1]] >= start[op]
                    sources.append((its[k], is_idle))
        last = max((source for source, _ in sources), key=end.__getitem__, default=-1)
        if last >= 0 and (not is_late or end[last] <= free):
            last = -1
        if running:
            least = free
        else:
            least = -1
        chosen = tuple(
            source
            for source, is_idle in sources
            if source == last or (before >= 0 and is_idle and source not in awaited and end[source] > least)
        )
        awaited.update(chosen)
        if last >= 0:
            lag = start[op] - end[last]
        else:
            lag = -1
        nodes.append(CapturedNode(op, before, chosen, lag))
    return nodes
