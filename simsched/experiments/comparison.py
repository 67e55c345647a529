"""`compare`: the schedules of several schedulers for one graph, in a table."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf, isclose
from typing import Any, ClassVar, Final, cast

import numpy as np

from simsched.base.codec import Count, Document, aside, write
from simsched.base.errors import FormatError, ScheduleError, SimschedError, SimulationError, UnknownNameError
from simsched.base.units import TIE, format_bytes, format_gain
from simsched.experiments.baselines import (
    CAPTURED,
    EAGER,
    NAMES,
    ONE,
    OWN,
    Baselines,
    baselines,
    require_execution,
)
from simsched.experiments.evaluation import Evaluation, Yardstick, evaluate
from simsched.experiments.result import Doubt, LazyValues, Result, table_of, time_text, unit_of
from simsched.experiments.rows import Row, Sampling, free_name, ratio, row_of
from simsched.experiments.unknown import bounded_by_bytes, operators_without_load
from simsched.model import Cluster, CostModel, Floats, OpGraph, Schedule, Target, bind
from simsched.model.graph.rearranged import with_times
from simsched.model.schedule import NumberedPlan
from simsched.model.trace import Trace
from simsched.schedulers import FAST_UP_TO, SCHEDULERS, Scheduler, scheduler_name, takes
from simsched.simulator.demand import Jitter, placed_operator_times
from simsched.simulator.simulate import Makespans, simulate

SETS: Final = ("fast", "all")
_ALIKE: Final = {
    **dict.fromkeys(("sequential", "round-robin", "inter-lp", "inter-mr"), ONE),
    "hios-mr": "hios-lp",
}
"""Schedulers that do on one GPU what another does, or one stream."""
_SLOWER: Final = "(slow)"
_MOST_STORED: Final = 10_000  # samples of a schedule that a document keeps at most


@dataclass(kw_only=True)
class _ComparisonFile:
    """Several schedulers on one graph.

    Parameters
    ----------
    cluster
        The cluster of the comparison.
    sampling
        How makespans were sampled.
    doubt
        Sources of the ranges.
    rows
        One per scheduler, in the order asked for.
    plans
        The schedule of each scheduler that made one.
    samples
        Sampled makespans in us by scheduler.
    graphs
        Graphs that schedules run, each once; schedules refer to them by index.
    graph
        The place of the one that was compared.
    baselines
        The deployments on one stream.
    baseline
        Name of the row that speedups are over.
    """

    cluster: Cluster
    sampling: Sampling | None = None
    doubt: Doubt | None = None
    baselines: tuple[Row, ...] = ()
    baseline: str = "sequential"
    rows: tuple[Row, ...]
    plans: Mapping[str, NumberedPlan]
    samples: Mapping[str, Floats]
    graphs: tuple[OpGraph, ...]
    graph: Count


@dataclass(frozen=True, repr=False, eq=False)
class Comparison(Result, Document):
    """Rows of a comparison; prints as a table.

    Parameters
    ----------
    graph, cluster
        The graph and the cluster of the comparison.
    rows
        One per scheduler, in the order asked for.
    plans, traces
        The schedule and its simulated trace by scheduler, where there is one.
    samples
        The sampled makespans by scheduler; empty if none were drawn.
    sampling
        How they were drawn; None if they were not.
    cost
        The cost model that was given; None for the times of the graph.
    named
        Whether each scheduler was asked for by name: then each has its row in the printed table, also where it is one
        that does the same as another on one GPU.
    doubt
        Sources of the rows' ranges, and the assumptions that they depend on; None if there are no ranges.
    baselines
        Rows of the deployments on one stream: eager, launched by the host, captured. None where operators cannot run
        one after the other.
    baseline
        Name of the row, or of the deployment, that speedups are over; files of before have ``"sequential"``.
    """

    VIEW = "comparison"
    FORMAT = "simsched.comparison"
    INDENT = None
    FILE = _ComparisonFile
    RETIRED: ClassVar = {"draws": "leave it out; `samples` has the makespans"}
    graph: OpGraph
    cluster: Cluster
    rows: tuple[Row, ...]
    plans: Mapping[str, Schedule]
    traces: Mapping[str, Trace]
    samples: Mapping[str, Makespans] = field(default_factory=dict)
    sampling: Sampling | None = None
    cost: CostModel | None = None
    named: bool = aside(True)
    doubt: Doubt | None = None
    baselines: tuple[Row, ...] = ()
    baseline: str = CAPTURED

    def summary(self) -> dict[str, Any]:
        """Return the table as JSON values: rows, the names of graph and devices, and the sampling."""
        return {
            "graph": {
                "name": self.graph.name,
                "operators": len(self.graph),
                "edges": len(self.graph.src),
                "operators_without_load": operators_without_load(self.graph),
            },
            "cluster": {"name": self.cluster.name, "devices": [device.model for device in self.cluster.devices]},
            "sampling": None if self.sampling is None else write(self.sampling),
            "doubt": None if self.doubt is None else write(self.doubt),
            "baseline": self.baseline,
            "baselines": [write(row) for row in self.baselines],
            "rows": self.records(),
        }

    def to_file(self) -> _ComparisonFile:
        """Return it as its file has it.

        Each graph is written once, with the operator times of its runs where a calibration or a cost model gave them;
        `graph` itself is written as given. Up to 10,000 samples of a schedule are written.
        """
        graphs = [self.graph]
        numbers = {(id(self.graph), b""): 0}
        plans = {}
        for name, plan in self.plans.items():
            graph = self.traces[name].graph  # with the times of a calibration
            if self.cost is None:
                times = None
            else:
                times = placed_operator_times(plan.over(graph), self.cluster, self.cost)
            key = (id(graph), b"" if times is None else times.tobytes())
            if key not in numbers:
                numbers[key] = len(graphs)
                graphs.append(graph if times is None else with_times(graph, times))
            plans[name] = NumberedPlan.of(plan, numbers[key])
        samples = {name: draws.values for name, draws in self.samples.items() if len(draws) <= _MOST_STORED}
        return _ComparisonFile(
            cluster=self.cluster,
            sampling=self.sampling,
            doubt=self.doubt,
            rows=self.rows,
            plans=plans,
            samples=samples,
            graphs=tuple(graphs),
            graph=0,
            baselines=self.baselines,
            baseline=self.baseline,
        )

    @classmethod
    def from_file(
        cls,
        cluster: Cluster,
        rows: Sequence[Row],
        plans: Mapping[str, NumberedPlan],
        samples: Mapping[str, Floats],
        graphs: Sequence[OpGraph],
        graph: int,
        sampling: Sampling | None = None,
        doubt: Doubt | None = None,
        baselines: Sequence[Row] = (),
        baseline: str = "sequential",
    ) -> "Comparison":
        """Make a comparison from the data of its file. Nothing is simulated before a trace is read."""
        done = [row.scheduler for row in rows if row.makespan_us is not None]
        if len({row.scheduler for row in rows}) < len(rows) or sorted(done) != sorted(plans):
            raise FormatError("'plans' must hold one schedule for each row with a makespan, under its name")
        for name, values in samples.items():
            if sampling is None or name not in plans or values.shape != (sampling.n,):
                raise FormatError(f"samples[{name!r}] must be as many makespans of a schedule as 'sampling' says")
        for number in (graph, *(plan.graph for plan in plans.values())):
            if not 0 <= number < len(graphs):
                raise FormatError(f"there is no graph {number}; the file has {len(graphs)}")
        plans_of = {name: plans[name].to_schedule(graphs[plans[name].graph]) for name in done}
        drawn = {name: Makespans(values) for name, values in samples.items()}
        traces = LazyValues(plans_of, lambda name: simulate(plans_of[name], cluster))
        return cls(
            graphs[graph],
            cluster,
            tuple(rows),
            plans_of,
            traces,
            drawn,
            sampling,
            doubt=doubt,
            baselines=tuple(baselines),
            baseline=baseline,
        )

    def records(self) -> list[dict[str, Any]]:
        """Return the rows as plain values by column."""
        return [write(row) for row in self.rows]

    def best(self) -> Row | None:
        """Return the row of least makespan; on ties the first; None if no scheduler has a schedule."""
        done = [row for row in self.rows if row.makespan_us is not None]
        if done:
            return min(done, key=lambda row: row.makespan_us or 0.0)
        return None

    def table(self) -> Any:
        """Return the comparison as a table of texts."""
        unit, name = unit_of(row.makespan_us for row in (*self.baselines, *self.rows))
        sampled = () if self.sampling is None else ("p50", "p99")
        place = () if self.doubt is None else ("#",)
        headings = (
            "scheduler",
            "execution",
            f"makespan {name}",
            *sampled,
            "estimate",
            "speedup",
            *place,
            "over bound",
            "streams",
            "devices",
            "syncs",
            "memory",
            "SM eff.",
            "search s",
        )
        shown = [*self.baselines, *(row for row in self.rows if row.scheduler not in self._repeats())]
        best = next((i for i, row in enumerate(shown) if row is self.best()), -1)
        return table_of(
            f"{self.graph.name} on {self.cluster.name}",
            headings,
            [self._cells(row, unit) for row in shown],
            note=self._notes(),
            best=best,
        )

    def _cells(self, row: Row, unit: float) -> Sequence[str]:
        if row.reason is not None:
            return (row.scheduler,)
        if row.speedup is None:
            speedup = "-"
        else:
            speedup = format_gain(row.speedup, row.speedup_low, row.speedup_high)
        times = (row.makespan_us, *(() if self.sampling is None else (row.p50_us, row.p99_us)), row.estimate_us)
        place = () if self.doubt is None else (str(row.place or "-"),)
        if row.slower_than_one_stream:
            name = f"{row.scheduler} {_SLOWER}"
        else:
            name = row.scheduler
        return (
            name,
            row.execution or "-",
            *(time_text(us, unit) for us in times),
            speedup,
            *place,
            "-" if row.over_bound is None else f"{row.over_bound:.2f}",
            str(row.streams),
            str(row.devices),
            str(row.syncs),
            format_bytes(row.peak_memory_bytes or 0.0),
            f"{100 * (row.sm_efficiency or 0):.0f} %",
            "-" if row.search_s is None else f"{row.search_s:.3f}",
        )

    def _repeats(self) -> dict[str, str]:
        """Return the rows that repeat another row, with that row: some schedulers differ on several GPUs alone."""
        if self.named or len(self.cluster) > 1:
            return {}
        rows = (*self.baselines, *self.rows)
        us = {row.scheduler: row.makespan_us for row in rows if row.makespan_us is not None}
        return {
            name: other
            for name, other in _ALIKE.items()
            if name in us and isclose(us[name], us.get(other, inf), rel_tol=TIE)
        }

    def _notes(self) -> list[str]:
        if self.sampling is None:
            notes = []
        else:
            notes = [f"p50, p99 of {self.sampling}; makespan and speedup without jitter"]
        notes += [f"{row.scheduler}: no schedule: {row.reason}" for row in self.rows if row.reason]
        notes += [f"warning: {row.scheduler}: {row.warning}" for row in self.rows if row.warning]
        if self.doubt is not None:
            text = "speedup: over {}, its range with 90 %, {}; #: its place, shared where the order is not certain"
            notes += [text.format(self.baseline, self.doubt.basis), str(self.doubt)]
        elif any(row.speedup is not None for row in self.rows):
            notes.append(f"speedup: over {self.baseline}")
        if any(row.slower_than_one_stream for row in self.rows):
            notes.append(f"{_SLOWER} slower than one stream that is launched in the same way")
        repeats = self._repeats()
        for other in dict.fromkeys(repeats.values()):
            notes.append(f"{', '.join(name for name in repeats if repeats[name] == other)}: as {other} on one GPU")
        unknown = operators_without_load(self.graph)
        n_ops = len(self.graph)
        if unknown:
            notes.append(f"{unknown} of {n_ops} operators have neither kernels nor utilization: they load nothing")
        guess = bounded_by_bytes(self.graph, self.cluster.devices[0])
        return [*notes, *([] if guess is None else [guess])]


def scheduler_set(asked: str | Sequence[str | Scheduler], graph: OpGraph) -> list[str | Scheduler]:
    """Return the schedulers that are asked for on a graph.

    Return schedulers by name: a set (``"all"``; or ``"fast"``, which answer within a second on this graph), or one or
    several names.
    """
    if isinstance(asked, str) and asked in SETS:
        return [s for s in SCHEDULERS if asked == "all" or len(graph) <= FAST_UP_TO.get(s, len(graph))]
    if isinstance(asked, str):
        return [asked]
    return list(asked)


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
    ranges: bool = True,
    execution: str = OWN,
    baseline: str = CAPTURED,
    progress: Callable[[str, str], None] | None = None,
) -> Comparison:
    """Schedule a graph in several ways and simulate each.

    Parameters
    ----------
    graph, cluster
        The graph to run, and the cluster that runs it.
    schedulers
        ``"fast"`` (those that answer within a second), ``"all"``, or names and functions as
        `schedule` takes them.
    cost
        Time of an operator alone on a device in us; by default its `time`, else a roofline.
    samples
        How many makespans to sample of each schedule; None samples none.
    jitter, rng
        Jitter and seed of the samples, as in `simulate_many`; every schedule gets the same draws. `makespan_us` and its
        derived columns are without jitter.
    workers
        As in `simulate_many`; does not change the results.
    ranges
        Whether rows have ranges of makespans and speedups, by `simsched.experiments.ranges.ranges`.
    execution
        How all schedules run: ``"own"``, as their schedulers mean them to; or ``"events"``, ``"stages"`` or
        ``"graph"``. A schedule that cannot run so has a row with the reason.
    baseline
        Reference of the speedups: a deployment on one stream, of `simsched.experiments.baselines.NAMES`, or the name of
        one of the schedulers.
    progress
        Called with the name of each scheduler and "" before it runs, then with the scheduler's own progress.

    Returns
    -------
    Comparison
        The comparison. `search` begins from the schedules before it, too. A scheduler that refuses the graph has a row
        with the reason.

    Raises
    ------
    UnknownNameError
        If a scheduler, an execution or a baseline is not known.
    ScheduleError
        If a scheduler returns an object that is not a schedule, or a schedule that cannot run.
    SimulationError
        If samples are asked for, but fewer than one, or without `jitter` or `rng`; or there is jitter without samples.
    """
    if samples is None and jitter is not None:
        raise SimulationError("jitter is in samples alone: say how many with `samples` (--samples)")
    if samples is None:
        sampling = None
    else:
        sampling = Sampling.of(samples, jitter, rng, workers)
    require_execution(execution)
    graph, alone = bind(graph, cluster)
    if sampling is None:
        seed = None
    else:
        seed = int(np.random.default_rng(rng).integers(2**63))
    bound = Yardstick(graph, cluster, cost).bound
    one: Baselines | None = None
    with suppress(SimschedError):  # the row of `sequential` has the reason
        one = baselines(graph, cluster, cost)
    rows: list[Row] = []
    evaluations: dict[str, Evaluation] = {}
    for scheduler in scheduler_set(schedulers, graph):
        name = free_name(scheduler_name(scheduler), [row.scheduler for row in rows])
        if progress is not None:
            progress(name, "")
        try:
            if takes(scheduler, "progress"):
                watched = progress
            else:
                watched = None
            if watched is None:
                options: dict[str, Any] = {}
            else:
                options = {"progress": partial(watched, name)}
            if takes(scheduler, "also"):
                options["also"] = [one.plan for one in evaluations.values()]
            evaluations[name] = evaluate(
                graph,
                cluster,
                cost,
                scheduler=scheduler,
                options=options,
                bound=bound,
                jitter=jitter,
                seed=seed,
                samples=samples,
                workers=workers,
                execution=execution,
            )
        except (LookupError, ScheduleError):  # not known, or broken: that refuses no graph
            raise
        except SimschedError as error:
            rows.append(Row(name, reason=str(error)))
            continue
        rows.append(row_of(name, evaluations[name], None, one))
    plans = {name: cast(Schedule, one.plan) for name, one in evaluations.items()}
    traces = {name: one.trace for name, one in evaluations.items()}
    drawn = {name: one.samples for name, one in evaluations.items() if one.samples is not None}
    named = not (isinstance(schedulers, str) and schedulers in SETS)
    deployments = {} if one is None else one.traces
    reference = _reference(baseline, deployments, traces, [row.scheduler for row in rows])
    lines = [
        row_of(name, Evaluation(one.plan, trace, None, bound(graph), None, 0.0), None)
        for name, trace in deployments.items()
        if one is not None
    ]
    if reference is not None:
        lines, rows = (
            [replace(row, speedup=ratio(reference.makespan, row.makespan_us)) for row in group]
            for group in (lines, rows)
        )
    doubt = None
    if ranges and traces:
        from simsched.experiments.ranges import ranges as ranges_of

        programs = {name: trace.program for name, trace in traces.items()}
        programs |= {name: trace.program for name, trace in deployments.items() if name not in (EAGER, *programs)}
        ranged, doubt = ranges_of(programs, cluster, cost, reference=None if reference is None else reference.program)
        lines, rows = (
            [replace(row, **ranged[row.scheduler]._asdict()) if row.scheduler in ranged else row for row in group]
            for group in (lines, rows)
        )
    return Comparison(
        graph, alone, tuple(rows), plans, traces, drawn, sampling, cost, named, doubt, tuple(lines), baseline
    )


def _reference(
    baseline: str, deployments: Mapping[str, Trace], traces: Mapping[str, Trace], asked: Sequence[str]
) -> Trace | None:
    """Return the run that speedups are over, None where it was refused."""
    reference = deployments.get(baseline) or traces.get(baseline)
    if reference is None and baseline not in (*NAMES, *asked):
        raise UnknownNameError("baseline", baseline, [*NAMES, *asked])
    return reference
