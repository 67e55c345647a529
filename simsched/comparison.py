"""`compare`: several schedulers on one graph, simulated, in a table."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from time import perf_counter
from typing import Any, Final

import numpy as np

from simsched.bounds import lower_bound
from simsched.cluster import Cluster
from simsched.costmodel import CostModel
from simsched.errors import MissingDependencyError, SimschedError
from simsched.graph import OpGraph
from simsched.schedulers import FAST_UP_TO, SCHEDULERS, Scheduler, schedule, scheduler_name
from simsched.schedules import Schedule
from simsched.simulator import simulate
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
        Simulated makespan in us; None where there is no schedule.
    estimate_us
        The scheduler's own prediction in us, or None.
    speedup
        Simulated makespan of ``sequential`` on the same cluster over this one.
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
    """

    graph: OpGraph
    cluster: Cluster
    rows: tuple[Row, ...]
    plans: Mapping[str, Schedule]
    traces: Mapping[str, Trace]

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as JSON values."""
        return {
            "graph": {"name": self.graph.name, "operators": len(self.graph), "edges": len(self.graph.src),
                      "operators_without_load": operators_without_load(self.graph)},
            "cluster": {"name": self.cluster.name, "devices": [device.model for device in self.cluster.devices]},
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
        for heading in (f"makespan {name}", f"estimate {name}", "speedup", "over bound", "streams", "devices", "syncs",
                        "memory", "SM eff.", "search s"):  # fmt: skip
            table.add_column(heading, justify="right")
        best = self.best()
        for row in self.rows:
            if row.reason is not None:
                table.add_row(escape(row.scheduler), *["-"] * 10, style="dim")
                continue
            cells = (
                _number(row.makespan_us, unit),
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

    def _caption(self) -> str:
        notes = [f"{row.scheduler}: no schedule: {row.reason}" for row in self.rows if row.reason]
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
    progress: Callable[[str], None] | None = None,
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
    progress
        Called with the name of each scheduler before it runs.

    Returns
    -------
    Comparison
        A scheduler that refuses the graph has a row with the reason.

    Raises
    ------
    UnknownNameError
        If a scheduler is not known.
    """
    names = scheduler_set(schedulers, graph) if isinstance(schedulers, str) and schedulers in SETS else schedulers
    asked: list[str | Scheduler] = [names] if isinstance(names, str) else list(names)
    seed = np.random.default_rng(rng).integers(2**63) if jitter is not None and rng is not None else None

    def run(plan: Schedule) -> Trace:
        return simulate(plan, cluster, cost, jitter=jitter, rng=None if seed is None else int(seed))

    try:
        baseline = run(schedule(graph, cluster, "sequential", cost)).makespan
    except SimschedError:  # a row of a scheduler says why
        baseline = None
    rows: list[Row] = []
    plans: dict[str, Schedule] = {}
    traces: dict[str, Trace] = {}
    for scheduler in asked:
        name = _unused(scheduler_name(scheduler), [row.scheduler for row in rows])
        if progress is not None:
            progress(name)
        try:
            start = perf_counter()
            plan = schedule(graph, cluster, scheduler, cost)
            search_s = perf_counter() - start
            trace = run(plan)
        except LookupError:
            raise
        except SimschedError as error:
            rows.append(Row(name, reason=str(error)))
            continue
        plans[name], traces[name] = plan, trace
        rows.append(_row(name, plan, trace, baseline, search_s, cost))
    return Comparison(graph, cluster, tuple(rows), plans, traces)


def _unused(name: str, taken: list[str]) -> str:
    """Return the name, with a number if another row has it."""
    numbered = [name, *(f"{name} ({i})" for i in range(2, len(taken) + 2))]
    return next(candidate for candidate in numbered if candidate not in taken)


def _row(
    name: str, plan: Schedule, trace: Trace, baseline: float | None, search_s: float, cost: CostModel | None
) -> Row:
    bound = lower_bound(plan.graph, trace.cluster, cost)
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
