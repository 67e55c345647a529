"""Rules that put an operator into the one before it: R1 and R13."""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from simsched.model.graph import DTYPE_NBYTES, Operator
from simsched.rewriting.convs import conv_of
from simsched.rewriting.draft import Draft
from simsched.rewriting.recipes import ATTRIBUTE, recipe_of
from simsched.rewriting.rows import Row
from simsched.rewriting.rule import ACTIVATIONS, Match, Substitution, sole_follower
from simsched.rewriting.works import REMEMBERED, made_from, tensor_nbytes

_PRODUCTS: Final = ("conv", "linear", "matmul")
_COMBINING: Final = ("add", "sub", "mul", "square")
FUSED: Final = "elementwise"
"""Kind of several elementwise operators in one: ``attributes["parts"]``, as those of a unit."""
_ELEMENTWISE: Final = (*ACTIVATIONS, *_COMBINING, "batch_norm", FUSED)


def _epilogues(draft: Draft) -> Iterator[Match]:
    for kind in _PRODUCTS:
        for name in draft.of_kind(kind):
            row = sole_follower(draft, name)
            if row is not None and _takes_in(draft.rows[name].operator, row):
                yield name, row.operator.name


def _takes_in(op: Operator, follower: Row) -> bool:
    then = follower.operator
    if "activation" in op.attributes or len(follower.reads) != 1 or then.dtype != op.dtype:
        return False
    if then.kind == "batch_norm":
        return "activation" not in then.attributes and conv_of(op) is not None and then.output_shape == op.output_shape
    return then.kind in ACTIVATIONS and not then.attributes and then.output_shape == op.output_shape


def _with_epilogue(draft: Draft, match: Match) -> Draft | None:
    name, last = match
    row = sole_follower(draft, name)
    first = draft.rows[name]
    if row is None or row.operator.name != last or not _takes_in(first.operator, row):
        return None
    return draft.replace(match, [Row(_fused(first.operator, row.operator), first.reads)])


@lru_cache(maxsize=REMEMBERED)
def _fused(op: Operator, then: Operator) -> Operator:
    """Return an operator with an activation or a normalisation in it."""
    attributes = {**op.attributes, ATTRIBUTE: recipe_of(op)}
    added = 0.0
    if then.kind == "batch_norm":
        attributes[ATTRIBUTE] = {"normalized": recipe_of(op), "by": recipe_of(then)}
        if "bias" in attributes:
            attributes["bias"] = True
        conv = conv_of(op)
        assert conv is not None
        width = DTYPE_NBYTES[op.dtype]
        if 0 < op.weight_nbytes <= conv.n_weights * width:  # it had no bias
            added = float(conv.out_channels * width)
    else:
        attributes["activation"] = then.kind
    assert op.output_shape is not None
    return made_from(
        (op, then),
        then.name,
        kind=op.kind,
        flops=op.flops,
        nbytes=op.nbytes + added,
        weight_nbytes=op.weight_nbytes + added,
        attributes=attributes,
        input_shapes=op.input_shapes,
        output_shape=op.output_shape,
        like=op,
    )


def _chains(draft: Draft) -> Iterator[Match]:
    for kind in _ELEMENTWISE:
        for name in draft.of_kind(kind):
            row = sole_follower(draft, name)
            if row is not None and _can_chain(draft.rows[name], row):
                yield name, row.operator.name


def _can_chain(first: Row, second: Row) -> bool:
    op, then = first.operator, second.operator
    if op.kind not in _ELEMENTWISE or then.kind not in _ELEMENTWISE or op.dtype != then.dtype:
        return False
    if not all("parts" in x.attributes for x in (op, then) if x.kind == FUSED):
        return False
    if any(shape != op.output_shape for shape in (*op.input_shapes, *then.input_shapes, then.output_shape)):
        return False  # one input is spread over the other
    # with an input of the network, which has no edge, nobody could tell which of several inputs it is
    return len(first.reads) == len(op.input_shapes) or len(second.reads) == 1


def _chained(draft: Draft, match: Match) -> Draft | None:
    name, last = match
    row = sole_follower(draft, name)
    first = draft.rows[name]
    if row is None or row.operator.name != last or not _can_chain(first, row):
        return None
    position = draft.readers[name][0][1]
    reads = (*row.reads[:position], *first.reads, *row.reads[position + 1 :])
    return draft.replace(match, [Row(_chain(first.operator, row.operator, position), reads)])


@lru_cache(maxsize=REMEMBERED)
def _chain(op: Operator, then: Operator, position: int) -> Operator:
    """Return the operator that does `then`, whose input `position` is what `op` writes, and `op` before it."""
    shape = op.output_shape
    assert shape is not None
    inputs = (*then.input_shapes[:position], *op.input_shapes, *then.input_shapes[position + 1 :])
    sums = all(
        x.kind == "add" and not (x.attributes or x.weight_nbytes) and len(x.input_shapes) > 1 for x in (op, then)
    )
    return made_from(
        (op, then),
        then.name,
        kind="add" if sums else FUSED,
        flops=op.flops + then.flops,
        nbytes=max(0.0, op.nbytes + then.nbytes - 2 * tensor_nbytes(shape, op.dtype)),
        weight_nbytes=op.weight_nbytes + then.weight_nbytes,
        attributes={} if sums else {"parts": _parts_of_chain(op, then, position)},
        input_shapes=inputs,
        output_shape=shape,
        like=then,
    )


def _parts_of_chain(op: Operator, then: Operator, position: int) -> list[dict[str, Any]]:
    first, second = _parts(op), _parts(then)
    n, n_inputs = len(first), len(op.input_shapes)

    def moved(reference: int) -> int:
        if reference >= 0:
            return reference + n
        i = ~reference
        return n - 1 if i == position else ~(i if i < position else i + n_inputs - 1)

    before = [{**part, "inputs": [r if r >= 0 else ~(~r + position) for r in part["inputs"]]} for part in first]
    return before + [{**part, "inputs": [moved(r) for r in part["inputs"]]} for part in second]


def _parts(op: Operator) -> Sequence[Mapping[str, Any]]:
    """Return the parts of an operator, or the one part that it is."""
    if op.kind == FUSED:
        found: Sequence[Mapping[str, Any]] = op.attributes["parts"]
        return found
    n = len(op.input_shapes)
    part = {"kind": op.kind, "inputs": [~i for i in range(n)], "output_shape": op.output_shape, **op.attributes}
    with_constant = n == 1 and op.kind in _COMBINING  # that is no input
    if op.kind == "batch_norm" or op.weight_nbytes or with_constant:
        part[ATTRIBUTE] = recipe_of(op)
    return [part]


R1 = Substitution("R1", "activation or normalization into the operator before it", _epilogues, _with_epilogue)
R13 = Substitution("R13", "elementwise operators in a row into one", _chains, _chained)
