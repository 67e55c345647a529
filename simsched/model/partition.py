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
        Number of its SMs. Several streams' partitions of a device do not overlap; streams without a partition run on
        all.
    """

    SUBJECT = "partition of stream {0.stream} on {0.device!r}"
    ERROR = ScheduleError
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
    sms_of: dict[str, int] = {}
    bound: set[tuple[str, int]] = set()
    for partition in partitions:
        name = partition.device
        if name not in cluster.index:
            raise partition.refusal(f"the cluster has no such device; known are: {', '.join(cluster.index)}")
        if (name, partition.stream) in bound:
            raise partition.refusal("it stands twice; give the stream one partition")
        bound.add((name, partition.stream))
        sms_of[name] = sms_of.get(name, 0) + partition.sms
        if sms_of[name] > cluster[name].sms:
            raise partition.refusal(f"{sms_of[name]} SMs of {cluster[name].sms} are taken in all; give streams fewer")
