"""Gathers of rows from tables, and bags, which add some of them up."""

from simsched.model.libraries.case import WorkCase
from simsched.model.libraries.chip import parts
from simsched.model.libraries.launch import Launch

_START = 1.3
_ROW = 160.0
"""Clock cycles that an SM needs for a row, however short."""
_BAG = 0.5
"""More time in us of the start of a kernel that adds rows up."""
_BAG_BLOCKS = 1024
_BAG_ELEMENT = 128.0
"""Clock cycles of a lane for each element that is added."""


def gather(case: WorkCase) -> tuple[Launch, ...]:
    """Return the kernels of a gather: two for bags. Only the rows that are read count, not the table."""
    work = case.work
    chip = case.chip
    read = float(work.rows) * work.columns * case.width
    written = read / work.window
    nbytes = read + written
    traffic = nbytes * (1.0 - case.part_in_l2(read, written))
    bags = parts(work.rows, work.window)
    if work.window == 1:
        threads = min(256, max(32, work.columns * case.width // 16))
        launch = case.streaming(work.rows, 1, threads, 32, _START, 0.0, nbytes=nbytes, traffic=traffic)
        return (launch._replace(compute=_ROW * work.rows / chip.sms * chip.cycle, tail=case.latency),)
    first = case.streaming(bags, 64, 64, 16, _START, 0.0, nbytes=0.0, traffic=0.0)
    second = case.streaming(
        _BAG_BLOCKS, 1, 256, 40, _START + _BAG, 0.0, flops=work.flops, nbytes=nbytes, traffic=traffic
    )
    elements = float(work.rows) * work.columns
    compute = elements * _BAG_ELEMENT / (chip.sms * chip.lanes) * chip.cycle
    return (first, second._replace(compute=compute, tail=case.latency))
