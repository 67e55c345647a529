"""What a host takes to issue instructions, and how long that is on its way to the device."""

from typing import Final

import numpy as np

from simsched.model import COPY, LAUNCH, Cluster, Device, Floats, Program

_COSTS: Final = ("launch", "record", "wait", "copy", "barrier", "barrier")  # by action


def action_costs(cluster: Cluster) -> Floats:
    """Return the host time in us of each action on each device, shape (n_devices, n_actions)."""
    return np.array([[getattr(device, cost) for cost in _COSTS] for device in cluster.devices], np.float64)


def host_times(program: Program, cluster: Cluster) -> Floats:
    """Return the host time in us of each instruction: its own, or else that of the action on its device."""
    usual = action_costs(cluster)[program.device, program.action]
    return usual if program.own is None else np.where(np.isnan(program.own), usual, program.own)


def lags(device: Device) -> dict[int, float]:
    """Return what passes in us, by action, from the end of a call until the device knows of what it issues."""
    return {LAUNCH: device.on_the_way(device.launch), COPY: device.on_the_way(device.copy)}
