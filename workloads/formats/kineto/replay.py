"""Replays of traced programs: measured beside simulated times, as it ran and with changes."""

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from simsched.base.errors import ClusterError, SchedulerError, WhatIfError
from simsched.base.io import dump_json, write_file
from simsched.experiments.whatif.changes import Change, speed_of
from simsched.experiments.whatif.revision import changed_cluster, operators_of
from simsched.model import Cluster, CostModel, Floats, OpGraph, Schedule, default_cost
from simsched.model.graph.rearranged import with_times
from simsched.model.program import ACTIONS, LAUNCH, RECORD, WAIT, Program
from simsched.model.trace import KERNEL, Trace
from simsched.model.trace.timeline import union_length
from simsched.simulator import simulate
from workloads.formats.kineto.dispatch import as_dispatched
from workloads.formats.kineto.link_effect import LinkEffect, concerns, effect_of
from workloads.formats.kineto.traced import TracedProgram

STREAMS: Final = ("traced", "one")
HOSTS: Final = ("traced", "none", "captured")
_TURNS: Final = 3
"""Simulations by which times alone are found of operators that were measured beside others."""
LATE: Final = 0.05
"""Part of the measured makespan by which the start of an operator must be off to be called so."""
_MOST_PIDS: Final = 1000
_ON_LINKS: Final = ("collective", "memcpy", "earlier", "untraced", "arrival")


@dataclass(frozen=True, slots=True)
class Busy:
    """Busy time of a stream, measured and simulated, and the end of its last operator."""

    device: str
    stream: int
    operators: int
    measured_us: float
    simulated_us: float
    measured_end_us: float
    simulated_end_us: float


@dataclass(frozen=True)
class TraceReplay:
    """A trace simulated.

    Parameters
    ----------
    traced
        The program that ran.
    simulated
        The simulated trace.
    other_us
        For another device: the makespan if the resource that gains less bounds all operators. None otherwise.
    link_effect
        How collectives follow changes of the device, links and ranks; None without these, and where the trace does not
        say of any what it exchanges.
    """

    traced: TracedProgram
    simulated: Trace
    other_us: float | None = None
    link_effect: LinkEffect | None = None

    @property
    def measured_us(self) -> float:
        """The makespan that was measured."""
        return self.traced.measured_makespan

    @property
    def simulated_us(self) -> float:
        """The makespan that is simulated."""
        return self.simulated.makespan

    @property
    def error(self) -> float:
        """The difference of the two, as a part of the measured one."""
        return self.simulated_us / self.measured_us - 1

    @cached_property
    def times(self) -> Floats:
        """Measured and simulated start and end of each operator in us, shape (2, n_ops, 2)."""
        trace = self.simulated
        kernels = trace.kind == KERNEL
        simulated = np.empty_like(self.traced.times)
        simulated[trace.item[kernels]] = np.stack([trace.start[kernels], trace.end[kernels]], 1)
        return np.stack([np.maximum(0.0, self.traced.times), simulated])

    @property
    def starts(self) -> Floats:
        """Measured and simulated start of each operator in us, shape (n_ops, 2)."""
        return self.times[:, :, 0].T

    @property
    def start_error(self) -> float:
        """Mean difference of starts, as a part of the measured makespan."""
        return float(np.abs(self.starts[:, 1] - self.starts[:, 0]).mean()) / self.measured_us

    @property
    def late(self) -> list[tuple[str, float, float]]:
        """Name, measured and simulated start of operators that are off by over 5 %, the worst first."""
        off = np.abs(self.starts[:, 1] - self.starts[:, 0])
        rows = np.flatnonzero(off > LATE * self.measured_us)
        rows = rows[np.argsort(-off[rows], kind="stable")]
        names = self.traced.graph.names
        return [(names[i], *self.starts[i].tolist()) for i in rows.tolist()]

    @cached_property
    def busy(self) -> tuple[Busy, ...]:
        """Busy time of each stream."""
        program = self.traced
        launches = np.flatnonzero(program.action == LAUNCH)
        keys = np.stack([program.device[launches], program.stream[launches]], 1)
        rows = []
        for device, stream in np.unique(keys, axis=0).tolist():
            ops = program.argument[launches[(keys == (device, stream)).all(1)]]
            measured, simulated = self.times[:, ops]
            rows.append(
                Busy(
                    program.devices[device],
                    stream,
                    len(ops),
                    union_length(*measured.T),
                    union_length(*simulated.T),
                    float(measured[:, 1].max()),
                    float(simulated[:, 1].max()),
                )
            )
        return tuple(rows)

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as JSON values, with collectives where the trace has arguments of any."""
        program = self.traced
        document: dict[str, Any] = {
            "graph": program.graph.name,
            "step": program.step,
            "operators": len(program.graph),
            "measured_us": self.measured_us,
            "simulated_us": self.simulated_us,
            "error": self.error,
            "other_us": self.other_us,
            "start_error": self.start_error,
            "waits": program.n_waits,
            "guessed_waits": program.guessed_waits,
            "lost_calls": program.n_lost,
            "off": [{"op": name, "measured_us": a, "simulated_us": b} for name, a, b in self.late],
            "busy": [asdict(row) for row in self.busy],
        }
        if program.rates.are_stated:
            document["collectives"] = program.rates.to_dict()
        if self.link_effect is not None:
            document["link_effect"] = self.link_effect.to_dict()
        return document

    def gantt(self, path: str | os.PathLike[str] | None = None) -> Any:
        """Draw the simulated trace, and below each row the measured one; return the axes."""
        return self.simulated.gantt(path, measured=self.traced.measured)

    def to_perfetto(self, path: str | os.PathLike[str] | None = None) -> dict[str, Any]:
        """Return both traces in the Chrome Trace Event format, and write them if a path is given."""
        events = []
        document = {}
        for shift, (label, trace) in enumerate((("measured", self.traced.measured), ("simulated", self.simulated))):
            document = trace.to_perfetto()
            for event in document["traceEvents"]:
                if event["name"] == "process_name":
                    event["args"]["name"] += f", {label}"
                if "id" in event:
                    event["id"] = f"{label} {event['id']}"
                event["pid"] += shift * _MOST_PIDS
                if event["name"] == "process_sort_index":
                    event["args"]["sort_index"] += shift * _MOST_PIDS
                events.append(event)
        document["traceEvents"] = sorted(events, key=lambda event: (event["ph"] != "M", event.get("ts", 0.0)))
        if path is not None:
            write_file(path, dump_json(document, indent=None))
        return document


def replay_traced(
    program: TracedProgram, changes: Sequence[Change] = (), *, host: str = "traced", streams: str = "traced"
) -> TraceReplay:
    """Simulate a traced program, as it ran or with changes.

    Parameters
    ----------
    program
        From `read_kineto_program`.
    changes
        Differences to the trace, see `parse_change`: overheads of the host change the calls of
        their action, in proportion or to a value; ``device`` and its fields, and ``contention``, change the
        device; speeds change operators; the device, ``link`` and ``ranks`` change known collectives.
    host
        ``"none"``: the host takes no time, but waits where it must. ``"captured"``: all is one captured graph.
    streams
        ``"one"``: all operators of a device share one stream, in the order in which they are launched.

    Raises
    ------
    WhatIfError
        If a trace has nothing that a change could change.

    Notes
    -----
    *Contention.* Unless a change says whether there is any, there is if the replay without changes then `is_contended`.
    With it, operators have their `times_alone` on the device of the trace, and the measured ones on a device with other
    fields.

    *Another device.* Measured times do not show which resource bounds an operator. They are scaled by the ratio of
    DRAM rates and by the ratio of FP32 rates: the smaller gain gives `TraceReplay.other_us`, the greater one
    gives is simulated. Collectives and copies hang on links: copies keep their times. Tensor cores, caches and other
    kernels that a library would choose there are not in these limits.

    *Links and ranks.* A known collective (`RankCollective.exchange`) changes with the device, ``link`` and ``ranks`` as
    the model's time does (`effect_of`), waiting and all, in both limits alike; other collectives keep their times.
    """
    for option, choice, choices in (("host", host, HOSTS), ("streams", streams, STREAMS)):
        if choice not in choices:
            raise WhatIfError(f"{option} must be one of {', '.join(choices)}, not {choice!r}")
    cluster = changed_cluster(program.cluster, changes)
    if cluster == program.cluster and not any(change.parameter.startswith("contention") for change in changes):
        cluster = cluster.replace_devices(contention=is_contended(program))
    is_shared = cluster == program.cluster.replace_devices(contention=True)
    times = np.array(times_alone(program) if is_shared else program.graph.time)
    replayed = _with_host(as_dispatched(program), changes)
    for change in changes:
        _hasten(program, times, change)
    if streams == "one":
        replayed = _on_one_stream(replayed)
    if host == "none":
        replayed = replayed.timed(None, np.zeros(len(replayed)))
    elif host == "captured":
        replayed = traced(replayed.graph, cluster, default_cost, execution="graph").lower(cluster)
    link_effect = None
    if any(concerns(change) for change in changes):
        link_effect = effect_of(program.of_trace.collectives, times, program.cluster.devices[0], changes)
        times = times * link_effect.ratios
    scales = sorted(_scales(program.cluster, cluster))
    moves = np.array([op.kind in _ON_LINKS for op in program.graph.operators])
    graphs = [with_times(replayed.graph, np.where(moves, times, times * scale)) for scale in scales]
    traces = [simulate(replayed.over(graph), cluster) for graph in graphs]
    if len(traces) > 1:
        other_us = traces[1].makespan
    else:
        other_us = None
    return TraceReplay(program, traces[0], other_us, link_effect if program.rates.are_stated else None)


def is_contended(program: TracedProgram) -> bool:
    """Return whether operators start closer to when they were measured to if contention is simulated, too.

    Measured times include the slowdown by other operators, but no waiting for a place on the device.
    """
    cluster = program.cluster
    shared = cluster.replace_devices(contention=True)
    try:
        runs_beside = as_dispatched(program)
        contended = runs_beside.over(with_times(runs_beside.graph, times_alone(program)))
        errors = [
            TraceReplay(program, simulate(runs, on)).start_error
            for runs, on in ((program, cluster), (contended, shared))
        ]
    except ClusterError:  # a kernel that the device has no place for
        return False
    return errors[1] < errors[0]


def times_alone(program: TracedProgram) -> Floats:
    """Return the times in us that operators would take alone, shape (n_ops,).

    The measured times include contention: under contention on the same device the times alone become the measured ones,
    as far as a few divisions by the slowdown reach that.
    """
    memo: Floats | None = program.__dict__.get("times_alone")
    if memo is not None:
        return memo
    measured = np.array(program.graph.time)
    cluster = program.cluster.replace_devices(contention=True)
    dispatched = as_dispatched(program)
    times = measured
    took = np.empty_like(measured)
    for _ in range(_TURNS):
        trace = simulate(dispatched.over(with_times(dispatched.graph, times)), cluster)
        kernels = trace.kind == KERNEL
        took[trace.item[kernels]] = (trace.end - trace.start)[kernels]
        slowed = np.divide(took, measured, out=np.ones_like(took), where=measured > 0)
        times = np.minimum(measured, times / np.where(slowed > 0, slowed, 1.0))
    program.__dict__["times_alone"] = times
    return times


def _with_host(program: Program, changes: Sequence[Change]) -> Program:
    """Return the program with other times of calls."""
    assert program.own is not None
    own = np.array(program.own)
    for change in changes:
        name = change.parameter.removeprefix("overhead").removeprefix(".")
        if change.parameter.startswith("overhead") and name in ("", *ACTIONS):
            if not name:
                rows = program.action < RECORD + 2
            else:
                rows = program.action == ACTIONS.index(name)
            if change.is_absolute:
                own[rows] = change.value
            else:
                own[rows] = own[rows] * change.value
    return program.timed(program.lead, own)


def _hasten(program: TracedProgram, times: Floats, change: Change) -> None:
    """Change the times of the operators that a change of speed selects."""
    if speed_of(change.parameter) is not None:
        times[operators_of(program.graph, change)] /= change.value
    elif change.parameter.partition(".")[0] not in (
        "device",
        "link",
        "ranks",
        "overhead",
        "contention",
        "interference",
    ):
        raise WhatIfError(f"{change}: a replayed trace has no {change.parameter!r} that could be changed")


def _scales(old: Cluster, new: Cluster) -> set[float]:
    """Return the ratios by which times scale on another device: one if DRAM bounds them, one if FP32 does."""
    a = old.devices[0]
    b = new.devices[0]
    return {a.bandwidth / b.bandwidth, a.peak["fp32"] / b.peak["fp32"]}


def _on_one_stream(program: Program) -> Program:
    """Return the program with one stream for each device; the one by which threads hand over work stays."""
    launched = np.unique(program.stream[program.action == LAUNCH])
    moved = np.isin(program.stream, launched) & np.isin(program.action, (LAUNCH, RECORD, WAIT))
    stream = np.where(moved, launched[0], program.stream)
    return Program(
        program.graph,
        program.devices,
        program.execution,
        program.thread_ptr,
        program.action,
        program.device,
        stream,
        program.argument,
        program.copies,
        program.n_events,
        program.priority,
        program.lead,
        program.own,
    ).check()


def traced(graph: OpGraph, cluster: Cluster, _cost: CostModel, *, execution: str = "events") -> Schedule:
    """Place operators on the streams on which a trace had them, in the order in which they started.

    Parameters
    ----------
    graph
        From `read_kineto_graph`; its operators have the attributes ``device`` and ``stream``.
    cluster
        As for every scheduler; times play no part.
    execution
        As in `Schedule`.

    Raises
    ------
    SchedulerError
        If operators have no such attributes, or the cluster has fewer devices.
    """
    rows = [op.attributes for op in graph.operators]
    if not all("stream" in row and "device" in row for row in rows):
        raise SchedulerError(f"traced: {graph.name!r} is not from a trace: its operators do not say where they ran")
    device = np.array([row["device"] for row in rows])
    if device.max() >= len(cluster):
        raise SchedulerError(f"traced: {graph.name!r} ran on {device.max() + 1} devices, not {len(cluster)}")
    order = np.array([graph.index[name] for name in graph.order])
    return Schedule.from_columns(
        graph,
        order,
        [gpu.name for gpu in cluster.devices],
        device=device[order],
        stream=np.array([row["stream"] for row in rows])[order],
        execution=execution,
        scheduler="traced",
    )
