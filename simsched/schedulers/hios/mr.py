"""HIOS-MR: mappings recorded per operator and device, then neighbours on a device into stages."""

import numpy as np

from simsched.model.cluster import Cluster
from simsched.model.costmodel import CostModel
from simsched.model.graph import OpGraph
from simsched.model.schedule import Schedule
from simsched.schedulers.hios.instance import Instance
from simsched.schedulers.hios.recorder import record
from simsched.schedulers.hios.stages import Stages, finished, require_options, stage_costs
from simsched.schedulers.protocol import Tools
from simsched.schedulers.stage_costs import StageLatencyOption


def hios_mr(
    graph: OpGraph,
    cluster: Cluster,
    cost: CostModel,
    *,
    tools: Tools,
    stage_latency: StageLatencyOption = "simulated",
    w: int = 2,
    insertion: bool = False,
    mode: str = "paper",
) -> Schedule:
    """Map operators by the mappings recorded for those before as `inter_mr` does, then join neighbours to stages.

    Parameters
    ----------
    graph, cluster
        What to run, and on what.
    cost
        Time of an operator alone on a device, in us.
    stage_latency, w
        As in `hios_lp`.
    insertion, mode
        As in `inter_mr`.

    Returns
    -------
    Schedule
        As of `hios_lp`, without ``paths``.

    Raises
    ------
    SchedulerError
        If an option is out of range.

    Notes
    -----
    HIOS [1]_, Algorithms 3 and 2: `inter_mr`, then the windows of `hios_lp`, which see.

    References
    ----------
    .. [1] "HIOS: Hierarchical Inter-Operator Scheduler for Real-Time Inference of DAG-Structured Deep
       Learning Models on Multiple GPUs", IEEE CLUSTER 2023.
    """
    require_options("hios-mr", w=w, insertion=insertion, mode=mode)
    instance = Instance(graph, cluster, cost)
    costs = stage_costs("hios-mr", stage_latency, instance, cost, tools)
    return finished("hios-mr", _mapped(instance, insertion, mode), {}, w, costs)


def inter_mr(
    graph: OpGraph, cluster: Cluster, cost: CostModel, *, insertion: bool = False, mode: str = "paper"
) -> Schedule:
    """Map operators one by one, with a mapping of all before recorded for each device that the last is on.

    Parameters
    ----------
    graph, cluster
        What to run, and on what.
    cost
        Time of an operator alone on a device, in us.
    insertion
        Whether operators, once mapped, may start in gaps between earlier ones on their device (ours); while
        mappings are recorded each runs behind those before it.
    mode
        ``"paper"``: the algorithm as printed; ``"impl"``: the mapping of the released code (see Notes),
        with the order and the estimate of the paper.

    Returns
    -------
    Schedule
        One operator per stage, ``execution="stages"``; `estimate` is the makespan of the list schedule
        of the mapping, without launch, synchronisation and contention.

    Raises
    ------
    SchedulerError
        If an option is out of range.

    Notes
    -----
    HIOS [1]_, Algorithm 3 (HIOS-MR) without Algorithm 2. Operators in falling priority (see `inter_lp`);
    the i-th may go to the first i devices. State (i, j) is the i-th operator on device j: of the mappings
    recorded in the states (i - 1, k), that after which it ends first, behind all that this mapping has on
    device j and when its inputs are there. Ties take the first k; of the last operator's states, the
    mapping of least makespan is taken, of equal ones the first j (on a graph of one output this is
    the earliest end of the last operator, as printed).

    O(M^2 (V + E)) for the times, with M devices, and O(M V^2) for copying the recorded mappings.

    On unequal devices and links as in `inter_lp`. In the released code only the first producer of an
    operator counts, the first operator takes no time, the second may go to any device, and the earliest
    end recorded for the last operator decides; this is ``mode="impl"``.

    References
    ----------
    .. [1] "HIOS: Hierarchical Inter-Operator Scheduler for Real-Time Inference of DAG-Structured Deep
       Learning Models on Multiple GPUs", IEEE CLUSTER 2023.
    """
    require_options("inter-mr", insertion=insertion, mode=mode)
    return finished("inter-mr", _mapped(Instance(graph, cluster, cost), insertion, mode), {})


def _mapped(instance: Instance, insertion: bool, mode: str) -> Stages:
    """Return the operators on their devices by Algorithm 3."""
    found = instance.mapping(inserts=insertion, released=mode == "impl", n_states=1)
    while found.at < found.n_ops:
        record(found)
    n_devices = found.n_devices
    free = found["free"].reshape(2, n_devices, n_devices)[found.at % 2, : found.n_states]
    best = int(np.argmin(free.diagonal() if found.released else free.max(axis=1)))
    found["ops"]["device"] = found["mapped"].reshape(2, n_devices, found.n_ops)[found.at % 2, best]
    return Stages(instance, found)
