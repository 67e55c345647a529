"""Calls of the runtimes and drivers of GPUs in a torch.profiler trace: their categories, and what their names tell.

CUDA, HIP, MUSA and MACA name their calls alike; Level Zero and Unified Runtime (Intel) have names of their own.
"""

import re
from typing import Final

RUNTIMES: Final = ("cuda", "hip", "musa", "maca", "xpu", "mtia", "glow", "privateuse1")
CALLS: Final = ("Runtime", *(f"{name}_{kind}" for name in RUNTIMES for kind in ("runtime", "driver")))
"""Categories of calls; releases before 1.11 have the first."""
SYNCS: Final = tuple(f"{name}_sync" for name in RUNTIMES)
"""Categories of events that describe a synchronisation."""

_API: Final = "(cuda|cu|hip|musa|mu|mc)"

launches_kernel: Final = re.compile(f"{_API}.*Launch.*Kernel|urEnqueueKernelLaunch|ze.*LaunchKernel").match
launches_graph: Final = re.compile(f"{_API}GraphLaunch").match
launches_early: Final = re.compile(f"{_API}(LaunchKernelEx|GraphLaunch)").match
"""Calls whose kernels may start before the previous kernel of their stream ends."""
copies: Final = re.compile(f"{_API}Mem(cpy|set)").match
copies_blocking: Final = re.compile(f"{_API}Mem(cpy|set)(?!.*Async)").match
frees: Final = re.compile(f"{_API}(Mem)?(Free|HostFree|HostUnregister)(?!.*Async)").match
records_event: Final = re.compile(f"{_API}EventRecord").match
waits_for_event: Final = re.compile(f"{_API}StreamWaitEvent").match
synchronises: Final = re.compile(
    f"{_API}(Device|Ctx|Stream|Event)Synchronize|urQueueFinish|urEventWait|ze.*Synchronize"
).match
synchronises_all: Final = re.compile(f"{_API}(Device|Ctx)Synchronize").match
begins_capture: Final = re.compile(f"{_API}StreamBeginCapture").match
ends_capture: Final = re.compile(f"{_API}StreamEndCapture").match
