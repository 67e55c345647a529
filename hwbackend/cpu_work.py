"""Operators as calls of numpy: blocks that multiply matrices or copy memory, as long as their FLOP or bytes take."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from statistics import median
from time import perf_counter_ns
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from hwbackend.cpu_run import Block, Work
from hwbackend.cpu_threads import WORKER_PRIORITY, cores, in_thread, one_blas_thread, settle
from hwbackend.synth import realised
from simsched.base.errors import BackendError
from simsched.model.cluster import WARP, Cluster
from simsched.model.graph import Kernel, Operator, OpGraph
from simsched.model.program import Program

SHORTEST_BLOCK: Final = 200.0
"""us; shorter calls measure how threads take turns at Python."""

_REGISTERS: Final = 32
_MOST_WAVES: Final = 8
_TOLERANCE: Final = 1e-6
_SIDE: Final = 256  # columns of a block's left matrix, and both sides of its right one
_ROW_FLOPS: Final = 2.0 * _SIDE * _SIDE
_MOVED: Final = 8.0  # bytes of a float that is read and written
_LARGEST: Final = 1 << 22  # floats that one call reads, at most; a longer block is several calls
_POOL: Final = 1 << 25  # floats of all buffers that are read, and of all that are written
_FILLING: Final = 2.0**-8


class Rates(NamedTuple):
    """FLOP and bytes per us of one core."""

    flops: float
    nbytes: float


class Piecework(NamedTuple):
    """What one block does: FLOP if it multiplies matrices, else bytes that it moves."""

    multiplies: bool
    amount: float

    @property
    def floats(self) -> int:
        """Floats that it reads, and as many that it writes."""
        if self.multiplies:
            return _SIDE * max(1, round(self.amount / _ROW_FLOPS))
        return max(1, round(self.amount / _MOVED))


class Buffers:
    """Memory that blocks read and write, each block a part of its own until all of it has been given away once.

    Nobody looks at what is written, so blocks of operators far from each other may share a part.
    """

    def __init__(self) -> None:
        self._source: npt.NDArray[np.float32] = np.empty(0, np.float32)
        self._sink = self._source
        self._right: npt.NDArray[np.float32] = np.full((_SIDE, _SIDE), _FILLING, np.float32)
        self._at = 0

    def blocks(self, pieces: Sequence[Piecework]) -> list[Block]:
        """Return the calls of some blocks.

        Raises
        ------
        BackendError
            If there is not enough memory.
        """
        self._reserve(sum(min(piece.floats, _LARGEST) for piece in pieces))
        return [self._block(piece) for piece in pieces]

    def _reserve(self, floats: int) -> None:
        floats = min(floats, _POOL)
        if floats > len(self._source):
            try:
                self._source, self._sink = (np.full(floats, value, np.float32) for value in (_FILLING, 0.0))
            except MemoryError:
                raise BackendError(f"there is no memory for {2 * 4 * floats / 1e6:.0f} MB of buffers") from None
            self._at = 0

    def _block(self, piece: Piecework) -> Block:
        n_calls = -(-piece.floats // _LARGEST)
        return [self._call(piece.multiplies, piece.floats // n_calls) for _ in range(n_calls)]

    def _call(self, multiplies: bool, floats: int) -> Callable[[], object]:
        if self._at + floats > len(self._source):
            self._at = 0
        source, sink = (pool[self._at : self._at + floats] for pool in (self._source, self._sink))
        self._at += floats
        if multiplies:
            rows = floats // _SIDE
            shape = (rows, _SIDE)
            return partial(np.matmul, source[: rows * _SIDE].reshape(shape), self._right,
                           sink[: rows * _SIDE].reshape(shape))  # fmt: skip
        return partial(np.copyto, sink, source)


@cache
def measured_rates() -> Rates:
    """Measure products of matrices and copies of cold memory on one core; two digits are kept.

    Takes some 50 ms. The fastest of the products and the median of the copies count.
    """
    found = in_thread(_measure)
    return Rates(*(float(f"{rate:.2g}") for rate in found))


def _measure() -> tuple[float, float]:
    settle(cores()[-1] if cores() else None, WORKER_PRIORITY)
    product, copy = Piecework(True, 2e7), Piecework(False, 5e6)
    times = []
    with one_blas_thread():
        for block in Buffers().blocks([product] * 8 + [copy] * 12):
            start = perf_counter_ns()
            for call in block:
                call()
            times.append((perf_counter_ns() - start) / 1e3)
    return product.amount / min(times[:8]), copy.amount / median(times[8:])


def realised_on(graph: OpGraph, cluster: Cluster, rates: Rates) -> OpGraph:
    """Return the graph as it is run by the threads of a cluster.

    Notes
    -----
    Operators without kernels are made synthetic by `hwbackend.synth.realised`; those of shorter blocks than 200 us get
    blocks of 200 us. Others keep their number of kernels. A kernel is cut into as many blocks of 200 us as its FLOP and
    bytes fill at the rates of the device, at most as many as its grid has and as make 8 waves, at least one.
    Synthetic operators that have kernels stay as they are.
    """
    sms = cluster.devices[0].sms
    found = realised(graph, cluster, lambda op: _cut(op, sms, rates))
    operators = list(found.operators)
    short = [
        i for i, op in enumerate(operators) if not graph.operator(i).kernels and _block_time(op, sms) < SHORTEST_BLOCK
    ]
    if not short:
        return found
    for i in short:
        operators[i] = _lengthened(operators[i], sms, rates)
    return OpGraph(operators, found.edges, found.name)


def _block_time(op: Operator, sms: int) -> float:
    """Return us that the shortest block of an operator takes."""
    assert op.time is not None
    return min(op.time * kernel.share / -(-kernel.blocks // sms) for kernel in op.kernels)


def _lengthened(op: Operator, sms: int, rates: Rates) -> Operator:
    """Return a synthetic operator whose blocks take 200 us, or longer."""
    assert op.time is not None
    before = _block_time(op, sms)
    if not before > 0.0:
        (kernel,) = op.kernels
        time = SHORTEST_BLOCK * -(-kernel.blocks // sms)
        return replace(op, time=time, flops=kernel.blocks * SHORTEST_BLOCK * rates.flops)
    more = SHORTEST_BLOCK / before
    return replace(op, time=op.time * more, flops=op.flops * more, nbytes=op.nbytes * more)


def _cut(op: Operator, sms: int, rates: Rates) -> Operator:
    """Return an operator of other kinds than synthetic with kernels that this machine runs in its place."""
    core_us = max(op.flops / rates.flops, op.nbytes / rates.nbytes)
    known = core_us > 0.0
    if not known:
        core_us = (op.time or 0.0) * max(_parallel(kernel.blocks, sms) for kernel in op.kernels)
    blocks, times = [], []
    for kernel, part in zip(op.kernels, _parts(op, sms), strict=True):
        most = min(kernel.blocks, int(core_us * part / SHORTEST_BLOCK * (1 + _TOLERANCE)), _MOST_WAVES * sms)
        blocks.append(max(1, most))
        times.append(max(SHORTEST_BLOCK, core_us * part / blocks[-1]))
    spans = [time * -(-n // sms) for n, time in zip(blocks, times, strict=True)]
    total = sum(spans)
    done = sum(n * time for n, time in zip(blocks, times, strict=True))
    same = op.time is not None and abs(op.time - total) <= _TOLERANCE * total and known
    if same and all(k.blocks == n and k.threads == WARP for k, n in zip(op.kernels, blocks, strict=True)):
        return op
    more = done / core_us if known else 0.0
    return replace(
        op,
        flops=op.flops * more if known else done * rates.flops,
        nbytes=op.nbytes * more,
        time=total,
        kernels=tuple(Kernel(n, WARP, _REGISTERS, 0, s / total) for n, s in zip(blocks, spans, strict=True)),
        intensity="compute" if not known or _multiplies(op, rates) else "memory",
        dtype="fp32",
    )


def _parallel(blocks: int, sms: int) -> float:
    """Return how many blocks of a grid run at a time, on average."""
    return blocks / -(-blocks // sms)


def _parts(op: Operator, sms: int) -> list[float]:
    """Return the part of an operator's FLOP and bytes that each of its kernels has; shares are those of its time."""
    weights = [kernel.share * _parallel(kernel.blocks, sms) for kernel in op.kernels]
    total = sum(weights)
    return [weight / total for weight in weights]


def _multiplies(op: Operator, rates: Rates) -> bool:
    return op.flops / rates.flops >= op.nbytes / rates.nbytes


def work_of(program: Program, buffers: Buffers, sms: int, rates: Rates) -> Work:
    """Return the calls of a program over a realised graph.

    A block multiplies matrices for its FLOP, or copies memory for its bytes: what of the two takes longer, as the
    other is hidden behind it.
    """
    pieces, counts = [], []
    for op in program.graph.operators:
        multiplies = _multiplies(op, rates)
        for kernel, part in zip(op.kernels, _parts(op, sms), strict=True):
            amount = (op.flops if multiplies else op.nbytes) * part / kernel.blocks
            pieces += [Piecework(multiplies, amount)] * kernel.blocks
            counts.append(kernel.blocks)
    copied = [Piecework(False, _MOVED / 4 * nbytes) for nbytes in program.copies.nbytes.tolist()]
    blocks = iter(buffers.blocks(pieces + copied))
    return Work([[next(blocks) for _ in range(n)] for n in counts], list(blocks))
