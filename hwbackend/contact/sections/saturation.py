"""Section: how many warps keep an SM busy, by chains of independent instructions; kernels alone by number of blocks."""

from functools import partial
from typing import Final

from hwbackend.contact.sections.item import Bench, ContactItem, Json, turns_of
from hwbackend.measuring.microbenchmarks import schedules
from simsched.model import Schedule

CHAINS: Final = (1, 2, 4)
"""Independent chains of FMAs of a thread."""
WARPS: Final = (1, 2, 4, 8, 12, 16, 20, 24, 28, 32)
"""Warps of the one block of each SM."""
_KINDS: Final = ("compute", "memory", "mixed")
_SECONDS: Final = 1.5
_SWEEP: Final = 0.4
_REPEATS: Final = 5


def saturation_items() -> list[ContactItem]:
    """Return the items."""
    sweeps = [ContactItem(f"saturation/chains-{chains}", _SWEEP, partial(_sweep, chains=chains)) for chains in CHAINS]
    return [*sweeps, *(turns_of(f"saturation/{kind}", partial(_solos, kind=kind), _SECONDS) for kind in _KINDS)]


def _sweep(bench: Bench, chains: int) -> Json:
    """Return the us of a block by its number of warps, median of repeats in turns."""
    rows = [[bench.device.fma(warps, chains) for warps in WARPS] for _ in range(_REPEATS)]
    return {"warps": list(WARPS), "us": [sorted(column)[_REPEATS // 2] for column in zip(*rows, strict=True)]}


def _solos(bench: Bench, kind: str) -> list[Schedule]:
    known = schedules(bench.device.cluster)
    return [plan for plan in known if plan.scheduler.startswith(f"solo/{kind}-")]
