"""`Link`: a connection between devices, and the rate of collectives over it."""

from dataclasses import dataclass

from simsched.base.codec import Amount, Checked, Rate, Share, brief
from simsched.base.errors import ClusterError


@dataclass(frozen=True, slots=True)
class Link(Checked):
    """A connection between two devices, or between a device and a switch.

    Parameters
    ----------
    bandwidth
        Bytes per us, in each direction if duplex.
    latency
        Time in us that a copy spends before its first byte moves.
    duplex
        Whether each direction has the bandwidth to itself.
    start
        Time in us that a collective of a library takes beside its steps and bytes.
    step
        Time in us of one step of a collective from one rank to the next.
    efficiency
        Part of the bandwidth that collectives reach, in (0, 1].
    reduces
        Whether switches between such links reduce and multicast (NVLink SHARP).
    """

    SUBJECT = "link"
    ERROR = ClusterError
    bandwidth: Rate
    latency: Amount = 0.0
    duplex: bool = True
    start: Amount = brief(20.0)
    step: Amount = brief(2.0)
    efficiency: Share = brief(0.8)
    reduces: bool = brief(False)
