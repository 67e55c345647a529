"""Norms and softmax along rows, and reductions."""

from typing import NamedTuple

from simsched.model.libraries.case import Case
from simsched.model.libraries.chip import STREAMED
from simsched.model.libraries.launch import Launch


class _Rule(NamedTuple):
    rate: float
    """Elements a row takes in a cycle."""
    lane_cycles: float
    threads: int
    rows: int
    registers: int


_ROWS = {
    "layer_norm": _Rule(0.63, 52.0, 128, 1, 32),
    "rms_norm": _Rule(1.2, 52.0, 128, 1, 32),
    "softmax": _Rule(0.6, 70.0, 128, 4, 48),
}
_LONG_SOFTMAX = _Rule(2.4, 90.0, 1024, 1, 32)
_LONG = 1024
_START = 1.9
_WRITTEN = 0.65
_CHAIN = 1980.0
"""Clock cycles of a block whatever the length of its rows."""
_REDUCTIONS = {"sum": (1.0, 9.0), "argmax": (0.18, 2.4)}


def rows(case: Case) -> tuple[Launch, ...]:
    """Return the kernel of a norm or a softmax; a rule that is not known is a layer norm."""
    work = case.work
    rule = _ROWS.get(work.rule, _ROWS["layer_norm"])
    if work.rule == "softmax" and work.columns > _LONG:
        rule = _LONG_SOFTMAX
    return (_kernel(case, rule, _WRITTEN),)


def reduction(case: Case) -> tuple[Launch, ...]:
    """Return the kernel of a reduction: a warp for each output, or, if they are few, a block."""
    work = case.work
    warp, block = _REDUCTIONS.get(work.rule, _REDUCTIONS["sum"])
    many = _kernel(case, _Rule(warp, 0.0, 512, 16, 32), STREAMED)
    few = _kernel(case, _Rule(block, 0.0, 512, 1, 32), STREAMED)
    return (min(many, few, key=lambda launch: launch.time),)


def _kernel(case: Case, rule: _Rule, efficiency: float) -> Launch:
    work, chip = case.work, case.chip
    chain = _CHAIN + work.columns / rule.rate
    launch = case.streaming(
        work.rows, rule.rows, rule.threads, rule.registers, _START, 0.0, efficiency=efficiency, chain=chain,
        flops=work.flops,
    )  # fmt: skip
    lanes = float(work.rows) * work.columns * rule.lane_cycles / (chip.sms * chip.lanes) * chip.cycle
    return launch._replace(compute=lanes, tail=case.latency())
