"""The record of a run: spans, and points of load curves."""

from simsched.base.jit import native
from simsched.model.trace import timeline as kinds
from simsched.simulator.state import DeviceState, RecordTable, SpanRecord

COPY_SPAN = kinds.COPY
HOST_SPAN = kinds.HOST
KERNEL_SPAN = kinds.KERNEL
WAIT_SPAN = kinds.WAIT


@native
def add_span(record: RecordTable, kind: int, item: int, device: int, start: float, end: float) -> SpanRecord:
    """Return a new span, number ``n_spans - 1``, without operator, stream and cause, that is ready at its start."""
    span = record.spans[record.n_spans]
    record.n_spans += 1
    span.kind = kind
    span.item = item
    span.device = device
    span.op = -1
    span.stream = -1
    span.cause = -1
    span.start = start
    span.end = end
    span.ready = start
    span.solo = 0.0
    return span


@native
def record_point(
    record: RecordTable, device: DeviceState, d: int, time: float, sm: float, dram: float, warps: float, active: float
) -> None:
    """Add a point to the load curve of a device if it differs from the last one; an instant keeps its last point."""
    point = record.points[device.point]
    if sm == point.sm and dram == point.dram and warps == point.warps and active == point.active:
        return
    if point.time != time:
        device.point = record.n_points
        record.n_points += 1
        point = record.points[device.point]
        point.device = d
        point.time = time
    point.sm = sm
    point.dram = dram
    point.warps = warps
    point.active = active
