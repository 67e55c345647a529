"""The hardware as data: devices, links, clusters, their presets, and CUDA occupancy."""

from simsched.model.cluster.cluster import Cluster
from simsched.model.cluster.device import Device, Link
from simsched.model.cluster.occupancy import WARP, Footprint, Occupancy, footprint, occupancy
from simsched.model.cluster.presets import DEVICES, LINKS
from simsched.model.cluster.priors import PRIORS

__all__ = [
    "DEVICES", "LINKS", "PRIORS", "WARP", "Cluster", "Device", "Footprint", "Link", "Occupancy", "footprint",
    "occupancy",
]  # fmt: skip
