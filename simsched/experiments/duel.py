"""`duel`: small graphs on which one scheduler loses most to another, found by simulated annealing."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from math import exp, floor, inf, isfinite, log
from typing import Any, Final

import numpy as np

from simsched.base.codec import Amount, Checked, Count, Document, Seed
from simsched.base.errors import ScheduleError, SchedulerError, SimschedError, WhatIfError
from simsched.base.jit import running_time
from simsched.base.units import format_time
from simsched.experiments.result import Result, table_of
from simsched.experiments.whatif import explain
from simsched.model import Cluster, Edge, Kernel, Operator, OpGraph, Schedule, operator_times
from simsched.model.graph.operator import INTENSITIES
from simsched.model.trace import Trace
from simsched.schedulers import Scheduler, schedule, scheduler_name, takes
from simsched.schedulers.protocol import Deadline
from simsched.simulator import simulate

ROUND: Final = 500
"""Evaluations after which annealing begins again: by turns from a new graph and from the best one."""
# temperatures at the beginning and the end of a round, of the logarithm of the factor
_HOT = 0.1
_COLD = 0.002
_STEP: Final = 0.7  # standard deviation of the logarithm of the factor that changes a size
_JUMP: Final = 0.2  # part of the changes of a size that draw a new one
_RATE: Final = 25_000.0  # bytes/us: speed of exact transfers where there is no link
_DIGITS: Final = 1  # decimal places of times in us


@dataclass(frozen=True, slots=True)
class Space(Checked):
    """Which graphs are searched.

    Parameters
    ----------
    time
        Least and largest time of an operator alone in us.
    utilization
        Least and largest share of the device of an operator without kernels.
    blocks
        Least and largest number of thread blocks of an operator with a kernel.
    threads, registers
        Numbers of threads per block, and of registers per thread, to draw from.
    nbytes
        Least and largest size of an edge's tensor in bytes. An edge never carries more bytes than the first device's
        DRAM moves while the producer runs, because an operator has to write its output.
    degree
        Edges into an operator, and out of it, at most.
    """

    SUBJECT = "space of a duel"
    ERROR = WhatIfError
    time: tuple[Amount, Amount] = (1.0, 1000.0)
    utilization: tuple[Amount, Amount] = (0.05, 1.0)
    blocks: tuple[Count, Count] = (1, 4096)
    threads: tuple[Count, ...] = (64, 128, 256, 512, 1024)
    registers: tuple[Count, ...] = (16, 32, 64)
    nbytes: tuple[Amount, Amount] = (1e3, 1e8)
    degree: Count = 4

    def __post_init__(self) -> None:
        Checked.__post_init__(self)
        for name in ("time", "utilization", "blocks", "nbytes"):
            low, high = getattr(self, name)
            if not 0 < low <= high:
                raise self.refusal(f"{name} must be two numbers above 0, the least first, not {low!r} and {high!r}")
        if self.utilization[1] > 1:
            raise self.refusal(f"utilization is at most 1, not {self.utilization[1]!r}")
        if not self.threads or not self.registers:
            raise self.refusal("threads and registers must have at least one number each")


@dataclass(frozen=True)
class Duel(Result, Checked, Document):
    """A graph on which one schedule takes longer than another; prints as a table of time by cause.

    Parameters
    ----------
    graph, cluster
        The graph that both schedulers get, and the cluster.
    loser, winner
        Names of the schedulers.
    losing, winning
        Their schedules.
    losing_us, winning_us
        Simulated makespans in us.
    losing_blame, winning_blame
        us by cause on the critical paths.
    reasons
        Sentences: where the loser spends more time, and the bottleneck of each schedule.
    start
        The start of the search.
    seed, evaluations, found_at
        Seed and length of the search: it finds the same graph again. `found_at` is the evaluation that had this graph.
    space
        The graphs that were searched.
    simsched
        Version of the library.
    """

    VIEW = "duel"
    SUBJECT = "duel"
    ERROR = WhatIfError
    FORMAT = "simsched.duel"
    graph: OpGraph
    cluster: Cluster
    loser: str
    winner: str
    losing: Schedule
    winning: Schedule
    losing_us: Amount
    winning_us: Amount
    losing_blame: Mapping[str, Amount]
    winning_blame: Mapping[str, Amount]
    reasons: tuple[str, ...]
    start: str
    seed: Seed
    evaluations: Count
    found_at: Count
    space: Space
    simsched: str

    def __post_init__(self) -> None:
        Checked.__post_init__(self)
        if self.winning_us <= 0:
            raise self.refusal(f"winning_us must be above 0, not {self.winning_us!r}")

    __repr__ = Result.__repr__

    @property
    def factor(self) -> float:
        """Makespan of the losing schedule over the winning schedule's makespan."""
        return self.losing_us / self.winning_us

    def replay(self) -> "Duel":
        """Return it with both schedules simulated again; it is equal to this one, unless the simulator has changed."""
        traces = [simulate(plan, self.cluster) for plan in (self.losing, self.winning)]
        blames = [dict(trace.critical_path().blame) for trace in traces]
        return replace(
            self,
            losing_us=traces[0].makespan,
            winning_us=traces[1].makespan,
            losing_blame=blames[0],
            winning_blame=blames[1],
        )

    @property
    def traces(self) -> dict[str, Trace]:
        """Simulated traces by scheduler: the losing one first."""
        return {name: simulate(plan, self.cluster) for name, plan in self.plans.items()}

    @property
    def plans(self) -> dict[str, Schedule]:
        """Both schedules by scheduler, the losing one first."""
        return {self.loser: self.losing, self.winner: self.winning}

    def records(self) -> list[dict[str, Any]]:
        """Return where the time of both goes as plain values by column, a row per cause and one of the whole."""
        rows = [
            {"cause": cause, self.loser: us, self.winner: self.winning_blame.get(cause, 0.0)}
            for cause, us in self.losing_blame.items()
        ]
        return [*rows, {"cause": "makespan", self.loser: self.losing_us, self.winner: self.winning_us}]

    def table(self) -> Any:
        """Return where the time of both goes as a table of texts, with the reasons below."""
        cells = [
            (
                row["cause"],
                *(f"{us:.1f}" for us in (row[self.loser], row[self.winner])),
                f"{row[self.loser] - row[self.winner]:+.1f}",
            )
            for row in self.records()
            if row[self.loser] or row[self.winner]
        ]
        title = (
            f"{self.loser} takes {self.factor:.3f} times as long as {self.winner}: {len(self.graph)} operators, "
            f"{len(self.graph.src)} edges on {self.cluster.name}"
        )
        origin = f"from {self.start}, seed {self.seed}, evaluation {self.found_at} of {self.evaluations}"
        headings = ("us on the critical path", self.loser, self.winner, "difference")
        return table_of(title, headings, cells, note=(*self.reasons, origin), best=len(cells) - 1)


def duel(
    start: OpGraph | Callable[[int], OpGraph],
    cluster: Cluster,
    loser: str | Scheduler,
    winner: str | Scheduler,
    *,
    evaluations: int | None = None,
    seconds: float | None = None,
    rng: int = 0,
    space: Space | None = None,
    name: str = "",
    progress: Callable[[int, float], None] | None = None,
) -> Duel:
    """Search a small graph on which one scheduler's makespan is the largest multiple of another's.

    Parameters
    ----------
    start
        The graph that the search begins from, or a function that makes a graph from a seed.
    cluster
        The cluster of both schedules.
    loser, winner
        As in `schedule`; the search maximises the loser's makespan over the winner's. A random scheduler has `rng`.
    evaluations
        How many graphs are tried; None: as many as there is time for.
    seconds
        Wall time after which the search ends; None: as long as it takes. One of the two has to be given.
    rng
        Seed of the search. Equal seeds and evaluations give equal duels, if the schedulers heed no clock.
    space
        The graphs to search; by default `Space()`.
    name
        How the start is called.
    progress
        Called with how many graphs were tried and the largest factor, after each.

    Raises
    ------
    WhatIfError
        If there is no limit.
    SchedulerError
        If the two refuse every graph that was tried.
    ScheduleError
        If a scheduler returns an object that is not a schedule, or a schedule that cannot run.

    Notes
    -----
    This is PISA [1]_ on our model: contention, streams, launches and transfers count. A step changes one property - the
    time of an operator, its utilization or launch shape, its interference class, an edge or its bytes - or exchanges
    two operators. Edges lead from earlier to later operators, so there are no cycles. A worse graph is taken with
    probability ``exp(change of log factor / temperature)``; the temperature falls from 0.1 to 0.002 in rounds of 500
    evaluations, which begin by turns at a new start and at the best graph so far. So more evaluations never end with a
    smaller factor.

    Ctrl-C ends the search with the best graph so far. Each step schedules and simulates twice; 8 operators take about
    5 ms with list schedulers.

    References
    ----------
    .. [1] Coleman, Krishnamachari, "Comparing task graph scheduling algorithms: an adversarial approach", 2024,
       arXiv:2403.07120.
    """
    if evaluations is None and seconds is None:
        raise WhatIfError("a duel needs an end: give `evaluations` or `seconds` (--evaluations, --seconds)")
    search = _DuelSearch(start, cluster, loser, winner, rng, space or Space())
    if seconds is None:
        end = inf
    else:
        end = running_time() + seconds
    with Deadline("duel") as interrupt:  # the first Ctrl-C ends the search with its best graph
        while (evaluations is None or search.n < evaluations) and (search.n == 0 or running_time() < end):
            search.step()
            if progress is not None:
                progress(search.n, search.best.factor)
            if interrupt.over():
                break
    best = search.best
    if best.graph is None:
        raise SchedulerError(f"no graph was found that both schedule: {search.reason}")
    plans = [search.schedule_with(scheduler, best.graph) for scheduler in (loser, winner)]
    traces = [simulate(plan, cluster) for plan in plans]
    blames = [dict(trace.critical_path().blame) for trace in traces]
    names = _apart(scheduler_name(loser), scheduler_name(winner))
    return Duel(
        graph=best.graph,
        cluster=cluster,
        loser=names[0],
        winner=names[1],
        losing=plans[0],
        winning=plans[1],
        losing_us=traces[0].makespan,
        winning_us=traces[1].makespan,
        losing_blame=blames[0],
        winning_blame=blames[1],
        reasons=tuple(_reasons(names, plans, cluster, blames)),
        start=name or best.graph.name,
        seed=rng,
        evaluations=search.n,
        found_at=best.n,
        space=search.space,
        simsched=version("simsched"),
    )


def _apart(loser: str, winner: str) -> tuple[str, str]:
    if loser != winner:
        return (loser, winner)
    return (loser, f"{winner} (2)")


def _reasons(
    names: tuple[str, str], plans: list[Schedule], cluster: Cluster, blames: list[dict[str, float]]
) -> Iterator[str]:
    """Return sentences on the loser's extra time, and on the bottleneck of each schedule."""
    more = {cause: us - blames[1].get(cause, 0.0) for cause, us in blames[0].items()}
    largest = sorted(((cause, us) for cause, us in more.items() if us > 0), key=lambda each: -each[1])
    if largest:
        causes = ", ".join(f"{format_time(us)} more {cause}" for cause, us in largest)
        yield f"On its critical path {names[0]} has {causes}."
    for name, plan in zip(names, plans, strict=True):
        for sentence in explain(plan, cluster).sentences:
            yield f"{name}: {sentence}"


@dataclass(frozen=True)
class _GraphDraft:
    """A graph that can be changed: operators in topological order, and bytes by edge."""

    operators: tuple[Operator, ...]
    edges: Mapping[tuple[int, int], float]

    def graph(self, bandwidth: float, least: float) -> OpGraph:
        """Return the graph, with no more bytes than producers can write at a bandwidth in bytes/us, but the least."""
        edges = [
            Edge(
                self.operators[i].name,
                self.operators[j].name,
                max(least, min(nbytes, floor((self.operators[i].time or 0.0) * bandwidth))),
            )
            for (i, j), nbytes in sorted(self.edges.items())
        ]
        return OpGraph(self.operators, edges, f"duel-{len(self.operators)}")


@dataclass(frozen=True)
class _Tried:
    """A draft with its factor, minus infinity where a scheduler refuses it."""

    draft: _GraphDraft
    graph: OpGraph | None
    factor: float
    n: int


class _DuelSearch:
    """Annealing, a step at a time."""

    def __init__(
        self,
        start: OpGraph | Callable[[int], OpGraph],
        cluster: Cluster,
        loser: str | Scheduler,
        winner: str | Scheduler,
        seed: int,
        space: Space,
    ) -> None:
        self.space = space
        self.cluster = cluster
        self.n = 0
        self.reason = ""
        self._start = start
        self._loser = loser
        self._winner = winner
        self._seed = seed
        self._rng = np.random.default_rng(seed)
        self._moves = (
            self._time,
            self._time,
            self._load,
            self._intensity,
            self._edge,
            self._edge,
            self._nbytes,
            self._exchange,
        )
        self.best = self.at = self._evaluate(self._first_graph())

    def step(self) -> None:
        """Evaluate one more graph: the first of a new round, or a changed one."""
        position = self.n % ROUND
        if position == 0 and self.n > 0:
            is_new = self.n // ROUND % 2 == 0
            if is_new:
                self.at = self._evaluate(self._first_graph())
            else:
                self.at = replace(self.best, n=self.n)
        elif self.n > 0:
            tried = self._evaluate(self._change(self.at.draft))
            temperature = _HOT * (_COLD / _HOT) ** (position / ROUND)
            gain = _log(tried.factor) - _log(self.at.factor)
            if not gain < 0 or self._rng.random() < exp(gain / temperature):
                self.at = tried
        self.n += 1
        if self.at.factor > self.best.factor or self.best.graph is None:
            self.best = self.at

    def schedule_with(self, scheduler: str | Scheduler, graph: OpGraph) -> Schedule:
        """Return a scheduler's schedule of a graph."""
        if takes(scheduler, "rng"):
            options: dict[str, Any] = {"rng": self._seed}
        else:
            options = {}
        return schedule(graph, self.cluster, scheduler, **options)

    def _evaluate(self, draft: _GraphDraft) -> _Tried:
        graph = draft.graph(self.cluster.devices[0].bandwidth, self.space.nbytes[0])
        try:
            losing, winning = (
                simulate(self.schedule_with(scheduler, graph), self.cluster).makespan
                for scheduler in (self._loser, self._winner)
            )
        except (LookupError, ScheduleError):  # not known, or broken: that refuses no graph
            raise
        except SimschedError as error:
            self.reason = str(error)
            return _Tried(draft, None, -inf, self.n + 1)
        return _Tried(draft, graph, losing / winning if winning > 0 else -inf, self.n + 1)

    def _first_graph(self) -> _GraphDraft:
        """Return a graph to start from, brought into the space."""
        seed = int(self._rng.integers(2**31))
        if isinstance(self._start, OpGraph):
            graph = self._start
        else:
            graph = self._start(seed)
        device = self.cluster.devices[0]
        times = operator_times(graph, device)
        at = {name: i for i, name in enumerate(graph.order)}
        operators = tuple(
            Operator(
                name,
                operator.kind,
                time=self._round_time(float(times[graph.index[name]])),
                intensity=operator.intensity,
                **self._kept_load(operator),
            )
            for name in graph.order
            for operator in [graph[name]]
        )
        edges: dict[tuple[int, int], float] = {}
        for edge in graph.edges:
            i = at[edge.src]
            j = at[edge.dst]
            if self._has_room(edges, i, j):
                if edge.transfer is None:
                    nbytes = edge.nbytes
                else:
                    nbytes = edge.transfer * _RATE
                edges[i, j] = float(round(_within(nbytes, self.space.nbytes)))
        return _GraphDraft(operators, edges)

    def _kept_load(self, operator: Operator) -> dict[str, Any]:
        if operator.kernels:
            kernel = max(operator.kernels, key=lambda each: each.share)
            blocks = int(_within(kernel.blocks, self.space.blocks))
            return {"kernels": (Kernel(blocks, kernel.threads, kernel.registers, kernel.shared_memory),)}
        utilization = operator.utilization
        middle = sum(self.space.utilization) / 2
        return {
            "utilization": _within(middle if utilization is None else round(utilization, 3), self.space.utilization)
        }

    def _change(self, draft: _GraphDraft) -> _GraphDraft:
        """Return a draft in which one thing is different."""
        return self._moves[self._rng.integers(len(self._moves))](draft)

    def _round_time(self, time: float) -> float:
        return _within(round(time, _DIGITS), self.space.time)

    def _size(self, old: float, bounds: tuple[float, float]) -> float:
        """Return another size within bounds: multiplied by a factor, or newly drawn."""
        low, high = bounds
        if self._rng.random() < _JUMP:
            return float(low * (high / low) ** self._rng.random())
        return _within(old * exp(_STEP * self._rng.standard_normal()), bounds)

    def _with(self, draft: _GraphDraft, i: int, **change: Any) -> _GraphDraft:
        operators = list(draft.operators)
        operators[i] = replace(operators[i], **change)
        return replace(draft, operators=tuple(operators))

    def _one(self, draft: _GraphDraft) -> int:
        return int(self._rng.integers(len(draft.operators)))

    def _time(self, draft: _GraphDraft) -> _GraphDraft:
        i = self._one(draft)
        return self._with(draft, i, time=self._round_time(self._size(draft.operators[i].time or 1.0, self.space.time)))

    def _load(self, draft: _GraphDraft) -> _GraphDraft:
        i = self._one(draft)
        space = self.space
        if self._rng.random() < 0.5:
            low, high = space.utilization
            share = _within(round(low + (high - low) * float(self._rng.random()), 3), space.utilization)
            return self._with(draft, i, utilization=share, kernels=())
        blocks = round(space.blocks[0] * (space.blocks[1] / space.blocks[0]) ** self._rng.random())
        threads = int(self._rng.choice(space.threads))
        kernel = Kernel(blocks, threads, int(self._rng.choice(space.registers)))
        return self._with(draft, i, utilization=None, kernels=(kernel,))

    def _intensity(self, draft: _GraphDraft) -> _GraphDraft:
        return self._with(draft, self._one(draft), intensity=(None, *INTENSITIES)[self._rng.integers(3)])

    def _edge(self, draft: _GraphDraft) -> _GraphDraft:
        if len(draft.operators) == 1:
            return draft
        i, j = sorted(int(k) for k in self._rng.choice(len(draft.operators), 2, replace=False))
        edges = dict(draft.edges)
        low, high = self.space.nbytes
        nbytes = float(round(low * (high / low) ** self._rng.random()))
        if edges.pop((i, j), None) is None and self._has_room(edges, i, j):
            edges[i, j] = nbytes
        return replace(draft, edges=edges)

    def _has_room(self, edges: Mapping[tuple[int, int], float], i: int, j: int) -> bool:
        degree = self.space.degree
        return sum(src == i for src, _ in edges) < degree and sum(dst == j for _, dst in edges) < degree

    def _nbytes(self, draft: _GraphDraft) -> _GraphDraft:
        if not draft.edges:
            return draft
        edge = sorted(draft.edges)[self._rng.integers(len(draft.edges))]
        nbytes = float(round(self._size(draft.edges[edge], self.space.nbytes)))
        return replace(draft, edges={**draft.edges, edge: nbytes})

    def _exchange(self, draft: _GraphDraft) -> _GraphDraft:
        """Let two operators change places; their names stay where they are."""
        i = self._one(draft)
        j = self._one(draft)
        first = draft.operators[i]
        second = draft.operators[j]
        return self._with(self._with(draft, i, **_nature(second)), j, **_nature(first))


def _nature(operator: Operator) -> dict[str, Any]:
    return {name: getattr(operator, name) for name in ("kind", "time", "kernels", "utilization", "intensity")}


def _within(value: float, bounds: tuple[float, float]) -> float:
    return min(max(value, bounds[0]), bounds[1])


def _log(factor: float) -> float:
    if isfinite(factor) and factor > 0:
        return log(factor)
    return -inf
