"""`compare`: several schedulers on one graph, scheduled and simulated."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from simsched.base.errors import ScheduleError, SimschedError, SimulationError
from simsched.experiments.comparison.row import Doubt, Row, Sampling, unused
from simsched.experiments.comparison.table import Comparison
from simsched.experiments.evaluate import Conditions, Evaluation, Yardstick, evaluate
from simsched.model import CostModel, OpGraph, Schedule
from simsched.model.calibrated import Target, bare, upon
from simsched.model.trace import Trace
from simsched.schedulers import FAST_UP_TO, SCHEDULERS, Scheduler, schedule, scheduler_name, takes
from simsched.simulator.workload import Jitter

if TYPE_CHECKING:
    from simsched.experiments.ranges import Ranged

SETS: Final = ("fast", "all")


def scheduler_set(asked: str | Sequence[str | Scheduler], graph: OpGraph) -> list[str | Scheduler]:
    """Return the schedulers that are asked for on a graph.

    Those of a set, ``"all"`` or ``"fast"``, which answer within a second on this graph; or one or several by name.
    """
    if isinstance(asked, str) and asked in SETS:
        return [s for s in SCHEDULERS if asked == "all" or len(graph) <= FAST_UP_TO.get(s, len(graph))]
    return [asked] if isinstance(asked, str) else list(asked)


def compare(
    graph: OpGraph, cluster: Target, schedulers: str | Sequence[str | Scheduler] = "fast",
    cost: CostModel | None = None, *, jitter: Jitter | None = None, rng: np.random.Generator | int | None = None,
    samples: int | None = None, workers: int = 1, ranges: bool = True,
    progress: Callable[[str, str], None] | None = None,
) -> Comparison:  # fmt: skip
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
    samples
        How many makespans to sample of each schedule; None samples none.
    jitter, rng
        Of the samples, as in `simulate_many`; every schedule gets the same draws. `makespan_us` and all that follows
        from it are without.
    workers
        As in `simulate_many`; has no influence on the results.
    ranges
        Whether rows say between what makespans and speedups lie, by `simsched.experiments.ranges.ranges`.
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
        If samples are asked for, but fewer than one, or without `jitter` or `rng`; or there is jitter without samples.
    """
    if samples is None and jitter is not None:
        raise SimulationError("jitter is in samples alone: say how many with `samples` (--samples)")
    sampling = None if samples is None else Sampling.of(samples, jitter, rng, workers)
    graph, alone = upon(cluster, graph)
    seed = None if sampling is None else int(np.random.default_rng(rng).integers(2**63))
    conditions = Conditions(jitter, seed, samples, workers)
    yardstick = Yardstick(graph, cluster, cost)
    rows: list[Row] = []
    found: dict[str, Evaluation] = {}
    plans: dict[str, Schedule] = {}
    for scheduler in scheduler_set(schedulers, graph):
        name = unused(scheduler_name(scheduler), [row.scheduler for row in rows])
        if progress is not None:
            progress(name, "")
        try:
            watched = progress if takes(scheduler, "progress") else None
            options: dict[str, Any] = {} if watched is None else {"progress": partial(watched, name)}
            if takes(scheduler, "also"):
                options["also"] = list(plans.values())
            each = evaluate(
                graph, cluster, cost, conditions, scheduler=scheduler, options=options, bound=yardstick.bound
            )
        except (LookupError, ScheduleError):  # not known, or broken: that refuses no graph
            raise
        except SimschedError as error:
            rows.append(Row(name, reason=str(error)))
            continue
        found[name], plans[name] = each, cast(Schedule, each.plan)
        rows.append(row_of(name, each, yardstick.sequential(conditions)))
    traces = {name: each.trace for name, each in found.items()}
    drawn = {name: each.samples for name, each in found.items() if each.samples is not None}
    named = not (isinstance(schedulers, str) and schedulers in SETS)
    doubt = None
    if ranges and traces:
        rows, doubt = _with_ranges(rows, traces, yardstick)
    return Comparison(graph, alone, tuple(rows), plans, traces, drawn, sampling, cost, named, doubt)


def _with_ranges(
    rows: Sequence[Row], traces: Mapping[str, Trace], yardstick: Yardstick
) -> tuple[list[Row], Doubt | None]:
    """Return rows with between what their figures lie; as they are where programs are too large for that."""
    from simsched.experiments.ranges import ranges

    programs = {name: trace.program for name, trace in traces.items()}
    base = programs.get("sequential")
    with suppress(SimschedError):  # where that cannot be, makespans have ranges and speedups have none
        base = base or schedule(yardstick.graph, yardstick.cluster, "sequential", yardstick.cost).lower(
            bare(yardstick.cluster)
        )
    found = ranges(programs, yardstick.cluster, yardstick.cost, reference=base)
    if found is None:
        return list(rows), None
    return [row if row.scheduler not in found[0] else _ranged(row, found[0][row.scheduler]) for row in rows], found[1]


def _ranged(row: Row, found: "Ranged") -> Row:
    (low, high), (slow, fast) = found.makespan, found.speedup or (None, None)
    return replace(row, makespan_low_us=low, makespan_high_us=high, speedup_low=slow, speedup_high=fast,
                   place=found.place)  # fmt: skip


def row_of(name: str, found: Evaluation, baseline: float | None) -> Row:
    """Return the row of a schedule.

    Parameters
    ----------
    baseline
        Makespan of ``sequential`` in us, None if it has none.
    """
    plan, trace, drawn = found.plan, found.trace, found.samples
    assert isinstance(plan, Schedule)
    peaks = trace.peak_memory()
    full = any(need > trace.cluster[device].memory for device, need in peaks.items())
    warnings = trace.memory_warnings() if full else []  # which finds the peaks once more
    return Row(
        scheduler=name,
        makespan_us=trace.makespan,
        estimate_us=plan.estimate,
        speedup=None if baseline is None else baseline / trace.makespan if trace.makespan else 1.0,
        p50_us=None if drawn is None else drawn.p50,
        p95_us=None if drawn is None else drawn.p95,
        p99_us=None if drawn is None else drawn.p99,
        over_bound=trace.makespan / found.bound_us if found.bound_us else None,
        streams=plan.n_streams,
        devices=len(plan.devices_used),
        syncs=trace.program.n_syncs,
        peak_memory_bytes=max(peaks.values()),
        sm_utilization=trace.sm_utilization(),
        sm_efficiency=trace.sm_efficiency(),
        search_s=found.search_s,
        warning="; ".join(warnings) or None,
    )
