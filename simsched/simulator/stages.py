"""The latency of one stage: groups of operators side by side, as schedulers by stages ask for it by the million."""

from array import array
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from simsched.calibrated import Target, upon
from simsched.cluster import Cluster
from simsched.costmodel import CostModel, placed_times
from simsched.errors import SimulationError, UnknownNameError
from simsched.graph import OpGraph
from simsched.program import launch_ptr
from simsched.simulator.compiled import layout
from simsched.simulator.compiled.plan import Layout, launch_rows
from simsched.simulator.compiled.platform import Platform, platform_of
from simsched.simulator.compiled.run import WORD, Run
from simsched.simulator.workload import demand_of

_N_LANES, _N_CONNECTIONS = WORD["n_lanes"], WORD["n_connections"]
Groups = Sequence[Sequence[str]]


class StageLatency:
    """Simulated latency of a stage of a graph on one device: a function of its groups.

    Parameters
    ----------
    graph
        The graph the operators are of.
    cluster, cost
        As in `simulate`.
    device
        Name of the device; None takes the first.

    Raises
    ------
    UnknownNameError
        If the cluster has no such device.
    ClusterError
        If a kernel fits no SM of the device.

    Notes
    -----
    Each group has a stream of its own. Launches and the barrier cost nothing here, so a stage of one
    operator takes exactly its time alone; what the streams themselves cost (`Device.gap` between
    operators of a group, hardware queues that more groups share than there are) is in. It is what
    `simulate` gives for the groups as a schedule on that device without host costs. Some
    microseconds a call; not for two threads at once.

    >>> import simsched as ss
    >>> graph = ss.OpGraph([ss.Operator(name, time=10.0, utilization=0.75) for name in "ab"])
    >>> latency = StageLatency(graph, ss.Cluster.preset("a100"))
    >>> latency([["a"]]), latency([["a"], ["b"]])
    (10.0, 15.0)
    """

    def __init__(
        self, graph: OpGraph, cluster: Target, cost: CostModel | None = None, *, device: str | None = None
    ) -> None:
        graph, cluster = upon(cluster, graph)
        name = cluster.devices[0].name if device is None else device
        free = dict.fromkeys(("launch", "record", "wait", "copy", "barrier"), 0.0)
        alone = Cluster((replace(cluster[name], **free),))  # type: ignore[arg-type]
        ptr = launch_ptr(graph)
        op = np.repeat(np.arange(len(graph)), np.diff(ptr))
        on = np.zeros(len(op), np.int64)
        asked = demand_of(graph, alone, on, placed_times(graph, alone, op, on, cost))
        starts = ptr.tolist()
        self._launches_of = {
            op_name: range(a, b) for op_name, a, b in zip(graph.names, starts, starts[1:], strict=False)
        }
        self._rows = launch_rows(op, np.zeros(len(op), np.int64), asked)
        platform = platform_of(alone)
        room = _layout(platform, len(op))
        self._run, self._queues = Run(room), int(platform.queues[0])
        self._argument, self._lane_of, self._end = (
            room.tables[key].data for key in ("argument", "lane_of", "thread_ptr")
        )
        lanes, self._connections = self._run.table("lanes"), self._run.table("connections")
        self._first, self._connection = lanes["first"].data, lanes["connection"]
        self._connection[:] = -1
        self._run.makespan(self._rows)

    def __call__(self, groups: Groups) -> float:
        """Return the latency in us of a stage.

        Parameters
        ----------
        groups
            Names of operators, group by group, each in the order in which its stream runs them.

        Raises
        ------
        UnknownNameError
            If there is no operator of a name.
        SimulationError
            If an operator stands twice.
        """
        rows, lanes, number = array("i"), array("i"), 0
        known, numbers = self._launches_of, self._run.numbers
        try:
            for group in groups:
                self._first[number] = len(rows)
                for name in group:
                    mine = known[name]
                    rows.extend(mine)
                    lanes.extend([number] * len(mine))
                number += 1
        except KeyError as error:
            raise UnknownNameError("operator", str(error.args[0]), list(known)[:20]) from None
        n = len(rows)
        if len(set(rows)) < n:
            raise SimulationError(f"operator {_twice(groups)!r} stands twice in the stage")
        self._argument[:n], self._lane_of[:n], self._end[1] = rows, lanes, n
        numbers[_N_LANES] = number
        if number > self._queues or numbers[_N_CONNECTIONS]:
            numbers[_N_CONNECTIONS] = self._share_queues(lanes, number)
        return self._run.again()

    def _share_queues(self, lanes: "array[int]", n_groups: int) -> int:
        """Let groups beyond the hardware queues share them; return how many queues are shared."""
        shared = max(0, min(self._queues, n_groups - self._queues))
        queue = np.arange(n_groups) % self._queues
        self._connection[:] = -1
        self._connection[:n_groups] = np.where(queue < shared, queue, -1)
        room = np.bincount(queue[np.array(lanes)], minlength=self._queues)[:shared]
        self._connections["first"][:shared] = np.cumsum(room) - room
        return shared


def _layout(platform: Platform, n: int) -> Layout:
    """Return room for up to `n` launches, each perhaps on a stream of its own."""
    lanes = np.zeros(n, layout.LANE)
    lanes["gap"] = platform.gap[0]
    sizes = dict.fromkeys(layout.OWN, 0) | dict.fromkeys(("later", "items", "passing", "queued", "running"), n + 1)
    sizes |= {"lanes": n, "kernels": n, "connections": n, "cohorts": layout.COHORTS * n, "next": n + 6, "timers": 4}
    sizes |= {"queues": layout.PHASES, "free": 4, "hosts": 1, "devices": 1, "loaded": 1, "flow_ptr": 1}
    return Layout(
        platform,
        tables={
            "thread_ptr": np.zeros(2, np.int64),
            "action": np.zeros(n, np.int8),  # launches, on the one device
            "place": np.zeros(n, np.int32),
            "argument": np.zeros(n, np.int32),
            "lane_of": np.zeros(n, np.int32),
        },
        lanes=lanes,
        connections=np.zeros(n, layout.CONNECTION),
        counts={"n_lanes": 0, "n_hosts": 1, "n_devices": 1, "n_timers": 2, "width": n + 1, "ahead": 1},
        sizes=sizes,
    )


def _twice(groups: Groups) -> str:
    names = [name for group in groups for name in group]
    return next(name for name in names if names.count(name) > 1)
