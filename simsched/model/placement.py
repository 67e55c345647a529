"""`Placement`: where an operator runs."""

from dataclasses import dataclass

from simsched.base.codec import Checked
from simsched.base.errors import ScheduleError


@dataclass(frozen=True, slots=True)
class Placement(Checked):
    """An operator on a stream of a device.

    Parameters
    ----------
    op, device
        Names of the operator and the device.
    stream
        Stream of the device, 0 or more.
    stage, group
        For execution in stages: the device's stages run one after the other, the groups of a
        stage side by side, each group on a stream of its own.
    priority
        Stream priority as in CUDA: the lower number is served first.
    """

    SUBJECT, ERROR = "placement of {0.op!r}", ScheduleError
    op: str
    device: str = "gpu0"
    stream: int = 0
    stage: int = 0
    group: int = 0
    priority: int = 0
