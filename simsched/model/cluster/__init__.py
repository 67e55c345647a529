"""The hardware as data: devices, links, clusters, their presets, and CUDA occupancy."""

from simsched.model.cluster.cluster import Cluster, resize
from simsched.model.cluster.device import WARP, Device, Footprint, Link, Occupancy, footprint, occupancy
from simsched.model.cluster.presets import DEVICES, LINKS, PRIORS
from simsched.model.cluster.sheet import GpuSheet, device_named

__all__ = [
    "DEVICES",
    "LINKS",
    "PRIORS",
    "WARP",
    "Cluster",
    "Device",
    "Footprint",
    "GpuSheet",
    "Link",
    "Occupancy",
    "device_named",
    "footprint",
    "occupancy",
    "resize",
]
