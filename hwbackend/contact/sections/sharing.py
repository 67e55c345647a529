"""Section: kernels beside each other: of blocks that fit together, and of grids that do not; and of other units."""

from functools import partial
from itertools import combinations_with_replacement
from typing import Final

from hwbackend.contact.sections.item import Bench, ContactItem, Json, turns_of
from hwbackend.measuring.microbenchmarks import schedules
from simsched.model import Cluster, Schedule

UNITS: Final = ("compute", "dram", "l2", "tensor")
"""Units of a device that a kernel can be bound by."""
_SECONDS: Final = 0.5


def sharing_items(cluster: Cluster) -> list[ContactItem]:
    """Return an item for each pair of synthetic kernels, then for each two units."""
    pairs = [plan.scheduler for plan in schedules(cluster) if plan.scheduler.startswith("pair/")]
    found = [turns_of(f"sharing/{name.removeprefix('pair/')}", partial(_pair, name=name), _SECONDS) for name in pairs]
    units = combinations_with_replacement(UNITS, 2)
    return [*found, *(ContactItem(f"sharing/{a}-beside-{b}", _SECONDS, partial(_beside, a=a, b=b)) for a, b in units)]


def _pair(bench: Bench, name: str) -> list[Schedule]:
    return [plan for plan in schedules(bench.device.cluster) if plan.scheduler == name]


def _beside(bench: Bench, a: str, b: str) -> Json:
    first, second, together = bench.device.beside(a, b)
    return {"first": first, "second": second, "together": together}
