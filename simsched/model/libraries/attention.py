"""Attention in one kernel: of many queries (prefill), and of one (decode)."""

from simsched.model.libraries.case import Case
from simsched.model.libraries.chip import counted, parts
from simsched.model.libraries.launch import Launch

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


def attention(case: Case) -> tuple[Launch, ...]:
    """Return the kernels of an attention."""
    work, chip = case.work, case.chip
    flops = work.flops or 4.0 * work.batch * work.rows * work.columns * work.inner
    traffic = case.traffic()
    memory = chip.moved(case.nbytes, traffic, _STREAMED)
    rate = chip.rate(case.dtype)
    if work.rows <= _FEW_QUERIES:
        n_parts = _PARTS if work.columns >= _LONG else 1
        block = chip.fitting(128, 183, 86336)
        blocks = counted(work.batch * n_parts)
        waves = parts(parts(blocks, chip.sms), block.held)
        chain = parts(parts(work.columns, n_parts), _KEYS) * _KEYS_CYCLES
        main = Launch(
            blocks, *block[:3], efficiency=1.0, chain=chain * chip.generation.slowness, flops=work.flops,
            traffic=traffic, tensor=chip.tensor(case.dtype), start=_START, chained=waves * chain * chip.cycle,
            compute=flops / (rate * chip.sms * 0.5), memory=memory, tail=case.latency,
        )  # fmt: skip
        if n_parts == 1:
            return (main,)
        outputs = work.batch * work.rows * work.inner
        return (main, case.streaming(outputs, 256, 256, 32, 2.1, 0.0, nbytes=0.0, traffic=0.0))
    queries = parts(work.rows, _QUERIES)
    blocks = counted(work.batch * queries)
    block = chip.block(384, 168, 226 * 1024) or chip.block(128, 183, 86336) or chip.fitting(128, 128, 40960)
    q = parts(blocks, chip.sms)
    each = 4.0 * _QUERIES * work.columns * work.inner / (rate * _EFFICIENCY[work.inner >= 128])
    return (
        Launch(
            blocks, *block[:3], efficiency=min(1.0, work.rows / (queries * _QUERIES)), chain=0.0, flops=work.flops,
            traffic=traffic, tensor=chip.tensor(case.dtype), start=_START, chained=0.0, compute=q * each,
            memory=memory, tail=case.latency,
        ),
    )  # fmt: skip
