"""The rows of an `OpGraph`: operators, the kernels they launch, and the edges between them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from math import inf, prod
from types import MappingProxyType
from typing import Any, Final

from simsched.base.errors import GraphError
from simsched.base.io import json_copy
from simsched.base.limits import limits
from simsched.base.numeric import LARGEST_COUNT, is_count, is_number

INTENSITIES: Final = ("compute", "memory")
DTYPE_NBYTES: Final[Mapping[str, int]] = MappingProxyType(
    {"fp64": 8, "fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "int8": 1}
)
_SHARE_TOLERANCE = 1e-9

# Each rule reads a float or a whole numpy column: one meaning for rows and for columns.
RULES: Final[Mapping[str, tuple[Callable[[Any], Any], str]]] = MappingProxyType(
    {
        "cost": (lambda x: (x >= 0) & (x < inf), "must be finite and not negative"),
        "utilization": (lambda x: (x > 0) & (x <= 1), "must be in (0, 1]"),
        "positive count": (lambda x: x >= 1, "must be at least 1"),
        "count": (lambda x: x >= 0, "must be finite and not negative"),
        "share": (lambda x: (x > 0) & (x <= 1), "must be in (0, 1]"),
    }
)


def _refuse(subject: str, name: str, value: object, rule: str) -> None:
    if rule == "cost" and type(value) is float and 0.0 <= value < inf:  # nearly always
        return
    holds, phrase = RULES[rule]
    if not is_number(value) or not holds(value):
        raise GraphError(f"{subject}: {name} {phrase}, not {value!r}")
    if rule.endswith("count") and not is_count(value):
        raise GraphError(f"{subject}: {name} must be a whole number up to 2^53, not {value!r}")


def _json_values(values: Mapping[str, Any], subject: str) -> dict[str, Any]:
    """Return attributes as they come back from a file: lists for tuples, and all of them copied."""
    try:
        copied: dict[str, Any] = json_copy(dict(values))
    except (TypeError, ValueError, RecursionError) as error:
        raise GraphError(f"{subject}: attributes must be JSON values: {error}") from None
    return copied


def _shape(shape: Any, subject: str) -> tuple[int, ...]:
    try:
        sizes = tuple(shape)
    except TypeError:
        sizes = (None,)
    for size in sizes:
        if type(size) is int and 1 <= size <= LARGEST_COUNT:  # nearly always
            continue
        if isinstance(shape, str) or not is_count(size, 1):
            raise GraphError(f"{subject}: a shape is a sequence of whole numbers of at least 1, not {shape!r}")
    return tuple(map(int, sizes))


@dataclass(frozen=True, slots=True)
class Kernel:
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

    blocks: int
    threads: int = 256
    registers: int = 32
    shared_memory: int = 0
    share: float = 1.0
    efficiency: float = 1.0

    def __post_init__(self) -> None:
        for name in ("blocks", "threads", "registers"):
            _refuse("kernel", name, getattr(self, name), "positive count")
        if self.threads > 1024:
            raise GraphError(f"kernel: threads must be at most 1024 per block, not {self.threads}")
        _refuse("kernel", "shared_memory", self.shared_memory, "count")
        _refuse("kernel", "share", self.share, "share")
        _refuse("kernel", "efficiency", self.efficiency, "share")


@dataclass(frozen=True, slots=True)
class Operator:
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

    name: str
    kind: str = "op"
    flops: float = 0.0
    nbytes: float = 0.0
    weight_nbytes: float = 0.0
    time: float | None = None
    kernels: tuple[Kernel, ...] = ()
    utilization: float | None = None
    intensity: str | None = None
    dtype: str = "fp32"
    attributes: Mapping[str, Any] = field(default_factory=dict, hash=False)
    input_shapes: tuple[tuple[int, ...], ...] = ()
    output_shape: tuple[int, ...] | None = None
    block: str | None = None
    host: float = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise GraphError(f"an operator's name must be a text that is not empty, not {self.name!r}")
        if len(self.name) > limits().text_length:
            raise GraphError(f"operator {self.name!r}: its name has more than {limits().text_length:,} characters")
        subject = f"operator {self.name!r}"
        for text in ("kind", "block"):
            value = getattr(self, text)
            if not (isinstance(value, str) and value) and not (text == "block" and value is None):
                raise GraphError(f"{subject}: {text} must be a text that is not empty, not {value!r}")
        for cost in ("flops", "nbytes", "weight_nbytes", "host"):
            _refuse(subject, cost, getattr(self, cost), "cost")
        if self.time is not None:
            _refuse(subject, "time", self.time, "cost")
        if self.utilization is not None:
            _refuse(subject, "utilization", self.utilization, "utilization")
        if self.intensity is not None and self.intensity not in INTENSITIES:
            raise GraphError(f"{subject}: intensity must be 'compute', 'memory' or None, not {self.intensity!r}")
        if not isinstance(self.dtype, str) or self.dtype not in DTYPE_NBYTES:
            raise GraphError(f"{subject}: unknown dtype {self.dtype!r}; known are: {', '.join(DTYPE_NBYTES)}")
        if self.kernels and abs(sum(k.share for k in self.kernels) - 1.0) > _SHARE_TOLERANCE:
            total = sum(k.share for k in self.kernels)
            raise GraphError(f"{subject}: the shares of its kernels must add up to 1, not {total!r}")
        object.__setattr__(self, "kernels", tuple(self.kernels))
        object.__setattr__(self, "attributes", MappingProxyType(_json_values(self.attributes, subject)))
        object.__setattr__(self, "input_shapes", tuple(_shape(shape, subject) for shape in self.input_shapes))
        if self.output_shape is not None:
            object.__setattr__(self, "output_shape", _shape(self.output_shape, subject))

    def __reduce__(self) -> tuple[Any, ...]:
        # a mapping proxy cannot be pickled, and studies send graphs to other processes
        values = [getattr(self, f.name) for f in fields(self)]
        values[[f.name for f in fields(self)].index("attributes")] = dict(self.attributes)
        return (Operator, tuple(values))

    @property
    def output_nbytes(self) -> float | None:
        """Bytes of the output tensor, or None if its shape is not known."""
        if self.output_shape is None:
            return None
        return float(prod(self.output_shape) * DTYPE_NBYTES[self.dtype])


@dataclass(frozen=True, slots=True)
class Edge:
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

    src: str
    dst: str
    nbytes: float = 0.0
    transfer: float | None = None

    def __post_init__(self) -> None:
        subject = f"edge {self.src} -> {self.dst}"
        _refuse(subject, "nbytes", self.nbytes, "cost")
        if self.transfer is not None:
            _refuse(subject, "transfer", self.transfer, "cost")
