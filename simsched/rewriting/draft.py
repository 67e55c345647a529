"""`GraphDraft`: a graph that is being rewritten; a change makes a new one, which shares the rows that stay.

Its operators read tensors or slices of them where they lie: along one axis, from `begin` up to `end`.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any, Final, NamedTuple, TypeVar

from simsched.base.errors import GraphError
from simsched.base.memo import memo
from simsched.base.numeric import group_by_key, is_count
from simsched.model.graph import Edge, Operator, OpGraph

T = TypeVar("T")

Slice = tuple[int, int, int]
"""Axis, begin and end."""

ATTRIBUTE: Final = "slices"
"""Attribute in which the operators of a graph have the slices that they read: ``{"0": [axis, begin, end]}``."""


def is_contiguous(shape: Sequence[int], axis: int) -> bool:
    """Return whether a slice along an axis is contiguous in memory, so that reading it costs nothing.

    >>> is_contiguous((1, 64, 8, 8), 1), is_contiguous((2, 64, 8, 8), 1), is_contiguous((2, 64, 8, 8), 0)
    (True, False, True)
    """
    return prod(shape[:axis]) == 1


def compose(outer: Slice | None, inner: Slice | None) -> Slice | None:
    """Return the slice that is the `inner` part of the `outer` part of a tensor.

    >>> compose((1, 64, 128), (1, 0, 16))
    (1, 64, 80)
    """
    if outer is None or inner is None:
        return outer if inner is None else inner
    if outer[0] != inner[0]:
        raise GraphError(f"a slice along axis {inner[0]} of one along axis {outer[0]} is no slice")
    return (outer[0], outer[1] + inner[1], outer[1] + inner[2])


def sliced_shape(shape: tuple[int, ...], part: Slice | None) -> tuple[int, ...]:
    """Return the shape of a part of a tensor."""
    if part is None:
        return shape
    axis, begin, end = part
    return (*shape[:axis], end - begin, *shape[axis + 1 :])


def slices_of(op: Operator, n_reads: int) -> list[Slice | None]:
    """Return the part that an operator of a graph reads of each tensor, None for all.

    Raises
    ------
    GraphError
        If its attribute is nothing of the kind.
    """
    slices: list[Slice | None] = [None] * n_reads
    by_read = op.attributes.get(ATTRIBUTE, {})
    if isinstance(by_read, Mapping):
        parts = by_read
    else:
        parts = {"": by_read}
    for key, part in parts.items():
        if not key.isdecimal() or not int(key) < n_reads or not _is_slice(part):
            raise GraphError(
                f"operator {op.name!r}: attribute {ATTRIBUTE!r} gives [axis, begin, end] by the number of an input, "
                f"not { ({key: part} if key else part)!r}"
            )
        slices[int(key)] = (part[0], part[1], part[2])
    return slices


def _is_slice(part: Any) -> bool:
    return isinstance(part, list) and len(part) == 3 and all(is_count(n) for n in part) and part[1] < part[2]


def slice_made(op: Operator) -> Slice | None:
    """Return the slice of its only input that an operator of kind "slice" makes, or None if it is none."""
    cut = tuple(op.attributes.get(key) for key in ("axis", "begin", "end"))
    if op.kind == "slice" and _is_slice(list(cut)):
        return cut  # type: ignore[return-value]
    return None


class Read(NamedTuple):
    """A tensor that an operator reads: the whole output of `producer`, or its `slice` (axis, begin, end)."""

    producer: str
    slice: Slice | None = None
    nbytes: float = 0.0
    transfer: float | None = None

    @property
    def source(self) -> "Source":
        """Source that it reads from."""
        return Source(self.producer, self.slice)

    def after_move(self, sources: "Mapping[str, Source]") -> "Read":
        """Return the read after its producer's tensor moved to another source."""
        source = sources.get(self.producer)
        if source is None:
            return self
        return self._replace(producer=source.producer, slice=compose(source.slice, self.slice))


class Source(NamedTuple):
    """New source of a tensor: see `GraphDraft.replace`."""

    producer: str
    slice: Slice | None = None


class DraftRow:
    """An operator and its reads, in the order of its inputs; `key` is a hash of both."""

    __slots__ = ("key", "operator", "reads")

    def __init__(self, operator: Operator, reads: Sequence[Read] = ()) -> None:
        self.operator = operator
        self.reads = tuple(reads)
        attributes = json.dumps(dict(operator.attributes), sort_keys=True)
        self.key = hash((operator, attributes, tuple(read[:2] for read in self.reads)))


_NOTHING: Final[Mapping[str, Any]] = {}


class GraphDraft:
    """A graph that is being rewritten: operators by name, each with its reads. Never changed, only replaced.

    Parameters
    ----------
    rows
        Operators and their reads; the order breaks ties, as in `OpGraph`.
    name
        Name of the graph.
    outside
        Producers outside the draft whose tensors it reads, by name: those before a part of a graph.
    kept
        Names of tensors that must continue to exist under their names because an operator outside reads them.

    Attributes
    ----------
    rows : Mapping[str, Row]
        By name.
    readers : Mapping[str, Sequence[tuple[str, int]]]
        Readers of a tensor: name and input position, once per read. No entry for a tensor without readers.
    kept : Mapping[str, None]
        As given, and the tensors without readers in the graph that the draft was made from: its outputs.

    Raises
    ------
    GraphError
        If a name appears twice or a read names no operator.

    Examples
    --------
    >>> graph = OpGraph([Operator("a"), Operator("b"), Operator("c")], [Edge("a", "b"), Edge("b", "c")])
    >>> draft = GraphDraft.from_graph(graph)
    >>> shorter = draft.replace(["b"], redirect={"b": Source("a")})
    >>> shorter.rows["c"].reads[0].producer, len(draft.rows)
    ('a', 3)
    """

    __slots__ = ("_found", "kept", "name", "outside", "readers", "rows")

    def __init__(
        self,
        rows: Iterable[DraftRow],
        name: str = "graph",
        *,
        outside: Mapping[str, Operator] = _NOTHING,
        kept: Iterable[str] = (),
    ) -> None:
        self.name = name
        self.outside = outside
        self.rows: dict[str, DraftRow] = {}
        readers: dict[str, list[tuple[str, int]]] = {}
        for row in rows:
            if row.operator.name in self.rows:
                raise GraphError(f"graph {name!r} has two operators called {row.operator.name!r}")
            self.rows[row.operator.name] = row
            for i, read in enumerate(row.reads):
                readers.setdefault(read.producer, []).append((row.operator.name, i))
        for producer in readers:
            if producer not in self.rows and producer not in outside:
                raise GraphError(f"graph {name!r}: {readers[producer][0][0]} reads {producer!r}, which is no operator")
        self.readers: Mapping[str, Sequence[tuple[str, int]]] = readers
        self.kept: Mapping[str, None] = dict.fromkeys(kept) | {k: None for k in self.rows if k not in readers}
        self._found: dict[Any, Any] = {}

    @classmethod
    def from_graph(cls, graph: OpGraph) -> "GraphDraft":
        """Return the draft of a graph, the same at each call.

        Slices are in ``attributes["slices"]`` of the graph and in the reads of the draft.
        """
        return _of_graph(graph)

    def to_graph(self) -> OpGraph:
        """Return the draft as a graph.

        Raises
        ------
        GraphError
            If the draft is part of a graph and reads from outside.
        """
        operators = []
        edges = []
        for name, row in self.rows.items():
            op = row.operator
            parts = {str(i): list(read.slice) for i, read in enumerate(row.reads) if read.slice}
            operators.append(replace(op, attributes={**op.attributes, ATTRIBUTE: parts}) if parts else op)
            edges += [Edge(read.producer, name, read.nbytes, read.transfer) for read in row.reads]
        return OpGraph(operators, edges, self.name)

    def operator(self, name: str) -> Operator:
        """Return an operator of the draft, or one outside that it reads."""
        row = self.rows.get(name)
        if row is None:
            return self.outside[name]
        return row.operator

    def only_reader(self, name: str) -> str | None:
        """Return the one operator that reads a tensor, and that once, if it is nowhere else needed."""
        readers_of = self.readers.get(name, ())
        if len(readers_of) == 1 and name not in self.kept:
            return readers_of[0][0]
        return None

    def about(self, find: Callable[..., T], *given: Any) -> T:
        """Return a function's result for the draft and more arguments; computed once."""
        if (find, given) not in self._found:
            self._found[find, given] = find(self, *given)
        result: T = self._found[find, given]
        return result

    def of_kind(self, kind: str) -> Sequence[str]:
        """Return the names of the operators of a kind, in the order of the rows."""
        return self.about(_by_kind).get(kind, ())

    def can_be_sliced(self, name: str, axis: int) -> bool:
        """Return whether all readers of a tensor can read it as a slice along an axis of another tensor."""
        reads = (self.rows[reader].reads[i] for reader, i in self.readers.get(name, ()))
        return all(read.slice is None or read.slice[0] == axis for read in reads)

    def signature(self) -> int:
        """Return a number that is equal for equal drafts, in whatever order they came about."""
        return sum(row.key for row in self.rows.values())

    def order(self) -> tuple[str, ...]:
        """Return the names in a topological order: by the steps from an input, then in the order of the rows."""
        return self.about(_order)

    def replace(
        self, remove: Iterable[str] = (), add: Sequence[DraftRow] = (), redirect: Mapping[str, Source] = _NOTHING
    ) -> "GraphDraft | None":
        """Return a draft with other operators, or None if they would depend on each other in a circle.

        Parameters
        ----------
        remove
            Names of operators that go.
        add
            Operators that come, in the place of the first that goes; one that has the name of one that goes
            takes its place and its readers, and must write the same tensor.
        redirect
            New source of a tensor, by name, for all its readers, also those among `add`. A reader of a slice then reads
            that part of the new slice.

        Raises
        ------
        GraphError
            If a tensor that goes is still read or must be kept, or a slice of a slice is along another axis.

        Notes
        -----
        O(V + E).
        """
        gone = set(remove)
        added = {row.operator.name: _redirect(row, redirect) for row in add}
        fresh = [row for name, row in added.items() if name not in gone]
        rows: list[DraftRow] = []
        for name, row in self.rows.items():
            if name in gone:
                now = added.get(name)
            else:
                now = _redirect(row, redirect)
            if now is not row:
                rows += fresh
                fresh = []
            if now is not None:
                rows.append(now)
        draft = GraphDraft([*rows, *fresh], self.name, outside=self.outside)
        lost = next((name for name in self.kept if name not in draft.rows), None)
        if lost is not None:
            raise GraphError(f"graph {self.name!r}: {lost!r} cannot go, its tensor is still needed")
        draft.kept = self.kept
        if len(draft.order()) == len(rows) + len(fresh):
            return draft
        return None


def _redirect(row: DraftRow, redirect: Mapping[str, Source]) -> DraftRow:
    """Return a row that reads from elsewhere, or the row itself."""
    if not any(read.producer in redirect for read in row.reads):
        return row
    return DraftRow(row.operator, [read.after_move(redirect) for read in row.reads])


def _by_kind(draft: GraphDraft) -> Mapping[str, Sequence[str]]:
    return group_by_key((row.operator.kind, name) for name, row in draft.rows.items())


def _order(draft: GraphDraft) -> tuple[str, ...]:
    waiting = {name: len(row.reads) for name, row in draft.rows.items()}
    for name in draft.outside:
        for reader, _ in draft.readers.get(name, ()):
            waiting[reader] -= 1
    ready = [name for name, n in waiting.items() if not n]
    for name in ready:  # grows as it is read
        for reader, _ in draft.readers.get(name, ()):
            waiting[reader] -= 1
            if not waiting[reader]:
                ready.append(reader)
    return tuple(ready)


@memo
def _of_graph(graph: OpGraph) -> GraphDraft:
    edges = group_by_key((edge.dst, edge) for edge in graph.edges)
    rows = []
    for op in graph.operators:
        incoming = edges.get(op.name, [])
        read = zip(incoming, slices_of(op, len(incoming)), strict=True)
        if ATTRIBUTE in op.attributes:
            op = replace(op, attributes={key: value for key, value in op.attributes.items() if key != ATTRIBUTE})
        rows.append(DraftRow(op, [Read(edge.src, part, edge.nbytes, edge.transfer) for edge, part in read]))
    return GraphDraft(rows, graph.name)
