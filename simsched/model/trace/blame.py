"""Why a run took as long as it did: the critical path of a trace and what its time went to."""

from dataclasses import dataclass
from math import inf
from typing import Final

from simsched.model.cluster import Device
from simsched.model.program import COPY, LAUNCH
from simsched.model.trace.timeline import COPY as COPY_SPAN
from simsched.model.trace.timeline import HOST, KERNEL, Timeline

BLAMES: Final = ("compute", "contention", "launch", "sync", "transfer", "dependency")


@dataclass(frozen=True, slots=True)
class Step:
    """A stretch of the critical path: from `start` to `end` in us, what it is blamed on, and the span."""

    start: float
    end: float
    blame: str
    span: str


@dataclass(frozen=True, slots=True)
class CriticalPath:
    """The chain of stretches, without holes, from time 0 to the makespan.

    Parameters
    ----------
    steps
        In order of time.
    blame
        us by cause; they add up to the makespan. ``compute``: kernels, as long as they would take
        alone; ``contention``: what sharing the device or a link adds, and waiting for block slots;
        ``launch``: the host issuing kernels and copies, what passes before, and their way to the
        device; ``sync``: the host issuing records, waits and barriers; ``transfer``: copies,
        uncontended; ``dependency``: gaps on the device between a span and the one that waits for it.
    operators
        Names of the operators whose kernels lie on the path, in order.
    spans
        Numbers of the spans on the path in the trace, in order.
    """

    steps: tuple[Step, ...]
    blame: dict[str, float]
    operators: tuple[str, ...]
    spans: tuple[int, ...]

    @property
    def shares(self) -> dict[str, float]:
        """The blame as parts of the makespan, in [0, 1]."""
        total = sum(self.blame.values())
        return {name: us / total if total else 0.0 for name, us in self.blame.items()}


def critical_path(trace: Timeline) -> CriticalPath:
    """Return the chain of spans that determined the makespan, and what its time went to.

    Walks back from the span that ends last (of equal ones the first in the trace) to the span
    that released it, and so on to time 0. O(length of the path).
    """
    steps: list[Step] = []
    operators: list[str] = []
    spans: list[int] = []

    def step(start: float, end: float, blame: str, span: str) -> None:
        if end > start:
            steps.append(Step(start, end, blame, span))

    work = (trace.kind == KERNEL) | (trace.kind == COPY_SPAN)
    i = int((trace.end * work).argmax()) if work.any() else -1
    while i >= 0:
        spans.append(i)
        name = trace.name(i)
        start, end, ready = float(trace.start[i]), float(trace.end[i]), float(trace.ready[i])
        if trace.kind[i] in (KERNEL, COPY_SPAN):
            kernel = trace.kind[i] == KERNEL
            alone = min(float(trace.solo[i]), end - start)
            middle = start + alone if alone < end - start else end
            step(middle, end, "contention", name)
            step(start, middle, "compute" if kernel else "transfer", name)
            step(ready, start, "contention", name)
            if kernel:
                operators.append(trace.graph.names[trace.op[i]])
        elif trace.kind[i] == HOST:
            issues = trace.program.execution == "graph" or trace.program.action[trace.item[i]] in (LAUNCH, COPY)
            step(start, end, "launch" if issues else "sync", name)
        else:
            ready = end  # a host that was held up: what released it accounts for the time
        cause = int(trace.cause[i])
        before = float(trace.end[cause]) if cause >= 0 else 0.0
        known = min(ready, before + _on_the_way(trace, i, cause))
        step(known, ready, "dependency", name)
        step(before, known, "launch", name)
        i = cause
    steps.reverse()
    blame = dict.fromkeys(BLAMES, 0.0)
    for part in steps:
        blame[part.blame] += part.end - part.start
    return CriticalPath(tuple(steps), blame, tuple(dict.fromkeys(reversed(operators))), tuple(spans[::-1]))


def _on_the_way(trace: Timeline, i: int, cause: int) -> float:
    """Return how long in us, behind the host span that released a span, the host or the way to the device may take."""
    program = trace.program
    if program.execution == "graph" or (cause >= 0 and trace.kind[cause] in (KERNEL, COPY_SPAN)):
        return 0.0
    if program.lead is not None:  # calls that take no time have no span, but something may come before them
        return inf
    device: Device = trace.cluster.devices[trace.device[i]]
    if trace.kind[i] == KERNEL:
        return device.on_the_way(device.launch)
    return device.on_the_way(device.copy) if trace.kind[i] == COPY_SPAN else 0.0
