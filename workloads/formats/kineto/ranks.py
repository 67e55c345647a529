"""Ranks of a distributed program: processes of one torch.profiler trace or several traces, as one program."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np

from simsched.base.errors import FormatError
from simsched.model import Cluster, Floats, Ints, OpGraph
from simsched.model.program import LAUNCH, RECORD, SYNC, WAIT, Copies
from workloads.formats.kineto.collectives import JointCollective, RankCollective, clock_shifts, meetings_of
from workloads.formats.kineto.events import Codes, Events
from workloads.formats.kineto.exchange_data import ExchangeData
from workloads.formats.kineto.records import TOLERANCE
from workloads.formats.kineto.traced import Measured, TracedProgram

_MOSTLY: Final = 0.9
"""Part of the kernels of a GPU that calls of one process must explain for all to be its own."""
_ALIKE: Final = 0.98
"""Part of the most kernels that a process explains, from which on another one that explains so many is as good."""
_SAME_CLOCK: Final = 1e9
"""Us by which the clocks of ranks without a common collective may be apart; further ones begin together."""


def by_process(events: Events) -> list[Events]:
    """Return the events of each process that launched work, in the order of the processes; ids are its own.

    A GPU belongs to the process whose calls have most of the correlation ids of its kernels, and started before them;
    of processes that are alike in that, of the one with the fewest GPUs so far. Where processes share one, each kernel
    belongs to the last call with its id that no other kernel took.
    """
    pids = Codes()
    process_of = np.array([pids[pid] for pid, _ in events.threads], np.int64)
    calls = events.calls
    acts = events.activities
    if len(calls):
        of_call = process_of[calls.thread]
    else:
        of_call = np.zeros(0, np.int64)
    launching = np.unique(of_call).tolist()
    if len(launching) < 2:
        return [events]
    owner = _owners(events, of_call, launching)
    users = [p for p in launching if (owner == p).any()]
    parts: list[Events] = []
    for p in users:
        operators, annotations = (
            rows.take(np.flatnonzero(process_of[rows.thread] == p)) if len(rows) else rows
            for rows in (events.operators, events.annotations)
        )
        its = calls.take(np.flatnonzero(of_call == p))
        syncs = {c: events.syncs[c] for c in its.correlation.tolist() if c in events.syncs}
        parts.append(
            replace(
                events,
                operators=operators,
                annotations=annotations,
                calls=its,
                syncs=syncs,
                activities=acts.take(np.flatnonzero(owner == p)),
                n_unusable=0 if parts else events.n_unusable,
            )
        )
    return parts or [events]


def _owners(events: Events, of_call: Ints, processes: Sequence[int]) -> Ints:
    """Return the process of each activity."""
    calls = events.calls
    acts = events.activities
    owner = np.full(len(acts), processes[0])
    starts: dict[int, dict[int, int]] = {}  # process -> correlation id -> start of its first call
    for p in processes:
        its = np.flatnonzero(of_call == p)
        its = its[np.argsort(calls.start[its], kind="stable")[::-1]]
        starts[p] = dict(zip(calls.correlation[its].tolist(), calls.start[its].tolist(), strict=True))
    ids = acts.correlation.tolist()
    begins = acts.start.tolist()
    keys = list(zip(acts.process.tolist(), acts.device.tolist(), strict=True))
    gpus: dict[tuple[int, int], list[int]] = defaultdict(list)
    for row in np.argsort(acts.start, kind="stable").tolist():
        gpus[keys[row]].append(row)
    n_gpus = Counter(dict.fromkeys(processes, 0))
    for key in sorted(gpus, key=lambda key: (key[1], key[0])):
        rows = gpus[key]
        fits = Counter(dict.fromkeys(processes, 0))
        for p in processes:
            fits[p] = sum(starts[p].get(ids[row], 2**62) <= begins[row] + TOLERANCE for row in rows)
        (_, most), (_, next_most) = fits.most_common(2)
        best = min((p for p in processes if fits[p] >= _ALIKE * most), key=lambda p: n_gpus[p])
        n_gpus[best] += 1
        is_shared = len({ids[row] for row in rows}) < _MOSTLY * len(rows) and next_most > (1 - _MOSTLY) * len(rows)
        if most < _MOSTLY * len(rows) and next_most > 0:
            is_shared = True
        owner[rows] = best
        if is_shared:
            used: set[tuple[int, int]] = set()
            for row in rows:
                able = [p for p in processes if starts[p].get(ids[row], 2**62) <= begins[row] + TOLERANCE]
                free = [p for p in able if (p, ids[row]) not in used] or able
                if free:
                    owner[row] = max(free, key=lambda p: starts[p][ids[row]])
                    used.add((int(owner[row]), ids[row]))
    return owner


@dataclass(slots=True)
class _Part:
    """A rank in the program of all: its program, and where its devices, operators and events are numbered from."""

    program: TracedProgram
    offset: float  # us by which it begins later than the first to begin
    device: int
    op: int
    event: int


def together(programs: Sequence[TracedProgram]) -> TracedProgram:
    """Return the program of several ranks: a collective begins its transfer when all of its ranks have arrived.

    Parameters
    ----------
    programs
        The program of each rank. The first rank sets the clock.

    Notes
    -----
    A collective becomes two operators: it arrives, which takes no time, and transfers, in the least time over the
    ranks. While it waits, its blocks take no places on the device.
    """
    if len(programs) == 1:
        return programs[0]
    ranks = [program.of_trace.collectives for program in programs]
    begins = [(program.of_trace.begin - programs[0].of_trace.begin) / 1e3 for program in programs]
    ends = [program.times[:, 1] + begin for program, begin in zip(programs, begins, strict=True)]
    meetings = meetings_of(ranks)
    offsets = np.array(begins) - clock_shifts(ranks, ends)
    offsets = np.where(np.abs(offsets) < _SAME_CLOCK, offsets, 0.0)
    offsets -= offsets.min()
    parts: list[_Part] = []
    devices = ops = events = 0
    for program, offset in zip(programs, offsets.tolist(), strict=True):
        parts.append(_Part(program, offset, devices, ops, events))
        devices = devices + len(program.devices)
        ops = ops + len(program.graph)
        events = events + program.n_events
    return _Together(parts, meetings, ops, events).program()


class _Together:
    """Puts the programs of ranks together; operators that arrive come after all others."""

    def __init__(self, parts: list[_Part], meetings: list[JointCollective], n_ops: int, n_events: int) -> None:
        self._parts = parts
        self._meetings = meetings
        self._n_ops = n_ops
        self._n_events = n_events
        self._arrival: dict[tuple[int, int], int] = {}  # rank and operator -> the number of its arrival
        self._peers: dict[tuple[int, int], list[int]] = {}
        self._transfer: dict[tuple[int, int], float] = {}
        self._data: dict[tuple[int, int], ExchangeData] = {}
        for meeting in meetings:
            for member in meeting.members:
                self._arrival[member] = len(self._arrival)
                self._transfer[member] = meeting.transfer
                self._data[member] = meeting.data
            for member in meeting.members:
                self._peers[member] = [self._arrival[other] for other in meeting.members if other != member]

    def program(self) -> TracedProgram:
        """Return the program."""
        cluster = self._cluster()
        rows: list[tuple[int, int, int, int, float, float]] = []  # action, device, stream, argument, lead, own
        ptr = [0]
        for rank, part in enumerate(self._parts):
            bounds = part.program.thread_ptr.tolist()
            for a, b in pairwise(bounds):
                rows += self._thread(rank, part, a, b)
                ptr.append(len(rows))
        action, device, stream, argument = np.array([row[:4] for row in rows], np.int64).T
        lead, own = np.array([row[4:] for row in rows]).T
        none = np.zeros(0)
        whole = np.zeros(0, np.int32)
        program = TracedProgram(
            self._graph(),
            [gpu.name for gpu in cluster.devices],
            "events",
            ptr,
            action,
            device,
            stream,
            argument,
            Copies(whole, whole, none, none),
            self._n_events + len(self._arrival),
            0,
            lead,
            own,
        )
        program.check()
        program.__dict__["of_trace"] = self._measurements(cluster)
        return program

    def _cluster(self) -> Cluster:
        devices = [gpu for part in self._parts for gpu in part.program.cluster.devices]
        if len({gpu.name for gpu in devices}) < len(devices):
            devices = [
                replace(gpu, name=f"rank{rank}.{gpu.name}")
                for rank, part in enumerate(self._parts)
                for gpu in part.program.cluster.devices
            ]
        return Cluster(tuple(devices), name=devices[0].model)

    def _thread(self, rank: int, part: _Part, a: int, b: int) -> Iterator[tuple[int, int, int, int, float, float]]:
        """Yield the instructions of a thread, with its collectives in two parts."""
        program = part.program
        assert program.lead is not None
        assert program.own is not None
        later = part.offset
        for k in range(a, b):
            action = int(program.action[k])
            argument = int(program.argument[k])
            stream = int(program.stream[k])
            device = int(program.device[k]) + part.device
            lead = float(program.lead[k])
            own = float(program.own[k])
            lead = lead + later
            later = 0.0
            if action == LAUNCH:
                arrival = self._arrival.get((rank, argument))
            else:
                arrival = None
            if arrival is not None:
                yield LAUNCH, device, stream, self._n_ops + arrival, lead, own
                yield RECORD, device, stream, self._n_events + arrival, 0.0, 0.0
                for other in self._peers[rank, argument]:
                    yield WAIT, device, stream, self._n_events + other, 0.0, 0.0
                lead = own = 0.0
            if action == LAUNCH:
                shift = part.op
            else:
                if action in (RECORD, WAIT, SYNC):
                    shift = part.event
                else:
                    shift = 0
            yield action, device, stream, argument + shift, lead, own

    def _graph(self) -> OpGraph:
        """Return the graph of all ranks."""
        kinds = Codes()
        shapes = Codes()
        places = Codes()
        rows: list[tuple[str, int, int, int, float, float, float, int]] = []
        edges: list[tuple[int, int]] = []
        arrivals: dict[int, tuple[str, int, int, int, float, float, float, int]] = {}
        for rank, part in enumerate(self._parts):
            graph = part.program.graph
            edges += zip((graph.src + part.op).tolist(), (graph.dst + part.op).tolist(), strict=True)
            for i, op in enumerate(graph.operators):
                name = f"rank{rank}/{op.name}"
                place = places[op.attributes["device"] + part.device, op.attributes["stream"]]
                time = self._transfer.get((rank, i), op.time or 0.0)
                rows.append(
                    (name, kinds[op.kind], shapes[op.kernels], place, time, op.nbytes, op.host, int(graph.intensity[i]))
                )
                arrival = self._arrival.get((rank, i))
                if arrival is not None:
                    arrivals[arrival] = (f"{name} arrives", kinds["arrival"], shapes[()], place, 0.0, 0.0, op.host, -1)
        edges += self._edges_of_arrivals(edges)
        rows += [arrivals[k] for k in range(len(arrivals))]
        names, kind, shape, at, times, nbytes, host, intensity = zip(*rows, strict=True)
        src, dst = np.array(edges, np.int64).reshape(-1, 2).T
        first = self._parts[0].program.graph.name
        device = np.array([place[0] for place in places])[list(at)]
        return OpGraph.from_columns(
            names,
            src,
            dst,
            edge_transfer=np.where(device[src] == device[dst], np.nan, 0.0),  # the collectives are the transfers
            name=f"{first} of {len(self._parts)} ranks",
            kind=(kind, list(kinds)),
            time=times,
            nbytes=nbytes,
            host=host,
            kernels=(shape, list(shapes)),
            intensity=np.array(intensity),
            attributes=(at, [{"device": device, "stream": stream} for device, stream in places]),
        )

    def _edges_of_arrivals(self, edges: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return edges from the producers of collectives to arrivals, and from arrivals to all ranks that they meet."""
        arrival_of = {self._parts[rank].op + op: self._n_ops + k for (rank, op), k in self._arrival.items()}
        added = [(a, arrival_of[b]) for a, b in edges if b in arrival_of]
        for member, k in self._arrival.items():
            transfer = self._parts[member[0]].op + member[1]
            added += [(self._n_ops + other, transfer) for other in (k, *self._peers[member])]
        return added

    def _measurements(self, cluster: Cluster) -> Measured:
        """Return the measured data; the time for which a collective waits is not its own."""
        of = [part.program.of_trace for part in self._parts]
        times = np.concatenate([part.program.times + part.offset for part in self._parts])
        collectives: list[RankCollective] = []
        arrived: Floats = np.zeros((len(self._arrival), 2))
        waiting = 0.0
        for (rank, op), k in self._arrival.items():
            row = times[self._parts[rank].op + op]
            arrived[k] = row[0]
            waiting += max(0.0, row[1] - row[0] - self._transfer[rank, op])
            row[0] = max(row[0], row[1] - self._transfer[rank, op])
        for rank, (part, one) in enumerate(zip(self._parts, of, strict=True)):
            for own in one.collectives:
                data = self._data.get((rank, own.op), own.data)
                collectives.append(own._replace(op=own.op + part.op, data=data))
        faults: Counter[str] = sum((one.faults for one in of), Counter[str]())
        return Measured(
            cluster=cluster,
            times=np.concatenate([times, arrived]),
            step=of[0].step,
            begin=of[0].begin,
            n_waits=sum(one.n_waits for one in of),
            guessed_waits=sum(one.guessed_waits for one in of),
            n_lost=sum(one.n_lost for one in of),
            untraced_us=sum(one.untraced_us for one in of),
            n_early=sum(one.n_early for one in of),
            faults=faults,
            collectives=tuple(collectives),
            n_own=len(times),
            silence=max((one.silence for one in of if one.silence), key=lambda one: one[1], default=None),
            n_graphs=sum(one.n_graphs for one in of),
            is_stated=all(one.is_stated for one in of),
            blocking=sum((one.blocking for one in of), Counter[str]()),
            ready=self._ready(times),
            kernels=self._kernels(),
            ranks=len(of),
            n_met=len(self._arrival),
            waiting_us=waiting,
            transfer_us=sum(self._transfer.values()),
        )

    def _ready(self, times: Floats) -> Floats:
        """Return the us from which on each operator could have started; for earlier work its start."""
        ready = np.array(times[:, 0])
        for part in self._parts:
            its = part.program.of_trace.ready
            ready[part.op : part.op + len(its)] = its + part.offset
        return ready

    def _kernels(self) -> tuple[str, ...]:
        """Return the full names of kernels; earlier work has the name of its operator."""
        names: list[str] = []
        for part in self._parts:
            own = part.program.of_trace.kernels
            names += [*own, *part.program.graph.names[len(own) :]]
        return tuple(names)


def one_of(parts: Sequence[Events], device: int | None, source: str) -> Events:
    """Return the events of the process that used a device, or of the only process.

    Raises
    ------
    FormatError
        If several processes ran something and the device does not tell which is meant.
    """
    if len(parts) == 1:
        return parts[0]
    fits = [part for part in parts if device is None or (part.activities.device == device).any()]
    if len(fits) != 1:
        numbers = sorted({number for part in parts for number in np.unique(part.activities.device).tolist()})
        raise FormatError(
            f"{source}: kernels ran on devices {', '.join(map(str, numbers))} for {len(parts)} processes; "
            "choose one with device="
        )
    return fits[0]
