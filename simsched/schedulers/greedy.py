"""Every operator that is ready runs in the next stage."""

from simsched.base.kinds import Size
from simsched.model import Cluster, CostModel, OpGraph, Schedule
from simsched.schedulers.listing import readers, sources


def greedy(graph: OpGraph, cluster: Cluster, cost: CostModel, *, streams: Size | None = None) -> Schedule:  # noqa: ARG001
    """Put all operators that are ready into one stage of the first device, each in a group of its own.

    Parameters
    ----------
    graph, cluster
        What to run, and on what.
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
    The greedy baseline of IOS [1]_ (section 6.1), whose released code takes at most 10 ready
    operators, block by block; here the whole graph is one block. Operators that become ready first are
    taken first, of those that one stage makes ready the first in graph order. O(V log V + E log E).

    References
    ----------
    .. [1] Ding, Zhu, Jia, Pekhimenko, Han, "IOS: inter-operator scheduler for CNN acceleration",
       MLSys 2021, arXiv:2011.01302.
    """
    consumers = readers(graph)
    missing = [len(producers) for producers in sources(graph)]
    ready = [i for i in range(len(graph)) if missing[i] == 0]  # in the order in which they became so
    most = len(graph) if streams is None else streams
    stages: list[int] = []
    groups: list[int] = []
    stage = 0
    while len(stages) < len(ready):
        taken = ready[len(stages) : len(stages) + most]
        released = []
        for group, i in enumerate(taken):
            stages.append(stage)
            groups.append(group)
            for j in consumers[i]:
                missing[j] -= 1
                if missing[j] == 0:
                    released.append(j)
        ready += sorted(released)
        stage += 1
    return Schedule.from_columns(
        graph, ready, [cluster.devices[0].name], stream=groups, stage=stages, group=groups,
        execution="stages", scheduler="greedy",
    )  # fmt: skip
