"""What an operator needs of the GPU, and whether it computes or moves: what Opara orders launches by."""

from types import MappingProxyType
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from simsched.base.errors import SchedulerError
from simsched.model.cluster import WARP, Device, occupancy
from simsched.model.graph import INTENSITIES, Kernel, OpGraph
from simsched.model.graph.columns import Floats

CLASSES: Final = ("table", "roofline", "measured", "none")
SHARED_MEMORY_PER_BLOCK: Final = 48 * 1024
"""Bytes a block may have without asking for more, which the released code takes for the limit."""
_THREADS_PER_BLOCK: Final = 1024
_MEMORY: Final = INTENSITIES.index("memory")

_TABLE: Final = (
    "add cast ceil clip concat exp floor log gelu neg pow reciprocal relu sigmoid slice sqrt sub tanh transpose "
    "unsqueeze view avg_pool reshape max_pool adaptive_avg_pool adaptive_max_pool permute flatten dropout batch_norm "
    "layer_norm instance_norm contiguous ones to"
)
_OUR_WORDS: Final = ("pool", "copy")  # for avg_pool, max_pool and contiguous
_MISSPELT: Final = MappingProxyType({"sqrt": "relusqrt", "permute": "premute"})  # in the released table
_MOVING_KINDS: Final = frozenset((*_TABLE.split(), *_OUR_WORDS))
_MOVING_NAMES: Final = tuple(_MISSPELT.get(word, word) for word in _TABLE.split())


class Needs(NamedTuple):
    """What operators need of the GPU.

    Parameters
    ----------
    share
        Of each operator, shape (n_ops,), 0 if not known.
    known
        Whether it is, shape (n_ops,).
    metric
        By which it was found.
    """

    share: Floats
    known: npt.NDArray[np.bool_]
    metric: str


def needs(graph: OpGraph, device: Device, metric: str | None, *, first_kernel: bool) -> Needs:
    """Return what each operator needs of the GPU.

    Parameters
    ----------
    metric
        One of `METRICS`; None for ``"max"``, with `first_kernel` ``"shared_memory"``, or ``"utilization"`` if no
        operator has kernels.
    first_kernel
        Whether the first kernel of an operator speaks for it, against 48 KiB of shared memory; otherwise the one
        that needs most, against what a block may have on the device.

    Raises
    ------
    SchedulerError
        If no operator has what the metric reads, and not all of them take no time.
    """
    used = metric
    if used is None:
        by_kernel = "shared_memory" if first_kernel else "max"
        used = by_kernel if len(graph.kernel_blocks) else "utilization"
    ptr = graph.kernel_ptr
    known = np.isfinite(graph.utilization) if used == "utilization" else ptr[1:] > ptr[:-1]
    if not known.any() and (graph.time != 0).any():
        raise SchedulerError(f"opara: no operator of graph {graph.name!r} has {_missing(metric)}, or order='graph'")
    if used == "utilization":
        return Needs(np.nan_to_num(graph.utilization), known, used)
    limit = SHARED_MEMORY_PER_BLOCK if first_kernel else device.shared_memory_per_block
    share = np.zeros(len(graph))
    if known.any():
        kernels, starts = _METRICS[used](graph, device, limit), ptr[:-1][known]
        share[known] = kernels[starts] if first_kernel else np.maximum.reduceat(kernels, starts)
    return Needs(share, known, used)


def memory_intensive(graph: OpGraph, device: Device, classes: str, *, by_name: bool) -> npt.NDArray[np.bool_]:
    """Return which operators are memory-intensive, shape (n_ops,).

    Parameters
    ----------
    classes
        ``"table"``: by kind, or with `by_name` by parts of the name as the released code has it; ``"roofline"``:
        whose bytes take longer than their FLOP at the rates of the device; ``"measured"``: by `Operator.intensity`;
        ``"none"``: none.

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
        found: npt.NDArray[np.bool_] = graph.nbytes / device.bandwidth > graph.flops / peak
        return found
    unknown = np.flatnonzero((graph.intensity < 0) & (graph.time != 0))
    if len(unknown):
        raise SchedulerError(
            f"opara: operator {graph.names[unknown[0]]!r} has no intensity, which classes='measured' reads; give "
            f"Operator(intensity='compute' or 'memory'), or classes='roofline'"
        )
    return np.asarray(graph.intensity == _MEMORY)


def _missing(metric: str | None) -> str:
    """Return what a graph lacks, and what to give."""
    if metric is None:
        return "kernels, by which it orders launches; give Operator(kernels=...), or utilization= instead of them"
    if metric == "utilization":
        return "a utilization, which metric='utilization' reads; give Operator(utilization=...), or another metric"
    return f"kernels, which metric={metric!r} reads; give Operator(kernels=...), or metric='utilization'"


def _shared_memory(graph: OpGraph, device: Device, limit: int) -> Floats:  # noqa: ARG001
    return graph.kernel_shared_memory / limit


def _threads(graph: OpGraph, device: Device, limit: int) -> Floats:  # noqa: ARG001
    return graph.kernel_threads / _THREADS_PER_BLOCK


def _registers(graph: OpGraph, device: Device, limit: int) -> Floats:  # noqa: ARG001
    return graph.kernel_registers * graph.kernel_threads / device.max_registers_per_block


def _largest(graph: OpGraph, device: Device, limit: int) -> Floats:
    largest: Floats = np.maximum.reduce([part(graph, device, limit) for part in (_shared_memory, _threads, _registers)])
    return largest


def _blocks(graph: OpGraph, device: Device, limit: int) -> Floats:  # noqa: ARG001
    return graph.kernel_blocks / (device.sms * device.blocks_per_sm)


def _occupancy(graph: OpGraph, device: Device, limit: int) -> Floats:  # noqa: ARG001
    shapes = np.stack([graph.kernel_threads, graph.kernel_registers, graph.kernel_shared_memory], axis=1)
    distinct, at = np.unique(shapes, axis=0, return_inverse=True)
    held = [
        occupancy(device, Kernel(1, threads=threads, registers=registers, shared_memory=shared)).blocks
        for threads, registers, shared in distinct.tolist()
    ]
    blocks = np.minimum(np.array(held)[at.ravel()], graph.kernel_blocks / device.sms)
    found: Floats = blocks * -(-graph.kernel_threads // WARP) / (device.threads_per_sm // WARP)
    return found


_METRICS: Final = MappingProxyType(
    {
        "shared_memory": _shared_memory,
        "threads": _threads,
        "registers": _registers,
        "max": _largest,
        "blocks": _blocks,
        "occupancy": _occupancy,
    }
)
METRICS: Final = (*_METRICS, "utilization")
