"""Rules about convolutions, pools and products with a matrix of weights: R2 to R10."""

import json
from collections.abc import Callable, Hashable, Iterator, Mapping
from functools import partial
from math import prod
from typing import Any, Final, NamedTuple, TypeVar

from simsched.model.graph import DTYPE_NBYTES, Operator
from simsched.rewriting import splitting, works
from simsched.rewriting.draft import Draft, Read, Row, Source
from simsched.rewriting.merging import Conv, conv_attributes, conv_of, merged_convs, why_not_alike
from simsched.rewriting.rule import SUMS, Match, Substitution, alike, ends_in, ends_in_sum, pairs_in, pairs_into, two_of
from simsched.rewriting.slices import joined_shape, remembered

T = TypeVar("T")
_BATCH: Final = 0
_CHANNELS: Final = 1
_FEWER: Final = 2  # groups become so many times fewer
_AVERAGES: Final = ("avg", "global_avg")
_FEATURES: Final = ("in_features", "out_features", "activation", "bias", works.WEIGHTS)


class Linear(NamedTuple):
    """A product of the last axis with weights; `rest` are the attributes that are not known here, as JSON."""

    lead: works.Shape
    in_features: int
    out_features: int
    bias: bool
    activation: str | None
    rest: str
    dtype: str

    @property
    def input_shape(self) -> works.Shape:
        """Shape of what it reads."""
        return (*self.lead, self.in_features)

    @property
    def output_shape(self) -> works.Shape:
        """Shape of what it writes."""
        return (*self.lead, self.out_features)


@remembered
def linear_of(op: Operator) -> Linear | None:
    """Return what the attributes of a product with weights say; None if it is none or its shapes do not agree."""
    if op.kind != "linear" or len(op.input_shapes) != 1 or not op.output_shape or not op.input_shapes[0]:
        return None
    (*lead, features), (*rows, outputs) = op.input_shapes[0], op.output_shape
    given = op.attributes
    if lead != rows or given.get("in_features", features) != features or given.get("out_features", outputs) != outputs:
        return None
    if not isinstance(given.get("activation", ""), str | None):
        return None
    rest = {key: value for key, value in given.items() if key not in _FEATURES}
    bias = given.get("bias", op.weight_nbytes > features * outputs * DTYPE_NBYTES[op.dtype])
    text = json.dumps(rest, sort_keys=True)
    return Linear(tuple(lead), features, outputs, bool(bias), given.get("activation"), text, op.dtype)


def _known(draft: Draft, kind: str, describe: Callable[[Operator], T | None]) -> dict[str, tuple[T, Source]]:
    """Return what operators of a kind are and where they read, by name, of those of which both are known."""
    found = {}
    for name in draft.of_kind(kind):
        row = draft.rows[name]
        what = row.about(describe)
        source = None if what is None else splitting.sole_input(draft, row)
        if what is not None and source is not None:
            found[name] = what, source
    return found


_CONVS: Final = partial(_known, kind="conv", describe=conv_of)
_LINEARS: Final = partial(_known, kind="linear", describe=linear_of)


def _convs(draft: Draft) -> Mapping[str, tuple[Conv, Source]]:
    return draft.about(_CONVS)


def _linears(draft: Draft) -> Mapping[str, tuple[Linear, Source]]:
    return draft.about(_LINEARS)


def _read_apart(draft: Draft, match: Match) -> bool:
    """Say whether two convolutions read different tensors."""
    return _convs(draft)[match[0]][1] != _convs(draft)[match[1]][1]


Made = Callable[[tuple[Operator, ...], str], Operator]


def _one_for_two(draft: Draft, match: Match, axis: int, make: Made) -> tuple[Match, Operator]:
    """Return two operators as a concatenation along an axis reads them, and the one that stands for them."""
    names = splitting.in_order_of_concat(draft, match[:2], axis)
    return names, make(splitting.operators(draft, names), splitting.new_name(draft, "+".join(names)))


def _of_one_tensor(draft: Draft, match: Match, axis: int, make: Made) -> Draft | None:
    names, op = _one_for_two(draft, match, axis, make)
    return splitting.replace_by_parts(draft, names, Row(op, draft.rows[match[0]].reads), axis)


def _of_two_tensors(draft: Draft, match: Match, axis: int, make: Made) -> Draft | None:
    names, op = _one_for_two(draft, match, axis, make)
    return splitting.replace_behind_concat(draft, names, axis, op)


# R2 and R3: convolutions of one tensor


def _by_input_and_kernel(draft: Draft) -> Mapping[str, Hashable]:
    rows, convs = draft.rows, _convs(draft).items()
    return {name: (source, rows[name].about(_window)) for name, (conv, source) in convs if conv.groups == 1}


def _window(op: Operator) -> Conv | None:
    """Return what a convolution does, whatever its output channels."""
    conv = conv_of(op)
    return conv and conv._replace(output_shape=())


def _by_input(draft: Draft) -> Mapping[str, Hashable]:
    return {name: source for name, (conv, source) in _convs(draft).items() if _keeps_size(conv)}


def _keeps_size(conv: Conv) -> bool:
    """Say whether a convolution has an odd kernel, stride 1 and as many zeros around that the size stays."""
    if conv.groups != 1 or any(step != 1 for step in conv.stride):
        return False
    return all(k % 2 and p == k // 2 for k, p in zip(conv.kernel, conv.padding, strict=True))


def _one_in_the_other(draft: Draft, match: Match) -> bool:
    first, second = (_convs(draft)[name][0] for name in match)
    largest = tuple(map(max, first.kernel, second.kernel))
    differ = first.kernel != second.kernel and largest in (first.kernel, second.kernel)
    return differ and why_not_alike((first, second)) is None


# R4: convolutions with the same weights


def _by_weights(draft: Draft) -> Mapping[str, Hashable]:
    rows = draft.rows
    return {name: (rows[name].about(works.recipe_text), rows[name].about(_over_images)) for name in _convs(draft)}


def _over_images(op: Operator) -> Conv | None:
    """Return what a convolution does with an image of its batch."""
    conv = conv_of(op)
    return conv and conv._replace(input_shape=conv.input_shape[1:], output_shape=conv.output_shape[1:])


@remembered
def _over_batch(ops: tuple[Operator, ...], name: str) -> Operator:
    shared = ops[0].weight_nbytes
    return works.made_from(
        ops, name, nbytes=sum(op.nbytes for op in ops) - (len(ops) - 1) * shared, weight_nbytes=shared,
        attributes=conv_attributes(ops, **{works.WEIGHTS: works.recipe_of(ops[0])}),
        input_shapes=(joined_shape([op.input_shapes[0] for op in ops], _BATCH),),
        output_shape=joined_shape([*map(works.shape_of, ops)], _BATCH),
    )  # fmt: skip


# R5: convolutions side by side as groups of one


def _side_by_side(draft: Draft) -> Iterator[Match]:
    yield from pairs_into(draft, "concat")
    yield from pairs_in({name: conv for name, (conv, _) in _convs(draft).items() if _is_depthwise(conv)})


def _is_depthwise(conv: Conv) -> bool:
    return conv.groups == conv.in_channels == conv.out_channels > 1


def _can_be_groups(draft: Draft, match: Match) -> bool:
    two = two_of(_convs(draft), match)
    if two is None or two[0][0] != two[1][0] or not _read_apart(draft, match):
        return False
    if len(match) == 2:
        return _is_depthwise(two[0][0])
    return ends_in(draft, match) and draft.rows[match[2]].operator.attributes.get("axis") == _CHANNELS


@remembered
def _grouped(ops: tuple[Operator, ...], name: str) -> Operator:
    conv = conv_of(ops[0])
    assert conv is not None
    n, (batch, channels, *image) = len(ops), conv.input_shape
    recipe = works.stacked(ops, 0)
    return works.made_from(
        ops, name,
        attributes=conv_attributes(ops, groups=n * conv.groups, out_channels=n * conv.out_channels, weights=recipe),
        input_shapes=((batch, n * channels, *image),),
        output_shape=(batch, n * conv.out_channels, *conv.output_shape[2:]),
    )  # fmt: skip


# R6: a sum of convolutions


def _can_add_convs(draft: Draft, match: Match) -> bool:
    two = two_of(_convs(draft), match)
    if two is None or not ends_in_sum(draft, match):
        return False
    first, second = (conv._replace(input_shape=conv.input_shape[:1] + conv.input_shape[2:]) for conv, _ in two)
    return first == second and first.activation is None and first.groups == 1 and _read_apart(draft, match)


def _over_both(draft: Draft, match: Match) -> Draft | None:
    op = _summed_convs(splitting.operators(draft, match[:2]), draft.rows[match[2]].operator)
    return splitting.replace_behind(draft, match, splitting.joined_inputs(draft, match[:2], _CHANNELS, op.name), op)


@remembered
def _summed_convs(ops: tuple[Operator, ...], total: Operator) -> Operator:
    convs = [conv for conv in map(conv_of, ops) if conv is not None]
    conv, shape = convs[0], convs[0].output_shape
    width = DTYPE_NBYTES[conv.dtype]
    biased = [op.weight_nbytes > each.n_weights * width for op, each in zip(ops, convs, strict=True)]
    twice = float(max(0, sum(biased) - 1) * conv.out_channels * width)
    return works.made_from_sum(
        ops, total, flops=sum(op.flops for op in ops),
        nbytes=sum(op.nbytes for op in ops) - works.tensor_nbytes(shape, conv.dtype) - twice,
        weight_nbytes=sum(op.weight_nbytes for op in ops) - twice,
        attributes=conv_attributes(ops, weights=works.stacked(ops, 1)),
        input_shapes=((shape[0], sum(each.in_channels for each in convs), *conv.input_shape[2:]),), output_shape=shape,
    )  # fmt: skip


# R7: a sum of average pools


def _can_pool_once(draft: Draft, match: Match) -> bool:
    first, second = (draft.rows[name] for name in match[:2])
    if not ends_in_sum(draft, match):
        return False
    sources = [splitting.sole_input(draft, row) for row in (first, second)]
    if None in sources or _average(first.operator) is None or _average(first.operator) != _average(second.operator):
        return False
    return sources[0] == sources[1] or "activation" not in draft.rows[match[2]].operator.attributes


@remembered
def _average(op: Operator) -> tuple[works.Shape, works.Shape, str, str] | None:
    """Return what tells average pools apart, or None of what is none."""
    if op.kind != "pool" or op.attributes.get("pool") not in _AVERAGES or op.output_shape is None:
        return None
    if len(op.input_shapes) != 1 or "activation" in op.attributes:
        return None
    return op.input_shapes[0], op.output_shape, op.dtype, json.dumps(dict(op.attributes), sort_keys=True)


def _pooled_once(draft: Draft, match: Match) -> Draft | None:
    """avg(x) + avg(x) is 2 avg(x), and avg(x) + avg(y) is avg(x + y)."""
    first, second, total = (draft.rows[name] for name in match)
    if splitting.sole_input(draft, first) == splitting.sole_input(draft, second):
        read = Read(match[0], None, total.reads[0].nbytes)
        return draft.replace(match[1:], [Row(_doubled(total.operator), (read,))])
    shape = first.operator.input_shapes[0]
    flops = total.operator.flops * prod(shape) / prod(works.shape_of(total.operator))
    inner = works.sum_of(total.operator, splitting.new_name(draft, f"{match[2]}.input"), shape, flops)
    before = Row(inner, (first.reads[0], second.reads[0]))
    return splitting.replace_behind(draft, match, before, _pool_for(first.operator, second.operator, total.operator))


@remembered
def _doubled(total: Operator) -> Operator:
    return works.copy_of(
        (total,), total.name, kind="mul", attributes={"factor": 2.0, **total.attributes},
        input_shapes=total.input_shapes[:1], output_shape=works.shape_of(total), flops=total.flops,
    )  # fmt: skip


@remembered
def _pool_for(first: Operator, second: Operator, total: Operator) -> Operator:
    return works.made_from(
        (first, second, total), total.name, flops=first.flops, nbytes=first.nbytes, weight_nbytes=0.0,
        attributes=first.attributes, input_shapes=first.input_shapes, output_shape=works.shape_of(first), like=first,
    )  # fmt: skip


# R8: fewer groups


def _has_groups(draft: Draft, match: Match) -> bool:
    """Say whether there are groups of more than one channel, an even number of them, and the rest is as in TASO."""
    if match[0] not in _convs(draft):
        return False
    conv, _ = _convs(draft)[match[0]]
    if conv.groups % _FEWER or conv.in_channels == conv.groups or len(set(conv.stride)) != 1:
        return False
    return conv.stride[0] in (1, 2) and conv.activation in (None, "relu")


def _fewer_groups(draft: Draft, match: Match) -> Draft | None:
    row = draft.rows[match[0]]
    return draft.replace(match, [Row(_regrouped(row.operator), row.reads)])


@remembered
def _regrouped(op: Operator) -> Operator:
    conv = conv_of(op)
    assert conv is not None
    groups = conv.groups // _FEWER
    zeros = float((_FEWER - 1) * conv.n_weights * DTYPE_NBYTES[op.dtype]) if op.weight_nbytes else 0.0
    recipe = {"ungrouped": works.recipe_of(op), "groups": [conv.groups, groups]}
    return works.made_from(
        (op,), op.name, flops=_FEWER * op.flops, nbytes=op.nbytes + zeros, weight_nbytes=op.weight_nbytes + zeros,
        attributes=conv_attributes((op,), groups=groups, weights=recipe), input_shapes=op.input_shapes,
        output_shape=conv.output_shape,
    )  # fmt: skip


# R9: products of one tensor


def _attributes(ops: tuple[Operator, ...], linear: Linear, **changed: Any) -> dict[str, Any]:
    sizes = {"in_features": linear.in_features, "out_features": linear.out_features, "bias": linear.bias}
    return {**ops[0].attributes, **sizes, **changed}


def _by_input_of_products(draft: Draft) -> Mapping[str, Hashable]:
    linears = _linears(draft).items()
    return {name: (source, linear._replace(out_features=0, bias=False)) for name, (linear, source) in linears}


def _wider(draft: Draft, match: Match) -> Draft | None:
    return _of_one_tensor(draft, match, len(draft.rows[match[0]].operator.input_shapes[0]) - 1, _concatenated)


@remembered
def _concatenated(ops: tuple[Operator, ...], name: str) -> Operator:
    found = _linears_of(ops)
    biased = any(linear.bias for linear in found)
    whole = found[0]._replace(out_features=sum(linear.out_features for linear in found), bias=biased)
    without = [not linear.bias and op.weight_nbytes > 0 for op, linear in zip(ops, found, strict=True)]
    added = sum(linear.out_features for linear, lacks in zip(found, without, strict=True) if biased and lacks)
    zeros = float(added * DTYPE_NBYTES[whole.dtype])
    read = works.tensor_nbytes(whole.input_shape, whole.dtype)
    return works.made_from(
        ops, name, nbytes=sum(op.nbytes for op in ops) - (len(ops) - 1) * read + zeros,
        weight_nbytes=sum(op.weight_nbytes for op in ops) + zeros,
        attributes=_attributes(ops, whole, weights=works.stacked(ops, 0)),
        input_shapes=(whole.input_shape,), output_shape=whole.output_shape,
    )  # fmt: skip


# R10: a sum of products


def _can_add_products(draft: Draft, match: Match) -> bool:
    two = two_of(_linears(draft), match)
    if two is None or not ends_in_sum(draft, match):
        return False
    first, second = (linear._replace(in_features=0, bias=False) for linear, _ in two)
    return first == second and first.activation is None


def _summed(draft: Draft, match: Match) -> Draft | None:
    """X w1 + x w2 is x (w1 + w2), x w + y w is (x + y) w, and else x w1 + y w2 is one product of both side by side."""
    first, second = (draft.rows[name] for name in match[:2])
    ops, total = splitting.operators(draft, match[:2]), draft.rows[match[2]].operator
    if splitting.sole_input(draft, first) == splitting.sole_input(draft, second):
        return draft.replace(match, [Row(_with_summed_weights(ops, total), first.reads)])
    linear = _linears_of(ops)[0]
    if works.recipe_of(ops[0]) == works.recipe_of(ops[1]) and ops[0].input_shapes == ops[1].input_shapes:
        op = _of_sum(ops, total)
        flops = total.flops * linear.in_features / linear.out_features
        inner = works.sum_of(total, splitting.new_name(draft, f"{op.name}.input"), linear.input_shape, flops)
        return splitting.replace_behind(draft, match, Row(inner, (first.reads[0], second.reads[0])), op)
    op = _of_both(ops, total)
    return splitting.replace_behind(
        draft, match, splitting.joined_inputs(draft, match[:2], len(linear.lead), op.name), op
    )


def _product_of_sum(
    ops: tuple[Operator, ...], total: Operator, whole: Linear, flops: float, weight_nbytes: float, recipe: Any
) -> Operator:
    """Return the product that stands for two and their sum; it reads its input and weights and writes the sum."""
    moved = works.tensor_nbytes(whole.input_shape, whole.dtype) + works.tensor_nbytes(whole.output_shape, whole.dtype)
    return works.made_from_sum(
        ops, total, flops=flops, nbytes=moved + weight_nbytes, weight_nbytes=weight_nbytes,
        attributes=_attributes(ops, whole, weights=recipe), input_shapes=(whole.input_shape,),
        output_shape=whole.output_shape,
    )  # fmt: skip


def _linears_of(ops: tuple[Operator, ...]) -> list[Linear]:
    return [linear for linear in map(linear_of, ops) if linear is not None]


@remembered
def _with_summed_weights(ops: tuple[Operator, ...], total: Operator) -> Operator:
    first, second = _linears_of(ops)
    recipe = {"sum": [works.recipe_of(op) for op in ops]}
    whole = first._replace(bias=first.bias or second.bias)
    return _product_of_sum(ops, total, whole, max(op.flops for op in ops), max(op.weight_nbytes for op in ops), recipe)


@remembered
def _of_sum(ops: tuple[Operator, ...], total: Operator) -> Operator:
    first, _ = _linears_of(ops)
    recipe = {"bias": works.recipe_of(ops[0]), "times": 2} if first.bias else works.recipe_of(ops[0])
    return _product_of_sum(ops, total, first, ops[0].flops, ops[0].weight_nbytes, recipe)


@remembered
def _of_both(ops: tuple[Operator, ...], total: Operator) -> Operator:
    first, second = _linears_of(ops)
    whole = first._replace(in_features=first.in_features + second.in_features, bias=first.bias or second.bias)
    twice = float(first.out_features * DTYPE_NBYTES[first.dtype]) if first.bias and second.bias else 0.0
    weights = max(0.0, sum(op.weight_nbytes for op in ops) - twice)
    return _product_of_sum(ops, total, whole, sum(op.flops for op in ops), weights, works.stacked(ops, 1))


R2 = alike("R2", _by_input_and_kernel, partial(_of_one_tensor, axis=_CHANNELS, make=merged_convs))
R3 = alike("R3", _by_input, partial(_of_one_tensor, axis=_CHANNELS, make=merged_convs), _one_in_the_other)
R4 = alike("R4", _by_weights, partial(_of_two_tensors, axis=_BATCH, make=_over_batch), _read_apart)
R5 = Substitution("R5", _side_by_side, partial(_of_two_tensors, axis=_CHANNELS, make=_grouped), _can_be_groups)
R6 = Substitution("R6", SUMS, _over_both, _can_add_convs)
R7 = Substitution("R7", SUMS, _pooled_once, _can_pool_once)
R8 = Substitution("R8", lambda draft: ((name,) for name in _convs(draft)), _fewer_groups, _has_groups)
R9 = alike("R9", _by_input_of_products, _wider)
R10 = Substitution("R10", SUMS, _summed, _can_add_products)
