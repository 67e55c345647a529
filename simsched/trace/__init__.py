"""What ran when: spans, load curves, memory, critical path, pictures."""

from simsched.trace.measured import measured_trace
from simsched.trace.trace import COPY, HOST, KERNEL, KINDS, WAIT, Load, Span, SpanRow, Trace

__all__ = ["COPY", "HOST", "KERNEL", "KINDS", "WAIT", "Load", "Span", "SpanRow", "Trace", "measured_trace"]
