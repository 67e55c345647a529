"""Substitution rules, and shared searches for their matches."""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Final

from simsched.base.numeric import group_by_key
from simsched.rewriting.draft import DraftRow, GraphDraft
from simsched.rewriting.splitting import carries_all

Match = tuple[str, ...]

ACTIVATIONS: Final = (
    "relu",
    "relu6",
    "leaky_relu",
    "hard_sigmoid",
    "sigmoid",
    "tanh",
    "silu",
    "hard_swish",
    "elu",
    "selu",
    "softplus",
    "mish",
    "gelu",
)
"""Kinds of operators that make each output of one input, without weights."""


@dataclass(frozen=True)
class Rule:
    """A substitution rule.

    Parameters
    ----------
    name
        Its name, such as "R1".
    find
        Yields the names of the operators of each possible substitution, in an order that the draft fixes.
    make
        Returns the draft after a match, None if its operators would depend on each other in a circle.
    """

    name: str
    find: Callable[[GraphDraft], Iterator[Match]]
    make: Callable[[GraphDraft, Match], GraphDraft | None]

    def matches(self, draft: GraphDraft) -> Sequence[Match]:
        """Return the names of the operators of each possible substitution."""
        return tuple(draft.about(self._find_matches))

    def apply(self, draft: GraphDraft, match: Match) -> GraphDraft | None:
        """Return the draft after a substitution, or None if shapes, conditions or a circle forbid it."""
        if match in draft.about(self._find_matches):
            return self.make(draft, match)
        return None

    def _find_matches(self, draft: GraphDraft) -> Mapping[Match, None]:
        return dict.fromkeys(self.find(draft))


def sole_follower(draft: GraphDraft, name: str) -> DraftRow | None:
    """Return the row of a tensor's only reader, if it reads the whole tensor unchanged."""
    follower = draft.only_reader(name)
    if follower is None:
        return None
    row = draft.rows[follower]
    position = draft.readers[name][0][1]
    if row.reads[position].slice is None and carries_all(draft, row, position):
        return row
    return None


def followers(draft: GraphDraft, kinds: Sequence[str], can: Callable[[DraftRow, DraftRow], bool]) -> Iterator[Match]:
    """Yield operators of some kinds, each with the one that alone reads it, all of it, if the two `can` be one."""
    for kind in kinds:
        for name in draft.of_kind(kind):
            row = sole_follower(draft, name)
            if row is not None and can(draft.rows[name], row):
                yield name, row.operator.name


def pairs_in(keys: Mapping[str, Hashable]) -> Iterator[tuple[str, str]]:
    """Yield all pairs of names that have equal keys, in their order."""
    for names in group_by_key((key, name) for name, key in keys.items()).values():
        yield from combinations(names, 2)


def pairs_into(draft: GraphDraft, kind: str) -> Iterator[tuple[str, str, str]]:
    """Yield two operators and an operator of a kind that alone reads them, one directly after the other.

    All are in one number format.
    """
    for name in draft.of_kind(kind):
        row = draft.rows[name]
        for pair in pairwise(read.producer for read in row.reads):
            if pair[0] != pair[1] and all(
                reader_of in draft.rows
                and sole_follower(draft, reader_of) is row
                and draft.rows[reader_of].operator.dtype == row.operator.dtype
                for reader_of in pair
            ):
                yield *pair, name
