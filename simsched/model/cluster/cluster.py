"""`Cluster`: devices and the topology of links between them, and which ways copies take."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import count
from math import inf
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from simsched.base.codec import Amount, Checked, Document, Rate, Share, brief, retirement_of
from simsched.base.errors import ClusterError, UnknownNameError
from simsched.base.limits import require_count
from simsched.base.numeric import frozen, twice, whole_numbers
from simsched.base.views import as_html
from simsched.model.cluster.device import OVERHEADS, Device
from simsched.model.cluster.link import Link
from simsched.model.cluster.presets import BRIDGED_BUS, DEFAULT_LINK, DEVICES, LINKS, known_gpu, make_device
from simsched.model.cluster.topology import Route, Topology, Wire
from simsched.model.graph.columns import Floats, Ints

Part = TypeVar("Part", Device, Link)


_OF_LINK: Final = tuple(field.name for field in fields(Link))


class Routes(NamedTuple):
    """Paths of copies from devices to others, by columns (see `Route`), one row per pair.

    Parameters
    ----------
    channel_ptr, channel
        Pair p occupies ``channel[channel_ptr[p]:channel_ptr[p + 1]]``, in the order of the way.
    latency, bandwidth
        Latency in us and bandwidth in bytes per us; without links between the two infinity and zero, within a device
        the reverse.
    known
        Whether links lead from the one to the other.
    """

    channel_ptr: Ints
    channel: Ints
    latency: Floats
    bandwidth: Floats
    known: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class _Wired:
    """A link and its ends.

    Parameters
    ----------
    ends
        Names of two devices, or of a device and a switch.
    bandwidth
        Bytes per us, in each direction if duplex.
    latency
        Time in us that a copy spends before its first byte moves.
    duplex
        Whether each direction has the bandwidth to itself.
    start, step, efficiency, reduces
        Costs of collectives over it, see `Link`.
    """

    ends: tuple[str, str]
    bandwidth: Rate
    latency: Amount = 0.0
    duplex: bool = True
    start: Amount = brief(20.0)
    step: Amount = brief(2.0)
    efficiency: Share = brief(0.8)
    reduces: bool = brief(False)


@dataclass(kw_only=True)
class _ClusterFile:
    """Devices and the links between them.

    Parameters
    ----------
    name
        How tables call the cluster.
    devices
        The GPUs; their order breaks ties.
    links
        Links between them.
    """

    name: str = "cluster"
    devices: tuple[Device, ...]
    links: tuple[_Wired, ...] = ()


@dataclass(frozen=True)
class Cluster(Checked, Document):
    """Devices and the links between them.

    Parameters
    ----------
    devices
        The GPUs; their order breaks ties.
    links
        ``(a, b, link)`` with a and b names of devices or, any other text, of switches. A duplex
        link is a channel in each direction.
    name
        How tables call the cluster.

    Raises
    ------
    ClusterError
        If there is no device or a name appears twice.

    >>> cluster = Cluster.preset("a40", n_gpus=2)
    >>> [device.name for device in cluster.devices], cluster.route("gpu0", "gpu1").latency
    (['gpu0', 'gpu1'], 2.0)
    """

    SUBJECT = "cluster {0.name!r}"
    ERROR = ClusterError
    FORMAT = "simsched.cluster"
    FILE = _ClusterFile
    devices: tuple[Device, ...]
    links: tuple[Wire, ...] = ()
    name: str = "cluster"

    def __post_init__(self) -> None:
        Checked.__post_init__(self)
        if not self.devices:
            raise ClusterError("a cluster needs at least one device")
        name = twice(device.name for device in self.devices)
        if name is not None:
            raise ClusterError(f"device {name!r} stands twice")
        for a, b, _ in self.links:
            if a == b:
                raise ClusterError(f"link {a} - {b} joins an end with itself")
        if len(self.devices) > 1:  # one by itself keeps the neighbours that it had
            object.__setattr__(self, "devices", tuple(device.within(self.topology) for device in self.devices))

    @classmethod
    def preset(cls, gpu: str, n_gpus: int = 1, *, link: str | None = None, gpus_per_node: int = 8) -> "Cluster":
        """Return `n_gpus` equal devices ``gpu0, gpu1, ...``, wired as such cards usually are.

        Parameters
        ----------
        gpu
            A name in `DEVICES`, in any case.
        n_gpus
            Devices in all, at least 1.
        link
            A name in `LINKS`; None takes the usual one for the card.
        gpus_per_node
            Beyond so many devices a further node is opened; nodes are joined by the preset ``network``.

        Raises
        ------
        UnknownNameError
            If `gpu` or `link` is unknown; the message lists the known names.
        ClusterError
            If a number is no whole one from 1 to 4,096.
        """
        gpu = known_gpu(gpu)
        return cls.of_equal(
            make_device(gpu, "gpu0"), n_gpus, link=link or DEFAULT_LINK[gpu], gpus_per_node=gpus_per_node
        )

    @classmethod
    def of_equal(cls, device: Device, n_gpus: int = 1, *, link: str, gpus_per_node: int = 8) -> "Cluster":
        """Return `n_gpus` devices like one, called ``gpu0, gpu1, ...``, named after their model.

        Parameters and errors are as in `preset`.
        """
        gpu = device.model
        if link not in LINKS:
            raise UnknownNameError("link", link, list(LINKS))
        require_count(ClusterError, n_gpus=n_gpus, gpus_per_node=gpus_per_node)
        if n_gpus == 1:  # it may stand for several ranks, which then share a node
            peers = [f"gpu{i}" for i in range(gpus_per_node)]
            topology = Topology(tuple(peers), _wires_between(peers, link, gpus_per_node))
            return cls((replace(device, name=peers[0]).within(topology),), name=gpu)
        devices = tuple(replace(device, name=f"gpu{i}") for i in range(n_gpus))
        wires = _wires_between([device.name for device in devices], link, gpus_per_node)
        return cls(devices, wires, name=f"{n_gpus} x {gpu}")

    @cached_property
    def index(self) -> Mapping[str, int]:
        """Position of each device by name."""
        return {device.name: i for i, device in enumerate(self.devices)}

    def __len__(self) -> int:
        return len(self.devices)

    def __getitem__(self, name: str) -> Device:
        """Return the device of a name."""
        if name not in self.index:
            raise UnknownNameError("device", name, list(self.index))
        return self.devices[self.index[name]]

    @cached_property
    def topology(self) -> Topology:
        """Names of the devices, and the links between them."""
        return Topology(tuple(device.name for device in self.devices), self.links)

    @property
    def channels(self) -> tuple[tuple[str, str, float], ...]:
        """Every link direction as (from, to, bytes per us); a half-duplex link is one channel, from its a to its b."""
        return self.topology.channels

    def route(self, src: str, dst: str) -> Route:
        """Return the way of least latency from one device to another.

        Notes
        -----
        Copies pass through switches but not through other devices. Equal latencies: the fewer
        links, then the link given first.

        Raises
        ------
        ClusterError
            If no links lead there.
        """
        way = self.topology.routes_from(self[src].name).get(self[dst].name)
        if way is None:
            raise ClusterError(f"no links lead from {src} to {dst}{self._detour(src, dst)}")
        return way

    def _detour(self, src: str, dst: str) -> str:
        """Return the remedy where no links lead: whether other devices lie between the two, which do not forward."""
        between = self.topology.devices_between(src, dst)
        if not between:
            return "; add one, or give the edges an exact `transfer`"
        through = f"device {between[0]}" if len(between) == 1 else f"devices {', '.join(between)}"
        return (
            f": they are joined through {through}, and devices do not forward copies; add a link, or give the edges "
            "an exact `transfer`"
        )

    def routes(self, src: npt.ArrayLike, dst: npt.ArrayLike) -> Routes:
        """Return `route` for many pairs of devices, given by their positions, shape (n_pairs,) each.

        Positions 0, 7 and 8 are the device itself, one at the same NVSwitch, and one in the next node:

        >>> found = Cluster.preset("h100", n_gpus=16).routes([0, 0, 0], [0, 7, 8])
        >>> np.diff(found.channel_ptr).tolist(), found.latency.tolist()
        ([0, 2, 4], [0.0, 2.0, 12.0])
        """
        a = whole_numbers(src)
        b = whole_numbers(dst)
        names = [*self.index]
        if a is None or b is None or any(x.size and not 0 <= x.min() <= x.max() < len(names) for x in (a, b)):
            raise ClusterError(f"src and dst must hold numbers of devices: there are {len(names)}")
        if a.shape != b.shape or a.ndim != 1:
            raise ClusterError(f"src and dst must have the same length, not {a.shape} and {b.shape}")
        pairs = zip(a.tolist(), b.tolist(), strict=True)
        ways = [self.topology.routes_from(names[u]).get(names[v], Route((), inf, 0.0)) for u, v in pairs]
        ptr = np.cumsum([0, *(len(route.channels) for route in ways)])
        channel = np.array([number for route in ways for number in route.channels], np.int64)
        latency, bandwidth = (np.array([route[i] for route in ways], np.float64) for i in (1, 2))
        return Routes(ptr, channel, latency, bandwidth, known=latency < inf)

    @cached_property
    def kind(self) -> Ints:
        """For each device the index in `kinds` of the device that it equals in all but the name, shape (n_devices,)."""
        number: dict[Device, int] = {}
        nameless = [replace(device, name="any") for device in self.devices]
        return frozen(np.array([number.setdefault(device, len(number)) for device in nameless], np.int64))

    @cached_property
    def kinds(self) -> tuple[Device, ...]:
        """The first device of each kind."""
        _, first = np.unique(self.kind, return_index=True)
        return tuple(self.devices[i] for i in first)

    def transfer_time(self, src: str, dst: str, nbytes: float, exact: float | None = None) -> float:
        """Return the time in us of an edge between two devices with the links to itself.

        Zero within a device; `exact`, where given, holds between any two devices.
        """
        if not nbytes >= 0:
            raise ClusterError(f"nbytes must not be negative, not {nbytes!r}")
        if self[src] is self[dst]:
            return 0.0
        if exact is not None:
            return exact
        route = self.route(src, dst)
        return route.latency + nbytes / min(route.bandwidth, self[src].copy_rate)

    def replace_devices(self, **changes: Any) -> "Cluster":
        """Return a copy with the given `Device` fields changed on every device.

        >>> Cluster.preset("a100").replace_devices(launch=0.0).devices[0].launch
        0.0
        """
        return replace(self, devices=tuple(_change_part(device, changes) for device in self.devices))

    def replace_links(self, **changes: Any) -> "Cluster":
        """Return a copy with the given `Link` fields changed on every link."""
        return self.with_links(lambda link: _change_part(link, changes))

    def with_links(self, change: Callable[[Link], Link]) -> "Cluster":
        """Return a copy with every link changed; for a device alone also the links to its neighbours."""

        def change_links(links: Sequence[Wire]) -> tuple[Wire, ...]:
            return tuple((a, b, change(link)) for a, b, link in links)

        copy = replace(self, links=change_links(self.links))
        topology = self.devices[0].topology
        if len(self) > 1 or topology is None:
            return copy
        return replace(copy, devices=(self.devices[0].within(replace(topology, links=change_links(topology.links))),))

    def without_overheads(self) -> "Cluster":
        """Return a copy on which issuing and ordering work costs nothing; operators and copies stay."""
        return self.replace_devices(**dict.fromkeys(OVERHEADS, 0.0))

    _repr_html_ = as_html

    def to_file(self) -> _ClusterFile:
        """Return it as its file has it."""
        links = tuple(_Wired((a, b), *(getattr(link, key) for key in _OF_LINK)) for a, b, link in self.links)
        return _ClusterFile(name=self.name, devices=self.devices, links=links)

    @classmethod
    def from_file(cls, devices: tuple[Device, ...], links: Sequence[_Wired] = (), name: str = "cluster") -> "Cluster":
        """Make a cluster from the data of its file."""
        wires = tuple((*wired.ends, Link(*(getattr(wired, key) for key in _OF_LINK))) for wired in links)
        return cls(devices, wires, name)


def _change_part(part: Part, changes: Mapping[str, Any]) -> Part:
    names = [field.name for field in fields(part) if "aside" not in field.metadata]
    unknown = [name for name in changes if name not in names]
    if unknown:
        if reason := retirement_of(type(part), unknown[0]):
            raise ClusterError(reason)
        raise ClusterError(f"{type(part).__name__} has no field {unknown[0]!r}; known are: {', '.join(names)}")
    return replace(part, **changes)


def _half(link: Link) -> Link:
    """Return one of the two links of a way through a switch: each has half of the latency."""
    return replace(link, latency=link.latency / 2)


def _wires_between(names: Sequence[str], link: str, gpus_per_node: int) -> tuple[Wire, ...]:
    """Return the wires of a preset link between devices, so many of them in each node."""
    wires: list[Wire] = []
    n_nodes = -(-len(names) // gpus_per_node)
    for node in range(n_nodes):
        members = list(names[node * gpus_per_node : (node + 1) * gpus_per_node])
        wires += _wire(members, link, suffix=f"@{node}" if n_nodes > 1 else "")
        if n_nodes > 1:
            wires += [(member, f"network@{node}", _half(LINKS["network"][1])) for member in members]
            wires.append((f"network@{node}", "network", replace(LINKS["network"][1], latency=0.0)))
    return tuple(wires)


def _wire(members: list[str], name: str, suffix: str) -> list[Wire]:
    shape, link = LINKS[name]
    if shape == "switch":
        if len(members) > 1:
            return [(member, f"{name}{suffix}", _half(link)) for member in members]
        return []
    if shape == "mesh":
        return [(a, b, link) for i, a in enumerate(members) for b in members[i + 1 :]]
    bridges = [(a, b, link) for a, b in zip(members[::2], members[1::2], strict=False)]
    return bridges + (_wire(members, BRIDGED_BUS, suffix) if len(members) > 2 else [])


def resize(cluster: Cluster, n_gpus: int) -> Cluster:
    """Return a cluster with another number of devices.

    Parameters
    ----------
    cluster
        The present cluster.
    n_gpus
        Devices in all, at least 1.

    Returns
    -------
    Cluster
        A cluster of another size. With fewer devices, the first ones and the links between them. With more, copies of
        its device under new names ``gpu1, ...``, wired as a preset of so many such cards; devices that are wired like a
        preset with another link keep that link.

    Raises
    ------
    ClusterError
        If devices differ from each other, are of no preset or are wired as none is: how more of them would be
        joined is not known.

    >>> [device.name for device in resize(Cluster.preset("a100"), 3).devices]
    ['gpu0', 'gpu1', 'gpu2']
    """
    if n_gpus == len(cluster):
        return cluster
    require_count(ClusterError, n_gpus=n_gpus)
    if n_gpus < len(cluster):
        gone = [device.name for device in cluster.devices[n_gpus:]]
        links = tuple(wire for wire in cluster.links if wire[0] not in gone and wire[1] not in gone)
        return Cluster(cluster.devices[:n_gpus], links, f"{n_gpus} of {cluster.name}")
    first = cluster.devices[0]
    wired = None
    if len(cluster.kinds) == 1 and first.model in DEVICES:
        alike = (
            link
            for link in (None, *LINKS)
            if len(cluster) == 1 or _wires(Cluster.preset(first.model, len(cluster), link=link)) == _wires(cluster)
        )
        wired = next((Cluster.preset(first.model, n_gpus, link=link) for link in alike), None)
    if wired is None:
        raise ClusterError(
            f"{n_gpus} devices: how more of those of {cluster.name!r} are joined is not known: they differ, are of no "
            f"preset ({first.model!r}), or are wired as none is"
        )
    fresh = (name for name in (f"gpu{i}" for i in count()) if name not in cluster.index)
    devices = (*cluster.devices, *(replace(first, name=next(fresh)) for _ in range(n_gpus - len(cluster))))
    new_name = {old.name: new.name for old, new in zip(wired.devices, devices, strict=True)}
    links = tuple((new_name.get(a, a), new_name.get(b, b), link) for a, b, link in wired.links)
    if len(cluster) == 1:
        name = f"{n_gpus} x {cluster.name}"
    else:
        name = f"{n_gpus} x {first.model}"
    return Cluster(devices, links, name)


def _wires(cluster: Cluster) -> list[tuple[object, ...]]:
    """Return the links with devices by number."""
    return [(cluster.index.get(a, a), cluster.index.get(b, b), link) for a, b, link in cluster.links]
