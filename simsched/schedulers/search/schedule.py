"""Search: local changes to the best schedule of others, judged by the simulator."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final

import numpy as np
from numpy.random import default_rng

from simsched.base.codec import Among, Size
from simsched.base.errors import CostError, SchedulerError, SimschedError
from simsched.base.jit import running_time
from simsched.model import EXECUTIONS, Cluster, CostModel, OpGraph, Schedule
from simsched.rewriting import account_for
from simsched.schedulers.instance import place_of
from simsched.schedulers.protocol import Deadline, Rng, Seconds, Tools
from simsched.schedulers.search.arm import COLD, HOT, MILD, Arm, Start
from simsched.schedulers.search.candidate import dense, launch_order

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
