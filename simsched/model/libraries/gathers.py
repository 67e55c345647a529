"""Gathers of rows from tables, and bags, which add some of them up."""

from simsched.model.libraries.case import Case
from simsched.model.libraries.launch import Launch

_START = 1.3
_ROW = 0.08
"""Time in us that an SM needs for a row, however short."""
_BAG = 3.0
_BAG_BLOCKS = 1024


def gather(case: Case) -> tuple[Launch, ...]:
    """Return the kernels of a gather: those of bags are two. Only the rows that are read count, not the table."""
    work, chip = case.work, case.chip
    nbytes = float(work.rows) * work.columns * case.width
    written = nbytes / work.window
    found = chip.found(nbytes + written, 1.0, case.cold)
    traffic = (nbytes + written) * (1 - found.activations)
    if work.window == 1:
        return (_rows(case, nbytes + written, traffic, work.rows, 0.0),)
    first = case.streaming(work.rows // work.window, 64, 64, 16, _START, 0.0, nbytes=0.0, traffic=0.0)
    return (first, _rows(case, nbytes + written, traffic, _BAG_BLOCKS, _BAG))


def _rows(case: Case, nbytes: float, traffic: float, blocks: int, more: float) -> Launch:
    work, chip = case.work, case.chip
    threads = min(256, max(32, work.columns * case.width // 16))
    launch = case.streaming(
        blocks, 1, 256 if more else threads, 40 if more else 32, _START + more, 0.0, flops=work.flops, nbytes=nbytes,
        traffic=traffic,
    )  # fmt: skip
    return launch._replace(compute=_ROW * work.rows / chip.sms * chip.cycle * 1980.0, tail=case.latency())
