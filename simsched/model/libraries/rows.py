"""Norms, softmax and orderings along rows, and reductions."""

from typing import Final, NamedTuple

from simsched.model.libraries.case import WorkCase
from simsched.model.libraries.chip import parts
from simsched.model.libraries.launch import Launch, no_faster


class _RowKernel(NamedTuple):
    """A kernel whose blocks of some threads take some rows each.

    Parameters
    ----------
    cycles
        Clock cycles of a block before its first element.
    rate
        Elements of a row that are taken in a cycle.
    lane_cycles
        Clock cycles of a lane for each element.
    """

    threads: int
    rows: int
    registers: int
    cycles: float
    rate: float
    lane_cycles: float


# constants below: one H100, PyTorch 2.11
_ROWS: Final = {
    "layer_norm": _RowKernel(128, 1, 32, 1000.0, 0.7, 52.0),
    "rms_norm": _RowKernel(128, 1, 32, 200.0, 1.4, 52.0),
    "softmax": _RowKernel(128, 4, 48, 1000.0, 0.6, 58.0),
}
_LONG_SOFTMAX: Final = _RowKernel(1024, 1, 32, 1000.0, 2.4, 90.0)
_LONG: Final = 1024
"""Columns up to which a warp keeps a row of a softmax."""
_ORDERING: Final = _RowKernel(1024, 1, 32, 7900.0, 3.0, 0.0)
"""Each of the two kernels that bring pairs of a token and an expert into the order of experts.

They take 11 us for few pairs on an H100: published times of whole mixtures of 128 experts, up to 8 tokens, less their
products and the quantisation of their inputs. For many pairs: published times of these kernels alone.
"""
_ORDERING_KERNELS: Final = 2
_START: Final = 1.5
_WRITTEN: Final = 0.75
"""Part of the bandwidth of DRAM that these kernels reach."""
_LATE: Final = 0.6
"""Part by which rows take longer where they come from DRAM."""
_REDUCTIONS: Final = {"sum": (1.0, 9.0, 3.0), "argmax": (0.18, 2.4, 40.0)}
"""Elements that a warp and a block of 512 threads take in a cycle, and clock cycles of a lane for each element."""
_REDUCED: Final = 1100.0
"""Clock cycles of a block of a reduction before its first element."""
_OUTPUT: Final = 8300.0
"""Clock cycles of lanes for each output: its warp adds up what its lanes have."""
_WARPS: Final = 16
"""Warps of a block of a reduction: each takes an output, or, where outputs are few or long, several take one."""
_WARP_LENGTH: Final = 8192
"""Inputs up to which a warp takes an output."""


def rows(case: WorkCase) -> tuple[Launch, ...]:
    """Return the kernels of a norm, a softmax or an ordering; a rule that is not known is a layer norm."""
    work = case.work
    if work.rule == "order":
        return (_kernel(case, _ORDERING, work.columns),) * _ORDERING_KERNELS
    rule = _ROWS.get(work.rule, _ROWS["layer_norm"])
    if work.rule != "softmax":
        return (_kernel(case, rule, work.columns),)
    if work.columns <= _LONG:
        return (_kernel(case, rule, 1 << (work.columns - 1).bit_length()),)
    long = _kernel(case, _LONG_SOFTMAX, work.columns)
    return (no_faster(long, _kernel(case, rule, _LONG)),)


def reduction(case: WorkCase) -> tuple[Launch, ...]:
    """Return the kernel of a reduction; a rule that is not known is a sum."""
    work = case.work
    warp, block, lane_cycles = _REDUCTIONS.get(work.rule, _REDUCTIONS["sum"])
    at_once = min(_WARPS, work.rows)
    if at_once == _WARPS:
        rate = warp
    else:
        rate = max(warp, block / at_once)
    short = _kernel(case, _RowKernel(512, at_once, 32, _REDUCED, rate, lane_cycles), min(work.columns, _WARP_LENGTH))
    if work.columns <= _WARP_LENGTH:
        return (short,)
    return (no_faster(_kernel(case, _RowKernel(512, 1, 32, _REDUCED, block, lane_cycles), work.columns), short),)


def _kernel(case: WorkCase, rule: _RowKernel, columns: int) -> Launch:
    """Return a kernel that takes rows of some columns; it reads rows again that L2 has lost meanwhile."""
    work = case.work
    chip = case.chip
    late = 1.0 + _LATE * case.miss_share
    chain = rule.cycles + columns / rule.rate * late
    block = chip.fitting(rule.threads, rule.registers)
    at_once = min(work.rows, chip.sms * block.held * rule.rows)
    traffic = case.traffic()
    if work.family == "rows":
        traffic += (1.0 - chip.part_in_l2(work.reads * at_once / work.rows)) * work.reads
    launch = case.streaming(
        work.rows,
        rule.rows,
        rule.threads,
        rule.registers,
        _START,
        0.0,
        efficiency=_WRITTEN,
        chain=chain,
        flops=work.flops,
        traffic=traffic,
    )
    blocks = parts(launch.blocks, chip.sms) * min(rule.rows, work.rows)
    cycles = columns * rule.lane_cycles + (_OUTPUT if work.family == "reduction" else 0.0)
    lanes = blocks * cycles / chip.lanes * chip.cycle
    return launch._replace(compute=lanes, tail=case.latency)
