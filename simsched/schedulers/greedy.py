"""Every operator that is ready runs in the next stage."""

from simsched.base.codec import Size
from simsched.model import Cluster, CostModel, OpGraph, Schedule
from simsched.schedulers.instance import turns


def greedy(graph: OpGraph, cluster: Cluster, cost: CostModel, *, streams: Size | None = None) -> Schedule:  # noqa: ARG001
    """Put all ready operators into one stage of the first device, each in a separate group.

    Parameters
    ----------
    graph, cluster
        The graph to run, and the cluster that runs it.
    cost
        Not used: this scheduler knows no times, so the schedule has no `estimate`.
    streams
        Most operators in a stage, the first ready ones; None for no limit.

    Returns
    -------
    Schedule
        With `execution="stages"`.

    Raises
    ------
    SchedulerError
        If `streams` is not a whole number of at least 1.

    Notes
    -----
    The greedy baseline of IOS [1]_ (section 6.1), whose released code takes at most 10 ready operators, block by block;
    here the whole graph is one block. Operators that become ready first are taken first; operators that one stage makes
    ready are taken in graph order. O(V log V + E log E).

    References
    ----------
    .. [1] Ding, Zhu, Jia, Pekhimenko, Han, "IOS: inter-operator scheduler for CNN acceleration",
       MLSys 2021, arXiv:2011.01302.
    """
    waiting = turns(graph)
    ready = sorted(waiting.get_ready())  # in the order in which they became ready
    if streams is None:
        most = len(graph)
    else:
        most = streams
    stages: list[int] = []
    groups: list[int] = []
    while len(stages) < len(ready):
        stage = ready[len(stages) : len(stages) + most]
        stages += [1 + stages[-1] if stages else 0] * len(stage)
        groups += range(len(stage))
        waiting.done(*stage)
        ready += sorted(waiting.get_ready())
    return Schedule.from_columns(
        graph,
        ready,
        [cluster.devices[0].name],
        stream=groups,
        stage=stages,
        group=groups,
        execution="stages",
        scheduler="greedy",
    )
