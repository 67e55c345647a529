"""Section: where blocks go, and whether a second kernel waits for the first: block stamps with the SM."""

from functools import partial
from typing import Final

from hwbackend.contact.device import StampedBlock
from hwbackend.contact.sections.item import Bench, ContactItem, Json
from hwbackend.measuring.microbenchmarks import synthetic_kernel, synthetic_schedule
from simsched.model import Schedule

_US: Final = 60.0  # of a block
_WAVES: Final = 16  # blocks an SM of each of two kernels that compete
_TURNS: Final = 10
_SECONDS: Final = 0.2


def dispatch_items() -> list[ContactItem]:
    """Return the items: one kernel of few blocks, two of them, and two kernels that fill the device."""
    alone = [
        ContactItem(f"dispatch/one-{part}", _SECONDS, partial(_placement, part=part, kernels=1)) for part in (4, 2, 1)
    ]
    beside = [
        ContactItem(f"dispatch/two-{part}", _SECONDS, partial(_placement, part=part, kernels=2)) for part in (4, 2, 1)
    ]
    full = [ContactItem(f"dispatch/full-{turn}", _SECONDS, _competition) for turn in range(_TURNS)]
    return [*alone, *beside, *full]


def competing(bench: Bench, blocks: int, kernels: int, name: str) -> Schedule:
    """Return kernels of so many blocks each, launched one after the other on streams of their own."""
    gpu = bench.device.cluster.devices[0]
    operators = [synthetic_kernel(f"k{i}", gpu, blocks, _US) for i in range(kernels)]
    return synthetic_schedule(name, gpu, operators, streams=range(kernels))


def _placement(bench: Bench, part: int, kernels: int) -> Json:
    sms = bench.device.cluster.devices[0].sms
    plan = competing(bench, max(1, sms // part), kernels, f"dispatch/{kernels}-of-{sms // part}")
    return {"blocks": [list(block) for block in bench.device.blocks(plan)]}


def _competition(bench: Bench) -> Json:
    sms = bench.device.cluster.devices[0].sms
    found = bench.device.blocks(competing(bench, _WAVES * sms, 2, "dispatch/full"))
    freed, taken = taken_slots(found)
    return {"freed": freed, "taken": taken}


def taken_slots(blocks: list[StampedBlock]) -> tuple[int, int]:
    """Return how many slots were freed while the first of two kernels had blocks left, and how many the second took.

    The first blocks of the first kernel go to free slots. Every later start takes a slot that a block freed. Starts
    count before the last one of the first kernel: those in the same step of the timer may come after it, when no choice
    is left.
    """
    first = [block.start for block in blocks if block.op == 0]
    second = [block.start for block in blocks if block.op == 1]
    end = min(block.end for block in blocks)  # before it no slot was freed
    last = max(first)
    taken = sum(end <= start < last for start in second)
    return sum(end <= start < last for start in first) + taken, taken
