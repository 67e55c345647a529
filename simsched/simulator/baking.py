"""What a cost model says of operators where they are placed, and schedules with these times written in."""

import numpy as np

from simsched.model import LAUNCH, Cluster, CostModel, Floats, Program, Schedule, placed_times
from simsched.model.graph.derived import with_times


def placed_operator_times(runs: Schedule | Program, cluster: Cluster, cost: CostModel | None) -> Floats:
    """Return the time of each operator alone in us on the device that it is placed on, shape (n_ops,), in graph order.

    A program is one of the devices of the cluster, in their order.
    """
    if isinstance(runs, Program):
        launches = np.flatnonzero(runs.action == LAUNCH)
        op, first = np.unique(runs.launch_op[runs.argument[launches]], return_index=True)
        device = runs.device[launches][first].astype(np.int64)
    else:
        op = runs.op
        device = np.array([cluster.index.get(name, -1) for name in runs.devices])[runs.device]
    times = np.empty(len(runs.graph))
    times[op] = placed_times(runs.graph, cluster, op, device, cost)
    return times


def baked(plan: Schedule, cluster: Cluster, cost: CostModel | None) -> Schedule:
    """Return a schedule whose operators have as `time` what a cost model says of them where they are placed.

    It takes as long without the cost model as with it.

    >>> from simsched.model.graph import Operator, OpGraph
    >>> from simsched.model.schedule import Placement
    >>> plan = Schedule(OpGraph([Operator("a")]), [Placement("a")])
    >>> baked(plan, Cluster.preset("a100"), lambda op, device: 7.0).graph["a"].time
    7.0
    """
    times = placed_operator_times(plan, cluster, cost)
    return plan if (times == plan.graph.time).all() else plan.over(with_times(plan.graph, times))
