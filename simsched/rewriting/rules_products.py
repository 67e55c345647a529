"""Rules about convolutions, pools and products with a matrix of weights: R2 to R10."""

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from math import prod
from typing import Any, Final, NamedTuple, TypeVar

from simsched.model.graph import DTYPE_NBYTES, Operator
from simsched.rewriting import splitting, works
from simsched.rewriting.draft import DraftRow, GraphDraft, Read, Source
from simsched.rewriting.merging import Conv, are_alike, conv_attributes, conv_of, merged_convs
from simsched.rewriting.rule import Match, Rule, pairs_in, pairs_into

T = TypeVar("T")
_BATCH: Final = 0
_CHANNELS: Final = 1
_FEWER: Final = 2  # groups become so many times fewer
_FEATURES: Final = ("in_features", "out_features", "activation", "bias", works.WEIGHTS)


class Linear(NamedTuple):
    """A product of the last axis with weights; `rest` are the unknown attributes, as JSON."""

    lead: works.Shape
    in_features: int
    out_features: int
    bias: bool
    activation: str | None
    rest: str
    dtype: str

    @property
    def input_shape(self) -> works.Shape:
        """Shape of its input."""
        return (*self.lead, self.in_features)

    @property
    def output_shape(self) -> works.Shape:
        """Shape of its output."""
        return (*self.lead, self.out_features)

    def fields(self, ops: tuple[Operator, ...], weights: works.Recipe) -> dict[str, Any]:
        """Return its attributes and shapes as fields of an operator that replaces others."""
        sizes = {"in_features": self.in_features, "out_features": self.out_features, "bias": self.bias}
        attributes = {**ops[0].attributes, **sizes, works.WEIGHTS: weights}
        return {"attributes": attributes, "input_shapes": (self.input_shape,), "output_shape": self.output_shape}


def linear_of(op: Operator) -> Linear | None:
    """Return the product with weights that attributes describe; None if they do not, or its shapes do not agree."""
    if op.kind != "linear" or len(op.input_shapes) != 1 or not op.output_shape or not op.input_shapes[0]:
        return None
    (*lead, features), (*rows, outputs) = op.input_shapes[0], op.output_shape
    attributes = op.attributes
    if (
        lead != rows
        or attributes.get("in_features", features) != features
        or attributes.get("out_features", outputs) != outputs
    ):
        return None
    if not isinstance(attributes.get("activation", ""), str | None):
        return None
    rest = {key: value for key, value in attributes.items() if key not in _FEATURES}
    bias = attributes.get("bias", op.weight_nbytes > features * outputs * DTYPE_NBYTES[op.dtype])
    text = json.dumps(rest, sort_keys=True)
    return Linear(tuple(lead), features, outputs, bool(bias), attributes.get("activation"), text, op.dtype)


def _known_operators(
    draft: GraphDraft, kind: str, describe: Callable[[Operator], T | None]
) -> Mapping[str, tuple[T, Source]]:
    """Return the properties and reads of operators of a kind, by name, where both are known."""
    properties = {}
    for name in draft.of_kind(kind):
        row = draft.rows[name]
        what = describe(row.operator)
        source = splitting.sole_input(draft, row)
        if what is not None and source is not None:
            properties[name] = what, source
    return properties


def _convs(draft: GraphDraft) -> Mapping[str, tuple[Conv, Source]]:
    return draft.about(_known_operators, "conv", conv_of)


def _linears(draft: GraphDraft) -> Mapping[str, tuple[Linear, Source]]:
    return draft.about(_known_operators, "linear", linear_of)


def _read_apart(draft: GraphDraft, match: Match) -> bool:
    """Return whether two convolutions read different tensors."""
    return _convs(draft)[match[0]][1] != _convs(draft)[match[1]][1]


def _one_for_two(
    draft: GraphDraft, match: Match, axis: int, make: Callable[[tuple[Operator, ...], str], Operator]
) -> GraphDraft | None:
    """Return the draft in which one operator replaces two of one tensor, or two of tensors joined along the axis."""
    names = splitting.in_order_of_concat(draft, match[:2], axis)
    op = make(splitting.operators(draft, names), splitting.new_name(draft, "+".join(names)))
    reads, others = (draft.rows[name].reads for name in names)
    if reads[0].source == others[0].source:
        return splitting.replace_by_parts(draft, names, DraftRow(op, draft.rows[match[0]].reads), axis)
    return splitting.replace_behind(draft, names, splitting.joined_inputs(draft, names, axis, op.name), op, axis)


# R2 and R3: convolutions of one tensor


def _same_but_for_outputs(draft: GraphDraft) -> Iterator[Match]:
    convs = _convs(draft).items()
    return pairs_in({name: (x, conv._replace(output_shape=())) for name, (conv, x) in convs if conv.groups == 1})


def _one_in_the_other(draft: GraphDraft) -> Iterator[Match]:
    convs = _convs(draft)
    for match in pairs_in({name: source for name, (conv, source) in convs.items() if _keeps_size(conv)}):
        first, second = (convs[name][0] for name in match)
        largest = tuple(map(max, first.kernel, second.kernel))
        if first.kernel != second.kernel and largest in (first.kernel, second.kernel) and are_alike((first, second)):
            yield match


def _keeps_size(conv: Conv) -> bool:
    """Return whether a convolution has an odd kernel, stride 1 and the padding that keeps the size."""
    if conv.groups != 1 or any(step != 1 for step in conv.stride):
        return False
    return all(k % 2 and p == k // 2 for k, p in zip(conv.kernel, conv.padding, strict=True))


# R4: convolutions with the same weights


def _same_weights(draft: GraphDraft) -> Iterator[Match]:
    keys = {
        name: (
            json.dumps(works.recipe_of(draft.rows[name].operator), sort_keys=True),
            conv._replace(input_shape=conv.input_shape[1:], output_shape=conv.output_shape[1:]),
        )
        for name, (conv, _) in _convs(draft).items()
    }
    return (match for match in pairs_in(keys) if _read_apart(draft, match))


def _over_batch(ops: tuple[Operator, ...], name: str) -> Operator:
    shared = ops[0].weight_nbytes
    return works.made_from(
        ops,
        name,
        nbytes=sum(op.nbytes for op in ops) - (len(ops) - 1) * shared,
        weight_nbytes=shared,
        attributes=conv_attributes(ops, **{works.WEIGHTS: works.recipe_of(ops[0])}),
        input_shapes=(works.joined_shape([op.input_shapes[0] for op in ops], _BATCH),),
        output_shape=works.joined_shape([*map(works.shape_of, ops)], _BATCH),
    )


# R5: convolutions side by side as groups of one


def _side_by_side(draft: GraphDraft) -> Iterator[Match]:
    convs = _convs(draft)
    for first, second, join in pairs_into(draft, "concat"):
        alike = first in convs and second in convs and convs[first][0] == convs[second][0]
        along_channels = draft.rows[join].operator.attributes.get("axis") == _CHANNELS
        if alike and along_channels and _read_apart(draft, (first, second)):
            yield first, second, join
    depthwise = {
        name: conv for name, (conv, _) in convs.items() if conv.groups == conv.in_channels == conv.out_channels > 1
    }
    yield from (match for match in pairs_in(depthwise) if _read_apart(draft, match))


def _group(ops: tuple[Operator, ...], name: str) -> Operator:
    conv = conv_of(ops[0])
    assert conv is not None
    n = len(ops)
    (batch, channels, *image) = conv.input_shape
    recipe = works.stack(ops, 0)
    return works.made_from(
        ops,
        name,
        attributes=conv_attributes(ops, groups=n * conv.groups, out_channels=n * conv.out_channels, weights=recipe),
        input_shapes=((batch, n * channels, *image),),
        output_shape=(batch, n * conv.out_channels, *conv.output_shape[2:]),
    )


# R6, R7 and R10: sums


def _sums_of(draft: GraphDraft, known: Mapping[str, T]) -> Iterator[tuple[Match, T, T]]:
    """Yield sums of two known operators, of one shape and with nothing done to it but an activation, and these."""
    for first, second, name in pairs_into(draft, "add"):
        op = draft.rows[name].operator
        plain = len(op.input_shapes) == 2 and not op.weight_nbytes and set(op.attributes) <= {"activation"}
        if plain and first in known and second in known and all(shape == op.output_shape for shape in op.input_shapes):
            yield (first, second, name), known[first], known[second]


def _sums_of_convs(draft: GraphDraft) -> Iterator[Match]:
    for match, (first, x), (second, y) in _sums_of(draft, _convs(draft)):
        shape = (*second.input_shape[:1], first.in_channels, *second.input_shape[2:])
        alike = first == second._replace(input_shape=shape)
        if alike and x != y and first.activation is None and first.groups == 1:
            yield match


def _over_both(draft: GraphDraft, match: Match) -> GraphDraft | None:
    """Return conv([x, y], [v, w]) for conv(x, v) + conv(y, w)."""
    ops = splitting.operators(draft, match[:2])
    total = draft.rows[match[2]].operator
    convs = [_convs(draft)[name][0] for name in match[:2]]
    conv = convs[0]
    shape = convs[0].output_shape
    width = DTYPE_NBYTES[conv.dtype]
    biased = [op.weight_nbytes > one.n_weights * width for op, one in zip(ops, convs, strict=True)]
    twice = float(max(0, sum(biased) - 1) * conv.out_channels * width)
    op = works.made_from_sum(
        ops,
        total,
        flops=sum(op.flops for op in ops),
        nbytes=sum(op.nbytes for op in ops) - works.tensor_nbytes(shape, conv.dtype) - twice,
        weight_nbytes=sum(op.weight_nbytes for op in ops) - twice,
        attributes=conv_attributes(ops, weights=works.stack(ops, 1)),
        input_shapes=((shape[0], sum(one.in_channels for one in convs), *conv.input_shape[2:]),),
        output_shape=shape,
    )
    return splitting.replace_behind(draft, match, splitting.joined_inputs(draft, match[:2], _CHANNELS, op.name), op)


def _average(op: Operator) -> tuple[works.Shape, works.Shape, str, str] | None:
    """Return a key of an average pool, or None for anything else."""
    if op.kind != "pool" or op.attributes.get("pool") not in ("avg", "global_avg") or op.output_shape is None:
        return None
    if len(op.input_shapes) != 1 or "activation" in op.attributes:
        return None
    return op.input_shapes[0], op.output_shape, op.dtype, json.dumps(dict(op.attributes), sort_keys=True)


def _sums_of_pools(draft: GraphDraft) -> Iterator[Match]:
    for match, (first, x), (second, y) in _sums_of(draft, _known_operators(draft, "pool", _average)):
        if first == second and (x == y or "activation" not in draft.rows[match[2]].operator.attributes):
            yield match


def _pooled_once(draft: GraphDraft, match: Match) -> GraphDraft | None:
    """Return 2 avg(x) for avg(x) + avg(x), and avg(x + y) for avg(x) + avg(y)."""
    rows = [draft.rows[name] for name in match]
    first, second, total = (row.operator for row in rows)
    if splitting.sole_input(draft, rows[0]) == splitting.sole_input(draft, rows[1]):
        doubled = works.copy_of(
            (total,),
            total.name,
            kind="mul",
            attributes={"factor": 2.0, **total.attributes},
            input_shapes=total.input_shapes[:1],
            output_shape=works.shape_of(total),
            flops=total.flops,
        )
        return draft.replace(match[1:], [DraftRow(doubled, [Read(first.name, None, rows[2].reads[0].nbytes)])])
    pool = works.made_from(
        (first, second, total),
        total.name,
        flops=first.flops,
        nbytes=first.nbytes,
        weight_nbytes=0.0,
        attributes=first.attributes,
        input_shapes=first.input_shapes,
        output_shape=works.shape_of(first),
        like=first,
    )
    shape = first.input_shapes[0]
    flops = total.flops * prod(shape) / prod(works.shape_of(total))
    return splitting.replace_behind(draft, match, splitting.summed_inputs(draft, match, shape, flops), pool)


def _sums_of_products(draft: GraphDraft) -> Iterator[Match]:
    for match, (first, _), (second, _) in _sums_of(draft, _linears(draft)):
        alike = first == second._replace(in_features=first.in_features, bias=first.bias)
        if alike and first.activation is None:
            yield match


def _sum(draft: GraphDraft, match: Match) -> GraphDraft | None:
    """Return x (w1 + w2) for x w1 + x w2, (x + y) w for x w + y w, and else one product of both side by side."""
    ops = splitting.operators(draft, match[:2])
    total = draft.rows[match[2]].operator
    (first, x), (second, y) = (_linears(draft)[name] for name in match[:2])
    recipes = [works.recipe_of(op) for op in ops]
    biased = first.bias or second.bias

    def product(whole: Linear, flops: float, weight_nbytes: float, recipe: works.Recipe) -> Operator:
        read, written = (works.tensor_nbytes(shape, whole.dtype) for shape in (whole.input_shape, whole.output_shape))
        fields = whole.fields(ops, recipe)
        nbytes = read + written + weight_nbytes
        return works.made_from_sum(ops, total, flops=flops, nbytes=nbytes, weight_nbytes=weight_nbytes, **fields)

    if x == y:
        weight_nbytes = max(op.weight_nbytes for op in ops)
        op = product(first._replace(bias=biased), max(op.flops for op in ops), weight_nbytes, {"sum": recipes})
        return draft.replace(match, [DraftRow(op, draft.rows[match[0]].reads)])
    if recipes[0] == recipes[1] and first.in_features == second.in_features:
        recipe = {"bias": recipes[0], "times": 2} if first.bias else recipes[0]
        flops = total.flops * first.in_features / first.out_features
        before = splitting.summed_inputs(draft, match, first.input_shape, flops)
        op = product(first, ops[0].flops, ops[0].weight_nbytes, recipe)
        return splitting.replace_behind(draft, match, before, op)
    whole = first._replace(in_features=first.in_features + second.in_features, bias=biased)
    if first.bias and second.bias:
        twice = float(first.out_features * DTYPE_NBYTES[first.dtype])
    else:
        twice = 0.0
    weight_nbytes = max(0.0, sum(op.weight_nbytes for op in ops) - twice)
    op = product(whole, sum(op.flops for op in ops), weight_nbytes, works.stack(ops, 1))
    before = splitting.joined_inputs(draft, match[:2], len(first.lead), op.name)
    return splitting.replace_behind(draft, match, before, op)


# R8: fewer groups


def _in_groups(draft: GraphDraft) -> Iterator[Match]:
    """Yield convolutions of an even number of groups of more than one channel, the rest as in TASO."""
    for name, (conv, _) in _convs(draft).items():
        even = conv.groups % _FEWER == 0 and conv.in_channels != conv.groups
        if even and set(conv.stride) in ({1}, {2}) and conv.activation in (None, "relu"):
            yield (name,)


def _fewer_groups(draft: GraphDraft, match: Match) -> GraphDraft | None:
    row = draft.rows[match[0]]
    (conv, _) = _convs(draft)[match[0]]
    op = row.operator
    groups = conv.groups // _FEWER
    if op.weight_nbytes:
        zeros = float((_FEWER - 1) * conv.n_weights * DTYPE_NBYTES[op.dtype])
    else:
        zeros = 0.0
    recipe = {"ungrouped": works.recipe_of(op), "groups": [conv.groups, groups]}
    operator = works.made_from(
        (op,),
        op.name,
        flops=_FEWER * op.flops,
        nbytes=op.nbytes + zeros,
        weight_nbytes=op.weight_nbytes + zeros,
        attributes=conv_attributes((op,), groups=groups, weights=recipe),
        input_shapes=op.input_shapes,
        output_shape=conv.output_shape,
    )
    return draft.replace(match, [DraftRow(operator, row.reads)])


# R9: products of one tensor


def _products_of_one(draft: GraphDraft) -> Iterator[Match]:
    linears = _linears(draft).items()
    return pairs_in({name: (source, linear._replace(out_features=0, bias=False)) for name, (linear, source) in linears})


def _wider(draft: GraphDraft, match: Match) -> GraphDraft | None:
    return _one_for_two(draft, match, len(draft.rows[match[0]].operator.input_shapes[0]) - 1, _concatenate)


def _concatenate(ops: tuple[Operator, ...], name: str) -> Operator:
    linears = [linear for linear in map(linear_of, ops) if linear is not None]
    biased = any(linear.bias for linear in linears)
    whole = linears[0]._replace(out_features=sum(linear.out_features for linear in linears), bias=biased)
    without = [not linear.bias and op.weight_nbytes > 0 for op, linear in zip(ops, linears, strict=True)]
    added = sum(linear.out_features for linear, lacks in zip(linears, without, strict=True) if biased and lacks)
    zeros = float(added * DTYPE_NBYTES[whole.dtype])
    read = works.tensor_nbytes(whole.input_shape, whole.dtype)
    return works.made_from(
        ops,
        name,
        nbytes=sum(op.nbytes for op in ops) - (len(ops) - 1) * read + zeros,
        weight_nbytes=sum(op.weight_nbytes for op in ops) + zeros,
        **whole.fields(ops, works.stack(ops, 0)),
    )


RULES_OF_PRODUCTS: Final = (
    Rule("R2", _same_but_for_outputs, partial(_one_for_two, axis=_CHANNELS, make=merged_convs)),
    Rule("R3", _one_in_the_other, partial(_one_for_two, axis=_CHANNELS, make=merged_convs)),
    Rule("R4", _same_weights, partial(_one_for_two, axis=_BATCH, make=_over_batch)),
    Rule("R5", _side_by_side, partial(_one_for_two, axis=_CHANNELS, make=_group)),
    Rule("R6", _sums_of_convs, _over_both),
    Rule("R7", _sums_of_pools, _pooled_once),
    Rule("R8", _in_groups, _fewer_groups),
    Rule("R9", _products_of_one, _wider),
    Rule("R10", _sums_of_products, _sum),
)
