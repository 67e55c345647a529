"""What ran when: spans, load curves, memory, critical path, pictures."""

from simsched.model.trace.timeline import COPY, HOST, KERNEL, KINDS, WAIT, Load, Span, SpanRow
from simsched.model.trace.trace import Trace, measured_trace

__all__ = ["COPY", "HOST", "KERNEL", "KINDS", "WAIT", "Load", "Span", "SpanRow", "Trace", "measured_trace"]
