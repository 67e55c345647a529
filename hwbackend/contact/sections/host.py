"""Section: costs of the host and of captured graphs, by the microbenchmarks of overheads."""

from functools import partial
from typing import Final

from hwbackend.contact.sections.item import Bench, Item, turns_of
from hwbackend.microbenchmarks import schedules
from simsched.model import Schedule

_GROUPS: Final = {
    "launch": ("launch-", "gap-", "hop-", "alternate-"),
    "order": ("fan-out-", "fan-in-"),
    "graphs": ("graph-",),
    "barriers": ("barrier-", "barriers-"),
}
"""Items, and how the names of their microbenchmarks continue after ``overhead/``."""
_SECONDS: Final = 2.5


def host_items() -> list[Item]:
    """Return the items; the schedules of one are measured in turns, as their differences are what counts."""
    return [
        turns_of(f"host/{group}", partial(_overheads, prefixes=prefixes), _SECONDS)
        for group, prefixes in _GROUPS.items()
    ]


def _overheads(bench: Bench, prefixes: tuple[str, ...]) -> list[Schedule]:
    beginnings = tuple(f"overhead/{prefix}" for prefix in prefixes)
    return [plan for plan in schedules(bench.device.cluster) if plan.scheduler.startswith(beginnings)]
