"""What a substitution rule is, and what several rules ask of a draft."""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, pairwise
from typing import Final, Protocol, TypeVar

from simsched.rewriting.draft import Draft, Row
from simsched.rewriting.splitting import carries_all

T = TypeVar("T")
Match = tuple[str, ...]

ACTIVATIONS: Final = (
    "relu", "relu6", "leaky_relu", "hard_sigmoid", "sigmoid", "tanh", "silu", "hard_swish", "elu", "selu", "softplus",
    "mish", "gelu",
)  # fmt: skip
"""Kinds of operators that make each output of one input, without weights."""


class Rule(Protocol):
    """A substitution: where it can be made, and what comes out."""

    @property
    def name(self) -> str:
        """Its name, "R1" to "R13"."""
        ...

    def matches(self, draft: Draft) -> Iterator[Match]:
        """Yield the names of the operators of each possible substitution, in an order that the draft fixes."""
        ...

    def apply(self, draft: Draft, match: Match) -> Draft | None:
        """Return the draft after a substitution, or None if shapes, conditions or a circle forbid it."""
        ...


def always(_draft: Draft, _match: Match) -> bool:
    """Say that a substitution is possible wherever it was found."""
    return True


@dataclass(frozen=True, slots=True)
class Substitution:
    """A rule made of functions: where it may be possible, what comes out, and whether it is possible there.

    The last two are only asked about operators of the draft, and `make` only where it is possible.
    """

    name: str
    find: Callable[[Draft], Iterator[Match]]
    make: Callable[[Draft, Match], Draft | None]
    holds: Callable[[Draft, Match], bool] = always

    def matches(self, draft: Draft) -> Iterator[Match]:
        """Yield the names of the operators of each possible substitution, in an order that the draft fixes."""
        return (match for match in self.find(draft) if self.holds(draft, match))

    def apply(self, draft: Draft, match: Match) -> Draft | None:
        """Return the draft after a substitution, or None if shapes, conditions or a circle forbid it."""
        possible = all(name in draft.rows for name in match) and self.holds(draft, match)
        return self.make(draft, match) if possible else None


def sole_follower(draft: Draft, name: str) -> Row | None:
    """Return the row of the only operator that reads a tensor, if it reads all of it and as it is."""
    follower = draft.only_reader(name)
    if follower is None:
        return None
    row = draft.rows[follower]
    position = draft.readers[name][0][1]
    if row.reads[position].slice is not None or not carries_all(draft, row, position):
        return None
    return row


def follows(draft: Draft, match: Match, can: Callable[[Row, Row], bool]) -> bool:
    """Say whether the second of two operators alone reads the first, all of it, and the two `can` be one."""
    row = sole_follower(draft, match[0])
    return row is not None and row.operator.name == match[1] and can(draft.rows[match[0]], row)


def followed(draft: Draft, kinds: Sequence[str]) -> Iterator[Match]:
    """Yield operators of some kinds, each with the only one that reads it."""
    for kind in kinds:
        for name in draft.of_kind(kind):
            follower = draft.only_reader(name)
            if follower is not None:
                yield name, follower


def pairs_in(keys: Mapping[str, Hashable]) -> Iterator[Match]:
    """Yield all pairs of names that have equal keys, in their order."""
    found: dict[Hashable, list[str]] = {}
    for name, key in keys.items():
        found.setdefault(key, []).append(name)
    for names in found.values():
        yield from combinations(names, 2)


def two_of(known: Mapping[str, T], match: Match) -> tuple[T, T] | None:
    """Return what is known of the first two operators of a match, None unless that is so of two."""
    first, second = match[:2]
    return (known[first], known[second]) if first != second and first in known and second in known else None


def alike(
    name: str,
    keys: Callable[[Draft], Mapping[str, Hashable]],
    make: Callable[[Draft, Match], Draft | None],
    holds: Callable[[Draft, Match], bool] = always,
) -> Substitution:
    """Return the rule of two operators with equal keys, if something else `holds` of them too."""

    def are_alike(draft: Draft, match: Match) -> bool:
        two = two_of(draft.about(keys), match)
        return two is not None and two[0] == two[1] and holds(draft, match)

    return Substitution(name, lambda draft: pairs_in(draft.about(keys)), make, are_alike)


def pairs_into(draft: Draft, kind: str) -> Iterator[Match]:
    """Yield two operators and the one of a kind that alone reads them, one directly behind the other."""
    for name in draft.of_kind(kind):
        row = draft.rows[name]
        for first, second in pairwise(read.producer for read in row.reads):
            if first != second and all(
                each in draft.rows and sole_follower(draft, each) is row for each in (first, second)
            ):
                yield first, second, name


SUMS: Final = partial(pairs_into, kind="add")


def ends_in(draft: Draft, match: Match) -> bool:
    """Say whether the last of three operators alone reads the two before it, all in one number format."""
    if len(match) != 3:
        return False
    last = draft.rows[match[2]]
    return all(
        sole_follower(draft, name) is last and draft.rows[name].operator.dtype == last.operator.dtype
        for name in match[:2]
    )


def ends_in_sum(draft: Draft, match: Match) -> bool:
    """Say whether that last one adds up tensors of one shape and does nothing else but an activation."""
    if not ends_in(draft, match):
        return False
    op = draft.rows[match[2]].operator
    if op.kind != "add" or len(op.input_shapes) != 2 or op.weight_nbytes:
        return False
    return set(op.attributes) <= {"activation"} and all(shape == op.output_shape for shape in op.input_shapes)
