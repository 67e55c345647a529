"""The nouns: graphs, clusters, costs, schedules, programs; modules for profiles and traces are separate."""

from simsched.model.cluster import WARP, Cluster, Device, Link, footprint, occupancy
from simsched.model.costmodel import CostModel, Target, bind, default_cost, operator_times, roofline, times_by_device
from simsched.model.graph import DTYPE_NBYTES, INTENSITIES, Collective, Edge, Kernel, Meeting, Operator, OpGraph, Work
from simsched.model.graph.columns import Floats, Indices, Ints
from simsched.model.partition import Partition
from simsched.model.placement import Placement
from simsched.model.program import BARRIER, COPY, EXECUTIONS, LAUNCH, RECORD, SYNC, WAIT, Program
from simsched.model.rewriting import Rewriting, RewrittenPart, Step
from simsched.model.schedule import Schedule

__all__ = [
    "BARRIER",
    "COPY",
    "DTYPE_NBYTES",
    "EXECUTIONS",
    "INTENSITIES",
    "LAUNCH",
    "RECORD",
    "SYNC",
    "WAIT",
    "WARP",
    "Cluster",
    "Collective",
    "CostModel",
    "Device",
    "Edge",
    "Floats",
    "Indices",
    "Ints",
    "Kernel",
    "Link",
    "Meeting",
    "OpGraph",
    "Operator",
    "Partition",
    "Placement",
    "Program",
    "Rewriting",
    "RewrittenPart",
    "Schedule",
    "Step",
    "Target",
    "Work",
    "bind",
    "default_cost",
    "footprint",
    "occupancy",
    "operator_times",
    "roofline",
    "times_by_device",
]
