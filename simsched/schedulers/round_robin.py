"""Deal the operators out to the devices like cards."""

import numpy as np

from simsched.base.codec import Size
from simsched.model import Cluster, CostModel, OpGraph, Schedule


def round_robin(graph: OpGraph, cluster: Cluster, cost: CostModel, *, streams: Size = 1) -> Schedule:  # noqa: ARG001
    """Place operator i of the topological order on device i mod n, and there on its streams in turn.

    Parameters
    ----------
    graph, cluster
        The graph to run, and the cluster that runs it.
    cost
        Not used: this scheduler knows no times, so the schedule has no `estimate`.
    streams
        Streams per device.

    Returns
    -------
    Schedule
        With `execution="events"`.

    Raises
    ------
    SchedulerError
        If `streams` is not a whole number of at least 1.

    Notes
    -----
    A baseline that takes linear time at any size. O(V + E).
    """
    turn = np.arange(len(graph))
    return Schedule.from_columns(
        graph,
        graph.order_index,
        [device.name for device in cluster.devices],
        device=turn % len(cluster),
        stream=turn // len(cluster) % streams,
        scheduler="round-robin",
    )
