"""Operators with too little data: without a load, or of a kind of which only the bytes are known."""

from typing import Final

import numpy as np

from simsched.model import Device, OpGraph, operator_times
from simsched.model.graph import UNKNOWN
from simsched.model.launches import choices_of

_MOST_LISTED: Final = 8  # kinds in a line


def bounded_by_bytes(graph: OpGraph, device: Device) -> str | None:
    """Return a sentence on operators of which an importer knows only the bytes; None if there are none."""
    kinds = {op.name: str(op.attributes[UNKNOWN]) for op in graph.operators if UNKNOWN in op.attributes}
    if not kinds:
        return None
    share = share_of_unknown(graph, device)
    listed = ", ".join(list(dict.fromkeys(kinds.values()))[:_MOST_LISTED])
    part = f"{100 * share:.1f} % of the time is a bound from bytes alone"
    return f"{part}, of {len(kinds)} operators of unknown kinds: {listed}"


def share_of_unknown(graph: OpGraph, device: Device) -> float:
    """Return the part of the summed times that operators take of which an importer knows only the bytes."""
    places = [i for i, op in enumerate(graph.operators) if UNKNOWN in op.attributes]
    times = operator_times(graph, device)
    total = float(times.sum())
    if not places:
        return 0.0
    if total:
        return float(times[places].sum()) / total
    return 1.0


def operators_without_load(graph: OpGraph) -> int:
    """Return how many operators have neither kernels nor a utilization, and so contend for nothing."""
    return int((np.isnan(graph.utilization) & (np.diff(graph.kernel_ptr) == 0) & ~choices_of(graph)).sum())
