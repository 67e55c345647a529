"""`Links`: the usual links between GPUs of a trace, or of another device, and the times of collectives on them."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Final

from simsched.base.errors import ClusterError
from simsched.experiments.whatif.changes import PARAMETERS, Change
from simsched.model import Cluster, Collective, Device
from simsched.model.cluster import GpuSheet, device_named
from simsched.model.cluster.presets import DEFAULT_LINK
from simsched.model.exchange import exchange_on
from simsched.model.graph import ALGORITHMS
from simsched.model.profile import MeasuredDevice
from workloads.formats.kineto.collectives import RankCollective

_ONE_SHOT: Final = "one_shot"


class Links:
    """The usual links between GPUs of a model, with changes.

    Parameters
    ----------
    device, link
        One of the GPUs, and the name of the links between them; None where they are not known.
    changes
        Changes of the links.
    """

    def __init__(self, device: Device, link: str | None, changes: Sequence[Change] = ()) -> None:
        self._device = device
        self._link = link
        self._changes = changes
        self._times: dict[tuple[Collective, bool], float] = {}

    @classmethod
    def of_traced(cls, device: Device) -> "Links":
        """Return the links between GPUs of a trace; they are known of products that have a preset."""
        preset = MeasuredDevice(device.model).preset
        if preset is None:
            return cls(device, None)
        return cls(device, DEFAULT_LINK[preset])

    def with_changes(self, changes: Sequence[Change]) -> "Links":
        """Return the links after changes of the device and of links.

        Raises
        ------
        ClusterError
            If a value is out of its range.
        """
        device = self._device
        link = self._link
        for change in changes:
            if change.parameter == "device":
                device = device_named(change.value, device.name)
                if change.value.lower().endswith(".json"):
                    link = GpuSheet.load(change.value).link
                else:
                    link = DEFAULT_LINK[device.model]
        links = Links(device, link, [change for change in changes if is_of_links(change)])
        if link is not None:
            _ = links.node  # values are checked here, once
        return links

    @cached_property
    def node(self) -> Cluster:
        """A GPU whose neighbours are the others of its node."""
        return self._cluster(1)

    @property
    def node_size(self) -> int:
        """GPUs in a node."""
        topology = self.node.devices[0].topology
        assert topology is not None
        return len(topology.names)

    def _cluster(self, n: int) -> Cluster:
        if self._link is None:
            raise ClusterError(f"the links of {self._device.model!r} are not known")
        cluster = Cluster.of_equal(self._device, n, link=self._link)
        for change in self._changes:
            cluster = PARAMETERS[change.parameter].change_cluster(cluster, change)
        return cluster

    def time(self, collective: Collective, *, of_nccl: bool = False) -> float:
        """Return the time of a collective alone in us; ranks that a node has no room for lie on several nodes.

        Parameters
        ----------
        collective
            Operation, bytes and ranks.
        of_nccl
            Whether NCCL does it, which has no ``"one_shot"`` algorithm.

        Raises
        ------
        ClusterError
            If the links are not known, or do not join its ranks.
        """
        key = collective, of_nccl
        if key not in self._times:
            if collective.ranks <= self.node_size:
                device = self.node.devices[0]
            else:
                device = self._cluster(collective.ranks).devices[0]
            if of_nccl:
                self._times[key] = _time_in_steps(collective, device)
            else:
                self._times[key] = exchange_on(collective, device).time
        return self._times[key]

    def measured_time(self, one: RankCollective) -> float:
        """Return the time in us that the model gives a collective of the trace.

        Raises
        ------
        ClusterError
            If its exchange or the links are not known, or its ranks lie on several nodes, whose links are not known.
        """
        if one.exchange is None:
            raise ClusterError(one.data.unknown)
        members = one.data.members
        if members is not None and members.lowest // self.node_size != members.highest // self.node_size:
            raise ClusterError(
                f"ranks {members.lowest} to {members.highest} lie on several nodes of {self.node_size}, which have no "
                "model"
            )
        return self.time(one.exchange, of_nccl=one.is_of_nccl)


def _time_in_steps(collective: Collective, device: Device) -> float:
    """Return the time in us of the quickest algorithm in which ranks send in steps."""
    quickest = exchange_on(collective, device)
    if quickest.algorithm != _ONE_SHOT:
        return quickest.time
    times = []
    for algorithm in ALGORITHMS[collective.operation]:
        if algorithm != _ONE_SHOT:
            try:
                times.append(exchange_on(replace(collective, algorithm=algorithm), device).time)
            except ClusterError:  # switches that do not reduce cannot do nvls
                continue
    return min(times)


def is_of_links(change: Change) -> bool:
    """Return whether a change is one of links."""
    return change.parameter.partition(".")[0] == "link"
