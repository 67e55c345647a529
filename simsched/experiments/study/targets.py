"""The clusters of a study: presets or files, with what is replaced on every device and link."""

from pathlib import Path

from simsched.calibration import read_target
from simsched.experiments.study.grid import Point
from simsched.model.calibrated import Target, bare, with_cluster
from simsched.model.cluster import Cluster


def make_target(point: Point, folder: str) -> Target:
    """Return the cluster of a point, or the calibration that its file holds; a relative file is one of `folder`.

    Raises
    ------
    FileError, FormatError
        If the file cannot be read.
    UnknownNameError, ClusterError
        If a preset is not known, or a field of a device or link is not, or holds what it cannot.
    """
    if "file" in point:
        target = read_target(Path(folder, point["file"]))
    else:
        more = {key: point[key] for key in ("link", "gpus_per_node") if key in point}
        target = Cluster.preset(point["gpu"], point["gpus"], **more)
    cluster = bare(target)
    changed = cluster if point.get("overheads", True) else cluster.without_overheads()
    for prefix, change in (("device.", Cluster.replace_devices), ("links.", Cluster.replace_links)):
        fields = {key.removeprefix(prefix): value for key, value in point.items() if key.startswith(prefix)}
        if fields:
            changed = change(changed, **fields)
    return target if changed is cluster else with_cluster(target, changed)
