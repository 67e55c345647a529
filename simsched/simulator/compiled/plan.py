"""What every run of a program on a cluster shares: flat tables, made once."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
import numpy.typing as npt

from simsched.cluster import Cluster
from simsched.program import BARRIER, COPY, Program
from simsched.simulator.compiled import layout
from simsched.simulator.compiled.platform import Platform, Table, platform_of
from simsched.simulator.compiled.use import Use, streams_in_use
from simsched.simulator.workload import Demand

if TYPE_CHECKING:
    from simsched.simulator.compiled.run import Run

_KEY: Final = "_plan"  # where a program keeps its own
_NO_ROUTES: Final = {
    "copy_route": np.zeros(0, np.int32),
    "routes": np.zeros(0, layout.ROUTE),
    "channels": np.zeros(0, np.int32),
}


@dataclass
class Layout:
    """What a run needs to know.

    Parameters
    ----------
    platform
        What it runs on.
    tables
        Those of `layout.SHARED` that are about the program.
    lanes, connections
        Rows with which these tables begin.
    counts
        Numbers of the run.
    sizes
        Rows of each table of `layout.OWN`.
    routes
        Source and destination of each row of the table `routes`.
    """

    platform: Platform
    tables: dict[str, Table]
    lanes: Table
    connections: Table
    counts: dict[str, int]
    sizes: dict[str, int]
    routes: list[tuple[int, int]] = field(default_factory=list)


class Plan(Layout):
    """A program laid out for a cluster.

    Parameters
    ----------
    program, cluster
        What is run, and on what. The program is checked: machine code trusts its tables.

    Attributes
    ----------
    launches
        Rows of `launch_rows` for the default cost model, once they have been made.
    spare
        Runs that are over, to be used again.
    """

    def __init__(self, program: Program, cluster: Cluster) -> None:
        self.program, self.cluster = program.check(), cluster
        self.platform = platform = platform_of(cluster)
        self.launches: Table | None = None
        self.spare: list[Run] = []
        captured = program.execution == "graph"
        columns: dict[str, Table] = {
            "thread_ptr": program.thread_ptr,
            "action": program.action,
            "argument": program.argument,
            "place": program.device,
        }
        use = streams_in_use(columns | {"stream": _streams(program)}, len(platform.names))
        self.lanes, self.connections = _lanes(platform, use, captured)
        self.tables: dict[str, Table] = columns | {
            "lane_of": use.lane_of,
            "launch_op": program.launch_op,
            "copy_op": program.copies.op,
            "copy_device": program.copies.device,
            "copy_nbytes": program.copies.nbytes,
            "copy_exact": program.copies.transfer,
        }
        if captured:  # the one cost is that of launching it
            self.tables["cost"] = np.zeros_like(platform.tables["cost"])
            self.tables["cost"][0, 0] = platform.graph_launch[program.device[0]]
        self.routes: list[tuple[int, int]] = []
        self.tables |= self._routes()
        self.counts, self.sizes = self._measure(use, captured)

    def take(self) -> "Run":
        """Return a `Run` of this plan that nobody else uses; put back among `spare`, it is used again."""
        from simsched.simulator.compiled.run import Run

        try:
            return self.spare.pop()
        except IndexError:
            return Run(self)

    def _measure(self, use: Use, captured: bool) -> tuple[dict[str, int], dict[str, int]]:
        """Return the numbers of a run, and the rows of its own tables."""
        program, platform = self.program, self.platform
        routes = self.tables["routes"]
        n_lanes, n_devices, n_hosts = len(self.lanes), len(platform.names), len(program.thread_ptr) - 1
        n_timers = 1 << n_devices.bit_length()  # devices and links
        width = int(np.bincount(use.device[use.launches > 0], minlength=1).max())
        n_flows = n_lanes if self.routes else 0  # copies that move bytes at a time: one per stream
        n_channels = len(platform.capacity) + n_flows if self.routes else 0
        longest = int((routes["end"] - routes["first"]).max(initial=0)) + 2
        counts = {
            "n_lanes": n_lanes, "n_hosts": n_hosts, "n_devices": n_devices, "n_events": program.n_events,
            "n_ops": len(program.graph), "n_capacity": n_channels - n_flows, "n_engines": platform.n_engines,
            "n_most_flows": n_flows, "n_connections": len(self.connections), "n_timers": n_timers, "width": width,
            "captured": captured, "ahead": use.ahead,
        }  # fmt: skip
        sizes = {
            "later": n_lanes + n_hosts + 1,
            "queues": layout.PHASES,
            "next": n_lanes + n_hosts + 2 * n_devices + 2,
            "timers": 2 * n_timers,
            "events": program.n_events,
            "items": int(use.ptr[-1]),
            "passing": int(self.connections["head"].sum()) if len(self.connections) else 0,
            "flows": n_flows,
            "capacity": n_channels,
            "channel_left": n_channels,
            "channel_users": n_channels,
            "channel_live": n_channels,
            "flow_ptr": n_flows + 1,
            "flow_channel": n_flows * longest,
            "flow_rate": n_flows,
            "loaded": n_devices,
            "free": 4 * n_devices,
            "queued": n_devices * width,
            "running": n_devices * width,
            "lanes": n_lanes,
            "kernels": n_lanes,
            "moving": n_flows,
            "cohorts": layout.COHORTS * n_lanes,
            "hosts": n_hosts,
            "connections": len(self.connections),
            "devices": n_devices,
        }
        return counts, sizes

    def _routes(self) -> Mapping[str, Table]:
        """Return the route of each copy whose time is not given, and the channels of the routes."""
        program, cluster, n_devices = self.program, self.cluster, len(self.platform.names)
        copies = program.copies
        moved = np.flatnonzero(np.isnan(copies.transfer))
        if not len(moved):
            return _NO_ROUTES
        source = np.zeros(len(copies.op), np.int64)
        rows = np.flatnonzero(program.action == COPY)
        source[program.argument[rows]] = program.device[rows]
        route_of = np.zeros(len(copies.op), np.int32)
        pairs, route_of[moved] = np.unique(source[moved] * n_devices + copies.device[moved], return_inverse=True)
        src, dst = pairs // n_devices, pairs % n_devices
        self.routes = list(zip(src.tolist(), dst.tolist(), strict=True))
        found = cluster.routes(src, dst)
        routes = np.zeros(len(pairs), layout.ROUTE)
        routes["latency"], routes["known"] = found.latency, found.known
        routes["rate"] = np.minimum(found.bandwidth, self.platform.devices["copy_rate"][src])
        routes["first"], routes["end"] = found.channel_ptr[:-1], found.channel_ptr[1:]
        return {"copy_route": route_of, "routes": routes, "channels": np.ascontiguousarray(found.channel, np.int32)}


def plan_of(program: Program, cluster: Cluster) -> Plan:
    """Return the plan of a program, made when it is first asked for, or for another cluster."""
    plan = program.__dict__.get(_KEY)
    if plan is None or plan.cluster is not cluster:
        plan = program.__dict__[_KEY] = Plan(program, cluster)
    return cast(Plan, plan)


def launch_rows(op: npt.NDArray[Any], priority: npt.NDArray[Any], demand: Demand) -> Table:
    """Return what launches ask for as rows of machine code, given the operator of each and the priority of each."""
    table = np.zeros(len(op), layout.LAUNCH)
    for name in ("solo", "unit", "sm_share", "dram_share", "alpha", "beta", "traffic", "blocks", "residency", "warps",
                 "registers", "shared_memory", "kind"):  # fmt: skip
        table[name] = getattr(demand, name)
    table["priority"] = priority
    table["follows"][1:] = op[1:] == op[:-1]
    return table


def _streams(program: Program) -> npt.NDArray[np.int32]:
    """Return the stream of each instruction; barriers and syncs are on none, whatever they say."""
    named = (program.action >= BARRIER) & (program.stream >= 0)
    return np.where(named, np.int32(-1), program.stream) if named.any() else program.stream


def _lanes(platform: Platform, use: Use, captured: bool) -> tuple[Table, Table]:
    """Return the streams, and the hardware queues that several compute streams share."""
    device = use.device
    lanes = np.zeros(len(device), layout.LANE)
    lanes["device"], lanes["stream"], lanes["first"], lanes["connection"] = device, use.stream, use.ptr[:-1], -1
    lanes["gap"] = (platform.graph_node if captured else platform.gap)[device]
    lanes["hop"] = (platform.graph_node if captured else platform.hop)[device]
    beyond = (use.stream >= platform.queues[device]) & (use.copies == 0)
    if captured or not beyond.any():
        return lanes, np.zeros(0, layout.CONNECTION)
    mine = np.flatnonzero(use.copies == 0)
    on = device[mine].astype(np.int64)
    keys = on * 2**31 + use.stream[mine] % platform.queues[on]
    _, number, sharers = np.unique(keys, return_inverse=True, return_counts=True)
    kept = sharers > 1  # a queue of its own orders nothing that the stream does not
    lanes["connection"][mine] = np.where(kept, np.cumsum(kept) - 1, -1)[number]
    room = np.bincount(number, use.passes[mine], len(sharers)).astype(np.int64)[kept]
    connections = np.zeros(len(room), layout.CONNECTION)
    connections["first"] = np.cumsum(room) - room
    connections["head"] = room
    return lanes, connections
