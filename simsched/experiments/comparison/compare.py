"""`compare`: several schedulers on one graph, scheduled and simulated."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np

from simsched.base.errors import ScheduleError, SimschedError, SimulationError
from simsched.base.jit import running_time
from simsched.base.numeric import is_count
from simsched.bounds import lower_bound
from simsched.experiments.comparison.rows import Draws, Row, Sampling
from simsched.experiments.comparison.table import Comparison
from simsched.model.calibrated import Target, upon
from simsched.model.costmodel import CostModel
from simsched.model.graph import OpGraph
from simsched.model.schedule import Schedule
from simsched.model.trace import Trace
from simsched.schedulers import FAST_UP_TO, SCHEDULERS, Scheduler, schedule, scheduler_name, takes
from simsched.simulator import Makespans, simulate, simulate_many
from simsched.simulator.workload import Jitter

SETS: Final = ("fast", "all")


def scheduler_set(name: str, graph: OpGraph) -> list[str]:
    """Return the schedulers of a set: ``"all"``, or ``"fast"``: those that answer within a second on this graph."""
    return [s for s in SCHEDULERS if name == "all" or len(graph) <= FAST_UP_TO.get(s, len(graph))]


def compare(
    graph: OpGraph,
    cluster: Target,
    schedulers: str | Sequence[str | Scheduler] = "fast",
    cost: CostModel | None = None,
    *,
    jitter: Jitter | None = None,
    rng: np.random.Generator | int | None = None,
    samples: int | None = None,
    workers: int = 1,
    progress: Callable[[str, str], None] | None = None,
) -> Comparison:
    """Schedule a graph in several ways and simulate each.

    Parameters
    ----------
    graph, cluster
        What to run, and on what.
    schedulers
        ``"fast"`` (those that answer within a second), ``"all"``, or names and functions as
        `schedule` takes them.
    cost
        Time of an operator alone on a device in us; by default its `time`, else a roofline.
    jitter, rng
        As in `simulate`; every schedule gets the same draws.
    samples
        How many makespans to sample of each schedule. Then jitter is in the samples and their
        percentiles alone: `makespan_us` and all that follows from it are without.
    workers
        As in `simulate_many`; has no influence on the results.
    progress
        Called with the name of each scheduler and "" before it runs, then with what it is doing if it says.

    Returns
    -------
    Comparison
        `search` begins from the schedules of those before it, too. A scheduler that refuses the
        graph has a row with the reason.

    Raises
    ------
    UnknownNameError
        If a scheduler is not known.
    ScheduleError
        If what a scheduler returns is no schedule, or cannot run.
    SimulationError
        If samples are asked for, but fewer than one, or without `jitter` or `rng`.
    """
    sampling = _sampling(samples, jitter, rng, workers)
    graph, alone = upon(cluster, graph)
    names = scheduler_set(schedulers, graph) if isinstance(schedulers, str) and schedulers in SETS else schedulers
    asked: list[str | Scheduler] = [names] if isinstance(names, str) else list(names)
    seed = None if jitter is None or rng is None else int(np.random.default_rng(rng).integers(2**63))

    def run(plan: Schedule) -> Trace:
        return simulate(plan, cluster, cost, jitter=jitter if sampling is None else None, rng=seed)

    try:
        baseline = run(schedule(graph, cluster, "sequential", cost)).makespan
    except SimschedError:  # a row of a scheduler says why
        baseline = None
    rows: list[Row] = []
    bounds: dict[int, float] = {}  # by graph, of which nearly all schedules run one
    plans: dict[str, Schedule] = {}
    traces: dict[str, Trace] = {}
    drawn: dict[str, Makespans] = {}
    for scheduler in asked:
        name = _unused(scheduler_name(scheduler), [row.scheduler for row in rows])
        if progress is not None:
            progress(name, "")
        try:
            watched = progress if takes(scheduler, "progress") else None
            options: dict[str, Any] = {} if watched is None else {"progress": partial(watched, name)}
            if takes(scheduler, "also"):
                options["also"] = list(plans.values())
            start = running_time()
            plan = schedule(graph, cluster, scheduler, cost, **options)
            search_s = running_time() - start
            trace = run(plan)
            if sampling is not None and seed is not None:
                drawn[name] = simulate_many(
                    plan, cluster, sampling.n, cost, jitter=sampling.jitter, rng=seed, workers=workers
                )
        except (LookupError, ScheduleError):  # not known, or broken: that refuses no graph
            raise
        except SimschedError as error:
            rows.append(Row(name, reason=str(error)))
            continue
        plans[name], traces[name] = plan, trace
        if id(plan.graph) not in bounds:
            bounds[id(plan.graph)] = lower_bound(plan.graph, cluster, cost)
        row = row_of(name, plan, trace, baseline, search_s, bounds[id(plan.graph)])
        if name in drawn:
            row = replace(row, p50_us=drawn[name].p50, p95_us=drawn[name].p95, p99_us=drawn[name].p99)
        rows.append(row)
    draws = Draws(_plain(jitter), seed) if traces and jitter is not None and seed is not None else None
    return Comparison(graph, alone, tuple(rows), plans, traces, drawn, sampling, draws, cost)


def _sampling(
    samples: int | None, jitter: Jitter | None, rng: np.random.Generator | int | None, workers: int
) -> Sampling | None:
    """Return how samples are to be drawn, or None if they are not."""
    if samples is None:
        return None
    for name, count in (("samples", samples), ("workers", workers)):
        if not is_count(count, 1):
            raise SimulationError(f"{name} must be a whole number of at least 1, not {count!r}")
    if jitter is None:
        raise SimulationError("samples without jitter would all be alike: pass `jitter`, such as 0.02")
    if rng is None:
        raise SimulationError("samples are random: pass `rng`, a numpy Generator or a seed")
    return Sampling(int(samples), _plain(jitter), int(rng) if isinstance(rng, int | np.integer) else None)


def _plain(jitter: Jitter) -> float | dict[str, float]:
    return {name: float(x) for name, x in jitter.items()} if isinstance(jitter, Mapping) else float(jitter)


def _unused(name: str, taken: list[str]) -> str:
    """Return the name, with a number if another row has it."""
    numbered = [name, *(f"{name} ({i})" for i in range(2, len(taken) + 2))]
    return next(candidate for candidate in numbered if candidate not in taken)


def row_of(name: str, plan: Schedule, trace: Trace, baseline: float | None, search_s: float, bound: float) -> Row:
    """Return what a schedule and its trace came to.

    Parameters
    ----------
    baseline
        Makespan of ``sequential`` in us, None if it has none.
    search_s
        Wall time of the scheduler in s.
    bound
        Lower bound of the graph that the schedule runs, in us; 0 if it is not known.
    """
    peaks = trace.peak_memory()
    full = any(need > trace.cluster[device].memory for device, need in peaks.items())
    warnings = trace.memory_warnings() if full else []  # which finds the peaks once more
    return Row(
        scheduler=name,
        makespan_us=trace.makespan,
        estimate_us=plan.estimate,
        speedup=None if baseline is None else baseline / trace.makespan if trace.makespan else 1.0,
        over_bound=trace.makespan / bound if bound else None,
        streams=plan.n_streams,
        devices=len(plan.devices_used),
        syncs=trace.program.n_syncs,
        peak_memory_bytes=max(peaks.values()),
        sm_utilization=trace.sm_utilization(),
        sm_efficiency=trace.sm_efficiency(),
        search_s=search_s,
        warning="; ".join(warnings) or None,
    )
