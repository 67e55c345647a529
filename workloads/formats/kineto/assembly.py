"""Graph and program of a step of a torch.profiler trace, from its operators and its instructions."""

from collections import defaultdict
from itertools import count, pairwise
from pathlib import Path

import numpy as np

from simsched.base.errors import FormatError, SimschedError
from simsched.model import INTENSITIES, Ints, OpGraph
from simsched.model.program import LAUNCH, RECORD, SYNC, Copies
from workloads.formats.kineto.collectives import short_name
from workloads.formats.kineto.events import MeasuredKind
from workloads.formats.kineto.issuing import IssuedStep
from workloads.formats.kineto.step import Silence, TracedStep
from workloads.formats.kineto.traced import Measured, TracedProgram


def assemble(step: TracedStep, issued: IssuedStep, *, by_streams: bool) -> TracedProgram:
    """Return the program of a step.

    Parameters
    ----------
    step, issued
        Operators and instructions.
    by_streams
        Whether the graph has an edge between neighbours on a stream.

    Raises
    ------
    FormatError
        If the instructions are not a program.
    """
    numbers = _numbers(step, issued)
    graph = _graph(step, issued, numbers, by_streams)
    columns, ptr = _instructions(step, issued, numbers)
    action, lane, argument, lead, own = np.array(columns, np.int64).T
    nowhere = max(stream for _, stream in step.places) + 1  # a stream without operators, for instructions of hosts
    place = np.array([*((step.devices.index(device), stream) for device, stream in step.places), (0, nowhere)])
    device, stream = place[lane].T
    stream = np.where(action == SYNC, -1, stream)
    no_size = np.zeros(0)
    no_device = np.zeros(0, np.int32)
    try:
        program = TracedProgram(
            graph,
            [device.name for device in step.cluster.devices],
            "events",
            ptr,
            action,
            device,
            stream,
            argument,
            Copies(no_device, no_device, no_size, no_size),
            len(issued.events_of) + issued.n_handed,
            0,
            lead / 1e3,
            own / 1e3,
        )
        program.check()
    except SimschedError as error:
        raise FormatError(f"{step.source}: {error}") from error
    program.__dict__["of_trace"] = _measurements(step, issued)
    return program


def _instructions(
    step: TracedStep, issued: IssuedStep, numbers: dict[int, int]
) -> tuple[list[tuple[int, int, int, int, int]], list[int]]:
    """Return rows of action, stream, argument, lead and own time, and the first row of each thread."""
    columns: list[tuple[int, int, int, int, int]] = []
    ptr = [0]
    n_events = len(issued.events_of)
    for thread in issued.threads:
        for action, lane, argument, lead, own in thread.rows:
            if action == LAUNCH:
                if argument >= 0:
                    op = argument
                else:
                    op = len(step.start) - 2 - argument
                columns.append((action, lane, numbers[op], lead, own))
                if op in issued.events_of:
                    columns.append((RECORD, lane, issued.events_of[op], 0, 0))
            else:
                if argument >= 0:
                    event = argument
                else:
                    event = n_events - 2 - argument
                columns.append((action, lane, event, lead, own))
        ptr.append(len(columns))
    if ptr[1] == 0:  # no operator lacks a call
        del ptr[0]
    return columns, ptr


def _measurements(step: TracedStep, issued: IssuedStep) -> Measured:
    own_times = list(zip(step.start[: step.n_own], step.end[: step.n_own], strict=True))
    begin = step.window.begin
    earlier = [(begin - 1, step.end[group[-1]]) for group in issued.ahead]
    holds = [(hold.begin, hold.end) for hold in issued.untraced]
    return Measured(
        cluster=step.cluster,
        step=step.window.step,
        n_waits=issued.n_waits,
        guessed_waits=issued.guessed_waits,
        n_lost=issued.n_lost,
        times=(np.array([*own_times, *earlier, *holds], np.int64) - begin) / 1e3,
        untraced_us=sum(hold.idle for hold in issued.untraced) / 1e3,
        n_early=int(step.starts_early.sum()),
        faults=+step.faults,
        collectives=step.collectives(),
        begin=begin,
        n_own=step.n_own,
        n_graphs=len(step.nodes),
        silence=_in_us(step.longest_silence()),
        is_stated=step.is_stated,
        blocking=+issued.blocking,
        ready=np.array(issued.ready) / 1e3,
        kernels=tuple(step.kind(op).name for op in range(step.n_own)),
    )


def _in_us(silence: Silence | None) -> tuple[float, float] | None:
    if silence is None:
        return None
    return silence.begin / 1e3, silence.length / 1e3


def _numbers(step: TracedStep, issued: IssuedStep) -> dict[int, int]:
    """Return the number in the graph of each operator: own ones, earlier work, holds."""
    numbers = {op: op for op in range(step.n_own)}
    numbers |= {group[-1]: step.n_own + k for k, group in enumerate(issued.ahead)}
    numbers |= {len(step.start) + k: len(numbers) + k for k in range(len(issued.untraced))}
    return numbers


def _graph(step: TracedStep, issued: IssuedStep, numbers: dict[int, int], by_streams: bool) -> OpGraph:
    kinds = step.activities.kinds
    ahead = issued.ahead
    untraced = issued.untraced
    names = _names(step, issued)
    src, dst = _edges(step, issued, numbers, by_streams)
    lanes = [step.lane_of[group[-1]] for group in ahead]
    lane_of = [*step.lane_of[: step.n_own], *lanes, *(hold.lane for hold in untraced)]
    own = step.activities.what[: step.n_own]
    code = np.concatenate([own, np.repeat([len(kinds), len(kinds) + 1], [len(ahead), len(untraced)])])
    nbytes = np.array([kind.nbytes or 0.0 for kind in kinds] + [0.0, 0.0])
    begins: dict[int, int] = {}
    earlier = []
    for lane, group in zip(lanes, ahead, strict=True):
        over = step.end[group[-1]]
        earlier.append(max(0, over - begins.get(lane, step.window.begin + step.lag)))
        begins[lane] = over
    holds = [hold.end - hold.begin for hold in untraced]
    links = np.array([kind.is_collective for kind in kinds] + [False, False])[code]
    places = [{"device": step.devices.index(device), "stream": stream} for device, stream in step.places]
    device_of = np.array([place["device"] for place in places])[lane_of]
    return OpGraph.from_columns(
        names,
        src,
        dst,
        edge_transfer=np.where(device_of[src] == device_of[dst], np.nan, 0.0),  # waits; copies are operators
        name=Path(step.source).name.split(".")[0] + str(step.window),
        kind=(code, [*map(_class_of, kinds), "earlier", "untraced"]),
        nbytes=nbytes[code],
        time=np.concatenate([step.times(), np.array(earlier) / 1e3, np.array(holds) / 1e3]),
        host=np.array(issued.hosts[: step.n_own] + [0] * (len(names) - step.n_own)) / 1e3,
        attributes=(lane_of, places),
        kernels=(code, [*step.launches(), (), ()]),
        intensity=np.where(links, INTENSITIES.index("link"), -1),
    )


def _names(step: TracedStep, issued: IssuedStep) -> list[str]:
    """Return the names of operators: short names of kernels with a number, then earlier work, then holds."""
    short = [short_name(kind.name) for kind in step.activities.kinds]
    counters = defaultdict[str, "count[int]"](count)
    own = step.activities.what[: step.n_own]
    names = [f"{short[code]}#{next(counters[short[code]])}" for code in own.tolist()]
    lanes = [step.lane_of[group[-1]] for group in issued.ahead]
    for k, lane in enumerate(lanes):
        device, stream = step.places[lane]
        if lane in lanes[k + 1 :]:
            part = f"part {k - lanes.index(lane) + 1} of "
        else:
            part = ""
        if len(step.devices) > 1:
            on = f" of device {device}"
        else:
            on = ""
        names.append(f"{part}earlier work on stream {stream}{on}")
    return names + [f"untraced#{k}" for k in range(len(issued.untraced))]


def _edges(step: TracedStep, issued: IssuedStep, numbers: dict[int, int], by_streams: bool) -> Ints:
    """Return the producers and the consumers of edges, shape (2, n_edges)."""
    holds = {hold.op: len(step.start) + k for k, hold in enumerate(issued.untraced)}
    edges: dict[tuple[int, int], None] = {}
    for lane in step.lanes:
        for a, b in pairwise([op for op in lane.ops if op in numbers]):
            middle = holds.get(b)
            if middle is not None:
                edges |= {(a, middle): None, (middle, b): None}
            elif by_streams:
                edges[a, b] = None
    edges |= {(hold, op): None for op, hold in holds.items()} | issued.edges
    return np.array([(numbers[a], numbers[b]) for a, b in edges], np.int64).reshape(-1, 2).T


def _class_of(kind: MeasuredKind) -> str:
    if kind.is_collective:
        return "collective"
    return kind.what
