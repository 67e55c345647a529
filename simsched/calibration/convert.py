"""`Calibration` to and from JSON documents."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from simsched.base.errors import FormatError, ProgramError
from simsched.base.io import Record, document
from simsched.base.numeric import is_number
from simsched.calibration.calibration import FITTED, HELD_OUT, Calibration, ParameterRow, Residual
from simsched.calibration.evidence import Run
from simsched.calibration.parameters import PARAMETERS
from simsched.model.cluster import Cluster
from simsched.model.graph import OpGraph
from simsched.model.profile.measured import checked_times
from simsched.model.program import EXECUTIONS, Copies, Program

FORMAT, VERSION = "simsched.calibration", 1
_COLUMNS: Final = ("thread_ptr", "action", "device", "stream", "argument", "priority")


def to_dict(calibration: Calibration) -> dict[str, Any]:
    """See `Calibration.to_dict`."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "provenance": dict(calibration.provenance),
        "cluster": calibration.cluster.to_dict(),
        "prior": calibration.prior.to_dict(),
        "graph": None if calibration.graph is None else calibration.graph.to_dict(),
        "times": dict(calibration.times),
        "scales": dict(calibration.scales),
        "parameters": [row._asdict() for row in calibration.parameters],
        "microbenchmarked": [row._asdict() for row in calibration.microbenchmarked],
        "residuals": [row._asdict() for row in calibration.residuals],
        "runs": [_run_to_dict(run) for run in calibration.runs],
        "held_out": list(calibration.held_out),
    }


def _run_to_dict(run: Run) -> dict[str, Any]:
    program = run.program
    copies = program.copies
    return {
        "name": run.name,
        "latency": list(run.latency),
        "launches": run.launches.ravel().tolist(),
        "execution": program.execution,
        "n_events": program.n_events,
        **{name: np.asarray(getattr(program, name)).tolist() for name in _COLUMNS},
        **({} if program.lead is None else {"lead": program.lead.tolist()}),
        **({} if program.own is None else {"own": [None if np.isnan(x) else x for x in program.own.tolist()]}),
        "copies": {
            "op": copies.op.tolist(),
            "device": copies.device.tolist(),
            "nbytes": copies.nbytes.tolist(),
            "transfer": [None if np.isnan(x) else x for x in copies.transfer.tolist()],
            "times": run.copies.ravel().tolist(),
        },
    }


def from_dict(data: Any, source: str) -> Calibration:
    """See `Calibration.from_dict`."""
    top = document(data, FORMAT, VERSION, source)
    prior = Cluster.from_dict(top.take("prior", dict), f"{source}: prior")
    given = top.take("graph", dict, None)
    graph = None if given is None else OpGraph.from_dict(given, f"{source}: graph")
    rows = top.records("runs", [])
    if rows and graph is None:
        raise FormatError(f"{source}: field 'graph' is missing, but there are runs of it")
    runs = tuple(_read_run(row, graph, prior) for row in rows if graph is not None)
    times = _numbers(top, "times")
    foreign = next((name for name in times if graph is None or name not in graph.index), None)
    if foreign is not None:
        raise FormatError(f"{source}: field 'times' has operator {foreign!r}, which is not in the graph")
    held_out = tuple(top.take("held_out", list, []))
    if len(held_out) != len(runs) or not all(isinstance(hidden, bool) for hidden in held_out):
        raise FormatError(f"{source}: field 'held_out' must hold true or false for each of the {len(runs)} runs")
    return top.build(
        Calibration,
        cluster=Cluster.from_dict(top.take("cluster", dict), f"{source}: cluster"),
        prior=prior,
        graph=graph,
        times=times,
        scales=_numbers(top, "scales"),
        parameters=_read_parameters(top.records("parameters")),
        microbenchmarked=_read_parameters(top.records("microbenchmarked", [])),
        residuals=tuple(_read_residual(row) for row in top.records("residuals", [])),
        runs=runs,
        held_out=held_out,
        provenance=_texts(top, "provenance"),
    )


def _numbers(row: Record, key: str) -> Mapping[str, float]:
    values: dict[str, Any] = row.take(key, dict)
    for name, value in values.items():
        if not _is_amount(value):
            raise FormatError(f"{row.where}: field {key!r} says {value!r} of {name!r}; it must be a finite number")
    return values


def _texts(row: Record, key: str) -> Mapping[str, str]:
    values: dict[str, Any] = row.take(key, dict, {})
    if not all(isinstance(text, str) for text in values.values()):
        raise FormatError(f"{row.where}: field {key!r} must hold texts")
    return values


def _read_parameters(rows: Sequence[Record]) -> tuple[ParameterRow, ...]:
    """Read what is said of parameters, but for those that the model had before."""
    named = [(row, row.take("name", str)) for row in rows]
    return tuple(_read_parameter(row, name) for row, name in named if name not in _RETIRED)


_RETIRED: Final = ("sm_sensitivity", "dram_sensitivity")


def _read_parameter(row: Record, name: str) -> ParameterRow:
    if name not in PARAMETERS:
        raise FormatError(f"{row.where}: unknown parameter {name!r}; known are: {', '.join(PARAMETERS)}")
    numbers = {key: row.take(key, float) for key in ("value", "prior", "low", "high")}
    return row.build(
        ParameterRow, name=name, **numbers, identified=row.take("identified", bool), note=row.take("note", str, "")
    )


def _read_residual(row: Record) -> Residual:
    role = row.take("role", str)
    if role not in (FITTED, HELD_OUT):
        raise FormatError(f"{row.where}: field 'role' must be {FITTED!r} or {HELD_OUT!r}, not {role!r}")
    numbers = {key: row.take(key, float) for key in ("measured", "predicted")}
    return row.build(Residual, name=row.take("name", str), **numbers, role=role)


def _read_run(row: Record, graph: OpGraph, cluster: Cluster) -> Run:
    copied = Record(row.take("copies", dict), f"{row.where}.copies")
    columns = {name: _whole(row, name) for name in _COLUMNS}
    execution = row.take("execution", str)
    if execution not in EXECUTIONS:
        raise FormatError(f"{row.where}: unknown execution {execution!r}; known are: {', '.join(EXECUTIONS)}")
    exact = [np.nan if x is None else x for x in _amounts(copied, "transfer", or_null=True)]
    copies = [_whole(copied, "op"), _whole(copied, "device"), _amounts(copied, "nbytes"), exact]
    lead = None if row.take("lead", list, None) is None else _amounts(row, "lead")
    own = None if row.take("own", list, None) is None else np.array(_amounts(row, "own", or_null=True), np.float64)
    try:
        program = Program(
            graph, [device.name for device in cluster.devices], execution, columns["thread_ptr"],
            columns["action"], columns["device"], columns["stream"], columns["argument"],
            copies=Copies(*(np.array(column) for column in copies)), n_events=row.take("n_events", int),
            priority=columns["priority"], lead=lead, own=own,
        ).check()  # fmt: skip
    except (ProgramError, ValueError) as error:
        raise FormatError(f"{row.where}: {error}") from None
    name = row.take("name", str)
    run = row.build(
        Run,
        name=name,
        program=program,
        latency=checked_times(row.take("latency", list), f"{row.where}: run {name!r}"),
        launches=_pairs(row, "launches", len(program.launch_op)),
        copies=_pairs(copied, "times", len(program.copies.op)),
    )
    copied.done()
    return run


def _whole(row: Record, key: str) -> Any:
    values = row.take(key, list)
    if not all(type(value) is int and abs(value) < 2**31 for value in values):
        raise FormatError(f"{row.where}: field {key!r} must hold whole numbers below 2^31")
    return np.array(values, np.int64)


def _amounts(row: Record, key: str, *, or_null: bool = False) -> list[Any]:
    values: list[Any] = row.take(key, list)
    if not all(_is_amount(value) or (or_null and value is None) for value in values):
        raise FormatError(f"{row.where}: field {key!r} must hold finite numbers that are not negative")
    return values


def _is_amount(value: Any) -> bool:
    return is_number(value) and 0 <= value < np.inf


def _pairs(row: Record, key: str, count: int) -> Any:
    values = row.take(key, list)
    if len(values) != 2 * count or not all(map(_is_amount, values)):
        raise FormatError(f"{row.where}: field {key!r} must hold start and end of {count} spans in us")
    return np.array(values, np.float64).reshape(count, 2)
