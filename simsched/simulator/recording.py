"""The record of a run: spans."""

from simsched.base.jit import native
from simsched.model.trace import timeline as kinds
from simsched.simulator.state import SpanRecord, State

COPY_SPAN = kinds.COPY
HOST_SPAN = kinds.HOST
KERNEL_SPAN = kinds.KERNEL
WAIT_SPAN = kinds.WAIT


@native
def add_span(s: State, kind: int, item: int, device: int, start: float, end: float) -> SpanRecord:
    """Return a new span, number ``n_spans - 1``, without operator, stream and cause, that is ready at its start."""
    span = s.spans[s.n_spans]
    s.n_spans += 1
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
