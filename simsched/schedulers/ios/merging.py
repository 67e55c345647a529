"""Which operators IOS tries to merge into one."""

from collections.abc import Callable, Hashable, Sequence
from itertools import combinations
from typing import Final

from simsched.base.errors import SchedulerError
from simsched.model.cluster import Device
from simsched.model.costmodel import CostModel
from simsched.model.graph import OpGraph
from simsched.rewriting import Draft, merge_key, merged_operators, why_not_mergeable
from simsched.schedulers.stage_costs import StageFormula, StageLatencyOption

_ALL_SUBSETS_OF: Final = 10
"""Operators of one key up to which all subsets are tried; of more only those that stand next to each other."""


class Merging:
    """Sets of operators that can be merged, and how long they take then.

    Parameters
    ----------
    graph
        What they are of.
    most
        Most operators of a set; None for any number.

    Raises
    ------
    SchedulerError
        If `required` and no operator of the graph has what merging needs.
    """

    def __init__(self, graph: OpGraph, most: int | None, *, required: bool) -> None:
        self._draft, self._most = Draft.from_graph(graph), most
        self._keys = [merge_key(self._draft, name) for name in graph.names]
        self._names = graph.names
        if required and not any(key is not None for key in self._keys):
            raise SchedulerError(
                f"ios: strategy 'merge' finds nothing in {graph.name!r} that can be merged: it takes convolutions "
                f"that read one operator, with input_shapes, output_shape and the attributes kernel, stride and "
                f"padding; give those, or strategy='parallel'"
            )

    def sets(self, ops: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """Return the sets among some operators, by their places in `ops`, each rising."""
        families: dict[Hashable, list[int]] = {}
        for k, i in enumerate(ops):
            if self._keys[i] is not None:
                families.setdefault(self._keys[i], []).append(k)
        found: list[tuple[int, ...]] = []
        for family in families.values():
            largest = len(family) if self._most is None else min(self._most, len(family))
            for size in range(2, largest + 1):
                if len(family) <= _ALL_SUBSETS_OF:
                    candidates = list(combinations(family, size))
                else:
                    candidates = [tuple(family[k : k + size]) for k in range(len(family) - size + 1)]
                found += [c for c in candidates if why_not_mergeable(self._draft, self._named(ops, c)) is None]
        return tuple(found)

    def _named(self, ops: Sequence[int], places: Sequence[int]) -> tuple[str, ...]:
        return tuple(self._names[ops[k]] for k in places)

    def time(self, cost: CostModel, device: Device, option: StageLatencyOption) -> Callable[[tuple[str, ...]], float]:
        """Return what says how long operators take once they are merged, split included, in us."""

        def merged_time(names: tuple[str, ...]) -> float:
            us = sum(cost(op, device) for op in merged_operators(self._draft, names))
            return option.latency([us]) if isinstance(option, StageFormula) else us

        return merged_time
