"""Promises that simsched relies on in a scheduler or a backend of your own, to be checked in your tests.

>>> import simsched as ss
>>> def dealing(graph, cluster, cost):
...     return ss.Schedule(graph, [ss.Placement(name, stream=i % 2) for i, name in enumerate(graph.order)])
>>> check_scheduler(dealing, sizes=(20, 40)).broken
()
"""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from math import isfinite, log
from time import perf_counter
from typing import Any, Final, NamedTuple

import numpy as np

from simsched.base.errors import BackendError, CostError, ScheduleError, SchedulerError, SimschedError
from simsched.bounds import lower_bound
from simsched.calibration.training import random_schedule
from simsched.experiments.result import plain_text, table_of
from simsched.model import EXECUTIONS, LAUNCH, Cluster, Device, Edge, Operator, OpGraph, Placement, Schedule
from simsched.model.backend import Backend
from simsched.model.profile import Replay
from simsched.model.trace import COPY, KERNEL, spans_of
from simsched.schedulers import Scheduler, resolve, schedule, scheduler_name
from simsched.simulator import simulate

_SIZES: Final = (50, 100, 200, 400)
_LONGEST_S: Final = 120  # of another process
_REPEATS: Final = 3
_NEAR = 1e-9
_OUTPUTS = 1e-5


@dataclass(frozen=True, slots=True)
class Promise:
    """One thing that is relied on.

    Parameters
    ----------
    text
        The promise in words.
    kept
        Whether it is; None where it could not be tried.
    detail
        The first case that breaks it, the reason why it could not be tried, or the test's result.
    """

    text: str
    kept: bool | None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Contract:
    """Results of all promises; prints as a table.

    Parameters
    ----------
    subject
        Name of the scheduler or backend.
    promises
        Promises in the order in which they were tried.
    """

    subject: str
    promises: tuple[Promise, ...]

    @property
    def broken(self) -> tuple[Promise, ...]:
        """Broken promises."""
        return tuple(promise for promise in self.promises if promise.kept is False)

    def require(self) -> None:
        """Raise a `SchedulerError` that names the first promise that is not kept, if there is one."""
        if self.broken:
            first = self.broken[0]
            n = len(self.promises)
            raise SchedulerError(
                f"{self.subject} breaks {len(self.broken)} of {n} promises: {first.text}: {first.detail}"
            )

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        rows = [{"promise": promise.text, "kept": promise.kept, "detail": promise.detail} for promise in self.promises]
        return {"subject": self.subject, "promises": rows}

    def table(self) -> Any:
        """Return it as a table of texts."""
        words = {True: "yes", False: "NO", None: "not tried"}
        notes = [f"{promise.text}: {promise.detail}" for promise in self.promises if promise.detail]
        return table_of(self.subject, ("promise", "kept"), [(p.text, words[p.kept]) for p in self.promises], note=notes)

    def __repr__(self) -> str:
        return plain_text(self.table())


def check_scheduler(scheduler: str | Scheduler, *, sizes: Sequence[int] = _SIZES) -> Contract:
    """Check the promises of a scheduler.

    Parameters
    ----------
    scheduler
        Name, ``"package.module:function"``, or the function.
    sizes
        Operators of the random graphs whose scheduling is timed.

    Returns
    -------
    Contract
        ``check_scheduler(f).require()`` in a test raises at the first promise that is broken:

        - its schedules are valid on one to three devices, of chains, forks, joins, lone operators, operators that take
          no time, and random graphs; simulated, none is below the lower bound;
        - the same call gives the same schedule, and the graph stays as it was;
        - other seeds of Python's hashes, in other processes, give the same schedules;
        - an operator that cannot run anywhere is refused with a `SimschedError`.

        The time by size is reported. A graph may be refused with a `SchedulerError`, but not all of them.

    Raises
    ------
    UnknownNameError, SchedulerError
        If no scheduler has this name.

    Notes
    -----
    It runs in this process, and waits for a scheduler that never ends; other processes have two minutes. Other
    processes import the function by its module and name, and so cannot try one of a notebook or a lambda.
    """
    resolve(scheduler)
    checks: Mapping[str, Callable[[str | Scheduler], str | None]] = {
        "its schedules are valid, and none is below the bound": _is_valid,
        "the same call gives the same schedule, and leaves the graph alone": _is_the_same,
        "it gives the same schedules whatever the seed of Python's hashes": _ignores_hashes,
        "it refuses what no device can run": _refuses,
        "time by size": partial(_time_by_size, sizes=sizes),
    }
    return Contract(scheduler_name(scheduler), tuple(_try(*promised, scheduler) for promised in checks.items()))


class _Untried(Exception):  # noqa: N818 - nothing is wrong
    """Why a promise cannot be tried."""


def _try(text: str, check: Callable[..., str | None], *given: Any) -> Promise:
    try:
        return Promise(text, True, check(*given) or "")
    except _Untried as reason:
        return Promise(text, None, str(reason))
    except SimschedError as error:
        return Promise(text, False, str(error))
    except Exception as error:
        return Promise(text, False, f"it raised {type(error).__name__}: {error}".partition("\n")[0])


def _graphs() -> dict[str, OpGraph]:
    """Return small graphs of all kinds, by name."""
    kinds = {
        "one": ("a", ""),
        "chain given backwards": ("dcba", "ab bc cd"),
        "fork": ("abcde", "ab ac ad ae"),
        "join": ("abcde", "ae be ce de"),
        "in two parts": ("abcde", "ab cd"),
        "without edges": ("abcdefgh", ""),
    }
    graphs = {name: _make_graph(ops, edges) for name, (ops, edges) in kinds.items()}
    graphs["no time"] = _make_graph("abcd", "ab ac bd cd", time=0.0)
    return graphs | {f"random {seed}": random_graph(30, seed) for seed in range(3)}


def _make_graph(ops: str, edges: str, time: float = 10.0) -> OpGraph:
    return OpGraph([Operator(op, time=time) for op in ops], [Edge(e[0], e[1], nbytes=1e6) for e in edges.split()])


def random_graph(n: int, seed: int = 0) -> OpGraph:
    """Return a random DAG: each operator reads from up to three of the twelve before it, and takes 1 to 100 us."""
    rng = np.random.default_rng(seed)
    ops = [
        Operator(f"op{i}", time=float(rng.uniform(1, 100)), utilization=float(rng.uniform(0.1, 1))) for i in range(n)
    ]
    edges = [
        Edge(f"op{j}", f"op{i}", nbytes=float(rng.uniform(0, 1e7)))
        for i in range(1, n)
        for j in sorted({int(x) for x in rng.integers(max(0, i - 12), i, rng.integers(1, 4))})
    ]
    return OpGraph(ops, edges, name=f"random-{n}-{seed}")


def _cases() -> Iterator[tuple[str, OpGraph, Cluster]]:
    for n in (1, 2, 3):
        for name, graph in _graphs().items():
            yield f"{name} on {n} x a100", graph, Cluster.preset("a100", n)


def _is_valid(scheduler: str | Scheduler) -> str:
    refused = []
    for case, graph, cluster in _cases():
        try:
            plan = schedule(graph, cluster, scheduler)
            plan.check(cluster)
            makespan = simulate(plan, cluster).makespan
            bound = lower_bound(plan.graph, cluster)
        except ScheduleError as error:
            raise ScheduleError(f"{case}: {error}") from error
        except SchedulerError as error:
            refused.append(f"{case}: {error}")
            continue
        if makespan < bound * (1 - _NEAR):
            raise ScheduleError(f"{case}: {makespan:g} us simulated, below the bound of {bound:g} us")
    if len(refused) == sum(1 for _ in _cases()):
        raise SchedulerError(f"it refuses every graph; {refused[0]}")
    if refused:
        return f"{len(refused)} graphs refused, {refused[0]}"
    return ""


def _is_the_same(scheduler: str | Scheduler) -> None:
    for case, graph, cluster in _cases():
        before = graph.to_dict()
        try:
            first, second = (schedule(graph, cluster, scheduler) for _ in range(2))
        except SchedulerError:
            continue
        if first != second:
            raise ScheduleError(f"{case}: two calls give two schedules; draw random numbers from `rng`, with a seed")
        if graph.to_dict() != before:
            raise ScheduleError(f"{case}: the graph is not as it was")


def digest(scheduler: str | Scheduler) -> str:
    """Return a hash of the schedules of all small graphs; refused graphs count as refused."""
    hasher = hashlib.sha256()
    for _, graph, cluster in _cases():
        try:
            text = json.dumps(schedule(graph, cluster, scheduler).to_dict(), sort_keys=True)
        except SchedulerError:
            text = "refused"
        hasher.update(text.encode())
    return hasher.hexdigest()


def _ignores_hashes(scheduler: str | Scheduler) -> None:
    path = scheduler
    digests = set()
    if not isinstance(path, str):
        module = getattr(scheduler, "__module__", None)
        name = getattr(scheduler, "__qualname__", "<")
        if module in (None, "__main__") or "<" in name:
            raise _Untried("not to be imported by module and name: put it into a module")
        path = f"{module}:{name}"
    for seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        line = "import sys; from simsched.testing import digest; print(digest(sys.argv[1]))"
        ran = subprocess.run(
            [sys.executable, "-c", line, path],
            env=environment,
            capture_output=True,
            text=True,
            timeout=_LONGEST_S,
            check=False,
        )
        if ran.returncode:
            raise SchedulerError(f"another process fails: {(ran.stderr.strip() or 'without a word').splitlines()[-1]}")
        digests.add(ran.stdout.split()[-1])
    if len(digests) > 1:
        raise ScheduleError("schedules differ from process to process: sets are iterated over, or `hash` is called")


def _refuses(scheduler: str | Scheduler) -> str | None:
    def cost(op: Operator, device: Device) -> float:
        raise CostError(f"{device.name} does not run {op.name!r}")

    try:
        schedule(_make_graph("abc", "ab bc"), Cluster.preset("a100", 2), scheduler, cost)
    except SimschedError:
        return None
    return "it does not ask for the cost of operators"


def _time_by_size(scheduler: str | Scheduler, sizes: Sequence[int]) -> str:
    cluster = Cluster.preset("a100", 2)
    times = {}
    for n in sizes:
        graph = random_graph(n)
        seconds_of = []
        try:
            for _ in range(2):  # the first one may compile
                begun = perf_counter()
                schedule(graph, cluster, scheduler)
                seconds_of.append(perf_counter() - begun)
        except SchedulerError:
            break
        times[n] = max(min(seconds_of), 1e-6)
    text = ", ".join(f"{n}: {1e3 * seconds:.3g} ms" for n, seconds in times.items())
    growth = [log(times[b] / times[a]) / log(b / a) for a, b in pairwise(times)]
    return text + (f"; grows with the power {growth[-1]:.1f} at last" if growth else "")


def check_backend(backend: Backend, *, clock_us: float = 0.0) -> Contract:
    """Check the promises of a backend: it replays six small schedules and profiles a graph of six operators.

    Parameters
    ----------
    backend
        Such as ``hwbackend.get("cupy")``.
    clock_us
        Largest error of its clocks in us.

    Returns
    -------
    Contract
        Every repeat has a latency; the program is the schedule's; each launch and copy has one span, which begins after
        its inputs, and after the earlier spans of its stream; outputs equal those that operators give one after the
        other; provenance; graphs are realised with kernels; profiles have all operators; and schedules for more
        devices, or no repeats, are refused with a `BackendError`.
    """
    graph = diamond()
    plans = schedules_of(backend)
    runs = list[_BackendRun]()

    def run() -> None:
        for plan in plans:
            replay = backend.replay(plan, repeats=_REPEATS, warmup=1)
            runs.append(_BackendRun(backend, plan, replay, clock_us))
            well = len(replay.latency) == _REPEATS and all(isfinite(us) and us > 0 for us in replay.latency)
            runs[-1].require(well, f"{_REPEATS} repeats have latencies {replay.latency}")

    promises = [_try("every repeat has a latency", run)]
    if len(runs) == len(plans):
        promises += [_try(text, _all, check, runs) for text, check in _OF_A_RUN.items()]
        promises += [
            _try("a graph is realised with kernels, and the same edges", _is_realised, backend, graph),
            _try("a profile has every operator, and schedules in place", _is_profiled, backend, graph),
            _try("what it cannot run is refused", _refuses_runs, backend, plans[0]),
        ]
    return Contract(f"backend {backend.name}", tuple(promises))


def _require(holds: Any, case: str, text: str) -> None:
    if not holds:
        raise BackendError(f"{case}: {text}")


class _BackendRun(NamedTuple):
    """A schedule, its run by a backend, and the largest error of clocks in us."""

    backend: Backend
    plan: Schedule
    run: Replay
    clock: float

    def require(self, holds: Any, text: str) -> None:
        """Refuse the run unless something holds."""
        _require(holds, self.plan.scheduler, text)


def _all(check: Callable[[_BackendRun], None], ran: Sequence[_BackendRun]) -> None:
    for one in ran:
        check(one)


def diamond() -> OpGraph:
    """Return two branches of two operators between a source and a sink: of different loads, none with kernels."""
    times = {
        "source": (40.0, 0.3),
        "left": (90.0, 0.9),
        "right": (60.0, 0.6),
        "left2": (30.0, 1.0),
        "right2": (120.0, 0.4),
        "sink": (20.0, 0.1),
    }
    edges = (
        ("source", "left"),
        ("source", "right"),
        ("left", "left2"),
        ("right", "right2"),
        ("left2", "sink"),
        ("right2", "sink"),
    )
    return OpGraph(
        [Operator(op, time=time, utilization=load) for op, (time, load) in times.items()],
        [Edge(src, dst, nbytes=4096.0) for src, dst in edges],
        "diamond",
    )


def schedules_of(backend: Backend) -> tuple[Schedule, ...]:
    """Return the schedules that `check_backend` replays: two at random of each kind of execution."""
    return tuple(
        random_schedule(
            diamond(), backend.cluster, rng=seed, streams=1 + seed, execution=execution, name=f"{execution}-{seed}"
        )
        for execution in EXECUTIONS
        for seed in (1, 2)
    )


def _is_the_program(ran: _BackendRun) -> None:
    graph = ran.backend.realise(ran.plan.graph)
    program = ran.plan.over(graph).lower(ran.backend.cluster)
    for column in ("thread_ptr", "action", "device", "stream", "argument"):
        same = np.array_equal(getattr(ran.run.program, column), getattr(program, column))
        ran.require(same, f"its program has another {column}")
    ran.require(ran.run.cluster == ran.backend.cluster, "it ran on another cluster")


def _has_spans(ran: _BackendRun) -> None:
    trace = ran.run.trace
    program = ran.run.program
    counts = {KERNEL: len(program.launches), COPY: len(program.copies.op)}
    for kind, count in counts.items():
        items = sorted(trace.item[trace.kind == kind].tolist())
        ran.require(items == list(range(count)), f"{len(items)} spans of {count} launches or copies")
    ran.require(len(trace) == sum(counts.values()), "there are spans of other things")
    ran.require((trace.end >= trace.start).all() and (trace.start >= 0).all(), "spans before 0, or backwards")


def _keeps_edges(ran: _BackendRun) -> None:
    """On the same device a producer has to have ended; else its copy, which starts when it has."""
    program = ran.run.program
    copies = program.copies
    operators = ran.run.trace.operator_times()
    times = spans_of(ran.run.trace).copies
    where = np.empty(len(program.graph), np.int64)
    rows = np.flatnonzero(program.action == LAUNCH)
    where[program.launches.op[program.argument[rows]]] = program.device[rows]
    for edge in program.graph.edges:
        src = program.graph.index[edge.src]
        dst = program.graph.index[edge.dst]
        ready = operators[edge.src][1]
        if where[src] != where[dst]:
            copied = (copies.op == src) & (copies.device == where[dst])
            starts = copied.any() and times[copied, 0].min() >= ready - ran.clock
            ran.require(starts, f"the copy of {edge.src!r} starts before it has ended")
            ready = times[copied, 1].min()
        in_time = operators[edge.dst][0] >= ready - ran.clock
        ran.require(in_time, f"{edge.dst!r} starts before {edge.src!r} is there")


def _keeps_streams(ran: _BackendRun) -> None:
    program = ran.run.program
    ends = dict[tuple[int, int], float]()
    times = spans_of(ran.run.trace).launches
    for i in np.flatnonzero(program.action == LAUNCH).tolist():
        stream = int(program.device[i]), int(program.stream[i])
        start, end = times[program.argument[i]].tolist()
        follows = start >= ends.get(stream, 0.0) - ran.clock
        ran.require(follows, f"a kernel of stream {stream[1]} starts before the one before it has ended")
        ends[stream] = end


def _is_right(ran: _BackendRun) -> None:
    error = ran.run.max_relative_error
    ran.require(error is not None and error <= _OUTPUTS, f"its outputs are off by {error}")


def _has_provenance(ran: _BackendRun) -> None:
    for key in ("backend", "device", "date", "commit", "python"):
        ran.require(ran.run.environment.get(key), f"its environment has no {key!r}")


_OF_A_RUN: Final[Mapping[str, Callable[[_BackendRun], None]]] = {
    "what ran is the program of the schedule": _is_the_program,
    "each launch and copy has one span": _has_spans,
    "nothing starts before what it reads is there": _keeps_edges,
    "kernels of a stream follow each other": _keeps_streams,
    "outputs are those of one operator after the other": _is_right,
    "it says where and when it measured": _has_provenance,
}


def _is_realised(backend: Backend, graph: OpGraph) -> None:
    realised = backend.realise(graph)
    _require(realised.names == graph.names, graph.name, "operators have other names")
    same = np.array_equal(realised.src, graph.src) and np.array_equal(realised.dst, graph.dst)
    _require(same, graph.name, "it has other edges")
    has_data = all(op.kernels and op.flops + op.nbytes > 0 for op in realised.operators)
    _require(has_data, graph.name, "an operator has no kernels, or no work")
    _require(backend.realise(realised) == realised, graph.name, "what is realised is realised otherwise once more")


def _is_profiled(backend: Backend, graph: OpGraph) -> None:
    profile = backend.profile(graph, in_situ=1, rng=0)
    _require([op.name for op in profile.operators] == list(graph.names), graph.name, "it has other operators")
    _require(profile.cluster == backend.cluster, graph.name, "it is of another cluster")
    for op in profile.operators:
        _require(op.samples and all(isfinite(us) and us > 0 for us in op.samples), op.name, f"samples {op.samples}")
    _require(any(run.name.startswith("in-situ/") for run in profile.runs), graph.name, "no schedule was run in place")


def _refuses_runs(backend: Backend, plan: Schedule) -> None:
    missing = f"gpu{len(backend.cluster)}"
    one = Schedule(OpGraph([Operator("op", time=50.0, utilization=0.5)]), [Placement("op", missing)])
    cases: tuple[tuple[str, Schedule, Any, Any], ...] = (
        (f"a schedule for {missing}", one, 1, 0),
        ("0 repeats", plan, 0, 0),
        ("1.5 repeats", plan, 1.5, 0),
        ("-1 warmups", plan, 1, -1),
    )
    for case, what, repeats, warmup in cases:
        try:
            backend.replay(what, repeats=repeats, warmup=warmup)
        except BackendError as error:
            _require("\n" not in str(error), case, "the refusal has more than a line")
            continue
        raise BackendError(f"{case}: it is not refused")
