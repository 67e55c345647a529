"""A graph with the latencies of its stages, and its operators that IOS may merge."""

from collections.abc import Hashable, Iterable, Sequence
from itertools import combinations
from typing import Final

import numpy as np

from simsched.base.errors import SchedulerError
from simsched.base.numeric import sum_in_order
from simsched.model import Cluster, CostModel, Floats, Ints, OpGraph, operator_times
from simsched.model.graph.columns import KERNELS
from simsched.rewriting import GraphDraft, can_merge, merge_key, merged_operators, merging_lacks
from simsched.schedulers.instance import place_of
from simsched.schedulers.protocol import Deadline, Tools
from simsched.schedulers.stage_costs import Groups, StageCost, StageFormula, StageLatencyOption, executed_in_turn

_ALL_SUBSETS_OF: Final = 10
"""Operators of one key up to which all subsets are merged; of more only those that stand next to each other."""


class StoppedError(Exception):
    """The time is over, or the user has interrupted the search."""


class TooLargeError(Exception):
    """A part has more endings, or more stages to ask for, than the budget it names, or needs too much "memory"."""


class Problem:
    """A graph, the latencies of its stages, and its operators that can be merged.

    Parameters
    ----------
    graph, cluster, cost, tools
        As the scheduler has them.
    option
        Source of latencies. Named sources and the formula do not know operators by name: operators of equal times,
        kernels, loads and traffic are of one class, and stages of equal classes, group by group, are asked for once.
    strategy
        Whether operators can be merged: not with ``"parallel"``, and with ``"merge"`` there have to be some.
    deadline
        When nothing is asked any more.

    Attributes
    ----------
    formula
        The formula that answers, if it is one.
    latency
        Answers for a stage by names.
    times
        Time of each operator alone in us, shape (n_ops,).
    classes
        Number of the class of each operator, shape (n_ops,); without equal ones by topological position.
    lacking
        Convolutions with too little data to tell whether they can be merged, and the missing field.

    Raises
    ------
    SchedulerError
        If operators have to be merged and none in the graph has the data that merging needs.
    """

    def __init__(
        self,
        graph: OpGraph,
        cluster: Cluster,
        cost: CostModel,
        option: StageLatencyOption,
        tools: Tools,
        strategy: str,
        deadline: Deadline,
    ) -> None:
        device = cluster.devices[0]
        self.graph = graph
        self.deadline = deadline
        self.formula = formula = option if isinstance(option, StageFormula) else None
        convolutions = strategy != "parallel" and "conv" in graph.labels("kind")[1]
        self._draft = draft = (
            GraphDraft.from_graph(graph) if convolutions else GraphDraft([])
        )  # else there is nothing to look at
        self._keys = {name: key for name in draft.rows if (key := merge_key(draft, name)) is not None}
        self.lacking = {name: field for name in draft.rows if (field := merging_lacks(draft, name)) is not None}
        if strategy == "merge" and not self._keys:
            raise SchedulerError(
                f"ios: strategy 'merge' finds nothing in {graph.name!r} that can be merged: it takes convolutions "
                f"that read one operator, with input_shapes, output_shape and the attributes kernel, stride and "
                f"padding; give those, or strategy='parallel'"
            )

        def merged_time(groups: Groups) -> float:
            ops = merged_operators(draft, groups[0])  # the split included
            times = [cost(op, device) for op in ops]
            if option == "executed":
                return executed_in_turn(ops, times, device)
            if formula is None:
                return sum_in_order(times)
            return formula.latency([sum_in_order(times)])

        self.times = operator_times(graph, device, cost)
        by_look = isinstance(option, str | StageFormula)
        if by_look:
            self.classes = _classes(graph, self.times)
        else:
            self.classes = place_of(graph.order_index)
        class_of = dict(zip(graph.names, self.classes.tolist(), strict=True))
        self.latency = StageCost(
            "ios", option, graph, cluster, cost, tools, device, merged_time=merged_time, class_of=class_of
        )

    def check_time(self) -> None:
        """Raise StoppedError if the deadline is over."""
        if self.deadline.over():
            raise StoppedError

    def ask(self, groups: Groups, merged: bool = False) -> float:
        """Return the latency of a stage in us, if there is time."""
        self.check_time()
        return self.latency(groups, merged)

    def merges(self, ops: Sequence[int]) -> list[tuple[int, ...]]:
        """Return the sets among some operators that can be merged, by their places in `ops`, each rising."""
        names = [self.graph.names[i] for i in ops]
        families: dict[Hashable, list[int]] = {}
        for k, name in enumerate(names):
            if name in self._keys:
                families.setdefault(self._keys[name], []).append(k)
        mergeable: list[tuple[int, ...]] = []
        for family in families.values():
            for size in range(2, len(family) + 1):
                sets: Iterable[tuple[int, ...]] = combinations(family, size)
                if len(family) > _ALL_SUBSETS_OF:
                    sets = zip(*(family[k:] for k in range(size)), strict=False)
                mergeable += [c for c in sets if can_merge(self._draft, [names[k] for k in c])]
        return mergeable


def _classes(graph: OpGraph, times: Floats) -> Ints:
    """Return equal numbers for operators that differ in nothing but names that a latency may depend on."""
    columns = [getattr(graph, key).tolist() for key in ("flops", "nbytes", "weight_nbytes", "utilization", "intensity")]
    kernels = list(zip(*(getattr(graph, key).tolist() for key in KERNELS), strict=True))
    ptr = graph.kernel_ptr.tolist()
    number: dict[tuple[object, ...], int] = {}
    codes = []
    for i, time in enumerate(times.tolist()):
        loads = repr([column[i] for column in columns])  # as text: unknown numbers are NaN, which differs from itself
        row = (time, graph.label("dtype", i), graph.label("works", i), loads, *kernels[ptr[i] : ptr[i + 1]])
        codes.append(number.setdefault(row, len(number)))
    return np.array(codes)
