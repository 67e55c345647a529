"""Launches of kernels that go over a tensor element by element."""

from collections.abc import Sequence
from math import prod
from typing import Final

from hwbackend.kernels.arguments import Address, CudaLaunch, Shape, Table
from hwbackend.kernels.steps import THREADS, Step, Tensor, address_of
from simsched.rewriting.draft import Slice
from workloads.costs import ACTIVATION_FLOPS

COPIES: Final = ("copy", "identity", "view", "reshape", "flatten", "dropout", "transpose", "placeholder", "output")
"""Kinds that only move data; in which order a transposition leaves it no graph says."""
FUNCTIONS: Final = (*ACTIVATION_FLOPS, "square")
_OPERATIONS: Final = {"add": 0, "mul": 1, "sub": 2}
_AXES: Final = 6  # of the kernel that follows strides


def affine(
    step: Step,
    x: Tensor,
    scale: Tensor | None = None,
    shift: Tensor | None = None,
    *,
    channels: int = 1,
    inner: int = 1,
    times: float = 1.0,
    function: str | None = None,
    flops: float = 0.0,
) -> list[CudaLaunch]:
    """Write ``f(times * x * scale + shift)``, scale and shift by channel; `flops` are those of an element."""
    y = step.output
    blocks, items = step.over_elements(y.n)
    activation = step.activation() if function is None else step.number_of(function)
    arguments = (x.at, address_of(scale), address_of(shift), y.at, y.n, items, channels, inner, times, activation)
    return [
        step.launch("affine", (blocks,), THREADS, arguments, flops=flops * y.n, moved=(y, y, scale, shift))
    ]  # of x no more is read than is written


def copy(step: Step) -> list[CudaLaunch]:
    """Copy as many elements as the output has."""
    step.need_reads(1)
    if step.reads[0].n < step.output.n:
        raise step.error(f"{step.reads[0].n} elements cannot fill the shape {step.output.shape}")
    return affine(step, step.reads[0])


def function(step: Step) -> list[CudaLaunch]:
    """Apply a function of one number, and an activation after it if the attributes say so."""
    step.need_reads(1)
    _need_same(step, step.reads[0])
    flops = ACTIVATION_FLOPS.get(step.kind, 1)
    if step.attributes.get("activation") is None:
        return affine(step, step.reads[0], function=step.kind, flops=flops)
    between = step.scratch(step.output.shape)
    return [
        *affine(_writing(step, between), step.reads[0], function=step.kind, flops=flops),
        *affine(step, between),
    ]


def batch_norm(step: Step) -> list[CudaLaunch]:
    """Scale and shift each channel."""
    step.need_reads(1)
    x = step.reads[0]
    _need_same(step, x)
    if len(x.shape) < 2:
        raise step.error(f"a tensor of shape {x.shape} has no channels")
    scale = step.parameter("scale", x.shape[1:2], 1.0, 0.1)
    shift = step.parameter("shift", x.shape[1:2], 0.0, 0.1)
    return affine(step, x, scale, shift, channels=x.shape[1], inner=prod(x.shape[2:]), flops=2)


def combine(step: Step) -> list[CudaLaunch]:
    """Add, multiply or subtract tensors, smaller ones repeated; or one tensor and a constant."""
    if not step.reads:
        raise step.error("there is nothing to read")
    if len(step.reads) == 1:
        return _with_constant(step)
    launches: list[CudaLaunch] = []
    reads: list[Tensor] = []
    for x in step.reads:
        if x.shape != step.output.shape:
            whole = step.scratch(step.output.shape)
            launches += _strided(_writing(step, whole), x, *_repeated(step, x.shape))
            x = whole
        reads.append(x)
    y = step.output
    blocks, items = step.over_elements(y.n)
    table = Table(tuple(x.at for x in reads))
    arguments = (table, len(reads), y.at, y.n, items, _OPERATIONS[step.kind], step.activation())
    flops = (len(reads) - 1) * y.n
    return [*launches, step.launch("combine", (blocks,), THREADS, arguments, flops=flops, moved=(*reads, y))]


def _with_constant(step: Step) -> list[CudaLaunch]:
    x = step.reads[0]
    _need_same(step, x)
    if step.kind == "mul" and "factor" in step.attributes:
        return affine(step, x, times=float(step.attributes["factor"]), flops=1)
    constant = step.parameter("constant", (), 1.0, 0.1)
    if step.kind == "mul":
        return affine(step, x, constant, inner=x.n, flops=1)
    return affine(step, x, None, constant, inner=x.n, times=-1.0 if step.kind == "sub" else 1.0, flops=1)


def concat(step: Step) -> list[CudaLaunch]:
    """Put tensors behind each other along an axis, all in one launch."""
    axis, y = step.attributes.get("axis"), step.output
    if type(axis) is not int or not 0 <= axis < len(y.shape):
        raise step.error(f"axis {axis!r} is none of a tensor of shape {y.shape}")
    if any(len(x.shape) <= axis for x in step.reads) or y.shape[axis] != sum(x.shape[axis] for x in step.reads):
        raise step.error(f"what it reads does not add up to {y.shape} along axis {axis}")
    for x in step.reads:
        if (*x.shape[:axis], y.shape[axis], *x.shape[axis + 1 :]) != y.shape:
            raise step.error(f"a tensor of shape {x.shape} does not fit into {y.shape}")
    _, items = step.over_elements(y.n)
    outer, inner = prod(y.shape[:axis]), prod(y.shape[axis + 1 :])
    entries: list[Address | int] = []
    block = start = 0
    for x in step.reads:
        length = x.shape[axis] * inner
        entries += (x.at, block, length, start)
        block += -(-x.n // (THREADS * items))
        start += length
    arguments = (Table(tuple(entries)), len(step.reads), y.at, outer, start, items, step.activation())
    return [step.launch("concat", (block,), THREADS, arguments, flops=0.0, moved=(*step.reads, y))]


def part(step: Step) -> list[CudaLaunch]:
    """Copy a part of a tensor: along an axis from begin to end, or else the first elements."""
    step.need_reads(1)
    given = step.attributes
    if not {"axis", "begin", "end"} & set(given):
        return copy(step)
    x = step.reads[0]
    slice_ = tuple(given.get(key) for key in ("axis", "begin", "end"))
    if any(type(n) is not int for n in slice_) or not fits(x.shape, slice_):  # type: ignore[arg-type]
        raise step.error(f"axis, begin and end {slice_!r} are no part of a tensor of shape {x.shape}")
    return copy_of_part(step, x, slice_)  # type: ignore[arg-type]


def fits(shape: Shape, part: Slice) -> bool:
    """Say whether a tensor of this shape has such a part."""
    axis, begin, end = part
    return 0 <= axis < len(shape) and 0 <= begin < end <= shape[axis]


def copy_of_part(step: Step, x: Tensor, part: Slice) -> list[CudaLaunch]:
    """Copy a part of a tensor to the output."""
    axis, begin, end = part
    inner = prod(x.shape[axis + 1 :])
    sizes = (prod(x.shape[:axis]), (end - begin) * inner)
    return _strided(step, x, sizes, (x.shape[axis] * inner, 1), begin * inner)


def expand(step: Step) -> list[CudaLaunch]:
    """Repeat a tensor along axes, or all of it."""
    step.need_reads(1)
    return _strided(step, step.reads[0], *_repeated(step, step.reads[0].shape))


def embedding(step: Step) -> list[CudaLaunch]:
    """Look up a row of a table for each number."""
    step.need_reads(1)
    x, y = step.reads[0], step.output
    rows, features = step.attributes.get("rows"), y.shape[-1] if y.shape else 0
    if type(rows) is not int or rows < 1 or x.n * features != y.n:
        raise step.error(f"no table of {rows!r} rows makes {y.shape} of {x.shape}")
    table = step.parameter("table", (rows, features))
    blocks, items = step.over_elements(y.n)
    arguments = (x.at, table.at, y.at, y.n, items, rows, features, step.activation())
    return [step.launch("embed", (blocks,), THREADS, arguments, flops=0.0, moved=(x, y, y))]  # of the table only rows


def _strided(step: Step, x: Tensor, sizes: Sequence[int], strides: Sequence[int], start: int = 0) -> list[CudaLaunch]:
    """Write a tensor of these sizes, each element from where the strides lead, from element `start` of `x` on."""
    y, missing = step.output, _AXES - len(sizes)
    if missing < 0:
        raise step.error(f"the CUDA kernel does not go over {len(sizes)} axes")
    blocks, items = step.over_elements(y.n)
    arguments = (
        x.at,
        y.at,
        y.n,
        items,
        start,
        *((1,) * missing + tuple(sizes))[1:],
        *((0,) * missing + tuple(strides)),
        step.activation(),
    )
    read = x if x.n < y.n else y
    return [step.launch("gather", (blocks,), THREADS, arguments, flops=0.0, moved=(read, y))]


def _repeated(step: Step, shape: Shape) -> tuple[Shape, Shape]:
    """Return sizes and strides with which a tensor fills the output: axes of length 1 repeated, or else all of it."""
    whole = step.output.shape
    lead = len(whole) - len(shape)
    padded = (1,) * lead + shape
    if lead >= 0 and all(small in (1, size) for small, size in zip(padded, whole, strict=True)):
        strides = _strides(padded)
        return whole, tuple(0 if small == 1 else stride for small, stride in zip(padded, strides, strict=True))
    if step.kind == "expand" and prod(whole) % prod(shape) == 0:
        return (prod(whole) // prod(shape), prod(shape)), (0, 1)
    raise step.error(f"a tensor of shape {shape} cannot be repeated to fill {whole}")


def _strides(shape: Shape) -> Shape:
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))


def _writing(step: Step, y: Tensor) -> Step:
    """Return a step that writes another tensor, and does nothing else to it."""
    attributes = {key: value for key, value in step.attributes.items() if key != "activation"}
    return Step(step.operator, step.kind, attributes, step.reads, y, step.part, step.sms, step.spare)


def _need_same(step: Step, x: Tensor) -> None:
    if x.n != step.output.n:
        raise step.error(f"the shapes {x.shape} and {step.output.shape} differ")
