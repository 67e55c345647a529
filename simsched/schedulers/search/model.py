"""A quick model of a candidate's makespan: operators share a device in proportion.

An operator starts when the one before it on its stream and all it reads from are over and there, and the host has
launched it. What runs on a device at once slows down alike by the sum of the loads, if that is above 1.
"""

from math import inf

from simsched.base.jit import Column, Row, Rows, Table, f8, i4, i8, length


class Op(Row):
    """An operator: where its `inputs` and `readers` begin, up to the next one's; how far the model is with it."""

    ready: f8  # when it is launched and its inputs are there, as far as that is known, in us
    left: f8  # us of its own
    first_input: i4
    first_reader: i4
    missing: i4  # what it waits for
    behind: i4  # the next one on its stream, or -1


class Reader(Row):
    """An edge: the operator that reads, and what is copied to it."""

    nbytes: f8
    exact: f8  # time in us, or -1
    op: i4


class Cost(Row):
    """An operator on a kind of device: us that it takes alone, part that it fills, us of the host to launch it."""

    time: f8
    load: f8
    issue: f8


class Device(Row):
    """A device, the load of what runs on it, and the us that its host has spent on launches."""

    gap: f8
    hop: f8
    loaded: f8
    issued: f8
    kind: i4


class Route(Row):
    """From a device to another one; latency inf: there is none."""

    latency: f8
    rate: f8


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
    """A kind of change: the draw below which it is chosen, how often it was, how often that made things better."""

    below: f8
    tries: i8
    wins: i8


class Walked(Table):
    """The candidate, and the graph and the cluster as the model sees them."""

    now: f8
    makespan: f8
    temperature: f8  # us
    guided: f8  # how often an operator of the path is changed
    n_ops: i8
    n_devices: i8
    n_streams: i8
    n_kinds: i8
    n_edges: i8
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
    inputs: Column[i4] = length("n_edges")
    readers: Rows[Reader] = length("n_edges")
    costs: Rows[Cost] = length("n_kinds * n_ops")
    devices: Rows[Device] = length("n_devices")
    routes: Rows[Route] = length("n_devices * n_devices")
    last: Column[i4] = length("n_devices * n_streams")  # operator of each stream
    waiting: Column[i4] = length("n_ops")  # for their time alone
    running: Column[i4] = length("n_ops")


def makespan_of(s: Walked) -> float:
    """Return the makespan in us of the candidate by the model; inf where a copy has no way."""
    _line_up(s)
    s.now, s.n_running = 0.0, 0
    while s.n_waiting > 0 or s.n_running > 0:
        then = _next_time(s)
        if then == inf:
            return inf
        later = then * (1.0 + 1e-9)
        _run_until(s, then, later)
        _start_ready(s, later)
    return s.now


def _line_up(s: Walked) -> None:
    """Put every operator behind the one before it on its stream."""
    s.n_waiting = 0
    for d in range(s.n_devices):
        s.devices[d].issued = 0.0
        s.devices[d].loaded = 0.0
    for lane in range(s.n_devices * s.n_streams):
        s.last[lane] = -1
    for k in range(s.n_ops):
        v = s.order[k]
        op, device = s.ops[v], s.devices[s.device[v]]
        device.issued += s.costs[device.kind * s.n_ops + v].issue
        op.ready = device.issued
        op.missing = s.ops[v + 1].first_input - op.first_input
        op.behind = -1
        lane = s.device[v] * s.n_streams + s.stream[v]
        if s.last[lane] >= 0:
            s.ops[s.last[lane]].behind = v
            op.missing += 1
        s.last[lane] = v
        if op.missing == 0:
            _wait(s, v)


def _wait(s: Walked, v: int) -> None:
    """Let an operator wait for its time alone."""
    s.waiting[s.n_waiting] = v
    s.n_waiting += 1


def _next_time(s: Walked) -> float:
    """Return when next an operator starts or ends, inf if never."""
    then = inf
    for k in range(s.n_waiting):
        then = min(then, s.ops[s.waiting[k]].ready)
    for k in range(s.n_running):
        u = s.running[k]
        then = min(then, s.now + s.ops[u].left * max(1.0, s.devices[s.device[u]].loaded))
    return then


def _run_until(s: Walked, then: float, later: float) -> None:
    """Run on; release those that wait for what is over then, or a rounding error later."""
    n_over, n = 0, s.n_running
    for k in range(n):
        u = s.running[k]
        op, slower = s.ops[u], max(1.0, s.devices[s.device[u]].loaded)
        if s.now + op.left * slower <= later:
            s.running[k] = -1 - u
            n_over += 1
        else:
            op.left -= (then - s.now) / slower
    s.now = then
    if n_over == 0:
        return
    s.n_running = 0
    for k in range(n):
        u = s.running[k]
        if u >= 0:
            s.running[s.n_running] = u
            s.n_running += 1
        else:
            _end(s, -1 - u)


def _end(s: Walked, u: int) -> None:
    """Tell those that wait for an operator that it is over."""
    here = s.device[u]
    device = s.devices[here]
    device.loaded -= s.costs[device.kind * s.n_ops + u].load
    for k in range(s.ops[u].first_reader, s.ops[u + 1].first_reader):
        edge = s.readers[k]
        there, arrival = s.device[edge.op], s.now
        if there != here:
            route = s.routes[here * s.n_devices + there]
            copy = edge.exact if edge.exact >= 0.0 else route.latency + edge.nbytes / route.rate
            arrival += s.devices[there].hop + copy
        elif s.stream[edge.op] != s.stream[u]:
            arrival += device.hop
        _arrive(s, edge.op, arrival)
    if s.ops[u].behind >= 0:
        _arrive(s, s.ops[u].behind, s.now + device.gap)


def _arrive(s: Walked, v: int, time: float) -> None:
    """Let something that an operator waits for be there."""
    op = s.ops[v]
    op.ready = max(op.ready, time)
    op.missing -= 1
    if op.missing == 0:
        _wait(s, v)


def _start_ready(s: Walked, later: float) -> None:
    """Start what waits for no later time."""
    k = 0
    while k < s.n_waiting:
        v = s.waiting[k]
        op, device = s.ops[v], s.devices[s.device[v]]
        if op.ready > later:
            k += 1
            continue
        s.n_waiting -= 1
        s.waiting[k] = s.waiting[s.n_waiting]
        cost = s.costs[device.kind * s.n_ops + v]
        op.left = cost.time
        device.loaded += cost.load
        s.running[s.n_running] = v
        s.n_running += 1
