"""`compare`: several schedulers on one graph, simulated, in a table."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from time import perf_counter
from typing import Any, Final

import numpy as np

from simsched.bounds import lower_bound
from simsched.cluster import Cluster
from simsched.costmodel import CostModel
from simsched.errors import MissingDependencyError, SimschedError, SimulationError
from simsched.graph import OpGraph
from simsched.numeric import is_count
from simsched.schedulers import FAST_UP_TO, SCHEDULERS, Scheduler, schedule, scheduler_name, takes
from simsched.schedules import Schedule
from simsched.simulator import Makespans, simulate, simulate_many
from simsched.simulator.workload import Jitter
from simsched.trace import Trace
from simsched.units import MS, format_bytes

SETS: Final = ("fast", "all")


@dataclass(frozen=True, slots=True)
class Row:
    """What one scheduler came to.

    Parameters
    ----------
    scheduler
        Its name.
    makespan_us
        Simulated makespan in us, of sampled comparisons without jitter; None where there is no schedule.
    p50_us, p95_us, p99_us
        Percentiles of the sampled makespans in us; None if none were drawn.
    estimate_us
        The scheduler's own prediction in us, or None.
    speedup
        Makespan of ``sequential`` on the same cluster over this one.
    over_bound
        Makespan over the lower bound of the graph the schedule runs; None if the bound is 0.
    streams, devices
        In use.
    syncs
        Waits, barriers and host syncs of the program.
    peak_memory_bytes
        On the device that needs most.
    sm_utilization, sm_efficiency
        Means over the makespan and the devices, in [0, 1].
    search_s
        Wall time of the scheduler in s.
    warning
        Such as more memory than the device has; None if there is nothing to say.
    reason
        Why there is no schedule; None if there is one.
    """

    scheduler: str
    makespan_us: float | None = None
    p50_us: float | None = None
    p95_us: float | None = None
    p99_us: float | None = None
    estimate_us: float | None = None
    speedup: float | None = None
    over_bound: float | None = None
    streams: int | None = None
    devices: int | None = None
    syncs: int | None = None
    peak_memory_bytes: float | None = None
    sm_utilization: float | None = None
    sm_efficiency: float | None = None
    search_s: float | None = None
    warning: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Sampling:
    """How makespans were sampled.

    Parameters
    ----------
    n
        Samples per schedule.
    jitter
        As in `simulate`.
    seed
        The one given; None if it was a generator.
    """

    n: int
    jitter: float | dict[str, float]
    seed: int | None

    def __str__(self) -> str:
        jitter = "of each operator its own" if isinstance(self.jitter, dict) else f"{100 * self.jitter:g} %"
        seed = "" if self.seed is None else f", seed {self.seed}"
        return f"{self.n} {'sample' if self.n == 1 else 'samples'}, jitter {jitter}{seed}"


@dataclass(frozen=True, repr=False)
class Comparison:
    """Rows of a comparison; prints as a table.

    Parameters
    ----------
    graph, cluster
        What was compared.
    rows
        One per scheduler, in the order asked for.
    plans, traces
        The schedule and its simulated trace by scheduler, where there is one.
    samples
        The sampled makespans by scheduler; empty if none were drawn.
    sampling
        How they were drawn; None if they were not.
    """

    graph: OpGraph
    cluster: Cluster
    rows: tuple[Row, ...]
    plans: Mapping[str, Schedule]
    traces: Mapping[str, Trace]
    samples: Mapping[str, Makespans] = field(default_factory=dict)
    sampling: Sampling | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as JSON values."""
        return {
            "graph": {"name": self.graph.name, "operators": len(self.graph), "edges": len(self.graph.src),
                      "operators_without_load": operators_without_load(self.graph)},
            "cluster": {"name": self.cluster.name, "devices": [device.model for device in self.cluster.devices]},
            "sampling": None if self.sampling is None else asdict(self.sampling),
            "rows": [asdict(row) for row in self.rows],
        }  # fmt: skip

    def to_dataframe(self) -> Any:
        """Return the rows as a pandas DataFrame.

        Raises
        ------
        MissingDependencyError
            If pandas is not installed.
        """
        try:
            import pandas as pd
        except ImportError:
            raise MissingDependencyError("a data frame needs pandas: pip install pandas") from None
        return pd.DataFrame([asdict(row) for row in self.rows], columns=[f.name for f in fields(Row)])

    def best(self) -> Row | None:
        """Return the row of least makespan, of equal ones the first; None if no scheduler had a schedule."""
        done = [row for row in self.rows if row.makespan_us is not None]
        return min(done, key=lambda row: row.makespan_us or 0.0) if done else None

    def table(self) -> Any:
        """Return the comparison as a `rich.table.Table`."""
        from rich.markup import escape
        from rich.table import Table

        unit, name = (MS, "ms") if any((row.makespan_us or 0) >= MS for row in self.rows) else (1.0, "us")
        title = f"{self.graph.name} on {self.cluster.name}"
        caption = escape(self._caption()) or None
        table = Table(title=escape(title), title_justify="left", caption=caption, caption_justify="left")
        table.add_column("scheduler")
        sampled = () if self.sampling is None else (f"p50 {name}", f"p99 {name}")
        headings = (f"makespan {name}", *sampled, f"estimate {name}", "speedup", "over bound", "streams", "devices",
                    "syncs", "memory", "SM eff.", "search s")  # fmt: skip
        for heading in headings:
            table.add_column(heading, justify="right")
        best = self.best()
        for row in self.rows:
            if row.reason is not None:
                table.add_row(escape(row.scheduler), *["-"] * len(headings), style="dim")
                continue
            cells = (
                _number(row.makespan_us, unit),
                *(_number(us, unit) for us in (row.p50_us, row.p99_us)[: len(sampled)]),
                _number(row.estimate_us, unit),
                _ratio(row.speedup, "x"),
                _ratio(row.over_bound, ""),
                str(row.streams),
                str(row.devices),
                str(row.syncs),
                format_bytes(row.peak_memory_bytes or 0.0),
                f"{100 * (row.sm_efficiency or 0):.0f} %",
                f"{row.search_s:.3f}",
            )
            table.add_row(escape(row.scheduler), *cells, style="bold" if row is best else None)
        return table

    def box_plot(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        ax: Any = None,
        title: str | None = None,
        relative: bool | None = None,
    ) -> Any:
        """Draw a box per scheduler of its sampled makespans; those without a schedule are left out.

        Parameters
        ----------
        path, ax, title, relative
            As in `simsched.plot.box_plot`; the title by default says what was sampled, and how.

        Returns
        -------
        matplotlib.axes.Axes
            Those of the latencies; its `figure` is the whole picture.

        Raises
        ------
        SimulationError
            If there are no samples to draw.
        FileError
            If the suffix of the path is not known or the file cannot be written.
        """
        from simsched.plot import box_plot

        if title is None:
            title = f"{self.graph.name} on {self.cluster.name}\n{self.sampling}"
        return box_plot(self.samples, path, ax=ax, title=title, relative=relative)

    def _caption(self) -> str:
        notes = [] if self.sampling is None else [f"p50, p99 of {self.sampling}; makespan and speedup without jitter"]
        notes += [f"{row.scheduler}: no schedule: {row.reason}" for row in self.rows if row.reason]
        notes += [f"warning: {row.scheduler}: {row.warning}" for row in self.rows if row.warning]
        unknown = operators_without_load(self.graph)
        if unknown:
            notes.append(
                f"{unknown} of {len(self.graph)} operators have neither kernels nor utilization: they load nothing"
            )
        return "\n".join(notes)

    def __repr__(self) -> str:
        from rich.console import Console

        console = Console(width=140, color_system=None, force_terminal=False)
        with console.capture() as capture:
            console.print(self.table())
        return capture.get().rstrip()


def operators_without_load(graph: OpGraph) -> int:
    """Return how many operators have neither kernels nor a utilization, and so contend for nothing."""
    return int((np.isnan(graph.utilization) & (np.diff(graph.kernel_ptr) == 0)).sum())


def scheduler_set(name: str, graph: OpGraph) -> list[str]:
    """Return the schedulers of a set: ``"all"``, or ``"fast"``: those that answer within a second on this graph."""
    return [s for s in SCHEDULERS if name == "all" or len(graph) <= FAST_UP_TO.get(s, len(graph))]


def compare(
    graph: OpGraph,
    cluster: Cluster,
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
        A scheduler that refuses the graph has a row with the reason.

    Raises
    ------
    UnknownNameError
        If a scheduler is not known.
    SimulationError
        If samples are asked for, but fewer than one, or without `jitter` or `rng`.
    """
    sampling = _sampling(samples, jitter, rng, workers)
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
            options = {} if watched is None else {"progress": partial(watched, name)}
            start = perf_counter()
            plan = schedule(graph, cluster, scheduler, cost, **options)
            search_s = perf_counter() - start
            trace = run(plan)
            if sampling is not None and seed is not None:
                drawn[name] = simulate_many(
                    plan, cluster, sampling.n, cost, jitter=sampling.jitter, rng=seed, workers=workers
                )
        except LookupError:
            raise
        except SimschedError as error:
            rows.append(Row(name, reason=str(error)))
            continue
        plans[name], traces[name] = plan, trace
        if id(plan.graph) not in bounds:
            bounds[id(plan.graph)] = lower_bound(plan.graph, cluster, cost)
        row = _row(name, plan, trace, baseline, search_s, bounds[id(plan.graph)])
        if name in drawn:
            row = replace(row, p50_us=drawn[name].p50, p95_us=drawn[name].p95, p99_us=drawn[name].p99)
        rows.append(row)
    return Comparison(graph, cluster, tuple(rows), plans, traces, drawn, sampling)


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
    plain = {name: float(x) for name, x in jitter.items()} if isinstance(jitter, Mapping) else float(jitter)
    return Sampling(int(samples), plain, int(rng) if isinstance(rng, int | np.integer) else None)


def _unused(name: str, taken: list[str]) -> str:
    """Return the name, with a number if another row has it."""
    numbered = [name, *(f"{name} ({i})" for i in range(2, len(taken) + 2))]
    return next(candidate for candidate in numbered if candidate not in taken)


def _row(name: str, plan: Schedule, trace: Trace, baseline: float | None, search_s: float, bound: float) -> Row:
    warnings = trace.memory_warnings()
    return Row(
        scheduler=name,
        makespan_us=trace.makespan,
        estimate_us=plan.estimate,
        speedup=None if baseline is None else baseline / trace.makespan if trace.makespan else 1.0,
        over_bound=trace.makespan / bound if bound else None,
        streams=plan.n_streams,
        devices=len(plan.devices_used),
        syncs=trace.program.n_syncs,
        peak_memory_bytes=max(trace.peak_memory().values()),
        sm_utilization=trace.sm_utilization(),
        sm_efficiency=trace.sm_efficiency(),
        search_s=search_s,
        warning="; ".join(warnings) or None,
    )


def _number(us: float | None, unit: float) -> str:
    return "-" if us is None else f"{us / unit:.3f}" if unit == MS else f"{us:.1f}"


def _ratio(value: float | None, suffix: str) -> str:
    return "-" if value is None else f"{value:.2f}{suffix}"
