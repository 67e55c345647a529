"""The compiled engine: the model of `reference` with the same results, in machine code.

This module lays a program out in flat arrays (`compiled_layout`), runs `compiled_loop` over them
and makes a trace of what comes back. Numba is loaded when the first run begins.
"""

from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from simsched.cluster import Cluster, Device
from simsched.errors import ClusterError
from simsched.graph.columns import Ints
from simsched.program import BARRIER, COPY, LAUNCH, RECORD, SYNC, WAIT, Program
from simsched.simulator import compiled_layout as layout
from simsched.simulator.deadlock import deadlock
from simsched.simulator.workload import Demand
from simsched.trace import Load, Trace

_COST = {LAUNCH: "launch", RECORD: "record", WAIT: "wait", COPY: "copy", BARRIER: "barrier", SYNC: "barrier"}
_MOST = 2**62
Table = npt.NDArray[Any]


class _Plan(NamedTuple):
    """What a run needs of a program on any cluster."""

    instructions: Table
    launches: Table
    copies: Table
    source: Ints  # of each copy: the device that issues it
    lanes: Table
    copy_lane: npt.NDArray[np.bool_]
    passes: Ints  # of each lane: instructions that pass a hardware queue
    width: int  # most lanes of a device


_plans: WeakKeyDictionary[Program, _Plan] = WeakKeyDictionary()


class Compiled:
    """One simulation of a program; `run` returns its trace."""

    def __init__(self, program: Program, cluster: Cluster, demand: Demand) -> None:
        self._program, self._cluster = program, cluster
        self._routes: list[tuple[int, int]] = []
        self._run, self._tables = self._lay_out(_plan(program), demand)

    def run(self) -> Trace:
        """Simulate to the end.

        Raises
        ------
        DeadlockError
            If something is left that nothing will ever release.
        """
        from simsched.simulator.compiled_loop import run_program

        program, tables = self._program, self._tables
        run_program(self._run)
        while self._run["status"][0] == layout.RUNNING:  # the load curves need more room
            self._add_points(4 * len(tables["points"]))
            run_program(self._run)
        status = int(self._run["status"][0])
        if status != layout.OVER:  # a copy without a way to its destination: say so as the cluster does
            src, dst = self._routes[status - layout.UNROUTED]
            self._cluster.route(program.devices[src], program.devices[dst])
        hosts, lanes = tables["hosts"], tables["lanes"]
        stuck = lanes[lanes["head"] < lanes["tail"]]
        if len(stuck) or (hosts["at"] != hosts["end"]).any():
            waiting = tables["items"]["instruction"][stuck["head"]]
            held = list(zip(stuck["device"].tolist(), stuck["stream"].tolist(), waiting.tolist(), strict=True))
            raise deadlock(program, hosts["at"].tolist(), held, (tables["marks"]["issued"] > 0).tolist())
        spans = tables["spans"][: int(self._run["n_spans"][0])]
        columns = {name: np.ascontiguousarray(spans[name]) for name in layout.SPANS.names or ()}
        points = tables["points"][: int(self._run["n_points"][0])]
        loads = [_load(points[points["device"] == d]) for d in range(len(self._cluster.devices))]
        return Trace.from_columns(program, self._cluster, columns, loads)

    def _lay_out(self, plan: _Plan, demand: Demand) -> tuple[Table, dict[str, Table]]:
        """Return a run and its tables, which have to live as long as it."""
        program, cluster = self._program, self._cluster
        devices, n_lanes, n_events = cluster.devices, len(plan.lanes), program.n_events
        n, n_hosts, captured = len(devices), len(program.thread_ptr) - 1, program.execution == "graph"
        instructions = plan.instructions.copy()
        costs = np.array([[getattr(device, _COST[action]) for action in sorted(_COST)] for device in devices])
        instructions["cost"] = costs[program.device, program.action]
        if captured and len(program):
            instructions[0]["cost"] = devices[int(program.device[0])].graph_launch
        launches, need = _launches(plan, demand)
        copies, routes, channels = self._copies(plan)
        lanes, connections, passing = self._lanes(plan, captured)
        hosts = np.zeros(n_hosts, layout.HOSTS)
        hosts["at"], hosts["end"], hosts["cause"] = program.thread_ptr[:-1], program.thread_ptr[1:], -1
        marks = np.zeros(n_events, layout.MARKS)
        marks["issue"] = marks["cause"] = marks["lane"] = -1
        waiters = np.full(2 * n_events + n + len(connections), -1, layout.WAITERS)
        capacity = [bandwidth for _, _, bandwidth in cluster.channels]
        capacity += [device.copy_engines * device.copy_rate for device in devices]
        rows = len(launches)
        tables = {
            "later": np.empty(2 * (n_lanes + n_hosts) + 4, layout.LATER),
            "instant": np.empty(2 * n_events + 4 * (n_lanes + n_hosts + n) + 16, layout.INSTANT),
            "waiters": waiters,
            "next_waiter": np.full(n_lanes + n_hosts, -1),
            "instructions": instructions,
            "items": np.empty(len(program), layout.ITEM),
            "passing": passing,
            "launches": launches,
            "need": need,
            "cohorts": np.empty(rows * layout.COHORTS, layout.COHORT),
            "copies": copies,
            "routes": routes,
            "channels": channels,
            "capacity": np.array(capacity, np.float64),
            "flows": np.empty(n_lanes, np.int64),
            "lanes": lanes,
            "hosts": hosts,
            "marks": marks,
            "connections": connections,
            "devices": _devices(devices),
            "free": np.array([_room(device) for device in devices]),
            "interference": np.array([device.interference for device in devices], np.float64),
            "queue": np.empty(n * plan.width, np.int64),
            "running": np.empty(n * plan.width, np.int64),
            "spans": np.empty(rows + len(copies) + 3 * len(program) + 1, layout.SPANS),
            "points": np.empty(64 + 2 * rows, layout.POINTS),
        }
        run = np.zeros(1, layout.RUN)
        counts = {"n_lanes": n_lanes, "n_events": n_events, "n_devices": n, "n_hosts": n_hosts}
        counts |= {"n_instructions": len(program), "n_capacity": len(capacity), "n_engines": len(cluster.channels)}
        counts |= {"width": plan.width, "captured": captured, "point_room": len(tables["points"])}
        for name, value in counts.items():
            run[name] = value
        for name, dtype in layout.TABLES.items():
            table = tables[name]
            if not table.flags.c_contiguous or table.dtype not in (dtype, dtype[0]) or table.itemsize != dtype.itemsize:
                raise TypeError(f"table {name} is not laid out as {dtype}")
            run[name] = table.ctypes.data
        return run, tables

    def _add_points(self, room: int) -> None:
        """Give the load curves room for so many points in all."""
        points = self._tables["points"]
        self._tables["points"] = larger = np.empty(room, points.dtype)
        larger[: len(points)] = points
        self._run["points"], self._run["point_room"] = larger.ctypes.data, room

    def _copies(self, plan: _Plan) -> tuple[Table, Table, Ints]:
        """Return the copies with their times alone, the routes they take and the channels of these."""
        cluster, program = self._cluster, self._program
        copies = plan.copies.copy()
        moved = np.flatnonzero(np.isnan(copies["exact"]))
        if not len(moved):
            return copies, np.zeros(0, layout.ROUTES), np.zeros(0, np.int64)
        ends = plan.source[moved] * len(program.devices) + copies["device"][moved]
        pairs, copies["route"][moved] = np.unique(ends, return_inverse=True)
        self._routes = [divmod(pair, len(program.devices)) for pair in pairs.tolist()]
        routes = np.zeros(len(pairs), layout.ROUTES)
        rates = np.ones(len(pairs))
        channels: list[int] = []
        for k, (src, dst) in enumerate(self._routes):
            try:
                route = cluster.route(program.devices[src], program.devices[dst])
            except ClusterError:
                continue  # an error only if the copy is made
            rates[k] = min(route.bandwidth, cluster.devices[src].copy_rate)
            routes[k] = (len(channels), len(channels) + len(route.channels), 1, route.latency, route.bandwidth)
            channels += route.channels
        mine = copies["route"][moved]
        copies["solo"][moved] = routes["latency"][mine] + copies["nbytes"][moved] / rates[mine]
        return copies, routes, np.array(channels, np.int64)

    def _lanes(self, plan: _Plan, captured: bool) -> tuple[Table, Table, Ints]:
        """Return the streams in use, hardware queues that several compute streams share, and room in these."""
        devices, lanes = self._cluster.devices, plan.lanes.copy()
        gap, hop = ("graph_node", "graph_node") if captured else ("gap", "hop")
        lanes["gap"] = np.array([getattr(device, gap) for device in devices])[lanes["device"]]
        lanes["hop"] = np.array([getattr(device, hop) for device in devices])[lanes["device"]]
        shared = np.array([device.contention and not captured for device in devices])[lanes["device"]]
        mine = np.flatnonzero(shared & ~plan.copy_lane)
        queues = np.array([min(int(device.connections), _MOST) for device in devices])
        keys = np.stack([lanes["device"][mine], lanes["stream"][mine] % queues[lanes["device"][mine]]])
        _, number, sharers = np.unique(keys, axis=1, return_inverse=True, return_counts=True)
        number = number.reshape(-1)
        kept = sharers > 1  # a queue of its own orders nothing that the stream does not
        lanes["connection"][mine] = np.where(kept, np.cumsum(kept) - 1, -1)[number]
        room = np.bincount(number, plan.passes[mine], len(sharers)).astype(np.int64)[kept]
        connections = np.zeros(len(room), layout.CONNECTIONS)
        connections["head"] = connections["tail"] = np.cumsum(room) - room
        return lanes, connections, np.empty(int(room.sum()), np.int64)


def _plan(program: Program) -> _Plan:
    """Return what a run needs of a program on any cluster; made once per program."""
    plan = _plans.get(program)
    if plan is None:
        plan = _plans[program] = _make_plan(program)
    return plan


def _make_plan(program: Program) -> _Plan:
    action = program.action.astype(np.int64)
    instructions = np.zeros(len(program), layout.INSTRUCTION)
    instructions["action"], instructions["argument"] = action, program.argument
    instructions["device"], instructions["lane"], instructions["subject"] = program.device, -1, -1
    is_launch, is_copy = action == LAUNCH, action == COPY
    instructions["subject"][is_launch] = program.launch_op[program.argument[is_launch]]
    instructions["subject"][is_copy] = program.copies.op[program.argument[is_copy]]

    on_stream = np.flatnonzero(~np.isin(action, (BARRIER, SYNC)) | (program.stream >= 0))
    streams, rank = np.unique(program.stream[on_stream], return_inverse=True)
    keys, lane = np.unique(program.device[on_stream] * max(1, len(streams)) + rank, return_inverse=True)
    instructions["lane"][on_stream] = lane
    lanes = np.zeros(len(keys), layout.LANES)
    if len(keys):
        lanes["device"], lanes["stream"] = keys // len(streams), streams[keys % len(streams)]
    lanes["connection"] = lanes["cause"] = lanes["free_cause"] = lanes["span_cause"] = -1
    room = np.bincount(lane[~np.isin(action[on_stream], (BARRIER, SYNC))], minlength=len(keys))
    lanes["head"] = lanes["tail"] = np.cumsum(room) - room

    copies = np.zeros(len(program.copies.op), layout.COPIES)
    copies["op"], copies["device"] = program.copies.op, program.copies.device
    copies["nbytes"], copies["exact"] = program.copies.nbytes, program.copies.transfer
    copies["solo"] = program.copies.transfer
    source = np.zeros(len(copies), np.int64)
    source[program.argument[is_copy]] = program.device[is_copy]
    return _Plan(
        instructions=instructions,
        launches=_blank_launches(program),
        copies=copies,
        source=source,
        lanes=lanes,
        copy_lane=np.bincount(lane, is_copy[on_stream], len(keys)) > 0,
        passes=np.bincount(lane, np.isin(action[on_stream], (LAUNCH, WAIT)), len(keys)).astype(np.int64),
        width=int(np.bincount(lanes["device"]).max()) if len(lanes) else 1,
    )


def _blank_launches(program: Program) -> Table:
    launches = np.zeros(len(program.launch_op), layout.LAUNCHES)
    launches["op"], launches["priority"] = program.launch_op, program.priority[program.launch_op]
    launches["follows"][1:] = program.launch_op[1:] == program.launch_op[:-1]
    return launches


def _launches(plan: _Plan, demand: Demand) -> tuple[Table, Ints]:
    """Return the launches with what they ask for, and what a block of each takes."""
    launches = plan.launches.copy()
    if len(demand.solo) != len(launches):
        raise ValueError(f"a demand of {len(demand.solo)} launches for a program of {len(launches)}")
    for name in ("blocks", "residency", "kind", "sm_share", "dram_share", "alpha", "beta", "unit", "solo"):
        launches[name] = getattr(demand, name)
    need = np.stack([demand.warps, np.sign(demand.blocks), demand.registers, demand.shared_memory], 1)
    return launches, need


def _devices(devices: tuple[Device, ...]) -> Table:
    """Return the devices, and a last row for the timer of the links."""
    table = np.zeros(len(devices) + 1, layout.DEVICES)
    for d, device in enumerate(devices):
        for name in ("sms", "resident_kernels"):
            table[name][d] = min(int(getattr(device, name)), _MOST)
        for name in ("contention", "interleave", "bandwidth", "copy_rate"):
            table[name][d] = getattr(device, name)
    for name in ("skipping", "last_kernel", "timer_key", "point"):
        table[name] = -1
    return table


def _room(device: Device) -> list[int]:
    """Return the warps, blocks, registers and bytes of shared memory of a device."""
    room = (
        device.sms * (device.threads_per_sm // 32),
        device.sms * device.blocks_per_sm,
        device.sms * device.registers_per_sm,
        device.sms * device.shared_memory_per_sm,  # perhaps no whole number; what blocks take is one
    )
    return [int(min(left, _MOST)) for left in room]


def _load(points: Table) -> Load:
    """Return the load curve of a device; it begins with an idle device at time 0."""
    if not len(points) or points[0]["time"] != 0.0:
        points = np.concatenate([np.zeros(1, points.dtype), points])
    return Load(*(np.ascontiguousarray(points[name]) for name in ("time", "sm", "dram", "warps", "active")))
