"""What pages and notebooks say of graphs, clusters and runs."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from simsched.base.units import GB_PER_S, format_bytes, format_time
from simsched.experiments.comparison import operators_without_load
from simsched.model.cluster import DEVICES, Cluster, Device
from simsched.model.cluster.device import OVERHEADS
from simsched.model.cluster.presets import make_device
from simsched.model.graph import OpGraph
from simsched.model.trace import Trace
from simsched.show.report.sections import Column, Pairs, Section, Table

Facts = tuple[tuple[str, str], ...]
_NOT_COMPARED = ("name", "model", "peak", "interference")
_MOST_LISTED = 8  # devices in a cell


def parameters(graph: OpGraph, cluster: Cluster) -> Section:
    """Return what was scheduled and on what, and how devices differ from the presets they are named after."""
    blocks: list[Any] = [Pairs("Workload", graph_facts(graph)), Pairs("Cluster", cluster_facts(cluster))]
    rows = tuple(row for device in cluster.kinds for row in _differences(device))
    if rows:
        columns = tuple(map(Column, ("field", "device", "value", "preset")))
        blocks.append(Table("Fields that differ from the preset", columns, rows))
    return Section("Parameters", tuple(blocks))


def graph_facts(graph: OpGraph) -> Facts:
    """Return names and texts: how large a graph is, and what its operators come to."""
    known = int((~np.isnan(graph.time)).sum())
    of = "" if known == len(graph) else f" of the {known} operators with a time"
    return (
        ("graph", graph.name),
        ("operators", f"{len(graph):,}"),
        ("edges", f"{len(graph.src):,}"),
        ("depth", f"{graph.depth}"),
        *((("work", f"{format_time(float(np.nansum(graph.time)))}{of}"),) if known else ()),
        ("FLOP", f"{graph.flops.sum() / 1e9:,.3f} G"),
        ("DRAM traffic", format_bytes(float(graph.nbytes.sum()))),
        ("weights", format_bytes(float(graph.weight_nbytes.sum()))),
        ("operators without load", f"{operators_without_load(graph):,} (neither kernels nor utilization)"),
    )


def cluster_facts(cluster: Cluster) -> Facts:
    """Return names and texts: devices, models with what issuing costs on them, and links."""
    names = ", ".join(device.name for device in cluster.devices[:_MOST_LISTED])
    names += ", ..." if len(cluster) > _MOST_LISTED else ""
    rows = [("cluster", cluster.name), ("devices", f"{len(cluster)}: {names}")]
    for device in cluster.kinds:
        rows += [
            ("model", f"{device.model}: {device.sms} SMs, {device.bandwidth / GB_PER_S:,.0f} GB/s"),
            ("costs", ", ".join(f"{name} {getattr(device, name):.3g} us" for name in OVERHEADS)),
            ("contention", "on" if device.contention else "off"),
        ]
    links = dict.fromkeys((link.bandwidth, link.latency) for _, _, link in cluster.links)
    rows += [("link", f"{bandwidth / GB_PER_S:,.3g} GB/s, {latency:g} us") for bandwidth, latency in links]
    return tuple(rows)


def _differences(device: Device) -> list[tuple[Any, ...]]:
    """Return field, device, value and preset's value of what differs; nothing of a device of no preset."""
    if device.model not in DEVICES:
        return []
    preset = make_device(device.model, device.name)
    pairs: dict[str, tuple[Any, ...]] = {each.name: (getattr(device, each.name), getattr(preset, each.name))
             for each in fields(Device) if each.name not in _NOT_COMPARED}  # fmt: skip
    pairs |= {f"peak.{dtype}": (rate, preset.peak.get(dtype)) for dtype, rate in device.peak.items()}
    pairs["interference"] = tuple(str(tuple(map(tuple, each.interference))) for each in (device, preset))
    return [(name, device.name, *pair) for name, pair in pairs.items() if pair[0] != pair[1]]


def run_facts(trace: Trace) -> Facts:
    """Return what a run came to."""
    path = trace.critical_path()
    shares = ", ".join(f"{name} {100 * share:.1f} %" for name, share in path.shares.items() if share > 5e-4)
    loaded = any(load.sm.any() or load.dram.any() for load in trace.loads)
    n = len(path.operators)
    return (
        ("makespan", format_time(trace.makespan)),
        ("critical path", f"{n} operator{'' if n == 1 else 's'}{': ' if shares else ''}{shares}"),
        *((("SM utilization", f"{100 * trace.sm_utilization():.1f} %"),
           ("SM efficiency", f"{100 * trace.sm_efficiency():.1f} %"),
           ("occupancy", f"{100 * trace.achieved_occupancy():.1f} %")) if loaded else ()),
        ("peak memory", _memory(trace.peak_memory())),
        ("execution", trace.program.execution),
        ("spans", f"{len(trace):,}"),
        *(("warning", line) for line in trace.memory_warnings()[:_MOST_LISTED]),
    )  # fmt: skip


def _memory(peaks: Mapping[str, float]) -> str:
    """Return the peak of each device, or of many the largest."""
    if len(peaks) <= _MOST_LISTED:
        return ", ".join(f"{name} {format_bytes(n)}" for name, n in peaks.items())
    most = max(peaks, key=lambda name: peaks[name])
    return f"{format_bytes(peaks[most])} on {most}, at most as much on the other {len(peaks) - 1} devices"
