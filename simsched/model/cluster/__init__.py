"""The hardware as data: devices, links, clusters, their presets, and CUDA occupancy."""

from simsched.model.cluster.cluster import Cluster, widened
from simsched.model.cluster.device import WARP, Device, Footprint, Link, Occupancy, footprint, occupancy
from simsched.model.cluster.presets import DEVICES, LINKS, PRIORS

__all__ = [
    "DEVICES", "LINKS", "PRIORS", "WARP", "Cluster", "Device", "Footprint", "Link", "Occupancy", "footprint",
    "occupancy", "widened",
]  # fmt: skip
