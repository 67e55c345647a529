"""The substitution rules by name: the ones that AutoGraph needs, most of them from TASO's.

All read an operator's inputs in the order of its edges, and need them known: an operator without an edge reads an input
of the network, and the graph does not say which. "Alone" means: by no other operator, and no output of the network. All
operators of a match have one number format.

==== ================================================================== ============================================
rule what becomes what                                                  conditions
==== ================================================================== ============================================
R1   activation(conv(x)) or norm(conv(x)) is one operator; so is the    the second alone reads the first, which has
     activation of a product                                            no activation yet; norms of convolutions
R2   conv(x, v), conv(x, w) are slices of conv(x, [v; w])               same kernel, stride, padding, activation, no
                                                                        groups
R3   the same, the smaller kernel filled up with zeros                  odd kernels that keep the size, stride 1, one
                                                                        not larger along any axis, no groups
R4   conv(x, w), conv(y, w) are slices of conv([x; y], w), over the     same weights, convolutions alike, x is not y
     batch
R5   conv(x, v), conv(y, w) are slices of conv([x, y], [v; w]) with     convolutions alike, x is not y; joined along
     twice the groups                                                   the channels by one that alone reads both, or
                                                                        depthwise
R6   conv(x, v) + conv(y, w) is conv([x, y], [v, w])                    alike but for the channels read, no activation
                                                                        or groups, read alone by the sum, x is not y
R7   avg(x) + avg(y) is avg(x + y), avg(x) + avg(x) is 2 avg(x)         pools alike, read alone by the sum; a sum with
                                                                        activation only in the second case
R8   a convolution has half the groups, filled with zeros               an even number of groups, of more than one
                                                                        channel; stride 1 or 2; no activation or relu
R9   x v, x w are slices of x [v, w]                                    same activation
R10  x v + y w is [x, y] [v; w]; x v + x w is x (v + w), x w + y w is   no activation, read alone by the sum
     (x + y) w
R11  relu(x), relu(y) are slices of relu([x, y]); a join of relus is    the same activation; two slices of a tensor,
     the relu of a join                                                 or of one shape and made of one tensor; relus
                                                                        read alone by the join
R12  a slice of a join is what was joined, a join of all slices is all  a slice is exactly one of the joined; slices in
                                                                        order
R13  elementwise operators after each other are one                     the second alone reads the first, one shape
==== ================================================================== ============================================

Where several operators become one, readers of a part read a slice (`simsched.rewriting.splitting`), and a concatenation
that puts parts together again is cleaned at once, as by R12. In R9 and R10 v and w are weights, not other operands.
Conditions of ours exclude useless matches, which would swell a search: depthwise convolutions are not grouped by R8,
and R11 takes only pairs of activations that share an input tensor, or a tensor before it.

References
----------
.. [1] "AutoGraph: Optimizing DNN computation graph for parallel GPU kernel execution", AAAI 2023,
   doi:10.1609/aaai.v37i9.26343.
.. [2] Jia, Padon, Thomas, Warszawski, Zaharia, Aiken, "TASO: Optimizing deep learning computation with automatic
   generation of graph substitutions", SOSP 2019, doi:10.1145/3341301.3359630.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from types import MappingProxyType
from typing import Any, Final

from simsched.model.graph import DTYPE_NBYTES, Operator
from simsched.rewriting import splitting
from simsched.rewriting.draft import DraftRow, GraphDraft, Read, Slice, Source, slice_made
from simsched.rewriting.merging import conv_of
from simsched.rewriting.rule import ACTIVATIONS, Match, Rule, followers, pairs_in, sole_follower
from simsched.rewriting.rules_products import RULES_OF_PRODUCTS
from simsched.rewriting.works import WEIGHTS, joined_shape, made_from, recipe_of, shape_of, tensor_nbytes

_PRODUCTS: Final = ("conv", "linear", "matmul")
_COMBINING: Final = ("add", "sub", "mul", "square")
FUSED: Final = "elementwise"
"""Kind of several elementwise operators in one: ``attributes["parts"]``, as those of a unit."""
_ELEMENTWISE: Final = (*ACTIVATIONS, *_COMBINING, "batch_norm", FUSED)


# R1: an activation or a normalization after a product


def _takes_in(first: DraftRow, follower: DraftRow) -> bool:
    op = first.operator
    then = follower.operator
    if "activation" in op.attributes or len(follower.reads) != 1 or then.dtype != op.dtype:
        return False
    if then.kind == "batch_norm":
        return "activation" not in then.attributes and conv_of(op) is not None and then.output_shape == op.output_shape
    return then.kind in ACTIVATIONS and not then.attributes and then.output_shape == op.output_shape


def _with_epilogue(draft: GraphDraft, match: Match) -> GraphDraft | None:
    """Return an operator with an activation or a normalisation in it for both."""
    op, then = splitting.operators(draft, match)
    attributes = {**op.attributes, WEIGHTS: recipe_of(op)}
    added = 0.0
    conv = conv_of(op)
    if then.kind == "batch_norm" and conv is not None:
        attributes[WEIGHTS] = {"normalized": recipe_of(op), "by": recipe_of(then)}
        if "bias" in attributes:
            attributes["bias"] = True
        width = DTYPE_NBYTES[op.dtype]
        if 0 < op.weight_nbytes <= conv.n_weights * width:  # it had no bias
            added = float(conv.out_channels * width)
    else:
        attributes["activation"] = then.kind
    fused = made_from(
        (op, then),
        then.name,
        flops=op.flops,
        nbytes=op.nbytes + added,
        weight_nbytes=op.weight_nbytes + added,
        attributes=attributes,
        input_shapes=op.input_shapes,
        output_shape=shape_of(op),
        like=op,
    )
    return draft.replace(match, [DraftRow(fused, draft.rows[op.name].reads)])


# R13: elementwise operators in a row


def _can_chain(first: DraftRow, second: DraftRow) -> bool:
    op = first.operator
    then = second.operator
    if op.kind not in _ELEMENTWISE or then.kind not in _ELEMENTWISE or op.dtype != then.dtype:
        return False
    if not all("parts" in x.attributes for x in (op, then) if x.kind == FUSED):
        return False
    if any(shape != op.output_shape for shape in (*op.input_shapes, *then.input_shapes, then.output_shape)):
        return False  # one input is spread over the other
    # inputs of the network have no edge: the graph does not say which of several inputs it is
    return len(first.reads) == len(op.input_shapes) or len(second.reads) == 1


def _chain(draft: GraphDraft, match: Match) -> GraphDraft | None:
    """Return an operator that does the second one, which reads the first as one of its inputs, and the first before."""
    both = splitting.operators(draft, match)
    op, then = both
    at = draft.readers[op.name][0][1]
    shape = shape_of(op)
    sums = all(x.kind == "add" and not (x.attributes or x.weight_nbytes) and len(x.input_shapes) > 1 for x in both)
    chain = made_from(
        both,
        then.name,
        kind="add" if sums else FUSED,
        nbytes=op.nbytes + then.nbytes - 2 * tensor_nbytes(shape, op.dtype),
        attributes={} if sums else {"parts": _parts_of_chain(op, then, at)},
        input_shapes=(*then.input_shapes[:at], *op.input_shapes, *then.input_shapes[at + 1 :]),
        output_shape=shape,
        like=then,
    )
    first, second = (draft.rows[name].reads for name in match)
    return draft.replace(match, [DraftRow(chain, (*second[:at], *first, *second[at + 1 :]))])


def _parts_of_chain(op: Operator, then: Operator, position: int) -> list[dict[str, Any]]:
    first = _parts(op)
    second = _parts(then)
    n = len(first)
    n_inputs = len(op.input_shapes)

    def move(reference: int) -> int:
        if reference >= 0:
            return reference + n
        i = ~reference
        if i == position:
            return n - 1
        return ~(i if i < position else i + n_inputs - 1)

    before = [{**part, "inputs": [r if r >= 0 else ~(~r + position) for r in part["inputs"]]} for part in first]
    return before + [{**part, "inputs": [move(r) for r in part["inputs"]]} for part in second]


def _parts(op: Operator) -> Sequence[Mapping[str, Any]]:
    """Return the parts of an operator, or the one part that it is."""
    if op.kind == FUSED:
        parts: Sequence[Mapping[str, Any]] = op.attributes["parts"]
        return parts
    n = len(op.input_shapes)
    part = {"kind": op.kind, "inputs": [~i for i in range(n)], "output_shape": op.output_shape, **op.attributes}
    with_constant = n == 1 and op.kind in _COMBINING  # that is no input
    if op.kind == "batch_norm" or op.weight_nbytes or with_constant:
        part[WEIGHTS] = recipe_of(op)
    return [part]


# R11: an activation of several tensors


def _activations(draft: GraphDraft) -> Iterator[Match]:
    for name in draft.of_kind("concat"):
        row = draft.rows[name]
        names = [read.producer for read in row.reads]
        if names and splitting.axis_of_concat(row.operator) is not None and names[0] in draft.rows:
            first = draft.rows[names[0]].operator
            if all(
                name in draft.rows
                and _is_activation(draft, name, first.kind, first.dtype)
                and sole_follower(draft, name) is row
                for name in names
            ):
                yield name, *names
    for kind in ACTIVATIONS:
        for a, b in pairs_in(_related_tensor(draft, kind)):
            if draft.rows[a].reads[0].source != draft.rows[b].reads[0].source:  # not twice the same
                yield a, b


def _is_activation(draft: GraphDraft, name: str, kind: str, dtype: str) -> bool:
    row = draft.rows[name]
    op = row.operator
    if op.kind != kind or kind not in ACTIVATIONS or op.dtype != dtype or op.attributes:
        return False
    return splitting.sole_input(draft, row) is not None and op.input_shapes[0] == op.output_shape


def _related_tensor(draft: GraphDraft, kind: str) -> Mapping[str, Hashable]:
    """Return the tensor that activations read slices of and the axis, or the tensor that their input was made from."""
    keys: dict[str, Hashable] = {}
    for name in draft.of_kind(kind):
        row = draft.rows[name]
        op = row.operator
        if not _is_activation(draft, name, kind, op.dtype):
            continue
        read = row.reads[0]
        producer = draft.rows.get(read.producer)
        if read.slice is not None:
            keys[name] = op.dtype, read.producer, read.slice[0]
        elif producer is not None and len(producer.reads) == 1 and op.output_shape:
            keys[name] = op.dtype, op.output_shape, producer.reads[0][:2]
    return keys


def _activated_together(draft: GraphDraft, match: Match) -> GraphDraft | None:
    name, *names = match
    concat = draft.rows[name].operator
    if concat.kind == "concat":
        op = _joined_activation(splitting.operators(draft, names), name, concat.attributes["axis"])
        inner = replace(concat, name=splitting.new_name(draft, f"{name}.input"))
        return splitting.replace_behind(
            draft, match, DraftRow(inner, [draft.rows[name].reads[0] for name in names]), op
        )
    first, second = (draft.rows[name].reads[0].slice for name in match)
    axis = first[0] if first else 0
    names = [*(match[::-1] if first and second and first[1] > second[1] else match)]
    op = _joined_activation(splitting.operators(draft, names), splitting.new_name(draft, "+".join(names)), axis)
    return splitting.replace_behind(draft, names, splitting.joined_inputs(draft, names, axis, op.name), op, axis)


def _joined_activation(ops: tuple[Operator, ...], name: str, axis: int) -> Operator:
    shape = joined_shape([*map(shape_of, ops)], axis)
    return made_from(ops, name, weight_nbytes=0.0, attributes={}, input_shapes=(shape,), output_shape=shape)


# R12: slices of a concatenation, and concatenations of slices


def _needless(draft: GraphDraft) -> Iterator[Match]:
    for name in draft.of_kind("concat"):
        row = draft.rows[name]
        if len(row.reads) > 1 and splitting.join_slices(draft, name) is not None:
            yield (name,)
        for reader in dict.fromkeys(reader for reader, _ in draft.readers.get(name, ())):
            if _direct_reads(draft, name, reader)[0]:
                yield name, reader


def _clean(draft: GraphDraft, match: Match) -> GraphDraft | None:
    """Return the draft in which a concatenation or a reader of one reads the concatenated tensors directly."""
    if len(match) == 1:
        return splitting.join_slices(draft, match[0])
    sources_of, remove = _direct_reads(draft, *match)
    row = draft.rows[match[1]]
    if slice_made(row.operator) is not None:
        return draft.replace(remove, redirect={match[1]: sources_of[0]})
    reads = [
        read._replace(producer=sources_of[i].producer, slice=sources_of[i].slice) if i in sources_of else read
        for i, read in enumerate(row.reads)
    ]
    return draft.replace(remove, [DraftRow(row.operator, reads)])


def _direct_reads(draft: GraphDraft, name: str, reader: str) -> tuple[dict[int, Source], list[str]]:
    """Return by input of a reader the direct source of its read of a concatenation, and the operators replaced.

    For a reader that is itself a slice, input 0 is its cut.
    """
    concat = draft.rows[name]
    row = draft.rows[reader]
    axis = splitting.axis_of_concat(concat.operator)
    pieces = dict[Slice | None, Source]()
    has_all = len(concat.reads) == len(concat.operator.input_shapes)  # else some pieces are inputs of the graph
    if axis is not None and has_all and splitting.only_copies(draft, concat):
        sizes = [shape[axis] for shape in concat.operator.input_shapes]
        for read, size, end in zip(concat.reads, sizes, accumulate(sizes), strict=True):
            pieces[axis, end - size, end] = read.source
    cuts = {i: read.source for i, read in enumerate(row.reads) if read.producer == name}
    is_slice = slice_made(row.operator) is not None
    if is_slice:
        if reader in draft.kept:
            cuts = {}
        else:
            cuts = {0: splitting.resolve_slices(draft, Read(reader))}
    sources_of = {i: pieces[cut.slice] for i, cut in cuts.items() if cut.producer == name and cut.slice in pieces}
    if is_slice and any(
        source.slice and not draft.can_be_sliced(reader, source.slice[0]) for source in sources_of.values()
    ):
        return {}, []
    if name in draft.kept or any(who != reader or i not in sources_of for who, i in draft.readers[name]):
        return sources_of, [reader]  # others still read the concatenation
    now_read = [source.producer for source in sources_of.values()]
    for read in concat.reads:
        inner = read.producer in draft.rows and read.producer not in draft.kept and read.producer not in now_read
        if inner and all(who == name for who, _ in draft.readers[read.producer]):
            return {}, []  # it would be computed without readers
    return sources_of, [reader, name]


RULES: Final[Mapping[str, Rule]] = MappingProxyType(
    {
        rule.name: rule
        for rule in (
            Rule("R1", partial(followers, kinds=_PRODUCTS, can=_takes_in), _with_epilogue),
            *RULES_OF_PRODUCTS,
            Rule("R11", _activations, _activated_together),
            Rule("R12", _needless, _clean),
            Rule("R13", partial(followers, kinds=_ELEMENTWISE, can=_can_chain), _chain),
        )
    }
)
"""The rules "R1" to "R13"."""
