"""What a rewritten graph is worth: the sum of its operators' times, and part of that of its longest path."""

import json
from collections.abc import Hashable, Iterable, Mapping
from math import fsum
from typing import Any, Final, NamedTuple

from simsched.model.cluster import Device
from simsched.model.costmodel import CostModel, operator_times
from simsched.model.graph import Operator, OpGraph
from simsched.rewriting import Draft, Row
from simsched.rewriting.recipes import ATTRIBUTE as WEIGHTS

READER: Final = "<reader>"
"""Kind of what stands for an operator that reads from a part of a graph but does not belong to it."""


class Cost(NamedTuple):
    """Mixed critical path cost and plain sum of the times, in us."""

    mixed: float
    total: float


class MixedCost:
    """Cost of drafts: ``sum of all times + alpha * sum of those on the longest path``, in us.

    Parameters
    ----------
    start
        The draft that is to be rewritten. Its operators are asked about one by one, so that a model may know
        them by name; those that substitutions make are asked about once for each description.
    device, cost
        Time of an operator alone on the device, in us.
    alpha
        0 for the sum of the times alone.
    """

    def __init__(self, start: Draft, device: Device, cost: CostModel, alpha: float) -> None:
        self._device, self._cost, self._alpha = device, cost, alpha
        operators = [row.operator for row in start.rows.values()]
        times = operator_times(OpGraph(operators), device, cost).tolist()
        self._given: dict[str, tuple[Operator, float]] = {
            op.name: (op, us) for op, us in zip(operators, times, strict=True)
        }
        self._by_key: dict[int, float] = {}
        self._by_description: dict[Hashable, float] = {}

    def __call__(self, draft: Draft) -> Cost:
        """Return the cost of a draft. O(V + E)."""
        known = self._by_key
        times = {}
        for name, row in draft.rows.items():
            us = known.get(row.key)
            times[name] = self.time(row) if us is None else us
        total = fsum(times.values())
        return Cost(total + self._alpha * _longest(draft.rows, times) if self._alpha else total, total)

    def time(self, row: Row) -> float:
        """Return the time of an operator alone in us; 0 for one that stands for a reader outside."""
        us = self._by_key.get(row.key)
        if us is None:
            us = self._by_key[row.key] = self._asked(row.operator)
        return us

    def _asked(self, op: Operator) -> float:
        if op.kind == READER:
            return 0.0
        given = self._given.get(op.name)
        if given is not None and given[0] is op:
            return given[1]
        key = description(op)
        us = self._by_description.get(key)
        if us is None:
            us = float(operator_times(OpGraph([op]), self._device, self._cost)[0])
            self._by_description[key] = us
        return us


def description(op: Operator) -> Hashable:
    """Return all that tells operators apart but their names, the blocks they belong to, and whose weights they have."""
    return (
        op.kind, op.dtype, op.intensity, op.flops, op.nbytes, op.weight_nbytes, op.time, op.utilization, op.kernels,
        op.input_shapes, op.output_shape, op.host, json.dumps(_without_weights(op.attributes), sort_keys=True),
    )  # fmt: skip


def _without_weights(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes without the recipes of the weights, also without those of the parts of a unit."""
    found = {key: value for key, value in attributes.items() if key != WEIGHTS}
    parts = found.get("parts")
    if isinstance(parts, list):
        found["parts"] = [_without_weights(part) if isinstance(part, Mapping) else part for part in parts]
    return found


def distinct(costs: Iterable[Cost], most: int) -> list[int]:
    """Return the places of the least costs, one for each sum of times, the least first.

    Of graphs whose times add up to the same, nearly all are the same graph, or differ in which of several equal
    parts was rewritten: the best of them stands for all.
    """
    given = list(costs)
    chosen: dict[float, int] = {}
    for i in sorted(range(len(given)), key=lambda i: given[i].mixed):
        chosen.setdefault(round(given[i].total, _DIGITS), i)
        if len(chosen) == most:
            break
    return list(chosen.values())


_DIGITS: Final = 6  # of us: far above what rounding does to a sum, far below what an operator takes


def _longest(rows: Mapping[str, Row], times: Mapping[str, float]) -> float:
    """Return the length of the longest path, whatever order the rows are in."""
    end: dict[str, float] = {}
    for first in rows:
        if first in end:
            continue
        path = [first]
        while path:
            name = path[-1]
            latest = 0.0
            for read in rows[name].reads:
                producer = read[0]
                there = end.get(producer)
                if there is not None:
                    if there > latest:
                        latest = there
                elif producer in rows:
                    path.append(producer)
                    break
            else:
                end[name] = latest + times[name]
                path.pop()
    return max(end.values())
