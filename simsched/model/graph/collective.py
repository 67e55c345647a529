"""`Collective`: an exchange of an operator with the operators of other ranks."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final

from simsched.base.codec import Among, Checked, Name, Range, Rate, brief
from simsched.base.errors import GraphError

ALGORITHMS: Final[Mapping[str, tuple[str, ...]]] = {
    "all_reduce": ("ring", "tree", "nvls", "one_shot"),
    "all_gather": ("ring", "one_shot"),
    "reduce_scatter": ("ring", "one_shot"),
    "all_to_all": ("direct",),
    "send_recv": ("direct",),
}
"""Algorithms of each operation; of equally quick ones the first is taken."""
MOST_RANKS: Final = 4096


@dataclass(frozen=True, slots=True)
class Collective(Checked):
    """An exchange between ranks, of which an operator is one rank's part.

    Operators of a graph with the same `group` are ranks of one collective. They lie on different devices, all begin
    together, and none ends before all. A collective of which the graph has one operator alone is *symmetric*: its peers
    are ranks that do the same at the same time, and are not simulated.

    Parameters
    ----------
    operation
        A key of `ALGORITHMS`.
    bytes
        Size of the exchanged tensor in bytes, as NCCL's tests count it: the buffer that is reduced for
        ``"all_reduce"``; the gathered result for ``"all_gather"``; the buffer before it is scattered for
        ``"reduce_scatter"``; all that a rank sends, its own part among it, for ``"all_to_all"``; the message for
        ``"send_recv"``.
    ranks
        Devices that take part, 2 to 4,096; 2 for ``"send_recv"``.
    group
        Name that the operators of one collective share; None if the graph has only this one.
    algorithm
        One of the operation's `ALGORITHMS`; None for the quickest on the links at hand.

    Raises
    ------
    GraphError
        If a value is out of range, or the operation has no such algorithm.

    >>> Collective("all_reduce", bytes=1e6, ranks=8).algorithm is None
    True
    """

    SUBJECT = "collective {0.operation!r}"
    ERROR = GraphError
    operation: Annotated[str, Among(ALGORITHMS)]
    bytes: Rate
    ranks: Annotated[int, Range(2, MOST_RANKS)]
    group: Name | None = brief(None)
    algorithm: Name | None = brief(None)

    def __post_init__(self) -> None:
        Checked.__post_init__(self)
        algorithms = ALGORITHMS[self.operation]
        if self.algorithm is not None and self.algorithm not in algorithms:
            raise self.refusal(f"algorithm must be one of {', '.join(algorithms)}, not {self.algorithm!r:.60}")
        if self.operation == "send_recv" and self.ranks != 2:
            raise self.refusal(f"ranks must be 2, not {self.ranks}")
