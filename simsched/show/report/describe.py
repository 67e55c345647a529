"""Sections that several results share: what ran on what, where its time went, what a search says of itself."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from simsched.base.units import GB_PER_S, format_bytes, format_time
from simsched.experiments.comparison import operators_without_load
from simsched.model.cluster import DEVICES, Cluster, Device
from simsched.model.cluster.device import OVERHEADS
from simsched.model.cluster.presets import make_device
from simsched.model.graph import OpGraph
from simsched.model.schedule import Schedule
from simsched.model.trace import Trace
from simsched.show.report.sections import Column, Pairs, Section, Table

_NOT_COMPARED = ("name", "model", "peak", "interference")
_MOST_LISTED = 8  # values of a search, or devices, in a cell


def parameters(graph: OpGraph, cluster: Cluster) -> Section:
    """Return what was scheduled and on what, and how devices differ from the presets they are named after."""
    blocks: list[Any] = [Pairs("Workload", _workload(graph)), Pairs("Cluster", cluster_facts(cluster))]
    rows = [row for device in cluster.kinds for row in _differences(device)]
    if rows:
        columns = (Column("field"), Column("device"), Column("value"), Column("preset"))
        blocks.append(Table("Fields that differ from the preset", columns, tuple(rows)))
    return Section("Parameters", tuple(blocks))


def _workload(graph: OpGraph) -> tuple[tuple[str, str], ...]:
    return (
        ("graph", graph.name),
        ("operators", f"{len(graph):,}"),
        ("edges", f"{len(graph.src):,}"),
        ("work", f"{graph.flops.sum() / 1e9:,.3f} GFLOP"),
        ("DRAM traffic", format_bytes(float(graph.nbytes.sum()))),
        ("weights", format_bytes(float(graph.weight_nbytes.sum()))),
        ("operators without load", f"{operators_without_load(graph):,} (neither kernels nor utilization)"),
    )


def cluster_facts(cluster: Cluster) -> tuple[tuple[str, str], ...]:
    """Return names and texts: devices, models with what issuing costs on them, and links."""
    rows = [
        ("cluster", cluster.name),
        (
            "devices",
            f"{len(cluster)}: {', '.join(d.name for d in cluster.devices[:_MOST_LISTED])}"
            f"{', ...' if len(cluster) > _MOST_LISTED else ''}",
        ),
    ]
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
    names = [field.name for field in fields(Device) if field.name not in _NOT_COMPARED]
    rows: list[tuple[Any, ...]] = [
        (name, device.name, getattr(device, name), getattr(preset, name))
        for name in names
        if getattr(device, name) != getattr(preset, name)
    ]
    rows += [(f"peak.{dtype}", device.name, rate, preset.peak.get(dtype))
             for dtype, rate in device.peak.items() if rate != preset.peak.get(dtype)]  # fmt: skip
    mine, theirs = (tuple(map(tuple, each.interference)) for each in (device, preset))
    return rows + ([("interference", device.name, str(mine), str(theirs))] if mine != theirs else [])


def run_facts(trace: Trace) -> Pairs:
    """Return what a run came to."""
    path = trace.critical_path()
    shares = ", ".join(f"{name} {100 * share:.1f} %" for name, share in path.shares.items() if share > 0)
    loaded = any(load.sm.any() or load.dram.any() for load in trace.loads)
    rows = [
        ("makespan", format_time(trace.makespan)),
        ("critical path", f"{len(path.operators)} operator{'' if len(path.operators) == 1 else 's'}"
                          f"{': ' if shares else ''}{shares}"),
        *([("SM utilization", f"{100 * trace.sm_utilization():.1f} %"),
           ("SM efficiency", f"{100 * trace.sm_efficiency():.1f} %"),
           ("occupancy", f"{100 * trace.achieved_occupancy():.1f} %")] if loaded else []),
        ("peak memory", _memory(trace.peak_memory())),
        ("execution", trace.program.execution),
        ("spans", f"{len(trace):,}"),
        *(("warning", line) for line in trace.memory_warnings()),
    ]  # fmt: skip
    return Pairs("What the run came to", tuple(rows))


def _memory(peaks: Mapping[str, float]) -> str:
    """Return the peak of each device, or of many the largest."""
    if len(peaks) <= _MOST_LISTED:
        return ", ".join(f"{name} {format_bytes(n)}" for name, n in peaks.items())
    most = max(peaks, key=lambda name: peaks[name])
    return f"{format_bytes(peaks[most])} on {most}, at most as much on the other {len(peaks) - 1} devices"


def searches(plans: Mapping[str, Schedule]) -> Table | None:
    """Return what schedulers say of their searches, None if none says anything."""
    rows = [(name, key, _text(value)) for name, plan in plans.items() for key, value in plan.search.items()]
    if not rows:
        return None
    return Table(
        "What schedulers say of their searches", (Column("scheduler"), Column("figure"), Column("value")), tuple(rows)
    )


def _text(value: Any) -> Any:
    if isinstance(value, float | int | str) or value is None:
        return value
    if isinstance(value, list | tuple):
        more = ", ..." if len(value) > _MOST_LISTED else ""
        return (", ".join(str(_text(each)) for each in value[:_MOST_LISTED]) or "none") + more
    return str(value)
