"""Parts of a graph that are rewritten each on its own, and put together again."""

from collections.abc import Iterable
from typing import Final

from simsched.base.errors import GraphError
from simsched.model.graph import Operator
from simsched.rewriting.draft import DraftRow, GraphDraft, Read, Source
from simsched.rewriting.splitting import new_name

READER: Final = "<reader>"
"""Kind of what stands for an operator that reads from a part of a graph but does not belong to it."""


def part_of(draft: GraphDraft, names: Iterable[str]) -> GraphDraft:
    """Return some operators of a draft as a separate draft.

    All their readers outside become one operator of kind `READER`, which takes no time and which no rule knows: its
    inputs are free to become part of another tensor, as in the whole graph. It reads the whole of each such tensor
    first, and then the slices that are read.
    """
    chosen = dict.fromkeys(names)
    rows = [row for name, row in draft.rows.items() if name in chosen]
    producers = dict.fromkeys(read.producer for row in rows for read in row.reads)
    outside = {name: draft.operator(name) for name in producers if name not in chosen}
    reads = dict.fromkeys(
        draft.rows[reader].reads[i]._replace(nbytes=0.0, transfer=None)
        for row in rows
        for reader, i in draft.readers.get(row.operator.name, ())
        if reader not in chosen
    )
    if reads:
        wholes = dict.fromkeys(Read(read.producer) for read in reads)
        rows.append(DraftRow(Operator(new_name(draft, READER), kind=READER), [*(wholes | reads)]))
    return GraphDraft(rows, draft.name, outside=outside, kept=[name for name in chosen if name in draft.kept])


def put_together(whole: GraphDraft, parts: Iterable[tuple[GraphDraft, GraphDraft]]) -> GraphDraft | None:
    """Return a draft of rewritten parts.

    Parameters
    ----------
    parts
        Each part before (see `part_of`) and after, in an order in which none reads from one that follows.

    Returns
    -------
    Draft
        The whole draft; None if parts do not fit: one reads along one axis a part of a tensor that the other cut along
        another.
    """
    moved: dict[str, Source] = {}
    rows = []
    try:
        for before, after in parts:
            for name, row in after.rows.items():
                reads = [read.after_move(moved) for read in row.reads]
                if row.operator.kind != READER:
                    rows.append(DraftRow(row.operator, reads))
                    continue
                for old, new in zip(before.rows[name].reads, reads, strict=True):
                    if old.slice is None:
                        moved[old.producer] = Source(new.producer, new.slice)
        return GraphDraft(rows, whole.name, kept=whole.kept)
    except GraphError:
        return None
