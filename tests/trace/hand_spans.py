"""Traces of spans that were made by hand, and of Inception v3 dealt out over devices and streams."""

import numpy as np
import small

from simsched.model import Cluster, Placement, Schedule
from simsched.model.trace.timeline import COPY, KERNEL, Load
from simsched.model.trace.trace import Trace
from simsched.simulator import simulate
from workloads import load

IDLE = Load(*np.zeros((5, 0)))


def kernel(op, start, end, device=0, stream=0):
    return (KERNEL, op, op, device, stream, start, end, start, end - start, -1)


def copy(row, op, start, end, device=0, stream=9):
    return (COPY, row, op, device, stream, start, end, start, end - start, -1)


def made(graph, rows, places=None, loads=(IDLE, IDLE)):
    """A trace of spans on as many A40s as have loads; without places operators are on stream 0 of the first."""
    cluster = Cluster.preset("a40", n_gpus=len(loads))
    placements = small.placements(places) if places else [Placement(name) for name in graph.names]
    return Trace(Schedule(graph, placements).lower(cluster), cluster, rows, loads)


def simulated(graph, places, cluster):
    return simulate(Schedule(graph, small.placements(places)), cluster)


def dealt(n_gpus, execution="events", n_streams=2, graph=None, **options):
    """A run of a graph, or else of Inception v3, dealt out over devices and streams of each in turn."""
    graph = graph or load("inception_v3")
    rows = [Placement(name, f"gpu{i % n_gpus}", i // n_gpus % n_streams) for i, name in enumerate(graph.order)]
    cluster = Cluster.preset("a40", n_gpus=n_gpus)
    return simulate(Schedule(graph, rows, execution).lower(cluster, **options), cluster)
