"""Products of matrices: tiles, parts of a long sum, and matrix-vector kernels."""

from typing import NamedTuple

from simsched.model.graph import DTYPE_NBYTES
from simsched.model.libraries.case import Case
from simsched.model.libraries.chip import DRAM, Chip, counted, parts
from simsched.model.libraries.generations import Engine
from simsched.model.libraries.launch import Launch

_PART_LENGTHS = tuple(int(128 * 2 ** (i / 2)) for i in range(17))
"""Lengths of the parts of a sum that are tried."""
_LEAST_PART = {True: 512, False: 128}
"""Least lengths of a part, with tensor cores and without."""
_BIASED = 2.0
"""How many times as long a part of the sum takes without tensor cores where a bias is added at the end."""
_SPLIT_BLOCKS = 1.5
"""Most blocks of a product with a split sum, for each SM."""
_SPLIT = 1.3
_ADDING = 2.3
_SMALL_TILE = 24.0
"""Outputs along a side of a tile by which SIMT kernels need as long again for loading."""
_TENSOR_BLOCKS = 2
"""Blocks of tensor-core kernels that an SM runs at once, at most."""
_VECTOR_ROWS = {True: 1, False: 16}
"""Rows up to which libraries have matrix-vector kernels, with tensor cores and without."""
_VECTOR_RATE = 0.11
"""Part of the peak rate that a matrix-vector kernel reaches from two rows on."""
_VECTOR_CYCLES = (2.5, 0.8)
"""Cycles for each element of the sum from two rows on, and more for each row."""
_LATE = 0.25
"""Part by which sequences without tensor cores are longer where the data come from DRAM."""


class Shape(NamedTuple):
    """A product: `batch` times (rows, inner) by (inner, columns)."""

    batch: int
    rows: int
    columns: int
    inner: int


def product(case: Case) -> tuple[Launch, ...]:
    """Return the kernels of a product, those that take the least time."""
    work, chip = case.work, case.chip
    dtype = case.dtype
    tensor = chip.tensor(dtype)
    made = chip.generation
    engine = (made.tf32 if dtype == "tf32" else made.tensor) if tensor else made.simt
    shape = Shape(work.batch, work.rows, work.columns, work.inner)
    choices = [tiled(case, shape, engine, dtype, tensor, split=True)]
    if work.rows <= _VECTOR_ROWS[tensor] and not (tensor and dtype != "tf32"):
        choices.append(_vector(case, shape))
    return min(choices, key=lambda launches: sum(launch.time for launch in launches))


def tiled(
    case: Case, shape: Shape, engine: Engine, dtype: str, tensor: bool, *, split: bool = False
) -> tuple[Launch, ...]:
    """Return the kernels of a product by tiles: the tile and the parts of the sum that take the least time.

    A larger product has no choice that a smaller one has not, and each takes it longer: times never fall with size.
    Equal times take the first tile.
    """
    chip, work = case.chip, case.work
    traffic, latency = case.traffic(), case.latency
    memory = chip.moved(case.nbytes, traffic, DRAM)
    rate = chip.rate(dtype) * engine.efficiency
    best = None
    for r, c, threads, registers, shared_memory in engine.tiles:
        block = chip.block(threads, registers, shared_memory)
        if block is None:
            continue
        held = min(block.held, _TENSOR_BLOCKS) if tensor else block.held
        cycles = _cycles(engine, chip, dtype, tensor, r * c / threads)
        if not tensor:
            cycles *= 1.0 + _LATE * case.missed
        one = 2.0 * r * c / rate  # us for each element of the sum
        if tensor:
            one = max(one, (r + c) * DTYPE_NBYTES[dtype] / engine.feed * chip.cycle)
        else:
            one *= 1.0 + _SMALL_TILE * (1 / r + 1 / c)
        for rows, columns in ((r, c), (c, r)) if r != c else ((r, c),):
            whole = shape.batch * parts(shape.rows, rows) * parts(shape.columns, columns)
            for length in _lengths(shape.inner, whole, chip, tensor) if split else (shape.inner,):
                n_parts = parts(shape.inner, length)
                blocks = whole * n_parts
                q = parts(blocks, chip.sms)
                waves = parts(q, held)
                slower = _BIASED if n_parts > 1 and work.bias and not tensor else 1.0
                chained = waves * length * cycles * slower * chip.cycle
                compute = q * one * length
                tail = engine.fill * (waves - 1) + (_SPLIT + _ADDING if n_parts > 1 else 0.0) + latency
                time = max(chained, compute, memory) + tail
                if best is None or time < best[0]:
                    best = (time, blocks, block, length, n_parts, cycles * slower, chained, compute, waves, r * c)
    if best is None:
        return (_fallback(case, shape),)
    _, blocks, block, length, n_parts, cycles, chained, compute, waves, area = best
    padded = 2.0 * area * blocks * length
    main = Launch(
        counted(blocks), *block[:3],
        efficiency=_efficiency(shape, padded),
        chain=length * cycles * chip.generation.slowness, flops=work.flops, traffic=traffic, tensor=tensor,
        start=engine.start, chained=chained, compute=compute, memory=memory,
        tail=engine.fill * (waves - 1) + (_SPLIT if n_parts > 1 else 0.0) + latency,
    )  # fmt: skip
    if n_parts == 1:
        return (main,)
    outputs = shape.batch * shape.rows * shape.columns
    adding = case.streaming(outputs, 512, 512, 32, _ADDING, 0.0, nbytes=4.0 * n_parts * outputs, traffic=0.0)
    return (main, adding._replace(compute=0.0, memory=0.0))


def _efficiency(shape: Shape, padded: float) -> float:
    return min(1.0, max(1e-9, 2.0 * shape.batch * shape.rows * shape.columns * shape.inner / padded))


def _cycles(engine: Engine, chip: Chip, dtype: str, tensor: bool, outputs: float) -> float:
    """Return the clock cycles for each element of the sum."""
    if tensor:
        return engine.cycles / engine.step * {"fp8": 1, "int8": 1, "tf32": 4}.get(dtype, 2)
    slower = chip.device.peak["fp32"] / min(chip.device.peak["fp32"], chip.device.peak_rate(dtype))
    return (engine.cycles + engine.output_cycles * outputs) * slower


def _lengths(inner: int, whole: int, chip: Chip, tensor: bool) -> list[int]:
    """Return the lengths of parts of the sum that are tried: all of it, and, where SMs are idle, shorter ones."""
    lengths = [inner]
    if 2 * whole <= chip.sms:
        for length in _PART_LENGTHS:
            if _LEAST_PART[tensor] <= length < inner and whole * parts(inner, length) <= _SPLIT_BLOCKS * chip.sms:
                lengths.append(length)
    return lengths


def _vector(case: Case, shape: Shape) -> tuple[Launch, ...]:
    """Return a matrix-vector kernel: a block of 128 threads for eight columns."""
    chip, rows = case.chip, shape.rows
    block = chip.fitting(128, 75, 3072)
    blocks = counted(shape.batch * parts(shape.columns, 8))
    waves = parts(parts(blocks, chip.sms), block.held)
    traffic = case.traffic()
    compute = chain = 0.0
    if rows > 1:
        compute = 2.0 * shape.batch * rows * shape.columns * shape.inner / (chip.device.peak["fp32"] * _VECTOR_RATE)
        chain = shape.inner * (_VECTOR_CYCLES[0] + _VECTOR_CYCLES[1] * rows) * (1.0 + case.missed)
    launch = Launch(
        blocks, *block[:3], efficiency=1.0, chain=chain * chip.generation.slowness, flops=case.work.flops,
        traffic=traffic, tensor=False, start=chip.generation.simt.start, chained=waves * chain * chip.cycle,
        compute=compute, memory=chip.moved(case.nbytes, traffic, DRAM), tail=case.latency,
    )  # fmt: skip
    return (launch,)


def _fallback(case: Case, shape: Shape) -> Launch:
    """Return a kernel for an SM that holds no tile: a thread for each output."""
    chip = case.chip
    block = chip.fitting(64, 32)
    outputs = shape.batch * shape.rows * shape.columns
    blocks = counted(parts(outputs, block.threads))
    traffic = case.traffic()
    compute = parts(blocks, chip.sms) * 2.0 * block.threads * shape.inner / (chip.device.peak["fp32"] / chip.sms * 0.2)
    return Launch(
        blocks, *block[:3], efficiency=1.0, chain=0.0, flops=case.work.flops, traffic=traffic, tensor=False,
        start=chip.generation.simt.start, chained=0.0, compute=compute,
        memory=chip.moved(case.nbytes, traffic, DRAM), tail=case.latency,
    )  # fmt: skip
