"""One operator after the other."""

from simsched.model import Cluster, CostModel, OpGraph, Schedule, operator_times


def sequential(graph: OpGraph, cluster: Cluster, cost: CostModel) -> Schedule:
    """Run every operator on one stream of the first device, in topological order.

    Parameters
    ----------
    graph, cluster
        The graph to run, and the cluster that runs it.
    cost
        Time of an operator alone on a device, in us.

    Returns
    -------
    Schedule
        A schedule with `execution="events"`; `estimate` is the sum of the times.

    Notes
    -----
    The baseline of every speedup. O(V + E).
    """
    times = operator_times(graph, cluster.devices[0], cost)
    return Schedule.from_columns(
        graph, graph.order_index, [cluster.devices[0].name], estimate=float(times.sum()), scheduler="sequential"
    )
