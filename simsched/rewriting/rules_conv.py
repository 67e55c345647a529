"""Rules about convolutions and pools: R2 to R8."""

import json
from collections.abc import Iterator, Mapping
from math import prod
from typing import Final, NamedTuple

from simsched.model.graph import DTYPE_NBYTES, Operator
from simsched.rewriting.draft import Draft, Read, Row, Source
from simsched.rewriting.merging import Conv, conv_attributes, conv_of, merged_convs, why_not_alike
from simsched.rewriting.rule import SUMS, Match, Substitution, ends_in, ends_in_sum, pairs_in, pairs_that_end_in
from simsched.rewriting.slices import joined_shape, remembered
from simsched.rewriting.splitting import (
    in_order_of_concat,
    joined_inputs,
    new_name,
    operators,
    replace_behind,
    replace_behind_concat,
    replace_by_parts,
    sole_input,
)  # fmt: skip
from simsched.rewriting.works import (
    WEIGHTS,
    Shape,
    concat,
    copy_of,
    made_from,
    most_blocks,
    recipe_of,
    recipe_text,
    sum_of,
    tensor_nbytes,
    with_activation,
)  # fmt: skip

_BATCH: Final = 0
_CHANNELS: Final = 1
_FEWER: Final = 2  # groups become so many times fewer
_AVERAGES: Final = ("avg", "global_avg")


class _Found(NamedTuple):
    row: Row
    conv: Conv
    source: Source


def _convs(draft: Draft) -> Mapping[str, _Found]:
    """Return the convolutions whose input and sizes are known, by name."""
    return draft.about(_find_convs)


def _find_convs(draft: Draft) -> Mapping[str, _Found]:
    found = {}
    for name in draft.of_kind("conv"):
        row = draft.rows[name]
        conv = row.about(conv_of)
        source = None if conv is None else sole_input(draft, row)
        if conv is not None and source is not None:
            found[name] = _Found(row, conv, source)
    return found


def _two(draft: Draft, match: Match) -> tuple[_Found, _Found] | None:
    """Return two convolutions whose input and sizes are known."""
    convs = _convs(draft)
    known = match[0] != match[1] and match[0] in convs and match[1] in convs
    return (convs[match[0]], convs[match[1]]) if known else None


# R2 and R3: convolutions of one tensor


def _alike(draft: Draft) -> Iterator[Match]:
    return pairs_in(
        ((found.source, found.conv._replace(output_shape=())), name)
        for name, found in _convs(draft).items()
        if found.conv.groups == 1
    )


def _are_alike(draft: Draft, match: Match) -> bool:
    two = _two(draft, match)
    return two is not None and two[0].conv[:3] == two[1].conv[:3] and _can_be_merged(*two)


def _can_be_merged(first: _Found, second: _Found) -> bool:
    return first.source == second.source and why_not_alike((first.conv, second.conv)) is None


def _enlargeable(draft: Draft) -> Iterator[Match]:
    return pairs_in((found.source, name) for name, found in _convs(draft).items() if _keeps_size(found.conv))


def _can_be_enlarged(draft: Draft, match: Match) -> bool:
    two = _two(draft, match)
    if two is None or not all(_keeps_size(found.conv) for found in two):
        return False
    return _one_in_the_other(two[0].conv.kernel, two[1].conv.kernel) and _can_be_merged(*two)


def _keeps_size(conv: Conv) -> bool:
    """Say whether a convolution has an odd kernel, stride 1 and as many zeros around that the size stays."""
    if conv.groups != 1 or any(step != 1 for step in conv.stride):
        return False
    return all(k % 2 and p == k // 2 for k, p in zip(conv.kernel, conv.padding, strict=True))


def _one_in_the_other(first: Shape, second: Shape) -> bool:
    largest = tuple(map(max, first, second))
    return first != second and largest in (first, second)


def _merged(draft: Draft, match: Match) -> Draft | None:
    names = in_order_of_concat(draft, match, _CHANNELS)
    op = merged_convs(operators(draft, names), new_name(draft, "+".join(names)))
    return replace_by_parts(draft, names, Row(op, draft.rows[match[0]].reads), _CHANNELS)


# R4: convolutions with the same weights


def _over_images(found: _Found) -> tuple[str, Conv]:
    """Return the weights of a convolution, and what it does with an image of its batch."""
    conv = found.conv
    image = conv._replace(input_shape=conv.input_shape[1:], output_shape=conv.output_shape[1:])
    return found.row.about(recipe_text), image


def _sharing(draft: Draft) -> Iterator[Match]:
    return pairs_in((_over_images(found), name) for name, found in _convs(draft).items())


def _share_weights(draft: Draft, match: Match) -> bool:
    two = _two(draft, match)
    return two is not None and two[0].source != two[1].source and _over_images(two[0]) == _over_images(two[1])


def _batched(draft: Draft, match: Match) -> Draft | None:
    names = in_order_of_concat(draft, match, _BATCH)
    op = _over_batch(operators(draft, names), new_name(draft, "+".join(names)))
    return replace_behind_concat(draft, names, _BATCH, op)


@remembered
def _over_batch(ops: tuple[Operator, ...], name: str) -> Operator:
    shapes = [op.output_shape for op in ops if op.output_shape is not None]
    shared = ops[0].weight_nbytes
    return made_from(
        ops, name, nbytes=sum(op.nbytes for op in ops) - (len(ops) - 1) * shared, weight_nbytes=shared,
        attributes=conv_attributes(ops, **{WEIGHTS: recipe_of(ops[0])}),
        input_shapes=(joined_shape([op.input_shapes[0] for op in ops], _BATCH),),
        output_shape=joined_shape(shapes, _BATCH),
    )  # fmt: skip


# R5: convolutions side by side as groups of one


def _side_by_side(draft: Draft) -> Iterator[Match]:
    yield from pairs_that_end_in(draft, "concat")
    yield from pairs_in((found.conv, name) for name, found in _convs(draft).items() if _is_depthwise(found.conv))


def _is_depthwise(conv: Conv) -> bool:
    return conv.groups == conv.in_channels == conv.out_channels > 1


def _can_be_groups(draft: Draft, match: Match) -> bool:
    two = _two(draft, match)
    if two is None or two[0].conv != two[1].conv or two[0].source == two[1].source:
        return False
    if len(match) == 2:
        return _is_depthwise(two[0].conv)
    return ends_in(draft, match) and draft.rows[match[2]].operator.attributes.get("axis") == _CHANNELS


def _as_groups(draft: Draft, match: Match) -> Draft | None:
    names = in_order_of_concat(draft, match[:2], _CHANNELS)
    op = _grouped(operators(draft, names), new_name(draft, "+".join(names)))
    return replace_behind_concat(draft, names, _CHANNELS, op)


@remembered
def _grouped(ops: tuple[Operator, ...], name: str) -> Operator:
    conv = conv_of(ops[0])
    assert conv is not None
    n, (batch, channels, *image) = len(ops), conv.input_shape
    recipe = concat([*map(recipe_of, ops)], 0)
    return made_from(
        ops, name,
        attributes=conv_attributes(ops, groups=n * conv.groups, out_channels=n * conv.out_channels, weights=recipe),
        input_shapes=((batch, n * channels, *image),),
        output_shape=(batch, n * conv.out_channels, *conv.output_shape[2:]),
    )  # fmt: skip


# R6: a sum of convolutions


def _can_be_summed(draft: Draft, match: Match) -> bool:
    two = _two(draft, match)
    if two is None or not ends_in_sum(draft, match):
        return False
    first, second = (conv._replace(input_shape=conv.input_shape[:1] + conv.input_shape[2:]) for _, conv, _ in two)
    linear = first == second and first.activation is None and first.groups == 1
    return linear and two[0].source != two[1].source


def _over_both(draft: Draft, match: Match) -> Draft | None:
    op = _summed_convs(operators(draft, match[:2]), draft.rows[match[2]].operator)
    return replace_behind(draft, match, joined_inputs(draft, match[:2], _CHANNELS, op.name), op)


@remembered
def _summed_convs(ops: tuple[Operator, ...], total: Operator) -> Operator:
    convs = [conv for conv in map(conv_of, ops) if conv is not None]
    conv, shape = convs[0], convs[0].output_shape
    width = DTYPE_NBYTES[conv.dtype]
    biased = [op.weight_nbytes > each.n_weights * width for op, each in zip(ops, convs, strict=True)]
    twice = float(max(0, sum(biased) - 1) * conv.out_channels * width)
    return made_from(
        (*ops, total), total.name, flops=sum(op.flops for op in ops),
        nbytes=sum(op.nbytes for op in ops) - tensor_nbytes(shape, conv.dtype) - twice,
        weight_nbytes=sum(op.weight_nbytes for op in ops) - twice,
        attributes=with_activation(conv_attributes(ops, weights=concat([*map(recipe_of, ops)], 1)), total),
        input_shapes=((shape[0], sum(each.in_channels for each in convs), *conv.input_shape[2:]),),
        output_shape=shape, like=most_blocks(ops),
    )  # fmt: skip


# R7: a sum of average pools


def _can_pool_once(draft: Draft, match: Match) -> bool:
    first, second = (draft.rows[name] for name in match[:2])
    if not ends_in_sum(draft, match):
        return False
    sources = [sole_input(draft, row) for row in (first, second)]
    if None in sources or _average(first.operator) is None or _average(first.operator) != _average(second.operator):
        return False
    return sources[0] == sources[1] or "activation" not in draft.rows[match[2]].operator.attributes


@remembered
def _average(op: Operator) -> tuple[Shape, Shape, str, str] | None:
    """Return what tells average pools apart, or None of what is none."""
    if op.kind != "pool" or op.attributes.get("pool") not in _AVERAGES or op.output_shape is None:
        return None
    if len(op.input_shapes) != 1 or "activation" in op.attributes:
        return None
    return op.input_shapes[0], op.output_shape, op.dtype, json.dumps(dict(op.attributes), sort_keys=True)


def _pooled_once(draft: Draft, match: Match) -> Draft | None:
    """avg(x) + avg(x) is 2 avg(x), and avg(x) + avg(y) is avg(x + y)."""
    first, second, total = (draft.rows[name] for name in match)
    if sole_input(draft, first) == sole_input(draft, second):
        read = Read(match[0], None, total.reads[0].nbytes)
        return draft.replace(match[1:], [Row(_doubled(total.operator), (read,))])
    shape, out = first.operator.input_shapes[0], total.operator.output_shape
    flops = total.operator.flops * prod(shape) / prod(out or shape)
    inner = sum_of(total.operator, new_name(draft, f"{match[2]}.input"), shape, flops)
    before = Row(inner, (first.reads[0], second.reads[0]))
    return replace_behind(draft, match, before, _pool_for(first.operator, second.operator, total.operator))


@remembered
def _doubled(total: Operator) -> Operator:
    assert total.output_shape is not None
    return copy_of(
        (total,), total.name, kind="mul", attributes={"factor": 2.0, **total.attributes},
        input_shapes=total.input_shapes[:1], output_shape=total.output_shape, flops=total.flops,
    )  # fmt: skip


@remembered
def _pool_for(first: Operator, second: Operator, total: Operator) -> Operator:
    assert first.output_shape is not None
    return made_from(
        (first, second, total), total.name, flops=first.flops, nbytes=first.nbytes, weight_nbytes=0.0,
        attributes=first.attributes, input_shapes=first.input_shapes, output_shape=first.output_shape, like=first,
    )  # fmt: skip


# R8: fewer groups


def _has_groups(draft: Draft, match: Match) -> bool:
    """Say whether there are groups of more than one channel, an even number of them, and the rest is as in TASO."""
    if match[0] not in _convs(draft):
        return False
    conv = _convs(draft)[match[0]].conv
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
    recipe = {"ungrouped": recipe_of(op), "groups": [conv.groups, groups]}
    return made_from(
        (op,), op.name, flops=_FEWER * op.flops, nbytes=op.nbytes + zeros, weight_nbytes=op.weight_nbytes + zeros,
        attributes=conv_attributes((op,), groups=groups, weights=recipe), input_shapes=op.input_shapes,
        output_shape=conv.output_shape,
    )  # fmt: skip


R2 = Substitution("R2", _alike, _merged, _are_alike)
R3 = Substitution("R3", _enlargeable, _merged, _can_be_enlarged)
R4 = Substitution("R4", _sharing, _batched, _share_weights)
R5 = Substitution("R5", _side_by_side, _as_groups, _can_be_groups)
R6 = Substitution("R6", SUMS, _over_both, _can_be_summed)
R7 = Substitution("R7", SUMS, _pooled_once, _can_pool_once)
R8 = Substitution("R8", lambda draft: ((name,) for name in _convs(draft)), _fewer_groups, _has_groups)
