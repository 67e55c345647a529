"""Collectives of a graph: which operators are the ranks of one, and the refusal of those that do not agree."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from simsched.base.errors import GraphError
from simsched.model.graph.collective import Collective


class Meeting(NamedTuple):
    """A collective of a graph.

    Parameters
    ----------
    collective
        The exchange.
    members
        Operators that are its ranks, by index, in their order: one if it is symmetric, else as many as it has ranks.
    """

    collective: Collective
    members: tuple[int, ...]

    @property
    def is_symmetric(self) -> bool:
        """Whether its peers are ranks that are not simulated."""
        return len(self.members) == 1


def meetings_of(codes: npt.NDArray[Any], collectives: Sequence[Collective | None]) -> tuple[Meeting, ...]:
    """Return the collectives of a graph by their first members.

    Parameters
    ----------
    codes, collectives
        A code of each operator, shape (n_ops,), and the codes' collectives.
    """
    meetings: list[tuple[int, Meeting]] = []
    for code, collective in enumerate(collectives):
        if collective is None:
            continue
        members = np.flatnonzero(codes == code).tolist()
        if collective.group is not None:
            parts = [tuple(members)]
        else:
            parts = [(member,) for member in members]
        meetings += [(part[0], Meeting(collective, part)) for part in parts if part]
    return tuple(meeting for _, meeting in sorted(meetings, key=lambda pair: pair[0]))


def require_agreement(
    names: Sequence[str], codes: npt.NDArray[Any], collectives: Sequence[Collective | None]
) -> tuple[Meeting, ...]:
    """Return the collectives of a graph; refuse ranks of one group that disagree, or are too few or too many.

    Parameters
    ----------
    names
        Of all operators.
    codes, collectives
        As in `meetings_of`.
    """
    meetings = meetings_of(codes, collectives)
    first: dict[str, Meeting] = {}
    for meeting in meetings:
        collective = meeting.collective
        if collective.group is None:
            continue
        other = first.setdefault(collective.group, meeting)
        if other is not meeting:
            a = names[other.members[0]]
            b = names[meeting.members[0]]
            raise GraphError(
                f"operators {a!r} and {b!r} are ranks of group {collective.group!r}: make them one collective"
            )
        if not meeting.is_symmetric and len(meeting.members) != collective.ranks:
            raise GraphError(
                f"group {collective.group!r} has {len(meeting.members)} operators: give it {collective.ranks}, one for "
                "each rank, or one that stands for all"
            )
    return meetings


def together_on(meeting: Meeting, device: npt.NDArray[Any]) -> int | None:
    """Return the first rank that is on the device of one before it, None if all lie on different ones.

    Parameters
    ----------
    device
        Of each operator, shape (n_ops,).
    """
    used: set[int] = set()
    for member in meeting.members:
        if int(device[member]) in used:
            return member
        used.add(int(device[member]))
    return None
