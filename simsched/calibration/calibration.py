"""`Calibration`: a cluster whose parameters and operator times were fitted to measurements."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import isclose
from typing import Any, Final, NamedTuple
from weakref import ref

import numpy as np

from simsched.base.codec import Amount, Checked, Document
from simsched.base.errors import CalibrationError, FormatError
from simsched.base.io import read_json
from simsched.base.numeric import group_by_key
from simsched.calibration.evidence import HELD_OUT, MICROBENCHMARKS, MeasuredRun, Residual
from simsched.calibration.fitting import RATES, RETIRED, ParameterRow
from simsched.model import Cluster, Device, Floats, Indices, Operator, OpGraph, Target, default_cost, roofline

_MISSED: Final = 0.1  # part of a microbenchmark by which it is missed
_ABOVE: Final = 1.01
_SYNTH: Final = "synth"  # kind of operators that backends run instead of operators without kernels
_CLOSE: Final = 1e-9  # part of a time: through other units and back


class Error(NamedTuple):
    """Mean and 90th percentile of the absolute error of makespans, as fractions, over so many runs."""

    mean: float
    p90: float
    runs: int


@dataclass(frozen=True, eq=False)
class Calibration(Checked, Document):
    """A fit to measurements of a device: a cluster, and a cost model.

    Parameters
    ----------
    provenance
        Device, backend, dates, versions, number of runs.
    cluster, prior
        The cluster with fitted parameters, and before the fit.
    graph
        The graph that was measured, as the backend ran it, or None.
    times
        Us of each measured operator alone, in place, by name.
    scales
        Median of measured over roofline time by kind of operator.
    parameters, microbenchmarked
        Result of each parameter, and by microbenchmarks alone.
    residuals
        Every run, measured and predicted.
    runs, held_out
        The runs in place, and which of them no fit has seen.

    Notes
    -----
    As a cost model it returns the measured time for an operator that equals a measured one: same name, kind, shape and
    attributes, and same FLOP, or same time where no shape is known. An operator that was not measured (a merged one,
    say) gets its roofline time times the scale of its kind; if its kind was not measured either, its own `time`, and
    without one its roofline time times the scale of all. On a device of another model times change as the roofline time
    does; times of operators without FLOP and bytes stay.
    """

    SUBJECT = "calibration"
    ERROR = CalibrationError
    FORMAT = "simsched.calibration"
    INDENT = None
    provenance: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    cluster: Cluster
    prior: Cluster
    graph: OpGraph | None
    times: Mapping[str, Amount]
    scales: Mapping[str, Amount]
    parameters: tuple[ParameterRow, ...]
    microbenchmarked: tuple[ParameterRow, ...] = field(default=(), kw_only=True)
    residuals: tuple[Residual, ...] = ()
    runs: tuple[MeasuredRun, ...] = ()
    held_out: tuple[bool, ...] = ()
    _applied: dict[int, Any] = field(default_factory=dict, init=False, repr=False)
    _known: dict[int, Any] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        Checked.__post_init__(self)
        if self.runs and self.graph is None:
            raise CalibrationError("field 'graph' is missing, but there are runs of it")
        foreign = next((name for name in self.times if self.graph is None or name not in self.graph.index), None)
        if foreign is not None:
            raise CalibrationError(f"there is a time of operator {foreign!r}, which is not in the graph")
        if len(self.held_out) != len(self.runs):
            raise CalibrationError(f"held_out must say of each of the {len(self.runs)} runs whether it was")
        if self.graph is not None:
            object.__setattr__(self, "runs", tuple(run.with_program(self.graph, self.prior) for run in self.runs))

    @classmethod
    def from_file(cls, **values: Any) -> "Calibration":
        """Make a calibration from the data of its file; parameters that the model no longer has are left out."""
        for name in ("parameters", "microbenchmarked"):
            values[name] = tuple(row for row in values.get(name, ()) if row.name not in RETIRED)
        return cls(**values)

    def __repr__(self) -> str:
        fitted = sum(row.identified for row in self.parameters)
        if self.error:
            error = f", error {self.error.mean:.1%}"
        else:
            error = ""
        return f"Calibration({self.cluster.name!r}, {len(self.times)} operators, {fitted} parameters{error})"

    @property
    def error(self) -> Error | None:
        """Error over the runs that no fit has seen; None if there are none."""
        errors = [abs(row.error) for row in self.residuals if row.role == HELD_OUT]
        if not errors:
            return None
        return Error(float(np.mean(errors)), float(np.quantile(errors, 0.9)), len(errors))

    def __call__(self, op: Operator, device: Device) -> float:
        """Return the time of an operator alone on a device in us (see Notes of the class)."""
        if self.is_measured(op):
            assert self.graph is not None
            own = self.graph[op.name]
            time = self.times[op.name]
            devices = self.cluster.devices
            is_load = own.flops or own.nbytes
            if device.model in [other.model for other in devices] or not is_load:
                return time
            return time * (roofline(own, device) / roofline(own, devices[0]))
        scale = self.scales.get(op.kind)
        if scale is None and op.time is not None:
            return op.time
        if scale is None:
            if self.scales:
                scale = float(np.median(list(self.scales.values())))
            else:
                scale = 1.0
        return roofline(op, device) * scale

    def is_measured(self, op: Operator) -> bool:
        """Return whether an operator is the one that was measured under its name."""
        if op.name not in self.times or self.graph is None:
            return False
        own = self.graph[op.name]
        own_time = self.times[op.name]
        if not _is_made_of(own, op):
            return False
        if op.output_shape is not None and op.time is None:
            return own.kind == op.kind or not (op.kernels or op.works)
        if own.kind == _SYNTH and op.kind != _SYNTH:  # it replaces an operator without kernels
            return not (op.kernels or op.works) and _same_time(
                default_cost(op, self.prior.devices[0]), own.time, own_time
            )
        if op.output_shape is not None or op.kind == _SYNTH:
            return True
        if op.flops and own.flops:  # FLOP of operators of known shape are counted in several ways
            return op.flops == own.flops
        return _same_time(op.time, own.time, own_time)

    def operator_times(self, graph: OpGraph, device: Device, ops: Indices) -> Floats:
        """Return the times in us of operators of a graph, given by index, on a device, shape of `ops`.

        Times of a graph are computed once for each device and kept while the graph lives. O(V), then O(len(ops)).
        """
        times_of: dict[Device, Floats] = _cached_for(self._known, graph, dict)
        if device.name != "gpu0":
            plain = replace(device, name="gpu0")
        else:
            plain = device
        if plain not in times_of:
            times_of[plain] = np.array([self(op, device) for op in graph.operators])
        return times_of[plain][ops]

    def apply(self, graph: OpGraph) -> OpGraph:
        """Return a graph with measurements instead of its own values.

        Parameters
        ----------
        graph
            Its operators are looked up as in a call.

        Returns
        -------
        OpGraph
            Measured operators have their time, and kernels, FLOP, bytes, intensity and kind as they were run; edges
            between two of them have the bytes that were moved. Other operators keep all but their time, which the cost
            model gives. The graph itself if it is applied already; for the same graph always the same object.
        """
        applied: OpGraph | None = _cached_for(self._applied, graph, lambda: self._apply(graph))
        return graph if applied is None else applied

    def _apply(self, graph: OpGraph) -> OpGraph | None:
        """Return the graph with measurements, None if it has them already."""
        operators = [self._measured_operator(op, self.cluster.devices[0]) for op in graph.operators]
        if all(new is old for new, old in zip(operators, graph.operators, strict=True)):
            return None
        if self.graph is None:
            own_edges = {}
        else:
            own_edges = {(edge.src, edge.dst): edge for edge in self.graph.edges}
        edges = []
        for edge in graph.edges:
            ran = own_edges.get((edge.src, edge.dst))
            if ran is not None and edge.transfer is not None:
                edge = replace(edge, nbytes=ran.nbytes, transfer=ran.transfer)
            edges.append(edge)
        applied = OpGraph(operators, edges, graph.name)
        _cached_for(self._applied, applied, lambda: None)
        return applied

    def _measured_operator(self, op: Operator, device: Device) -> Operator:
        time = self(op, device)
        if not self.is_measured(op):
            if op.time != time:
                return replace(op, time=time)
            return op
        assert self.graph is not None
        own = self.graph[op.name]
        fields = ("kind", "flops", "nbytes", "kernels", "intensity", "dtype")
        return replace(op, time=time, **{name: getattr(own, name) for name in fields})

    def table(self) -> list[tuple[str, ...]]:
        """Return the parameters as rows of texts, the first their headings."""
        rows: list[tuple[str, ...]] = [("parameter", "value", "prior", "95 %", "note")]
        for row in self.parameters:
            if row.identified:
                interval = f"{row.low:.4g} .. {row.high:.4g}"
                note = row.note
            else:
                interval = "-"
                note = f"not identified: {row.note}"
            rows.append((row.name, f"{row.value:.4g}", f"{row.prior:.4g}", interval, note))
        return rows

    def warnings(self) -> list[str]:
        """Return a line for each reason to doubt it: microbenchmarks that it misses, rates above the device's own."""
        lines = []
        micro = [row for row in self.residuals if row.name.startswith(MICROBENCHMARKS)]
        missed = [row for row in micro if abs(row.error) > _MISSED]
        if missed:
            worst = max(missed, key=lambda row: abs(row.error))
            lines.append(
                f"{len(missed)} of {len(micro)} microbenchmarks are missed by more than {100 * _MISSED:.0f} %, "
                f"{worst.name} by {100 * worst.error:+.1f} %"
            )
        for row in self.parameters:
            if row.name in RATES and row.value > _ABOVE * row.prior:
                lines.append(f"{row.name} is fitted as {row.value:.4g}, but the device is said to have {row.prior:.4g}")
        return lines

    def verdict(self) -> str:
        """Return one or two sentences on the calibration's use, and on the next measurement to make."""
        error = self.error
        missing = [row.name for row in self.parameters if not row.identified]
        if error is None:
            sentence = "Not known to be right: no run was held out; profile more schedules in place (`--in-situ`)"
        elif error.p90 <= _MISSED:
            apart = 2 * error.mean
            off = error.p90
            sentence = f"Trust it to rank schedules that differ by more than {apart:.0%}, and latencies to {off:.0%}"
        else:
            sentence = f"Do not trust it: 1 in 10 schedules is off by more than {error.p90:.0%}"
        doubts = [
            *(["see the warnings"] * bool(self.warnings())),
            *([f"not measured: {', '.join(missing)}"] * bool(missing)),
        ]
        return "; ".join([sentence, *doubts])


def _cached_for(kept: dict[int, Any], graph: OpGraph, make: Callable[[], Any]) -> Any:
    """Return a graph's cached value, computed on first use and kept as long as the graph."""
    key = id(graph)
    entry = kept.get(key)
    if entry is None or entry[0]() is not graph:
        entry = kept[key] = ref(graph, lambda _: kept.pop(key, None)), make()
    return entry[1]


def scales_of(graph: OpGraph, times: Mapping[str, float], device: Device) -> dict[str, float]:
    """Return, by kind of operator, the median of measured over roofline time."""
    ratios = group_by_key(
        (op.kind, times[op.name] / roofline(op, device)) for op in graph.operators if op.name in times
    )
    return {kind: float(np.median(values)) for kind, values in ratios.items()}


# Whether an operator or a graph is the one that was measured: others may have the same names -------


def _same_time(time: float | None, *known: float | None) -> bool:
    """Return whether a time in us is one of the known times, or no time is given."""
    return time is None or any(other is not None and isclose(time, other, rel_tol=_CLOSE) for other in known)


def _is_made_of(ran: Operator, op: Operator) -> bool:
    """Return whether a backend can have made `ran` from an operator of its name, whatever their times are.

    Shapes and attributes identify an operator. Where they are not known, synthetic operators are identified by their
    FLOP, or by their time and utilization: their FLOP differ where a backend measures its rates in each process.
    """
    shapes = [(o.input_shapes, o.output_shape, o.attributes) for o in (ran, op)]
    if shapes[0] != shapes[1]:
        return False
    if ran.kind == _SYNTH and op.kind != _SYNTH:
        return ran.utilization == op.utilization
    if ran.kind != op.kind or op.output_shape is not None or op.kind != _SYNTH:
        return ran.kind == op.kind
    alike = op.time is not None and _same_time(op.time, ran.time) and ran.utilization == op.utilization
    return alike or ran.flops == op.flops


def require_same(measured: OpGraph, graph: OpGraph, what: str) -> None:
    """Refuse measurements of another graph than the given one, which may be in its form before realisation.

    Raises
    ------
    CalibrationError
        If operators have other names, read from others, or one cannot have become the one that was measured.
    """
    if measured is graph:
        return
    why = None
    if measured.names != graph.names:
        foreign = next((name for name in measured.names if name not in graph.index), None)
        missing = next((name for name in graph.names if name not in measured.index), None)
        if foreign:
            why = f"operator {foreign!r} is not in it"
        else:
            why = f"it has no operator {missing!r}"
        if foreign is None and missing is None:
            why = "its operators are in another order"
    elif sorted((e.src, e.dst) for e in measured.edges) != sorted((e.src, e.dst) for e in graph.edges):
        why = "other operators read from each other"
    else:
        for ran, op in zip(measured.operators, graph.operators, strict=True):
            stands_in = ran.kind == _SYNTH and op.kind != _SYNTH and op.output_shape is None
            shortened = ran.time is not None and op.time is not None and ran.time < op.time * (1 - _CLOSE)
            if not _is_made_of(ran, op) or (stands_in and shortened):  # where blocks cannot be short, it ran longer
                why = f"operator {op.name!r} is another one"
                break
    if why is not None:
        raise CalibrationError(
            f"{what} is of another graph than {graph.name!r}: {why}; profile the graph that is to run"
        )


def read_target(path: str | os.PathLike[str]) -> Target:
    """Return the cluster or the calibration that a file holds.

    Raises
    ------
    FileError
        If the file cannot be read.
    FormatError
        If it holds neither.
    """
    data = read_json(path)
    if isinstance(data, dict):
        kind = data.get("format")
    else:
        kind = None
    for cls in (Calibration, Cluster):
        if kind == cls.FORMAT:
            return cls.from_dict(data, os.fspath(path))
    raise FormatError(
        f"{path}: field 'format' is {kind!r:.40}; expected one of: {Calibration.FORMAT}, {Cluster.FORMAT}"
    )
