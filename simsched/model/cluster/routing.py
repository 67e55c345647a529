"""Ways for copies: the least latency from device to device, through switches only."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from simsched.base.errors import ClusterError
from simsched.base.numeric import whole_numbers
from simsched.model.cluster.device import Link
from simsched.model.graph.columns import Floats, Ints

Wire = tuple[str, str, Link]

PER_LINK: Final = 1e-6  # us: makes the shorter of two ways of equal latency the cheaper one


class Route(NamedTuple):
    """How a copy gets from one device to another.

    Parameters
    ----------
    channels
        Link directions it occupies, as indices into `Cluster.channels`.
    latency
        Sum of the latencies on the way, in us.
    bandwidth
        Least bandwidth on the way, in bytes per us.
    """

    channels: tuple[int, ...]
    latency: float
    bandwidth: float


@dataclass(frozen=True, slots=True)
class Routes:
    """How copies get from devices to others, by columns (see `Route`), one row per pair.

    Parameters
    ----------
    channel_ptr, channel
        Pair p occupies ``channel[channel_ptr[p]:channel_ptr[p + 1]]``, in the order of the way.
    latency, bandwidth
        In us and in bytes per us; without links between the two infinity and zero, within a device the reverse.
    known
        Whether links lead from the one to the other.
    """

    channel_ptr: Ints
    channel: Ints
    latency: Floats
    bandwidth: Floats
    known: npt.NDArray[np.bool_]


_NOWHERE: Final = Route((), inf, 0.0)


class Router:
    """Finds the ways between the devices of a cluster; what it finds once it keeps.

    Parameters
    ----------
    index
        Position of each device by name.
    links
        As in `Cluster`.
    """

    def __init__(self, index: Mapping[str, int], links: Sequence[Wire]) -> None:
        self._n = len(index)
        numbers, channel = dict(index), 0  # devices come before switches
        hops: dict[tuple[int, int], tuple[int, Link]] = {}
        for a, b, link in links:
            u, v = (numbers.setdefault(end, len(numbers)) for end in (a, b))
            back = channel + link.duplex
            for way, number in (((u, v), channel), ((v, u), back)):
                # of parallel links the one of least latency is used, of equal ones the first
                if way not in hops or link.latency < hops[way][1].latency:
                    hops[way] = number, link
            channel = back + 1
        self._hops: list[list[tuple[int, int, Link]]] = [[] for _ in numbers]  # where to, its channel, the link
        for (u, v), (number, link) in hops.items():
            self._hops[u].append((v, number, link))
        self._found: dict[int, list[Route]] = {}

    def routes(self, src: npt.ArrayLike, dst: npt.ArrayLike) -> Routes:
        """See `Cluster.routes`."""
        a, b = self._devices(src), self._devices(dst)
        if a.shape != b.shape or a.ndim != 1:
            raise ClusterError(f"src and dst must have the same length, not {a.shape} and {b.shape}")
        found = [self.from_device(u)[v] for u, v in zip(a.tolist(), b.tolist(), strict=True)]
        ptr = np.cumsum([0, *(len(route.channels) for route in found)])
        channel = np.array([number for route in found for number in route.channels], np.int64)
        latency, bandwidth = (np.array([route[i] for route in found], np.float64) for i in (1, 2))
        return Routes(ptr, channel, latency, bandwidth, known=latency < inf)

    def _devices(self, numbers: npt.ArrayLike) -> Ints:
        devices = whole_numbers(numbers)
        if devices is None or (devices.size and not 0 <= devices.min() <= devices.max() < self._n):
            raise ClusterError(f"src and dst must hold numbers of devices: there are {self._n}")
        return devices.astype(np.int64)

    def from_device(self, source: int) -> list[Route]:
        """Return the ways from a device to each device, by Dijkstra; of equal costs the one that was found first."""
        if source not in self._found:
            routes = [_NOWHERE] * len(self._hops)
            costs, done, turn = [inf] * len(self._hops), [False] * len(self._hops), 0
            routes[source], costs[source] = Route((), 0.0, inf), 0.0
            fringe = [(0.0, turn, source)]
            while fringe:
                at = heappop(fringe)[-1]
                if done[at]:
                    continue
                done[at], way = True, routes[at]
                for to, channel, link in self._hops[at]:
                    cost = costs[at] + (link.latency + PER_LINK)
                    if cost < costs[to]:
                        costs[to], turn = cost, turn + 1
                        least = min(way.bandwidth, link.bandwidth)
                        routes[to] = Route((*way.channels, channel), way.latency + link.latency, least)
                        if to >= self._n:  # copies pass through switches alone
                            heappush(fringe, (cost, turn, to))
            self._found[source] = routes[: self._n]
        return self._found[source]
