"""What IOS schedules: a graph, what its stages cost, and which of its operators can be merged."""

from collections.abc import Hashable, Sequence
from itertools import combinations
from typing import Final

import numpy as np

from simsched.base.errors import SchedulerError
from simsched.model import Cluster, CostModel, Floats, Ints, OpGraph, operator_times
from simsched.rewriting import Draft, can_merge, merge_key, merged_operators, merging_lacks
from simsched.schedulers.deadline import Deadline
from simsched.schedulers.listing import place_of
from simsched.schedulers.protocol import Tools
from simsched.schedulers.stage_costs import Groups, StageCost, StageFormula, StageLatencyOption

_ALL_SUBSETS_OF: Final = 10
"""Operators of one key up to which all subsets are tried; of more only those that stand next to each other."""


class Merging:
    """Sets of operators that can be merged.

    Parameters
    ----------
    graph
        What they are of.
    strategy
        Whether there are any: not with ``"parallel"``, and with ``"merge"`` there have to be some.

    Attributes
    ----------
    lacking
        Convolutions of which that is not known, and the field that is missing.

    Raises
    ------
    SchedulerError
        If there have to be some and no operator of the graph has what merging needs.
    """

    def __init__(self, graph: OpGraph, strategy: str) -> None:
        convolutions = strategy != "parallel" and "conv" in graph.labels("kind")[1]
        self.draft = Draft.from_graph(graph) if convolutions else Draft([])  # else there is nothing to look at
        self._keys = [merge_key(self.draft, name) for name in self.draft.rows]
        found = ((name, merging_lacks(self.draft, name)) for name in self.draft.rows)
        self.lacking = {name: field for name, field in found if field is not None}
        self._names = graph.names
        if strategy == "merge" and not any(key is not None for key in self._keys):
            raise SchedulerError(
                f"ios: strategy 'merge' finds nothing in {graph.name!r} that can be merged: it takes convolutions "
                f"that read one operator, with input_shapes, output_shape and the attributes kernel, stride and "
                f"padding; give those, or strategy='parallel'"
            )

    def sets(self, ops: Sequence[int]) -> list[tuple[int, ...]]:
        """Return the sets among some operators, by their places in `ops`, each rising."""
        families: dict[Hashable, list[int]] = {}
        for k, i in enumerate(ops):
            if self._keys and self._keys[i] is not None:
                families.setdefault(self._keys[i], []).append(k)
        found: list[tuple[int, ...]] = []
        for family in families.values():
            for size in range(2, len(family) + 1):
                if len(family) <= _ALL_SUBSETS_OF:
                    candidates = list(combinations(family, size))
                else:
                    candidates = [tuple(family[k : k + size]) for k in range(len(family) - size + 1)]
                found += [c for c in candidates if can_merge(self.draft, [self._names[ops[k]] for k in c])]
        return found


_COLUMNS: Final = ("flops", "nbytes", "weight_nbytes", "utilization", "intensity")
_KERNEL_COLUMNS: Final = ("blocks", "threads", "registers", "shared_memory", "share", "efficiency")


class StoppedError(Exception):
    """The time is over, or the user has interrupted."""


class Problem:
    """A graph, and what the stages of it cost.

    Parameters
    ----------
    graph, cluster, cost, tools
        As the scheduler has them.
    option
        Where latencies come from. Those that are named and the formula do not know operators by name:
        operators of equal times, kernels, loads and traffic are of one class, and stages of equal
        classes, group by group, are asked for once.
    merging
        What may be merged.
    deadline
        When nothing is asked any more.

    Attributes
    ----------
    formula
        The formula that answers, if it is one.
    latency
        Answers for a stage by names.
    times
        Of each operator alone in us, shape (n_ops,).
    classes
        Number of the class of each operator, shape (n_ops,); without equal ones by topological position.
    """

    def __init__(
        self,
        graph: OpGraph,
        cluster: Cluster,
        cost: CostModel,
        option: StageLatencyOption,
        tools: Tools,
        merging: Merging,
        deadline: Deadline,
    ) -> None:
        device = cluster.devices[0]
        self.graph, self.merging, self.deadline = graph, merging, deadline
        self.formula = option if isinstance(option, StageFormula) else None

        def merged_time(names: tuple[str, ...]) -> float:
            us = sum(cost(op, device) for op in merged_operators(merging.draft, names))  # the split included
            return us if self.formula is None else self.formula.latency([us])

        self.times = operator_times(graph, device, cost)
        by_look = isinstance(option, str | StageFormula)
        self.classes = _classes(graph, self.times) if by_look else place_of(graph.order_index)
        class_of = dict(zip(graph.names, self.classes.tolist(), strict=True))
        self.latency = StageCost("ios", option, graph, cluster, cost, tools, merged_time=merged_time, class_of=class_of)

    def ask(self, groups: Groups, merged: bool = False) -> float:
        """Return the latency of a stage in us, if there is time.

        Raises
        ------
        StoppedError
            If the deadline is over.
        """
        if self.deadline.over():
            raise StoppedError
        return self.latency(groups, merged)


def _classes(graph: OpGraph, times: Floats) -> Ints:
    """Return equal numbers for operators that differ in nothing but names that a latency may depend on."""
    columns = [getattr(graph, key).tolist() for key in _COLUMNS]
    kernels = list(zip(*(getattr(graph, f"kernel_{key}").tolist() for key in _KERNEL_COLUMNS), strict=True))
    ptr = graph.kernel_ptr.tolist()
    number: dict[tuple[object, ...], int] = {}
    found = []
    for i, time in enumerate(times.tolist()):
        loads = repr([column[i] for column in columns])  # as text: what is unknown is NaN, which differs from itself
        row = (time, graph.label("dtype", i), loads, *kernels[ptr[i] : ptr[i + 1]])
        found.append(number.setdefault(row, len(number)))
    return np.array(found)
