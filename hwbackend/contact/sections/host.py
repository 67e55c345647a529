"""Section: costs of the host and of captured graphs, by the microbenchmarks of overheads."""

from functools import partial
from itertools import pairwise
from typing import Final

from hwbackend.contact.sections.item import Bench, ContactItem, turns_of
from hwbackend.measuring.microbenchmarks import schedules, synthetic_kernel, synthetic_schedule
from simsched.model import Cluster, Schedule

_GROUPS: Final = {
    "launch": ("launch-", "gap-", "hop-", "alternate-"),
    "order": ("fan-out-", "fan-in-"),
    "graphs": ("graph-",),
    "barriers": ("barrier-", "barriers-"),
}
"""Items, and how the names of their microbenchmarks continue after ``overhead/``."""
_SECONDS: Final = 2.5


STAY = "overhead/stay"
SWITCH = "overhead/switch"
"""Two chains of kernels: on one stream, and on two by turns."""
CROWD = "crowd/"
"""How the names of chains of kernels begin that run beside another kernel at first, then alone."""
LASTING: Final = "lasting"
"""Name of the other kernel."""
_CHAIN: Final = 40  # kernels of such a chain
_US: Final = 16.0  # of a block of it: longer than the host takes to launch one
_CROWD: Final = 120  # kernels of a chain that is crowded at first
_CROWDED: Final = (3.0, 12.0)  # us of a block of them
_PAUSES: Final = 1.0  # us between two of them, about


def host_items() -> list[ContactItem]:
    """Return the items; the schedules of one are measured in turns, as their differences are what counts."""
    groups = [
        turns_of(f"host/{group}", partial(_overheads, prefixes=prefixes), _SECONDS)
        for group, prefixes in _GROUPS.items()
    ]
    return [
        *groups,
        turns_of("host/hops", _hops, _SECONDS),
        turns_of("host/crowd", lambda bench: crowds(bench.device.cluster), _SECONDS),
    ]


def _overheads(bench: Bench, prefixes: tuple[str, ...]) -> list[Schedule]:
    beginnings = tuple(f"overhead/{prefix}" for prefix in prefixes)
    return [plan for plan in schedules(bench.device.cluster) if plan.scheduler.startswith(beginnings)]


def _hops(bench: Bench) -> list[Schedule]:
    gpu = bench.device.cluster.devices[0]
    operators = [synthetic_kernel(f"k{i}", gpu, 1, _US) for i in range(_CHAIN)]
    edges = list(pairwise(range(_CHAIN)))
    return [
        synthetic_schedule(name, gpu, operators, edges, [i % streams for i in range(_CHAIN)])
        for name, streams in ((STAY, 1), (SWITCH, 2))
    ]


def crowds(cluster: Cluster) -> list[Schedule]:
    """Return captured chains of kernels of two sizes; another kernel lasts for about half of each."""
    gpu = cluster.devices[0]
    plans = []
    for us in _CROWDED:
        lasting = synthetic_kernel(LASTING, gpu, 1, _CROWD / 2 * (us + _PAUSES))
        chain = [synthetic_kernel(f"k{i}", gpu, 1, us) for i in range(_CROWD)]
        edges = list(pairwise(range(1, 1 + _CROWD)))
        streams = [0] + [1] * _CROWD
        plans.append(synthetic_schedule(f"{CROWD}{us:.0f}", gpu, [lasting, *chain], edges, streams, execution="graph"))
    return plans
