"""Traces: spans, load curves, memory, critical path, pictures."""

from simsched.model.trace.timeline import COPY, HOST, KERNEL, KINDS, WAIT, Load, Span, SpanRow
from simsched.model.trace.trace import Spans, Trace, measured_trace, spans_in, spans_of

__all__ = [
    "COPY",
    "HOST",
    "KERNEL",
    "KINDS",
    "WAIT",
    "Load",
    "Span",
    "SpanRow",
    "Spans",
    "Trace",
    "measured_trace",
    "spans_in",
    "spans_of",
]
