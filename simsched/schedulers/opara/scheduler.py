"""Opara's two steps, put together."""

from typing import Final

from simsched.model.cluster import Cluster
from simsched.model.costmodel import CostModel
from simsched.model.graph import OpGraph
from simsched.model.schedule import Schedule
from simsched.schedulers.listing import require_choice
from simsched.schedulers.opara.launches import launch_order, searched
from simsched.schedulers.opara.resources import CLASSES, METRICS, memory_intensive, needs
from simsched.schedulers.opara.streams import ALLOCATIONS, allocate_streams
from simsched.schedulers.stream_plan import captured, pooled, require_max_streams

_MODES: Final = ("paper", "impl")
_ORDERS: Final = ("resource", "graph")


def opara(
    graph: OpGraph,
    cluster: Cluster,
    cost: CostModel,
    *,
    mode: str = "paper",
    allocation: str = "journal",
    order: str = "resource",
    metric: str | None = None,
    classes: str = "table",
    max_streams: int | None = None,
) -> Schedule:
    """Open a stream where no producer's can be taken over, and launch what needs least of the GPU first.

    Parameters
    ----------
    graph, cluster
        What to run, and on what; the first device is used.
    cost
        Time of an operator alone on a device in us: for the estimate, the algorithm knows no times.
    mode
        ``"paper"`` or ``"impl"``, the released code; see Notes.
    allocation
        An operator takes over the stream of the first of its producers, in the order of arguments, ``"journal"``:
        that no operator has gone on from; ``"conference"``: of which it is the first consumer in graph order.
        Otherwise it opens a stream.
    order
        ``"resource"``: memory- and compute-intensive operators are launched in turn, of each class the ready one that
        needs least; ``"graph"``: topological order, which needs neither metric nor classes.
    metric
        What an operator needs, as a part of a limit. Per block: ``"shared_memory"``, ``"threads"``, ``"registers"``,
        or ``"max"`` of the three; of the whole GPU: ``"blocks"`` of the grid, or ``"occupancy"``, the warps that can
        be resident; or ``"utilization"``, the operator's own. None: ``"max"`` in mode ``"paper"``,
        ``"shared_memory"`` in ``"impl"``, and for graphs without any kernels ``"utilization"``.
    classes
        ``"table"``: the paper's list of memory-intensive kinds, all others are compute-intensive; ``"roofline"``:
        memory-intensive if the bytes take longer than the FLOP at the device's rates, as the simulator has it;
        ``"measured"``: `Operator.intensity`, into which a profiler's counters go (profiles hold times, which do not
        tell); ``"none"``: one class.
    max_streams
        Streams of the pool they are taken from in turn: logical stream i runs on i mod `max_streams`. None for no
        limit; PyTorch's pool, which the released code uses, has 32.

    Returns
    -------
    Schedule
        With `execution="graph"` and `events="literal"`: every pair of a consumer and a producer on two streams has a
        wait. `estimate` is the list evaluation without contention. `search` holds ``"logical_streams"``,
        ``"streams"`` in use, ``"waits"``, and unless `order` is ``"graph"`` ``"memory_intensive"`` operators and
        ``"metric"``.

    Raises
    ------
    SchedulerError
        If an option is none of these, if no operator has the kernels (or the utilization) that the metric reads, or
        if `classes` is ``"measured"`` and an operator that takes time has no intensity.

    Notes
    -----
    Opara's [1]_ two steps, stream allocation and launch order. Where its released code differs from its text, by mode:

    ================== ===================================== ============================================
    ..                 paper                                 impl
    ================== ===================================== ============================================
    resources          of the kernel that needs most         of the first kernel, shared memory of 48 KiB
    no kernels         needs nothing: first                  after all that have some, in turn
    too large          like any other                        needs of 2 limits and more: likewise
    classes in turn    the other than that launched last     compute at even, memory at odd places
    table              by `kind`                             by parts of the name, spelling included
    streams            given in topological order            given in launch order
    ================== ===================================== ============================================

    Both start with compute. Equal needs: the operator that was ready first; ready together: in graph order. The
    conference version is ``allocation="conference", classes="none"``; given streams in graph order, its rule never
    opens fewer than the journal's. The order of arguments and of operators changes both. Neither minds which edges
    others imply: every wait stays. Unlike the released code, which counts them in, the graph's inputs and outputs are
    operators only where the graph has them as such.

    Allocation O(V + E), launch order O(V log V + E log E), where the released code searches its queues, O(V^2).

    References
    ----------
    .. [1] Chen, Xu, Han, Dong, Chen, Zhou, Liu, "Opara: exploiting operator parallelism for expediting DNN inference on
       GPUs", IEEE Transactions on Computers 74(1), 2025, doi:10.1109/TC.2024.3475589,
       arXiv:2312.10351.
    """
    require_choice("opara", "mode", mode, _MODES)
    require_choice("opara", "allocation", allocation, ALLOCATIONS)
    require_choice("opara", "order", order, _ORDERS)
    if metric is not None:
        require_choice("opara", "metric", metric, METRICS)
    require_choice("opara", "classes", classes, CLASSES)
    require_max_streams("opara", max_streams)
    released = mode == "impl"
    topological = graph.order_index.tolist()
    launches = topological
    said: dict[str, object] = {}
    if order == "resource":
        device = cluster.devices[0]
        need = needs(graph, device, metric, first_kernel=released)
        memory = memory_intensive(graph, device, classes, by_name=released)
        said = {"metric": need.metric, "memory_intensive": int(memory.sum())}
        share: list[float | None] = need.share.tolist()
        if released:
            share = searched(need.share.tolist(), need.known.tolist())
        launches = launch_order(graph, memory.tolist(), share, by_parity=released)
    streams = allocate_streams(graph, launches if released else topological, allocation)
    return captured(
        graph, cluster, cost, launches, pooled(streams, max_streams), scheduler="opara", events="literal",
        search={**said, "logical_streams": max(streams) + 1},
    )  # fmt: skip
