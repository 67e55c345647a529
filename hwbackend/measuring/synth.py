"""Graphs as a backend runs them: operators of unknown kernels become synthetic ones of equal time and utilization."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from simsched.calibration import Calibration
from simsched.model import WARP, Cluster, Device, Edge, Kernel, Operator, OpGraph, default_cost
from simsched.model.launches import kernels_on

SYNTH: Final = "synth"
OUTPUT_NBYTES: Final = 1024
"""Bytes of the output of a synthetic operator that nobody needs more of: 256 floats."""

_THREADS: Final = 128
_REGISTERS: Final = 32
_LONGEST: Final = 250.0  # us that a kernel takes, about, before an operator is given more of them
_LAUNCHES: Final = 25  # that such a kernel takes as long as, at least
_MOST_KERNELS: Final = 16
_SEVERAL: Final = 2  # blocks that fill an SM, from which on each SM gets the same number of them
_ELSEWHERE: Final = 0.1  # part of the other resource that a synthetic kernel takes


def realised(
    graph: OpGraph, cluster: Cluster | Calibration, kernels_of: Callable[[Operator], Operator] | None = None
) -> OpGraph:
    """Return the graph as it is run on a cluster.

    Parameters
    ----------
    graph
        Names and order of its operators stay, and what reads what.
    cluster
        Its first device says how many blocks fill it; of a calibration by the saturation that was measured, where a
        cluster has a prior. Backends realise for their own cluster and leave what is realised already as it is.
    kernels_of
        Returns an operator with the kernels that the backend launches for it; None keeps those it has, or takes those
        that the libraries of the device would choose for its works. It is not asked about synthetic operators.

    Notes
    -----
    An operator without kernels and works gets as many blocks as load the device by its `utilization`, the same number
    for each SM where several fit and that is at least one (a single block if utilization is not known), in one kernel
    or in up to 16 of some 250 us (or of 25 launches, if they take longer), one after the other: blocks as long as a
    whole operator would keep others from the device in a way that no network does. It is bound by DRAM if its
    `intensity` says so, or its bytes take longer than its FLOP; of those that say nothing every third is. A tensor
    of unknown size whose exact transfer time is known gets the bytes that the link between the first two devices
    moves in that time. A graph that is realised already is returned as it is.
    """
    if isinstance(cluster, Calibration):
        warps = cluster.cluster.devices[0].saturating_warps
        cluster = cluster.prior.replace_devices(saturating_warps=warps)
    device = cluster.devices[0]
    operators = []
    for i, op in enumerate(graph.operators):
        if not op.kernels and not op.works:
            operators.append(_synthetic(op, i, device))
        elif op.kind == SYNTH or (kernels_of is None and op.kernels):
            operators.append(op)
        elif kernels_of is None:
            operators.append(replace(op, kernels=kernels_on(graph, device).kernels(i)))
        else:
            operators.append(kernels_of(op))
    rate = 0.0
    if len(cluster) > 1:
        first, second = (d.name for d in cluster.devices[:2])
        rate = min(cluster.route(first, second).bandwidth, device.copy_rate)
    made = OpGraph(operators, [_with_nbytes(edge, rate) for edge in graph.edges], graph.name)
    return graph if made == graph else made


def _with_nbytes(edge: Edge, rate: float) -> Edge:
    if edge.transfer is None:
        return edge
    return replace(edge, nbytes=max(edge.nbytes, edge.transfer * rate), transfer=None)


def _synthetic(op: Operator, position: int, device: Device) -> Operator:
    """Return a synthetic operator of the time and utilization of one without kernels."""
    time = default_cost(op, device)
    threads = min(_THREADS, device.threads_per_sm)
    full = device.saturating_warps / (threads / WARP)  # blocks that fill an SM
    if full >= _SEVERAL:
        per_sm = round((op.utilization or 0.0) * full)
    else:
        per_sm = 0
    blocks = max(1, per_sm * device.sms if per_sm else round((op.utilization or 0.0) * full * device.sms))
    load = min(1.0, blocks / (full * device.sms))
    parts = min(_MOST_KERNELS, max(1, round(time / max(_LONGEST, _LAUNCHES * device.launch))))
    memory = _is_memory_bound(op, position, device)
    flops = time * load * device.peak_rate("fp32") * (_ELSEWHERE if memory else 1.0)
    nbytes = time * load * device.bandwidth * (1.0 if memory else _ELSEWHERE * _ELSEWHERE)
    return replace(
        op,
        kind=SYNTH,
        flops=flops,
        nbytes=nbytes,
        time=time,
        kernels=(Kernel(blocks, threads, _REGISTERS, share=1.0 / parts),) * parts,
        intensity="memory" if memory else "compute",
        dtype="fp32",
    )


def _is_memory_bound(op: Operator, position: int, device: Device) -> bool:
    if op.intensity is not None:
        return op.intensity == "memory"
    if op.flops or op.nbytes:
        return op.nbytes / device.bandwidth > op.flops / device.peak_rate(op.dtype)
    return position % 3 == 2
