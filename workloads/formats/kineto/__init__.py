"""Traces of ``torch.profiler``, as profiles and as programs.

`text` reads the JSON, `events` its events, and `join` finds the call that launched each kernel. `units` then adds up
kernels for a `profile`; `issuing` makes a `program`, which `replay` compares with the trace.
"""

from workloads.formats.kineto.profile import read_kineto

__all__ = ["read_kineto"]
