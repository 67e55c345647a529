"""Products of matrices: tiles, parts of a long sum, and matrix-vector kernels."""

from functools import lru_cache
from math import inf
from typing import Final, NamedTuple

from simsched.base.numeric import sum_in_order
from simsched.base.units import KIB
from simsched.model.graph import DTYPE_NBYTES
from simsched.model.libraries.case import WorkCase
from simsched.model.libraries.chip import BlockShape, Chip, count_blocks, parts
from simsched.model.libraries.generations import DRAM, Engine, Tile
from simsched.model.libraries.launch import Launch

_PART_LENGTHS: Final = {
    tensor: tuple(int(least * 2 ** (i / 2)) for i in range(13)) for tensor, least in ((True, 512), (False, 128))
}
"""Lengths of the parts of a sum that are tried, with tensor cores and without."""
_BIASED: Final = 3.0
"""How many times as long a part of the sum takes without tensor cores where a bias is added at the end."""
_SPLIT_BLOCKS: Final = 1.5
"""Most blocks of a product with a split sum, for each SM."""
_SPLIT: Final = 1.3
"""More time in us of a kernel whose blocks take parts of a sum."""
_ADDING: Final = 2.3
"""Start and end in us of the kernel that adds the parts up."""
_TENSOR_BLOCKS: Final = 2
"""Blocks of tensor-core kernels that an SM runs at once, at most."""
_VECTOR_ROWS: Final = 16
_TENSOR_VECTOR_ROWS: Final = 1
"""Rows up to which libraries have matrix-vector kernels, without tensor cores and in tf32."""
_VECTOR_RATE: Final = 0.11
"""Part of the peak rate that a matrix-vector kernel reaches from two rows on."""
_VECTOR_CYCLES: Final = (2.5, 0.8)
"""Cycles for each element of the sum from two rows on, and more for each row."""
_THREADS_RATE: Final = 0.2
"""Part of the peak rate of a kernel without tiles: prior."""
_LATE: Final = 0.25
"""Part by which sequences without tensor cores are longer where the data come from DRAM."""


class Shape(NamedTuple):
    """A product: `batch` times (rows, inner) by (inner, columns)."""

    batch: int
    rows: int
    columns: int
    inner: int


class _TileChoice(NamedTuple):
    """A tile on a device, one way round.

    Parameters
    ----------
    held
        Blocks that an SM runs at once.
    cycles
        Clock cycles of a block for each element of the sum.
    chained, compute
        Time in us for each element of the sum: of a block alone, and of an SM for each block.
    """

    rows: int
    columns: int
    block: BlockShape
    held: int
    cycles: float
    chained: float
    compute: float


class _Tiled(NamedTuple):
    """A product by one tile, its sum in some parts, and the terms of its time."""

    choice: _TileChoice
    blocks: int
    length: int
    n_parts: int
    cycles: float
    waves: int
    chained: float
    compute: float
    adding: float


_FEW_ROWS: Final = Tile(64, 16, 128, 96, 48 * KIB)
"""Tile of the kernels for few rows that inference engines have where libraries have none that is smaller: prior."""
_ENGINES: Final = (8, 0)
"""Least compute capability of these kernels."""
_ENGINE_DRAM: Final = 0.84
"""Part of the bandwidth of DRAM that they reach; published mixtures of experts: .82 to .90 on A100, L40S and H100."""


def product(case: WorkCase) -> tuple[Launch, ...]:
    """Return the fastest kernels of a product; in fp32 in tf32 if the work allows it."""
    choices = [_kernels(case, case.dtype)]
    if case.may_use_tf32:
        choices.append(_kernels(case, "tf32"))
    return min(choices, key=lambda launches: sum_in_order(launch.time for launch in launches))


def _kernels(case: WorkCase, dtype: str) -> tuple[Launch, ...]:
    work = case.work
    chip = case.chip
    tensor = chip.tensor(dtype)
    shape = Shape(work.batch, work.rows, work.columns, work.inner)
    engine = chip.engine(dtype)
    has_kernels = work.rule == "engine" and tensor and chip.generation.capability >= _ENGINES
    if has_kernels:
        engine = engine._replace(dram=max(engine.dram, _ENGINE_DRAM))
    if has_kernels and min(tile.columns for tile in engine.tiles) > _FEW_ROWS.columns:
        engine = engine._replace(tiles=(_FEW_ROWS, *engine.tiles))
    launches = tile_product(case, shape, engine, dtype, split=True)
    if work.rows > (_TENSOR_VECTOR_ROWS if tensor else _VECTOR_ROWS) or (tensor and dtype != "tf32"):
        return launches
    vector = _vector(case, shape)
    if vector.time < sum_in_order(launch.time for launch in launches):
        return (vector,)
    return launches


def tile_product(
    case: WorkCase, shape: Shape, engine: Engine, dtype: str, *, split: bool = False, computing: float = 1.0
) -> tuple[Launch, ...]:
    """Return the kernels of a product by tiles: the tile and the parts of the sum that take the least time.

    `computing` is the time that an SM computes a tile, over a plain product's.

    A larger product has no choice that a smaller one has not, and each takes it longer: times never fall with size.
    Equal times take the first tile.
    """
    chip = case.chip
    work = case.work
    tensor = chip.tensor(dtype)
    traffic = case.traffic()
    latency = case.latency
    missed = case.miss_share
    memory = chip.move_time(case.nbytes, traffic, engine.dram)
    if tensor:
        late = 1.0
    else:
        late = 1.0 + _LATE * missed
    if work.bias and not tensor:
        biased = _BIASED
    else:
        biased = 1.0
    outputs = shape.batch * shape.rows * shape.columns
    best = None
    least = inf
    for choice in _choices(chip, engine, dtype):
        whole = shape.batch * parts(shape.rows, choice.rows) * parts(shape.columns, choice.columns)
        for length in _lengths(shape.inner, whole, chip.sms, tensor) if split else (shape.inner,):
            n_parts = parts(shape.inner, length)
            q = parts(whole * n_parts, chip.sms)
            waves = parts(q, choice.held)
            slower = late
            adding = 0.0
            tail = 0.0
            if n_parts > 1:
                slower = late * biased
                adding = 4.0 * n_parts * outputs / chip.l2_rate
                tail = _SPLIT + _ADDING + adding
            chained = waves * length * choice.chained * slower
            compute = q * length * choice.compute * computing
            time = max(chained, compute, memory) + engine.fill * (waves - 1) + tail
            if time < least:
                least = time
                best = _Tiled(
                    choice, whole * n_parts, length, n_parts, choice.cycles * slower, waves, chained, compute, adding
                )
    if best is None:
        return (_by_threads(case, shape),)
    padded = 2.0 * best.choice.rows * best.choice.columns * best.blocks * best.length
    main = Launch(
        count_blocks(best.blocks),
        *best.choice.block[:3],
        efficiency=min(1.0, 2.0 * outputs * shape.inner / padded),
        chain=best.length * best.cycles,
        flops=work.flops,
        traffic=traffic,
        tensor=tensor,
        start=engine.start,
        chained=best.chained,
        compute=best.compute,
        memory=memory,
        tail=engine.fill * (best.waves - 1) + (_SPLIT if best.n_parts > 1 else 0.0) + latency,
    )
    if best.n_parts == 1:
        return (main,)
    last = case.streaming(outputs, 512, 512, 32, _ADDING, 0.0, nbytes=0.0, traffic=0.0)
    return (main, last._replace(memory=best.adding))


@lru_cache(maxsize=1024)
def _choices(chip: Chip, engine: Engine, dtype: str) -> tuple[_TileChoice, ...]:
    """Return the tiles that an SM of a device holds, both ways round."""
    tensor = chip.tensor(dtype)
    rate = chip.rate(dtype) * engine.efficiency
    choices = []
    for r, c, threads, registers, shared_memory in engine.tiles:
        block = chip.block(threads, registers, shared_memory)
        if block is None:
            continue
        held = block.held
        compute = 2.0 * r * c / rate
        if tensor:
            held = min(held, _TENSOR_BLOCKS)
            cycles = engine.cycles / engine.step * DTYPE_NBYTES[dtype]
            compute = max(compute, (r + c) * DTYPE_NBYTES[dtype] / engine.feed * chip.cycle)
        else:
            slower = max(1.0, chip.device.peak["fp32"] / chip.device.peak_rate(dtype))
            cycles = (engine.cycles + engine.output_cycles * r * c / threads) * slower
            compute *= 1.0 + engine.loading * (1 / r + 1 / c)
        for rows, columns in ((r, c), (c, r))[: 1 + (r != c)]:
            cycles_here = cycles * chip.generation.slowness
            choices.append(_TileChoice(rows, columns, block, held, cycles_here, cycles * chip.cycle, compute))
    return tuple(choices)


def _lengths(inner: int, whole: int, sms: int, tensor: bool) -> list[int]:
    """Return the lengths of parts of the sum that are tried: all of it, and, where SMs are idle, shorter ones."""
    lengths = [inner]
    if 2 * whole <= sms:
        most = _SPLIT_BLOCKS * sms
        lengths += [n for n in _PART_LENGTHS[tensor] if n < inner and whole * parts(inner, n) <= most]
    return lengths


def _vector(case: WorkCase, shape: Shape) -> Launch:
    """Return a matrix-vector kernel: a block of 128 threads for eight columns."""
    chip = case.chip
    rows = shape.rows
    block = chip.fitting(128, 75, 3072)
    blocks = count_blocks(shape.batch * parts(shape.columns, 8))
    waves = parts(parts(blocks, chip.sms), block.held)
    traffic = case.traffic()
    compute = chain = 0.0
    if rows > 1:
        compute = 2.0 * shape.batch * rows * shape.columns * shape.inner / (chip.device.peak["fp32"] * _VECTOR_RATE)
        chain = shape.inner * (_VECTOR_CYCLES[0] + _VECTOR_CYCLES[1] * rows) * (1.0 + case.miss_share)
    return Launch(
        blocks,
        *block[:3],
        efficiency=1.0,
        chain=chain * chip.generation.slowness,
        flops=case.work.flops,
        traffic=traffic,
        tensor=False,
        start=chip.generation.simt.start,
        chained=waves * chain * chip.cycle,
        compute=compute,
        memory=chip.move_time(case.nbytes, traffic, DRAM),
        tail=case.latency,
    )


def _by_threads(case: WorkCase, shape: Shape) -> Launch:
    """Return a kernel for an SM that holds no tile: a thread for each output."""
    chip = case.chip
    block = chip.fitting(64, 32)
    blocks = count_blocks(parts(shape.batch * shape.rows * shape.columns, block.threads))
    traffic = case.traffic()
    flops = parts(blocks, chip.sms) * 2.0 * block.threads * shape.inner  # of an SM
    return Launch(
        blocks,
        *block[:3],
        efficiency=1.0,
        chain=0.0,
        flops=case.work.flops,
        traffic=traffic,
        tensor=False,
        start=chip.generation.simt.start,
        chained=0.0,
        compute=flops / (chip.rate("fp32") * _THREADS_RATE * chip.generation.reach),
        memory=chip.move_time(case.nbytes, traffic, DRAM),
        tail=case.latency,
    )
