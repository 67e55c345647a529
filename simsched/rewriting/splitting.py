"""One operator instead of several: readers of one of these read a part of the one's output.

A part that lies in memory in one piece is read where it lies. Other parts are copied, by operators of kind "slice"
that have the names of the operators replaced. A tensor that is an output of the network, or read beyond the part of
the graph that is being rewritten, keeps its name: by such a copy, or by a view, which costs nothing.
"""

from collections.abc import Sequence
from dataclasses import replace

from simsched.model.graph import Operator
from simsched.rewriting.draft import (
    DraftRow,
    GraphDraft,
    Read,
    Source,
    compose,
    is_contiguous,
    slice_made,
    sliced_shape,
)
from simsched.rewriting.works import Shape, copy_of, joined_shape, shape_of, slice_of, tensor_nbytes


def new_name(draft: GraphDraft, name: str) -> str:
    """Return a name that no operator has yet: the given one, with dashes after it if needed."""
    while name in draft.rows or name in draft.outside:
        name += "'"
    return name


def operators(draft: GraphDraft, names: Sequence[str]) -> tuple[Operator, ...]:
    """Return some operators of a draft."""
    return tuple(draft.rows[name].operator for name in names)


def carries_all(draft: GraphDraft, row: DraftRow, i: int) -> bool:
    """Return whether an operator reads its input `i` as it was written: all of the tensor or slice, in its shape."""
    shapes = row.operator.input_shapes
    read = row.reads[i]
    shape = draft.operator(read.producer).output_shape
    if shape is None or len(shapes) != len(row.reads):
        return False  # inputs of the network have no edge: which one is it?
    return sliced_shape(shape, read.slice) == shapes[i]


def sole_input(draft: GraphDraft, row: DraftRow) -> Source | None:
    """Return where an operator of one input reads it, or None if that is not known."""
    if len(row.reads) != 1 or not carries_all(draft, row, 0):
        return None
    return row.reads[0].source


def parts_of(
    draft: GraphDraft, whole: DraftRow, names: Sequence[str], axis: int
) -> tuple[list[DraftRow], dict[str, Source]]:
    """Return the operators that cut `whole` into parts called `names`, and the new sources of those names.

    The parts have the sizes that these operators' outputs have along the axis, in their order.
    """
    op = whole.operator
    shape = shape_of(whole.operator)
    free = is_contiguous(shape, axis)
    nbytes = tensor_nbytes(shape, op.dtype)
    begin = 0
    rows: list[DraftRow] = []
    redirect: dict[str, Source] = {}
    for name in names:
        end = begin + shape_of(draft.rows[name].operator)[axis]
        direct = free and draft.can_be_sliced(name, axis)
        if direct and name in draft.readers:
            redirect[name] = Source(op.name, (axis, begin, end))
        if not direct or name in draft.kept:
            rows.append(DraftRow(slice_of(op, name, axis, begin, end, free), (Read(op.name, None, nbytes),)))
        begin = end
    return rows, redirect


def replace_by_parts(
    draft: GraphDraft, names: Sequence[str], whole: DraftRow, axis: int, *, before: Sequence[DraftRow] = ()
) -> GraphDraft | None:
    """Return the draft in which `whole`, after the operators `before`, replaces several operators.

    Concatenations that put cut parts together again are cleaned, as by rule R12.
    """
    rows, redirect = parts_of(draft, whole, names, axis)
    after = draft.replace(names, [*before, whole, *rows], redirect)
    if after is None:
        return None
    for name in dict.fromkeys(reader for part in names for reader, _ in draft.readers.get(part, ())):
        if name in after.rows and after.rows[name].operator.kind == "concat":
            after = join_slices(after, name) or after
    return after


def in_order_of_concat(draft: GraphDraft, names: tuple[str, ...], axis: int) -> tuple[str, ...]:
    """Return two operators in the order in which a concatenation reads them one after the other, if one does."""
    first, second = names
    for reader, i in draft.readers.get(first, ()):
        row = draft.rows[reader]
        joins = row.operator.kind == "concat" and row.operator.attributes.get("axis") == axis
        if joins and i and row.reads[i - 1].producer == second:
            return second, first
    return names


def replace_behind(
    draft: GraphDraft, names: Sequence[str], before: DraftRow, op: Operator, axis: int | None = None
) -> GraphDraft | None:
    """Return the draft in which `op`, which reads the output of a new operator `before` it, replaces several.

    Its parts along an axis replace each of them, without an axis it replaces the last.
    """
    whole = DraftRow(op, (Read(before.operator.name, None, tensor_nbytes(op.input_shapes[0], op.dtype)),))
    if axis is None:
        after = draft.replace(names, [before, whole])
    else:
        after = replace_by_parts(draft, names, whole, axis, before=[before])
    if after is None:
        return None
    return join_slices(after, before.operator.name) or after


def joined_inputs(draft: GraphDraft, names: Sequence[str], axis: int, name: str) -> DraftRow:
    """Return the concatenation of the inputs of operators with one input, for the operator of that name."""
    ops = operators(draft, names)
    shapes = [op.input_shapes[0] for op in ops]
    op = copy_of(
        ops,
        new_name(draft, f"{name}.input"),
        kind="concat",
        attributes={"axis": axis},
        input_shapes=shapes,
        output_shape=joined_shape(shapes, axis),
    )
    return DraftRow(op, [draft.rows[name].reads[0] for name in names])


def summed_inputs(draft: GraphDraft, match: Sequence[str], shape: Shape, flops: float) -> DraftRow:
    """Return the sum of two operators' single inputs, as input of the replacement of these and their sum."""
    total = draft.rows[match[2]].operator
    op = copy_of(
        (total,),
        new_name(draft, f"{total.name}.input"),
        kind="add",
        attributes={},
        input_shapes=(shape, shape),
        output_shape=shape,
        flops=flops,
        n_reads=2,
    )
    return DraftRow(op, [draft.rows[name].reads[0] for name in match[:2]])


def resolve_slices(draft: GraphDraft, read: Read) -> Source:
    """Return the source of a read, looking through slices that are separate operators."""
    row = draft.rows.get(read.producer)
    if row is None:
        cut = None
    else:
        cut = slice_made(row.operator)
    if cut is None or row is None or not only_copies(draft, row):
        return read.source
    first = row.reads[0]
    if any(part is not None and part[0] != cut[0] for part in (read.slice, first.slice)):
        return read.source
    return Source(first.producer, compose(first.slice, compose(cut, read.slice)))


def axis_of_concat(op: Operator) -> int | None:
    """Return the axis along which an operator concatenates tensors, None if it does anything else as well."""
    axis = op.attributes.get("axis")
    if op.kind != "concat" or "activation" in op.attributes or op.output_shape is None:
        return None
    if type(axis) is int and 0 <= axis < len(op.output_shape):
        return axis
    return None


def only_copies(draft: GraphDraft, row: DraftRow) -> bool:
    """Return whether an operator reads all its inputs as they were written, in its own number format."""
    return all(
        carries_all(draft, row, i) and draft.operator(read.producer).dtype == row.operator.dtype
        for i, read in enumerate(row.reads)
    )


def join_slices(draft: GraphDraft, name: str) -> GraphDraft | None:
    """Return the draft in which a concatenation reads slices that follow each other in one tensor as one.

    If its only read is one whole tensor, it is not needed. None if there is nothing to do.
    """
    row = draft.rows[name]
    axis = axis_of_concat(row.operator)
    if axis is None or not only_copies(draft, row):
        return None
    runs: list[tuple[Source, list[int]]] = []  # inputs, with adjacent slices of one tensor together
    for i, read in enumerate(row.reads):
        source = resolve_slices(draft, read)
        if runs and source.slice is not None:
            producer, before = runs[-1][0]
            if source.slice[0] == axis:
                behind = (axis, source.slice[1])
            else:
                behind = None
            if producer == source.producer and before is not None and before[::2] == behind:
                runs[-1] = (Source(producer, (axis, before[1], source.slice[2])), [*runs[-1][1], i])
                continue
        runs.append((source, [i]))
    reads: list[Read] = []
    for source, members in runs:
        shape = shape_of(draft.operator(source.producer))
        complete = source.slice is None or source.slice[1:] == (0, shape[axis])
        if len(members) > 1 and (complete or is_contiguous(shape, axis)):
            nbytes = sum(row.reads[i].nbytes for i in members)
            reads.append(Read(source.producer, None if complete else source.slice, nbytes))
        else:
            reads += [row.reads[i] for i in members]
    if len(reads) < len(row.reads):
        return _with_reads(draft, name, axis, reads)
    return None


def _with_reads(draft: GraphDraft, name: str, axis: int, reads: Sequence[Read]) -> GraphDraft | None:
    """Return the draft in which a concatenation has other reads; with one read it becomes a view or is removed."""
    row = draft.rows[name]
    still = [*draft.kept, *(read.producer for read in reads)]
    before = dict.fromkeys(read.producer for read in row.reads if read.producer in draft.rows)
    cuts = [cut for cut in before if cut not in still and slice_made(draft.rows[cut].operator) is not None]
    remove = [name, *(cut for cut in cuts if all(reader == name for reader, _ in draft.readers[cut]))]
    first = reads[0]
    if len(reads) > 1 or not (first.slice is None or name in draft.kept or draft.can_be_sliced(name, axis)):
        shapes = tuple(sliced_shape(shape_of(draft.operator(read.producer)), read.slice) for read in reads)
        return draft.replace(remove, [DraftRow(replace(row.operator, input_shapes=shapes), reads)])
    if name not in draft.kept:
        return draft.replace(remove, redirect={name: first.source})
    producer = draft.operator(first.producer)
    _, begin, end = first.slice or (axis, 0, shape_of(producer)[axis])
    return draft.replace(remove, [DraftRow(slice_of(producer, name, axis, begin, end, True), [Read(first.producer)])])
