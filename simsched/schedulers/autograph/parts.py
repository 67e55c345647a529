"""Parts of a graph as drafts of their own, and substitutions that are made again elsewhere."""

import json
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from simsched.base.errors import GraphError
from simsched.model.graph import Operator
from simsched.rewriting import Draft, Read, Row, Rule, Source
from simsched.rewriting.recipes import recipe_of
from simsched.rewriting.slices import compose
from simsched.rewriting.splitting import new_name
from simsched.schedulers.autograph.cost import READER, MixedCost, description

Step = tuple[str, tuple[str, ...]]
"""A rule, and the operators it was applied to."""
NumberedStep = tuple[str, tuple[int, ...]]
"""A rule, and the numbers of the operators it was applied to: see `Lineage`."""


def part_of(draft: Draft, names: Iterable[str]) -> Draft:
    """Return some operators of a draft as a draft of its own.

    All who read from them without being one of them are there as one operator of kind `READER`, which takes no
    time and which no rule knows: what it reads is free to become part of another tensor, as in the whole graph.
    It reads all of each such tensor first, and then the slices that are read.
    """
    chosen = dict.fromkeys(names)
    rows = [row for name, row in draft.rows.items() if name in chosen]
    outside = {
        read.producer: draft.operator(read.producer)
        for row in rows
        for read in row.reads
        if read.producer not in chosen
    }
    reads = dict.fromkeys(
        draft.rows[reader].reads[i]._replace(nbytes=0.0, transfer=None)
        for row in rows
        for reader, i in draft.readers.get(row.operator.name, ())
        if reader not in chosen
    )
    if reads:
        wholes = dict.fromkeys(Read(read.producer) for read in reads)
        rows.append(Row(Operator(new_name(draft, READER), kind=READER), [*(wholes | reads)]))
    return Draft(rows, draft.name, outside=outside, kept=[name for name in chosen if name in draft.kept])


def put_together(whole: Draft, parts: Iterable[tuple[Draft, Draft]]) -> Draft | None:
    """Return a draft of rewritten parts.

    Parameters
    ----------
    parts
        Each as it was (see `part_of`) and as it is now, in an order in which none reads from one that follows.

    Returns
    -------
    Draft
        None if parts do not fit: one reads along one axis a part of what the other made a part along another.
    """
    moved: dict[str, Source] = {}
    rows = []
    try:
        for before, after in parts:
            for name, row in after.rows.items():
                reads = [_moved(read, moved) for read in row.reads]
                if row.operator.kind != READER:
                    rows.append(Row(row.operator, reads))
                    continue
                for old, new in zip(before.rows[name].reads, reads, strict=True):
                    if old.slice is None:
                        moved[old.producer] = Source(new.producer, new.slice)
        return Draft(rows, whole.name, kept=whole.kept)
    except GraphError:
        return None


def _moved(read: Read, moved: Mapping[str, Source]) -> Read:
    """Return a read of what a tensor has become."""
    source = moved.get(read.producer)
    return read if source is None else read._replace(producer=source.producer, slice=compose(source.slice, read.slice))


def structure(part: Draft, costs: MixedCost) -> Hashable:
    """Return what is equal for parts that differ in names alone: what can be made of one can be made of the other.

    Whose weights an operator has counts only as far as others in the part have the same.
    """
    number = {name: i for i, name in enumerate(names_of(part))}
    weights: dict[str, int] = {}
    for row in part.rows.values():
        weights.setdefault(_weights(row.operator), len(weights))
    return (
        tuple(
            (description(row.operator), costs.time(row), weights[_weights(row.operator)], name in part.kept,
             tuple((number[read.producer], read.slice, read.nbytes) for read in row.reads))
            for name, row in part.rows.items()
        ),
        tuple(description(op) for op in part.outside.values()),
    )  # fmt: skip


def _weights(op: Operator) -> str:
    """Return the recipe of an operator's weights as text."""
    return json.dumps(recipe_of(op), sort_keys=True)


@dataclass(frozen=True, slots=True)
class Lineage:
    """What became of a draft: the substitutions, in order.

    Parameters
    ----------
    draft
        What came out.
    names
        Those of the first draft and of what it read from outside, then each that a substitution brought: the
        place of a name is its number. Rules do not look at names, so the same steps by number rewrite any
        draft of the same structure.
    steps
        Substitutions by name.
    """

    draft: Draft
    names: tuple[str, ...]
    steps: tuple[Step, ...] = ()

    @classmethod
    def of(cls, draft: Draft) -> "Lineage":
        """Return the lineage of a draft to which nothing has been done."""
        return cls(draft, names_of(draft))

    def then(self, rule: str, match: tuple[str, ...], after: Draft) -> "Lineage":
        """Return the lineage with a further substitution."""
        names = (*self.names, *_brought(self.draft, after, self.names))
        return Lineage(after, names, (*self.steps, (rule, match)))

    def numbered(self) -> tuple[NumberedStep, ...]:
        """Return the substitutions by number."""
        number = {name: i for i, name in enumerate(self.names)}
        return tuple((rule, tuple(number[name] for name in match)) for rule, match in self.steps)


def names_of(draft: Draft) -> tuple[str, ...]:
    """Return the names that numbers stand for in a draft to which nothing has been done."""
    return (*draft.rows, *draft.outside)


def replayed(
    lineage: Lineage, names: Sequence[str], steps: Iterable[NumberedStep], rules: Mapping[str, Rule]
) -> Lineage:
    """Go on with substitutions that were made in a draft of other names, or in a part, whose names these are.

    The first that is not possible ends it: a neighbour's substitutions may have changed an operator that both
    parts touch, such as a concatenation that reads from one part and belongs to the other.
    """
    known = list(names)
    for rule, numbers in steps:
        match = tuple(known[number] for number in numbers)
        after = rules[rule].apply(lineage.draft, match) if all(name in lineage.draft.rows for name in match) else None
        if after is None:
            break
        known += _brought(lineage.draft, after, known)
        lineage = lineage.then(rule, match, after)
    return lineage


def _brought(before: Draft, after: Draft, known: Sequence[str]) -> list[str]:
    """Return the names that a substitution has brought and that were not known before."""
    return [name for name in after.rows if name not in before.rows and name not in known]
