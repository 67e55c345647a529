"""IOS: stages by dynamic programming over the endings of each block."""

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import prod
from typing import Annotated, Any, Final

import numpy as np

from simsched.base.errors import SchedulerError
from simsched.base.jit import running_time
from simsched.base.kinds import Among, Size
from simsched.model import Cluster, CostModel, Indices, OpGraph, Schedule, operator_times
from simsched.model.graph.ordering import topological_order
from simsched.rewriting import Draft, can_merge, merge, merge_key, merged_operators, merging_lacks
from simsched.schedulers.deadline import Deadline
from simsched.schedulers.ios.part import Limits, Part, PartSearch, Solution, Stage, StoppedError, TooLargeError
from simsched.schedulers.listing import place_of, reduced, require_finite
from simsched.schedulers.options import Mode, Seconds
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
                found += [c for c in candidates if can_merge(self.draft, [self._names[ops[k]] for k in c])]
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


_MOST_BITS: Final = 12_960  # of a count: text of more than 4,300 digits is no number to Python


def ios(
    graph: OpGraph,
    cluster: Cluster,
    cost: CostModel,
    *,
    tools: Tools,
    strategy: Annotated[str, Among(("both", "parallel", "merge"))] = "both",
    r: Size | None = 3,
    s: Size | None = 8,
    endings: Annotated[str, Among(("exact", "single_root"))] | None = None,
    blocks: Annotated[str, Among(("labels", "dominators", "none"))] = "labels",
    max_part: Size = 100,
    max_transitions: Size = 5_000_000,
    max_stages: Size = 200_000,
    stage_latency: StageLatencyOption = "simulated",
    mode: Mode = "paper",
    time_limit: Seconds | None = None,
) -> Schedule:
    """Cut each block into stages of groups side by side, by dynamic programming over all ways to do so.

    Parameters
    ----------
    graph, cluster
        What to run, and on what; the first device is used.
    cost
        Time of an operator alone on a device, in us.
    tools
        Simulates the stages; `simsched.schedule` passes it.
    strategy
        ``"parallel"``: stages of groups side by side. ``"merge"``: stages of one operator, or of several
        convolutions merged into one. ``"both"``: all of these.
    r, s
        Most operators of a group and most groups of a stage; None for no limit.
    endings
        ``"exact"``: a stage may be any operators that no other operator still to be scheduled reads from; its
        groups are those that edges connect. ``"single_root"``: of a group only one operator may read from none
        of the stage, as in the released code, which made the figures of the paper. None: as `mode` says.
    blocks
        What is optimised on its own: ``"labels"``, the blocks of `OpGraph.blocks` (labels that read from each
        other in a circle are one); ``"dominators"``, the pieces between operators that every path passes,
        whatever the labels; ``"none"``, the graph as a whole.
    max_part
        Most operators that are optimised together, 10,000 at most; larger blocks are cut topologically into equal
        pieces.
    max_transitions
        Budget of a block, in endings looked at, those that `r` and `s` rule out among them. A block that needs
        more is cut topologically in halves, each with half the budget, and so on; so is one whose search would
        take gigabytes.
    max_stages
        Budget of a block likewise, in stages to ask `stage_latency` for; none are asked with a formula.
    stage_latency
        Latency of a stage in us: ``"simulated"`` (without launch and barrier); ``"hios-sim"``; a `StageFormula`,
        which is evaluated in machine code; a function of (groups, merged=False); or a table from groups to us.
        Groups are a tuple of tuples of operator names: groups by their first operators, operators in
        topological order. Operators to merge are one group, whose operators do not read from each other.
    mode
        ``"paper"`` or ``"impl"``, which makes ``endings="single_root"`` the default.
    time_limit
        Wall time in s, a cap: blocks that are not done by then run one operator after the other. So does Ctrl-C.

    Returns
    -------
    Schedule
        With `execution="stages"`, group k of a stage on stream k; `estimate` is the sum of the stage
        latencies. Its graph is the given one, or where operators were merged one rewritten by
        `simsched.rewriting.merge`. `search` holds: blocks and parts (blocks, cut ones in pieces), cut_blocks
        (number, operators, parts and reason of each), states, transitions (endings within `r` and `s`, those that
        merge included), merged_transitions, feasible_schedules (sequences of stages; the product over parts; exact
        if feasible_schedules_exact; None beyond 1e308 for a part or 1e3900 for all, or if stopped), distinct_stages
        and asked_stages (those that look different; both 0 with a formula), merged (operators merged), merging_lacks
        (convolutions whose merging could not be considered, each with the field that is missing), stopped and time_s.

    Raises
    ------
    SchedulerError
        If an option is out of range, or with ``strategy="merge"`` no operator has what merging needs.
    UnknownNameError
        If `stage_latency` is a name that is not known.

    Notes
    -----
    IOS [1]_, Algorithm 1 with the pruning of section 4.3. The program is run bottom-up over all sets that hold
    with an operator what it reads from: the fastest way to run such a set is the fastest way to run what an
    ending leaves, and then the ending. In a part of n operators and width d there are at most C(n/d + 2, 2)^d
    transitions; each costs about 30 ns. Sets are bit masks of any length. Equal costs keep the ending found
    first: by falling last operator, without merges before with them, so that what changes nothing is not merged.

    A stage is asked for once, and stages that look the same are one: with the simulator, operators that differ
    in names alone are. Blocks that look the same are solved once, and counted each.

    Where the text leaves it open: in a stage of merged operators these read the same tensor in the same way
    (`simsched.rewriting.can_merge`), and what the split takes counts. Any set of them up to 10 is tried,
    of more those next to each other in topological order. The released code limits endings (above), tries a merge
    before the same without, merges kernels that do not align, and does not count the split; only the first of
    these is followed with ``mode="impl"``, results that are wrong never. It cuts blocks every `max_part`
    operators.

    References
    ----------
    .. [1] Ding, Zhu, Jia, Pekhimenko, Han, "IOS: inter-operator scheduler for CNN acceleration",
       MLSys 2021, arXiv:2011.01302.
    """
    deadline = Deadline("ios", time_limit)
    start = running_time()
    merging = None if strategy == "parallel" else Merging(graph, required=strategy == "merge")
    stages = Latencies(graph, cluster, cost, stage_latency, tools, merging)
    if strategy == "merge":
        r = s = 1
    single_root = (endings or ("exact" if mode == "paper" else "single_root")) == "single_root"
    with deadline:
        solver = Solver(graph, stages, merging, Limits(r, s, single_root, max_transitions, max_stages), deadline)
        solved = [solver.solve(ops, max_part) for ops in blocks_of(graph, blocks)]
    said = {"merging_lacks": merging.lacking if merging else {}, "stopped": deadline.reason}
    return _schedule(graph, cluster.devices[0].name, solved, stages, said, start)


def _schedule(
    graph: OpGraph, device: str, solved: Sequence[Sequence[Piece]], costs: Latencies, said: dict[str, Any], start: float
) -> Schedule:
    """Put the stages of all pieces one after the other, with what the search saw."""
    pieces = [piece for block in solved for piece in block]
    stages = [(costs.named(piece.ops, stage), merged) for piece in pieces for stage, merged in piece.solution.stages]
    estimate = require_finite("ios", sum(costs.ask(groups, merged) for groups, merged in stages))
    sets = [groups[0] for groups, merged in stages if merged]
    rewritten, replaced = merge(graph, sets) if sets else (graph, [])
    new = iter(replaced)
    rows = [
        (rewritten.index[name], k, g)
        for k, (groups, merged) in enumerate(stages)
        for g, group in enumerate((next(new),) if merged else groups)
        for name in group
    ]
    op, stage, group = zip(*rows, strict=True)
    found = [piece.solution for piece in pieces]
    search: dict[str, Any] = {
        "blocks": len(solved),
        "parts": len(pieces),
        "cut_blocks": [
            {"block": k, "operators": sum(len(p.ops) for p in block), "parts": len(block), "reason": block[-1].reason}
            for k, block in enumerate(solved)
            if len(block) > 1
        ],
        "states": sum(solution.states for solution in found),
        "transitions": sum(solution.transitions for solution in found),
        "merged_transitions": sum(solution.merged_transitions for solution in found),
        "feasible_schedules": _product([solution.schedules for solution in found]),
        "feasible_schedules_exact": all(solution.schedules_exact for solution in found),
        "distinct_stages": sum(solution.distinct_stages for solution in found),
        "asked_stages": len(costs.known),
        "merged": sum(len(names) for names in sets),
        **said,
        "time_s": running_time() - start,
    }
    return Schedule.from_columns(
        rewritten, op, [device], stream=group, stage=stage, group=group,
        execution="stages", estimate=estimate, scheduler="ios", search=search,
    )  # fmt: skip


def _product(counts: Sequence[int | None]) -> int | None:
    """Return the product of some numbers, None if one of them is not known or there are too many digits to write."""
    known = [count for count in counts if count is not None]
    whole = len(known) == len(counts) and sum(count.bit_length() for count in known) <= _MOST_BITS
    return prod(known) if whole else None
