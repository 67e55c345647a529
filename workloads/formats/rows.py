"""Measured kernels as rows, from any profiler: input of a calibration."""

import csv
import os
from collections.abc import Iterable, Mapping, Sequence
from io import StringIO
from itertools import groupby, pairwise
from math import isnan
from operator import attrgetter
from typing import Annotated, Any, Final, NamedTuple

import numpy as np

from simsched.base.codec import Amount, Range, read
from simsched.base.errors import FormatError
from simsched.base.io import read_bytes
from simsched.calibration import ALONE
from simsched.model import LAUNCH, Cluster, Edge, Kernel, Operator, OpGraph, Program, Schedule
from simsched.model.profile import MeasuredOperator, Profile, Provenance, Replay
from simsched.model.trace import measured_trace
from workloads.formats.reading import build

_PAIR: Final = "pair/"

Rows = str | os.PathLike[str] | Iterable[Mapping[str, Any]]
_Whole = Annotated[int, Range(0, 2**31 - 1)]


class _KernelRow(NamedTuple):
    """A row of the file; `issued_us` may be missing."""

    kernel: str
    begin_us: Amount
    end_us: Amount
    issued_us: Amount | None = None
    flops: Amount = 0.0
    nbytes: Amount = 0.0
    stream: _Whole = 0
    device: Annotated[int, Range(0, 4095)] = 0  # each device that is named takes memory, and those before it
    blocks: _Whole = 0
    threads: _Whole = 0
    registers: _Whole = 32
    shared_memory: _Whole = 0
    run: str = "rows"


def read_rows(path: Rows, cluster: Cluster | str = "") -> Profile:
    """Make a profile of measured kernels, one row each, that `simsched.calibrate` fits to.

    Parameters
    ----------
    path
        A CSV file with a line of headings, or mappings with the same keys. Needed are ``kernel``, ``begin_us`` and
        ``end_us``. ``stream`` and ``device`` count from 0, which they are if they are missing. ``blocks``, ``threads``,
        ``registers`` (32) and ``shared_memory`` (bytes a block) are the launch; ``flops`` and ``nbytes`` its work;
        ``issued_us`` is the begin of the host's call for it. ``run`` separates the rows of several programs.
    cluster
        The devices that ran it as far as they are known, or the name of a preset.

    Returns
    -------
    Profile
        The profile, with a replay for each run.

    Raises
    ------
    FileError
        If the file cannot be read.
    FormatError
        If a row is not whole, or there is no cluster.

    Notes
    -----
    *The program* has one operator for each row, on its stream, in the order of begins. An operator that begins after
    the ends of all earlier ones waited for them and, where rows lack the time of the call, for a call that began
    earlier by the way of a launch to the device. Other operators without that time were issued together with the
    previous one. So no cost of the host is simulated, and none is fitted.

    *Sharing.* Where kernels overlap, and each of those also ran alone in the same run, the run is named ``pair/...``:
    parameters are fitted to it. Any other is a run of a graph in place, from which times of operators are fitted.

    Examples
    --------
    >>> alone = [{"kernel": k, "begin_us": us, "end_us": us + 10, "blocks": 80, "threads": 256} for k, us in
    ...          (("a", 0), ("b", 20))]
    >>> both = [{**row, "stream": i, "begin_us": 40, "end_us": 55} for i, row in enumerate(alone)]
    >>> read_rows([*alone, *both], "v100").runs[0]
    Replay('pair/rows', 1 repeats, median 61.8 us)
    """
    lines: Iterable[Mapping[str, Any]]
    if isinstance(path, str | os.PathLike):
        source = str(path)
        lines = _lines(path, source)
    else:
        source = "rows"
        lines = path
    rows = [_row(row, f"{source}: row {i}") for i, row in enumerate(lines, 1)]
    if not rows:
        raise FormatError(f"{source}: there are no rows")
    if not cluster:
        raise FormatError(f"{source}: rows do not say what they ran on; give cluster=, such as a100")
    if isinstance(cluster, str):
        cluster = Cluster.preset(cluster, 1 + max(row.device for row in rows))
    times: dict[str, list[float]] = {}
    for row in rows:
        times.setdefault(row.kernel, []).append(row.end_us - row.begin_us)
    rows.sort(key=attrgetter("run", "begin_us"))
    runs = [_replay(name, list(members), cluster, source) for name, members in groupby(rows, attrgetter("run"))]
    measured = tuple(MeasuredOperator(name, tuple(us)) for name, us in times.items())
    return Profile(measured, provenance=Provenance(source=source), runs=tuple(runs), cluster=cluster)


def read_rows_graph(path: str | os.PathLike[str], cluster: Cluster | str = "") -> OpGraph:
    """Read the graph of the first run of `read_rows`."""
    return read_rows(path, cluster).runs[0].program.graph


def _lines(path: str | os.PathLike[str], source: str) -> list[dict[str, Any]]:
    try:
        return list(csv.DictReader(StringIO(read_bytes(path).decode("utf-8-sig"), newline=""), strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise FormatError(f"{source}: not a CSV file: {error}") from None


def _row(given: Mapping[str, Any], where: str) -> _KernelRow:
    """Return a row: a missing or empty cell has the default, an unknown heading is ignored."""
    if not isinstance(given, Mapping):
        raise FormatError(f"{where} must have keys, such as kernel, begin_us, end_us")
    cells = {key: given[key] for key in _KernelRow._fields if given.get(key) not in (None, "")}
    row = read(_KernelRow, {key: _value(key, value) for key, value in cells.items()}, where)
    if row.end_us < row.begin_us:
        raise FormatError(f"{where} ends before it begins")
    return row


def _value(key: str, given: Any) -> Any:
    """Return the number in a cell; the unchanged text if it is not a number, which is refused later."""
    if key in ("kernel", "run"):
        return str(given)
    try:
        number = float(given)
    except (TypeError, ValueError, OverflowError):
        return given
    if type(_KernelRow._field_defaults.get(key)) is int and number.is_integer():
        return int(number)
    return number


def _replay(run: str, rows: Sequence[_KernelRow], cluster: Cluster, source: str) -> Replay:
    """Return the replay of a run, whose rows are in the order of their begins."""
    device = cluster.devices[0]
    issued = np.array([row.issued_us for row in rows], np.float64)  # NaN where it is not known
    phase: list[int] = []
    end = -1.0
    for i, row in enumerate(rows):
        if row.begin_us >= end:  # nothing runs any more
            phase.append(phase[-1] + 1 if phase else 0)
            before = row.begin_us - max(device.launch, device.launch_latency)
            if isnan(issued[i]):
                issued[i] = before
        else:
            phase.append(phase[-1])
        end = max(end, row.end_us)
    zero = float(np.nanmin(issued))  # when the host begins
    members = [[i for i, at in enumerate(phase) if at == number] for number in range(phase[-1] + 1)]
    alone = {group[0] for group in members if len(group) == 1}
    kernels = {rows[i].kernel for i in alone}
    is_pair = len(alone) < len(rows) and all(row.kernel in kernels for row in rows)
    names = [f"{ALONE if is_pair and i in alone else row.kernel}{i}" for i, row in enumerate(rows)]
    operators = [build(source, _operator, name, row) for name, row in zip(names, rows, strict=True)]
    edges = [Edge(names[a], names[b]) for one, after in pairwise(members) for a in one for b in after]
    if is_pair:
        name = f"{_PAIR}{run.removeprefix(_PAIR)}"
    else:
        name = run
    graph = build(source, OpGraph, operators, edges, name)
    plan = build(
        source,
        Schedule.from_columns,
        graph,
        range(len(rows)),
        [gpu.name for gpu in cluster.devices],
        device=[row.device for row in rows],
        stream=[row.stream for row in rows],
        scheduler=name,
    )
    program = _with_issue_times(plan.lower(cluster, threads="one"), (issued - zero + device.launch).tolist())
    launches = np.array([(row.begin_us - zero, row.end_us - zero) for row in rows])
    trace = build(source, measured_trace, program, cluster, launches)
    return Replay((float(launches[:, 1].max()),), trace, {"backend": "rows", "device": device.model}, name=name)


def _operator(name: str, row: _KernelRow) -> Operator:
    kernels: tuple[Kernel, ...] = ()
    if row.blocks:
        kernels = (Kernel(row.blocks, row.threads, row.registers, row.shared_memory),)
    time = row.end_us - row.begin_us
    return Operator(name, kind=row.kernel, time=time, flops=row.flops, nbytes=row.nbytes, kernels=kernels)


def _with_issue_times(program: Program, issued: Sequence[float]) -> Program:
    """Return the program with calls that end at these times in us, or with the one before, and take no more time."""
    lead = np.zeros(len(program))
    now = 0.0
    for i in np.flatnonzero(program.action == LAUNCH).tolist():
        lead[i] = np.fmax(0.0, issued[program.argument[i]] - now)  # 0 if it is not known
        now += lead[i]
    return program.timed(lead, np.zeros(len(program)))
