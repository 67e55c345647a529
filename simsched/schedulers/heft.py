"""HEFT: operators by falling upward rank, each where it ends first."""

from simsched.base.codec import Size
from simsched.model import Cluster, CostModel, OpGraph, Schedule
from simsched.schedulers.list_scheduling import Draft


def heft(
    graph: OpGraph, cluster: Cluster, cost: CostModel, *, streams: Size | None = None, insertion: bool = True
) -> Schedule:
    """Place operators by falling upward rank, each on the stream of a device where it finishes first.

    Parameters
    ----------
    graph, cluster
        The graph to run, and the cluster that runs it.
    cost
        Time of an operator alone on a device, in us.
    streams
        Streams of each device; each is a processor of the paper. None for 8 on a single device, and 2 on each of
        several: HEFT ignores contention, and with many streams piles all operators onto one device.
    insertion
        Whether an operator may start in an idle interval between two others of a stream, the first that is long enough
        for it; else it starts after all of them.

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
    HEFT [1]_, section 5.1. The upward rank is the longest path to an output, with mean times over devices, and mean
    transfers over the pairs of devices that links join (the paper divides by the mean rate instead); an exact
    `Edge.transfer` is used unchanged. Finish times count the transfer from the one device to the other; streams of a
    device share their memory. Equal ranks: the topological order; equal finish times: the first stream of the first
    device. An idle interval has a length: an operator of no time is not put between two others that follow each other
    at once.

    Devices that are not linked with all before them get no operator, unless all transfers are given as exact times.

    O(E devices + V (log V + devices streams)) in native code, without the search for idle intervals, which looks only
    at intervals that end after the operator's inputs.

    References
    ----------
    .. [1] Topcuoglu, Hariri, Wu, "Performance-effective and low-complexity task scheduling for
       heterogeneous computing", IEEE TPDS 13(3), 2002, doi:10.1109/71.993206.

    Examples
    --------
    >>> graph = OpGraph.from_columns(["a", "b"], [], [], time=[2.0, 3.0])
    >>> plan = heft(graph, Cluster.preset("a100", n_gpus=2), lambda op, device: op.time, streams=1)
    >>> plan.estimate, plan.devices_used
    (3.0, ('gpu0', 'gpu1'))
    """
    draft = Draft("heft", graph, cluster, cost, streams)
    draft.place(draft.upward_rank(), insertion=insertion)
    return draft.schedule()
