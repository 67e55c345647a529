"""What every run of a program on a cluster shares: flat tables, made once."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from simsched.cluster import Cluster, Device
from simsched.machine_code import load
from simsched.program import BARRIER, COPY, LAUNCH, RECORD, SYNC, WAIT, Program
from simsched.simulator.compiled import layout
from simsched.simulator.workload import Demand

_COST = {LAUNCH: "launch", RECORD: "record", WAIT: "wait", COPY: "copy", BARRIER: "barrier", SYNC: "barrier"}
_MOST = 2**62
_HERE: Final = Path(__file__).parent
SOURCES: Final = (
    *sorted(_HERE.glob("*.py")),
    *(_HERE.parent / name for name in ("contention.py", "gpu.py")),
    *(_HERE.parent.parent / name for name in ("machine_columns.py", "program.py", "units.py", "trace/trace.py")),
)
"""All that is compiled into the engine."""
_FILLED = 2**31 - 1
Table = npt.NDArray[Any]


class Plan:
    """A program laid out for a cluster.

    Parameters
    ----------
    program, cluster
        What is run, and on what. The program is checked: machine code trusts its tables.

    Attributes
    ----------
    tables
        Those of `layout.SHARED`, and the rows with which `lanes`, `connections` and `devices` begin.
    sizes
        Rows of the tables of `layout.OWN`.
    counts
        Numbers of the run.
    routes
        Source and destination of each row of the table `routes`.
    """

    def __init__(self, program: Program, cluster: Cluster) -> None:
        self.program, self.cluster = program.check(), cluster
        n, n_devices, n_hosts = len(program), len(cluster.devices), len(program.thread_ptr) - 1
        columns = {
            "thread_ptr": np.ascontiguousarray(program.thread_ptr, np.int64),
            "action": np.ascontiguousarray(program.action, np.int8),
            "argument": np.ascontiguousarray(program.argument, np.int32),
            "place": np.ascontiguousarray(program.device, np.int32),
            "stream": np.ascontiguousarray(program.stream, np.int32),
        }
        named = (columns["action"] >= BARRIER) & (columns["stream"] >= 0)
        if named.any():  # barriers and syncs are on no stream, whatever they say
            columns["stream"] = np.where(named, np.int32(-1), columns["stream"])
        found = _find_lanes(columns, n_devices)
        device, stream = found.device, found.stream
        captured = program.execution == "graph"
        lanes = np.zeros(len(device), layout.LANE)
        lanes["device"], lanes["stream"], lanes["first"], lanes["connection"] = device, stream, found.ptr[:-1], -1
        gap, hop = ("graph_node", "graph_node") if captured else ("gap", "hop")
        lanes["gap"] = np.array([getattr(each, gap) for each in cluster.devices])[device]
        lanes["hop"] = np.array([getattr(each, hop) for each in cluster.devices])[device]
        connections = np.zeros(0, layout.CONNECTION)
        if not captured:
            connections = _connections(cluster, lanes, found.copies > 0, found.passes)
        costs = np.array([[getattr(each, _COST[action]) for action in sorted(_COST)] for each in cluster.devices])
        if captured:
            costs = np.zeros_like(costs)
            costs[0, 0] = cluster.devices[int(program.device[0])].graph_launch if n else 0.0
        width = int(np.bincount(device[found.launches > 0], minlength=1).max())
        self.tables: dict[str, Table] = {
            **{name: column for name, column in columns.items() if name != "stream"},
            "lane_of": found.lane_of,
            "cost": np.ascontiguousarray(costs, np.float64),
            "launch_op": np.ascontiguousarray(program.launch_op, np.int32),
            "copy_op": np.ascontiguousarray(program.copies.op, np.int32),
            "copy_device": np.ascontiguousarray(program.copies.device, np.int32),
            "copy_nbytes": np.ascontiguousarray(program.copies.nbytes, np.float64),
            "copy_exact": np.ascontiguousarray(program.copies.transfer, np.float64),
            "interference": np.array([each.interference for each in cluster.devices], np.float64),
            "room": np.array([_room(each) for each in cluster.devices], np.int64),
            "lanes": lanes,
            "connections": connections,
            "devices": _devices(cluster.devices),
        }  # fmt: skip
        self.tables |= self._copy_routes()
        routes = self.tables["routes"]
        self.capacity = np.array(
            [bandwidth for _, _, bandwidth in cluster.channels]
            + [device.copy_engines * device.copy_rate for device in cluster.devices], np.float64,
        )  # fmt: skip
        n_flows = len(lanes) if self.routes else 0  # copies that move bytes at a time: one per stream
        n_channels, longest = len(self.capacity), int((routes["end"] - routes["first"]).max(initial=0)) + 2
        n_timers = 1 << n_devices.bit_length()  # devices and links
        n_lanes, n_connections = len(lanes), len(connections)
        self.counts = {
            "n_lanes": n_lanes, "n_hosts": n_hosts, "n_devices": n_devices, "n_events": program.n_events,
            "n_instructions": n, "n_ops": len(program.graph), "n_capacity": len(self.capacity),
            "n_engines": len(cluster.channels), "n_most_flows": n_flows, "n_connections": n_connections, "n_timers": n_timers,
            "width": width, "captured": captured, "ahead": found.ahead,
        }  # fmt: skip
        self.sizes = {
            "later": n_lanes + n_hosts + 1,
            "queues": layout.PHASES,
            "next": n_lanes + n_hosts + 2 * n_devices + 2,
            "timers": 2 * n_timers,
            "events": program.n_events,
            "items": int(found.ptr[-1]),
            "passing": int(connections["head"].sum()),
            "flows": n_flows,
            "capacity": n_channels + n_flows,
            "channel_left": n_channels + n_flows,
            "channel_users": n_channels + n_flows,
            "channel_live": n_channels + n_flows,
            "flow_ptr": n_flows + 1,
            "flow_channel": n_flows * longest,
            "flow_rate": n_flows,
            "loaded": n_devices,
            "free": 4 * n_devices,
            "queued": n_devices * width,
            "running": n_devices * width,
            "lanes": n_lanes,
            "kernels": n_lanes,
            "moving": n_lanes if self.routes else 0,
            "cohorts": layout.COHORTS * n_lanes,
            "hosts": n_hosts,
            "connections": n_connections,
            "devices": n_devices,
            "makespans": 1,
        }
        self.launches: Table | None = None
        """Launches with the default cost model."""
        self.spare: list[Any] = []
        """Runs that are over, to be used again."""

    def _copy_routes(self) -> dict[str, Table]:
        """Return the route of each copy whose time is not given, and the channels of the routes."""
        program, cluster = self.program, self.cluster
        copies = program.copies
        moved = np.flatnonzero(np.isnan(copies.transfer))
        self.routes: list[tuple[int, int]] = []
        route_of = np.zeros(len(copies.op) if len(moved) else 0, np.int32)
        routes, channels = np.zeros(0, layout.ROUTE), np.zeros(0, np.int32)
        if len(moved):
            source = np.zeros(len(copies.op), np.int64)
            rows = np.flatnonzero(program.action == COPY)
            source[program.argument[rows]] = program.device[rows]
            ends = source[moved] * len(cluster.devices) + copies.device[moved]
            pairs, route_of[moved] = np.unique(ends, return_inverse=True)
            src, dst = pairs // len(cluster.devices), pairs % len(cluster.devices)
            self.routes = list(zip(src.tolist(), dst.tolist(), strict=True))
            found = cluster.routes(src, dst)
            routes = np.zeros(len(pairs), layout.ROUTE)
            engine = np.array([device.copy_rate for device in cluster.devices])
            routes["latency"], routes["rate"] = found.latency, np.minimum(found.bandwidth, engine[src])
            routes["first"], routes["end"] = found.channel_ptr[:-1], found.channel_ptr[1:]
            routes["known"] = found.known
            channels = np.ascontiguousarray(found.channel, np.int32)
        return {"copy_route": route_of, "routes": routes, "channels": channels}


class _Lanes(NamedTuple):
    """The streams in use, by device and stream, and what is in them."""

    lane_of: Table
    device: Table
    stream: Table
    ptr: Table  # where the instructions of each begin
    launches: Table
    copies: Table
    passes: Table  # instructions that pass a hardware queue
    ahead: bool  # only one thread acts on each device


def _find_lanes(columns: Mapping[str, Table], n_devices: int) -> _Lanes:
    find = load("simsched.simulator.compiled.lanes:find_lanes", SOURCES, "search for streams")
    n, streams = len(columns["action"]), None
    t = np.zeros(layout.LANE_TABLE, np.int64)
    t[[layout.N_INSTRUCTIONS, layout.N_DEVICES, layout.N_THREADS]] = n, n_devices, len(columns["thread_ptr"]) - 1
    for key, name in ((layout.LANE_THREAD_PTR, "thread_ptr"), (layout.LANE_ACTION, "action"),
                      (layout.LANE_PLACE, "place")):  # fmt: skip
        t[key] = columns[name].ctypes.data
    stream = columns["stream"]
    while True:
        top, thread_on = np.zeros(n_devices + 1, np.int64), np.full(n_devices, -1, np.int32)
        t[[layout.LANE_STREAM, layout.TOP, layout.LANE_THREAD_ON]] = [c.ctypes.data for c in (stream, top, thread_on)]
        t[layout.PHASE] = 0
        find(t.ctypes.data)
        if top[-1] <= 4 * n + 4096 or streams is not None:
            break
        streams, ranks = np.unique(stream, return_inverse=True)  # numbers too far apart for a table
        stream = (ranks.reshape(-1) - (streams[0] < 0)).astype(np.int32)
        streams = streams[streams >= 0]
    number = np.zeros(int(top[-1]), np.int32)
    t[layout.NUMBER], t[layout.PHASE] = number.ctypes.data, 1
    find(t.ctypes.data)
    n_lanes = int(t[layout.N_LANES])
    lane_of = np.empty(n, np.int32)
    rows, ptr = np.zeros((5, n_lanes), np.int32), np.zeros(n_lanes + 1, np.int64)
    for key, column in ((layout.LANE_OF, lane_of), (layout.LANE_PTR, ptr),
                        (layout.LANE_DEVICE, rows[0]), (layout.LANE_STREAM_OF, rows[1]),
                        (layout.LANE_LAUNCHES, rows[2]), (layout.LANE_COPIES, rows[3]),
                        (layout.LANE_PASSES, rows[4])):  # fmt: skip
        t[key] = column.ctypes.data
    t[layout.PHASE] = 2
    find(t.ctypes.data)
    stream_of = rows[1] if streams is None else streams[rows[1]]
    return _Lanes(lane_of, rows[0], stream_of, ptr, *rows[2:], ahead=bool(t[layout.AHEAD]))


_plans: WeakKeyDictionary[Program, Plan] = WeakKeyDictionary()


def plan_of(program: Program, cluster: Cluster) -> Plan:
    """Return the plan of a program, made when it is first asked for."""
    plan = _plans.get(program)
    if plan is None or plan.cluster is not cluster:
        plan = _plans[program] = Plan(program, cluster)
    return plan


def launch_table(program: Program, demand: Demand) -> Table:
    """Return what the launches of a program ask for, as rows of machine code."""
    table = np.zeros(len(demand.solo), layout.LAUNCH)
    if len(table) != len(program.launch_op):
        raise ValueError(f"a demand of {len(table)} launches for a program of {len(program.launch_op)}")
    for name in ("solo", "unit", "sm_share", "dram_share", "alpha", "beta", "traffic", "blocks", "warps", "registers",
                 "shared_memory", "kind"):  # fmt: skip
        table[name] = getattr(demand, name)
    table["residency"] = np.minimum(demand.residency, _FILLED)
    table["priority"] = program.priority[program.launch_op]
    table["follows"][1:] = program.launch_op[1:] == program.launch_op[:-1]
    return table


def _connections(cluster: Cluster, lanes: Table, copies: npt.NDArray[np.bool_], passes: Table) -> Table:
    """Return the hardware queues that several compute streams share, and let the lanes know theirs."""
    queues = np.array([min(int(device.connections), _MOST) for device in cluster.devices])
    contended = np.array([device.contention for device in cluster.devices])
    mine = np.flatnonzero(contended[lanes["device"]] & ~copies)
    if (lanes["stream"][mine] < queues[lanes["device"][mine]]).all():
        return np.zeros(0, layout.CONNECTION)
    device = lanes["device"][mine].astype(np.int64)
    keys = device * 2**31 + lanes["stream"][mine] % queues[device]
    _, number, sharers = np.unique(keys, return_inverse=True, return_counts=True)
    kept = sharers > 1  # a queue of its own orders nothing that the stream does not
    lanes["connection"][mine] = np.where(kept, np.cumsum(kept) - 1, -1)[number]
    room = np.bincount(number, passes[mine], len(sharers)).astype(np.int64)[kept]
    connections = np.zeros(len(room), layout.CONNECTION)
    connections["first"] = np.cumsum(room) - room
    connections["head"] = room
    return connections


def _devices(devices: tuple[Device, ...]) -> Table:
    table = np.zeros(len(devices), layout.DEVICE)
    for d, device in enumerate(devices):
        for name in ("sms", "resident_kernels"):
            table[name][d] = min(int(getattr(device, name)), _MOST)
        for name in ("contention", "interleave", "bandwidth", "copy_rate"):
            table[name][d] = getattr(device, name)
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
