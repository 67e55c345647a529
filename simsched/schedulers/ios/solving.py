"""From blocks to the stages they are run in: cut where they are too large, solved once where they are equal."""

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Final

import numpy as np

from simsched.base.errors import SchedulerError
from simsched.model import Cluster, CostModel, Indices, OpGraph, operator_times
from simsched.model.graph.ordering import topological_order
from simsched.rewriting import Draft, merge_key, merged_operators, merging_lacks, why_not_mergeable
from simsched.schedulers.deadline import Deadline
from simsched.schedulers.ios.part import Limits, Part, PartSearch, Solution, Stage, StoppedError, TooLargeError
from simsched.schedulers.listing import place_of, reduced
from simsched.schedulers.protocol import Tools
from simsched.schedulers.stage_costs import Groups, StageCost, StageFormula, StageLatencyOption


def blocks_of(graph: OpGraph, blocks: str) -> list[list[int]]:
    """Return the operators of each block, in topological order; no block reads from a later one.

    Labels that read from each other in a circle are one block.
    """
    if blocks == "none":
        return [graph.order_index.tolist()]
    bare = graph if blocks == "labels" else OpGraph.from_columns(graph.names, graph.src, graph.dst)
    pieces = [[graph.index[name] for name in piece] for piece in bare.blocks]
    return _in_order(graph, pieces)


def _in_order(graph: OpGraph, pieces: Sequence[Sequence[int]]) -> list[list[int]]:
    piece_of = np.empty(len(graph), np.int64)
    for k, piece in enumerate(pieces):
        piece_of[list(piece)] = k
    ends = piece_of[graph.src], piece_of[graph.dst]
    circle_of = _circles(len(pieces), *ends)
    found: dict[int, list[int]] = {}  # circles in the order of their first operators
    for i in graph.order_index.tolist():
        found.setdefault(int(circle_of[piece_of[i]]), []).append(i)
    number = place_of(np.array(list(found)))
    src, dst = (number[circle_of[end]] for end in ends)
    order, _ = topological_order(len(found), src[src != dst], dst[src != dst])
    blocks = list(found.values())
    return [blocks[k] for k in order.tolist()]


def _circles(n: int, src: Indices, dst: Indices) -> Indices:
    """Return equal numbers for vertices that lie on a circle of edges, shape (n,)."""
    if not topological_order(n, src[src != dst], dst[src != dst])[1]:
        return np.arange(n)
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    between = coo_array((np.ones(len(src), np.int8), (src, dst)), shape=(n, n))
    circle_of: Indices = connected_components(between, connection="strong")[1]
    return circle_of


def cut(ops: Sequence[int], pieces: int) -> Iterator[Sequence[int]]:
    """Yield so many pieces of some operators, of nearly the same length, one after the other."""
    bounds = [len(ops) * k // pieces for k in range(pieces + 1)]
    for k in range(pieces):
        yield ops[bounds[k] : bounds[k + 1]]


def readers_within(graph: OpGraph, ops: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Return who reads from each operator of a piece, rising, without edges that follow from others.

    Operators are numbered by their places in `ops`, which is in topological order.
    """
    place = {i: k for k, i in enumerate(ops)}
    ptr, edges = graph.outgoing
    reading = ((i, graph.dst[edges[ptr[i] : ptr[i + 1]]].tolist()) for i in ops)
    within = ((place[i], place[j]) for i, readers in reading for j in readers if j in place)
    return tuple(map(tuple, reduced(len(ops), within)[0]))


_ALL_SUBSETS_OF: Final = 10
"""Operators of one key up to which all subsets are tried; of more only those that stand next to each other."""


class Merging:
    """Sets of operators that can be merged.

    Parameters
    ----------
    graph
        What they are of.

    Attributes
    ----------
    lacking
        Convolutions of which that is not known, and the field that is missing.

    Raises
    ------
    SchedulerError
        If `required` and no operator of the graph has what merging needs.
    """

    def __init__(self, graph: OpGraph, *, required: bool) -> None:
        convolutions = "conv" in graph.labels("kind")[1]
        self.draft = Draft.from_graph(graph) if convolutions else Draft([])  # else there is nothing to look at
        self._keys = [merge_key(self.draft, name) for name in self.draft.rows]
        found = ((name, merging_lacks(self.draft, name)) for name in self.draft.rows)
        self.lacking = {name: field for name, field in found if field is not None}
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
            if self._keys and self._keys[i] is not None:
                families.setdefault(self._keys[i], []).append(k)
        found: list[tuple[int, ...]] = []
        for family in families.values():
            for size in range(2, len(family) + 1):
                if len(family) <= _ALL_SUBSETS_OF:
                    candidates = list(combinations(family, size))
                else:
                    candidates = [tuple(family[k : k + size]) for k in range(len(family) - size + 1)]
                found += [
                    c for c in candidates if why_not_mergeable(self.draft, [self._names[ops[k]] for k in c]) is None
                ]
        return tuple(found)


_COLUMNS: Final = ("flops", "nbytes", "weight_nbytes", "utilization", "intensity")
_KERNEL_COLUMNS: Final = ("blocks", "threads", "registers", "shared_memory", "share", "efficiency")
Look = tuple[tuple[int, ...], ...]


class Latencies:
    """Latencies of the stages of a graph.

    Parameters
    ----------
    graph, cluster, cost, tools
        As the scheduler has them.
    option
        Where latencies come from. Those that are named and the formula do not know operators by name:
        operators of equal times, kernels, loads and traffic are of one class, and stages of equal
        classes, group by group, are asked for once.
    merging
        What may be merged; None for nothing.

    Attributes
    ----------
    formula
        The formula that answers, if it is one.
    ask
        Answers for a stage by names.
    known
        Latencies of the stages asked for by what they look like, merged ones not among them.
    times
        Of each operator alone in us.
    classes
        Number of the class of each operator; without equal ones by topological position.
    """

    def __init__(
        self,
        graph: OpGraph,
        cluster: Cluster,
        cost: CostModel,
        option: StageLatencyOption,
        tools: Tools,
        merging: Merging | None,
    ) -> None:
        device = cluster.devices[0]
        self._graph = graph
        self.formula = option if isinstance(option, StageFormula) else None
        self.known: dict[Look, float] = {}

        def merged_time(names: tuple[str, ...]) -> float:
            assert merging is not None
            us = sum(cost(op, device) for op in merged_operators(merging.draft, names))  # the split included
            return us if self.formula is None else self.formula.latency([us])

        self.ask = StageCost("ios", option, graph, cluster, cost, tools, merged_time=merged_time)
        self.times: list[float] = operator_times(graph, device, cost).tolist()
        by_look = isinstance(option, str | StageFormula)
        self.classes = _classes(graph, self.times) if by_look else place_of(graph.order_index).tolist()

    def latencies(self, ops: Sequence[int], stages: Sequence[Stage], deadline: Deadline) -> list[float]:
        """Return the latency in us of stages of a piece; its operators are named by their places in `ops`."""
        looks = [tuple(tuple(self.classes[ops[k]] for k in group) for group in stage) for stage in stages]
        for look, stage in zip(looks, stages, strict=True):
            if look not in self.known:
                if deadline.over():
                    raise StoppedError
                self.known[look] = self.ask(self.named(ops, stage))
        return [self.known[look] for look in looks]

    def named(self, ops: Sequence[int], stage: Stage) -> Groups:
        """Return a stage of a piece as names."""
        names = self._graph.names
        return tuple(tuple(names[ops[k]] for k in group) for group in stage)


def _classes(graph: OpGraph, times: Sequence[float]) -> list[int]:
    """Return equal numbers for operators that differ in nothing but names that a latency may depend on."""
    columns = [getattr(graph, key).tolist() for key in _COLUMNS]
    kernels = list(zip(*(getattr(graph, f"kernel_{key}").tolist() for key in _KERNEL_COLUMNS), strict=True))
    ptr = graph.kernel_ptr.tolist()
    number: dict[tuple[object, ...], int] = {}
    found = []
    for i, time in enumerate(times):
        loads = repr([column[i] for column in columns])  # as text: what is unknown is NaN, which differs from itself
        row = (time, graph.label("dtype", i), loads, *kernels[ptr[i] : ptr[i + 1]])
        found.append(number.setdefault(row, len(number)))
    return found


_MOST_TOGETHER: Final = 10_000
"""Operators of a part: what it takes to write down who depends on whom grows with their square."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Operators that are optimised together, in topological order, and how they are run."""

    ops: tuple[int, ...]
    solution: Solution
    reason: str | None
    """Why the block it is of was cut, the option; None if it is a whole block."""


class Solver:
    """Solves block after block of a graph.

    Parameters
    ----------
    graph, stages, merging, limits
        What is solved; `merging` is None where nothing may be merged.
    deadline
        What is not solved when it is over is run one operator after the other.
    """

    def __init__(
        self, graph: OpGraph, stages: Latencies, merging: Merging | None, limits: Limits, deadline: Deadline
    ) -> None:
        self._graph, self._stages, self._merging = graph, stages, merging
        self._limits, self._deadline = limits, deadline
        self._known: dict[object, Solution | str] = {}  # or the budget that is too small

    def solve(self, ops: Sequence[int], max_part: int) -> list[Piece]:
        """Return a block in pieces of at most `max_part` operators."""
        n = -(-len(ops) // min(max_part, _MOST_TOGETHER))
        limits, reason = self._limits.share(n), "max_part" if n > 1 else None
        return [piece for part in cut(ops, n) for piece in self._pieces(tuple(part), limits, reason)]

    def _pieces(self, ops: tuple[int, ...], limits: Limits, reason: str | None) -> list[Piece]:
        try:
            found = one_by_one(len(ops)) if self._deadline.over() else self._found(ops, limits)
        except StoppedError:
            found = one_by_one(len(ops))
        if isinstance(found, Solution):
            return [Piece(ops, found, reason)]
        return [piece for half in cut(ops, 2) for piece in self._pieces(tuple(half), limits.share(2), found)]

    def _found(self, ops: tuple[int, ...], limits: Limits) -> Solution | str:
        readers = readers_within(self._graph, ops)
        if least_transitions(readers) > limits.max_transitions:
            return "max_transitions"  # known before anything is asked about operators to merge
        classes = tuple(self._stages.classes[i] for i in ops)
        rank = {number: k for k, number in enumerate(sorted(set(classes)))}
        part = Part(
            readers, tuple(rank[number] for number in classes), tuple(self._stages.times[i] for i in ops),
            () if self._merging is None else self._merging.sets(ops),
        )  # fmt: skip
        merge_costs = tuple(self._merge_costs(ops, part))
        look = (part, classes, merge_costs, limits)
        if look not in self._known:
            try:
                self._known[look] = self._solution(ops, part, limits, merge_costs)
            except TooLargeError as error:
                self._known[look] = str(error)
        return self._known[look]

    def _merge_costs(self, ops: tuple[int, ...], part: Part) -> Iterator[float]:
        for merged in part.merges:
            if self._deadline.over():
                raise StoppedError
            yield self._stages.ask(self._stages.named(ops, (merged,)), merged=True)

    def _solution(self, ops: tuple[int, ...], part: Part, limits: Limits, merge_costs: Sequence[float]) -> Solution:
        formula = self._stages.formula
        if len(ops) == 1:
            if formula is None:
                self._stages.latencies(ops, [((0,),)], self._deadline)
            return replace(one_by_one(1), states=1, transitions=1, schedules=1, schedules_exact=True,
                           distinct_stages=int(formula is None))  # fmt: skip
        search = PartSearch(part, merge_costs, limits, self._deadline)
        if formula is not None:
            return search.by_formula(formula)
        return search.by_cost(lambda stages: self._stages.latencies(ops, stages, self._deadline))


def least_transitions(readers: Sequence[Sequence[int]]) -> int:
    """Return how many endings of one operator there are at least.

    Of w operators as many steps from the start none reads from another: there is a state for each set of them, and
    each of a set ends its state.
    """
    steps = [0] * len(readers)
    for x, reading in enumerate(readers):
        for u in reading:
            steps[u] = max(steps[u], steps[x] + 1)
    width = max(Counter(steps).values())
    return int(width * 2 ** (width - 1))


def one_by_one(n: int) -> Solution:
    """Return what is left of a search that was stopped: operators one after the other."""
    return Solution(tuple((((k,),), False) for k in range(n)), 0, 0, 0, None, schedules_exact=False, distinct_stages=0)
