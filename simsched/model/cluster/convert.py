"""`Cluster` to and from JSON documents."""

from dataclasses import fields
from math import inf, isinf
from typing import Any, Final

from simsched.base.errors import FormatError
from simsched.base.io import Record, document
from simsched.model.cluster.cluster import Cluster
from simsched.model.cluster.device import Device, Link

FORMAT, VERSION = "simsched.cluster", 1
_TEXTS: Final = ("name", "model")
_SHAPED: Final = ("peak", "interference")
_COUNTS: Final = ("sms", "threads_per_sm", "blocks_per_sm", "registers_per_sm", "shared_memory_per_sm",
                  "shared_memory_per_block", "shared_memory_reserved", "shared_memory_granularity", "copy_engines",
                  "resident_kernels", "connections", "max_registers_per_block")  # fmt: skip

_ADDED: Final = {"launch_latency": 0.0, "block_spread": 0.08, "kernel_latency": 0.0}
"""Fields that files of earlier releases do not have, and what stands for them."""


def to_dict(cluster: Cluster) -> dict[str, Any]:
    """See `Cluster.to_dict`."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "name": cluster.name,
        "devices": [_device_to_dict(device) for device in cluster.devices],
        "links": [
            {"ends": [a, b], "bandwidth": link.bandwidth, "latency": link.latency, "duplex": link.duplex}
            for a, b, link in cluster.links
        ],
    }


def _device_to_dict(device: Device) -> dict[str, Any]:
    found = {field.name: getattr(device, field.name) for field in fields(Device)}
    return found | {
        "peak": dict(device.peak),
        "interference": [list(row) for row in device.interference],
        "copy_rate": None if isinf(device.copy_rate) else device.copy_rate,
    }


def from_dict(data: Any, source: str) -> Cluster:
    """See `Cluster.from_dict`."""
    top = document(data, FORMAT, VERSION, source)
    return top.build(
        Cluster,
        devices=tuple(_read_device(row) for row in top.records("devices")),
        links=tuple(_read_link(row) for row in top.records("links", [])),
        name=top.take("name", str, "cluster"),
    )


def _read_device(row: Record) -> Device:
    known: dict[str, Any] = {"peak": row.take("peak", dict), "interference": _rates(row)}
    copy_rate = row.take("copy_rate", float, None)
    known["copy_rate"] = inf if copy_rate is None else copy_rate
    for name, before in _ADDED.items():
        known[name] = row.take(name, float, before)
    for field in fields(Device):
        if field.name not in known:
            kind: type = str if field.name in _TEXTS else int if field.name in _COUNTS else float
            known[field.name] = row.take(field.name, bool if field.name == "contention" else kind)
    return row.build(Device, **known)


def _rates(row: Record) -> Any:
    rates = row.take("interference", list)
    return tuple(tuple(pair) if isinstance(pair, list) else pair for pair in rates)


def _read_link(row: Record) -> tuple[str, str, Link]:
    ends = row.take("ends", list)
    if len(ends) != 2 or not all(isinstance(end, str) for end in ends):
        raise FormatError(f"{row.where}: field 'ends' must hold two names, not {ends!r:.60}")
    link = row.build(
        Link,
        bandwidth=row.take("bandwidth", float),
        latency=row.take("latency", float, 0.0),
        duplex=row.take("duplex", bool, True),
    )
    return ends[0], ends[1], link
