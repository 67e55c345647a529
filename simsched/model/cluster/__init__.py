"""The hardware as data: devices, links, clusters, their presets, and CUDA occupancy."""

from simsched.model.cluster.cluster import Cluster, resize
from simsched.model.cluster.device import WARP, Device, Footprint, Occupancy, footprint, occupancy
from simsched.model.cluster.link import Link
from simsched.model.cluster.presets import DEVICES, LINKS
from simsched.model.cluster.priors import PRIORS
from simsched.model.cluster.sheet import GpuSheet, device_named
from simsched.model.cluster.topology import Topology

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
    "Topology",
    "device_named",
    "footprint",
    "occupancy",
    "resize",
]
