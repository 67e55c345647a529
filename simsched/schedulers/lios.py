"""LIOS: list scheduling of the slowest ready operator onto the stream where it ends first."""

from heapq import heapify, heappop, heappush

from simsched.cluster import Cluster
from simsched.costmodel import CostModel, operator_times
from simsched.graph import OpGraph
from simsched.schedulers.listing import readers, require_streams, sources
from simsched.schedules import Schedule


def lios(graph: OpGraph, cluster: Cluster, cost: CostModel, *, streams: int = 8) -> Schedule:
    """Place the ready operator of largest latency on the stream where it finishes first.

    Parameters
    ----------
    graph, cluster
        What to run, and on what; the first device is used.
    cost
        Time of an operator alone on a device, in us: its rank.
    streams
        Streams of the device.

    Returns
    -------
    Schedule
        With `execution="events"`; `estimate` is the makespan without launch, synchronisation and
        contention, as the paper's model has it.

    Raises
    ------
    SchedulerError
        If `streams` is not a whole number of at least 1.

    Notes
    -----
    LIOS [1]_, Algorithm 1; an operator starts behind the one before it on its stream (no
    insertion). Of equal latencies the operator that was released first comes first (operators
    released together: in graph order); of equal finish times the lowest stream. Line 11 of the
    printed algorithm exchanges start and finish times; Definition 6 is followed. A heap makes it
    O(V (log V + streams) + E) where the paper says O(streams V^2).

    References
    ----------
    .. [1] "LIOS", IEEE Transactions on Services Computing, 2024, doi:10.1109/TSC.2023.3345952.
    """
    require_streams("lios", streams)
    streams = min(streams, len(graph))  # of more streams than operators the rest would stay empty
    times = operator_times(graph, cluster.devices[0], cost).tolist()
    producers, consumers = sources(graph), readers(graph)
    missing = [len(row) for row in producers]
    waiting = [(-times[i], i, i) for i in range(len(graph)) if missing[i] == 0]  # (rank, turn, operator)
    heapify(waiting)
    turn = len(graph)
    free = [0.0] * streams
    finish = [0.0] * len(graph)
    order: list[int] = []
    stream_of: list[int] = []
    while waiting:
        i = heappop(waiting)[2]
        inputs_there = max((finish[p] for p in producers[i]), default=0.0)
        stream = min(range(streams), key=lambda s: max(free[s], inputs_there))
        finish[i] = free[stream] = max(free[stream], inputs_there) + times[i]
        order.append(i)
        stream_of.append(stream)
        for j in consumers[i]:
            missing[j] -= 1
            if missing[j] == 0:
                heappush(waiting, (-times[j], turn, j))
                turn += 1
    return Schedule.from_columns(
        graph, order, [cluster.devices[0].name], stream=stream_of, estimate=max(finish), scheduler="lios"
    )
