"""Device memory over a run: weights, and activations from their first byte to their last reader."""

from itertools import pairwise

import numpy as np

from simsched.base.units import format_bytes
from simsched.model.graph.columns import Floats, Ints, distinct
from simsched.model.trace.timeline import COPY, KERNEL, Timeline


def peak_memory(trace: Timeline) -> dict[str, float]:
    """Return the most bytes each device held at once: its weights and the live activations.

    An operator's output lives from its start to the end of its last reader on that device or
    of its last copy from it; a copied tensor lives at its destination from the start of the
    copy to the end of its last reader there. Outputs of the graph live to the end. The
    graph's own inputs are not counted.

    Notes
    -----
    Lifetimes are half-open: what is freed at an instant makes room for what starts at it, since
    an operator holds its inputs until its end and its output from its start on. An operator
    whose kernels ran on several devices keeps its weights on each and its output on the device
    of its first kernel. Two copies of one tensor to one device both live to its last reader
    there. O((V + E) log(V + E)).
    """
    graph, n_devices = trace.graph, len(trace.program.devices)
    kernels = np.flatnonzero(trace.kind == KERNEL)
    placed = distinct(trace.op[kernels] * n_devices + trace.device[kernels])
    weights = np.bincount(placed % n_devices, graph.weight_nbytes[placed // n_devices], n_devices)
    device, born, dead, nbytes = (np.concatenate(pair) for pair in zip(*_lifetimes(trace, kernels), strict=True))

    # deaths stand first, and so come first at one instant
    owner, time, change = map(np.concatenate, ((device, device), (dead, born), (-nbytes, nbytes)))
    order = np.lexsort((time, owner))
    bounds = np.searchsorted(owner[order], np.arange(n_devices + 1))
    live = [np.cumsum(change[order[a:b]]).max(initial=0.0) for a, b in pairwise(bounds.tolist())]
    return {name: float(weights[d] + live[d]) for d, name in enumerate(trace.program.devices)}


def memory_warnings(trace: Timeline) -> list[str]:
    """Return a line such as ``"gpu0 needs 51.0 GiB but a40 has 48.0 GiB"`` for each device that is too small."""
    lines = []
    for name, need in trace.peak_memory().items():
        device = trace.cluster[name]
        if need > device.memory:
            lines.append(f"{name} needs {format_bytes(need)} but {device.model} has {format_bytes(device.memory)}")
    return lines


def _lifetimes(trace: Timeline, kernels: Ints) -> list[tuple[Ints, Floats, Floats, Floats]]:
    """Return device, birth, death and bytes of the operators' outputs, and of the copies at their destinations."""
    graph, n_devices = trace.graph, len(trace.program.devices)
    home = np.full(len(graph), -1, np.int64)
    home[trace.op[kernels][::-1]] = trace.device[kernels][::-1]  # the first kernel is written last
    start, end = np.full(len(graph), np.inf), np.zeros(len(graph))
    np.minimum.at(start, trace.op[kernels], trace.start[kernels])
    np.maximum.at(end, trace.op[kernels], trace.end[kernels])

    # When the last reader of an operator's output on a device ended: key is operator x device.
    both_ran = (home[graph.src] >= 0) & (home[graph.dst] >= 0)
    u, v = graph.src[both_ran].astype(np.int64), graph.dst[both_ran]
    keys, row = np.unique(u * n_devices + home[v], return_inverse=True)
    last = np.zeros(len(keys))
    np.maximum.at(last, row, end[v])

    copies = np.flatnonzero(trace.kind == COPY)
    copied, to = trace.op[copies], trace.program.copies.device[trace.item[copies]].astype(np.int64)
    gone = end.copy()  # an output lives at least until its operator ends
    here = home[keys // n_devices] == keys % n_devices
    np.maximum.at(gone, keys[here] // n_devices, last[here])
    np.maximum.at(gone, copied, trace.end[copies])
    gone[np.diff(graph.outgoing[0]) == 0] = trace.makespan
    ran = np.flatnonzero(home >= 0)

    wanted = copied * n_devices + to
    at = np.minimum(np.searchsorted(keys, wanted), max(0, len(keys) - 1))
    arrived = trace.end[copies].copy()  # a copy lives at least until it has arrived
    known = keys[at] == wanted if len(keys) else np.zeros(len(copies), np.bool_)
    arrived[known] = np.maximum(arrived[known], last[at[known]])
    return [
        (home[ran], start[ran], gone[ran], graph.output_nbytes[ran]),
        (to, trace.start[copies], arrived, trace.program.copies.nbytes[trace.item[copies]]),
    ]
