"""ETF: always the operator that can start first."""

from heapq import heappop, heappush

import numpy as np

from simsched.base.codec import Size
from simsched.model import Cluster, CostModel, OpGraph, Schedule
from simsched.model.graph.opgraph import longest_from
from simsched.schedulers.instance import by_priority, place_of, turns
from simsched.schedulers.list_scheduling import Draft


def etf(graph: OpGraph, cluster: Cluster, cost: CostModel, *, streams: Size | None = None) -> Schedule:
    """Place, of all ready operators and devices, the operator that can start first where it can.

    Parameters
    ----------
    graph, cluster
        The graph to run, and the cluster that runs it.
    cost
        Time of an operator alone on a device, in us.
    streams
        Streams of each device; each is a processor of the paper. None for 8 on a single device, and 2 on
        each of several, as in `heft`.

    Returns
    -------
    Schedule
        A schedule with `execution="events"`, launched by start times; `estimate` is the makespan without launch,
        synchronisation and contention; a transfer never shares its links.

    Raises
    ------
    SchedulerError
        If `streams` is not a whole number of at least 1.

    Notes
    -----
    ETF [1]_: an operator starts when its inputs are there and a stream is free, after the operators of that stream.
    Equal starts: the operator of higher static level (longest path to an output, of the mean times over devices,
    transfers not counted), then the first in topological order, then the first stream of the first device. The paper's
    devices are equal; on unequal ones ETF does not see that one of them is faster. Devices without links are as in
    `heft`.

    The paper's O(V^2 devices) is O(devices (E + V log V)) here: each device keeps the operators whose inputs are there
    by level, and the others by the time at which their inputs will be.

    References
    ----------
    .. [1] Hwang, Chow, Anger, Lee, "Scheduling precedence graphs in systems with interprocessor
       communication times", SIAM Journal on Computing 18(2), 1989, doi:10.1137/0218016.
    """
    draft = Draft("etf", graph, cluster, cost, streams)
    with np.errstate(over="ignore"):  # the makespan is refused then
        turn = place_of(by_priority(graph, longest_from(graph, draft.mean_time))).tolist()
    times = draft.times.tolist()
    devices = np.arange(len(draft.devices))
    (ptr, edges) = graph.incoming
    slot = draft.ops["slot"]
    start = draft.ops["start"]
    finish = draft.ops["finish"]
    slot[:] = -1
    free = [[0.0] * draft.streams for _ in devices]
    # by device, two heaps of ready operators with their turns: operators whose inputs come later, by that time; and the
    # others
    waiting: list[list[tuple[float, int, int]]] = [[] for _ in devices]
    arrived: list[list[tuple[float, int, int]]] = [[] for _ in devices]

    def first(d: int) -> tuple[float, int, int]:
        """Return when a device can start an operator first, its turn, and the operator."""
        idle = min(free[d])
        while waiting[d] and waiting[d][0][0] <= idle:
            heappush(arrived[d], (0.0, *heappop(waiting[d])[1:]))
        for heap in (waiting[d], arrived[d]):
            while heap and slot[heap[0][2]] >= 0:
                heappop(heap)
        if arrived[d]:
            return (idle, *arrived[d][0][1:])
        return waiting[d][0]

    unplaced = turns(graph)
    while unplaced.is_active():
        for i in unplaced.get_ready():
            read = edges[ptr[i] : ptr[i + 1]]
            home = slot[graph.src[read]] // draft.streams
            there = finish[graph.src[read]][:, None] + draft.moving(read[:, None], home[:, None], devices)
            for d, us in enumerate(there.max(axis=0, initial=0.0).tolist()):
                heappush(waiting[d], (us, turn[i], i))
        start_us, _, i, d = min((*first(d), d) for d in devices.tolist())
        stream = next(k for k, us in enumerate(free[d]) if us <= start_us)
        slot[i] = d * draft.streams + stream
        start[i] = start_us
        finish[i] = free[d][stream] = start_us + times[d][i]
        unplaced.done(i)
    return draft.schedule()
