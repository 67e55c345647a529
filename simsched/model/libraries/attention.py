"""Attention in one kernel: of many queries (prefill), and of few (decode)."""

from simsched.base.numeric import sum_in_order
from simsched.model.libraries.case import WorkCase
from simsched.model.libraries.chip import STREAMED, count_blocks, parts
from simsched.model.libraries.launch import Launch, no_faster

_QUERIES = 128
_EFFICIENCY = {True: 0.62, False: 0.42}
"""Part of the peak rate with heads of 128 features, and of fewer."""
_START = 3.2
_KEYS = 64
_KEYS_CYCLES = 0.85 * 1980.0
_STREAMED = 0.8
_LONG = 4096
_PARTS = 8
_FEW_QUERIES = 16
_WIDE = 128
_DECODED = 0.5
"""Part of the peak rate with few queries."""
_ADDING = 2.1
"""Start in us of the kernel that adds up parts."""


_DIVISIONS = (1, 2, 4, 8, 16, 32, 64, 128)
"""Parts of the keys that engines try."""
_QUERIES_OF_BLOCK = 64
"""Queries of a block where keys are divided."""


def attention(case: WorkCase) -> tuple[Launch, ...]:
    """Return the kernels of an attention."""
    work = case.work
    if work.rule == "divided":
        return min((_divide(case, n_parts) for n_parts in _DIVISIONS), key=_time)
    if work.rows > _FEW_QUERIES:
        few = _decode(case, _FEW_QUERIES, min(work.columns, _LONG), 1)
        launch = no_faster(_prefill(case), few)
        if work.columns >= _LONG:  # few queries have a second kernel there: more of them take no less
            launch = launch._replace(tail=launch.tail + _ADDING)
        return (no_faster(launch, _decode(case, _FEW_QUERIES, work.columns, _PARTS)),)
    if work.columns < _LONG:
        return (_decode(case, work.rows, work.columns, 1),)
    main = no_faster(_decode(case, work.rows, work.columns, _PARTS), _decode(case, work.rows, _LONG, 1))
    outputs = work.batch * work.rows * work.inner
    return (main, case.streaming(outputs, 256, 256, 32, _ADDING, 0.0, nbytes=0.0, traffic=0.0))


def _divide(case: WorkCase, n_parts: int) -> tuple[Launch, ...]:
    """Return the kernels for few queries as inference engines have them: keys in so many parts, added up at the end."""
    work = case.work
    stacks = work.batch * parts(work.rows, _QUERIES_OF_BLOCK)
    main = _decode(case, work.rows, work.columns, n_parts, stacks)
    # they are tuned to stream the cache; prior, not measured
    main = main._replace(memory=case.chip.move_time(case.nbytes, case.traffic(), STREAMED))
    if n_parts == 1:
        return (main,)
    outputs = work.batch * work.rows * work.inner
    nbytes = 4.0 * n_parts * outputs
    return (main, case.streaming(outputs, 256, 256, 32, _ADDING, 0.0, nbytes=nbytes, traffic=0.0))


def _time(launches: tuple[Launch, ...]) -> float:
    return sum_in_order(launch.time for launch in launches)


def _flops(case: WorkCase) -> float:
    work = case.work
    return work.flops or 4.0 * work.batch * work.rows * work.columns * work.inner


def _decode(case: WorkCase, queries: int, keys: int, n_parts: int, stacks: int | None = None) -> Launch:
    """Return the kernel for few queries: a block for each head and part of the keys."""
    work = case.work
    chip = case.chip
    block = chip.fitting(128, 183, 86336)
    blocks = count_blocks((work.batch if stacks is None else stacks) * n_parts)
    waves = parts(parts(blocks, chip.sms), block.held)
    chain = parts(parts(keys, n_parts), _KEYS) * _KEYS_CYCLES
    traffic = case.traffic()
    flops = _flops(case) * queries / work.rows
    return Launch(
        blocks,
        *block[:3],
        efficiency=1.0,
        chain=chain * chip.generation.slowness,
        flops=work.flops,
        traffic=traffic,
        tensor=chip.tensor(case.dtype),
        start=_START * chip.generation.starting,
        chained=waves * chain * chip.cycle,
        compute=flops / (chip.rate(case.dtype) * chip.sms * _DECODED * chip.generation.reach),
        memory=chip.move_time(case.nbytes, traffic, _STREAMED),
        tail=case.latency,
    )


def _prefill(case: WorkCase) -> Launch:
    """Return the kernel for many queries: a block for each head and 128 of them."""
    work = case.work
    chip = case.chip
    queries = parts(work.rows, _QUERIES)
    blocks = count_blocks(work.batch * queries)
    block = chip.block(384, 168, 232448) or chip.block(128, 183, 86336) or chip.fitting(128, 128, 40960)
    rate = chip.rate(case.dtype) * _EFFICIENCY[work.inner >= _WIDE] * chip.generation.reach
    per_tile = _flops(case) / (work.batch * work.rows) * _QUERIES / rate
    traffic = case.traffic()
    return Launch(
        blocks,
        *block[:3],
        efficiency=min(1.0, work.rows / (queries * _QUERIES)),
        chain=0.0,
        flops=work.flops,
        traffic=traffic,
        tensor=chip.tensor(case.dtype),
        start=_START * chip.generation.starting,
        chained=0.0,
        compute=parts(blocks, chip.sms) * per_tile,
        memory=chip.move_time(case.nbytes, traffic, _STREAMED),
        tail=case.latency,
    )
