"""What the parts of `validation.realtraces` share: rows, devices by name, and kernels side by side."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import numpy as np

from simsched.base.errors import FormatError
from simsched.base.units import GB_PER_S, GIB, KIB, MIB
from simsched.model.cluster import DEVICES, Cluster, Device
from simsched.model.cluster.presets import make_device
from simsched.model.graph import Operator, OpGraph
from simsched.model.program import LAUNCH, Copies, Program
from simsched.model.trace import Span
from simsched.simulator import simulate

GTX_950: Final = Device(
    "gtx950", "GTX 950", sms=6, threads_per_sm=2048, blocks_per_sm=32, registers_per_sm=65536,
    shared_memory_per_sm=96 * KIB, shared_memory_per_block=48 * KIB, shared_memory_reserved=0,
    shared_memory_granularity=256, clock=1188.0, peak={"fp32": 6 * 128 * 2 * 1188.0}, bandwidth=105.6 * GB_PER_S,
    memory=2 * GIB, l2=1 * MIB, copy_engines=2,
)  # fmt: skip
"""Limits of compute capability 5.2; rates of the datasheet."""
_SAME_CHIP: Final = {"h800": "h100", "a800": "a100"}
_COMPUTE: Final = re.compile("gemm(?!v)|cutlass|xmma|wgrad|dgrad|fprop|conv", re.IGNORECASE)
_MEMORY: Final = re.compile(
    "elementwise|memcpy|memset|copy|catarray|reduce|scan|bn_|batch_?norm|layer_?norm|softmax|nchw|nhwc|permute|"
    "embedding|index|gemv",
    re.IGNORECASE,
)
_COLLECTIVE: Final = re.compile("nccl|rccl", re.IGNORECASE)


@dataclass(frozen=True)
class Row:
    """A line of the table.

    Parameters
    ----------
    asked, of
        What was asked, and of what.
    cases
        Of how many steps, pairs, groups or operators.
    unit
        Of all figures; for ``"%"`` they are errors.
    ours, beside
        Figures of the simulator and its presets, and of something simpler (for a time or rate: what was measured).
    targets
        Most that figures of `ours` should be.
    """

    asked: str
    of: str
    cases: int
    unit: str
    ours: Mapping[str, float]
    beside: Mapping[str, float]
    targets: Mapping[str, float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the row as JSON values."""
        return asdict(self)


def class_of(kernel: str) -> str:
    """Return what a kernel is bound by, as far as its name tells.

    >>> class_of("ampere_sgemm_32x128_tn"), class_of("vectorized_elementwise_kernel"), class_of("mine")
    ('compute-bound', 'memory-bound', 'unknown')
    """
    for name, pattern in (("collectives", _COLLECTIVE), ("memory-bound", _MEMORY), ("compute-bound", _COMPUTE)):
        if pattern.search(kernel):
            return name
    return "unknown"


def device_named(text: str) -> Device:
    """Return the preset whose name stands in a text, the longest if there are several.

    >>> device_named("dlrm_a100").sms
    108
    """
    known = {name: name for name in DEVICES} | _SAME_CHIP
    fits = [name for name in known if name in text.lower()]
    if not fits:
        raise FormatError(f"{text!r} names no device that is known: {', '.join(known)}")
    return make_device(known[max(fits, key=len)], "gpu0")


def side_by_side(device: Device, ops: Sequence[Operator], ready: Sequence[float]) -> list[Span]:
    """Simulate operators on a stream each, issued at given times in us, where launching costs nothing.

    >>> ops = [Operator("a", time=10.0), Operator("b", time=5.0)]
    >>> [(span.start, span.end) for span in side_by_side(GTX_950, ops, (0.0, 8.0))]
    [(0.0, 10.0), (8.0, 13.0)]
    """
    cluster = Cluster((device,)).without_overheads()
    n, none, nothing = len(ops), np.zeros(0, np.int32), np.zeros(0)
    order = np.argsort(ready, kind="stable")
    lead = np.diff(np.asarray(ready, np.float64)[order], prepend=0.0)
    program = Program(
        OpGraph(ops, []), [device.name], "events", [0, n], [LAUNCH] * n, [0] * n, order, order,
        Copies(none, none, nothing, nothing), 0, 0, lead, np.zeros(n),
    ).check()  # fmt: skip
    found = {span.op: span for span in simulate(program, cluster).spans if span.kind == "kernel"}
    return [found[op.name] for op in ops]
