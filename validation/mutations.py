"""Changes to a schedule, most of which break it: rows of it, its execution, or its graph."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final

import simsched as ss
from simsched.model.program import EXECUTIONS

_ODD: Final = (-1, 0, 1, 2, 3, 7, 2**31 - 1, 2**31)


@dataclass
class Draft:
    """A schedule that may be wrong: what `Schedule` is made of, before anything was checked."""

    graph: ss.OpGraph
    """Where operators and the sizes of known edges come from."""
    pairs: list[tuple[str, str]]
    placements: list[ss.Placement]
    execution: str

    @classmethod
    def of(cls, plan: ss.Schedule) -> "Draft":
        """Return a schedule as a draft."""
        pairs = [(edge.src, edge.dst) for edge in plan.graph.edges]
        return cls(plan.graph, pairs, list(plan.placements), plan.execution)

    def copy(self) -> "Draft":
        """Return a copy that can be changed."""
        return replace(self, pairs=list(self.pairs), placements=list(self.placements))

    @property
    def names(self) -> tuple[str, ...]:
        """The operators."""
        return tuple(self.graph.names)

    @property
    def fault(self) -> str | None:
        """What is wrong with the graph: a cycle, found by taking away operators that read nothing."""
        left = dict.fromkeys(self.names)
        while left:
            held = {dst for src, dst in self.pairs if src in left}
            free = [name for name in left if name not in held]
            if not free:
                return "a cycle of dependencies"
            for name in free:
                del left[name]
        return None

    def schedule(self) -> ss.Schedule:
        """Make the schedule."""
        graph = self.graph
        known = [(edge.src, edge.dst) for edge in graph.edges]
        if known != self.pairs:
            edges = {(edge.src, edge.dst): edge for edge in graph.edges}
            graph = ss.OpGraph(graph.operators, [edges.get(pair, ss.Edge(*pair, nbytes=64.0)) for pair in self.pairs])
        return ss.Schedule(graph, self.placements, self.execution)

    def to_dict(self) -> dict[str, Any]:
        """Return it as the log has it."""
        rows = [[p.op, p.device, p.stream, p.stage, p.group, p.priority] for p in self.placements]
        return {"operators": list(self.names), "edges": self.pairs, "placements": rows, "execution": self.execution}


def _two(draft: Draft, rng: Random) -> tuple[int, int]:
    n = len(draft.placements)
    return rng.randrange(n), rng.randrange(n)


def _set(draft: Draft, at: int, **values: Any) -> None:
    draft.placements[at] = replace(draft.placements[at], **values)


def _set_where(draft: Draft, which: Callable[[ss.Placement], bool], **values: Any) -> None:
    draft.placements = [replace(row, **values) if which(row) else row for row in draft.placements]


def swap_places(draft: Draft, rng: Random) -> None:
    """Exchange two rows of the launch order."""
    (a, b), rows = _two(draft, rng), draft.placements
    rows[a], rows[b] = rows[b], rows[a]


def swap_neighbours(draft: Draft, rng: Random) -> None:
    """Exchange two rows that follow each other."""
    a, rows = rng.randrange(len(draft.placements)), draft.placements
    rows[a - 1], rows[a] = rows[a], rows[a - 1]


def move(draft: Draft, rng: Random) -> None:
    """Launch an operator elsewhere in the order."""
    a, b = _two(draft, rng)
    draft.placements.insert(b, draft.placements.pop(a))


def turn_round(draft: Draft, rng: Random) -> None:
    """Launch a stretch of the order backwards."""
    a, b = sorted(_two(draft, rng))
    draft.placements[a:b] = draft.placements[a:b][::-1]


def by_device(draft: Draft, _rng: Random) -> None:
    """Launch one device after the other: fine where each has a host, and not in a captured graph."""
    draft.placements.sort(key=lambda row: row.device)


def exchange_operators(draft: Draft, rng: Random) -> None:
    """Let two operators trade places, streams and all."""
    a, b = _two(draft, rng)
    first, second = draft.placements[a], draft.placements[b]
    draft.placements[a], draft.placements[b] = replace(first, op=second.op), replace(second, op=first.op)


def other_stream(draft: Draft, rng: Random) -> None:
    """Move an operator to another stream, its group with it or not."""
    at = rng.randrange(len(draft.placements))
    stream = rng.randrange(4)
    _set(draft, at, **({"stream": stream, "group": stream} if rng.random() < 0.5 else {"stream": stream}))


def other_group(draft: Draft, rng: Random) -> None:
    """Move an operator to another group."""
    _set(draft, rng.randrange(len(draft.placements)), group=rng.randrange(4))


def other_stage(draft: Draft, rng: Random) -> None:
    """Move an operator one stage on or back, or to the stage of another."""
    at, other = _two(draft, rng)
    stage = draft.placements[at].stage
    _set(draft, at, stage=rng.choice((stage + 1, max(0, stage - 1), draft.placements[other].stage)))


def later_stages(draft: Draft, rng: Random) -> None:
    """Begin a new stage in the middle of the launch order."""
    at = rng.randrange(len(draft.placements))
    draft.placements[at:] = [replace(row, stage=row.stage + 1) for row in draft.placements[at:]]


def merge_stages(draft: Draft, rng: Random) -> None:
    """Make one stage of two, on all devices or on one."""
    stage, only = rng.choice(draft.placements).stage, rng.choice((None, rng.choice(draft.placements).device))
    _set_where(draft, lambda row: row.stage == stage + 1 and only in (None, row.device), stage=stage)


def one_stream_of_stage(draft: Draft, rng: Random) -> None:
    """Put a stage on one stream: barriers beside it may be left out."""
    one = rng.choice(draft.placements)
    _set_where(draft, lambda row: (row.device, row.stage) == (one.device, one.stage), stream=0, group=0)


def other_device(draft: Draft, rng: Random) -> None:
    """Move an operator to another device, now and then one that there is not."""
    device = f"gpu{rng.randrange(4)}" if rng.random() < 0.9 else rng.choice(("gpu9", "", "host"))
    _set(draft, rng.randrange(len(draft.placements)), device=device)


def merge_devices(draft: Draft, rng: Random) -> None:
    """Move all of a device to another."""
    a, b = (draft.placements[i].device for i in _two(draft, rng))
    _set_where(draft, lambda row: row.device == a, device=b)


def split_device(draft: Draft, rng: Random) -> None:
    """Move a random half of a device to another."""
    device, to = rng.choice(draft.placements).device, f"gpu{rng.randrange(4)}"
    _set_where(draft, lambda row: row.device == device and rng.random() < 0.5, device=to)


def one_stream(draft: Draft, _rng: Random) -> None:
    """Put everything on stream 0, groups too."""
    _set_where(draft, lambda _: True, stream=0, group=0)


def own_streams(draft: Draft, _rng: Random) -> None:
    """Give every operator a stream of its own."""
    draft.placements = [replace(row, stream=i, group=i) for i, row in enumerate(draft.placements)]


def priority(draft: Draft, rng: Random) -> None:
    """Change a priority, which breaks nothing unless it is no such number."""
    _set(draft, rng.randrange(len(draft.placements)), priority=rng.choice((-(2**31) + 1, -3, *_ODD)))


def odd_number(draft: Draft, rng: Random) -> None:
    """Put a number anywhere: negative, huge, or one too large for 32 bits."""
    key = rng.choice(("stream", "stage", "group"))
    _set(draft, rng.randrange(len(draft.placements)), **{key: rng.choice(_ODD)})


def duplicate(draft: Draft, rng: Random) -> None:
    """Place an operator twice."""
    a, b = _two(draft, rng)
    draft.placements.insert(b, draft.placements[a])


def drop(draft: Draft, rng: Random) -> None:
    """Leave an operator out."""
    if len(draft.placements) > 1:
        del draft.placements[rng.randrange(len(draft.placements))]


def rename(draft: Draft, rng: Random) -> None:
    """Place another operator instead, or one that there is not."""
    a, b = _two(draft, rng)
    _set(draft, a, op=draft.placements[b].op if rng.random() < 0.5 else "nobody")


def other_execution(draft: Draft, rng: Random) -> None:
    """Run it another way."""
    draft.execution = rng.choice(EXECUTIONS)


def add_edge(draft: Draft, rng: Random) -> None:
    """Let an operator read from another: mostly from one launched before."""
    a, b = sorted(_two(draft, rng))
    if a != b:
        pair = draft.placements[a].op, draft.placements[b].op
        if rng.random() < 0.2:
            pair = pair[::-1]
        if pair[0] != pair[1] and pair not in draft.pairs and {*pair} <= {*draft.names}:
            draft.pairs.append(pair)


def turn_edge(draft: Draft, rng: Random) -> None:
    """Let a producer read from its consumer."""
    if draft.pairs:
        at = rng.randrange(len(draft.pairs))
        src, dst = draft.pairs[at]
        if (dst, src) not in draft.pairs:
            draft.pairs[at] = dst, src


def drop_edge(draft: Draft, rng: Random) -> None:
    """Take a dependency away."""
    if draft.pairs:
        del draft.pairs[rng.randrange(len(draft.pairs))]


MUTATIONS: Final = {
    one.__name__: one
    for one in (
        swap_places, swap_neighbours, move, turn_round, by_device, exchange_operators, other_stream, other_group,
        other_stage, later_stages, merge_stages, one_stream_of_stage, other_device, merge_devices, split_device,
        one_stream, own_streams, priority, odd_number, duplicate, drop, rename, other_execution, add_edge,
        turn_edge, drop_edge,
    )
}  # fmt: skip
"""Every change, by its name."""
