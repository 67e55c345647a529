"""Search: local changes to the best schedule of others, judged by the simulator."""

from collections.abc import Callable, Sequence
from math import exp, inf
from typing import Annotated, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from numpy.random import Generator, default_rng

from simsched.base.codec import Among, Size
from simsched.base.errors import CostError, SchedulerError, SimschedError
from simsched.base.jit import running_time
from simsched.model import EXECUTIONS, Cluster, CostModel, Ints, OpGraph, Schedule
from simsched.rewriting import account_for
from simsched.schedulers.listing import place_of, readers, sources
from simsched.schedulers.protocol import Deadline, Rng, Seconds, Tools
from simsched.schedulers.search.walk import GUIDED, Walk

FAST: Final = (
    "sequential",
    "greedy",
    "lios",
    "heft",
    "peft",
    "etf",
    "hios-lp",
    "hios-mr",
    "inter-lp",
    "opara",
    "nimble",
)
"""The schedulers of which a search takes the schedules unless it is told others."""


class Candidate:
    """A schedule that moves change; its launch order is topological over all devices.

    Parameters
    ----------
    plan
        The schedule that it begins as, valid for `cluster`.
    cluster
        Its devices.
    streams
        Streams per device that moves may use.

    Attributes
    ----------
    rows
        All columns below, shape (5, n_ops): copied to keep a state, assigned to return to it.
    order
        Operators by place in the launch order.
    place, device, stream, stage
        By operator.
    producers, consumers
        Producers and consumers by operator, without repeats.
    staged
        Whether it runs in stages: then the stages of a device never fall along `order`.
    """

    def __init__(self, plan: Schedule, cluster: Cluster, streams: int) -> None:
        graph = plan.graph
        self.n = len(graph)
        self.n_devices = len(cluster)
        self.streams = streams
        self.staged: Final = plan.execution == "stages"
        self.producers = sources(graph)
        self.consumers = readers(graph)
        self.rows: Ints = np.zeros((5, self.n), np.int64)
        self.order, self.place, self.device, self.stream, self.stage = self.rows  # parts of it, not copies
        number = np.array([cluster.index[name] for name in plan.devices], np.int64)
        self.device[plan.op] = number[plan.device]
        self.stream[plan.op] = dense(plan.device, plan.stream)
        if self.staged:
            self.stage[plan.op] = plan.stage
        self.order[:] = launch_order(plan)
        self.place[self.order] = np.arange(self.n)

    def put(self, op: int, to: int) -> None:
        """Move an operator to another place in the launch order; the others close up."""
        at = int(self.place[op])
        first = min(at, to)
        end = max(at, to) + 1
        moved = self.order[first:end]
        moved[:] = np.roll(moved, 1 if to < at else -1)
        self.place[moved] = np.arange(first, end)


def launch_order(plan: Schedule) -> Ints:
    """Return a topological launch order of all operators that keeps each device's order.

    It is the schedule's own where that is topological; else the operator that the schedule launches first, of those
    that may come next, is next.
    """
    graph = plan.graph
    place = place_of(plan.op)
    if not (place[graph.src] > place[graph.dst]).any():
        return plan.op.astype(np.int64)
    import networkx as nx

    before = nx.DiGraph(zip(graph.src.tolist(), graph.dst.tolist(), strict=True))
    for d in range(len(plan.devices)):
        nx.add_path(before, plan.op[plan.device == d].tolist())
    return np.array(list(nx.lexicographical_topological_sort(before, place.__getitem__)), np.int64)


def dense(device: npt.NDArray[Any], number: npt.NDArray[Any]) -> Ints:
    """Return numbers, such as numbers of streams, counted from 0 on each device, in their order."""
    numbers = np.empty(len(number), np.int64)
    for d in np.unique(device).tolist():
        ops = np.flatnonzero(device == d)
        numbers[ops] = np.unique(number[ops], return_inverse=True)[1].reshape(-1)
    return numbers


def change_stages(candidate: Candidate, path: Ints, rng: Generator) -> None:
    """Make a move around an operator, perhaps one of the critical path."""
    guided = len(path) > 0 and rng.random() < GUIDED
    if guided:
        op = int(path[rng.integers(len(path))])
    else:
        op = int(rng.integers(candidate.n))
    MOVES[int(rng.integers(len(MOVES)))](candidate, op, rng)


def restage(c: Candidate, op: int, rng: Generator) -> None:
    """Put the operator on any device and stream, in the stage before or after its new place, or in a separate stage."""
    if rng.random() < 0.5:
        device = int(rng.integers(c.n_devices))
    else:
        device = int(c.device[op])
    first = max((int(c.place[p]) + 1 for p in c.producers[op]), default=0)
    last = min((int(c.place[r]) - 1 for r in c.consumers[op]), default=c.n - 1)
    c.put(op, int(rng.integers(first, last + 1)))
    c.device[op] = device
    c.stream[op] = rng.integers(c.streams)
    place = int(c.place[op])
    on_device = c.device[c.order] == device
    before = c.order[:place][on_device[:place]]
    behind = c.order[place + 1 :][on_device[place + 1 :]]
    which = int(rng.integers(3))
    if which == 0 and len(before):
        c.stage[op] = c.stage[before[-1]]
    elif which == 1 and len(behind):
        c.stage[op] = c.stage[behind[0]]
    else:
        if len(before):
            c.stage[op] = c.stage[before[-1]] + 1
        else:
            c.stage[op] = 0
        c.stage[behind] += 2  # they may have shared a stage with operators before them


def regroup(c: Candidate, op: int, rng: Generator) -> None:
    """Put the operator into another group of its stage."""
    c.stream[op] = rng.integers(c.streams)


def merge(c: Candidate, op: int, _rng: Generator) -> None:
    """Merge the operator's stage with the next of its device; operators that depend on each other share a group."""
    device = int(c.device[op])
    stage = int(c.stage[op])
    later = (c.device == device) & (c.stage > stage)
    if not later.any():
        return
    joining = np.flatnonzero(later & (c.stage == c.stage[later].min()))
    c.stage[joining] = stage
    for i in joining[np.argsort(c.place[joining])].tolist():
        beside = [p for p in c.producers[i] if c.device[p] == device and c.stage[p] == stage]
        if beside:
            c.stream[i] = c.stream[beside[0]]


def split(c: Candidate, op: int, _rng: Generator) -> None:
    """Begin a new stage with the operator."""
    c.stage[(c.device == c.device[op]) & (c.place >= c.place[op])] += 1


MOVES: Final = (restage, regroup, merge, split)


class Start(NamedTuple):
    """A schedule to begin from, its scheduler, its simulated makespan in us, and whether its execution is unchanged."""

    name: str
    plan: Schedule
    makespan: float
    given: bool


def variants(
    name: str, plan: Schedule, cluster: Cluster, cost: CostModel, tools: Tools, execution: str | None
) -> list[Start]:
    """Return a schedule and its placement under each allowed execution that can run."""
    rows = place_of(plan.op)[launch_order(plan)]
    pairs = []
    for how in EXECUTIONS if execution is None else (execution,):
        if how == "stages" and plan.execution != "stages" and execution is None:
            continue  # no scheduler's: one operator a stage, which events do better
        variant = plan
        if how != plan.execution:
            stages: dict[str, Any] = {"stage": 0, "group": 0}
            if how == "stages":  # of one operator each, in launch order
                stages = {"stage": dense(plan.device[rows], np.arange(len(rows))), "group": plan.stream[rows]}
            variant = plan.like(rows, execution=how, events="minimal", **stages)
        try:
            pairs.append(Start(name, variant.check(cluster), tools.makespan(variant, cluster, cost), variant is plan))
        except CostError:
            raise
        except SimschedError:
            continue  # groups that share a stream now, or a copy without a way to its destination
    return pairs


def require_starts(option: str, starts: object) -> tuple[str | Schedule, ...]:
    """Return the starts as a tuple; refuse anything but names of schedulers or schedules."""
    entries = (starts,) if isinstance(starts, str | Schedule) else starts
    if not isinstance(entries, list | tuple) or not all(isinstance(start, str | Schedule) for start in entries):
        raise SchedulerError(f"search: {option} must be names of schedulers or schedules, not {starts!r}")
    return tuple(entries)


HOT: Final = 4e-3
MILD: Final = 1e-3
COLD: Final = 1e-4
"""Temperatures as parts of the best makespan: at the start, at the start of a trial, at the end."""
_LOOK: Final = 100  # evaluations between two looks at the critical path and at how many changes are accepted
_STILL: Final = 100  # changes in a row that change nothing: there is nothing to change


class Arm:
    """A candidate under change, and its best state so far.

    Parameters
    ----------
    start
        The start that it comes from.
    cluster, cost, tools, rng
        As the scheduler has them.
    deadline
        When it has to stop.

    Attributes
    ----------
    makespan, best
        Makespans in us of the candidate as accepted last and at best.
    accepted
        Changes taken.
    idle
        Whether the last annealing found nothing to change.
    """

    def __init__(
        self, start: Start, cluster: Cluster, cost: CostModel, tools: Tools, rng: Generator, deadline: Deadline
    ) -> None:
        self.name = start.name
        self._rng = rng
        self._deadline = deadline
        plan = start.plan
        n_streams = np.bincount(np.unique(plan.device * np.int64(2**31) + plan.stream) >> 31)  # on each device
        self.candidate = candidate = Candidate(plan, cluster, max(_STREAMS, int(n_streams.max())))
        self._evaluator = tools.evaluator(plan, cluster, cost)
        self._walk = None
        if not candidate.staged:
            captured = plan.execution == "graph"
            self._walk = Walk(candidate.rows[:4], candidate.streams, plan.graph, cluster, cost, captured=captured)
        self.accepted = 0
        self.idle = False
        self._now = candidate.rows.copy()
        self._kept = candidate.rows.copy()
        self.makespan = self.best = self._evaluate()

    def schedule(self) -> Schedule:
        """Return the best as a schedule."""
        self.candidate.rows[:] = self._kept
        self._evaluate()
        return self._evaluator.schedule()

    def anneal(self, evaluations: int, hot: float, cold: float, report: Callable[[int, float], None]) -> int:
        """Change the best candidate so far step by step, accepting ever less loss.

        Parameters
        ----------
        evaluations
            How many.
        hot, cold
            Temperature at first and at last, as parts of the best makespan.
        report
            Called now and then with the evaluations so far and the best makespan in us.

        Returns
        -------
        int
            The evaluations it took.
        """
        rows = self.candidate.rows
        rng = self._rng
        spent = 0
        look = 0
        still = 0
        accepted = 0
        path = np.zeros(0, np.int64)
        rows[:] = self._now[:] = self._kept
        self.makespan = self.best
        while spent < evaluations and still < _STILL and self.best > 0.0 and not self._deadline.over():
            if spent >= look:
                report(spent, self.best)
                if look and self._walk is not None:
                    self._walk.adapt((self.accepted - accepted) / _LOOK)
                look = spent + _LOOK
                accepted = self.accepted
                path = self._critical_path()
                spent += 1
                continue
            temperature = self.best * hot * (cold / hot) ** (spent / evaluations)
            if self._walk is None:
                change_stages(self.candidate, path, rng)
            else:
                self._walk.change(path, temperature, rng)
            if np.array_equal(rows, self._now):
                still += 1
                continue
            still = 0
            spent = spent + 1
            makespan = self._evaluate()
            if makespan <= self.makespan or (
                makespan < inf and rng.random() < exp((self.makespan - makespan) / temperature)
            ):
                self.makespan = makespan
                self._now[:] = rows
                self.accepted += 1
                if makespan < self.best:
                    self.best = makespan
                    self._kept[:] = rows
            else:
                rows[:] = self._now
        self.idle = still >= _STILL or self.best == 0.0
        return spent

    def _evaluate(self) -> float:
        """Return the makespan in us of the candidate, inf if it cannot run."""
        rows = self.candidate.rows
        return self._evaluator.replace(rows[0], *rows[2:].take(rows[0], axis=1))

    def _critical_path(self) -> Ints:
        """Return the operators of the critical path of the candidate as accepted last, in order of time."""
        self._evaluate()
        names = self._evaluator.trace().critical_path().operators
        index = self._evaluator.graph.index
        return np.array([index[name] for name in names], np.int64)


_STREAMS: Final = 8  # streams of a device at least, or as many as the start has
_ARMS: Final = 3  # starts that are tried before one of them is followed
_TRIAL: Final = 0.05  # part of the evaluations for each start on trial
_NEAR: Final = 1.15  # a start is tried if its makespan is at most this times the best


def search(
    graph: OpGraph,
    cluster: Cluster,
    cost: CostModel,
    *,
    tools: Tools,
    starts: Sequence[str | Schedule] = (),
    evaluations: Size = 10_000,
    time_limit: Seconds | None = None,
    rng: Rng = 0,
    execution: Annotated[str, Among(EXECUTIONS)] | None = None,
    also: Sequence[str | Schedule] = (),
    progress: Callable[[str], None] | None = None,
) -> Schedule:
    """Improve the best schedule of others step by step, judged by the simulated makespan itself.

    Parameters
    ----------
    graph, cluster
        The graph to run, and the cluster that runs it.
    cost
        Time of an operator alone on a device, in us.
    tools
        Bound by `simsched.schedule`.
    starts
        Names of schedulers, or schedules (of this graph, or of one rewritten from it as `Schedule.rewriting` describes:
        then the search is over that graph). Empty: sequential, greedy, lios, heft, peft, etf, hios-lp, hios-mr,
        inter-lp, opara and nimble, without those that refuse the graph or the cluster.
    evaluations
        Number of simulations, including one for each start; the starts, and the best of them once more as a candidate,
        are simulated even if the number is smaller.
    time_limit
        Most s; only a cap, which single starts ignore. Whatever stops the search, the best schedule so far is returned;
        the schedules in `starts` are simulated in any case.
    rng
        Generator or seed.
    execution
        None: the search also chooses the quickest execution; a placement by stages may be run by events or as a
        captured graph. ``"stages"``, ``"events"`` or ``"graph"``: only that.
    also
        More starts, in addition to `starts` or the default ones. `simsched.compare` passes the schedules of the
        schedulers before it.
    progress
        Called with the name of each step.

    Returns
    -------
    Schedule
        A schedule that is no slower than the best start under the allowed executions. Its model is the simulator:
        `estimate` is the simulated makespan. `search` holds ``evaluations``, the ``start`` that it came from,
        ``start_makespan`` of the best given start in us, ``accepted`` changes, ``stopped`` (None, ``"time limit"``,
        ``"interrupted"`` or ``"nothing to change"``) and ``time_s``.

    Raises
    ------
    SchedulerError
        If an option is out of range or no start can run as `execution` asks.
    ScheduleError
        If a start is a schedule of another graph, or cannot run.

    Notes
    -----
    Ours: simulated annealing [1]_ over devices, streams, stages and launch order at once. Each start is
    simulated under each execution that a scheduler of its kind could use (by events and as a captured
    graph always, by stages if it has them). The best one, and up to two near it of another execution or
    scheduler, are annealed for a twentieth of the evaluations each; which of them is best then, for the rest.

    The next candidate to simulate comes from a walk [2]_ of up to 32 moves in native code (`walk.Walk` lists them),
    each judged by a quick model: operators share a device in proportion to the part that they fill, copies do not meet,
    the host is charged for launches. The more of its ends the simulator accepts, the further the walk goes. A candidate
    that is no worse is taken; one that is worse by d is taken with probability exp(-d / T), T falling from 0.4 % to
    0.01 % of the best makespan. In stages it is one move at a time, without the model: operators and groups change
    their stage, stages are merged and split. Three times in ten the operator to begin with is one of the critical path
    of the simulated trace, looked at every 100 evaluations (a look counts as one).

    The launch order stays topological over all devices, so that no candidate waits for ever; a candidate that cannot
    run, because of missing links or a block that does not fit, is not taken. Priorities stay as in the start. On ties
    the first start counts. O(evaluations (steps (V + E) + simulation)).

    References
    ----------
    .. [1] Kirkpatrick, Gelatt, Vecchi, "Optimization by simulated annealing", Science 220(4598), 1983,
       doi:10.1126/science.220.4598.671.
    .. [2] Christen, Fox, "Markov chain Monte Carlo using an approximation", Journal of Computational and
       Graphical Statistics 14(4), 2005, doi:10.1198/106186005X76983.

    Examples
    --------
    >>> import simsched as ss
    >>> from simsched.schedulers.search import search
    >>> graph = ss.OpGraph([ss.Operator(name, time=10.0, utilization=0.5) for name in "abcd"])
    >>> cluster = ss.Cluster.preset("a100").without_overheads()
    >>> plan = ss.schedule(graph, cluster, search, starts="sequential", evaluations=200)
    >>> plan.search["start_makespan"], plan.estimate
    (40.0, 20.0)
    """
    entries = require_starts("starts", starts)
    more = require_starts("also", also)
    rng = default_rng(rng)
    began = running_time()
    with Deadline("search", time_limit) as deadline:
        candidates: list[Start] = []
        for one in (*(entries or FAST), *more):  # given schedules are simulated in any case
            if isinstance(one, Schedule):
                name = one.scheduler
                plan = account_for(one, graph, one.scheduler).check(cluster)
            elif candidates and deadline.over():
                continue
            else:
                try:
                    name = one
                    plan = tools.schedule(graph, cluster, one, cost)
                except CostError:
                    raise  # all others would refuse too
                except SimschedError:
                    if entries or one in more:
                        raise
                    continue
            candidates += variants(name, plan, cluster, cost, tools, execution)
        if not candidates:
            raise SchedulerError(f"search: no start runs with execution={execution!r}; give others in starts")
        candidates.sort(key=lambda start: start.makespan)
        start = candidates[0]
        arms: list[Arm] = []
        spent = len(candidates)

        def report(more: int, makespan: float) -> None:
            if progress is not None:
                progress(f"{spent + more} of {evaluations} evaluations, {makespan:.1f} us")

        for tried in _worth_a_trial(candidates):
            if arms and (spent >= evaluations or deadline.over()):
                break
            arms.append(arm := Arm(tried, cluster, cost, tools, rng, deadline))
            spent += 1
            spent += arm.anneal(min(evaluations - spent, int(_TRIAL * evaluations)), MILD, COLD, report)
        best = min(arms, key=lambda arm: arm.best)
        spent += best.anneal(evaluations - spent, HOT, COLD, report)
        stopped = deadline.reason or ("nothing to change" if best.idle else None)
    if best.best < start.makespan:
        plan = best.schedule()
        makespan = best.best
    else:
        plan = start.plan
        makespan = start.makespan
    return plan.like(
        scheduler="search",
        estimate=makespan,
        search={
            "evaluations": spent,
            "start": best.name if best.best < start.makespan else start.name,
            "start_makespan": min((s.makespan for s in candidates if s.given), default=start.makespan),
            "accepted": sum(arm.accepted for arm in arms),
            "stopped": stopped,
            "time_s": running_time() - began,
        },
    )


def _worth_a_trial(found: list[Start]) -> list[Start]:
    """Return the best start, and nearly as good ones of another execution or another scheduler."""
    tried: list[Start] = []
    for start in found:
        if len(tried) == _ARMS or start.makespan > _NEAR * found[0].makespan:
            break
        alike = (start.plan.execution in {s.plan.execution for s in tried}, start.name in {s.name for s in tried})
        if not all(alike):
            tried.append(start)
    return tried
