"""What every run on a cluster shares, whatever the program: rows about its devices, made once per cluster."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from simsched.cluster import Cluster, Device
from simsched.program import BARRIER, COPY, LAUNCH, RECORD, SYNC, WAIT
from simsched.simulator.compiled import layout

COSTS: Final = {LAUNCH: "launch", RECORD: "record", WAIT: "wait", COPY: "copy", BARRIER: "barrier", SYNC: "barrier"}
_MOST: Final = 2**62
_KEY: Final = "_platform"  # where a cluster keeps its own
Table = npt.NDArray[Any]


class Platform:
    """A cluster laid out for machine code.

    Attributes
    ----------
    tables
        Those of `layout.SHARED` that are about devices.
    devices
        Rows with which the table `devices` begins.
    capacity
        Bytes per us of each link direction, then of the copy engines of each device.
    gap, hop, graph_node, graph_launch
        Us, by device.
    queues
        Hardware queues by device; as many as there could be streams where there is no contention.
    """

    def __init__(self, cluster: Cluster) -> None:
        devices = cluster.devices
        self.names = tuple(device.name for device in devices)
        self.tables: Mapping[str, Table] = {
            "cost": _column(devices, *(COSTS[action] for action in sorted(COSTS))),
            "interference": np.array([device.interference for device in devices], np.float64),
            "room": np.array([_room(device) for device in devices], np.int64),
        }
        self.devices = _rows(devices)
        self.capacity = np.array(
            [bandwidth for _, _, bandwidth in cluster.channels]
            + [device.copy_engines * device.copy_rate for device in devices],
            np.float64,
        )
        self.n_engines = len(cluster.channels)
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


def _rows(devices: tuple[Device, ...]) -> Table:
    table = np.zeros(len(devices), layout.DEVICE)
    for d, device in enumerate(devices):
        for name in ("sms", "resident_kernels"):
            table[name][d] = min(int(getattr(device, name)), _MOST)
        for name in ("contention", "interleave", "bandwidth", "copy_rate"):
            table[name][d] = getattr(device, name)
    return table


def _room(device: Device) -> list[int]:
    """Return the warps, blocks, registers and bytes of shared memory of a device."""
    room = (
        device.sms * (device.threads_per_sm // 32),
        device.sms * device.blocks_per_sm,
        device.sms * device.registers_per_sm,
        device.sms * device.shared_memory_per_sm,  # perhaps no whole number; what blocks take is one
    )
    return [int(min(left, _MOST)) for left in room]


def address(table: Table) -> int:
    """Return where a table lies; the caller keeps it."""
    # of a table of records the interface would spell out all fields first
    where: int = table.ctypes.data if table.dtype.names else table.__array_interface__["data"][0]
    return where
