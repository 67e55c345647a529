"""Recurrent layers: a product for all steps, then chains of steps."""

from simsched.model.libraries.case import WorkCase
from simsched.model.libraries.chip import count_blocks, parts
from simsched.model.libraries.launch import Launch
from simsched.model.libraries.products import Shape, tile_product

_UNITS = 256
"""Units up to which one block runs all steps."""
_PERSISTENT = (36.0, 1.65)
_CLOCK = 1980.0
"""Clock of the H100 that these were measured on."""
_BLOCKS = 32
"""Blocks of a step of many units."""
_STEP_RATE = 0.3
"""Part of the peak rate that steps of many sequences reach: prior."""
_STEPS = (10.0, 5.0)
"""Time in us before the first step, and of each step."""


def recurrence(case: WorkCase) -> tuple[Launch, ...]:
    """Return the kernels of a recurrent layer: the product of all inputs, and one that represents all steps."""
    work = case.work
    chip = case.chip
    tensor = chip.tensor(case.dtype)
    shape = Shape(1, work.rows * work.batch, work.window * work.columns, work.inner)
    first = tile_product(case, shape, chip.engine(case.dtype), case.dtype, split=True)
    block = chip.fitting(512, 128, 2560)
    blocks = count_blocks(work.batch)
    waves = parts(parts(blocks, chip.sms), block.held)
    us = _PERSISTENT[0] + _PERSISTENT[1] * work.rows
    if work.columns > _UNITS:
        us = max(waves * us, _STEPS[0] + _STEPS[1] * work.rows)
        block = chip.fitting(256, 32)
        blocks = _BLOCKS
        waves = 1
    cycles = us * _CLOCK
    flops = 2.0 * work.rows * work.batch * work.window * work.columns * work.columns
    rate = chip.rate(case.dtype) * chip.sms * _STEP_RATE * chip.generation.reach
    steps = Launch(
        blocks,
        *block[:3],
        efficiency=1.0,
        chain=cycles * chip.generation.slowness,
        flops=flops,
        traffic=0.0,
        tensor=tensor,
        start=0.0,
        chained=waves * cycles * chip.cycle,
        compute=flops / rate,
        memory=0.0,
        tail=0.0,
    )
    inputs = max(0.0, work.flops - flops)
    first = tuple(launch._replace(flops=inputs if launch.flops else 0.0) for launch in first)
    return (*first, steps)
