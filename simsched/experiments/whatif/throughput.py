"""`throughput`: how many requests per second a plan serves, several of them in flight."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from simsched.base.codec import write
from simsched.base.errors import WhatIfError
from simsched.base.limits import require_count
from simsched.base.units import SECOND, format_time
from simsched.experiments.result import Finding, table_of
from simsched.model import Cluster, CostModel, Floats, Ints, Schedule, Target, bind
from simsched.model.graph.beside import side_by_side
from simsched.model.launches import launches_beside
from simsched.model.program import ACTIONS, COPY, LAUNCH, RECORD, WAIT, Copies, Program
from simsched.model.trace import Trace
from simsched.model.trace.timeline import KERNEL
from simsched.simulator.demand import placed_operator_times
from simsched.simulator.simulate import program_for, simulate

# rounds of all slots at first, and of very many instructions
_ROUNDS = 10
_FEWEST = 5
_LEAST: Final = 32  # requests at first
_ENOUGH: Final = 2**16  # instructions of all requests beyond which no more are added to let the period settle
_MOST: Final = 2**24  # instructions that are still simulated
# relative differences
_EXACT = 1e-9
_SETTLED = 3e-3
_LONGEST: Final = 256  # requests in a pattern


@dataclass(frozen=True, repr=False, eq=False)
class Throughput(Finding):
    """Throughput and latency of a schedule with several requests in flight; prints as a table, plots its times.

    Parameters
    ----------
    graph, cluster
        Names of the graph and the cluster.
    in_flight
        Requests under way at a time.
    requests_per_s, period_us
        Requests that end per second, and the mean time in us between the ends of consecutive requests.
    latency_us
        Time in us from the begin of a request (the end of the request before it in its slot) to its end.
    alone_us
        Makespan in us of one request on an idle cluster.
    requests
        Requests that were simulated.
    settled
        Whether the period had settled by then (see `throughput`).
    """

    VIEW = "throughput"
    FORMAT = "simsched.throughput"
    RETIRED = dict.fromkeys(("bound_by", "shares"), "simulate the schedule, and ask its trace what is busy")
    in_flight: int
    requests_per_s: float
    period_us: float
    latency_us: float
    alone_us: float
    requests: int
    settled: bool

    def records(self) -> list[dict[str, Any]]:
        """Return the figures as one row of plain values."""
        return [write(self)]

    def table(self) -> Any:
        """Return the figures as a table of texts."""
        times = {"period": self.period_us, "latency": self.latency_us, "alone": self.alone_us}
        rows = [
            ("requests per second", f"{self.requests_per_s:,.1f}"),
            *((k, format_time(us)) for k, us in times.items()),
        ]
        if self.settled:
            note = ""
        else:
            note = "the period had not settled"
        title = f"{self.graph} on {self.cluster}, {self.in_flight} in flight"
        return table_of(title, ("", "value"), rows, note=note)


def throughput(
    plan: Schedule | Program, cluster: Target, in_flight: int = 1, cost: CostModel | None = None
) -> Throughput:
    """Return how many requests a plan serves per second in a closed loop.

    Parameters
    ----------
    plan, cluster, cost
        As in `simulate`.
    in_flight
        Requests under way at a time: as one ends the next one begins.

    Returns
    -------
    Throughput

    Raises
    ------
    WhatIfError
        If `in_flight` is no whole number of at least 1, if so many requests are too large to simulate, or if they take
        no time.
    ScheduleError, DeadlockError, ClusterError
        As `simulate` does.

    Notes
    -----
    *The run* is the schedule's program once per request. Each of the `in_flight` slots has its own streams; the host
    threads issue request after request, as far ahead as they can: nothing but a barrier or a sync holds them up.
    Request r + `in_flight` waits on the device for the end of request r. With one in flight the period is thus the
    makespan of a request whose launches were issued in time, or the host's time to issue it, if that is longer; on a
    cluster without overheads it is the makespan. Slots share the device, the hardware queues that streams map onto, the
    links and the host threads. The first requests begin spread over the time of one alone: requests that began together
    could stay in step for ever, all of them on one device at a time.

    *Joining* takes no operator, and no event where a request begins and ends on one stream. Otherwise of the streams
    on which a request ends the last waits for the others, and the streams on which the next one begins wait for it:
    one record and one wait for each of them, which host and device pay for (`record`, `wait`, `hop`), on other
    devices too: that a request has ended is a message of no bytes, not a copy.

    *Stages* keep their barriers. One host thread per device issues all requests, and a barrier waits for all that runs
    on its device, of other requests too: on one device they overlap by no more than the last stage of one and the first
    of the next, on several as a pipeline.

    *A captured graph* is launched once per request. The simulator captures all requests as one graph, which is launched
    once; the host's time for each is an operator without load of the length `graph_launch`, on its own stream, that the
    request waits for. So a request begins no earlier than `graph_node` after its launch, and after the end of the
    request before it in its slot: the device's own time between two graphs is unknown and left out.

    *The period* is measured between the ends of requests, in order of time, without the first requests, and without the
    last ones, which run beside fewer others. Where the ends repeat to 1e-9 after some number of requests, the period is
    the pattern's. Otherwise it is the mean over the last two thirds, in whole multiples of `in_flight` requests, if
    both halves of these agree to 0.3 %; if they do not, twice as many requests are simulated, up to some 65,000
    instructions (then `settled` is False).

    O(R E log E) for R requests of E instructions.

    >>> import simsched as ss
    >>> graph = ss.OpGraph([ss.Operator("a", time=30.0), ss.Operator("b", time=20.0)], [ss.Edge("a", "b")])
    >>> cluster = ss.Cluster.preset("a100").without_overheads()
    >>> found = throughput(ss.schedule(graph, cluster, "sequential"), cluster, in_flight=4)
    >>> round(found.requests_per_s), found.latency_us
    (80000, 50.0)
    """
    program, bare, alone, many = _in_flight(plan, cluster, in_flight, cost)
    requests = max(_LEAST, _ROUNDS * in_flight)
    most = max(_FEWEST * in_flight, _ENOUGH // len(program))
    while True:
        requests = min(requests, most)
        ends = _ends(simulate(many(requests), bare), requests, len(program.graph))[: requests - in_flight + 1]
        period, settled = steady_period(ends, in_flight)
        if settled or requests == most:
            break
        requests *= 2
    return Throughput(
        program.graph.name,
        bare.name,
        int(in_flight),
        _rate(1, period, program),
        period,
        in_flight * period,
        alone,
        requests,
        settled,
    )


def requests_per_s(
    plan: Schedule | Program, cluster: Target, in_flight: int = 1, cost: CostModel | None = None
) -> float:
    """Return an estimate of `throughput`'s requests per second, many times as quickly.

    Parameters
    ----------
    plan, cluster, in_flight, cost
        As in `throughput`.

    Returns
    -------
    float
        Requests per s: of five requests for each in flight, and twelve at least, all after the first two of each slot
        are counted over the time that they add.
    """
    program, bare, _, many = _in_flight(plan, cluster, in_flight, cost)
    few = max(4, 2 * in_flight)
    all_ = max(12, 5 * in_flight)
    added = simulate(many(all_), bare).makespan - simulate(many(few), bare).makespan
    return _rate(all_ - few, added, program)


def _rate(requests: int, us: float, program: Program) -> float:
    """Return requests per s."""
    if not us > 0:
        raise WhatIfError(f"requests of graph {program.graph.name!r} take no time: there is no throughput to speak of")
    return SECOND * requests / us


def _in_flight(
    plan: Schedule | Program, target: Target, in_flight: int, cost: CostModel | None
) -> tuple[Program, Cluster, float, Callable[[int], Program]]:
    """Return one request's program, the cluster, its makespan in us, and a function that makes the program of many."""
    require_count(WhatIfError, in_flight=in_flight)
    subject, cluster = bind(plan, target)
    program = program_for(subject, cluster)
    if _FEWEST * in_flight * len(program) > _MOST:
        fit = _MOST // (_FEWEST * len(program))
        raise WhatIfError(f"{in_flight} requests of {len(program)} instructions at a time are too many: {fit} would do")
    if program.partitions and in_flight > 1:
        raise WhatIfError("streams that are bound to SMs serve one request at a time: ask for in_flight=1")
    alone = simulate(program, cluster, cost).makespan
    times = placed_operator_times(program, cluster, cost)
    starts = np.arange(in_flight) * alone / in_flight
    launch = None
    first = cluster.devices[program.device[0]]
    if program.execution == "graph" and first.graph_launch > 0:  # `graph_node` comes before the operator of a launch
        launch = max(0.0, float(first.graph_launch - first.graph_node))
    return program, cluster, alone, lambda requests: repeat(program, times, starts, requests, launch)


def _ends(trace: Trace, requests: int, n_ops: int) -> Floats:
    """Return when requests ended, from the first to the last, shape (requests,)."""
    ends = np.zeros(requests)
    rows = np.flatnonzero((trace.kind == KERNEL) & (trace.op < requests * n_ops))
    np.maximum.at(ends, trace.op[rows] // n_ops, trace.end[rows])
    return np.sort(ends)


def steady_period(ends: Floats, in_flight: int) -> tuple[float, bool]:
    """Return the period in us of requests that end at some times, and whether it has settled.

    Three requests that end together every 30 us:

    >>> steady_period(np.repeat(np.arange(1.0, 20.0) * 30.0, 3), in_flight=3)
    (10.0, True)
    """
    n = len(ends)
    rounding = _EXACT * float(ends[-1])
    for m in range(1, min(n // 3, _LONGEST) + 1):
        over = ends[m:] - ends[:-m]
        if np.ptp(over[-max(2 * m, n // 3) :]) <= rounding:
            return float(over[-1]) / m, True
    third = n // 3 // in_flight * in_flight
    whole = ends[n - 1 - third * np.arange(3)]  # the last first
    later, earlier = -np.diff(whole)
    settled = bool(abs(later - earlier) <= _SETTLED * max(later, earlier))
    return float(whole[0] - whole[2]) / (2 * third), settled


Place = tuple[int, int]  # device and stream
_ALWAYS, _FIRST, _LATER = range(3)  # in all requests, in the first of each slot, in all but these


class _Instructions(NamedTuple):
    """Instructions of requests: of request r, in slot s, on ``stream + s * step``, with ``argument + r * stride``.

    `row` is the instruction of the program that it is; -1: none.
    """

    action: int
    device: int
    stream: int
    argument: int
    stride: int
    step: int
    when: int
    row: int = -1


_TABLE: Final = np.dtype([(name, np.int64) for name in _Instructions._fields])


def repeat(
    program: Program, times: Floats, starts: Floats, requests: int, graph_launch: float | None = None
) -> Program:
    """Return a program of many requests, of which request r + k begins when request r has ended.

    Parameters
    ----------
    program
        Program of one request.
    times
        Time of each operator in us, shape (n_ops,), to be written into the graph.
    starts
        Earliest begins of the first k requests in us, shape (k,): of k slots, each with its own streams.
    requests
        How many there are in all, at least k.
    graph_launch
        Time in us of an operator that represents the launch of a captured graph; None if no graph is captured.

    Returns
    -------
    Program
        Operator i of request r is operator ``r * n_ops + i``. After all requests' operators come k that end when a slot
        starts, and in a captured program one for each launch of a graph, on a separate stream.

    Notes
    -----
    Events join the requests of a slot: of the streams on which a request ends, the last waits for the others, and the
    streams on which the next request begins wait for that last one. A stream in both roles needs no event. O(requests
    (V + E)).
    """
    slots = len(starts)
    if graph_launch is None:
        launched = 0
    else:
        launched = requests
    width = np.zeros(len(program.devices), np.int64)  # streams of a request on each device, to the last one in use
    np.maximum.at(width, program.device, program.stream.astype(np.int64) + 1)
    before, behind, n_events = _joins(program, width.tolist(), slots, requests, launched > 0)
    devices, first = np.unique(program.device, return_index=True)
    threads = np.searchsorted(program.thread_ptr, first, side="right") - 1  # the first of several that act on a device
    thread_of = dict(zip(devices.tolist(), threads.tolist(), strict=True))
    tables = []
    for t, body in enumerate(np.split(_body(program, width, n_events), program.thread_ptr[1:-1])):
        ends = [np.array([row for row in rows if thread_of[row.device] == t], _TABLE) for rows in (before, behind)]
        request = np.concatenate([ends[0], body, ends[1]])
        number = np.repeat(np.arange(requests), len(request))
        every = np.tile(request, requests)
        every["stream"] += number % slots * every["step"]
        every["argument"] += number * every["stride"]
        tables.append(every[np.where(number < slots, every["when"] != _LATER, every["when"] != _FIRST)])
    table = np.concatenate(tables)
    copies = program.copies
    whose = np.repeat(np.arange(requests) * len(program.graph), len(copies.op))
    moved = Copies(
        np.asarray(np.tile(copies.op, requests) + whose, np.int32),
        np.tile(copies.device, requests),
        np.tile(copies.nbytes, requests),
        np.tile(copies.transfer, requests),
    )
    behind_all = np.append(starts, np.full(launched, graph_launch or 0.0))
    return Program(
        side_by_side(program.graph, times, requests, behind_all),
        program.devices,
        program.execution,
        np.append(0, np.cumsum([len(table) for table in tables])),
        table["action"],
        table["device"],
        table["stream"],
        table["argument"],
        moved,
        requests * n_events + slots,
        np.append(np.tile(program.priority, requests), np.zeros(slots + launched, np.int64)),
        _host_times(program.lead, table["row"], 0.0),
        _host_times(program.own, table["row"], np.nan),
        launches=launches_beside(program.launches, requests, len(behind_all)),
        partitions=program.partitions,
    )


def _host_times(times: Floats | None, row: Ints, of_others: float) -> Floats | None:
    """Return the host times of instructions that are rows of a program or, where that is -1, none of it."""
    if times is None:
        return None
    return np.where(row < 0, of_others, times[row])


def _outer_streams(program: Program) -> tuple[list[Place], list[Place]]:
    """Return the streams on which a request begins, and the streams on which it ends, in launch order."""
    graph = program.graph
    rows = np.flatnonzero(program.action == LAUNCH)
    row_of = np.empty(len(rows), np.int64)  # row by launch
    row_of[program.argument[rows]] = rows
    reads, is_read = (np.bincount(column, minlength=len(graph)) > 0 for column in (graph.dst, graph.src))
    begin = np.sort(row_of[program.launches.ptr[:-1][~reads]])
    end = np.sort(row_of[program.launches.ptr[1:][~is_read] - 1])[::-1]

    def places(at: Ints) -> list[Place]:
        return list(dict.fromkeys(zip(program.device[at].tolist(), program.stream[at].tolist(), strict=True)))

    return places(begin), places(end)[::-1]


def _joins(
    program: Program, width: Sequence[int], slots: int, requests: int, captured: bool
) -> tuple[list[_Instructions], list[_Instructions], int]:
    """Return the instructions before and after the instructions of each request, and the number of events."""
    begin, (*others, last) = _outer_streams(program)
    waiting = [place for place in begin if place != last]
    here = int(program.device[0])
    # after all requests' operators
    free = slots * width[here]
    launch = requests * len(program.launches)
    gathered = program.n_events
    done = program.n_events + len(others)
    launched = done + bool(waiting)
    n_events = launched + captured
    started = requests * n_events  # an event of each slot
    before = [
        _Instructions(LAUNCH, here, free, launch, 1, 1, _FIRST),
        _Instructions(RECORD, here, free, started, 1, 1, _FIRST),
        *(_Instructions(WAIT, *place, started, 1, width[place[0]], _FIRST) for place in begin),
    ]
    if captured:
        host = (here, free + slots)
        before.append(_Instructions(LAUNCH, *host, launch + slots, 1, 0, _ALWAYS))
        before.append(_Instructions(RECORD, *host, launched, n_events, 0, _ALWAYS))
        before += [_Instructions(WAIT, *place, launched, n_events, width[place[0]], _ALWAYS) for place in begin]
    end = done - slots * n_events  # of the request before in the slot
    before += [_Instructions(WAIT, *place, end, n_events, width[place[0]], _LATER) for place in waiting]
    gather = [(RECORD, *place, gathered + i) for i, place in enumerate(others)]
    gather += [(WAIT, *last, gathered + i) for i in range(len(others))]
    behind = [_Instructions(*row, n_events, width[row[1]], _ALWAYS) for row in gather]
    if waiting:
        behind.append(_Instructions(RECORD, *last, done, n_events, width[last[0]], _ALWAYS))
    return before, behind, n_events


def _body(program: Program, width: Ints, n_events: int) -> Any:
    """Return the instructions of a request as a table."""
    table = np.zeros(len(program), _TABLE)
    for name in ("action", "device", "stream", "argument"):
        table[name] = getattr(program, name)
    strides = np.full(len(ACTIONS), n_events)
    strides[LAUNCH] = len(program.launches)
    strides[COPY] = len(program.copies.op)
    table["stride"] = np.where(table["argument"] < 0, 0, strides[table["action"]])
    table["step"] = np.where(table["stream"] < 0, 0, width[table["device"]])
    table["row"] = np.arange(len(program))
    return table
