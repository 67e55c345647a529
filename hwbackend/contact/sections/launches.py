"""Section: programmatic dependent launches (PDL), and green contexts, which have some of the SMs."""

from statistics import median
from typing import Final

from hwbackend.contact.sections.item import Bench, ContactItem, Json

_SECONDS: Final = 1.0
_REPEATS: Final = 45


def launch_items() -> list[ContactItem]:
    """Return the items."""
    return [
        ContactItem("launches/dependent", _SECONDS, _dependent),
        ContactItem("launches/green", _SECONDS, _green),
    ]


def _dependent(bench: Bench) -> Json:
    """Return the us of a kernel in a chain on one stream, if it starts after the one before or may start earlier."""
    rows = [[bench.device.chain(programmatic=may_start) for may_start in (False, True)] for _ in range(_REPEATS)]
    ordered, dependent = map(median, zip(*rows, strict=True))
    return {"ordered": ordered, "dependent": dependent}


def _green(bench: Bench) -> Json:
    """Return the us of two kernels of a block an SM on two streams, and on halves of the SMs, and the SMs of both."""
    halves = bench.device.halves()
    return {"shared": halves.shared, "halves": halves.apart, "sms": list(halves.sms)}
