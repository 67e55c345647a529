"""The hardware as data: devices, links, clusters, their presets, and CUDA occupancy."""

from simsched.cluster.cluster import Cluster, Route
from simsched.cluster.device import Device, Link
from simsched.cluster.occupancy import WARP, Footprint, Occupancy, footprint, occupancy
from simsched.cluster.presets import DEVICES, LINKS
from simsched.cluster.priors import PRIORS, Prior
from simsched.cluster.routing import Routes

__all__ = [
    "DEVICES",
    "LINKS",
    "PRIORS",
    "WARP",
    "Cluster",
    "Device",
    "Footprint",
    "Link",
    "Occupancy",
    "Prior",
    "Route",
    "Routes",
    "footprint",
    "occupancy",
]
