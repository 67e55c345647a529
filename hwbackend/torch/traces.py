"""Spans and kernels of a program as the profiler of PyTorch sees them, read by the Kineto importer."""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from hwbackend.torch.hosts import copy_mark
from simsched.base.errors import FormatError
from simsched.model import Floats, OpGraph, Program
from workloads.formats.kineto import read_kineto
from workloads.formats.kineto.events import read_events
from workloads.formats.kineto.join import Nesting, split_iterations, trace_back
from workloads.formats.kineto.text import read_trace
from workloads.formats.kineto.units import Joined, OperatorRun, by_annotation, by_level

ITERATION: Final = "simsched.run"
"""Annotation of each run of a program."""

Span = tuple[float, float]

_NO_KERNELS: Final = "the profiler recorded no kernels; it may not be permitted to use CUPTI"


class Ran(NamedTuple):
    """What one run of a program did on the device: spans in us by mark, from when its host began."""

    kernels: dict[str, list[Span]]

    @property
    def end(self) -> float:
        """When the last of it ended."""
        return max((end for spans in self.kernels.values() for _, end in spans), default=0.0)


def record_trace(torch: Any, run: Callable[[], object], count: int, path: Path) -> None:
    """Run a program some times under the profiler and write its trace."""
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profiler:
        for i in range(count):
            with torch.profiler.record_function(f"{ITERATION}#{i}"):
                run()
    profiler.export_chrome_trace(str(path))


def kernels_measured(torch: Any, run: Callable[[], object], graph: OpGraph, count: int = 5) -> OpGraph:
    """Return a graph with the kernels that PyTorch launches for each operator in place of what it had.

    Parameters
    ----------
    run
        Runs the graph once, each operator annotated by its name.
    count
        How often it is run.

    Notes
    -----
    Kernels with their shares of the operator's time; its time itself stays. An operator that launched nothing keeps
    the kernels it had.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        record_trace(torch, run, count, path)
        return with_kernels(graph, path)


def with_kernels(graph: OpGraph, path: Path) -> OpGraph:
    """Return a graph with the kernels of a trace in which its operators are annotated, see `kernels_measured`.

    Raises
    ------
    FormatError
        If the trace is none of this graph, or has no kernels.
    """
    profile = read_kineto(path, graph=graph, iteration=ITERATION)
    if not any(op.kernels for op in profile.operators):
        raise FormatError(f"{path}: {_NO_KERNELS}")
    measured = profile.apply(graph, partial=True)
    pairs = zip(graph.operators, measured.operators, strict=True)
    return OpGraph([replace(old, kernels=new.kernels or old.kernels) for old, new in pairs], graph.edges, graph.name)


def spans_measured(
    torch: Any, run: Callable[[], object], program: Program, captured: Sequence[str] | None = None, count: int = 5
) -> tuple[Floats, Floats]:
    """Return start and end of each launch and copy of a program in us, of the run of median length.

    Parameters
    ----------
    run
        Runs the program once, operators and copies annotated as `CudaHost` does.
    captured
        If it launches a captured graph: the mark of each of its nodes.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        record_trace(torch, run, count, path)
        runs = read_runs(path, program, captured)
    runs.sort(key=lambda ran: ran.end)
    return spans_of(program, runs[len(runs) // 2])


def read_counts(torch: Any, run: Callable[[], object], program: Program) -> dict[str, int]:
    """Return how many kernels and copies each operator and copy launches, by its mark, from a run as annotated."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        record_trace(torch, run, 1, path)
        (ran,) = read_runs(path, program)
    return {mark: len(spans) for mark, spans in ran.kernels.items()}


def read_runs(path: Path, program: Program, captured: Sequence[str] | None = None) -> list[Ran]:
    """Return what each annotated run in a trace did on the device.

    Raises
    ------
    FormatError
        If the trace is none of this program.
    """
    source = str(path)
    events = read_events(read_trace(path), source)
    iterations, operators, annotations = split_iterations(events, ITERATION)
    nesting = Nesting(operators)
    activities = events.activities
    if not len(activities) or not iterations.marked:
        raise FormatError(f"{source}: {_NO_KERNELS}")
    origin = trace_back(activities, events.calls, nesting)
    joined = Joined(source, nesting, annotations, activities, origin, iterations)
    if captured is None:
        wanted = dict.fromkeys((*program.graph.names, *map(copy_mark, range(len(program.copies.op)))))
        is_wanted = np.array([name in wanted for name in annotations.names], bool)
        marks = annotations.take(np.flatnonzero(is_wanted[annotations.name]))
        runs = by_annotation(joined, list(wanted), Nesting(marks))
    else:
        runs = by_level(joined, "top", captured)
    return [
        _ran(part, activities.start - begin, activities.duration)
        for part, begin in zip(runs, iterations.start.tolist(), strict=True)
        if part
    ]


def _ran(part: Sequence[OperatorRun], start: Any, duration: Any) -> Ran:
    """Return the spans of an iteration, from times in ns."""
    found = {}
    for run in part:
        begins = start[run.activities] / 1000.0
        lengths = duration[run.activities] / 1000.0
        found[run.name] = sorted(zip(begins.tolist(), (begins + lengths).tolist(), strict=True))
    return Ran(found)


def spans_of(program: Program, ran: Ran) -> tuple[Floats, Floats]:
    """Return start and end of each launch and copy of a run in us.

    Notes
    -----
    An operator that launched as many kernels as the program has launches of it gives each its own span; otherwise
    its span, from the first start to the last end, is divided by the kernels' shares. One that launched nothing takes
    no time, at the end of what it reads.
    """
    graph = program.graph
    ptr = program.launches.ptr.tolist()
    launches = np.zeros((len(program.launches), 2))
    end_of = np.zeros(len(graph))
    into, edges = graph.incoming
    for i in graph.order_index.tolist():
        name = graph.names[i]
        rows = slice(ptr[i], ptr[i + 1])
        spans = ran.kernels.get(name, [])
        if not spans:
            at = max((end_of[p] for p in graph.src[edges[into[i] : into[i + 1]]].tolist()), default=0.0)
            spans = [(at, at)]
        if len(spans) == ptr[i + 1] - ptr[i]:
            launches[rows] = spans
        else:
            whole = (spans[0][0], max(end for _, end in spans))
            launches[rows] = divide_span(whole, program.launches.share[rows].tolist())
        end_of[i] = launches[rows].max()
    copies = np.zeros((len(program.copies.op), 2))
    for row in range(len(copies)):
        spans = ran.kernels.get(copy_mark(row), [])
        at = end_of[program.copies.op[row]]
        if spans:
            copies[row] = (spans[0][0], max(end for _, end in spans))
        else:
            copies[row] = (at, at)
    return np.maximum(launches, 0.0), np.maximum(copies, 0.0)


def divide_span(whole: Span, shares: Sequence[float]) -> Floats:
    """Return the spans that parts of a span take one after the other, shape (n_parts, 2).

    >>> divide_span((10.0, 20.0), [0.3, 0.7]).tolist()
    [[10.0, 13.0], [13.0, 20.0]]
    """
    ends = np.minimum(whole[0] + np.cumsum(shares) * (whole[1] - whole[0]), whole[1])
    ends[-1] = whole[1]
    return np.column_stack([[whole[0], *ends[:-1]], ends])


def launch_spans(program: Program, operators: Floats) -> Floats:
    """Return start and end of each launch from those of the operators, shape (n_ops, 2), by the kernels' shares."""
    found = np.repeat(operators, np.diff(program.launches.ptr), axis=0)
    ptr = program.launches.ptr
    for i in np.flatnonzero(np.diff(ptr) > 1).tolist():
        shares = program.launches.share[ptr[i] : ptr[i + 1]].tolist()
        found[ptr[i] : ptr[i + 1]] = divide_span((float(operators[i, 0]), float(operators[i, 1])), shares)
    return found
