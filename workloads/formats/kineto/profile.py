"""Traces of torch.profiler (Kineto) as a `Profile`."""

import logging
import os
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np

from simsched.base.errors import CostError, FormatError, UnknownNameError
from simsched.base.numeric import is_count
from simsched.model.graph import OpGraph
from simsched.model.profile import MeasuredCopy, MeasuredKernel, MeasuredOperator, Profile, Provenance
from simsched.model.profile.measured import quantile
from simsched.model.trace.timeline import union_length
from workloads.formats.kineto.device import measured_device
from workloads.formats.kineto.events import Activities, Events, read_events
from workloads.formats.kineto.join import Nesting, split_iterations, trace_back
from workloads.formats.kineto.ranks import by_process, one_of
from workloads.formats.kineto.text import read_trace
from workloads.formats.kineto.units import Joined, OperatorRun, by_annotation, by_level, by_order

_logger = logging.getLogger(__name__)

LEVELS: Final = ("top", "leaf")
_SCHEMA = 1
_SLOW = 1.2  # times the median: an iteration that is still warming up
_EPOCH = 2**50  # ns in 13 days: times beyond are since 1970


def read_kineto(
    path: str | os.PathLike[str],
    *,
    graph: OpGraph | Sequence[str] | None = None,
    level: str = "top",
    skip: int | None = None,
    iteration: str = "ProfilerStep",
    device: int | None = None,
    captured: Sequence[str] | None = None,
) -> Profile:
    """Read a trace that torch.profiler exported (``export_chrome_trace``), plain or gzipped.

    Parameters
    ----------
    path
        The file.
    graph
        Operators to look for: an `OpGraph` that was derived from the model, or the names of its operators in
        the order in which they ran. The profile then has its names, and ``profile.apply(graph)`` is the graph
        with measured times and kernels. None makes an operator of each operator of PyTorch, see `level`.
    level
        Without a graph: ``"top"`` gives kernels to the outermost operator of PyTorch around their launch
        (``aten::conv2d``), ``"leaf"`` to the innermost (``aten::cudnn_convolution``).
    skip
        How many of the first iterations to discard; None decides by the rule below.
    iteration
        Annotation around each iteration, alone or with a number (``ProfilerStep#7``). If nothing
        is so called the trace is one iteration.
    device
        Which GPU, if the trace has several.
    captured
        For CUDA graphs, whose kernels no operator launches: the operator of each node (kernel, memcpy or
        memset), in order of launch and node; a name may occur several times. With a profile of the same
        model run without CUDA graphs: ``[op.name for op in eager.operators for _ in (*op.kernels, *op.copies)]``.

    Returns
    -------
    Profile
        Times in us. Operators without a graph are called by their name and how many of that name ran
        before in the iteration: ``aten::conv2d#3``; nodes of CUDA graphs ``cudaGraphLaunch#0.12``. Those
        of a graph that launched nothing have time 0.

    Raises
    ------
    FileError
        If the file cannot be read.
    FormatError
        If it is not such a trace, or does not fit the graph or `captured`; the message names the line, the event, or
        the first operator that does not fit.
    UnknownNameError
        If `level` is none of the above.

    Notes
    -----
    *Joining.* A kernel belongs to the call of the same correlation id, whatever the call is named, and the call to
    the operator of the same External id, or else to the one that is open on its thread. With a graph, annotations
    (``record_function``) that are called as its operators decide; where there are none, the outermost operators are
    matched with the operators of the graph in order and by kind. All nodes of a CUDA graph share one correlation
    id: node ids distinguish them, or, in traces without them, their order on each stream; `captured` needs ids.

    *Iterations.* By default leading iterations are discarded that ran other kernels than most
    (autotuning), and then those that took over 1.2 times the median of the iterations from there on (lazy
    loading); one always remains. Where an operator still launched other kernels in a few iterations,
    those are left out for it, and a warning is logged. A kernel belongs to the iteration in which it
    was launched.

    *Ignored fields.* Occupancy as estimated by the profiler (0 for kernels of more than 48 KiB
    of shared memory; see `simsched.model.cluster.device`), warps and blocks per SM, bandwidths; and the times of
    calls, which the profiler itself makes several times longer: overheads come from a calibration.

    *CPU.* In a trace without kernels the time of an operator is its own on the host.

    A trace of n events takes O(n log n) time, most of it to decode the text, and two to three times
    the memory of its text.

    Examples
    --------
    >>> import json, tempfile
    >>> event = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 5.0, "dur": 2.5}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = f"{folder}/trace.json"
    ...     with open(path, "w") as file:
    ...         json.dump({"schemaVersion": 1, "traceEvents": [event]}, file)
    ...     read_kineto(path)["aten::mm#0"].median
    2.5
    """
    source = str(path)
    if level not in LEVELS:
        raise UnknownNameError("level", str(level), list(LEVELS))
    if skip is not None and not is_count(skip):
        raise FormatError(f"{source}: skip must be a whole number of iterations, not {skip!r}")
    events = one_of(by_process(read_events(read_trace(path), source)), device, source)
    _check_schema(events.header, source)
    joined, number = _join(events, iteration, device, source)
    names = list(graph.names if isinstance(graph, OpGraph) else graph or ())
    if isinstance(graph, OpGraph):
        kinds = [op.kind for op in graph.operators]
    else:
        kinds = None
    by_graph = graph is not None and captured is None
    if by_graph:
        runs = _runs_of_graph(joined, names, kinds)
    else:
        runs = by_level(joined, level, captured)
    iterations, discarded = _counting_runs(runs, joined.activities, skip, source)
    operators = _Collected(joined, iterations).operators(names)
    provenance = Provenance(
        source=source,
        profiler=f"torch.profiler (Kineto schema {_SCHEMA})",
        iterations=len(iterations),
        discarded=discarded,
        date=_date(events),
        cuda_runtime=_version(events.header.get("cuda_runtime_version")),
        cuda_driver=_version(events.header.get("cuda_driver_version")),
    )
    try:
        return Profile(operators, measured_device(events.header, number, source), provenance)
    except CostError as error:
        raise FormatError(f"{source}: {error}") from error


def _join(events: Events, iteration: str, device: int | None, source: str) -> tuple[Joined, int | None]:
    """Return the joined trace of one GPU, and its number."""
    iterations, operators, annotations = split_iterations(events, iteration)
    numbers = np.unique(events.activities.device).tolist()
    if device is None and len(numbers) > 1:
        raise FormatError(f"{source}: kernels ran on devices {', '.join(map(str, numbers))}; choose one with device=")
    if device is not None and device not in numbers:
        raise FormatError(
            f"{source}: nothing ran on device {device!r}; there are: {', '.join(map(str, numbers)) or 'none'}"
        )
    number = device if device is not None else next(iter(numbers), None)
    activities = events.activities.take(np.flatnonzero(events.activities.device == (number or 0)))
    if not len(operators) and not len(activities):
        raise FormatError(
            f"{source}: no operator and no kernel was recorded; profile with ProfilerActivity.CPU and CUDA"
        )
    nesting = Nesting(operators)
    origin = trace_back(activities, events.calls, nesting)
    return Joined(source, nesting, annotations, activities, origin, iterations), number


def _runs_of_graph(joined: Joined, names: Sequence[str], kinds: Sequence[str] | None) -> list[list[OperatorRun]]:
    """Return the runs of a graph's operators in each iteration."""
    annotations = joined.annotations
    marks = annotations.take(np.flatnonzero(annotations.are(frozenset(names).__contains__)))
    if len(marks):
        return by_annotation(joined, names, Nesting(marks))
    return by_order(joined, names, kinds)


def _counting_runs(
    runs: list[list[OperatorRun]], activities: Activities, skip: int | None, source: str
) -> tuple[list[list[OperatorRun]], int]:
    """Return the iterations that count, and how many were discarded before them."""
    runs = [part for part in runs if part]
    if not runs:
        raise FormatError(f"{source}: no operator ran within an iteration")
    if skip is not None and skip >= len(runs):
        raise FormatError(f"{source}: there are {len(runs)} iterations, of which skip={skip} leaves none")
    if skip is None:
        n_first = _warming_up(runs, activities)
    else:
        n_first = int(skip)
    return runs[n_first:], n_first


def _warming_up(runs: list[list[OperatorRun]], activities: Activities) -> int:
    what = activities.what.tolist()
    times = activities.duration.tolist()
    ran = [tuple((run.name, *(what[row] for row in run.activities)) for run in part) for part in runs]
    total = [sum(run.host + sum(times[row] for row in run.activities) for run in part) for part in runs]
    usual = _most_common(ran)
    if ran.count(usual) > 1:
        n_first = ran.index(usual)
    else:
        n_first = 0
    while n_first < len(runs) - 1 and total[n_first] > _SLOW * quantile(total[n_first:], 0.5):
        n_first += 1
    return n_first


def _most_common(values: Sequence[Any]) -> Any:
    """Return the value that occurs most often, of equals the one that occurs last."""
    count = Counter(values)
    most = max(count.values())
    return next(value for value in reversed(values) if count[value] == most)


class _Collected:
    """Runs of the same operator in all iterations, put together."""

    def __init__(self, joined: Joined, kept: list[list[OperatorRun]]) -> None:
        self._source = joined.source
        self._kept = kept
        activities = joined.activities
        self._kinds = activities.kinds
        self._what = activities.what.tolist()
        self._stream = activities.stream.tolist()
        self._start: list[int] = activities.start.tolist()
        self._time: list[int] = activities.duration.tolist()
        self._n_odd = 0

    def operators(self, names: Sequence[str]) -> tuple[MeasuredOperator, ...]:
        """Return the operators in the order of the names, then in that in which they first ran."""
        runs: dict[str, list[OperatorRun]] = {name: [] for name in names}
        for part in self._kept:
            for run in part:
                runs.setdefault(run.name, []).append(run)
        operators = tuple(self._operator(name, same) for name, same in runs.items() if same)
        if self._n_odd:
            _logger.warning(
                "%s: %d times an operator launched other kernels than usual; those are left out",
                self._source,
                self._n_odd,
            )
        return operators

    def _operator(self, name: str, runs: list[OperatorRun]) -> MeasuredOperator:
        what = self._what
        launched = [tuple([what[row] for row in run.activities]) for run in runs]
        usual = launched[-1]
        if launched.count(usual) != len(runs):
            usual = _most_common(launched)
            runs = [run for run, ran in zip(runs, launched, strict=True) if ran == usual]
            self._n_odd += len(launched) - len(runs)
        kernels = []
        copies = []
        for k, code in enumerate(usual):
            kind = self._kinds[code]
            rows = [run.activities[k] for run in runs]
            samples = tuple([self._time[row] / 1e3 for row in rows])
            stream = self._stream[rows[-1]]
            if kind.what == "kernel":
                kernels.append(MeasuredKernel(kind.name, samples, kind.launch, stream))
            else:
                copies.append(MeasuredCopy(kind.what, kind.name, samples, kind.nbytes, stream))
        return MeasuredOperator(name, tuple([self._length(run) / 1e3 for run in runs]), tuple(kernels), tuple(copies))

    def _length(self, run: OperatorRun) -> int:
        """Return the time of an operator in an iteration in ns: overlapping time on several streams counts once."""
        rows = run.activities
        if not rows:
            return run.host
        if len(rows) == 1:
            return self._time[rows[0]]
        starts = [self._start[row] for row in rows]
        ends = [self._start[row] + self._time[row] for row in rows]
        if len({self._stream[row] for row in rows}) == 1:
            return sum(self._time[row] for row in rows)  # old traces round to us: neighbours seem to overlap
        first = min(starts)  # times since then are exact as floats
        return round(union_length([start - first for start in starts], [end - first for end in ends]))


def _check_schema(header: dict[str, Any], source: str) -> None:
    version = header.get("schemaVersion", _SCHEMA)
    if type(version) is not int or version != _SCHEMA:
        raise FormatError(f"{source}: field 'schemaVersion' is {version!r}; this release reads {_SCHEMA}")


def _version(number: Any) -> str | None:
    """Return a CUDA version as text.

    >>> _version(12040)
    '12.4'
    """
    if is_count(number, 1):
        return f"{number // 1000}.{number % 1000 // 10}"
    return None


def _date(events: Events) -> str | None:
    """Return when the first operator or kernel started, if the trace counts from 1970 or says from when."""
    base = events.header.get("baseTimeNanoseconds", 0)
    starts = [part.start.min() for part in (events.operators, events.activities) if len(part)]
    time = int(min(starts)) + (base if type(base) is int and base > 0 else 0)
    if not _EPOCH < time < 2**63:
        return None
    return datetime.fromtimestamp(time // 10**9, UTC).isoformat()
