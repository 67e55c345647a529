"""`Cluster`: devices and the topology of links between them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from math import inf
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from simsched.base.codec import Amount, Checked, Document, Rate
from simsched.base.errors import ClusterError, UnknownNameError
from simsched.base.numeric import frozen, is_count, twice
from simsched.base.shown import as_html
from simsched.model.cluster.device import OVERHEADS, Device, Link
from simsched.model.cluster.presets import BRIDGED_BUS, DEFAULT_LINK, DEVICES, LINKS, make_device
from simsched.model.cluster.routing import Route, Router, Routes, Wire
from simsched.model.graph.columns import Ints

Part = TypeVar("Part", Device, Link)


@dataclass(frozen=True)
class _Wired(Checked):
    """A link and what it joins.

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
    """

    SUBJECT, ERROR = "link", ClusterError
    ends: tuple[str, str]
    bandwidth: Rate
    latency: Amount = 0.0
    duplex: bool = True


@dataclass(kw_only=True)
class _File:
    """Devices and the links between them.

    Parameters
    ----------
    name
        How tables call the cluster.
    devices
        The GPUs; their order breaks ties.
    links
        What joins them.
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
        If there is no device or a name stands twice.

    >>> cluster = Cluster.preset("a40", n_gpus=2)
    >>> [device.name for device in cluster.devices], cluster.route("gpu0", "gpu1").latency
    (['gpu0', 'gpu1'], 2.0)
    """

    SUBJECT, ERROR, FORMAT, FILE = "cluster {0.name!r}", ClusterError, "simsched.cluster", _File
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

    @classmethod
    def preset(cls, gpu: str, n_gpus: int = 1, *, link: str | None = None, gpus_per_node: int = 8) -> "Cluster":
        """Return `n_gpus` equal devices ``gpu0, gpu1, ...``, wired as such cards usually are.

        Parameters
        ----------
        gpu
            A name in `DEVICES`.
        n_gpus
            Devices in all, at least 1.
        link
            A name in `LINKS`; None takes the usual one for the card.
        gpus_per_node
            Beyond so many devices a further node is opened; nodes are joined by the preset ``network``.

        Raises
        ------
        UnknownNameError
            If `gpu` or `link` is not known; the message lists those that are.
        ClusterError
            If a number is not positive.
        """
        if gpu not in DEVICES:
            raise UnknownNameError("gpu", gpu, list(DEVICES))
        link = DEFAULT_LINK[gpu] if link is None else link
        if link not in LINKS:
            raise UnknownNameError("link", link, list(LINKS))
        for what, number in (("n_gpus", n_gpus), ("gpus_per_node", gpus_per_node)):
            if not is_count(number, 1):
                raise ClusterError(f"{what} must be at least 1 and whole, not {number!r}")
        devices = tuple(make_device(gpu, f"gpu{i}") for i in range(n_gpus))
        wires: list[Wire] = []
        n_nodes = -(-n_gpus // gpus_per_node)
        for node in range(n_nodes):
            members = [d.name for d in devices[node * gpus_per_node : (node + 1) * gpus_per_node]]
            wires += _wire(members, link, suffix=f"@{node}" if n_nodes > 1 else "")
            if n_nodes > 1:
                wires += [(member, f"network@{node}", _half(LINKS["network"][1])) for member in members]
                wires.append((f"network@{node}", "network", replace(LINKS["network"][1], latency=0.0)))
        return cls(devices, tuple(wires), name=gpu if n_gpus == 1 else f"{n_gpus} x {gpu}")

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
    def channels(self) -> tuple[tuple[str, str, float], ...]:
        """Every link direction as (from, to, bytes per us); a half-duplex link is one channel, from its a to its b."""
        found: list[tuple[str, str, float]] = []
        for a, b, link in self.links:
            found.append((a, b, link.bandwidth))
            if link.duplex:
                found.append((b, a, link.bandwidth))
        return tuple(found)

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
        found = self._router.from_device(self.index[self[src].name])[self.index[self[dst].name]]
        if found.latency == inf:
            raise ClusterError(f"no links lead from {src} to {dst}; add one, or give the edges an exact `transfer`")
        return found

    def routes(self, src: npt.ArrayLike, dst: npt.ArrayLike) -> Routes:
        """Return `route` for many pairs of devices, given by their positions, shape (n_pairs,) each.

        Positions 0, 7 and 8 are the device itself, one behind the same NVSwitch, and one in the next node:

        >>> found = Cluster.preset("h100", n_gpus=16).routes([0, 0, 0], [0, 7, 8])
        >>> np.diff(found.channel_ptr).tolist(), found.latency.tolist()
        ([0, 2, 4], [0.0, 2.0, 12.0])
        """
        return self._router.routes(src, dst)

    @cached_property
    def _router(self) -> Router:
        return Router(self.index, self.links)

    @cached_property
    def kind(self) -> Ints:
        """For each device the number in `kinds` of the one that it equals in all but the name, shape (n_devices,)."""
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
        return replace(self, devices=tuple(_changed(device, changes) for device in self.devices))

    def replace_links(self, **changes: Any) -> "Cluster":
        """Return a copy with the given `Link` fields changed on every link."""
        return replace(self, links=tuple((a, b, _changed(link, changes)) for a, b, link in self.links))

    def without_overheads(self) -> "Cluster":
        """Return a copy on which issuing and ordering work costs nothing; operators and copies stay."""
        return self.replace_devices(**dict.fromkeys(OVERHEADS, 0.0))

    _repr_html_ = as_html

    def to_file(self) -> _File:
        """Return it as its file has it."""
        links = tuple(_Wired((a, b), link.bandwidth, link.latency, link.duplex) for a, b, link in self.links)
        return _File(name=self.name, devices=self.devices, links=links)

    @classmethod
    def from_file(cls, devices: tuple[Device, ...], links: Sequence[_Wired] = (), name: str = "cluster") -> "Cluster":
        """Make one of what its file has."""
        return cls(
            devices, tuple((*each.ends, Link(each.bandwidth, each.latency, each.duplex)) for each in links), name
        )


def _changed(part: Part, changes: Mapping[str, Any]) -> Part:
    known = [field.name for field in fields(part)]
    unknown = [name for name in changes if name not in known]
    if unknown:
        raise ClusterError(f"{type(part).__name__} has no field {unknown[0]!r}; known are: {', '.join(known)}")
    return replace(part, **changes)


def _half(link: Link) -> Link:
    """Return one of the two links of a way through a switch: each has half of the latency."""
    return replace(link, latency=link.latency / 2)


def _wire(members: list[str], name: str, suffix: str) -> list[Wire]:
    shape, link = LINKS[name]
    if shape == "switch":
        return [(member, f"{name}{suffix}", _half(link)) for member in members] if len(members) > 1 else []
    if shape == "mesh":
        return [(a, b, link) for i, a in enumerate(members) for b in members[i + 1 :]]
    bridges = [(a, b, link) for a, b in zip(members[::2], members[1::2], strict=False)]
    return bridges + (_wire(members, BRIDGED_BUS, suffix) if len(members) > 2 else [])
