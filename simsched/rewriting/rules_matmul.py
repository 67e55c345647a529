"""Rules that make one product with a matrix of weights of two: R9 and R10."""

import json
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from simsched.model.graph import DTYPE_NBYTES, Operator
from simsched.rewriting.draft import Draft, Row
from simsched.rewriting.rule import SUMS, Match, Substitution, ends_in_sum, pairs_in
from simsched.rewriting.slices import remembered
from simsched.rewriting.splitting import (
    in_order_of_concat,
    joined_inputs,
    new_name,
    operators,
    replace_behind,
    replace_by_parts,
    sole_input,
)  # fmt: skip
from simsched.rewriting.works import (
    WEIGHTS,
    Shape,
    concat,
    made_from,
    most_blocks,
    recipe_of,
    sum_of,
    tensor_nbytes,
    with_activation,
)  # fmt: skip

_KNOWN: Final = ("in_features", "out_features", "activation", "bias", WEIGHTS)


class Linear(NamedTuple):
    """A product of the last axis with weights; `rest` are the attributes that are not known here, as JSON."""

    lead: Shape
    in_features: int
    out_features: int
    bias: bool
    activation: str | None
    rest: str
    dtype: str

    @property
    def input_shape(self) -> Shape:
        """Shape of what it reads."""
        return (*self.lead, self.in_features)

    @property
    def output_shape(self) -> Shape:
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
    rest = {key: value for key, value in given.items() if key not in _KNOWN}
    bias = given.get("bias", op.weight_nbytes > features * outputs * DTYPE_NBYTES[op.dtype])
    text = json.dumps(rest, sort_keys=True)
    return Linear(tuple(lead), features, outputs, bool(bias), given.get("activation"), text, op.dtype)


def _two(draft: Draft, match: Match) -> tuple[Row, Row, Linear, Linear] | None:
    rows = [draft.rows[name] for name in match[:2]]
    found = [linear for row in rows if (linear := row.about(linear_of)) and sole_input(draft, row)]
    return (rows[0], rows[1], found[0], found[1]) if len(found) == len(match[:2]) == 2 else None


def _attributes(ops: tuple[Operator, ...], linear: Linear, **changed: Any) -> dict[str, Any]:
    sizes = {"in_features": linear.in_features, "out_features": linear.out_features, "bias": linear.bias}
    return {**ops[0].attributes, **sizes, **changed}


# R9: products of one tensor


def _of_one(draft: Draft) -> Iterator[Match]:
    return pairs_in(
        ((sole_input(draft, row), linear._replace(out_features=0, bias=False)), name)
        for name in draft.of_kind("linear")
        for row in (draft.rows[name],)
        if (linear := row.about(linear_of)) is not None and sole_input(draft, row) is not None
    )


def _are_of_one(draft: Draft, match: Match) -> bool:
    two = _two(draft, match)
    if two is None or sole_input(draft, two[0]) != sole_input(draft, two[1]):
        return False
    first, second = (linear._replace(out_features=0, bias=False) for linear in two[2:])
    return first == second


def _wider(draft: Draft, match: Match) -> Draft | None:
    row = draft.rows[match[0]]
    axis = len(row.operator.input_shapes[0]) - 1
    names = in_order_of_concat(draft, match, axis)
    op = _concatenated(operators(draft, names), new_name(draft, "+".join(names)))
    return replace_by_parts(draft, names, Row(op, row.reads), axis)


@remembered
def _concatenated(ops: tuple[Operator, ...], name: str) -> Operator:
    found = _linears(ops)
    biased = any(linear.bias for linear in found)
    whole = found[0]._replace(out_features=sum(linear.out_features for linear in found), bias=biased)
    without = [not linear.bias and op.weight_nbytes > 0 for op, linear in zip(ops, found, strict=True)]
    added = sum(linear.out_features for linear, lacks in zip(found, without, strict=True) if biased and lacks)
    zeros = float(added * DTYPE_NBYTES[whole.dtype])
    read = tensor_nbytes(whole.input_shape, whole.dtype)
    return made_from(
        ops, name, nbytes=sum(op.nbytes for op in ops) - (len(ops) - 1) * read + zeros,
        weight_nbytes=sum(op.weight_nbytes for op in ops) + zeros,
        attributes=_attributes(ops, whole, weights=concat([*map(recipe_of, ops)], 0)),
        input_shapes=(whole.input_shape,), output_shape=whole.output_shape,
    )  # fmt: skip


# R10: a sum of products


def _can_be_summed(draft: Draft, match: Match) -> bool:
    two = _two(draft, match)
    if two is None or not ends_in_sum(draft, match):
        return False
    first, second = (linear._replace(in_features=0, bias=False) for linear in two[2:])
    return first == second and first.activation is None


def _summed(draft: Draft, match: Match) -> Draft | None:
    """X w1 + x w2 is x (w1 + w2), x w + y w is (x + y) w, and else x w1 + y w2 is one product of both side by side."""
    first, second = (draft.rows[name] for name in match[:2])
    ops, total = operators(draft, match[:2]), draft.rows[match[2]].operator
    if sole_input(draft, first) == sole_input(draft, second):
        return draft.replace(match, [Row(_with_summed_weights(ops, total), first.reads)])
    linear = _linears(ops)[0]
    if recipe_of(ops[0]) == recipe_of(ops[1]) and ops[0].input_shapes == ops[1].input_shapes:
        op = _of_sum(ops, total)
        flops = total.flops * linear.in_features / linear.out_features
        inner = sum_of(total, new_name(draft, f"{op.name}.input"), linear.input_shape, flops)
        return replace_behind(draft, match, Row(inner, (first.reads[0], second.reads[0])), op)
    op = _of_both(ops, total)
    return replace_behind(draft, match, joined_inputs(draft, match[:2], len(linear.lead), op.name), op)


def _made(
    ops: tuple[Operator, ...], total: Operator, whole: Linear, flops: float, weight_nbytes: float, recipe: Any
) -> Operator:
    """Return the product that stands for two and their sum; it reads its input and weights and writes the sum."""
    moved = tensor_nbytes(whole.input_shape, whole.dtype) + tensor_nbytes(whole.output_shape, whole.dtype)
    return made_from(
        (*ops, total), total.name, flops=flops, nbytes=moved + weight_nbytes, weight_nbytes=weight_nbytes,
        attributes=with_activation(_attributes(ops, whole, weights=recipe), total), input_shapes=(whole.input_shape,),
        output_shape=whole.output_shape, like=most_blocks(ops),
    )  # fmt: skip


def _linears(ops: tuple[Operator, ...]) -> list[Linear]:
    return [linear for linear in map(linear_of, ops) if linear is not None]


@remembered
def _with_summed_weights(ops: tuple[Operator, ...], total: Operator) -> Operator:
    first, second = _linears(ops)
    recipe = {"sum": [recipe_of(op) for op in ops]}
    whole = first._replace(bias=first.bias or second.bias)
    return _made(ops, total, whole, max(op.flops for op in ops), max(op.weight_nbytes for op in ops), recipe)


@remembered
def _of_sum(ops: tuple[Operator, ...], total: Operator) -> Operator:
    first, _ = _linears(ops)
    recipe = {"bias": recipe_of(ops[0]), "times": 2} if first.bias else recipe_of(ops[0])
    return _made(ops, total, first, ops[0].flops, ops[0].weight_nbytes, recipe)


@remembered
def _of_both(ops: tuple[Operator, ...], total: Operator) -> Operator:
    first, second = _linears(ops)
    whole = first._replace(in_features=first.in_features + second.in_features, bias=first.bias or second.bias)
    twice = float(first.out_features * DTYPE_NBYTES[first.dtype]) if first.bias and second.bias else 0.0
    weights = max(0.0, sum(op.weight_nbytes for op in ops) - twice)
    return _made(ops, total, whole, sum(op.flops for op in ops), weights, concat([*map(recipe_of, ops)], 1))


R9 = Substitution("R9", _of_one, _wider, _are_of_one)
R10 = Substitution("R10", SUMS, _summed, _can_be_summed)
