"""A walk of changes to a candidate, judged by a quick model of its makespan: operators share a device in proportion.

An operator starts when the one before it on its stream has ended, its inputs are there, and the host has launched it.
Operators that run on a device at once all slow down by the sum of their loads, if that is above 1.
"""

from functools import cache
from math import inf
from typing import Final

import numpy as np

from simsched.base.errors import ClusterError
from simsched.base.jit import Column, Row, Rows, Table, f8, i4, i8, length, native, piece
from simsched.model import Cluster, CostModel, Device, Floats, Ints, Kernel, OpGraph, occupancy, times_by_device
from simsched.model.launches import kernels_on
from simsched.schedulers.instance import EdgeEnd, transfer, ways


class Op(Row):
    """An operator: the begins of its `inputs` and `readers`, up to the next one's; and the model's progress with it."""

    ready: f8  # time in us when it is launched and its inputs are there, as far as known
    left: f8  # remaining us of the operator
    first_input: i4
    first_reader: i4
    missing: i4  # number of operators that it waits for
    behind: i4  # the next one on its stream, or -1


class WalkCost(Row):
    """An operator on a device: its us alone, the part that it fills, and the host's us to launch it."""

    time: f8
    load: f8
    issue: f8


class WalkPlace(Row):
    """A device, the load of its running operators, and the us that its host has spent on launches."""

    gap: f8
    hop: f8
    loaded: f8
    issued: f8


class Draw(Row):
    """The random numbers of a step: uniform in [0, 1), but for the patience, which is exponential of mean 1."""

    guided: f8
    op: f8
    move: f8
    a: f8  # the move takes these four
    b: f8
    c: f8
    d: f8
    patience: f8


class Move(Row):
    """A kind of change: the draw below which it is chosen, the number of its uses, and of those that improved."""

    below: f8
    tries: i8
    wins: i8


class Walked(Table):
    """The candidate, and the graph and the cluster as the model sees them."""

    now: f8
    makespan: f8
    temperature: f8  # us
    n_ops: i8
    n_devices: i8
    n_streams: i8
    n_path: i8
    n_steps: i8
    n_waiting: i8
    n_running: i8
    candidate: Column[i8]  # the four columns that follow, one after the other
    order: Column[i8]
    place: Column[i8]
    device: Column[i8]
    stream: Column[i8]
    path: Column[i8]
    draws: Rows[Draw]
    kept: Column[i8] = length("4 * n_ops")  # as of the last change taken
    moves: Rows[Move] = length("8")
    ops: Rows[Op] = length("n_ops + 1")
    inputs: Column[i4]
    readers: Rows[EdgeEnd]
    costs: Rows[WalkCost]  # by device and operator
    devices: Rows[WalkPlace]
    latency: Column[f8]  # from each device to each other; inf: not linked
    bandwidth: Column[f8]
    last: Column[i4] = length("n_devices * n_streams")  # operator of each stream
    waiting: Column[i4] = length("n_ops")  # operators that wait for their time alone
    running: Column[i4] = length("n_ops")


@native
def makespan_of(s: Walked) -> float:
    """Return the makespan in us of the candidate by the model; inf where a copy has no way."""
    _line_up(s)
    s.now = 0.0
    s.n_running = 0
    while s.n_waiting > 0 or s.n_running > 0:
        then = inf  # when next an operator starts or ends
        for k in range(s.n_waiting):
            then = min(then, s.ops[s.waiting[k]].ready)
        for k in range(s.n_running):
            u = s.running[k]
            then = min(then, s.now + s.ops[u].left * max(1.0, s.devices[s.device[u]].loaded))
        if then == inf:
            return inf
        later = then * (1.0 + 1e-9)
        _run_until(s, then, later)
        _start_ready(s, later)
    return s.now


@native
def _line_up(s: Walked) -> None:
    """Put every operator after the one before it on its stream."""
    s.n_waiting = 0
    for d in range(s.n_devices):
        s.devices[d].issued = 0.0
        s.devices[d].loaded = 0.0
    for lane in range(s.n_devices * s.n_streams):
        s.last[lane] = -1
    for k in range(s.n_ops):
        v = s.order[k]
        op = s.ops[v]
        device = s.devices[s.device[v]]
        device.issued += s.costs[s.device[v] * s.n_ops + v].issue
        op.ready = 0.0
        op.missing = 1 + s.ops[v + 1].first_input - op.first_input
        op.behind = -1
        lane = s.device[v] * s.n_streams + s.stream[v]
        if s.last[lane] >= 0:
            s.ops[s.last[lane]].behind = v
            op.missing += 1
        s.last[lane] = v
        _arrive(s, v, device.issued)


@native
def _run_until(s: Walked, then: float, later: float) -> None:
    """Run until a time; release operators whose waits end then, or a rounding error later."""
    n = s.n_running
    for k in range(n):
        op = s.ops[s.running[k]]
        slower = max(1.0, s.devices[s.device[s.running[k]]].loaded)
        is_over = s.now + op.left * slower <= later
        if is_over:
            op.left = -1.0
        else:
            op.left = op.left - (then - s.now) / slower
    s.now = then
    s.n_running = 0
    for k in range(n):
        u = s.running[k]
        if s.ops[u].left < 0.0:
            _end(s, u)
        else:
            s.running[s.n_running] = u
            s.n_running += 1


@native
def _end(s: Walked, u: int) -> None:
    """Release the operators that wait for an operator."""
    here = s.device[u]
    device = s.devices[here]
    device.loaded -= s.costs[here * s.n_ops + u].load
    for k in range(s.ops[u].first_reader, s.ops[u + 1].first_reader):
        edge = s.readers[k]
        there = s.device[edge.op]
        arrival = s.now
        if there != here or s.stream[edge.op] != s.stream[u]:
            copy = transfer(edge, here, there, s.n_devices, s.latency, s.bandwidth)
            arrival += s.devices[there].hop + copy
        _arrive(s, edge.op, arrival)
    if s.ops[u].behind >= 0:
        _arrive(s, s.ops[u].behind, s.now + device.gap)


@native
def _arrive(s: Walked, v: int, time: float) -> None:
    """Let something that an operator waits for be there."""
    op = s.ops[v]
    op.ready = max(op.ready, time)
    op.missing -= 1
    if op.missing == 0:  # it waits for its time alone
        s.waiting[s.n_waiting] = v
        s.n_waiting += 1


@native
def _start_ready(s: Walked, later: float) -> None:
    """Start operators that wait for no later time."""
    k = 0
    while k < s.n_waiting:
        v = s.waiting[k]
        op = s.ops[v]
        device = s.devices[s.device[v]]
        if op.ready > later:
            k += 1
            continue
        s.n_waiting -= 1
        s.waiting[k] = s.waiting[s.n_waiting]
        cost = s.costs[s.device[v] * s.n_ops + v]
        op.left = cost.time
        device.loaded += cost.load
        s.running[s.n_running] = v
        s.n_running += 1


_RELOCATE, _REORDER, _EXCHANGE, _FOLLOW, _CHAIN, _CROSS, _GATHER, _CLEAR = range(8)
GUIDED: Final = 0.3
"""How often the operator to change is one of the critical path."""
_NEAR: Final = 20
"""Places in the launch order within which operators exchange lanes, or are cleared away."""
_LONGEST_CHAIN: Final = 8
_SPAN: Final = 40
"""Places over which two lanes are exchanged, at most, if not to the end."""


@piece("search")
def walk(s: Walked) -> None:
    """Take steps from the candidate on: changes that the model calls better, or not too much worse."""
    now = makespan_of(s)
    _copy(s.candidate, s.kept, 4 * s.n_ops)
    for step in range(s.n_steps):
        draw = s.draws[step]
        m = 0
        guided = s.n_path > 0 and draw.guided < GUIDED
        if guided:
            op = s.path[int(draw.op * s.n_path)]
        else:
            op = int(draw.op * s.n_ops)
        while draw.move >= s.moves[m].below:
            m += 1
        _change(s, m, op, draw)
        makespan = makespan_of(s)
        move = s.moves[m]
        move.tries += 1
        if makespan < now:
            move.wins += 1
        if makespan <= now + s.temperature * draw.patience:
            now = makespan
            _copy(s.candidate, s.kept, 4 * s.n_ops)
        else:
            _copy(s.kept, s.candidate, 4 * s.n_ops)
    s.makespan = now


@native
def _copy(source: Column[i8], target: Column[i8], n: int) -> None:
    for i in range(n):
        target[i] = source[i]


@native
def _change(s: Walked, move: int, op: int, draw: Draw) -> None:
    """Make one move around an operator."""
    device = int(draw.a * s.n_devices)
    stream = int(draw.b * s.n_streams)
    if move == _RELOCATE:
        s.device[op] = device
        s.stream[op] = stream
    if move in (_RELOCATE, _REORDER):
        _reorder(s, op, draw.c)
    elif move == _EXCHANGE:
        to = s.place[op] + int(draw.a * (2 * _NEAR + 1)) - _NEAR
        other = s.order[min(s.n_ops - 1, max(0, to))]
        s.device[op], s.device[other] = s.device[other], s.device[op]
        s.stream[op], s.stream[other] = s.stream[other], s.stream[op]
    elif move == _FOLLOW:
        _follow(s, op, draw)
    elif move == _CHAIN:
        _chain(s, op, draw)
    elif move == _CROSS:
        _cross(s, op, int(draw.a * s.n_ops), draw)
    elif move == _GATHER and s.n_path > 1:
        first = int(draw.a * (s.n_path - 1))
        for k in range(first, first + 2 + int(draw.b * (s.n_path - first - 1))):
            s.device[s.path[k]] = s.device[op]
            s.stream[s.path[k]] = s.stream[op]
    elif move == _CLEAR:
        near = 1 + int(draw.a * (_NEAR - 1))
        for k in range(max(0, s.place[op] - near), min(s.n_ops, s.place[op] + near + 1)):
            v = s.order[k]
            if v != op and s.device[v] == s.device[op] and s.stream[v] == s.stream[op]:
                s.stream[v] = stream


@native
def _reorder(s: Walked, op: int, draw: float) -> None:
    """Launch an operator at another place that its producers and consumers leave."""
    first = 0
    last = s.n_ops - 1
    for k in range(s.ops[op].first_input, s.ops[op + 1].first_input):
        first = max(first, s.place[s.inputs[k]] + 1)
    for k in range(s.ops[op].first_reader, s.ops[op + 1].first_reader):
        last = min(last, s.place[s.readers[k].op] - 1)
    at = s.place[op]
    to = first + int(draw * (last - first + 1))
    step = 1 if to > at else -1
    while at != to:
        s.order[at] = s.order[at + step]
        s.place[s.order[at]] = at
        at += step
    s.order[at] = op
    s.place[op] = at


@native
def _follow(s: Walked, op: int, draw: Draw) -> None:
    """Put an operator where one that it reads from, or that reads from it, is."""
    first_input = s.ops[op].first_input
    first_reader = s.ops[op].first_reader
    n_in = s.ops[op + 1].first_input - first_input
    n_out = s.ops[op + 1].first_reader - first_reader
    if n_in + n_out == 0:
        return
    k = int(draw.c * (n_in + n_out))
    if k < n_in:
        near = s.inputs[first_input + k]
    else:
        near = s.readers[first_reader + k - n_in].op
    s.device[op] = s.device[near]
    if draw.d < 0.5:
        s.stream[op] = s.stream[near]
    else:
        s.stream[op] = int(draw.b * s.n_streams)


@native
def _chain(s: Walked, op: int, draw: Draw) -> None:
    """Put an operator, one that reads from it, one that reads from that and so on, on one stream."""
    part = draw.d
    for _ in range(2 + int(draw.c * (_LONGEST_CHAIN - 1))):
        s.device[op] = int(draw.a * s.n_devices)
        s.stream[op] = int(draw.b * s.n_streams)
        first = s.ops[op].first_reader
        onward = s.ops[op + 1].first_reader - first
        if onward == 0:
            return
        part *= onward
        op = s.readers[first + int(part)].op
        part -= int(part)  # the remainder is as random


@native
def _cross(s: Walked, op: int, other: int, draw: Draw) -> None:
    """Let the lanes of two operators exchange their launches from the first on, for a while or to the end."""
    device = s.device[op]
    stream = s.stream[op]
    to_device = s.device[other]
    to_stream = s.stream[other]
    start = s.place[op]
    end = s.n_ops
    if draw.b < 0.5:
        end = min(end, start + 2 + int(draw.c * (_SPAN - 2)))
    for k in range(start, end):
        v = s.order[k]
        if s.device[v] == device and s.stream[v] == stream:
            s.device[v] = to_device
            s.stream[v] = to_stream
        elif s.device[v] == to_device and s.stream[v] == to_stream:
            s.device[v] = device
            s.stream[v] = stream


_LEAST: Final = 0.05  # least probability of a move, whatever it has been worth
_STEPS: Final = 10.0  # of a walk at first
_MOST_STEPS: Final = 32
_MOST_WORK: Final = 20_000  # steps times operators
_ENOUGH: Final = 0.4  # of the walks accepted
_FURTHER: Final = 1.3


class Walk:
    """Changes a candidate many times over, judged by a model that knows devices as shared and hosts as quick.

    Parameters
    ----------
    rows
        Launch order, places in it, devices and streams of a candidate, shape (4, n_ops); it changes them in place.
    streams
        Streams of each device that it may use.
    graph, cluster, cost
        The graph, the cluster and the cost model.
    captured
        Whether the candidate runs as a captured graph: no host launches its operators one by one.

    Notes
    -----
    Moves: ``relocate`` an operator to any stream, device and place; ``reorder`` its launch; ``exchange`` two operators
    that are launched about the same time; ``follow`` a producer or a reader; put a ``chain`` of readers on any stream;
    ``cross`` two streams: they exchange their later launches; ``gather`` a stretch of the critical path on one stream;
    ``clear`` the stream around an operator. Operators stay after all their producers. O(V (streams in use) + E) for
    each step.
    """

    def __init__(
        self, rows: Ints, streams: int, graph: OpGraph, cluster: Cluster, cost: CostModel, *, captured: bool
    ) -> None:
        n = len(graph)
        n_devices = len(cluster)
        times = times_by_device(graph, cluster, cost)
        costs = np.zeros((n_devices, n), WalkCost.dtype)
        devices = np.zeros(n_devices, WalkPlace.dtype)
        for row, place, device, alone in zip(costs, devices, cluster.devices, times, strict=True):
            loads = _loads(graph, device)
            launches = np.diff(kernels_on(graph, device).ptr)
            if captured:
                place["gap"], place["hop"] = (device.graph_node,) * 2
            else:
                place["gap"] = device.gap
                place["hop"] = device.hop
            row["time"] = np.where(np.isnan(loads), np.inf, alone) + (launches - 1) * place["gap"]  # inf: does not fit
            row["load"] = np.nan_to_num(loads)
            if captured:
                row["issue"] = 0.0
            else:
                row["issue"] = launches * device.launch + device.record
        latency, bandwidth = ways(cluster)
        in_ptr, incoming = graph.incoming
        out_ptr, outgoing = graph.outgoing
        readers = np.zeros(len(graph.src), EdgeEnd.dtype)
        readers["op"] = graph.dst[outgoing]
        readers["nbytes"] = graph.edge_nbytes[outgoing]
        readers["us"] = np.nan_to_num(graph.edge_transfer[outgoing], nan=-1.0)
        self._table = table = Walked(
            n_ops=n,
            n_devices=n_devices,
            n_streams=streams,
            candidate=rows,
            order=rows[0],
            place=rows[1],
            device=rows[2],
            stream=rows[3],
            inputs=graph.src[incoming].astype(np.int32),
            readers=readers,
            costs=costs,
            devices=devices,
            latency=latency,
            bandwidth=bandwidth,
        )
        table["ops"]["first_input"] = in_ptr
        table["ops"]["first_reader"] = out_ptr
        self._moves = table["moves"]
        self._moves["below"] = np.linspace(0.0, 1.0, len(self._moves) + 1)[1:]
        self._most = float(min(_MOST_STEPS, max(1, _MOST_WORK // n)))
        self._steps = min(_STEPS, self._most)

    def change(self, path: Ints, temperature: float, rng: np.random.Generator) -> float:
        """Change the candidate step by step; return the makespan in us by the model.

        Parameters
        ----------
        path
            The operators of the critical path of the candidate, or of one like it.
        temperature
            Temperature in us: a candidate that the model calls worse by d is taken with probability exp(-d /
            temperature).
        """
        table = self._table
        steps = int(self._steps)
        draws = rng.random((steps, Draw.dtype.itemsize // 8))
        draws[:, -1] = rng.standard_exponential(steps)
        table["path"] = path
        table["draws"] = draws.view(Draw.dtype)
        table.n_path = len(path)
        table.n_steps = steps
        table.temperature = temperature
        walk(table)
        return table.makespan

    def adapt(self, accepted: float) -> None:
        """Make walks longer where the simulator accepts most of the model's proposals, else shorter.

        Moves that make the candidate better by the model become more likely.
        """
        if accepted > _ENOUGH:
            steps = self._steps * _FURTHER
        else:
            steps = self._steps / _FURTHER
        self._steps = min(self._most, max(1.0, steps))
        moves = self._moves
        rate = (moves["wins"] + 2) / (moves["tries"] + 10)
        chance = np.maximum(rate / rate.sum(), _LEAST)
        moves["below"] = np.cumsum(chance / chance.sum())
        moves["below"][-1] = 1.0
        moves["tries"] //= 2
        moves["wins"] //= 2


def _loads(graph: OpGraph, device: Device) -> Floats:
    """Return the part of a device that each operator fills, NaN if it does not fit, shape (n_ops,).

    An operator's utilization; or its kernels', weighted by their time, in blocks relative to the device's capacity.
    """
    loads = np.nan_to_num(graph.utilization) * device.contention

    @cache
    def hold(*shape: int) -> float:
        try:
            return float(occupancy(device, Kernel(1, *shape)).blocks * device.sms)
        except ClusterError:
            return np.nan

    launches = kernels_on(graph, device)
    rows = np.flatnonzero(launches.has_shape)
    if len(rows):
        columns = (launches.threads, launches.registers, launches.shared_memory)
        shapes = zip(*(column[rows].tolist() for column in columns), strict=True)
        room = np.array([hold(*shape) for shape in shapes])
        filled = launches.share[rows] * np.minimum(1.0, launches.blocks[rows] / room) * device.contention
        op = launches.op[rows]
        loads[op] = 0.0
        np.add.at(loads, op, filled)
    return loads
