"""What schedulers that capture a CUDA graph share: operators on streams become a schedule of one device."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from simsched.model.cluster import Cluster
from simsched.model.costmodel import CostModel, operator_times
from simsched.model.graph import OpGraph
from simsched.model.graph.columns import distinct
from simsched.model.schedule import Schedule
from simsched.schedulers.listing import require_finite


def pooled(streams: Sequence[int], max_streams: int | None) -> list[int]:
    """Return the streams of a pool that logical streams run on: i on i mod `max_streams`, None for no limit."""
    return list(streams) if max_streams is None else [stream % max_streams for stream in streams]


def captured(
    graph: OpGraph,
    cluster: Cluster,
    cost: CostModel,
    order: Sequence[int],
    streams: Sequence[int],
    *,
    scheduler: str,
    events: str,
    search: Mapping[str, Any],
) -> Schedule:
    """Return the schedule of a captured graph on the first device.

    Parameters
    ----------
    order
        Operators in launch order, a topological one.
    streams
        Of each operator, in graph order.
    search
        What is said of the search; ``"streams"`` and ``"waits"`` are added: streams in use, and distinct pairs of a
        consumer and a producer that are on two of them.

    Raises
    ------
    SchedulerError
        If the estimate is more than a float holds.

    Notes
    -----
    The estimate is the list evaluation: an operator starts when the one before it on its stream and all that it reads
    from are over, without contention, launches and waits. O(V + E log E).
    """
    device = cluster.devices[0]
    stream = np.asarray(streams, np.int64)
    crossing = stream[graph.src] != stream[graph.dst]
    pairs = distinct(graph.src[crossing].astype(np.int64) * len(graph) + graph.dst[crossing])
    return Schedule.from_columns(
        graph,
        order,
        [device.name],
        stream=stream[np.asarray(order)],
        execution="graph",
        estimate=require_finite(
            scheduler, _makespan(graph, operator_times(graph, device, cost).tolist(), order, streams)
        ),
        scheduler=scheduler,
        events=events,
        search={**search, "streams": len(set(streams)), "waits": len(pairs)},
    )


def _makespan(graph: OpGraph, times: list[float], order: Sequence[int], streams: Sequence[int]) -> float:
    """Return the latest finish in us if nothing but streams and dependencies holds operators up."""
    ptr, edges = graph.incoming
    bounds, producers = ptr.tolist(), graph.src[edges].tolist()
    finish = [0.0] * len(graph)
    free = [0.0] * (max(streams) + 1)
    for v in order:
        start = free[streams[v]]
        for p in producers[bounds[v] : bounds[v + 1]]:
            start = max(start, finish[p])
        finish[v] = free[streams[v]] = start + times[v]
    return max(finish)
