"""Recurrent layers: a product for all steps, then chains of steps."""

from simsched.model.libraries.case import Case
from simsched.model.libraries.launch import Launch
from simsched.model.libraries.products import Shape, tiled

_UNITS = 256
"""Units up to which one block runs all steps."""
_PERSISTENT = (36.0, 1.65)
_CLOCK = 1980.0
"""Clock of the H100 that these were measured on."""
_STEPS = (10.0, 5.0)
"""Time in us before the first step, and of each step."""


def recurrence(case: Case) -> tuple[Launch, ...]:
    """Return the kernels of a recurrent layer: the product of all inputs, and one that stands for all steps."""
    work, chip = case.work, case.chip
    tensor = chip.tensor(case.dtype)
    engine = (
        (chip.generation.tf32 if case.dtype == "tf32" else chip.generation.tensor) if tensor else chip.generation.simt
    )
    shape = Shape(1, work.rows * work.batch, work.window * work.columns, work.inner)
    first = tiled(case, shape, engine, case.dtype, tensor, split=True)
    small = work.columns <= _UNITS
    us = _PERSISTENT[0] + _PERSISTENT[1] * work.rows
    if not small:
        us = max(us, _STEPS[0] + _STEPS[1] * work.rows)
    cycles = us * _CLOCK
    block = chip.fitting(512, 128, 2560) if small else chip.fitting(256, 32)
    steps = Launch(
        work.batch if small else 32, *block[:3], efficiency=1.0, chain=cycles * chip.generation.slowness,
        flops=0.0, traffic=0.0, tensor=tensor, start=0.0, chained=cycles * chip.cycle, compute=0.0, memory=0.0,
        tail=0.0,
    )  # fmt: skip
    return (*first, steps)
