"""`Partition`: a stream that may use some SMs of its device alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from simsched.base.codec import Checked, Name, Range, Size
from simsched.base.errors import ScheduleError
from simsched.model.cluster import Cluster


@dataclass(frozen=True, slots=True)
class Partition(Checked):
    """So many SMs of a device for a stream, as by a green context: its blocks run on these alone.

    Parameters
    ----------
    device
        Name of the device.
    stream
        A stream of operators.
    sms
        How many SMs it has. Those of several streams of a device are different ones; streams without a partition
        run on all.
    """

    SUBJECT, ERROR = "partition of stream {0.stream} on {0.device!r}", ScheduleError
    device: Name
    stream: Annotated[int, Range(0, 2**31 - 1)]
    sms: Size


def require_partitions(partitions: Sequence[Partition], cluster: Cluster) -> None:
    """Refuse partitions that a cluster cannot have.

    Raises
    ------
    ScheduleError
        If a device is not there or has fewer SMs, or a stream has two partitions.
    """
    taken: dict[str, int] = {}
    bound: set[tuple[str, int]] = set()
    for partition in partitions:
        name = partition.device
        if name not in cluster.index:
            raise partition.refusal(f"the cluster has no such device; known are: {', '.join(cluster.index)}")
        if (name, partition.stream) in bound:
            raise partition.refusal("it stands twice; give the stream one partition")
        bound.add((name, partition.stream))
        taken[name] = taken.get(name, 0) + partition.sms
        if taken[name] > cluster[name].sms:
            raise partition.refusal(f"{taken[name]} SMs of {cluster[name].sms} are taken in all; give streams fewer")
