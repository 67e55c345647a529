"""Whether a schedule can run without breaking a dependency, decided by letting it run, without times.

Independent of `Schedule.check`: nothing of it is imported, there is no search for cycles and no vectorised rule.
Hosts issue what they may and streams run what they may, until nothing moves. No choice matters: what an actor may do
once, it may do for ever after, so that every order of moves ends in the same place. While it runs, each operator
gathers what is *known* to have ended before it starts, from streams, events and barriers alone; a dependency that is
not among that was kept by luck.
"""

from collections.abc import Sequence
from itertools import groupby, pairwise
from typing import Final

from simsched.model.placement import Placement

_LARGEST: Final = 2**31 - 1


Rows = Sequence[tuple[int, Placement]]
"""Operators, by number, and their placements in launch order."""


def fault(
    names: Sequence[str],
    edges: Sequence[tuple[str, str]],
    placements: Sequence[Placement],
    execution: str,
    devices: Sequence[str] | None = None,
) -> str | None:
    """Return the fault of a schedule in a few words, or None if it runs to its end and respects every edge.

    Parameters
    ----------
    names, edges
        Operators, and pairs of producer and consumer.
    placements
        In launch order.
    execution
        ``"stages"``, ``"events"`` or ``"graph"``.
    devices
        Those that there are; None: any.

    Notes
    -----
    The rules follow ``docs/model.md`` and the docstring of `Schedule.check`:

    - The host of a device (in a captured graph: one for all) issues in launch order.
    - With events, a consumer waits for every producer. On the same host that wait takes effect only if the producer
      was issued before; across hosts the host blocks until the record has been issued.
    - With stages, nothing waits within a device but streams for themselves and the host at barriers.
    - A barrier lets the host go on when everything that it issued has ended. It is left out between two stages of
      one group each on the same stream.
    """
    index = {name: i for i, name in enumerate(names)}
    if sorted(row.op for row in placements) != sorted(names):
        return "not every operator is placed once"
    for row in placements:
        if min(row.stream, row.stage, row.group) < 0:
            return "a negative number"
        if max(row.stream, row.stage, row.group, abs(row.priority)) > _LARGEST:
            return "too large a number"
        if devices is not None and row.device not in devices:
            return "a device that there is not"
    pairs = [(index[src], index[dst]) for src, dst in edges]
    rows = [(index[row.op], row) for row in placements]
    wrong = _not_in_stages(pairs, rows) if execution == "stages" else None
    return wrong or _run(pairs, rows, execution)


def _not_in_stages(edges: Sequence[tuple[int, int]], rows: Rows) -> str | None:
    """Look at every two rows of a device: stages follow each other, groups and streams of a stage belong together."""
    for at, (_, later) in enumerate(rows):
        for _, sooner in rows[:at]:
            if sooner.device != later.device:
                continue
            if sooner.stage > later.stage:
                return "a stage that comes back"
            if sooner.stage == later.stage and (sooner.group == later.group) != (sooner.stream == later.stream):
                return "groups and streams of a stage that do not belong together"
    row_of = dict(rows)
    for src, dst in edges:
        a, b = row_of[src], row_of[dst]
        if (a.device, a.stage) == (b.device, b.stage) and a.group != b.group:
            return "a dependency between groups of a stage"
    return None


def _run(edges: Sequence[tuple[int, int]], rows: Rows, execution: str) -> str | None:
    n, row_of = len(rows), dict(rows)
    host_of = {op: "" if execution == "graph" else row.device for op, row in rows}
    waits: list[list[int]] = [[] for _ in range(n)]  # that the host issues before an operator
    for src, dst in edges:
        if execution != "stages" or row_of[src].device != row_of[dst].device:
            waits[dst].append(src)
    hosts: dict[str, list[int]] = {}
    streams: dict[tuple[str, int], list[int]] = {}
    for op, row in rows:
        hosts.setdefault(host_of[op], []).append(op)
        streams.setdefault((row.device, row.stream), []).append(op)
    before = {later: [sooner] for queue in streams.values() for sooner, later in pairwise(queue)}
    barriers = _barriers(rows) if execution == "stages" else set()

    at: dict[object, int] = dict.fromkeys([*hosts, *streams], 0)
    issued, ended = set[int](), set[int]()
    known = [0] * n  # operators that have surely ended before an operator starts, as bits
    known_to_host = dict.fromkeys(hosts, 0)
    moved = True
    while moved:
        moved = False
        for host, order in hosts.items():
            for op in order[at[host] :]:
                missing, sooner = [p for p in waits[op] if p not in issued], order[: at[host]]
                if any(host_of[p] == host for p in missing):
                    return "a wait that is issued before what it waits for"
                if missing or (op in barriers and not ended.issuperset(sooner)):
                    break
                for p in sooner if op in barriers else ():
                    known_to_host[host] |= known[p] | 1 << p
                known[op] = known_to_host[host]
                issued.add(op)
                at[host] += 1
                moved = True
        for stream, queue in streams.items():
            for op in queue[at[stream] :]:
                if op not in issued or not ended.issuperset(waits[op]):
                    break
                for p in (*waits[op], *before.get(op, ())):
                    known[op] |= known[p] | 1 << p
                ended.add(op)
                at[stream] += 1
                moved = True
    if len(ended) < n:
        return "it never ends"
    if any(not known[dst] >> src & 1 for src, dst in edges):
        return "a dependency that nothing keeps"
    return None


def _barriers(rows: Rows) -> set[int]:
    """Return the operators before which the host of a device issues a barrier."""
    found = set()
    for device in {row.device for _, row in rows}:
        mine = [(op, row) for op, row in rows if row.device == device]
        stages = [list(rows) for _, rows in groupby(mine, key=lambda pair: pair[1].stage)]
        for sooner, later in pairwise(stages):
            if len({row.stream for _, row in (*sooner, *later)}) > 1:
                found.add(later[0][0])
    return found
