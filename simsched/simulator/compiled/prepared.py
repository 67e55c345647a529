"""What all runs on a cluster share, and all runs of a program there: columns and rows, made once; and the engine."""

from typing import Any, Final, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from simsched.base.jit import Column, Row, Rows, Table, i1, i4, i8, length, piece
from simsched.model import COPY, WARP, Cluster, CostModel, Device, Floats, Ints, Program, default_cost
from simsched.model.cluster.routing import Routes
from simsched.model.program import BARRIER, LAUNCH, WAIT, Small
from simsched.model.trace import Load, Trace
from simsched.simulator import state
from simsched.simulator.compiled.memory import Array, Memory
from simsched.simulator.contention import Channel, Crowd
from simsched.simulator.state import State
from simsched.simulator.workload import Jitter, demand, factors


class Use(Row):
    """A stream in use, and what is in it."""

    first: i8  # number of its first instruction, those of all streams counted through
    device: i4
    stream: i4
    launches: i4
    copies: i4
    passes: i4  # instructions that pass a hardware queue


class Search(Table):
    """The instructions of a program, and the streams that are found in them, by device and stream."""

    n: i8
    n_devices: i8
    n_threads: i8
    n_lanes: i8  # -1: their numbers are too far apart for a table
    room: i8
    ahead: i8  # only one thread acts on each device
    thread_ptr: Column[i8]
    action: Column[i1]
    place: Column[i4]
    stream: Column[i4]  # -1: none
    lane_of: Column[i4] = length("n")
    lanes: Rows[Use] = length("n")
    top: Column[i8] = length("n_devices + 1")  # where the streams of each device begin in `number`
    thread: Column[i4] = length("n_devices")  # the last that acts on each device, from 1
    number: Column[i4] = length("room")


def streams_in_use(program: Program) -> Search:
    """Return the streams that the instructions of a program name; barriers and syncs are on none, whatever they say."""
    stream = program.stream
    nowhere = (program.action >= BARRIER) & (stream >= 0)
    if nowhere.any():
        stream = np.where(nowhere, np.int32(-1), stream)
    found = _search(program, stream, 4 * len(stream) + 4096)
    if found.n_lanes < 0:
        streams, ranks = np.unique(stream, return_inverse=True)
        ranks = ranks.reshape(-1) - (streams[0] < 0)
        found = _search(program, ranks.astype(np.int32), len(program.devices) * len(streams))
        found["lanes"]["stream"] = streams[streams >= 0][found["lanes"]["stream"]]
    return found


def _search(program: Program, stream: npt.NDArray[np.int32], room: int) -> Search:
    search = Search(
        n=len(stream), n_devices=len(program.devices), n_threads=len(program.thread_ptr) - 1, room=room,
        thread_ptr=program.thread_ptr, action=program.action, place=program.device, stream=stream,
    )  # fmt: skip
    find_lanes(search)
    return search


@piece("search for streams")
def find_lanes(s: Search) -> None:
    """Give the streams in use numbers by device and stream."""
    _measure(s)
    s.n_lanes = -1
    if s.top[s.n_devices] <= s.room:
        _number(s)
        _count(s)


def _measure(s: Search) -> None:
    """Find how many streams there could be, and whether one thread alone acts on each device."""
    s.ahead = 1
    for t in range(s.n_threads):
        for i in range(s.thread_ptr[t], s.thread_ptr[t + 1]):
            d = s.place[i]
            if s.stream[i] >= s.top[d + 1]:
                s.top[d + 1] = s.stream[i] + 1
            if s.thread[d] != t + 1:
                if s.thread[d]:
                    s.ahead = 0
                s.thread[d] = t + 1
    for d in range(s.n_devices):
        s.top[d + 1] += s.top[d]


def _number(s: Search) -> None:
    for i in range(s.n):
        if s.stream[i] >= 0:
            s.number[s.top[s.place[i]] + s.stream[i]] = 1
    s.n_lanes = 0
    for k in range(s.top[s.n_devices]):
        if s.number[k]:
            s.number[k] = s.n_lanes
            s.n_lanes += 1


def _count(s: Search) -> None:
    for i in range(s.n):
        s.lane_of[i] = -1
        if s.stream[i] >= 0:
            s.lane_of[i] = s.number[s.top[s.place[i]] + s.stream[i]]
            lane = s.lanes[s.lane_of[i]]
            lane.device, lane.stream = s.place[i], s.stream[i]
            lane.first += 1
            lane.launches += s.action[i] == LAUNCH
            lane.copies += s.action[i] == COPY
            lane.passes += s.action[i] in (LAUNCH, WAIT)
    first = 0
    for k in range(s.n_lanes):
        n, s.lanes[k].first = s.lanes[k].first, first
        first += n


_COSTS: Final = ("launch", "record", "wait", "copy", "barrier", "barrier")  # by action


def action_costs(cluster: Cluster) -> Floats:
    """Return the host time in us of each action on each device, shape (n_devices, n_actions)."""
    return np.array([[getattr(device, cost) for cost in _COSTS] for device in cluster.devices], np.float64)


def host_times(program: Program, cluster: Cluster) -> Floats:
    """Return the host time in us of each instruction: its own, or else that of the action on its device."""
    usual = action_costs(cluster)[program.device, program.action]
    return usual if program.own is None else np.where(np.isnan(program.own), usual, program.own)


class CopyRoutes(NamedTuple):
    """The routes of those copies whose times are not given.

    Parameters
    ----------
    of
        The row of each copy.
    source, target
        Where each row begins and ends, as positions in the cluster.
    routes
        By rows.
    """

    of: Small
    source: Ints
    target: Ints
    routes: Routes


def copy_routes(program: Program, cluster: Cluster) -> CopyRoutes | None:
    """Return the routes of copies, None if it needs none.

    Raises
    ------
    ClusterError
        If a copy has no way to its destination; of several the first in the program is named.
    """
    copies, n = program.copies, len(cluster.devices)
    moved = np.flatnonzero(np.isnan(copies.transfer))
    if not len(moved):
        return None
    rows = np.flatnonzero(program.action == COPY)
    source, of = np.zeros(len(copies.op), np.int64), np.zeros(len(copies.op), np.int32)
    source[program.argument[rows]] = program.device[rows]
    pairs, of[moved] = np.unique(source[moved] * n + copies.device[moved], return_inverse=True)
    routes = cluster.routes(pairs // n, pairs % n)
    if not routes.known.all():
        copy = program.argument[rows]
        first = copy[np.isnan(copies.transfer[copy]) & ~routes.known[of[copy]]][0]
        cluster.route(program.devices[source[first]], program.devices[copies.device[first]])
    return CopyRoutes(of, pairs // n, pairs % n, routes)


_MOST: Final = 2**62
_PLATFORM, _PLAN = "_platform", "_plan"  # where a cluster and a program keep their own


class Platform:
    """A cluster laid out for machine code.

    Attributes
    ----------
    columns
        Those of a `State` that are about devices and that it only reads.
    devices, crowds, channels
        Rows with which those columns begin: of channels the directions of links, then the copy engines of each device.
    lag
        Us until the device knows of a launch, and of a copy, shape (n_devices, 2).
    gap, hop, graph_node, graph_launch
        Us, by device.
    queues
        Hardware queues by device; as many as there could be streams where there is no contention.
    """

    def __init__(self, cluster: Cluster) -> None:
        devices = cluster.devices
        self.columns = {
            "cost": action_costs(cluster),
            "interference": np.array([device.interference for device in devices], np.float64),
            "room": np.array([_room(device) for device in devices], np.int64).view(state.Room.dtype),
        }
        self.devices = np.zeros(len(devices), state.Device.dtype)
        for name in ("contention", "interleave", "bandwidth", "copy_rate"):
            self.devices[name] = [getattr(device, name) for device in devices]
        self.devices["spread"], self.devices["latency"] = _column(devices, "block_spread", "kernel_latency").T
        for name in ("sms", "resident_kernels"):
            self.devices[name] = [min(int(getattr(device, name)), _MOST) for device in devices]
        self.crowds = np.zeros(len(devices), Crowd.dtype)
        self.crowds["sms"] = self.devices["sms"]
        self.crowds["most_warps"] = [min(device.threads_per_sm // WARP, _MOST) for device in devices]
        self.channels = np.zeros(len(cluster.channels) + len(devices), Channel.dtype)
        self.channels["capacity"] = [
            *(bandwidth for _, _, bandwidth in cluster.channels),
            *(device.copy_engines * device.copy_rate for device in devices),
        ]
        self.lag = np.array(
            [(on.on_the_way(on.launch), on.on_the_way(on.copy)) for on in devices]
        )  # of launches, of copies
        overheads = _column(devices, "gap", "hop", "graph_node", "graph_launch").T
        self.gap, self.hop, self.graph_node, self.graph_launch = overheads
        queues = [min(int(device.connections), _MOST) if device.contention else _MOST for device in devices]
        self.queues = np.array(queues, np.int64)
        self._cluster, self._routes = cluster, dict[bytes, Routes]()

    def routes(self, source: Ints, target: Ints) -> Routes:
        """Return the routes from some devices to others, found once."""
        key = source.tobytes() + target.tobytes()
        if key not in self._routes:
            self._routes[key] = self._cluster.routes(source, target)
        return self._routes[key]


def platform_of(cluster: Cluster) -> Platform:
    """Return the platform of a cluster, made when it is first asked for."""
    found: Platform | None = cluster.__dict__.get(_PLATFORM)
    if found is None:
        found = cluster.__dict__[_PLATFORM] = Platform(cluster)
    return found


def _column(devices: tuple[Device, ...], *names: str) -> npt.NDArray[np.float64]:
    return np.array([[getattr(device, name) for name in names] for device in devices], np.float64)


def _room(device: Device) -> list[int]:
    """Return the warps, blocks, registers and bytes of shared memory of a device."""
    room = (
        device.sms * (device.threads_per_sm // 32),
        device.sms * device.blocks_per_sm,
        device.sms * device.registers_per_sm,
        device.sms * device.shared_memory_per_sm,  # perhaps no whole number; what blocks take is one
    )
    return [int(min(left, _MOST)) for left in room]


class Plan:
    """A program laid out for a cluster.

    Parameters
    ----------
    program, cluster
        What is run, and on what. The program is checked: machine code trusts its columns.

    Raises
    ------
    ClusterError
        If a copy has no way to its destination.

    Attributes
    ----------
    launches
        Rows of `demand` for the default cost model, once they have been made.
    spare
        Runs that are over, to be used again.
    """

    def __init__(self, program: Program, cluster: Cluster) -> None:
        self.program, self.cluster = program.check(), cluster
        self.launches: Array | None = None
        self.spare: list[Memory] = []
        streams, copies = streams_in_use(program), program.copies
        lanes = self._streams = streams["lanes"][: streams.n_lanes]
        self._routes, n_devices = copy_routes(program, cluster), len(cluster.devices)
        self._begun, values = self._numbers(platform_of(cluster))
        self._values: dict[str, Any] = values | {
            "captured": program.execution == "graph", "ahead": streams.ahead, "thread_ptr": program.thread_ptr,
            "action": program.action, "argument": program.argument, "place": program.device,
            "lane_of": streams["lane_of"],
            "launch_op": program.launch_op, "copy_op": copies.op, "copy_device": copies.device,
            "copy_nbytes": copies.nbytes, "copy_exact": copies.transfer,
            "n_instructions": len(program), "n_ops": len(program.graph), "n_events": program.n_events,
            "n_lanes": len(lanes), "n_connections": len(self._begun["connections"]),
            "n_hosts": len(program.thread_ptr) - 1, "n_devices": n_devices,
            "n_timers": 1 << n_devices.bit_length(),
            "width": np.bincount(lanes["device"][lanes["launches"] > 0], minlength=1).max(),
        }  # fmt: skip
        if program.lead is not None or program.own is not None:
            lead = np.zeros(len(program)) if program.lead is None else program.lead
            self._values |= {"timed": 1, "lead": lead, "own": host_times(program, cluster)}
        if self._routes is not None:
            ptr, n_flows = self._routes.routes.channel_ptr, len(lanes)  # one flow at a time per stream
            self._values |= {
                "copy_route": self._routes.of, "n_channels": len(self._begun["channels"]) - n_flows,
                "most_flows": n_flows, "most_crossings": n_flows * (int(np.diff(ptr).max()) + 2),
            }  # fmt: skip

    def _numbers(self, platform: Platform) -> tuple[dict[str, Array], dict[str, Array]]:
        """Return what depends on the numbers of a cluster: rows with which columns begin, and columns."""
        begun = self._lanes(platform) | {"devices": platform.devices, "crowds": platform.crowds}
        values = dict(platform.columns)
        if self.program.execution == "graph":  # the one cost is that of launching it
            values["cost"] = np.zeros_like(values["cost"])
            values["cost"][0, 0] = platform.graph_launch[self.program.device[0]]
        if self._routes is not None:
            found = platform.routes(self._routes.source, self._routes.target)
            rate = platform.devices["copy_rate"][self._routes.source]
            routes = np.zeros(len(rate), state.Route.dtype)
            routes["latency"], routes["rate"] = found.latency, np.minimum(found.bandwidth, rate)
            routes["first"], routes["end"] = found.channel_ptr[:-1], found.channel_ptr[1:]
            values |= {"routes": routes, "route_channels": np.ascontiguousarray(found.channel, np.int32)}
            channels = platform.channels  # and behind them the flows
            begun["channels"] = np.zeros(len(channels) + len(self._streams), channels.dtype)
            begun["channels"]["capacity"][: len(channels)] = channels["capacity"]
        return begun, values

    def move(self, run: Memory, cluster: Cluster) -> None:
        """Let a `Memory` of this plan go on with another cluster, which differs in numbers alone, not in its routes."""
        begun, values = self._numbers(platform_of(cluster))
        for name, rows in begun.items():
            run.state[name].view(np.uint8)[:] = rows.view(np.uint8)
        for name, column in values.items():
            run.state[name] = column

    def take(self) -> Memory:
        """Return a `Memory` of this plan that nobody else uses; put back among `spare`, it is used again."""
        try:
            return self.spare.pop()
        except IndexError:  # as bytes: of rows numpy copies one field after the other
            begun = {name: rows.view(np.uint8).copy().view(rows.dtype) for name, rows in self._begun.items()}
            return Memory(State(**self._values, **begun), self.program)

    def trace_columns(self, launches: Array, drawn: Array | None = None) -> tuple[dict[str, Array], list[Load]]:
        """Return what `Memory.trace_columns` does."""
        run = self.take()
        found = run.trace_columns(launches, drawn)
        self.spare.append(run)
        return found

    def _lanes(self, platform: Platform) -> dict[str, Array]:
        """Return rows of the streams, and of the hardware queues that several compute streams share."""
        streams, captured = self._streams, self.program.execution == "graph"
        device = streams["device"]
        lanes, connections = np.zeros(len(device), state.Lane.dtype), np.zeros(0, state.Connection.dtype)
        for name in ("device", "stream", "first"):
            lanes[name] = streams[name]
        lanes["connection"] = -1
        if not captured:
            lanes["launch_lag"], lanes["copy_lag"] = platform.lag[device].T
        lanes["gap"] = (platform.graph_node if captured else platform.gap)[device]
        lanes["hop"] = (platform.graph_node if captured else platform.hop)[device]
        compute = streams["copies"] == 0
        if not captured and (compute & (streams["stream"] >= platform.queues[device])).any():
            mine = np.flatnonzero(compute)
            on = device[mine].astype(np.int64)
            keys = on * 2**31 + streams["stream"][mine] % platform.queues[on]
            _, number, sharers = np.unique(keys, return_inverse=True, return_counts=True)
            kept = sharers > 1  # a queue of its own orders nothing that the stream does not
            lanes["connection"][mine] = np.where(kept, np.cumsum(kept) - 1, -1)[number]
            room = np.bincount(number, streams["passes"][mine], len(sharers)).astype(np.int64)[kept]
            connections = np.zeros(len(room), state.Connection.dtype)
            connections["first"] = np.cumsum(room) - room
        return {"lanes": lanes, "connections": connections}


def plan_of(program: Program, cluster: Cluster) -> Plan:
    """Return the plan of a program, made when it is first asked for, or for another cluster."""
    plan = program.__dict__.get(_PLAN)
    if plan is None or plan.cluster is not cluster:
        plan = program.__dict__[_PLAN] = Plan(program, cluster)
    return cast(Plan, plan)


def launches_of(plan: Plan, cost: CostModel | None) -> Array:
    """Return the launches of a plan; those with the default cost model are kept."""
    if cost is not None and cost is not default_cost:
        return demand(plan.program, plan.cluster, cost)
    if plan.launches is None:
        plan.launches = demand(plan.program, plan.cluster)
    return plan.launches


def simulate_compiled(
    program: Program,
    cluster: Cluster,
    cost: CostModel | None,
    jitter: Jitter | None,
    rng: np.random.Generator | int | None,
) -> Trace:
    """Return what would run when; spans and load curves are made by a second run, when they are asked for."""
    plan = plan_of(program, cluster)
    launches = launches_of(plan, cost)
    drawn = None if jitter is None else factors(program.graph, jitter, rng)[None]
    run = plan.take()
    makespan = float(run.makespans(launches, drawn)[0])
    plan.spare.append(run)
    return Trace.deferred(program, cluster, makespan, lambda: plan.trace_columns(launches, drawn))
