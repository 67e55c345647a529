"""Ways for copies: the least latency from device to device, through switches only."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from simsched.base.errors import ClusterError
from simsched.base.numeric import whole_numbers
from simsched.model.cluster.device import Link
from simsched.model.graph.columns import Floats, Ints

Wire = tuple[str, str, Link]

PER_LINK: Final = 1e-6  # us: makes the shorter of two ways of equal latency the cheaper one
_NONE: Final = -1


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


class _Hop(NamedTuple):
    """A link direction that leads somewhere."""

    to: int
    channel: int
    latency: float
    bandwidth: float


Ways = dict[str, npt.NDArray[Any]]
_WAYS: Final = {
    "cost": inf, "order": _NONE, "hops": _NONE, "latency": inf, "bandwidth": 0.0, "back": _NONE, "last": _NONE,
}  # fmt: skip
"""Columns of the ways from a device to each switch, shape (n_switches,): where none leads there, these values.

`order` is that in which the switches are reached, `hops` counts links, `back` is the switch before (-1: the
device) and `last` the channel from there, or the number of the device's link.
"""


class Router:
    """Finds the ways between the devices of a cluster; what it finds once it keeps.

    Parameters
    ----------
    index
        Position of each device by name.
    links
        As in `Cluster`.

    Notes
    -----
    As copies pass through no other device, only the switches are searched (Dijkstra), once for
    all devices with the same links to switches; the last link is chosen for all pairs at once.
    """

    def __init__(self, index: Mapping[str, int], links: Sequence[Wire]) -> None:
        self._n = n = len(index)
        numbers, channel = dict(index), 0
        hops: dict[tuple[int, int], _Hop] = {}
        for a, b, link in links:
            u, v = (numbers.setdefault(end, len(numbers)) for end in (a, b))
            back = channel + link.duplex
            for way, number in (((u, v), channel), ((v, u), back)):
                # of parallel links the one of least latency is used, of equal ones the first
                if way not in hops or link.latency < hops[way].latency:
                    hops[way] = _Hop(way[1] - n, number, link.latency, link.bandwidth)
            channel = back + 1
        self._between: list[list[_Hop]] = [[] for _ in range(len(numbers) - n)]
        up: list[list[_Hop]] = [[] for _ in range(n)]
        down: list[list[_Hop]] = [[] for _ in range(n)]
        direct: list[tuple[float, ...]] = []
        for (u, v), hop in hops.items():
            if u < n and v < n:
                direct.append((u * n + v, *hop[1:]))
            elif v < n:
                down[v].append(hop._replace(to=u - n))
            else:
                (up[u] if u < n else self._between[u - n]).append(hop)
        self._up, self._down = _table(up), _table(down)
        direct.sort()
        self._direct = [np.array(column) for column in zip(*direct, strict=True)]
        groups: dict[tuple[tuple[float, ...], ...], int] = {}
        self._group = np.array(
            [groups.setdefault(tuple((h.to, h.latency, h.bandwidth) for h in row), len(groups)) for row in up], np.int64
        )
        self._starts = list(groups)
        self._ways: dict[int, Ways] = {}

    def routes(self, src: npt.ArrayLike, dst: npt.ArrayLike) -> Routes:
        """See `Cluster.routes`."""
        a, b = self._devices(src), self._devices(dst)
        if a.shape != b.shape or a.ndim != 1:
            raise ClusterError(f"src and dst must have the same length, not {a.shape} and {b.shape}")
        used, row = np.unique(self._group[a], return_inverse=True)
        groups = used.tolist() or [0]
        self._ways |= {group: self._search(group) for group in groups if group not in self._ways}
        ways = {key: np.stack([self._ways[group][key] for group in groups]) for key in _WAYS}
        latency, bandwidth, final, switch = self._last_links(a, b, row, ways)
        here = a == b
        latency[here], bandwidth[here], final[here], switch[here] = 0.0, inf, _NONE, _NONE
        ptr = np.zeros(len(a) + 1, np.int64)
        count = (final >= 0).astype(np.int64)
        pair = np.flatnonzero(switch >= 0)
        switch = switch[pair]
        count[pair] += ways["hops"][row[pair], switch]
        np.cumsum(count, out=ptr[1:])
        channel = np.empty(ptr[-1], np.int64)
        place = ptr[1:] - 1
        channel[place[final >= 0]] = final[final >= 0]
        while len(pair):  # a step back on all ways that are not yet at their source
            place[pair] -= 1
            back, via = ways["back"][row[pair], switch], ways["last"][row[pair], switch]
            first = back == _NONE
            via[first] = self._up["channel"][a[pair[first]], via[first]]
            channel[place[pair]] = via
            pair, switch = pair[~first], back[~first]
        return Routes(ptr, channel, latency, bandwidth, known=here | (final >= 0))

    def _last_links(self, a: Ints, b: Ints, row: Ints, ways: Ways) -> tuple[Floats, Floats, Ints, Ints]:
        """Return latency and bandwidth of the way, its last channel, and the switch before that (-1: none)."""
        cost, latency, bandwidth, final = self._direct_links(a, b)
        order, switch = np.full(len(a), _NONE), np.full(len(a), _NONE)
        for k in range(self._down["to"].shape[1]):
            link = {key: column[b, k] for key, column in self._down.items()}
            at = (row, link["to"])
            through, turn = ways["cost"][at] + (link["latency"] + PER_LINK), ways["order"][at]
            better = (link["to"] >= 0) & ((through < cost) | ((through == cost) & (through < inf) & (turn < order)))
            cost[better], order[better], switch[better] = through[better], turn[better], link["to"][better]
            latency[better] = (ways["latency"][at] + link["latency"])[better]
            bandwidth[better] = np.minimum(ways["bandwidth"][at], link["bandwidth"])[better]
            final[better] = link["channel"][better]
        return latency, bandwidth, final, switch

    def _devices(self, numbers: npt.ArrayLike) -> Ints:
        devices = whole_numbers(numbers)
        if devices is None or (devices.size and not 0 <= devices.min() <= devices.max() < self._n):
            raise ClusterError(f"src and dst must hold numbers of devices: there are {self._n}")
        return devices.astype(np.int64)

    def _direct_links(self, a: Ints, b: Ints) -> tuple[Floats, Floats, Floats, Ints]:
        """Return cost, latency, bandwidth and channel of the links that join the devices themselves."""
        cost, latency, bandwidth = np.full(len(a), inf), np.full(len(a), inf), np.zeros(len(a))
        channel = np.full(len(a), _NONE)
        if self._direct:
            keys, channels, latencies, bandwidths = self._direct
            wanted = a * self._n + b
            at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
            rows = np.flatnonzero(keys[at] == wanted)
            at = at[rows]
            cost[rows], latency[rows], bandwidth[rows] = latencies[at] + PER_LINK, latencies[at], bandwidths[at]
            channel[rows] = channels[at]
        return cost, latency, bandwidth, channel

    def _search(self, group: int) -> Ways:
        """Return the ways to all switches; equal costs: the switch that was found first."""
        ways: dict[str, list[Any]] = {key: [value] * len(self._between) for key, value in _WAYS.items()}
        best, reached = ways["cost"], ways["order"]
        fringe: list[tuple[float, int, int]] = []
        turn = n_reached = 0

        def try_way(to: int, **way: float) -> None:
            nonlocal turn
            if way["cost"] < best[to]:
                for key, value in way.items():
                    ways[key][to] = value
                heappush(fringe, (way["cost"], turn, to))
                turn += 1

        for number, (to, latency, bandwidth) in enumerate(self._starts[group]):
            cost = latency + PER_LINK
            try_way(int(to), cost=cost, hops=1, latency=latency, bandwidth=bandwidth, back=_NONE, last=number)
        while fringe:
            cost, _, at = heappop(fringe)
            if reached[at] != _NONE:
                continue
            reached[at] = n_reached
            n_reached += 1
            for hop in self._between[at]:
                try_way(
                    hop.to,
                    cost=cost + (hop.latency + PER_LINK),
                    hops=ways["hops"][at] + 1,
                    latency=ways["latency"][at] + hop.latency,
                    bandwidth=min(ways["bandwidth"][at], hop.bandwidth),
                    back=at,
                    last=hop.channel,
                )
        return {key: np.array(column, type(_WAYS[key])) for key, column in ways.items()}


def _table(rows: list[list[_Hop]]) -> dict[str, npt.NDArray[Any]]:
    """Return the fields of hops, each of shape (n_rows, most hops of a row); `to` is -1 where there is none."""
    width = max(map(len, rows), default=0)
    shape = (len(rows), width)
    table: dict[str, npt.NDArray[Any]] = {"to": np.full(shape, _NONE), "channel": np.full(shape, _NONE)}
    table |= {"latency": np.full(shape, inf), "bandwidth": np.zeros(shape)}
    for i, row in enumerate(rows):
        for k, hop in enumerate(row):
            for key, value in zip(_Hop._fields, hop, strict=True):
                table[key][i, k] = value
    return table
