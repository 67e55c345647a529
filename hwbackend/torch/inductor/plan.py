"""From the kernels of a wrapper to an order on streams, with waits; nothing here knows PyTorch."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Any, Final

import numpy as np

from simsched.base.errors import ScheduleError
from simsched.model import Cluster, Edge, Kernel, Operator, OpGraph, Schedule, Target
from simsched.model.profile import Profile
from simsched.schedulers import schedule, takes
from simsched.schedulers.protocol import Scheduler

Planner = Callable[[OpGraph], tuple[Sequence[int], Sequence[int]]]
"""From a graph to the order of its operators, and the stream of each operator by number of the operator."""
_PER_BLOCK: Final = {"fused": 1024, "extern": 64 * 64}  # elements of a block of Triton; a tile of a product
_THREADS: Final = 128
INPUT_STREAM: Final = 0
"""Stream of the memory that comes from outside."""


@dataclass(frozen=True, slots=True)
class FusedKernel:
    """A kernel of Inductor, or a name that it gives to memory.

    Parameters
    ----------
    name
        How Inductor calls it.
    after
        Positions of the kernels that it has to come after.
    touches
        Numbers of the allocations that it reads or writes.
    launches
        False for a node that only names a part of memory: it runs nothing and takes no time.
    flops, nbytes
        Work, for a model of its time.
    time
        Time alone in us, if it is known.
    elements
        Elements that it writes; 0 if that is not known. They say how large its launch is.
    kind
        ``"fused"`` for a kernel that Inductor generates, ``"extern"`` for one of a library.
    measured
        What it launches, if a profile told; `time` is then measured, too.
    """

    name: str
    after: tuple[int, ...]
    touches: tuple[int, ...]
    launches: bool = True
    flops: float = 0.0
    nbytes: float = 0.0
    time: float | None = None
    elements: int = 0
    kind: str = "fused"
    measured: tuple[Kernel, ...] | None = None

    @property
    def launch(self) -> tuple[Kernel, ...]:
        """Return its launches: measured ones, or one by rule, as Inductor and libraries choose their sizes late."""
        if self.measured is not None:
            return self.measured
        if not self.elements:
            return ()
        return (Kernel(blocks=ceil(self.elements / _PER_BLOCK[self.kind]), threads=_THREADS),)


@dataclass(frozen=True, slots=True)
class Allocation:
    """Memory that kernels share: a buffer of Inductor's with all other names that it has.

    Parameters
    ----------
    names
        Inductor's name of it.
    nbytes
        Size in bytes.
    lasts
        Whether it lives before the first kernel or after the last one: inputs, constants and outputs.
    given
        Whether it comes from outside.
    """

    names: tuple[str, ...]
    nbytes: float
    lasts: bool = False
    given: bool = False


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """In which order kernels are issued, where, and after which waits.

    Parameters
    ----------
    order
        Positions of all kernels, in the order in which they are issued.
    stream
        Stream of each kernel, by position; -1 for nodes that launch nothing.
    records
        Streams after whose last kernel so far an event is recorded, by position of the kernel that is issued next.
    waits
        Pairs of (stream, number of the event), by position of the kernel that waits.
    kept
        Names of the buffers that several streams touch: they are freed after the last kernel.
    peak, plain_peak
        Bytes that intermediate values need at most, and would need in the order of Inductor without reuse.
    schedule
        The scheduled graph, with the edges of waits; None where nothing launches.
    """

    order: tuple[int, ...]
    stream: tuple[int, ...]
    steps: Mapping[int, tuple[tuple[str, int, int], ...]] = field(default_factory=dict)
    kept: frozenset[str] = frozenset()
    peak: float = 0.0
    plain_peak: float = 0.0
    schedule: Schedule | None = None

    @property
    def n_streams(self) -> int:
        """Streams in use."""
        return max((stream for stream in self.stream if stream >= 0), default=0) + 1

    @property
    def n_waits(self) -> int:
        """Waits between streams, besides those at the begin and the end."""
        return sum(what == "wait" for steps in self.steps.values() for what, _, _ in steps)


def make_plan(kernels: Sequence[FusedKernel], memory: Sequence[Allocation], planner: Planner) -> StreamPlan:
    """Return an order of kernels on streams in which nothing is read, overwritten or freed too early.

    Parameters
    ----------
    kernels
        In the order of Inductor.
    memory
        Allocations, by the numbers in `touches`.
    planner
        Orders and places the operators of the graph of those that launch.

    Raises
    ------
    ScheduleError
        If the planner's order is not an order of the graph.
    """
    rows = [i for i, kernel in enumerate(kernels) if kernel.launches]
    if not rows:
        return StreamPlan(tuple(range(len(kernels))), (-1,) * len(kernels))
    graph = graph_of(kernels)
    order, placed = planner(graph)
    if sorted(order) != list(range(len(rows))):
        raise ScheduleError(f"a plan of {len(rows)} kernels orders {len(order)}: each has to come once")
    streams = _first_is_0([placed[i] for i in order])
    by_kernel = dict(zip((rows[i] for i in order), streams, strict=True))
    full = _with_names(kernels, [rows[i] for i in order])
    stream = tuple(by_kernel.get(i, -1) for i in range(len(kernels)))
    safe = _after_allocations(graph, kernels, memory, order, streams, rows)
    # one device of any kind: only the order and the streams count
    plan = Schedule.from_columns(safe, order, ("gpu0",), stream=streams, execution="graph", scheduler="streams")
    shared = _shared_allocations(kernels, memory, stream)
    kept = frozenset(name for i in shared for name in memory[i].names)
    return StreamPlan(
        full,
        stream,
        _steps(plan, rows),
        kept,
        _peak(kernels, memory, full, shared, stream),
        _peak(kernels, memory, range(len(kernels)), frozenset(), [0] * len(kernels)),
        plan,
    )


def graph_of(kernels: Sequence[FusedKernel]) -> OpGraph:
    """Return the graph of the kernels that launch; nodes that launch nothing pass their dependencies on."""
    sources: list[frozenset[int]] = []  # of each kernel: those that launch, which it has to come after
    edges = []
    for i, kernel in enumerate(kernels):
        direct = [frozenset((j,)) if kernels[j].launches else sources[j] for j in kernel.after]
        sources.append(frozenset[int]().union(*direct))
        if kernel.launches:
            edges += [Edge(kernels[j].name, kernel.name) for j in sorted(sources[i])]
    operators = [
        Operator(k.name, k.kind, flops=k.flops, nbytes=k.nbytes, time=k.time, kernels=k.launch)
        for k in kernels
        if k.launches
    ]
    return OpGraph(operators, edges, "inductor")


def with_profile(kernels: Sequence[FusedKernel], profile: Profile) -> list[FusedKernel]:
    """Return kernels with the times and launches of a profile that has each that launches.

    Raises
    ------
    CostError
        If the profile lacks one.
    """
    graph = profile.apply(graph_of(kernels))
    measured = {op.name: op for op in graph.operators}
    rows = []
    for kernel in kernels:
        if kernel.launches:
            kernel = replace(kernel, time=measured[kernel.name].time, measured=measured[kernel.name].kernels)
        rows.append(kernel)
    return rows


def sources(kernels: Sequence[FusedKernel]) -> dict[str, int]:
    """Return how many kernels that launch have a time that was measured, estimated, or is left to the model."""
    counts = dict.fromkeys(("measured", "estimated", "model"), 0)
    for kernel in kernels:
        if not kernel.launches:
            continue
        if kernel.measured is not None:
            counts["measured"] += 1
        elif kernel.time is not None:
            counts["estimated"] += 1
        else:
            counts["model"] += 1
    return {source: count for source, count in counts.items() if count}


def repeat_plan(names: Sequence[str], streams: Sequence[int]) -> Planner:
    """Return the planner that repeats an order of kernels on streams, by their names."""

    def planner(graph: OpGraph) -> tuple[Sequence[int], Sequence[int]]:
        if sorted(names) != sorted(graph.names):
            raise ScheduleError("the plan that was kept is of other kernels")
        placed = dict(zip(names, streams, strict=True))
        return [graph.index[name] for name in names], [placed[name] for name in graph.names]

    return planner


def scheduled_by(scheduler: str | Scheduler, target: Target, streams: int) -> Planner:
    """Return the planner that asks a scheduler, and folds its streams into the available ones.

    A stream too many joins the one with the least time so far; of equals, the first one.
    """

    def planner(graph: OpGraph) -> tuple[Sequence[int], Sequence[int]]:
        if takes(scheduler, "streams") and scheduler != "nimble":
            options: dict[str, Any] = {"streams": streams}
        else:
            options = {}
        plan = schedule(graph, target, scheduler, **options)
        if len(plan.graph) != len(graph) or plan.graph.names != graph.names:
            raise ScheduleError(f"{plan.scheduler} rewrites the graph; take a scheduler that keeps its operators")
        if len(plan.devices_used) > 1:
            raise ScheduleError(f"{plan.scheduler} places kernels on several devices; give it one")
        known = graph.time
        times = np.where(np.isnan(known), 1.0, known)
        return plan.op.tolist(), _fold_streams(plan.op, plan.stream, times, streams)

    return planner


def _fold_streams(op: np.ndarray, stream: np.ndarray, times: np.ndarray, most: int) -> list[int]:
    loads: dict[int, float] = {}
    for i, lane in zip(op.tolist(), stream.tolist(), strict=True):
        loads[lane] = loads.get(lane, 0.0) + float(times[i])
    joined: dict[int, int] = {}
    sums = [0.0] * most
    for lane in sorted(loads, key=lambda lane: (-loads[lane], lane)):
        joined[lane] = sums.index(min(sums))
        sums[joined[lane]] += loads[lane]
    placed = [0] * len(op)
    for i, lane in zip(op.tolist(), stream.tolist(), strict=True):
        placed[i] = joined[lane]
    return placed


def _first_is_0(streams: Sequence[int]) -> list[int]:
    """Return streams numbered in the order of their first kernels, so that a wrapper begins on the current one."""
    numbers: dict[int, int] = {}
    return [numbers.setdefault(stream, len(numbers)) for stream in streams]


def _with_names(kernels: Sequence[FusedKernel], order: Sequence[int]) -> tuple[int, ...]:
    """Return an order of all kernels; nodes that launch nothing come as early as possible."""
    followers: list[list[int]] = [[] for _ in kernels]
    missing = [len(set(kernel.after)) for kernel in kernels]
    for i, kernel in enumerate(kernels):
        for j in set(kernel.after):
            followers[j].append(i)
    full: list[int] = []

    def issue(i: int) -> None:
        pending = [i]
        while pending:
            row = pending.pop(0)
            full.append(row)
            for later in followers[row]:
                missing[later] -= 1
                if missing[later] == 0 and not kernels[later].launches:
                    pending.append(later)

    free = [i for i, kernel in enumerate(kernels) if not kernel.launches and not kernel.after]
    for i in (*free, *order):
        if missing[i]:
            raise ScheduleError(f"a plan issues {kernels[i].name!r} before what it needs")
        issue(i)
    return tuple(full)


def _touchers(kernels: Sequence[FusedKernel], order: Sequence[int]) -> dict[int, list[int]]:
    touchers: dict[int, list[int]] = {}
    for row in order:
        for allocation in kernels[row].touches:
            touchers.setdefault(allocation, []).append(row)
    return touchers


def _after_allocations(
    graph: OpGraph,
    kernels: Sequence[FusedKernel],
    memory: Sequence[Allocation],
    order: Sequence[int],
    streams: Sequence[int],
    rows: Sequence[int],
) -> OpGraph:
    """Return the graph with edges from where memory was allocated to kernels of other streams that use it.

    The first kernel that touches memory allocates it, on its stream. What was freed there before may be what is
    allocated, so all kernels of that stream before it have to end before another stream writes to that memory.
    """
    before: dict[int, int | None] = {}  # of each kernel: the one before it on its stream
    last: dict[int, int] = {}
    stream = {}
    for i, lane in zip(order, streams, strict=True):
        row = rows[i]
        before[row] = last.get(lane)
        last[lane] = row
        stream[row] = lane
    known = set(zip(graph.src.tolist(), graph.dst.tolist(), strict=True))
    number = {row: i for i, row in enumerate(rows)}
    edges = list(graph.edges)
    for allocation, users in _touchers(kernels, [rows[i] for i in order]).items():
        first = before[users[0]]
        if memory[allocation].given or first is None:
            continue
        for user in users[1:]:
            pair = number[first], number[user]
            if stream[user] != stream[users[0]] and pair not in known:
                known.add(pair)
                edges.append(Edge(kernels[first].name, kernels[user].name))
    return OpGraph(graph.operators, edges, graph.name)


def _shared_allocations(
    kernels: Sequence[FusedKernel], memory: Sequence[Allocation], stream: Sequence[int]
) -> frozenset[int]:
    """Return the allocations that several streams touch."""
    used: list[set[int]] = [{INPUT_STREAM} if given.given else set() for given in memory]
    for kernel, lane in zip(kernels, stream, strict=True):
        for i in kernel.touches:
            if lane >= 0:
                used[i].add(lane)
    return frozenset(i for i, lanes in enumerate(used) if len(lanes) > 1)


def _steps(plan: Schedule, rows: Sequence[int]) -> dict[int, tuple[tuple[str, int, int], ...]]:
    """Return the records and waits before each kernel, by its position: ("record" or "wait", stream, event)."""
    device = Cluster.preset("a100")
    steps: dict[int, tuple[tuple[str, int, int], ...]] = {}
    pending: list[tuple[str, int, int]] = []
    (thread,) = plan.lower(device).threads
    for instruction in thread:
        if instruction.do == "launch":
            assert instruction.op is not None
            steps[rows[plan.graph.index[instruction.op]]] = tuple(pending)
            pending = []
        elif instruction.do in ("record", "wait"):
            assert instruction.event is not None
            pending.append((instruction.do, instruction.stream, instruction.event))
    return steps


def _peak(
    kernels: Sequence[FusedKernel],
    memory: Sequence[Allocation],
    order: Sequence[int],
    shared: frozenset[int],
    stream: Sequence[int],
) -> float:
    """Return the bytes that intermediate values need: the sum over streams of each one's peak.

    Freed memory returns to its stream only; shared memory lives to the end.
    """
    users = _touchers(kernels, order)
    owner = {i: max(stream[rows[0]], 0) for i, rows in users.items()}
    ends = {i: rows[-1] for i, rows in users.items() if not memory[i].lasts and i not in shared}
    now: dict[int, float] = {}
    peak: dict[int, float] = {}
    seen: set[int] = set()
    for row in order:
        touched = [i for i in dict.fromkeys(kernels[row].touches) if not memory[i].given]
        for i in touched:
            if i not in seen:
                now[owner[i]] = now.get(owner[i], 0.0) + memory[i].nbytes
            seen.add(i)
        for lane, nbytes in now.items():
            peak[lane] = max(peak.get(lane, 0.0), nbytes)
        for i in touched:
            if ends.get(i) == row:
                now[owner[i]] -= memory[i].nbytes
    return sum(peak.values())
