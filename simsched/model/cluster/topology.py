"""`Topology`: which links join devices, and which ways data take over them."""

from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from heapq import heappop, heappush
from math import inf
from typing import Final, NamedTuple

from simsched.base.memo import memo
from simsched.model.cluster.link import Link

Wire = tuple[str, str, Link]

_PER_LINK: Final = 1e-6  # us: makes the shorter of two ways of equal latency the cheaper one


class Route(NamedTuple):
    """Path of a copy from one device to another.

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


@dataclass(frozen=True)
class Topology:
    """Devices by name, and the links that join them.

    Parameters
    ----------
    names
        Devices, in the order of their cluster.
    links
        As in `Cluster`.
    """

    names: tuple[str, ...]
    links: tuple[Wire, ...]

    def __reduce__(self) -> tuple[type, tuple[tuple[str, ...], tuple[Wire, ...]]]:
        return Topology, (self.names, self.links)  # without the ways

    @cached_property
    def index(self) -> Mapping[str, int]:
        """Position of each device by name."""
        return {name: i for i, name in enumerate(self.names)}

    @cached_property
    def channels(self) -> tuple[tuple[str, str, float], ...]:
        """Every link direction as (from, to, bytes per us); a half-duplex link is one channel, from its a to its b."""
        directions: list[tuple[str, str, float]] = []
        for a, b, link in self.links:
            directions.append((a, b, link.bandwidth))
            if link.duplex:
                directions.append((b, a, link.bandwidth))
        return tuple(directions)

    @cached_property
    def channel_links(self) -> tuple[Link, ...]:
        """The link of each channel."""
        return tuple(link for _, _, link in self.links for _ in range(1 + link.duplex))

    @cached_property
    def _hops(self) -> Mapping[str, Mapping[str, tuple[int, Link]]]:
        """For each end the ends that links lead to from it, with the number of the channel and the link."""
        hops: dict[str, dict[str, tuple[int, Link]]] = defaultdict(dict)
        channel = 0
        for a, b, link in self.links:
            back = channel + link.duplex
            for u, v, number in ((a, b, channel), (b, a, back)):
                # of parallel links the one of least latency is used, on ties the first
                if v not in hops[u] or link.latency < hops[u][v][1].latency:
                    hops[u][v] = number, link
            channel = back + 1
        return hops

    def routes_from(self, source: str) -> Mapping[str, Route]:
        """Return the ways from a device, by Dijkstra; of equal costs the one that was found first."""
        cache = _routes_by_source(self)
        if source not in cache:
            routes = {source: Route((), 0.0, inf)}
            costs = {source: 0.0}
            fringe = [(0.0, 0, source)]
            turn = 0
            while fringe:
                _, _, at = heappop(fringe)
                way = routes[at]
                for to, (channel, link) in self._hops.get(at, {}).items():
                    cost = costs[at] + (link.latency + _PER_LINK)
                    if cost < costs.get(to, inf):
                        costs[to] = cost
                        turn = turn + 1
                        least = min(way.bandwidth, link.bandwidth)
                        routes[to] = Route((*way.channels, channel), way.latency + link.latency, least)
                        if to not in self.index:  # copies pass through switches alone
                            heappush(fringe, (cost, turn, to))
            cache[source] = routes
        return cache[source]

    def devices_between(self, source: str, target: str) -> tuple[str, ...]:
        """Return the devices on the path of fewest links that passes through devices, too; () without any path.

        No copy takes such a path (see `routes_from`): a message names it where there is no other.
        """
        paths: dict[str, tuple[str, ...]] = {source: ()}
        fringe = deque([source])
        while fringe and target not in paths:
            at = fringe.popleft()
            for to in self._hops.get(at, {}):
                if to not in paths:
                    passed = (at,) if at in self.index and at != source else ()
                    paths[to] = paths[at] + passed
                    fringe.append(to)
        return paths.get(target, ())


@memo
def _routes_by_source(_topology: Topology) -> dict[str, Mapping[str, Route]]:
    """Return the routes of a topology that have been computed, by their source."""
    return {}
