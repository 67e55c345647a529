"""The rule that pools once instead of twice: R7."""

import json
from collections.abc import Iterator
from functools import lru_cache
from math import prod
from typing import Final

from simsched.model.graph import Operator
from simsched.rewriting.draft import Draft
from simsched.rewriting.rows import Read, Row
from simsched.rewriting.rule import Match, Substitution, ends_in, is_plain_sum, pairs_that_end_in
from simsched.rewriting.splitting import new_name, sole_input
from simsched.rewriting.works import REMEMBERED, Shape, copy_of, made_from, tensor_nbytes

_AVERAGES: Final = ("avg", "global_avg")


def _sums(draft: Draft) -> Iterator[Match]:
    for match in pairs_that_end_in(draft, "add"):
        if _can_be_one(draft, match):
            yield match


def _can_be_one(draft: Draft, match: Match) -> bool:
    first, second = (draft.rows[name] for name in match[:2])
    if not ends_in(draft, match) or not is_plain_sum(draft.rows[match[2]].operator):
        return False
    sources = [sole_input(draft, row) for row in (first, second)]
    if None in sources or _average(first.operator) is None or _average(first.operator) != _average(second.operator):
        return False
    return sources[0] == sources[1] or "activation" not in draft.rows[match[2]].operator.attributes


@lru_cache(maxsize=REMEMBERED)
def _average(op: Operator) -> tuple[Shape, Shape, str, str] | None:
    """Return what tells average pools apart, or None of what is none."""
    if op.kind != "pool" or op.attributes.get("pool") not in _AVERAGES or op.output_shape is None:
        return None
    if len(op.input_shapes) != 1 or "activation" in op.attributes:
        return None
    return op.input_shapes[0], op.output_shape, op.dtype, json.dumps(dict(op.attributes), sort_keys=True)


def _pooled_once(draft: Draft, match: Match) -> Draft | None:
    """avg(x) + avg(x) is 2 avg(x), and avg(x) + avg(y) is avg(x + y)."""
    if not _can_be_one(draft, match):
        return None
    first, second, total = (draft.rows[name] for name in match)
    if sole_input(draft, first) == sole_input(draft, second):
        read = Read(match[0], None, total.reads[0].nbytes)
        return draft.replace(match[1:], [Row(_doubled(total.operator), (read,))])
    inner = _inner_sum(total.operator, first.operator, new_name(draft, f"{match[2]}.input"))
    whole = _renamed(first.operator, second.operator, total.operator)
    read = Read(inner.name, None, tensor_nbytes(inner.output_shape or (), inner.dtype))
    return draft.replace(match, [Row(inner, (first.reads[0], second.reads[0])), Row(whole, (read,))])


@lru_cache(maxsize=REMEMBERED)
def _doubled(total: Operator) -> Operator:
    assert total.output_shape is not None
    return copy_of(
        (total,),
        total.name,
        kind="mul",
        attributes={"factor": 2.0, **total.attributes},
        input_shapes=total.input_shapes[:1],
        output_shape=total.output_shape,
        flops=total.flops,
    )


@lru_cache(maxsize=REMEMBERED)
def _inner_sum(total: Operator, pool: Operator, name: str) -> Operator:
    """Return the sum of what two pools read: as many FLOP per element as the sum of what they wrote."""
    shape = pool.input_shapes[0]
    return copy_of(
        (total,),
        name,
        kind="add",
        attributes={},
        input_shapes=(shape, shape),
        output_shape=shape,
        flops=total.flops * prod(shape) / prod(total.output_shape or shape),
        n_reads=2,
    )


@lru_cache(maxsize=REMEMBERED)
def _renamed(first: Operator, second: Operator, total: Operator) -> Operator:
    assert first.output_shape is not None
    return made_from(
        (first, second, total),
        total.name,
        kind="pool",
        flops=first.flops,
        nbytes=first.nbytes,
        weight_nbytes=0.0,
        attributes=first.attributes,
        input_shapes=first.input_shapes,
        output_shape=first.output_shape,
        like=first,
    )


R7 = Substitution("R7", "a sum of equal average pools into one pool", _sums, _pooled_once)
