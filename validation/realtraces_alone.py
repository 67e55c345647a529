"""Kernels on several streams, predicted from the times that they took on one stream in another trace of the network.

Traces of a network are named alike up to the first dot, as ``moe.eager.json.gz`` and ``moe.streams8.json.gz``.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from itertools import pairwise
from statistics import median

import numpy as np

from simsched.model import Floats, Ints, Operator
from simsched.model.graph.rearranged import with_times
from simsched.model.program import LAUNCH, RECORD, WAIT
from simsched.model.trace import KERNEL, Trace
from simsched.simulator import simulate
from validation.realtraces_pairs import Row
from workloads.formats.kineto.traced import TracedProgram


def alone_row(name: str, alone: TracedProgram, beside: TracedProgram) -> Row | None:
    """Return the errors of predicting a trace of several streams, in per cent.

    Parameters
    ----------
    name
        The network.
    alone, beside
        Its programs on one stream, and on several. Kernels of one name and launch shape take the median of their times
        on one stream; a kernel that did not run there keeps its measured time.

    Returns
    -------
    Row or None
        Errors of the makespan and mean errors of starts, over the makespan, and the error of the span of the worst
        launch of a captured graph. None if the first program has several streams, the second has one, or no kernel is
        in both.
    """
    if _n_streams(alone) > 1 or _n_streams(beside) < 2:
        return None
    times: dict[Hashable, list[float]] = defaultdict(list)
    for key, (start, end) in zip(_keys(alone), alone.times.tolist(), strict=False):
        times[key].append(end - start)
    predicted = np.array(beside.graph.time)
    rows = [i for i, key in enumerate(_keys(beside)) if key in times]
    if not rows:
        return None
    predicted[rows] = [median(times[key]) for key in _keys(beside) if key in times]
    graphs = captured_launches(beside)
    figures = {}
    for contention in (True, False):
        cluster = beside.cluster.replace_devices(contention=contention)
        starts, ends = _spans(simulate(beside.over(with_times(beside.graph, predicted)), cluster), len(predicted))
        off = np.abs(starts - beside.times[:, 0])[: beside.of_trace.n_own]
        figures[contention] = {
            "makespan": 100 * abs(float(ends.max()) / beside.measured_makespan - 1),
            "starts": 100 * float(off.mean()) / beside.measured_makespan,
        }
        if graphs:
            measured = beside.times
            spans = [_span(starts, ends, ops) / _span(measured[:, 0], measured[:, 1], ops) for ops in graphs]
            figures[contention]["worst graph"] = 100 * max(abs(span - 1) for span in spans)
    return Row(
        "streams by times of one stream",
        name,
        len(rows),
        "%",
        figures[True],
        {f"{key}, no contention": value for key, value in figures[False].items()},
        {"makespan": 6.0},
    )


def alone_rows(programs: Sequence[tuple[str, TracedProgram]]) -> Iterator[Row]:
    """Yield the rows of all pairs of programs of one network."""
    for name, alone in programs:
        for other, beside in programs:
            if name == other and alone is not beside:
                row = alone_row(name, alone, beside)
                if row is not None:
                    yield row


def captured_launches(program: TracedProgram) -> list[Ints]:
    """Return the operators of each launch of a captured graph: a launch, and those after it that take no host time."""
    assert program.lead is not None
    assert program.own is not None
    takes_none = (program.lead == 0) & (program.own == 0)
    bounds = program.thread_ptr.tolist()
    launches: list[Ints] = []
    for first, last in pairwise(bounds):
        ops: list[int] = []
        for row in range(first, last):
            action = int(program.action[row])
            if action == LAUNCH and takes_none[row] and ops:
                ops.append(int(program.argument[row]))
            elif action not in (RECORD, WAIT) or not takes_none[row]:
                launches.append(np.array(ops))
                ops = [int(program.argument[row])] if action == LAUNCH else []
        launches.append(np.array(ops))
    n_own = program.of_trace.n_own
    return [ops for ops in launches if len(ops) > 1 and (ops < n_own).any()]


def _n_streams(program: TracedProgram) -> int:
    return len({(row["device"], row["stream"]) for row in (op.attributes for op in _own(program))})


def _own(program: TracedProgram) -> list[Operator]:
    return list(program.graph.operators[: program.of_trace.n_own])


def _keys(program: TracedProgram) -> list[Hashable]:
    """Return name and launch shape of each operator that was launched in the step."""
    return [(name, op.kernels, op.nbytes) for name, op in zip(program.of_trace.kernels, _own(program), strict=True)]


def _spans(trace: Trace, n_ops: int) -> tuple[Floats, Floats]:
    """Return start and end of each operator in us."""
    kernels = trace.kind == KERNEL
    starts = np.zeros(n_ops)
    ends = np.zeros(n_ops)
    starts[trace.item[kernels]] = trace.start[kernels]
    ends[trace.item[kernels]] = trace.end[kernels]
    return starts, ends


def _span(starts: Floats, ends: Floats, ops: Ints) -> float:
    return float(ends[ops].max() - starts[ops].min())
