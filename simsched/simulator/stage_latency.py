"""The latency of one stage: groups of operators side by side, as schedulers by stages ask for it by the million."""

from array import array
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from simsched.base.errors import SimulationError, UnknownNameError
from simsched.base.numeric import twice
from simsched.model import LAUNCH, Cluster, CostModel, OpGraph, Target, bind, operator_times
from simsched.model.exchange import exchange_on
from simsched.model.launches import kernels_on
from simsched.simulator.clock import number_processes
from simsched.simulator.demand import demand_on
from simsched.simulator.layout import begin, finish, platform_of
from simsched.simulator.meetings import columns_of_collectives, load_of_symmetric
from simsched.simulator.state import NEW, Connection, Lane, State

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
    Each group has its own stream. Launches and the barrier cost nothing, so a stage of one operator takes exactly its
    time alone. Costs of streams count: `Device.gap` between operators of a group, and shared hardware queues.
    The latency equals the makespan that `simulate` computes for the groups as a schedule on that device without host
    times. A call takes some microseconds; two threads must not use one object at once.

    >>> import simsched as ss
    >>> graph = ss.OpGraph([ss.Operator(name, time=10.0, utilization=0.75) for name in "ab"])
    >>> latency = StageLatency(graph, ss.Cluster.preset("a100"))
    >>> latency([["a"]]), latency([["a"], ["b"]])
    (10.0, 15.0)
    """

    def __init__(
        self, graph: OpGraph, cluster: Target, cost: CostModel | None = None, *, device: str | None = None
    ) -> None:
        graph, cluster = bind(graph, cluster)
        if device is None:
            name = cluster.devices[0].name
        else:
            name = device
        free = dict.fromkeys(("launch", "record", "wait", "copy", "barrier", "launch_latency"), 0.0)
        alone = Cluster((replace(cluster[name], **free),))  # type: ignore[arg-type]
        rows = demand_on(graph, alone, 0, operator_times(graph, alone.devices[0], cost))
        links, collectives = self._find_collectives(graph, rows, alone)
        ptr = kernels_on(graph, alone.devices[0]).ptr.tolist()
        ranges = map(range, ptr[:-1], ptr[1:])
        self._launches_of = dict(zip(graph.names, ranges, strict=True))
        platform = platform_of(alone)
        n = len(rows)
        n_collectives = collectives.get("n", 0)
        lanes = np.zeros(n, Lane.dtype)
        lanes["rooms"] = -1
        lanes["sms"] = alone.devices[0].sms
        lanes["gap"] = platform.gap[0]
        lanes["connection"] = -1
        self._run = run = State(
            clock=number_processes(n, 1, 1, n_collectives),
            program={
                "n": n,
                "action": np.full(n, LAUNCH, np.int8),
                "place": np.zeros(n, np.int32),
                "argument": np.zeros(n, np.int32),
                "lane_of": np.zeros(n, np.int32),
                "launch_op": np.zeros(n, np.int32),
            },
            hosts=platform.hosts | {"n": 1, "ahead": 1, "thread_ptr": np.zeros(2, np.int64)},
            events={"n_devices": 1},
            lanes={
                "n": n,
                "n_items": n,
                "n_connections": n,
                "rows": lanes,
                "connections": np.zeros(n, Connection.dtype),
            },
            devices=platform.of_devices
            | {
                "n": 1,
                "n_lanes": n,
                "n_works": n + n_collectives,
                "width": n,
                "rows": platform.devices.copy(),
                "crowds": platform.crowds.copy(),
            },
            links=links | {"n_devices": 1, "first_collective": n},
            collectives=collectives,
        )
        run.lanes.n = 0
        run.lanes.n_connections = 0
        self._queues = int(platform.queues[0])
        self._argument = run.program["argument"].data
        self._lane_of = run.program["lane_of"].data
        self._end = run.hosts["thread_ptr"].data
        self._first = lanes["first"].data
        self._connection = lanes["connection"]
        begin(run, rows)

    @staticmethod
    def _find_collectives(
        graph: OpGraph, rows: npt.NDArray[Any], alone: Cluster
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return values of `LinkTable` and `CollectiveTable` for symmetric collectives; number these in the rows."""
        exchanging = np.flatnonzero(rows["meeting"] >= 0)
        if not len(exchanging):
            return {}, {}
        collectives = [graph.meetings[number].collective for number in rows["meeting"][exchanging].tolist()]
        rows["meeting"][exchanging] = np.arange(len(exchanging))
        rows["rank"] = 0
        device = alone.devices[0]
        n = len(rows)
        channels = platform_of(alone).channels
        loads = [load_of_symmetric(alone, 0, exchange_on(collective, device)) for collective in collectives]
        links = {
            "channels": np.concatenate([channels, np.zeros(n, channels.dtype)]),
            "n_channels": len(channels),
            "most_flows": n,
            "most_crossings": n * (len(channels) + 2),
        }
        return links, columns_of_collectives(loads) | {"n": len(exchanging), "n_members": len(exchanging)}

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
        rows: list[int] = []
        lanes: list[int] = []
        known = self._launches_of
        first = self._first
        number = 0
        try:
            for group in groups:
                first[number] = len(rows)
                for name in group:
                    rows += known[name]
                lanes += [number] * (len(rows) - len(lanes))
                number += 1
        except KeyError as error:
            raise UnknownNameError("operator", str(error.args[0]), list(known)[:20]) from None
        n = len(rows)
        run = self._run
        if len(set(rows)) < n:
            repeated = twice(name for group in groups for name in group)
            raise SimulationError(f"operator {repeated!r} stands twice in the stage")
        self._argument[:n] = array("i", rows)
        self._lane_of[:n] = array("i", lanes)
        self._end[1] = n
        run.lanes.n = number
        if number > self._queues or run.lanes.n_connections:  # groups beyond the hardware queues share them
            shared = max(0, min(self._queues, number - self._queues))
            run.lanes.n_connections = shared
            queue = np.arange(number) % self._queues
            self._connection[:] = -1
            self._connection[:number] = np.where(queue < shared, queue, -1)
            room = np.bincount(queue[np.array(lanes)], minlength=self._queues)[:shared]
            run.lanes["connections"]["first"][:shared] = np.cumsum(room) - room
        run.status = NEW
        run.samples.at = 0
        finish(run)
        return run.makespan
