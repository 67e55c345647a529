"""What an operator launches on a CUDA device: kernels, grids and arguments, described without one.

`launches_of` turns an operator into launches of the kernels in ``kernels*.cu``. It is pure description: nothing is
allocated, nothing is compiled, no CUDA library is imported. A backend needs no more than this page to run it:

1. Compile `kernel_source()` once per device with NVRTC, `NVRTC_OPTIONS` and ``-arch=sm_XY``; it has one ``extern "C"``
   function for each of `KERNEL_NAMES`.
2. For each operator call ``launches_of(op, sms, reads)`` once. `reads` has for each of ``op.input_shapes`` the shape of
   the tensor that is read: as its producer writes it (`Operator.output_shape`; a synthetic producer without one writes
   a tensor of one axis, of `output_size` elements), or, for an input of the network, as ``op.input_shapes`` says.
   `edges_of_inputs` tells which edge brings which input. A synthetic operator reads what its edges bring, no more.
3. Allocate ``output_size(op)`` float32 elements for its output, and a buffer for each of ``scratch_of(launches)``,
   ``parameters_of(launches)`` and ``tables_of(launches)``. Tensors are dense, row-major float32. Addresses must be
   multiples of 16, as those of every CUDA allocator are. Scratch buffers belong to one operator: two operators may
   share one only if they can never run at the same time. The descriptions are hashable: they are keys of dicts.
4. Launch in order, all on one stream: a later launch reads what an earlier one wrote. A launch has the name of its
   `kernel`, `grid` and `block` of three sizes each, `shared_memory` bytes of dynamic shared memory (above 48 KiB the
   function's limit has to be raised once) and `arguments`, which become those of the kernel one for one:

   ======================== ==================================================================================
   argument                 passed as
   ======================== ==================================================================================
   `Input(index, offset)`   64-bit address of the tensor that read `index` brings, plus 4 * `offset` bytes
   `Output()`               64-bit address of the operator's output
   `Scratch(index, nbytes)` 64-bit address of the operator's scratch buffer of that description
   `Parameter(name, ...)`   64-bit address of the operator's parameter of that description, filled before any launch
   `Table(entries)`         64-bit address of an array of 64-bit words in device memory, written before any launch: an
                            entry is one of the four above and stands for its address, or an ``int``
   `StreamBuffer(role)`     64-bit address of a buffer of `STREAM_NBYTES` that all operators of a device share:
                            "source", filled with finite numbers, or "sink", which nobody reads
   `Stamps()`               64-bit address of two unsigned 64-bit words for this launch, or 0 for none
   `BlockStamps()`          64-bit address of three unsigned 64-bit words for each block of this launch, or 0
   ``None``                 64-bit 0
   ``numpy.int32``          32-bit integer by value
   ``numpy.float32``        32-bit float by value
   ======================== ==================================================================================

   With CuPy: addresses as ``numpy.uint64``, scalars as they are.

Stamps are nanoseconds of ``%globaltimer``: word 0 is lowered to the time at which the first block began, word 1 is
raised to that at which the last one ended, so set them to 2**64 - 1 and 0 before a launch whose stamps are wanted (a
copy or fill on the device, which can be captured). Block stamps are begin, end and number of the SM, by block; only
"synth" takes them. Addresses are the same in every launch of an operator and no kernel allocates, waits for the host or
starts another, so launches can be captured into a graph.

Every element of an output or scratch buffer is written by each run and nothing else is. A NaN that is read shows in
what is written, through a relu or the largest of a window too: buffers poisoned first show a broken dependency.

What operators compute, by `Operator.kind` and attributes as `workloads.models` writes and `simsched.rewriting` rewrites
them: conv, linear, matmul, pool (max, avg, global_avg, global_max), batch_norm, softmax, layer_norm, rms_norm,
embedding, concat, add, mul, sub, square, reduce_sum, slice, expand, every activation of
`workloads.costs.ACTIVATION_FLOPS`, alone or fused, and what only moves data, which is copied element by element (copy,
identity, view, reshape, flatten, dropout, transpose: no graph says in which order the axes are to be). A unit
(``attributes["parts"]``) launches its parts in order; inner ones write scratch buffers. A part of a tensor that is read
where it lies (``attributes["slices"]``) is an offset if it is in one piece, else it is copied to scratch first.
Averages count the padding. An embedding reads its indices as numbers: the row is ``floor(abs(x) * 1024)`` modulo the
rows of its table. Where a graph leaves out a constant (sum, product or difference of one tensor) it is a parameter.

"synth" does ``op.flops`` FLOP and moves ``op.nbytes`` bytes, half of them read and half written, each of its kernels
its share of them, in equal parts by each block; all but the last kernel write to scratch. Its output, `output_size`
elements, depends on the values of all that it reads: with its constant c and n reads ``out[i] = c + 0.5 / n * sum(x[i %
x.size] for x in reads)``, written at the end of the last blocks; without reads it is c.

Everything is computed in float32, whatever `Operator.dtype` says, and `CudaLaunch.nbytes` are those of float32.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from math import prod
from types import MappingProxyType
from typing import Any, Final

from hwbackend.kernels import elementwise, products, rows
from hwbackend.kernels.arguments import (
    FLOAT_NBYTES,
    Address,
    Argument,
    BlockStamps,
    CudaLaunch,
    Input,
    Output,
    Parameter,
    Scratch,
    Shape,
    Stamps,
    StreamBuffer,
    Table,
    parameters_of,
    scratch_of,
    tables_of,
)
from hwbackend.kernels.sources import KERNEL_NAMES, KERNEL_RESOURCES, NVRTC_OPTIONS, Resources, kernel_source
from hwbackend.kernels.steps import MOST_ELEMENTS, Step, Tensor, as_argument
from simsched.base.errors import BackendError
from simsched.base.numeric import sum_in_order
from simsched.model.graph import Kernel, Operator
from simsched.rewriting.draft import Slice, is_contiguous, sliced_shape, slices_of

__all__ = [
    "KERNEL_NAMES",
    "KERNEL_RESOURCES",
    "NVRTC_OPTIONS",
    "STREAM_NBYTES",
    "BlockStamps",
    "CudaLaunch",
    "Input",
    "Output",
    "Parameter",
    "Resources",
    "Scratch",
    "Stamps",
    "StreamBuffer",
    "Table",
    "edges_of_inputs",
    "kernel_source",
    "kernels_of",
    "launches_of",
    "output_size",
    "parameters_of",
    "scratch_of",
    "tables_of",
]

STREAM_NBYTES: Final = 2**28
"""Bytes of each `StreamBuffer`: several times the caches of any GPU."""

_SYNTH_VALUES: Final = 256
_RIDGE: Final = 16.0  # FLOP per byte at which a kernel is taken to be bound by either
_CHAIN_FLOPS: Final = 8  # of a thread in one iteration of synth
_WORD_NBYTES: Final = 32  # that a block of synth moves at a time: 16 read, 16 written
_LARGEST_COUNT: Final = 2**31 - 1


def launches_of(op: Operator, sms: int, reads: Sequence[Shape] | None = None) -> tuple[CudaLaunch, ...]:
    """Return what an operator launches.

    Parameters
    ----------
    op
        The operator; what its kind and attributes mean is said above.
    sms
        Processors of the device: grids are made to give each a block, where there is enough to do.
    reads
        Shape of the tensor that each of its inputs is read from; None if they are as in ``op.input_shapes``.

    Raises
    ------
    BackendError
        If there is no kernel for it, or what it reads is smaller than it says; the message names operator and kind.

    Examples
    --------
    >>> op = Operator("sum", "add", input_shapes=[(1, 64, 8, 8)] * 2, output_shape=(1, 64, 8, 8))
    >>> [launch] = launches_of(op, sms=132)
    >>> launch.kernel, launch.grid, launch.arguments[0]
    ('combine', (16, 1, 1), Table(entries=(Input(index=0, offset=0), Input(index=1, offset=0))))
    """
    given = op.input_shapes if reads is None else tuple(map(tuple, reads))
    if op.kind == _SYNTH:
        if not op.kernels:
            raise BackendError(f"operator {op.name!r} of kind {op.kind!r} must have a kernel")
        return tuple(_synth(op, given, i) for i in range(len(op.kernels)))
    if op.output_shape is None:
        raise BackendError(f"operator {op.name!r} of kind {op.kind!r}: its output shape is not known")
    if len(given) != len(op.input_shapes):
        raise BackendError(
            f"operator {op.name!r} of kind {op.kind!r}: it has {len(op.input_shapes)} inputs, not {len(given)}"
        )
    parts: list[Mapping[str, Any]] = op.attributes.get("parts", [])
    spare = count(len(parts))
    launches: list[CudaLaunch] = []
    inputs = []
    for i, (shape, wanted, slice_) in enumerate(zip(given, op.input_shapes, slices_of(op, len(given)), strict=True)):
        tensor, copies = _input(op, i, shape, slice_, sms, spare)
        if tensor.n < prod(wanted):
            raise BackendError(
                f"operator {op.name!r} of kind {op.kind!r}: input {i} brings {tensor.n} elements, not {wanted}"
            )
        launches += copies
        inputs.append(Tensor(tensor.at, wanted))
    output = Tensor(Output(), op.output_shape)
    if not parts:
        return (*launches, *_launched(Step(op.name, op.kind, op.attributes, tuple(inputs), output, None, sms, spare)))
    made: list[Tensor] = []
    for i, part in enumerate(parts):
        shape = tuple(part["output_shape"])
        last = i == len(parts) - 1
        to = Tensor(Output() if last else Scratch(i, FLOAT_NBYTES * prod(shape)), shape)
        sources = tuple(inputs[~r] if r < 0 else made[r] for r in part["inputs"])
        launches += _launched(Step(op.name, part["kind"], part, sources, to, i, sms, spare))
        made.append(to)
    return tuple(launches)


def edges_of_inputs(op: Operator, brought: Sequence[Shape]) -> tuple[int | None, ...]:
    """Return for each of ``op.input_shapes`` the number of the edge that brings it, None for an input of the network.

    `brought` are the shapes of the tensors that its edges bring, in their order, which is that of the inputs. Where
    there are fewer edges than inputs, each brings the first input after the one before it that is not too large for
    it, best of the same size; which was meant no graph says. A synthetic operator has an input for each edge.

    Raises
    ------
    BackendError
        If there are more edges than inputs, or one brings less than every input that it could be.
    """
    sizes = [prod(sliced_shape(shape, part)) for shape, part in zip(brought, slices_of(op, len(brought)), strict=True)]
    wanted = [prod(shape) for shape in op.input_shapes]
    if op.kind == _SYNTH or len(sizes) == len(wanted):
        return tuple(range(len(sizes)))
    found: list[int | None] = [None] * len(wanted)
    first = 0
    for edge, size in enumerate(sizes):
        free = range(first, len(wanted) - len(sizes) + edge + 1)
        fitting = [i for i in free if wanted[i] == size] or [i for i in free if wanted[i] < size]
        if not fitting:
            raise BackendError(f"operator {op.name!r} of kind {op.kind!r}: no input is what edge {edge} brings")
        found[fitting[0]] = edge
        first = fitting[0] + 1
    return tuple(found)


def output_size(op: Operator) -> int:
    """Return how many float32 elements an operator writes; a synthetic one without an output shape 256."""
    return _SYNTH_VALUES if op.output_shape is None else prod(op.output_shape)


def kernels_of(
    launches: Iterable[CudaLaunch], resources: Mapping[str, Resources] = KERNEL_RESOURCES
) -> tuple[Kernel, ...]:
    """Return launches as the kernels of an `Operator`, each with its share of the time as its FLOP and bytes say.

    `resources` are those of the compiled kernels, by name.
    """
    launches = tuple(launches)
    costs = [max(launch.flops / _RIDGE, launch.nbytes, 1.0) for launch in launches]
    return tuple(
        Kernel(
            launch.blocks,
            launch.threads,
            resources[launch.kernel].registers,
            launch.shared_memory + resources[launch.kernel].shared_memory,
            cost / sum_in_order(costs),
        )
        for launch, cost in zip(launches, costs, strict=True)
    )


def _launched(step: Step) -> list[CudaLaunch]:
    if step.kind not in _STEPS:
        raise step.error("there is no CUDA kernel for it")
    return _STEPS[step.kind](step)


def _input(
    op: Operator, i: int, shape: Shape, part: Slice | None, sms: int, spare: "count[int]"
) -> tuple[Tensor, list[CudaLaunch]]:
    """Return what an operator reads of a tensor, and what copies it if it does not lie in one piece."""
    whole = Tensor(Input(i), shape)
    if part is None:
        return whole, []
    if not elementwise.fits(shape, part):
        raise BackendError(f"operator {op.name!r}: input {i} of shape {shape} has no part {part}")
    if is_contiguous(shape, part[0]):
        return Tensor(Input(i, part[1] * prod(shape[part[0] + 1 :])), sliced_shape(shape, part)), []
    cut = sliced_shape(shape, part)
    to = Tensor(Scratch(next(spare), FLOAT_NBYTES * prod(cut)), cut)
    return to, elementwise.copy_of_part(Step(op.name, op.kind, {}, (whole,), to, None, sms, spare), whole, part)


def _synth(op: Operator, reads: Sequence[Shape], i: int) -> CudaLaunch:
    """Return kernel `i` of a synthetic operator; the last one alone writes the output, so that no reader is early."""
    kernel, size = op.kernels[i], output_size(op)
    flops, nbytes = op.flops * kernel.share, op.nbytes * kernel.share
    iterations = round(flops / (_CHAIN_FLOPS * kernel.blocks * kernel.threads))
    words = round(nbytes / (_WORD_NBYTES * kernel.blocks))
    if max(kernel.blocks, iterations, words) > _LARGEST_COUNT:
        raise BackendError(f"operator {op.name!r} of kind {op.kind!r}: a block of it does more than 32 bits can count")
    if max(size, *map(prod, reads), 0) > MOST_ELEMENTS:
        raise BackendError(f"operator {op.name!r} of kind {op.kind!r}: its tensors have more than 2^30 elements")
    entries: list[Address | int] = []
    for k, shape in enumerate(reads):
        entries += (Input(k), prod(shape))
    to: Argument = Output() if i == len(op.kernels) - 1 else Scratch(0, FLOAT_NBYTES * size)
    arguments: tuple[Argument | int, ...] = (
        Table(tuple(entries)) if entries else None,
        len(reads),
        Parameter("constant", (), 0.5, 0.1),
        to,
        size,
        iterations,
        words,
        StreamBuffer("source"),
        StreamBuffer("sink"),
        STREAM_NBYTES // (_WORD_NBYTES // 2),
        Stamps(),
        BlockStamps(),
    )
    dynamic = max(0, kernel.shared_memory - KERNEL_RESOURCES[_SYNTH].shared_memory)
    given = tuple(map(as_argument, arguments))
    grid, block = (kernel.blocks, 1, 1), (kernel.threads, 1, 1)
    return CudaLaunch(_SYNTH, grid, block, dynamic, given, flops, nbytes)


_SYNTH: Final = "synth"
_STEPS: Final[Mapping[str, Callable[[Step], list[CudaLaunch]]]] = MappingProxyType(
    {
        "conv": products.conv,
        "linear": products.linear,
        "matmul": products.matmul,
        "pool": rows.pool,
        "reduce_sum": rows.reduce_sum,
        "softmax": rows.softmax,
        "layer_norm": rows.normalize,
        "rms_norm": rows.normalize,
        "batch_norm": elementwise.batch_norm,
        "concat": elementwise.concat,
        "slice": elementwise.part,
        "expand": elementwise.expand,
        "embedding": elementwise.embedding,
        **dict.fromkeys(("add", "mul", "sub"), elementwise.combine),
        **dict.fromkeys(elementwise.FUNCTIONS, elementwise.function),
        **dict.fromkeys(elementwise.COPIES, elementwise.copy),
    }
)
