"""What a substitution rule is, and what several rules ask of a draft."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Protocol

from simsched.model.graph import Operator
from simsched.rewriting.draft import Draft, Row
from simsched.rewriting.splitting import carries_all

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

    @property
    def title(self) -> str:
        """What it does, in a few words."""
        ...

    def matches(self, draft: Draft) -> Iterator[Match]:
        """Yield the names of the operators of each possible substitution, in an order that the draft fixes."""
        ...

    def apply(self, draft: Draft, match: Match) -> Draft | None:
        """Return the draft after a substitution, or None if shapes, conditions or a circle forbid it."""
        ...


@dataclass(frozen=True, slots=True)
class Substitution:
    """A rule made of two functions; the second is only asked about operators of the draft."""

    name: str
    title: str
    find: Callable[[Draft], Iterator[Match]]
    make: Callable[[Draft, Match], Draft | None]

    def matches(self, draft: Draft) -> Iterator[Match]:
        """Yield the names of the operators of each possible substitution, in an order that the draft fixes."""
        return self.find(draft)

    def apply(self, draft: Draft, match: Match) -> Draft | None:
        """Return the draft after a substitution, or None if shapes, conditions or a circle forbid it."""
        return self.make(draft, match) if all(name in draft.rows for name in match) else None


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


def pairs_in(groups: Iterator[tuple[object, str]]) -> Iterator[Match]:
    """Yield all pairs of names that stand beside equal keys, in their order."""
    found: dict[object, list[str]] = {}
    for key, name in groups:
        found.setdefault(key, []).append(name)
    for names in found.values():
        for i, first in enumerate(names):
            for second in names[i + 1 :]:
                yield first, second


def pairs_that_end_in(draft: Draft, kind: str) -> Iterator[Match]:
    """Yield two operators and the one of a kind that alone reads them, one directly behind the other."""
    for name in draft.of_kind(kind):
        row = draft.rows[name]
        producers = [read.producer for read in row.reads]
        for first, second in pairwise(producers):
            alone = all(each in draft.rows and sole_follower(draft, each) is row for each in (first, second))
            if alone and first != second:
                yield first, second, name


def ends_in(draft: Draft, match: Match) -> bool:
    """Say whether the last of three operators alone reads the two before it, all in one number format."""
    if len(match) != 3:
        return False
    last = draft.rows[match[2]]
    return all(
        sole_follower(draft, name) is last and draft.rows[name].operator.dtype == last.operator.dtype
        for name in match[:2]
    )


def is_plain_sum(op: Operator) -> bool:
    """Say whether an operator adds up two tensors of one shape and does nothing else but an activation."""
    if op.kind != "add" or len(op.input_shapes) != 2 or op.weight_nbytes:
        return False
    return set(op.attributes) <= {"activation"} and all(shape == op.output_shape for shape in op.input_shapes)
