"""`Exchange`: a collective's use of the links between its ranks, by algorithm.

Each rank sends some bytes in steps, and the channels on its ways carry a share of them. A collective alone takes

    start + steps x step + sent / rate

with `start` and `step` of the links (`Link`), and the rate at which the channel with the least bandwidth for its bytes
is full, times the efficiency of its link.
"""

from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from math import ceil, log2
from typing import Final, NamedTuple

from simsched.base.errors import ClusterError
from simsched.base.memo import memo
from simsched.model.cluster import Cluster, Device, Topology, resize
from simsched.model.cluster.presets import DEFAULT_LINK
from simsched.model.graph import ALGORITHMS, Collective, OpGraph

_QUICK_START: Final = 5.0  # us: a kernel of an engine's own that reads its peers' memory, and a message; prior, 3 to 10
_SWITCHED: Final = 0.85  # part of the efficiency of links that switches reach which reduce; prior
_IN_RING: Final = ("ring", "tree")
"""Algorithms of which the ranks send to few others: along a ring, unless all pairs together have more bandwidth."""


class Exchange(NamedTuple):
    """A collective's use of the links, and its time.

    Parameters
    ----------
    algorithm
        One of `ALGORITHMS`.
    latency
        Time in us before bytes move.
    nbytes
        Bytes that each rank sends.
    rate
        Bytes per us that each rank sends at most.
    bandwidth
        Bytes per us that each rank could send if all of the links' bandwidth were reached.
    channels
        Channels of the topology that carry them, with the bytes that each carries for a byte of a rank.
    """

    algorithm: str
    latency: float
    nbytes: float
    rate: float
    bandwidth: float
    channels: tuple[tuple[int, float], ...]

    @property
    def time(self) -> float:
        """Time alone in us."""
        return self.latency + self.nbytes / self.rate


class _Pattern(NamedTuple):
    """Bytes on each channel if each rank sends a byte, and the rate at which ranks can send.

    Parameters
    ----------
    channels
        As in `Exchange`.
    bandwidth, reached
        Bytes per us that each rank could send by the bandwidth of the links, and that it can.
    start, step
        As in `Link`: the largest, and the mean over the ways.
    reduces
        Whether every link on the ways leads to a switch that reduces.
    """

    channels: tuple[tuple[int, float], ...]
    bandwidth: float
    reached: float
    start: float
    step: float
    reduces: bool


def _steps(operation: str, algorithm: str, n: int) -> int:
    """Return the steps that an algorithm takes one after the other between n ranks."""
    if algorithm == "ring":
        if operation == "all_reduce":
            return 2 * (n - 1)
        return n - 1
    if algorithm == "tree":
        return 2 * ceil(log2(n))
    return 2 if algorithm == "nvls" else 1


def _sent_bytes(operation: str, algorithm: str, n: int) -> float:
    """Return the bytes that each of n ranks sends for a byte of the payload."""
    if operation == "send_recv":
        return 1.0
    if operation != "all_reduce":
        return (n - 1) / n
    sent = {"ring": 2 * (n - 1) / n, "tree": 2.0, "nvls": (n + 1) / n / _SWITCHED, "one_shot": float(n - 1)}
    return sent[algorithm]


def of_one_rank(graph: OpGraph, cluster: Cluster) -> Cluster:
    """Return the devices on which a graph is placed: where collectives are symmetric the first, for all ranks."""
    is_symmetric = any(meeting.is_symmetric for meeting in graph.meetings)
    if is_symmetric:
        return resize(cluster, 1)
    return cluster


def exchange_on(collective: Collective, device: Device) -> Exchange:
    """Return a symmetric collective's exchange on a device: its ranks are the device and its neighbours.

    Its ranks are so many devices one after the other in the order of the cluster: the first so many, the next, and so
    on, where they are not enough the last ones. A device by itself has the neighbours of its node.

    Raises
    ------
    ClusterError
        If there are fewer devices, or no links between them.
    """
    topology = device.topology or _usual(device.model)
    names = topology.names
    n = collective.ranks
    if len(names) < n:
        raise ClusterError(
            f"{collective.operation} of {n} ranks, but {device.name} has {len(names) - 1} neighbours: give the cluster "
            f"{n} devices (--gpus {n})"
        )
    first = min(topology.index.get(device.name, 0) // n * n, len(names) - n)
    return exchange(collective, topology, tuple(range(first, first + n)))


def exchange(collective: Collective, topology: Topology, ranks: Sequence[int]) -> Exchange:
    """Return the exchange of a collective between some devices.

    Parameters
    ----------
    ranks
        The devices by their places in the topology; a ring passes them in this order.

    Raises
    ------
    ClusterError
        If no links join two of them, or they cannot do the algorithm that the collective names.
    """
    exchanges = _exchanges_of(topology)
    key = collective, tuple(ranks)
    if key not in exchanges:
        exchanges[key] = _quickest(collective, topology, key[1])
    return exchanges[key]


@memo
def _exchanges_of(_topology: Topology) -> dict[tuple[Collective, tuple[int, ...]], Exchange]:
    """Return the exchanges on a topology that have been computed."""
    return {}


@memo
def _patterns_of(_topology: Topology) -> "dict[tuple[int, ...], tuple[_Pattern, _Pattern]]":
    """Return the ring and the pattern of all pairs of the ranks on a topology that have been computed."""
    return {}


def _quickest(collective: Collective, topology: Topology, ranks: tuple[int, ...]) -> Exchange:
    """Return the exchange by a collective's own algorithm, else by the quickest, on ties the first."""
    cache = _patterns_of(topology)
    if ranks not in cache:
        cache[ranks] = _patterns(topology, ranks)
    ring, all_pairs = cache[ranks]
    asked = collective.algorithm
    exchanges: list[Exchange] = []
    for algorithm in ALGORITHMS[collective.operation] if asked is None else (asked,):
        if algorithm == "nvls" and not all_pairs.reduces:
            continue
        is_message = collective.operation == "send_recv"
        in_ring = is_message or algorithm in _IN_RING
        if in_ring and ring.reached > all_pairs.reached:
            pattern = ring
        else:
            pattern = all_pairs
        if is_message or algorithm == "one_shot":
            start = _QUICK_START
        else:
            start = pattern.start
        if is_message:
            rate = pattern.bandwidth
        else:
            rate = pattern.reached
        latency = start + _steps(collective.operation, algorithm, len(ranks)) * pattern.step
        nbytes = _sent_bytes(collective.operation, algorithm, len(ranks)) * collective.bytes
        exchanges.append(Exchange(algorithm, latency, nbytes, rate, pattern.bandwidth, pattern.channels))
    if not exchanges:
        names = ", ".join(topology.names[rank] for rank in ranks[:4])
        raise ClusterError(f"no switch that reduces joins {names}: {asked} cannot run there; leave out the algorithm")
    return min(exchanges, key=lambda each: each.time)


def _patterns(topology: Topology, ranks: tuple[int, ...]) -> tuple[_Pattern, _Pattern]:
    """Return two patterns: each rank sends to the next one, and each to all others alike."""
    names = [topology.names[rank] for rank in ranks]
    ring = list(zip(names, [*names[1:], names[0]], strict=True))
    pairs = [(a, b) for a in names for b in names if a != b]
    return _pattern(topology, ring, 1), _pattern(topology, pairs, len(names) - 1)


def _pattern(topology: Topology, ways: Sequence[tuple[str, str]], peers: int) -> _Pattern:
    """Return a pattern of some ways, on each of which a rank sends a part of a byte, one of so many."""
    carried: dict[int, float] = defaultdict(float)
    steps = 0.0
    links = topology.channel_links
    for source, target in ways:
        route = topology.routes_from(source).get(target)
        if route is None:
            raise ClusterError(f"no links lead from {source} to {target}; a collective needs some: add them")
        steps += max(links[channel].step for channel in route.channels)
        for channel in route.channels:
            carried[channel] += 1.0 / peers
    used = [links[channel] for channel in carried]
    rates = [links[channel].bandwidth / share for channel, share in carried.items()]
    return _Pattern(
        channels=tuple(sorted(carried.items())),
        bandwidth=min(rates),
        reached=min(rate * link.efficiency for rate, link in zip(rates, used, strict=True)),
        start=max(link.start for link in used),
        step=steps / len(ways),
        reduces=all(link.reduces for link in used),
    )


@lru_cache(maxsize=64)
def _usual(model: str) -> Topology:
    """Return the links of a node of devices of a preset."""
    if model not in DEFAULT_LINK:
        raise ClusterError(f"the links of {model!r} are not known: make a cluster with links of its devices")
    topology = Cluster.preset(model).devices[0].topology
    assert topology is not None
    return topology
