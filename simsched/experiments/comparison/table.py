"""`Comparison`: rows that print as a table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from simsched.base.codec import Count, Document, aside, write
from simsched.base.errors import FormatError
from simsched.base.units import format_bytes
from simsched.experiments.comparison.row import Doubt, Row, Sampling
from simsched.experiments.result import Later, Result, table_of, time_text, unit_of
from simsched.model import Cluster, CostModel, Floats, OpGraph
from simsched.model.graph.derived import with_times
from simsched.model.schedule import NumberedPlan, Schedule
from simsched.model.trace import Trace
from simsched.simulator import Makespans, simulate
from simsched.simulator.baking import placed_operator_times

_ALIKE: Final = {"round-robin": "sequential", "inter-lp": "sequential", "inter-mr": "sequential", "hios-mr": "hios-lp"}
_MOST_STORED: Final = 10_000  # samples of a schedule that stand in a document


@dataclass(kw_only=True)
class _File:
    """Several schedulers on one graph.

    Parameters
    ----------
    cluster
        What was compared on.
    sampling
        How makespans were sampled.
    doubt
        What ranges come from.
    rows
        One per scheduler, in the order asked for.
    plans
        The schedule of each scheduler that made one.
    samples
        Sampled makespans in us by scheduler.
    graphs
        What schedules run, each once; they name them by their place.
    graph
        The place of the one that was compared.
    """

    cluster: Cluster
    sampling: Sampling | None = None
    doubt: Doubt | None = None
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
        What was compared.
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
        What the ranges of the rows come from, and what they hang on; None if they were not found.
    """

    FORMAT, INDENT, FILE, RETIRED = "simsched.comparison", None, _File, ("draws",)
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

    def summary(self) -> dict[str, Any]:
        """Return what the table says as JSON values: rows, the names of graph and devices, and how it was sampled."""
        return {
            "graph": {"name": self.graph.name, "operators": len(self.graph), "edges": len(self.graph.src),
                      "operators_without_load": operators_without_load(self.graph)},
            "cluster": {"name": self.cluster.name, "devices": [device.model for device in self.cluster.devices]},
            "sampling": None if self.sampling is None else write(self.sampling),
            "doubt": None if self.doubt is None else write(self.doubt),
            "rows": self.records(),
        }  # fmt: skip

    def to_file(self) -> _File:
        """Return it as its file has it.

        Graphs stand there once each, with the times that the schedules ran with where a calibration or a cost model
        gave them; `graph` itself is as it was given. Up to 10,000 samples of a schedule are written.
        """
        graphs, numbers, plans = [self.graph], {(id(self.graph), b""): 0}, {}
        for name, plan in self.plans.items():
            graph = self.traces[name].graph  # with the times of a calibration
            times = None if self.cost is None else placed_operator_times(plan.over(graph), self.cluster, self.cost)
            key = (id(graph), b"" if times is None else times.tobytes())
            if key not in numbers:
                numbers[key] = len(graphs)
                graphs.append(graph if times is None else with_times(graph, times))
            plans[name] = NumberedPlan.of(plan, numbers[key])
        samples = {name: each.values for name, each in self.samples.items() if len(each) <= _MOST_STORED}
        return _File(
            cluster=self.cluster, sampling=self.sampling, doubt=self.doubt, rows=self.rows, plans=plans,
            samples=samples, graphs=tuple(graphs), graph=0,
        )  # fmt: skip

    @classmethod
    def from_file(
        cls, cluster: Cluster, rows: Sequence[Row], plans: Mapping[str, NumberedPlan], samples: Mapping[str, Floats],
        graphs: Sequence[OpGraph], graph: int, sampling: Sampling | None = None, doubt: Doubt | None = None,
    ) -> "Comparison":  # fmt: skip
        """Make one of what its file has. Nothing is simulated before somebody asks for a trace."""
        done = [row.scheduler for row in rows if row.makespan_us is not None]
        if len({row.scheduler for row in rows}) < len(rows) or sorted(done) != sorted(plans):
            raise FormatError("'plans' must hold one schedule for each row with a makespan, under its name")
        for name, values in samples.items():
            if sampling is None or name not in plans or values.shape != (sampling.n,):
                raise FormatError(f"samples[{name!r}] must be as many makespans of a schedule as 'sampling' says")
        for number in (graph, *(plan.graph for plan in plans.values())):
            if not 0 <= number < len(graphs):
                raise FormatError(f"there is no graph {number}; the file has {len(graphs)}")
        made = {name: plans[name].made(graphs[plans[name].graph]) for name in done}
        drawn = {name: Makespans(values) for name, values in samples.items()}
        traces = Later(made, lambda name: simulate(made[name], cluster))
        return cls(graphs[graph], cluster, tuple(rows), made, traces, drawn, sampling, doubt=doubt)

    def records(self) -> list[dict[str, Any]]:
        """Return the rows as plain values by column."""
        return [write(row) for row in self.rows]

    def best(self) -> Row | None:
        """Return the row of least makespan, of equal ones the first; None if no scheduler had a schedule."""
        done = [row for row in self.rows if row.makespan_us is not None]
        return min(done, key=lambda row: row.makespan_us or 0.0) if done else None

    def table(self) -> Any:
        """Return the comparison as a table of texts."""
        unit, name = unit_of(row.makespan_us for row in self.rows)
        sampled = () if self.sampling is None else ("p50", "p99")
        place = () if self.doubt is None else ("#",)
        headings = ("scheduler", f"makespan {name}", *sampled, "estimate", "speedup", *place, "over bound", "streams",
                    "devices", "syncs", "memory", "SM eff.", "search s")  # fmt: skip
        shown = [row for row in self.rows if row.scheduler not in self._repeats()]
        best = next((i for i, row in enumerate(shown) if row is self.best()), -1)
        return table_of(
            f"{self.graph.name} on {self.cluster.name}", headings, [self._cells(row, unit) for row in shown],
            note=self._caption(), best=best,
        )  # fmt: skip

    def _cells(self, row: Row, unit: float) -> Sequence[str]:
        if row.reason is not None:
            return (row.scheduler,)
        return (
            row.scheduler,
            time_text(row.makespan_us, unit),
            *(time_text(us, unit) for us in (row.p50_us, row.p99_us) if self.sampling is not None),
            time_text(row.estimate_us, unit),
            "-" if row.speedup is None else f"{row.speedup:.2f}x{_between(row)}",
            *(() if self.doubt is None else (str(row.place or "-"),)),
            "-" if row.over_bound is None else f"{row.over_bound:.2f}",
            *map(str, (row.streams, row.devices, row.syncs)),
            format_bytes(row.peak_memory_bytes or 0.0),
            f"{100 * (row.sm_efficiency or 0):.0f} %",
            f"{row.search_s:.3f}",
        )

    def _repeats(self) -> dict[str, str]:
        """Return the rows that say again what another says, with that: some differ on several GPUs alone."""
        if self.named or len(self.cluster) > 1:
            return {}
        us = {row.scheduler: row.makespan_us for row in self.rows if row.makespan_us is not None}
        return {name: other for name, other in _ALIKE.items() if name in us and us[name] == us.get(other)}

    def _caption(self) -> str:
        notes = [] if self.sampling is None else [f"p50, p99 of {self.sampling}; makespan and speedup without jitter"]
        notes += [f"{row.scheduler}: no schedule: {row.reason}" for row in self.rows if row.reason]
        notes += [f"warning: {row.scheduler}: {row.warning}" for row in self.rows if row.warning]
        if self.doubt is not None:
            text = "speedup: its range with 90 %, {}; #: its place, shared where the order is not certain"
            notes += [text.format(self.doubt.basis), str(self.doubt)]
        repeats = self._repeats()
        for other in dict.fromkeys(repeats.values()):
            notes.append(f"{', '.join(name for name in repeats if repeats[name] == other)}: as {other} on one GPU")
        unknown = operators_without_load(self.graph)
        if unknown:
            notes.append(
                f"{unknown} of {len(self.graph)} operators have neither kernels nor utilization: they load nothing"
            )
        return "\n".join(notes)


def _between(row: Row) -> str:
    same = row.speedup_low is None or row.speedup_low == row.speedup_high
    return "" if same else f" ({row.speedup_low:.1f}-{row.speedup_high:.1f})"


def operators_without_load(graph: OpGraph) -> int:
    """Return how many operators have neither kernels nor a utilization, and so contend for nothing."""
    return int((np.isnan(graph.utilization) & (np.diff(graph.kernel_ptr) == 0)).sum())
