"""The launches of a synthetic operator on a CUDA device: kernels, grids and arguments, described without a device.

`launches_of` is pure description: it allocates nothing, compiles nothing and imports no CUDA library. A backend needs
no more than this page to run the launches:

1. Compile `kernel_source()` once per device with NVRTC, `NVRTC_OPTIONS` and ``-arch=sm_XY``; it has one ``extern "C"``
   function for each of `KERNEL_NAMES`. They compute the same, and differ in the registers of a thread.
2. For each operator call ``launches_of(op, reads, resources)`` once. `reads` are the numbers of elements that its edges
   bring, in their order: the `output_size` of the producers.
3. Allocate ``output_size(op)`` float32 elements for its output, and a buffer for each of ``scratch_of(launches)``,
   ``parameters_of(launches)`` and ``tables_of(launches)``. Addresses must be multiples of 16, as every CUDA allocator
   returns them. Scratch buffers belong to one operator: two operators may share one only if they can never run at the
   same time. The descriptions are hashable: they are keys of dicts.
4. Launch in order, all on one stream. A launch has the name of its `kernel`, `grid` and `block` of three sizes each,
   `shared_memory` bytes of dynamic shared memory (above 48 KiB the function's limit has to be raised once) and
   `arguments`, which become the arguments of the kernel one for one:

   ======================== ==================================================================================
   argument                 passed as
   ======================== ==================================================================================
   `Input(index)`           64-bit address of the tensor that edge `index` brings
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
   ======================== ==================================================================================

   With CuPy: addresses as ``numpy.uint64``, integers unchanged.

Stamps are nanoseconds of ``%globaltimer``: word 0 is lowered to the time at which the first block began, word 1 is
raised to the time at which the last block ended, so set them to 2**64 - 1 and 0 before a launch whose stamps are wanted
(a copy or fill on the device, which can be captured). Block stamps are begin, end and number of the SM, by block.
Addresses are the same in every launch of an operator and no kernel allocates, waits for the host or starts another, so
launches can be captured into a graph.

An operator does ``op.flops`` FLOP and moves ``op.nbytes`` bytes, half of them read and half written, each of its
kernels its share of them, in equal parts by each block. Two attributes choose its kind of work:

- ``chains``: 1, 2 or 4 (the default) chains of FMAs of a thread that do not depend on each other: instruction-level
  parallelism;
- ``hold``: us that a block of each kernel lasts at least, a list with an entry for each kernel. Without FLOP and bytes
  the kernel spins.

All but the last kernel write to scratch. The output of `output_size` elements depends on the values of all that the
operator reads: with its constant c and n reads ``out[i] = c + 0.5 / n * sum(x[i % x.size] for x in reads)``, written at
the end of the last blocks; without reads it is c. Every element of an output or scratch buffer is written by each run
and nothing else is. A NaN that is read shows in the output: buffers poisoned first show a broken dependency.
"""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Final

import numpy as np

from hwbackend.cuda.kernels.arguments import (
    FLOAT_NBYTES,
    Address,
    Argument,
    BlockStamps,
    CudaLaunch,
    Input,
    NumberArgument,
    Output,
    Scratch,
    Stamps,
    StreamBuffer,
    WordTable,
    parameters_of,
    scratch_of,
    tables_of,
)
from hwbackend.cuda.kernels.sources import (
    KERNEL_NAMES,
    KERNEL_RESOURCES,
    NVRTC_OPTIONS,
    Resources,
    kernel_source,
    variant_of,
)
from hwbackend.measuring.synth import SYNTH
from simsched.base.errors import BackendError
from simsched.model.graph import Operator

__all__ = [
    "KERNEL_NAMES",
    "KERNEL_RESOURCES",
    "NVRTC_OPTIONS",
    "STREAM_NBYTES",
    "BlockStamps",
    "CudaLaunch",
    "Input",
    "NumberArgument",
    "Output",
    "Resources",
    "Scratch",
    "Stamps",
    "StreamBuffer",
    "WordTable",
    "kernel_source",
    "launches_of",
    "output_size",
    "parameters_of",
    "scratch_of",
    "tables_of",
]

STREAM_NBYTES: Final = 2**28
"""Bytes of each `StreamBuffer`: several times the caches of any GPU."""

CHAINS: Final = (1, 2, 4)
"""Numbers of independent chains of FMAs that a thread may have."""

_SYNTH_VALUES: Final = 256
_FLOPS: Final = 8  # of a thread in one iteration
_WORD_NBYTES: Final = 32  # bytes that a block moves at a time: 16 read, 16 written
_LARGEST_COUNT: Final = 2**31 - 1
_MOST_ELEMENTS: Final = 2**30  # of a tensor: the kernels count in 32 bits
_NS: Final = 1000.0


def launches_of(
    op: Operator, reads: Sequence[int] = (), resources: Mapping[str, Resources] = KERNEL_RESOURCES
) -> tuple[CudaLaunch, ...]:
    """Return the launches of a synthetic operator.

    Parameters
    ----------
    op
        The operator.
    reads
        Elements of the tensor that each of its edges brings.
    resources
        Resources of the compiled kernels, by name.

    Raises
    ------
    BackendError
        If it is not synthetic, has no kernel, an attribute is not as described above, or a count is too large; the
        message names operator and kind.

    Examples
    --------
    >>> from simsched.model.graph import Kernel
    >>> op = Operator("one", "synth", kernels=[Kernel(4, 32)], flops=8192.0, nbytes=1280.0)
    >>> [launch] = launches_of(op)
    >>> launch.kernel, launch.grid, launch.block
    ('synth', (4, 1, 1), (32, 1, 1))
    """
    if op.kind != SYNTH:
        raise _error(op, "only synthetic operators are launched; realise the graph first")
    if not op.kernels:
        raise _error(op, "it must have a kernel")
    chains = op.attributes.get("chains", CHAINS[-1])
    holds = op.attributes.get("hold", [0.0] * len(op.kernels))
    if chains not in CHAINS:
        raise _error(op, f"chains must be one of {', '.join(map(str, CHAINS))}, not {chains!r}")
    if len(holds) != len(op.kernels):
        raise _error(op, f"hold has {len(holds)} times, but it has {len(op.kernels)} kernels")
    return tuple(_launch(op, reads, i, chains, round(hold * _NS), resources) for i, hold in enumerate(holds))


def output_size(op: Operator) -> int:
    """Return how many float32 elements an operator writes; one without an output shape 256."""
    if op.output_shape is None:
        return _SYNTH_VALUES
    return prod(op.output_shape)


def _launch(
    op: Operator, reads: Sequence[int], i: int, chains: int, hold: int, resources: Mapping[str, Resources]
) -> CudaLaunch:
    """Return kernel `i` of an operator; the last one alone writes the output, so that no reader is early."""
    kernel = op.kernels[i]
    size = output_size(op)
    flops = op.flops * kernel.share
    nbytes = op.nbytes * kernel.share
    iterations = round(flops / (_FLOPS * kernel.blocks * kernel.threads))
    words = round(nbytes / (_WORD_NBYTES * kernel.blocks))
    if max(kernel.blocks, iterations, words, hold) > _LARGEST_COUNT:
        raise _error(op, "a block of it does more than 32 bits can count")
    if max(size, *reads, 0) > _MOST_ELEMENTS:
        raise _error(op, "its tensors have more than 2^30 elements")
    entries: list[Address | int] = []
    for k, n in enumerate(reads):
        entries += (Input(k), n)
    if i == len(op.kernels) - 1:
        to: Argument = Output()
    else:
        to = Scratch(0, FLOAT_NBYTES * size)
    arguments: tuple[Argument, ...] = (
        WordTable(tuple(entries)) if entries else None,
        np.int32(len(reads)),
        NumberArgument("constant", 0.5, 0.1),
        to,
        np.int32(size),
        np.int32(iterations),
        np.int32(chains),
        np.int32(words),
        StreamBuffer("source"),
        StreamBuffer("sink"),
        np.int32(STREAM_NBYTES // (_WORD_NBYTES // 2)),
        np.int32(hold),
        Stamps(),
        BlockStamps(),
    )
    name = variant_of(kernel, resources)
    dynamic = max(0, kernel.shared_memory - resources[name].shared_memory)
    return CudaLaunch(name, (kernel.blocks, 1, 1), (kernel.threads, 1, 1), dynamic, arguments, flops, nbytes)


def _error(op: Operator, reason: str) -> BackendError:
    return BackendError(f"operator {op.name!r} of kind {op.kind!r}: {reason}")
