"""Elementwise kernels, copies, pools, and batch norm with statistics that are known."""

from simsched.model.libraries.case import WorkCase
from simsched.model.libraries.launch import Launch

_START = 1.25
# clock cycles of a lane for each output (of a pool: for each element of its window)
_CYCLES = {
    "map": 0.0,
    "copy": 0.0,
    "activation": 16.0,
    "channels": 80.0,
    "upsample": 90.0,
    "permute": 230.0,
    "pool": 48.0,
}


def elementwise(case: WorkCase) -> tuple[Launch, ...]:
    """Return the kernel of an elementwise work; a rule that is not known is a map."""
    work = case.work
    cycles = _CYCLES.get(work.rule, 0.0) * (work.window if work.rule == "pool" else 1)
    per_block = 1024 if cycles <= 16 else 512
    return (
        case.streaming(
            work.rows,
            per_block,
            128,
            32,
            _START,
            cycles,
            chain=300.0,
            flops=work.flops,
        )._replace(tail=0.6 / 1.7 * case.latency),
    )


def batch_norm(case: WorkCase) -> tuple[Launch, ...]:
    """Return the kernels of batch norm: of half precision three, two of which widen its parameters."""
    work = case.work
    outputs = work.batch * work.columns * work.rows
    if case.width >= 4:
        return (case.streaming(outputs, 512, 128, 32, _START, 80.0, flops=work.flops),)
    cast = case.streaming(work.columns, 512, 128, 32, _START, 0.0, nbytes=6.0 * work.columns, traffic=0.0)
    threads = min(512, max(32, 1 << (work.rows - 1).bit_length() if work.rows > 1 else 32))
    chain = (1.2 + 0.4 * work.rows / threads) * 1980.0
    main = case.streaming(work.batch * work.columns, 1, threads, 32, _START, 0.0, chain=chain, flops=work.flops)
    return (cast, cast, main)
