"""The rows of an `OpGraph`: operators, the kernels they launch, and the edges between them."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Annotated, Any, Final

from simsched.base.codec import Among, Amount, Checked, Count, Name, Range, Share, Size, brief
from simsched.base.errors import GraphError
from simsched.base.numeric import sum_in_order
from simsched.model.graph.collective import Collective

INTENSITIES: Final = ("compute", "memory", "link")
DTYPE_NBYTES: Final[Mapping[str, int]] = {"fp64": 8, "fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "int8": 1}
FAMILIES: Final = (
    "product",
    "convolution",
    "elementwise",
    "batch_norm",
    "rows",
    "reduction",
    "gather",
    "attention",
    "recurrence",
)
"""Families of computations for which libraries have kernels of their own."""
UNKNOWN: Final = "unknown"
"""Attribute of an operator of whose FLOP nothing is known: its bytes alone bound its time."""
_SHARE_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class Work(Checked):
    """One computation of an operator, described without a device: each device's libraries choose kernels for it.

    The meaning of `rule`, `batch`, `rows`, `columns`, `inner`, `window`, `elements` and `images` depends on the family:

    "product"
        `batch` products of (rows, inner) by (inner, columns). `window` is 1. `rule` is "engine" where the kernels are
        kernels of inference engines for grouped products and quantised weights, which have smaller tiles.
    "convolution"
        `batch` groups of an implicit product: `rows` output pixels of all images by `columns` output channels of a
        group, `inner` input channels of a group times taps; `window` taps; `images` images, `elements` of all of them
        together before the convolution; `rule` is "plain" where stride is 1, there is no padding and no dilation,
        "channels_last" where tensors lie so in memory, else "strided".
    "elementwise"
        `rows` outputs, a thread or less each; `window` inputs for each output (a pool's window, else 1); `rule` is
        "map" (contiguous inputs), "activation" (with transcendental functions), "channels" (a value per channel),
        "pool", "upsample", "permute" or "copy".
    "batch_norm"
        `batch` images by `columns` channels, `rows` pixels of each.
    "rows"
        `rows` rows of `columns` elements; `rule` is "layer_norm", "rms_norm", "softmax" or "order" (`columns` pairs of
        a token and an expert get the order of experts).
    "reduction"
        `rows` outputs, each of `columns` inputs; `rule` is "sum" or "argmax".
    "gather"
        `rows` rows of `columns` elements are read from a table, `window` of them are added up for each output.
    "attention"
        `batch` heads of all sequences, `rows` queries, `columns` keys, `inner` features of a head. `rule` is "divided"
        where keys may be divided among blocks, as engines do for few queries; then `batch` are heads of keys.
    "recurrence"
        `rows` steps one after the other of `batch` sequences, `columns` units, `inner` inputs, `window` gates.

    Parameters
    ----------
    family
        One of `FAMILIES`.
    rule
        Finer kind of the computation within its family.
    flops
        Floating-point operations.
    reads, weights, writes
        Bytes of activations read, of parameters read, and of activations written.
    batch, rows, columns, inner, window, elements, images
        Sizes, see above.
    bias
        Whether a value per output column is added, by a separate kernel or by the end of the product's kernel; not
        where the bias is part of a fused operator.
    tf32
        Whether tensor cores may compute it in tf32 if its number format is fp32, as PyTorch lets cuDNN do for
        convolutions unless it is told otherwise.
    parameters
        Bytes of all parameters of the model that it is part of: they pass through the L2 cache between two runs, and
        stay there if they are few. 0 if its own are all.
    """

    SUBJECT = "work {0.family!r}"
    ERROR = GraphError
    family: Annotated[str, Among(FAMILIES)]
    rule: Name = brief("plain")
    flops: Amount = brief(0.0)
    reads: Amount = brief(0.0)
    weights: Amount = brief(0.0)
    writes: Amount = brief(0.0)
    batch: Size = brief(1)
    rows: Size = brief(1)
    columns: Size = brief(1)
    inner: Size = brief(1)
    window: Size = brief(1)
    elements: Count = brief(0)
    images: Size = brief(1)
    bias: bool = brief(False)
    tf32: bool = brief(False)
    parameters: Amount = brief(0.0)


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
    chain
        Clock cycles that a block takes at least, however idle the device is: the length of its sequence of dependent
        instructions. 0 if unknown.
    """

    SUBJECT = "kernel"
    ERROR = GraphError
    blocks: Size
    threads: Annotated[int, Range(1, 1024)] = 256
    registers: Size = 32
    shared_memory: Count = 0
    share: Share = brief(1.0)
    efficiency: Share = brief(1.0)
    chain: Amount = brief(0.0)


@dataclass(frozen=True, slots=True)
class Operator(Checked):
    """An operator of a model: a vertex of the graph.

    Parameters
    ----------
    name
        Unique within its graph.
    kind
        The computation, such as ``"conv"``.
    flops
        Floating-point operations (a multiply-add counts as two).
    nbytes
        DRAM traffic in bytes: inputs, weights and outputs.
    weight_nbytes
        Bytes of parameters it keeps on the device.
    time
        Time alone on the device in us, or None to have it estimated from the rest.
    kernels
        The kernels that it launches on every device, in order, where they were measured or given; empty otherwise.
    utilization
        Share of the device it keeps busy when alone, in (0, 1]; for operators without kernels.
    intensity
        ``"compute"``, ``"memory"`` or None if unknown: its interference class. ``"link"``: a collective, whose blocks
        keep their places but load neither issue slots nor DRAM, and which no kernel beside it slows.
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
    works
        The computations that it consists of, in order. Where `kernels` is empty, the libraries of the device that
        it runs on choose kernels for them (see `kernels_on`).
    collective
        The exchange between ranks that it is this rank's part of, if it is one. Its time follows from the links
        unless it has a `time`, its one kernel keeps its places, and nothing that computes beside it slows it.

    Raises
    ------
    GraphError
        If a value is out of range; the message names the operator and the value. A collective has no `works` and no
        `utilization`, and one kernel at most.
    """

    SUBJECT = "operator {0.name!r}"
    ERROR = GraphError
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
    works: tuple[Work, ...] = brief(())
    collective: Collective | None = brief(None)

    def __post_init__(self) -> None:
        Checked.__post_init__(self)
        total = sum_in_order(kernel.share for kernel in self.kernels)
        if self.kernels and abs(total - 1.0) > _SHARE_TOLERANCE:
            raise self.refusal(f"the shares of its kernels must add up to 1, not {total!r}")
        if self.collective is not None and (self.works or self.utilization is not None or len(self.kernels) > 1):
            raise self.refusal("a collective has neither works nor utilization, and one kernel at most")

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

    SUBJECT = "edge {0.src} -> {0.dst}"
    ERROR = GraphError
    src: Name
    dst: Name
    nbytes: Amount = 0.0
    transfer: Amount | None = brief(None)
