"""Links and copy engines in the reference engine: copies as flows that share them max-min fairly."""

from collections.abc import Callable

import numpy as np

from simsched.base.jit import Column, i4
from simsched.model.cluster import Cluster
from simsched.simulator.contention import Channel, Crossing, finish_time, is_later, max_min_rates
from simsched.simulator.environment import COMPLETE, SHARE, At, Instants
from simsched.simulator.gpu import Gpu


class Flow:
    """A copy that is moving bytes."""

    __slots__ = ("anchor", "channels", "done", "dst", "moved", "nbytes", "rate", "src")

    def __init__(
        self, src: int, dst: int, nbytes: float, channels: tuple[int, ...], done: Callable[[], object]
    ) -> None:
        self.src, self.dst = src, dst
        self.nbytes = nbytes
        self.channels = channels
        self.done = done
        self.moved = self.anchor = self.rate = 0.0


class Network:
    """All flows between devices.

    A copy is driven by its source's copy engines: each moves at most `copy_rate`, all of them
    together at most ``copy_engines * copy_rate``. At the end of an instant in which a flow began
    or ended the rates are computed anew, and with them the DRAM loads at both ends.
    """

    def __init__(self, env: Instants, cluster: Cluster, gpus: list[Gpu]) -> None:
        self._env = env
        self._cluster = cluster
        self._gpus = gpus
        self._flows: list[Flow] = []
        self._timer: At | None = None
        self._sharing = False
        self._capacity = [bandwidth for _, _, bandwidth in cluster.channels]
        self._capacity += [device.copy_engines * device.copy_rate for device in cluster.devices]

    def start(self, src: int, dst: int, nbytes: float, channels: tuple[int, ...], done: Callable[[], object]) -> None:
        """Begin to move bytes from device `src` to `dst`; `done` is called when all have arrived."""
        engines = len(self._cluster.channels) + src
        flow = Flow(src, dst, nbytes, (*channels, engines), done)
        self._flows.append(flow)
        self._share_later()

    def _share_later(self) -> None:
        if not self._sharing:
            self._sharing = True
            self._env.at(self._env.now, SHARE, self._share)

    def _share(self) -> None:
        self._sharing = False
        now = self._env.now
        earliest = float("inf")
        for flow, rate in zip(self._flows, self._rates(), strict=True):
            if rate != flow.rate:
                flow.moved += (now - flow.anchor) * flow.rate
                flow.anchor, flow.rate = now, rate
            earliest = min(earliest, finish_time(flow.anchor, flow.moved, flow.rate, flow.nbytes))
        if self._timer is not None:
            self._timer.cancelled = True
            self._timer = None
        if self._flows:
            self._timer = self._env.at(max(earliest, now), COMPLETE, self._end_flows)
        loads = [0.0] * len(self._gpus)
        for flow in self._flows:
            for end in (flow.src, flow.dst):
                loads[end] += flow.rate / self._cluster.devices[end].bandwidth
        for gpu, load in zip(self._gpus, loads, strict=True):
            gpu.set_copy_load(load)

    def _rates(self) -> list[float]:
        # a copy has one engine: a channel of its own bounds it by that engine's rate
        capacity = self._capacity + [self._cluster.devices[flow.src].copy_rate for flow in self._flows]
        channels, flows = np.zeros(len(capacity), Channel.dtype), np.zeros(len(self._flows), Crossing.dtype)
        channels["capacity"] = capacity
        crossed = [(*flow.channels, len(self._capacity) + i) for i, flow in enumerate(self._flows)]
        flows["end"] = np.cumsum([len(each) for each in crossed])
        flows["first"][1:] = flows["end"][:-1]
        live: Column[i4] = Column(np.zeros(len(capacity), np.int32))
        numbers: Column[i4] = Column(np.array([channel for each in crossed for channel in each], np.int32))
        max_min_rates(len(flows), Crossing.over(flows), numbers, Channel.over(channels), live)
        rates: list[float] = flows["rate"].tolist()
        return rates

    def _end_flows(self) -> None:
        self._timer = None
        now = self._env.now
        over = [f for f in self._flows if not is_later(finish_time(f.anchor, f.moved, f.rate, f.nbytes), now)]
        self._flows = [flow for flow in self._flows if flow not in over]
        for flow in over:
            flow.done()
        self._share_later()
