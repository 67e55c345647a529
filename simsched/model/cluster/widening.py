"""More devices of the same make, or fewer."""

from dataclasses import replace
from itertools import count

from simsched.base.errors import ClusterError
from simsched.model.cluster.cluster import Cluster
from simsched.model.cluster.presets import DEVICES, LINKS


def widened(cluster: Cluster, n_gpus: int) -> Cluster:
    """Return a cluster with another number of devices.

    Parameters
    ----------
    cluster
        What there is.
    n_gpus
        Devices in all, at least 1.

    Returns
    -------
    Cluster
        With fewer devices, the first ones and the links between what is left. With more, copies of its device
        under new names ``gpu1, ...``, wired as a preset of so many such cards; devices that are wired like a
        preset with another link keep that link.

    Raises
    ------
    ClusterError
        If devices differ from each other, are of no preset or are wired as none is: how more of them would be
        joined is not known.

    >>> [device.name for device in widened(Cluster.preset("a100"), 3).devices]
    ['gpu0', 'gpu1', 'gpu2']
    """
    if n_gpus == len(cluster):
        return cluster
    if n_gpus < len(cluster):
        gone = [device.name for device in cluster.devices[n_gpus:]]
        links = tuple(wire for wire in cluster.links if wire[0] not in gone and wire[1] not in gone)
        return Cluster(cluster.devices[:n_gpus], links, f"{n_gpus} of {cluster.name}")
    first = cluster.devices[0]
    wired = _preset_like(cluster, n_gpus)
    if wired is None:
        raise ClusterError(
            f"{n_gpus} devices: how more of those of {cluster.name!r} are joined is not known: they differ, are of no "
            f"preset ({first.model!r}), or are wired as none is"
        )
    devices = [*cluster.devices]
    taken = [device.name for device in devices]
    fresh = (name for name in (f"gpu{i}" for i in count()) if name not in taken)
    devices += [replace(first, name=next(fresh)) for _ in range(n_gpus - len(cluster))]
    new_name = {old.name: new.name for old, new in zip(wired.devices, devices, strict=True)}
    links = tuple((new_name.get(a, a), new_name.get(b, b), link) for a, b, link in wired.links)
    name = f"{n_gpus} x {cluster.name}" if len(cluster) == 1 else f"{n_gpus} x {first.model}"
    return Cluster(tuple(devices), links, name)


def _preset_like(cluster: Cluster, n_gpus: int) -> Cluster | None:
    """Return the preset of so many devices that is wired as a cluster is, or None."""
    model = cluster.devices[0].model
    if len(cluster.kinds) > 1 or model not in DEVICES:
        return None
    if len(cluster) == 1:
        return Cluster.preset(model, n_gpus)
    for link in (None, *LINKS):
        if _wires(Cluster.preset(model, len(cluster), link=link)) == _wires(cluster):
            return Cluster.preset(model, n_gpus, link=link)
    return None


def _wires(cluster: Cluster) -> list[tuple[object, ...]]:
    """Return the links with devices by number."""
    return [(cluster.index.get(a, a), cluster.index.get(b, b), link) for a, b, link in cluster.links]
