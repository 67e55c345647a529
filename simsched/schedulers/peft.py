"""PEFT: HEFT with a look ahead, by a table of the least remaining time."""

import numpy as np

from simsched.base.codec import Size
from simsched.model import Cluster, CostModel, Floats, OpGraph, Schedule
from simsched.schedulers.instance import Instance
from simsched.schedulers.list_scheduling import Draft


def peft(
    graph: OpGraph, cluster: Cluster, cost: CostModel, *, streams: Size | None = None, insertion: bool = True
) -> Schedule:
    """Place ready operators where their finish time and the least remaining time after them are together least.

    Parameters
    ----------
    graph, cluster
        The graph to run, and the cluster that runs it.
    cost
        Time of an operator alone on a device, in us.
    streams
        Streams of each device; each is a processor of the paper. None for 8 on a single device, and 2 on
        each of several, as in `heft`.
    insertion
        Whether an operator may start in an idle interval between two others of a stream, as in `heft`.

    Returns
    -------
    Schedule
        A schedule with `execution="events"`, launched by start times; `estimate` is the makespan without launch,
        synchronisation and contention; a transfer never shares its links.

    Raises
    ------
    SchedulerError
        If `streams` is not a whole number of at least 1, or `insertion` no truth value.

    Notes
    -----
    PEFT [1]_, section 4. The optimistic cost of an operator on a device is the largest cost over its readers, zero for
    outputs; a reader's cost is the least, over devices, of its own optimistic cost there, its time there, and the mean
    transfer if that is another device. The ready operator of largest mean optimistic cost over devices is placed next,
    where its finish time plus optimistic cost is least. Mean transfers, idle intervals and devices without links are as
    in `heft`. Equal means: the topological order; equal sums: the first stream of the first device.

    O(E devices + V (log V + devices streams)): for each edge the least over devices is found once.

    References
    ----------
    .. [1] Arabnejad, Barbosa, "List scheduling algorithm for heterogeneous systems by an optimistic cost
       table", IEEE TPDS 25(3), 2014, doi:10.1109/TPDS.2013.57.
    """
    draft = Draft("peft", graph, cluster, cost, streams)
    with np.errstate(over="ignore"):  # the makespan is refused then
        ahead = optimistic_costs(draft)
        priority = ahead.mean(axis=1)
    draft.place(priority, insertion=insertion, ahead=ahead)
    return draft.schedule()


def optimistic_costs(instance: Instance) -> Floats:
    """Return the least us in which all successors of an operator could end, by its device, (n_ops, n_devices)."""
    graph = instance.graph
    behind = np.zeros((len(instance.graph), len(instance.devices)))
    ptr, edges = graph.outgoing
    for i in graph.order_index[::-1].tolist():
        reading = edges[ptr[i] : ptr[i + 1]]
        then = behind[graph.dst[reading]] + instance.times[:, graph.dst[reading]].T  # (n_readers, n_devices)
        moved = then.min(axis=1) + instance.mean_transfer[reading]
        behind[i] = np.minimum(then, moved[:, None]).max(axis=0, initial=0.0)
    return behind
