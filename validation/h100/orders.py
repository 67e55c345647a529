"""Orders that times alone must keep: a larger batch takes no less time, a newer device takes less."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

import simsched as ss
import workloads
from simsched.base.units import MS
from simsched.cli.options import Graph
from validation.evidence import each
from validation.h100.figures import Figure, Section

NETWORKS: Final = (
    "resnet50",
    "inception_v3",
    "googlenet",
    "nasnet_mobile",
    "squeezenet",
    "densenet121",
    "resnext50",
    "bert_base",
)
"""Workloads whose batch grows."""
GPUS: Final = ("h100", "a100", "v100", "k80")
"""Devices from the newest to the oldest."""
BATCHES: Final = (1, 2, 4, 8, 16)
DEVICE_BATCHES: Final = (1, 16)
"""Batches at which devices are compared."""
DTYPES: Final = ("fp16", "fp32")
FALLS: Final = 0.02
"""Part by which a time may fall without being counted."""


def captured_times(network: str, dtype: str, batch: int) -> dict[str, float]:
    """Return the makespan in us of a workload on one captured stream, by device that has the number format."""
    graph = Graph(f"{network},batch={batch}", None, dtype).read()
    times = {}
    for gpu in GPUS:
        if dtype in formats(gpu):
            cluster = ss.Cluster.preset(gpu)
            plan = ss.schedule(graph, cluster, "sequential").like(execution="graph")
            times[gpu] = ss.simulate(plan, cluster).makespan
    return times


def formats(gpu: str) -> tuple[str, ...]:
    """Return the number formats of `DTYPES` that a device has."""
    peak = ss.Cluster.preset(gpu).devices[0].peak
    return tuple(dtype for dtype in DTYPES if dtype in peak)


def falls(times: Sequence[float]) -> int:
    """Return how many steps take less time, by more than `FALLS` of it.

    >>> falls([10.0, 9.9, 9.0, 20.0])
    1
    """
    return sum(before > after * (1 + FALLS) for before, after in pairwise(times))


Key = tuple[str, str, int]
Times = Mapping[Key, Mapping[str, float]]


def all_times(workers: int = 1) -> Times:
    """Return the times by network, format and batch, and by device."""
    every = [name for name in workloads.names() if not name.startswith(("random:", "tiny_"))]
    keys = [
        (name, dtype, batch)
        for name in every
        for dtype in DTYPES
        for batch in (BATCHES if name in NETWORKS else DEVICE_BATCHES)
    ]
    return dict(zip(keys, each(_times, keys, workers), strict=True))


def _times(key: Key) -> dict[str, float]:
    return captured_times(*key)


def batch_section(times: Times) -> Section:
    """Return the steps of batch in which the time falls."""
    keys = [(network, dtype, gpu) for network in NETWORKS for gpu in GPUS[:3] for dtype in formats(gpu)]
    steps = 0
    total = 0
    table = []
    for network, dtype, gpu in keys:
        row = [times[network, dtype, batch][gpu] for batch in BATCHES]
        steps += len(row) - 1
        total += falls(row)
        if falls(row):
            table.append((network, dtype, gpu, *(f"{time / MS:.2f}" for time in row), falls(row)))
    figures = [Figure(f"steps of batch, of {steps}, in which time falls by more than 2 %", total, most=0)]
    columns = ("network", "format", "device", *(f"ms at {batch}" for batch in BATCHES), "falls")
    return Section("Time over batch", figures, columns, table)


def device_section(times: Times) -> Section:
    """Return the networks that are not faster on a newer device, in a format that both have."""
    pairs = 0
    wrong = 0
    table = []
    for (name, dtype, batch), row in times.items():
        if batch not in DEVICE_BATCHES:
            continue
        slower = [(new, old) for new, old in pairwise(row) if row[new] >= row[old]]
        pairs += len(row) - 1
        wrong += len(slower)
        if slower:
            shown = "; ".join(f"{new} {row[new] / row[old] - 1:+.0%} over {old}" for new, old in slower)
            cells = [f"{row[gpu] / MS:.2f}" if gpu in row else "-" for gpu in GPUS]
            table.append((name, dtype, batch, *cells, shown))
    figures = [Figure(f"pairs of devices, of {pairs}, of which the newer one is not faster", wrong, most=0)]
    columns = ("network", "format", "batch", *(f"{gpu} ms" for gpu in GPUS), "not faster")
    return Section("Time over devices", figures, columns, table)
