"""Clusters with other devices, rates, overheads and links."""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, Final

from simsched.experiments.whatif.changes import Change
from simsched.model.cluster import Cluster, Device
from simsched.model.cluster.device import OVERHEADS
from simsched.model.cluster.presets import make_device
from simsched.model.cluster.widening import widened

_OF_THE_HOST: Final = (
    *OVERHEADS, "kernel_latency", "block_spread", "interference", "interleave", "least_sm_share", "contention",
    "connections",
)  # fmt: skip
_WHOLE: Final = tuple(field.name for field in fields(Device) if field.type is int)


def changed_cluster(cluster: Cluster, changes: Sequence[Change]) -> Cluster:
    """Return a cluster after changes, the same if they make no difference to it."""
    original = cluster
    for parameter in ("gpus", "device"):
        last = next((change.value for change in reversed(changes) if change.parameter == parameter), None)
        if last is not None:
            cluster = widened(cluster, last) if parameter == "gpus" else _of_model(cluster, last)
    for change in changes:
        start, _, name = change.parameter.partition(".")
        if start == "link":
            links = tuple((a, b, _replaced(link, name, change)) for a, b, link in cluster.links)
            cluster = replace(cluster, links=links)
        elif change.parameter != "device" and start in ("device", "overhead", "interference", "contention"):
            cluster = replace(cluster, devices=tuple(_changed(device, change) for device in cluster.devices))
    same = cluster.devices == original.devices and cluster.links == original.links
    return original if same else cluster


def _of_model(cluster: Cluster, model: str) -> Cluster:
    """Return a cluster of another card: limits and rates change, what host and model say of the old one stays."""
    devices = [
        replace(make_device(model, old.name), **{name: getattr(old, name) for name in _OF_THE_HOST})
        for old in cluster.devices
    ]
    return replace(cluster, devices=tuple(devices), name=f"{cluster.name} as {model}")


def _replaced(part: Any, name: str, change: Change) -> Any:
    """Return a device or a link with one number changed; whole ones are rounded, to at least 1."""
    new = change.of(getattr(part, name))
    if isinstance(part, Device) and name in _WHOLE and (not change.is_absolute or new == int(new)):
        new = max(1, round(new)) if new > 0 else 0
    return replace(part, **{name: new})


def _changed(device: Device, change: Change) -> Device:
    start, _, name = change.parameter.partition(".")
    if start == "overhead":
        for each in [name] if name else OVERHEADS:
            device = _replaced(device, each, change)
        return device
    if start == "contention":
        return replace(device, contention=change.value)
    if start == "interference":
        return _interfering(device, change)
    if name == "peak":
        return _with_peak(device, change.of(device.peak["fp32"]) / device.peak["fp32"])
    changed: Device = _replaced(device, name, change)
    # peak = SMs x lanes x 2 x clock
    return _with_peak(changed, getattr(changed, name) / getattr(device, name)) if name in ("sms", "clock") else changed


def _interfering(device: Device, change: Change) -> Device:
    """Return a device whose interference is changed in proportion; from none at all every pair becomes alike."""
    largest = max(map(max, device.interference))

    def entry(x: float) -> float:
        return x * (change.of(largest) / largest) if largest else change.of(x)

    (a, b), (c, d) = device.interference
    return replace(device, interference=((entry(a), entry(b)), (entry(c), entry(d))))


def _with_peak(device: Device, factor: float) -> Device:
    return replace(device, peak={dtype: rate * factor for dtype, rate in device.peak.items()})
