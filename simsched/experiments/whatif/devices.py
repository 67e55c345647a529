"""Clusters with other devices, rates, overheads and links."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from simsched.experiments.whatif.changes import PARAMETERS, Change
from simsched.model.cluster import Cluster
from simsched.model.cluster.device import OVERHEADS
from simsched.model.cluster.presets import make_device
from simsched.model.cluster.widening import widened

_OF_THE_HOST: Final = (
    *OVERHEADS, "kernel_latency", "block_spread", "interference", "interleave", "least_sm_share", "contention",
    "connections",
)  # fmt: skip


def changed_cluster(cluster: Cluster, changes: Sequence[Change]) -> Cluster:
    """Return a cluster after changes, the same if they make no difference to it."""
    original = cluster
    last = {change.parameter: change.value for change in changes}
    if "gpus" in last:
        cluster = widened(cluster, last["gpus"])
    if "device" in last:
        cluster = _of_model(cluster, last["device"])
    for change in changes:
        if change.parameter in PARAMETERS:
            cluster = PARAMETERS[change.parameter].changed(cluster, change)
        elif change.parameter == "contention":
            cluster = cluster.replace_devices(contention=change.value)
    same = cluster.devices == original.devices and cluster.links == original.links
    return original if same else cluster


def _of_model(cluster: Cluster, model: str) -> Cluster:
    """Return a cluster of another card: limits and rates change, what host and model say of the old one stays."""
    devices = [
        replace(make_device(model, old.name), **{name: getattr(old, name) for name in _OF_THE_HOST})
        for old in cluster.devices
    ]
    return replace(cluster, devices=tuple(devices), name=f"{cluster.name} as {model}")
