"""Attention in one kernel: of many queries (prefill), and of one (decode)."""

from simsched.model.libraries.case import Case
from simsched.model.libraries.chip import count_blocks, parts
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


def attention(case: Case) -> tuple[Launch, ...]:
    """Return the kernels of an attention."""
    work = case.work
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


def _flops(case: Case) -> float:
    work = case.work
    return work.flops or 4.0 * work.batch * work.rows * work.columns * work.inner


def _decode(case: Case, queries: int, keys: int, n_parts: int) -> Launch:
    """Return the kernel for few queries: a block for each head and part of the keys."""
    work = case.work
    chip = case.chip
    block = chip.fitting(128, 183, 86336)
    blocks = count_blocks(work.batch * n_parts)
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
        memory=chip.moved(case.nbytes, traffic, _STREAMED),
        tail=case.latency,
    )


def _prefill(case: Case) -> Launch:
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
        memory=chip.moved(case.nbytes, traffic, _STREAMED),
        tail=case.latency,
    )
