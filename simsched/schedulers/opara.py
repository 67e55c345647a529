"""Opara: streams taken over from producers, launches by the operators' needs of the GPU."""

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Annotated, Final

import numpy as np
import numpy.typing as npt

from simsched.base.codec import Among, Size
from simsched.base.errors import SchedulerError
from simsched.model import INTENSITIES, WARP, Cluster, CostModel, Device, Floats, Kernel, OpGraph, Schedule, occupancy
from simsched.model.launches import Launches, kernels_on
from simsched.schedulers.instance import captured_schedule, turns
from simsched.schedulers.protocol import Mode

METRICS: Final = ("shared_memory", "threads", "registers", "max", "blocks", "occupancy", "utilization")
SHARED_MEMORY_PER_BLOCK: Final = 48 * 1024
"""Bytes a block may have without asking for more, which the released code takes for the limit."""
_THREADS_PER_BLOCK: Final = 1024
_FIRST: Final = 2.0
"""The released search starts from this metric: an operator with as much or more is never found by it."""

_TABLE: Final = (
    "add cast ceil clip concat exp floor log gelu neg pow reciprocal relu sigmoid slice sqrt sub tanh transpose "
    "unsqueeze view avg_pool reshape max_pool adaptive_avg_pool adaptive_max_pool permute flatten dropout batch_norm "
    "layer_norm instance_norm contiguous ones to"
)
_MOVING_KINDS: Final = frozenset((*_TABLE.split(), "pool", "copy"))  # ours for avg_pool, max_pool and contiguous
_MOVING_NAMES: Final = _TABLE.replace("sqrt", "relusqrt").replace("permute", "premute").split()  # as released


def needs(graph: OpGraph, device: Device, metric: str | None, *, released: bool) -> tuple[Floats, str]:
    """Return each operator's need of the GPU, shape (n_ops,), and the metric that gives it.

    Parameters
    ----------
    metric
        One of `METRICS`; None for ``"max"``, if `released` ``"shared_memory"``, or ``"utilization"`` if no operator
        has kernels.
    released
        Whether needs are computed as in the released code: by the first kernel of an operator, against 48 KiB of shared
        memory; operators without kernels, or that need 2 limits and more, need infinitely much, as the released search
        does not find them. Otherwise by the kernel that needs most, against the device's limit of a block, and 0 if not
        known.

    Raises
    ------
    SchedulerError
        If no operator has the data of the metric, and not all of them take no time.
    """
    launches = kernels_on(graph, device)
    used = metric
    if used is None:
        if released:
            by_kernel = "shared_memory"
        else:
            by_kernel = "max"
        if launches.has_shape.any():
            used = by_kernel
        else:
            used = "utilization"
    first = launches.ptr[:-1]
    reads = f"Operator({'utilization' if used == 'utilization' else 'kernels'}=...)"
    if used == "utilization":
        has_need = np.isfinite(graph.utilization)
    else:
        has_need = launches.has_shape[first]
    if not has_need.any() and (graph.time != 0).any():
        raise SchedulerError(
            f"opara: no operator of graph {graph.name!r} has what metric={used!r} reads, {reads}; give that, another "
            f"metric, or order='graph'"
        )
    share = np.zeros(len(graph))
    if used == "utilization":
        share = np.nan_to_num(graph.utilization)
    elif has_need.any():
        if released:
            limit = SHARED_MEMORY_PER_BLOCK
        else:
            limit = device.shared_memory_per_block
        kernels = _of_kernels(used, launches, device, limit)
        share[has_need] = (kernels[first] if released else np.maximum.reduceat(kernels, first))[has_need]
    return (np.where(has_need & (share < _FIRST), share, np.inf) if released else share), used


def memory_intensive(graph: OpGraph, device: Device, classes: str, *, by_name: bool) -> npt.NDArray[np.bool_]:
    """Return which operators are memory-intensive, shape (n_ops,).

    Parameters
    ----------
    classes
        ``"table"``: by kind, or with `by_name` by parts of the name as in the released code; ``"roofline"``:
        memory-intensive if the bytes take longer than the FLOP at the rates of the device; ``"measured"``: by
        `Operator.intensity`; ``"none"``: none.

    Raises
    ------
    SchedulerError
        If an operator that takes time has no `intensity` and `classes` is ``"measured"``.
    """
    if classes == "none":
        return np.zeros(len(graph), np.bool_)
    if classes == "table" and by_name:
        return np.array([any(word in name for word in _MOVING_NAMES) for name in graph.names])
    if classes == "table":
        codes, texts = graph.labels("kind")
        return np.array([text in _MOVING_KINDS for text in texts])[codes]
    if classes == "roofline":
        codes, texts = graph.labels("dtype")
        peak = np.array([device.peak_rate(text or "fp32") for text in texts])[codes]
        return np.asarray(graph.nbytes / device.bandwidth > graph.flops / peak)
    unknown = np.flatnonzero((graph.intensity < 0) & (graph.time != 0))
    if len(unknown):
        raise SchedulerError(
            f"opara: operator {graph.names[unknown[0]]!r} has no intensity, which classes='measured' reads; give "
            f"Operator(intensity='compute' or 'memory'), or classes='roofline'"
        )
    return np.asarray(graph.intensity == INTENSITIES.index("memory"))


def _of_kernels(metric: str, launches: Launches, device: Device, shared_memory: int) -> Floats:
    """Return the need of each launch as a part of a limit, 0 without a shape.

    Parameters
    ----------
    shared_memory
        Limit of the shared memory of a block in bytes.
    """
    threads = launches.threads
    per_block: dict[str, Floats] = {
        "shared_memory": launches.shared_memory / shared_memory,
        "threads": threads / _THREADS_PER_BLOCK,
        "registers": launches.registers * threads / device.max_registers_per_block,
    }
    if metric in per_block:
        return per_block[metric]
    if metric == "max":
        return np.asarray(np.maximum.reduce(list(per_block.values())))
    if metric == "blocks":
        return launches.blocks / (device.sms * device.blocks_per_sm)
    shapes = np.stack([threads, launches.registers, launches.shared_memory], axis=1)
    distinct, at = np.unique(shapes, axis=0, return_inverse=True)
    held = [occupancy(device, Kernel(1, *shape)).blocks if shape[0] else 0 for shape in distinct.tolist()]
    blocks = np.minimum(np.array(held)[at.ravel()], launches.blocks / device.sms)
    return np.asarray(blocks * -(-threads // WARP) / (device.threads_per_sm // WARP))


_NOBODY: Final = -1


def allocate_streams(graph: OpGraph, order: Sequence[int], allocation: str) -> list[int]:
    """Return the stream of each operator, in graph order; streams are numbered in the order of opening.

    Parameters
    ----------
    order
        Operators in the order in which they are given streams, a topological one.
    allocation
        ``"journal"``: the first producer, in the order of arguments, whose stream no operator has taken over yet;
        ``"conference"``: the first that has no consumer given before this one.

    Notes
    -----
    O(V + E).

    >>> from simsched import Edge, Operator
    >>> fork = OpGraph([Operator(name) for name in "abc"], [Edge("a", "b"), Edge("a", "c")])
    >>> allocate_streams(fork, [0, 1, 2], "journal")
    [0, 0, 1]
    """
    ptr, edges = graph.incoming
    bounds = ptr.tolist()
    producers = graph.src[edges].tolist()
    heir = [_NOBODY] * len(graph)  # operator that takes over the stream of an operator
    if allocation == "conference":
        for u, v in zip(graph.src.tolist(), graph.dst.tolist(), strict=True):
            if heir[u] == _NOBODY or v < heir[u]:
                heir[u] = v
    stream = [0] * len(graph)
    opened = 0
    for v in order:
        for p in producers[bounds[v] : bounds[v + 1]]:
            if heir[p] == _NOBODY or heir[p] == v:
                heir[p] = v
                stream[v] = stream[p]
                break
        else:
            stream[v] = opened
            opened += 1
    return stream


def launch_order(
    graph: OpGraph, memory: Sequence[bool], need: Sequence[float], *, by_parity: bool = False
) -> list[int]:
    """Return operators in launch order, a topological one.

    Parameters
    ----------
    memory
        Whether each operator is memory-intensive, in graph order; the others are compute-intensive.
    need
        Need of each operator, the least first; on ties the one that was ready first.
    by_parity
        Turns where both classes are ready: the class other than the last launch's, or with `by_parity` compute at even
        and memory at odd places of the order, whatever was launched before.

    Notes
    -----
    Starts with compute. Ready together: in graph order. O(V log V + E log E).
    """
    waiting = turns(graph)
    turn = 0
    ready: tuple[list[tuple[float, int, int]], ...] = ([], [])  # compute, memory
    order: list[int] = []
    wanted = 0
    while waiting.is_active():
        for v in sorted(waiting.get_ready()):
            heappush(ready[memory[v]], (need[v], turn, v))
            turn += 1
        if ready[wanted]:
            chosen = wanted
        else:
            chosen = 1 - wanted
        v = heappop(ready[chosen])[2]
        order.append(v)
        waiting.done(v)
        if by_parity:
            wanted = len(order) % 2
        else:
            wanted = 1 - chosen
    return order


def opara(
    graph: OpGraph,
    cluster: Cluster,
    cost: CostModel,
    *,
    mode: Mode = "paper",
    allocation: Annotated[str, Among(("journal", "conference"))] = "journal",
    order: Annotated[str, Among(("resource", "graph"))] = "resource",
    metric: Annotated[str, Among(METRICS)] | None = None,
    classes: Annotated[str, Among(("table", "roofline", "measured", "none"))] = "table",
    max_streams: Size | None = None,
) -> Schedule:
    """Open a stream where no producer's can be taken over; launch first the operator with the least need of the GPU.

    Parameters
    ----------
    graph, cluster
        The graph to run, and the cluster; its first device is used.
    cost
        Time of an operator alone on a device in us: for the estimate, the algorithm knows no times.
    mode
        ``"paper"`` or ``"impl"``, the released code; see Notes.
    allocation
        An operator takes over the stream of the first of its producers, in the order of arguments, ``"journal"``: whose
        stream no other operator has taken over; ``"conference"``: of which it is the first consumer in graph order.
        Otherwise it opens a stream.
    order
        ``"resource"``: memory- and compute-intensive operators are launched in turn, of each class the ready one that
        needs least; ``"graph"``: topological order, which needs neither metric nor classes.
    metric
        An operator's need, as a part of a limit. Per block: ``"shared_memory"``, ``"threads"``, ``"registers"``, or
        ``"max"`` of the three; of the whole GPU: ``"blocks"`` of the grid, or ``"occupancy"``, the warps that can be
        resident; or ``"utilization"``, the operator's own. None: ``"max"`` in mode ``"paper"``, ``"shared_memory"`` in
        ``"impl"``, and for graphs without any kernels ``"utilization"``.
    classes
        ``"table"``: the paper's list of memory-intensive kinds, all others are compute-intensive; ``"roofline"``:
        memory-intensive if the bytes take longer than the FLOP at the device's rates, as in the simulator;
        ``"measured"``: `Operator.intensity`, which holds a profiler's counters (profiles hold times, which do not show
        the class); ``"none"``: one class.
    max_streams
        Streams of the pool they are taken from in turn: logical stream i runs on i mod `max_streams`. None for no
        limit; PyTorch's pool, which the released code uses, has 32.

    Returns
    -------
    Schedule
        A schedule with `execution="graph"` and `events="literal"`: every pair of a consumer and a producer on two
        streams has a wait. `estimate` is the list evaluation without contention. `search` holds ``"logical_streams"``,
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
    released = mode == "impl"
    topological = graph.order_index.tolist()
    launches = topological
    details: dict[str, object] = {}
    if order == "resource":
        device = cluster.devices[0]
        need, used = needs(graph, device, metric, released=released)
        memory = memory_intensive(graph, device, classes, by_name=released)
        details = {"metric": used, "memory_intensive": int(memory.sum())}
        launches = launch_order(graph, memory.tolist(), need.tolist(), by_parity=released)
    streams = allocate_streams(graph, launches if released else topological, allocation)
    pooled = [stream % (max_streams or len(graph)) for stream in streams]
    return captured_schedule(
        graph,
        cluster,
        cost,
        launches,
        pooled,
        scheduler="opara",
        events="literal",
        search={**details, "logical_streams": max(streams) + 1},
    )
