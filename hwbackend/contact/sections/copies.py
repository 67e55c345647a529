"""Section: copies to and from the host, and between devices."""

from functools import partial
from typing import Final

from hwbackend.contact.sections.item import Bench, ContactItem, Json, turns_of
from hwbackend.measuring.microbenchmarks import schedules
from simsched.model import Cluster, Schedule

BYTES: Final = (4e3, 64e3, 1e6, 16e6, 64e6)
"""Bytes of the copies."""
WAYS: Final = (("in",), ("out",), ("in", "out"), ("in", "in"))
"""Copies that are issued together."""
_REPEATS: Final = 15
_SECONDS: Final = 1.0


def copy_items(cluster: Cluster) -> list[ContactItem]:
    """Return the items; copies between devices are measured where there are several."""
    hosts = [ContactItem(f"copies/{'-'.join(ways)}", _SECONDS, partial(_copies, ways=ways)) for ways in WAYS]
    return hosts + ([turns_of("copies/devices", _transfers, _SECONDS)] if len(cluster) > 1 else [])


def _copies(bench: Bench, ways: tuple[str, ...]) -> Json:
    rows = [[bench.device.copy(nbytes, ways) for nbytes in BYTES] for _ in range(_REPEATS)]
    return {"nbytes": list(BYTES), "us": [sorted(column)[_REPEATS // 2] for column in zip(*rows, strict=True)]}


def _transfers(bench: Bench) -> list[Schedule]:
    return [plan for plan in schedules(bench.device.cluster) if plan.scheduler.startswith("transfer/")]
