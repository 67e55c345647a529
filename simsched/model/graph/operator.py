"""The rows of an `OpGraph`: operators, the kernels they launch, and the edges between them."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Annotated, Any, Final

from simsched.base.codec import Among, Amount, Checked, Count, Name, Range, Share, Size, brief
from simsched.base.errors import GraphError

INTENSITIES: Final = ("compute", "memory")
DTYPE_NBYTES: Final[Mapping[str, int]] = {"fp64": 8, "fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "int8": 1}
_SHARE_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class Kernel(Checked):
    """One kernel that an operator launches.

    Parameters
    ----------
    blocks
        Thread blocks in the grid.
    threads
        Threads per block, at most 1024.
    registers
        Registers per thread.
    shared_memory
        Bytes of shared memory per block, static and dynamic together.
    share
        Part of the operator's time that this kernel takes; an operator's shares add up to 1.
    efficiency
        Part of the FLOP rate of tuned kernels at which it can do the operator's work.
    """

    SUBJECT, ERROR = "kernel", GraphError
    blocks: Size
    threads: Annotated[int, Range(1, 1024)] = 256
    registers: Size = 32
    shared_memory: Count = 0
    share: Share = brief(1.0)
    efficiency: Share = brief(1.0)


@dataclass(frozen=True, slots=True)
class Operator(Checked):
    """An operator of a model: a vertex of the graph.

    Parameters
    ----------
    name
        Unique within its graph.
    kind
        What it computes, such as ``"conv"``.
    flops
        Floating-point operations (a multiply-add counts as two).
    nbytes
        DRAM traffic in bytes: inputs, weights and outputs.
    weight_nbytes
        Bytes of parameters it keeps on the device.
    time
        Time alone on the device in us, or None to have it estimated from the rest.
    kernels
        The kernels it launches, in order; empty if unknown.
    utilization
        Share of the device it keeps busy when alone, in (0, 1]; for operators without kernels.
    intensity
        ``"compute"``, ``"memory"`` or None if unknown: its interference class.
    dtype
        Number format it computes in, one of `DTYPE_NBYTES`.
    attributes
        Hyper-parameters (kernel size, stride, ...), JSON values.
    input_shapes, output_shape
        Tensor shapes, where known.
    block
        Label of the block of the model it belongs to.
    host
        Host time in us that passes before its first launch, such as a framework's; none in a captured graph.

    Raises
    ------
    GraphError
        If a value is out of range; the message names the operator and the value.
    """

    SUBJECT, ERROR = "operator {0.name!r}", GraphError
    name: Name
    kind: Name = "op"
    flops: Amount = brief(0.0)
    nbytes: Amount = brief(0.0)
    weight_nbytes: Amount = brief(0.0)
    time: Amount | None = brief(None)
    kernels: tuple[Kernel, ...] = brief(())
    utilization: Share | None = brief(None)
    intensity: Annotated[str, Among(INTENSITIES)] | None = brief(None)
    dtype: Annotated[str, Among(DTYPE_NBYTES)] = brief("fp32")
    attributes: Mapping[str, Any] = brief(dict, hash=False)
    input_shapes: tuple[tuple[Size, ...], ...] = brief(())
    output_shape: tuple[Size, ...] | None = brief(None)
    block: Name | None = brief(None)
    host: Amount = brief(0.0)

    def __post_init__(self) -> None:
        Checked.__post_init__(self)
        total = sum(kernel.share for kernel in self.kernels)
        if self.kernels and abs(total - 1.0) > _SHARE_TOLERANCE:
            raise self.refusal(f"the shares of its kernels must add up to 1, not {total!r}")

    @property
    def output_nbytes(self) -> float | None:
        """Bytes of the output tensor, or None if its shape is not known."""
        if self.output_shape is None:
            return None
        return float(prod(self.output_shape) * DTYPE_NBYTES[self.dtype])


@dataclass(frozen=True, slots=True)
class Edge(Checked):
    """A tensor that one operator reads from another.

    Parameters
    ----------
    src, dst
        Names of the producer and the consumer.
    nbytes
        Size of the tensor in bytes.
    transfer
        Exact time in us to move it between any two devices, or None to have it follow from
        `nbytes` and the links. An exact transfer loads no link, copy engine or DRAM.
    """

    SUBJECT, ERROR = "edge {0.src} -> {0.dst}", GraphError
    src: Name
    dst: Name
    nbytes: Amount = 0.0
    transfer: Amount | None = brief(None)
