"""ETF: always the operator that can start first."""

from simsched.base.kinds import Size
from simsched.model import Cluster, CostModel, OpGraph, Schedule
from simsched.schedulers.list_scheduling import Draft


def etf(graph: OpGraph, cluster: Cluster, cost: CostModel, *, streams: Size | None = None) -> Schedule:
    """Place, of all ready operators and devices, the operator that can start first where it can.

    Parameters
    ----------
    graph, cluster
        What to run, and on what.
    cost
        Time of an operator alone on a device, in us.
    streams
        Streams of each device; each is a processor of the paper. None for 8 on a single device, and 2 on
        each of several, as in `heft`.

    Returns
    -------
    Schedule
        With `execution="events"`, launched by start times; `estimate` is the makespan without launch,
        synchronisation and contention, every transfer with the links to itself.

    Raises
    ------
    SchedulerError
        If `streams` is not a whole number of at least 1.

    Notes
    -----
    ETF [1]_: an operator starts when its inputs are there and a stream is free, behind the operators of that
    stream. Equal starts: the operator of higher static level (longest path to an output, of the mean times
    over devices, transfers not counted), then the first in topological order, then the first stream of the
    first device. The paper's devices are equal; on unequal ones ETF does not see that one of them is faster.
    Devices without links are as in `heft`.

    The paper's O(V^2 devices) is O(devices (E + V log V)) here, in machine code: each device keeps the
    operators whose inputs are there by level, and the others by when their inputs will be.

    References
    ----------
    .. [1] Hwang, Chow, Anger, Lee, "Scheduling precedence graphs in systems with interprocessor
       communication times", SIAM Journal on Computing 18(2), 1989, doi:10.1137/0218016.
    """
    draft = Draft("etf", graph, cluster, cost, streams)
    draft.place_earliest(draft.upward_rank(transfers=False))
    return draft.schedule()
