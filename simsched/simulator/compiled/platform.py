"""What every run on a cluster shares, whatever the program: rows about its devices, made once per cluster."""

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from simsched.cluster import Cluster, Device
from simsched.program import BARRIER, COPY, LAUNCH, RECORD, SYNC, WAIT
from simsched.simulator.compiled import tables
from simsched.simulator.contention import Channel

COSTS: Final = {LAUNCH: "launch", RECORD: "record", WAIT: "wait", COPY: "copy", BARRIER: "barrier", SYNC: "barrier"}
_MOST: Final = 2**62
_KEY: Final = "_platform"  # where a cluster keeps its own
Array = npt.NDArray[Any]


class Platform:
    """A cluster laid out for machine code.

    Attributes
    ----------
    columns
        Those of a `State` that are about devices and that it only reads.
    devices, channels
        Rows with which those columns begin: the directions of links, then the copy engines of each device.
    gap, hop, graph_node, graph_launch
        Us, by device.
    queues
        Hardware queues by device; as many as there could be streams where there is no contention.
    """

    def __init__(self, cluster: Cluster) -> None:
        devices = cluster.devices
        self.columns = {
            "cost": _column(devices, *(COSTS[action] for action in sorted(COSTS))),
            "interference": np.array([device.interference for device in devices], np.float64),
            "room": np.array([_room(device) for device in devices], np.int64).view(tables.Room.dtype),
        }
        self.devices = np.zeros(len(devices), tables.Device.dtype)
        for name in ("contention", "interleave", "bandwidth", "copy_rate"):
            self.devices[name] = [getattr(device, name) for device in devices]
        for name in ("sms", "resident_kernels"):
            self.devices[name] = [min(int(getattr(device, name)), _MOST) for device in devices]
        self.n_engines = len(cluster.channels)
        self.channels = np.zeros(self.n_engines + len(devices), Channel.dtype)
        self.channels["capacity"] = [
            *(bandwidth for _, _, bandwidth in cluster.channels),
            *(device.copy_engines * device.copy_rate for device in devices),
        ]
        self.gap, self.hop, self.graph_node, self.graph_launch = _column(
            devices, "gap", "hop", "graph_node", "graph_launch"
        ).T
        self.queues = np.array(
            [min(int(device.connections), _MOST) if device.contention else _MOST for device in devices], np.int64
        )


def platform_of(cluster: Cluster) -> Platform:
    """Return the platform of a cluster, made when it is first asked for."""
    found: Platform | None = cluster.__dict__.get(_KEY)
    if found is None:
        found = cluster.__dict__[_KEY] = Platform(cluster)
    return found


def _column(devices: tuple[Device, ...], *names: str) -> npt.NDArray[np.float64]:
    return np.array([[getattr(device, name) for name in names] for device in devices], np.float64)


def _room(device: Device) -> list[int]:
    """Return the warps, blocks, registers and bytes of shared memory of a device."""
    room = (
        device.sms * (device.threads_per_sm // 32),
        device.sms * device.blocks_per_sm,
        device.sms * device.registers_per_sm,
        device.sms * device.shared_memory_per_sm,  # perhaps no whole number; what blocks take is one
    )
    return [int(min(left, _MOST)) for left in room]
