"""Layouts of programs and of clusters in the memory of runs, and functions that begin and finish a run."""

from math import inf
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from simsched.base.errors import DeadlockError
from simsched.base.jit import Column, Rows, Table, i1, i4, i8, length, piece
from simsched.base.memo import Memo, memo
from simsched.model import COPY, WARP, Cluster, CostModel, Floats, Ints, Program, default_cost
from simsched.model.cluster.cluster import Routes
from simsched.model.partition import Partition, require_partitions
from simsched.model.program import BARRIER, LAUNCH, WAIT
from simsched.model.trace import Load
from simsched.simulator import state
from simsched.simulator.clock import number_processes
from simsched.simulator.compiled import MOST_POINTS, run_samples
from simsched.simulator.contention import Channel, Crowd
from simsched.simulator.deadlock import deadlock
from simsched.simulator.demand import demand
from simsched.simulator.meetings import columns_of_collectives, loads_on_links
from simsched.simulator.state import FULL, NEW, OVER, RUNNING, LoadPoint, RecordTable, SpanRecord, State

Array = npt.NDArray[Any]
_Columns = dict[str, dict[str, Array]]  # of each part of a run, by name
_CURVE: Final = ("time", "sm", "dram", "warps", "active")


def begin_curves(run: State, room: int) -> None:
    """Prepare a run to record load curves, with room for a number of points, and one more for each device."""
    record = run.record
    record.point_room = room + run.devices.n
    record["points"] = np.empty(record.point_room, LoadPoint.dtype)
    record.active = 1


def enlarge(record: RecordTable) -> None:
    """Enlarge the room for points of load curves."""
    record["points"] = np.concatenate([record["points"], np.empty(3 * record.point_room, LoadPoint.dtype)])
    record.point_room *= 4


def curves_of(run: State) -> list[Load]:
    """Return the recorded load curves of all devices."""
    points = run.record["points"][: run.record.n_points]
    curves = [points[points["device"] == d] for d in range(run.devices.n)]
    return [Load(*(curve[name] for name in _CURVE)) for curve in curves]


def _columns_of(run: State) -> dict[str, Array]:
    """Return the recorded spans by columns."""
    spans = run.record["spans"][: run.record.n_spans]
    return {name: np.ascontiguousarray(spans[name]) for name in SpanRecord.dtype.names or ()}


def begin(run: State, launches: Array, factors: Floats | None = None) -> Floats:
    """Prepare a run of samples; return the array that will hold their makespans in us.

    Parameters
    ----------
    launches
        From `demand`.
    factors
        Of the time of each operator, shape (n_samples, n_ops); None: one sample of the times as they are.
    """
    makespans = np.empty(1 if factors is None else len(factors))
    samples = {"makespans": makespans, "n": len(makespans), "at": 0, "jittered": factors is not None}
    if factors is not None:
        samples["factors"] = factors
    run.update(status=NEW, devices={"launches": launches}, samples=samples)
    return makespans


def finish(run: State) -> int:
    """Run until all samples are complete, a deadlock, or points have no room; return the status."""
    run_samples(run)
    while run.status == RUNNING:  # the budget of events of a call is used up
        run_samples(run)
    return run.status


class Search(Table):
    """The instructions of a program and the streams that they use; streams have numbers below `room`."""

    n: i8
    n_devices: i8
    n_threads: i8
    room: i8
    n_lanes: i8
    ahead: i8  # only one thread acts on each device
    thread_ptr: Column[i8]
    action: Column[i1]
    place: Column[i4]
    stream: Column[i4]
    lane_of: Column[i4] = length("n")  # -1: barriers and synchronisations are on no lane
    thread: Column[i4] = length("n_devices")  # the last that acts on each device, from 1
    number: Column[i4] = length("n_devices * room")  # of each stream that there could be
    uses: Column[i4] = length("4 * n_devices * room")  # of each stream in use, by action
    lanes: Rows[state.Lane] = length("n_devices * room")
    waits: Column[i4] = length("n_devices * room")  # of each stream since its last launch, and the launch itself
    joins: Column[i1] = length("n")  # whether an instruction launches a kernel that waits for several others


@piece("search for streams")
def find_streams(s: Search) -> None:
    """Assign numbers to the streams in use, by device and stream, and count their instructions."""
    s.ahead = 1
    for t in range(s.n_threads):
        for i in range(s.thread_ptr[t], s.thread_ptr[t + 1]):
            d = s.place[i]
            if s.thread[d] != t + 1:
                if s.thread[d]:
                    s.ahead = 0
                s.thread[d] = t + 1
            if s.action[i] < BARRIER:
                s.uses[4 * (d * s.room + s.stream[i]) + s.action[i]] += 1
    first = 0
    for k in range(s.n_devices * s.room):
        s.number[k] = s.n_lanes
        n = 0
        for action in range(4):
            n += s.uses[4 * k + action]
            s.uses[4 * s.n_lanes + action] = s.uses[4 * k + action]
        if n:
            lane = s.lanes[s.n_lanes]
            lane.device = k // s.room
            lane.stream = k % s.room
            lane.first = first
            first += n
            s.n_lanes += 1
    for i in range(s.n):
        s.lane_of[i] = -1
        if s.action[i] < BARRIER:
            s.lane_of[i] = s.number[s.place[i] * s.room + s.stream[i]]
            if s.action[i] == WAIT:
                s.waits[s.lane_of[i]] += 1
            elif s.action[i] == LAUNCH:
                s.joins[i] = s.waits[s.lane_of[i]] > 1
                s.waits[s.lane_of[i]] = 1


_MOST: Final = 2**62
_TABLE: Final = 4096  # places of a table that is small, however few instructions there are


class Platform:
    """Columns of a run that a cluster determines.

    Attributes
    ----------
    hosts, of_devices
        Columns of `HostTable` and of `DeviceTable`, which a run only reads.
    devices, crowds, channels
        Rows with which those columns begin: of channels the directions of links, then a port and the copy engines of
        each device. All of a port is 1.
    lag
        Us until the device knows of a launch, and of a copy, shape (n_devices, 2).
    gap, hop, graph_node, graph_launch, graph_issue, graph_join
        Us, by device.
    queues
        Hardware queues by device; as many as there could be streams where there is no contention.
    """

    def __init__(self, cluster: Cluster) -> None:
        devices = cluster.devices
        of_sms = [
            (d.threads_per_sm // WARP, d.blocks_per_sm, d.registers_per_sm, d.shared_memory_per_sm) for d in devices
        ]
        # Bytes of shared memory may be fractional; blocks take whole numbers.
        room = [[int(min(d.sms * has, _MOST)) for has in of_sm] for d, of_sm in zip(devices, of_sms, strict=True)]
        self.hosts = {
            "cost": np.array([(d.launch, d.record, d.wait, d.copy, d.barrier, d.barrier) for d in devices], np.float64),
            "barrier_many": np.array([device.barrier_many for device in devices], np.float64),
        }
        self.of_devices = {
            "interference": np.array([device.interference for device in devices], np.float64),
            "room": np.array(room, np.int64).view(state.Room.dtype),
        }
        self.devices = np.zeros(len(devices), state.DeviceState.dtype)
        for name in (
            "contention",
            "interleave",
            "bandwidth",
            "copy_rate",
            "block_spread",
            "kernel_latency",
            "crowd_latency",
        ):
            self.devices[name] = [getattr(device, name) for device in devices]
        for name in ("sms", "resident_kernels", "copy_engines"):
            self.devices[name] = [min(int(getattr(device, name)), _MOST) for device in devices]
        self.crowds = np.zeros(len(devices), Crowd.dtype)
        self.crowds["sms"] = self.devices["sms"]
        self.crowds["most_warps"] = [min(device.threads_per_sm // WARP, _MOST) for device in devices]
        self.channels = np.zeros(len(cluster.channels) + 2 * len(devices), Channel.dtype)
        self.channels["capacity"] = [
            *(bandwidth for _, _, bandwidth in cluster.channels),
            *(1.0 for _ in devices),
            *(device.copy_engines * device.copy_rate for device in devices),
        ]
        self.lag = np.array([(on.on_the_way(on.launch), on.on_the_way(on.copy)) for on in devices])
        names = ("gap", "hop", "graph_node", "graph_launch", "graph_issue", "graph_join")
        overheads = np.array([[getattr(device, name) for name in names] for device in devices], np.float64)
        self.gap, self.hop, self.graph_node, self.graph_launch = overheads.T[:4]
        self.graph_issue, self.graph_join = overheads.T[4:]
        queues = [min(int(device.connections), _MOST) if device.contention else _MOST for device in devices]
        self.queues = np.array(queues, np.int64)
        self.device_sms = [device.sms for device in devices]
        self._routes = dict[bytes, Routes]()

    def routes(self, cluster: Cluster, source: Ints, target: Ints) -> Routes:
        """Return the routes from some devices of its cluster to others; they are computed once."""
        key = source.tobytes() + target.tobytes()
        if key not in self._routes:
            self._routes[key] = cluster.routes(source, target)
        return self._routes[key]


@memo
def platform_of(cluster: Cluster) -> Platform:
    """Return the platform of a cluster; it is computed once."""
    return Platform(cluster)


class Layout:
    """Columns of a run that a program on a cluster determines.

    Parameters
    ----------
    program, cluster
        The program and its cluster. The program is checked, since machine code trusts its columns.

    Raises
    ------
    ClusterError
        If a copy has no way to its destination; of several the first in the program is named.

    Attributes
    ----------
    launches
        Rows of `demand` for the default cost model, once they have been made.
    spare
        Runs that are over, to be used again.
    """

    def __init__(self, program: Program, cluster: Cluster) -> None:
        self.program = program.check()
        self.cluster = cluster
        self.launches: Array | None = None
        self.spare: list[State] = []
        copies = program.copies
        n_devices = len(cluster.devices)
        found = self._find_streams()
        self._ways = self._find_ways()
        self._meet = bool(program.graph.meetings)
        self._bound = self._find_bound()
        self._uses_links = self._meet or self._ways is not None
        if self._meet:
            self._home = program.home
        self._joins = found["joins"].astype(np.bool_)
        self._begun, values = self._numbers(cluster)
        n_lanes = len(self._lanes)
        n_meetings = len(program.graph.meetings)
        self._values: dict[str, dict[str, Any]] = {
            "clock": number_processes(n_lanes, found.n_threads, n_devices, n_meetings),
            "program": values["program"]
            | {
                "n": len(program),
                "captured": program.execution == "graph",
                "action": program.action,
                "argument": program.argument,
                "place": program.device,
                "lane_of": found["lane_of"],
                "launch_op": program.launches.op,
                "copy_op": copies.op,
            },
            "hosts": values["hosts"]
            | self._host_times()
            | {"n": found.n_threads, "ahead": found.ahead, "thread_ptr": program.thread_ptr},
            "events": {"n": program.n_events, "n_devices": n_devices},
            "lanes": {
                "n": n_lanes,
                "n_items": len(program),
                "n_connections": len(self._begun["lanes"]["connections"]),
            },
            "devices": values["devices"]
            | {
                "n": n_devices,
                "n_partitions": len(self._bound),
                "n_lanes": n_lanes,
                "n_works": n_lanes + n_meetings,
                "width": np.bincount(self._lanes["device"][self._uses[:, LAUNCH] > 0], minlength=1).max(),
            },
            "links": values["links"]
            | {
                "n_devices": n_devices,
                "first_collective": n_lanes,
                "copy_device": copies.device,
                "copy_nbytes": copies.nbytes,
                "copy_exact": copies.transfer,
                "copy_route": self._way,
            },
            "collectives": values["collectives"]
            | {"n": n_meetings, "n_members": sum(len(meeting.members) for meeting in program.graph.meetings)},
            "samples": {"n_ops": len(program.graph)},
        }
        if self._uses_links:
            if self._meet:
                longest = len(cluster.channels) + n_devices
            else:
                longest = 0
            if self._ways is not None:
                routes = values["links"]["routes"]
                longest = max(longest, int((routes["end"] - routes["first"]).max()))
            self._values["links"] |= {
                "n_channels": len(self._begun["links"]["channels"]) - n_lanes,
                "most_flows": n_lanes,
                "most_crossings": n_lanes * (longest + 2),
            }

    def _host_times(self) -> dict[str, Array]:
        """Return the columns of host times that the program gives, if it gives any."""
        lead = self.program.lead
        own = self.program.own
        if lead is None and own is None:
            return {}
        n = len(self.program)
        return {
            "lead": np.zeros(n) if lead is None else lead,
            "own": np.full(n, np.nan) if own is None else own,
        }

    def _find_streams(self) -> Search:
        """Return the streams in use, and the number of instructions of each action on them."""
        program = self.program
        n_devices = len(self.cluster.devices)
        stream = self.program.stream
        room = int(stream.max(initial=-1)) + 1
        streams = None
        if n_devices * room > len(stream) + _TABLE:
            streams, ranks = np.unique(stream, return_inverse=True)
            room = len(streams)
            stream = ranks.astype(np.int32)
        search = Search(
            n=len(stream),
            n_devices=n_devices,
            n_threads=len(program.thread_ptr) - 1,
            room=room,
            thread_ptr=program.thread_ptr,
            action=program.action,
            place=program.device,
            stream=stream,
        )
        find_streams(search)
        self._lanes = search["lanes"][: search.n_lanes]
        self._uses = search["uses"].reshape(-1, 4)[: search.n_lanes]
        if streams is not None:
            self._lanes["stream"] = streams[self._lanes["stream"]]
        return search

    def _find_bound(self) -> list[tuple[int, Partition]]:
        """Return the partitions of streams in use, by the numbers of the streams."""
        if not self.program.partitions:
            return []
        require_partitions(self.program.partitions, self.cluster)
        places = zip(self._lanes["device"].tolist(), self._lanes["stream"].tolist(), strict=True)
        lanes = {(self.program.devices[d], stream): lane for lane, (d, stream) in enumerate(places)}
        keyed = (((each.device, each.stream), each) for each in self.program.partitions)
        return [(lanes[key], partition) for key, partition in keyed if key in lanes]

    def _rooms(self, platform: Platform) -> Array:
        """Return the room of the SMs of each partition."""
        rows = np.zeros(len(self._bound), state.Room.dtype)
        whole = platform.of_devices["room"].reshape(-1)
        for row, (lane, partition) in zip(rows, self._bound, strict=True):
            d = self._lanes["device"][lane]
            for name in whole.dtype.names or ():
                row[name] = int(whole[name][d]) * partition.sms // platform.device_sms[d]
        return rows

    def _find_ways(self) -> tuple[Ints, Ints] | None:
        """Return sources and destinations of copies without given times; None if there are none."""
        program = self.program
        copies = self.program.copies
        n = len(self.cluster.devices)
        self._way = np.zeros(len(copies.op), np.int32)  # the route of each copy
        moved = np.flatnonzero(np.isnan(copies.transfer))
        if not len(moved):
            return None
        rows = np.flatnonzero(program.action == COPY)
        source = np.zeros(len(copies.op), np.int64)
        source[program.argument[rows]] = program.device[rows]
        pairs, self._way[moved] = np.unique(source[moved] * n + copies.device[moved], return_inverse=True)
        known = platform_of(self.cluster).routes(self.cluster, pairs // n, pairs % n).known
        if not known.all():
            copy = program.argument[rows]
            first = copy[np.isnan(copies.transfer[copy]) & ~known[self._way[copy]]][0]
            self.cluster.route(program.devices[source[first]], program.devices[copies.device[first]])
        return pairs // n, pairs % n

    def _numbers(self, cluster: Cluster) -> tuple[_Columns, _Columns]:
        """Return initial rows and columns that depend on the numbers of a cluster, by the part that has them."""
        platform = platform_of(cluster)
        begun: _Columns = {
            "lanes": self._streams(platform),
            "devices": {"rows": platform.devices, "crowds": platform.crowds},
        }
        values: _Columns = {
            "program": {},
            "hosts": dict(platform.hosts),
            "devices": dict(platform.of_devices),
            "links": {},
            "collectives": {},
        }
        if self._bound:
            room = values["devices"]["room"].reshape(-1)
            values["devices"]["room"] = np.concatenate([room, self._rooms(platform)])
        if self.program.execution == "graph":  # the only host time is the launch of the graph
            cost = values["hosts"]["cost"] = np.zeros_like(platform.hosts["cost"])
            cost[0, 0] = platform.graph_launch[self.program.device[0]]
            values["program"]["join"] = np.where(self._joins, platform.graph_join[self.program.device], 0.0)
            devices = begun["devices"]["rows"] = platform.devices.copy()
            devices["graph_issue"] = platform.graph_issue
        if self._meet:
            loads = loads_on_links(self.program.graph, cluster, self._home)
            values["collectives"] = columns_of_collectives(loads)
        if self._ways is not None:
            found = platform.routes(cluster, *self._ways)
            routes = np.zeros(len(found.latency), state.CopyRoute.dtype)
            routes["latency"] = found.latency
            routes["rate"] = np.minimum(found.bandwidth, platform.devices["copy_rate"][self._ways[0]])
            routes["first"] = found.channel_ptr[:-1]
            routes["end"] = found.channel_ptr[1:]
            channels = np.ascontiguousarray(found.channel, np.int32)
            values["links"] = {"routes": routes, "route_channels": channels}
        if self._uses_links:
            flows = np.zeros(len(self._lanes), Channel.dtype)  # a stream has at most one flow at a time
            begun["links"] = {"channels": np.concatenate([platform.channels, flows])}
        return begun, values

    def fits(self, cluster: Cluster) -> bool:
        """Return whether `move` to a cluster is surely possible: the same devices and queues, and no use of links."""
        if self._uses_links or [d.name for d in cluster.devices] != [d.name for d in self.cluster.devices]:
            return False
        return bool((platform_of(cluster).queues == platform_of(self.cluster).queues).all())

    def move(self, cluster: Cluster) -> None:
        """Use another cluster for the next run, which has the same routes and other numbers."""
        begun, values = self._numbers(cluster)
        run = self.take()
        for part, columns in begun.items():
            table = getattr(run, part)
            for name, rows in columns.items():
                table[name].view(np.uint8)[:] = rows.view(np.uint8)
        run.update(**values)
        self.spare.append(run)

    def take(self) -> State:
        """Return memory for a run, which no other run uses; appended to `spare`, it is used again."""
        try:
            return self.spare.pop()
        except IndexError:
            values = dict(self._values)
            for part, columns in self._begun.items():  # as bytes: numpy copies rows one field after the other
                copies = {name: rows.view(np.uint8).copy().view(rows.dtype) for name, rows in columns.items()}
                values[part] = values[part] | copies
            return State(**values)

    def makespans(self, launches: Array, factors: Floats | None = None) -> Floats:
        """Return the makespan in us of each sample, with the parameters of `begin`.

        Raises
        ------
        DeadlockError
            If something is left that nothing will ever release.
        """
        run = self.take()
        makespans = begin(run, launches, factors)
        if finish(run) != OVER:
            raise self._deadlock(run)
        self.spare.append(run)
        return makespans

    def trace_columns(self, launches: Array, factors: Floats | None = None) -> tuple[dict[str, Array], list[Load]]:
        """Return the spans by columns and the load curves of a run, with the parameters and errors of `makespans`."""
        run = self._record(launches, factors)
        columns = _columns_of(run)
        curves = curves_of(run)
        self._put_away(run)
        return columns, curves

    def span_columns(self, launches: Array) -> dict[str, Array]:
        """Return the spans of a run by columns, with the parameters and errors of `makespans`."""
        run = self._record(launches, None)
        columns = _columns_of(run)
        self._put_away(run)
        return columns

    def _record(self, launches: Array, factors: Floats | None) -> State:
        """Return a run that is over, with its record."""
        run = self.take()
        record = run.record
        begin(run, launches, factors)
        begin_curves(run, 2 * MOST_POINTS + 2 * len(launches))
        # at most three spans and one host span for each instruction
        record["spans"] = np.empty(4 * run.program.n + 1, SpanRecord.dtype)
        while finish(run) == FULL:
            enlarge(record)
        record.active = 0
        if run.status != OVER:
            raise self._deadlock(run)
        return run

    def _put_away(self, run: State) -> None:
        """Keep the memory of a run that is over for another one, without its record."""
        run.record["spans"] = None
        run.record["points"] = None
        self.spare.append(run)

    def _deadlock(self, run: State) -> DeadlockError:
        """Return the error of a deadlock, which names the awaited events."""
        lanes = run.lanes["rows"]
        stuck = lanes[lanes["head"] < lanes["tail"]]
        waiting = run.lanes["items"]["code"][stuck["head"]] >> 2
        held = list(zip(stuck["stream"].tolist(), waiting.tolist(), strict=True))
        n_events = run.events.n
        issued = run.events["rows"]["time"][n_events : 2 * n_events] < inf
        return deadlock(self.program, run.hosts["rows"]["at"].tolist(), held, issued.tolist())

    def _streams(self, platform: Platform) -> dict[str, Array]:
        """Return rows of the streams, and of the hardware queues that several compute streams share."""
        lanes = self._lanes.copy()
        captured = self.program.execution == "graph"
        device = lanes["device"]
        connections = np.zeros(0, state.Connection.dtype)
        lanes["connection"] = lanes["rooms"] = -1
        lanes["sms"] = platform.devices["sms"][device]
        for k, (lane, partition) in enumerate(self._bound):
            lanes["rooms"][lane] = len(self.cluster.devices) + k
            lanes["sms"][lane] = partition.sms
        if not captured:
            lanes["launch_lag"], lanes["copy_lag"] = platform.lag[device].T
        lanes["gap"] = (platform.graph_node if captured else platform.gap)[device]
        lanes["hop"] = (platform.graph_node if captured else platform.hop)[device]
        compute = self._uses[:, COPY] == 0
        if not captured and (compute & (lanes["stream"] >= platform.queues[device])).any():
            mine = np.flatnonzero(compute)
            keys = device[mine] * np.int64(2**31) + lanes["stream"][mine] % platform.queues[device[mine]]
            _, number, sharers = np.unique(keys, return_inverse=True, return_counts=True)
            kept = sharers > 1  # a queue of one stream has the order of the stream
            lanes["connection"][mine] = np.where(kept, np.cumsum(kept) - 1, -1)[number]
            passing = self._uses[mine, LAUNCH] + self._uses[mine, WAIT]
            room = np.bincount(number, passing, len(sharers)).astype(np.int64)[kept]
            connections = np.zeros(len(room), state.Connection.dtype)
            connections["first"] = np.cumsum(room) - room
        return {"rows": lanes, "connections": connections}


_last_layout = Memo[Layout]()


def layout_of(program: Program, cluster: Cluster) -> Layout:
    """Return the layout of a program on a cluster; the last one of a program is kept as long as the program lives."""
    layout = _last_layout.get(program)
    if layout is None or layout.cluster is not cluster:
        layout = _last_layout.put(program, Layout(program.check().with_values(), cluster))  # which knows its program
    return layout


def launches_of(layout: Layout, cost: CostModel | None) -> Array:
    """Return the rows of `demand` of a layout; those with the default cost model are stored in it."""
    if cost is not None and cost is not default_cost:
        return demand(layout.program, layout.cluster, cost)
    if layout.launches is None:
        layout.launches = demand(layout.program, layout.cluster)
    return layout.launches
