"""IOS: stages by dynamic programming over the endings of each block, which machine code goes through."""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, combinations, pairwise
from math import inf, prod
from typing import Annotated, Any, Final

import numpy as np
import numpy.typing as npt

from simsched.base.codec import Among, Size
from simsched.base.errors import SchedulerError
from simsched.base.jit import running_time
from simsched.base.numeric import sum_in_order
from simsched.model import Cluster, CostModel, Floats, Ints, OpGraph, Schedule, operator_times
from simsched.model.graph.columns import KERNELS, topological_order
from simsched.rewriting import Draft, can_merge, merge, merge_key, merged_operators, merging_lacks
from simsched.rewriting.merging import merging_of
from simsched.schedulers.ios import kernels
from simsched.schedulers.listing import place_of, reduce_edges, require_finite
from simsched.schedulers.protocol import Deadline, Mode, Seconds, Tools
from simsched.schedulers.stage_costs import Groups, StageCost, StageFormula, StageLatencyOption, executed_in_turn

_ALL_SUBSETS_OF: Final = 10
"""Operators of one key up to which all subsets are merged; of more only those that stand next to each other."""
_STEPS: Final = 2**21  # cells between two looks at the clock
_FIRST_ROOM: Final = 1024
_EXACT_BELOW: Final = 2.0**62
_MOST_NBYTES: Final = 2**30  # bytes of one column; so cells can be counted in 32 bits


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
        self._draft = draft = Draft.from_graph(graph) if convolutions else Draft([])  # else there is nothing to look at
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
            return sum_in_order(times) if formula is None else formula.latency([sum_in_order(times)])

        self.times = operator_times(graph, device, cost)
        by_look = isinstance(option, str | StageFormula)
        self.classes = _classes(graph, self.times) if by_look else place_of(graph.order_index)
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


@dataclass(frozen=True, slots=True)
class Solution:
    """A fastest sequence of stages of a part, and statistics of its search.

    Parameters
    ----------
    stages
        Groups of operators by name; and whether they are merged.
    states, transitions, merged_transitions
        States and transitions of the dynamic program, and transitions that merge operators.
    schedules
        How many sequences of stages there are; exact, or close if `schedules_exact` is false, None beyond 1e308, or if
        it was stopped.
    distinct_stages
        Stages that end any state; 0 with a formula.
    reason
        Why the block that it is of was cut, the option; None if it is a whole block.
    """

    stages: tuple[tuple[Groups, bool], ...]
    states: int = 0
    transitions: int = 0
    merged_transitions: int = 0
    schedules: int | None = None
    schedules_exact: bool = False
    distinct_stages: int = 0
    reason: str | None = None

    def __len__(self) -> int:
        return sum(len(group) for groups, _ in self.stages for group in groups)


class BlockPart:
    """Operators that are optimised together, and the compiled search over their stages.

    Parameters
    ----------
    problem
        The problem that the stages belong to.
    ops
        The operators, in topological order; below each is numbered by its place.
    r, s
        Most operators of a group and most groups of a stage.
    single_root
        Whether only one operator of a group may read from none in the stage.
    max_transitions, max_stages
        Most endings to look at, and most stages to ask the cost of.

    Raises
    ------
    TooLargeError
        If there are more states than the budget or the memory allows.
    StoppedError
        If the deadline is over.
    """

    def __init__(
        self,
        problem: Problem,
        ops: Sequence[int],
        r: int | None,
        s: int | None,
        single_root: bool,
        max_transitions: int,
        max_stages: int,
    ) -> None:
        self._problem = problem
        self._max_transitions = max_transitions
        self._max_stages = max_stages
        problem.check_time()
        n = len(ops)
        self._names = [problem.graph.names[i] for i in ops]
        place, (ptr, edges), dst = {i: k for k, i in enumerate(ops)}, problem.graph.outgoing, problem.graph.dst
        within = ((place[i], place[j]) for i in ops for j in dst[edges[ptr[i] : ptr[i + 1]]].tolist() if j in place)
        self._readers = reduce_edges(n, within)[0]  # without edges that follow from others
        if least_transitions(self._readers) > max_transitions:
            raise TooLargeError("max_transitions")  # known before any latency of merged operators is asked for
        self._classes = np.unique(problem.classes[ops], return_inverse=True)[1]  # below n
        self._merges = problem.merges(ops)
        merge_cost = [problem.ask(self._names_of((merge,)), merged=True) for merge in self._merges]
        most = n if r is None else min(n, r)
        room = _FIRST_ROOM + 2 * n
        reader_ptr, readers = _join_rows(self._readers)
        producers = np.repeat(np.arange(n), np.diff(reader_ptr))
        by_reader = np.lexsort((-producers, readers))
        merge_ptr, merged = _join_rows([merge[::-1] for merge in self._merges])
        fewer = (max(0, min(len(reading) - 1, most - 2)) for reading in self._readers)
        self._run = run = kernels.PartTable(
            n_ops=n,
            n_words=(n + 63) // 64,
            n_states=1,
            single_root=single_root,
            most_ops=most,
            most_groups=n if s is None else min(n, s),
            n_merges=len(self._merges),
            states_room=room,
            cells_room=room,
            nodes_room=1 << (room - 1).bit_length(),
            written_room=room,
            time=problem.times[ops],
            classes=self._classes.astype(np.int32),
            fewer=np.array([0, *accumulate(fewer)], np.int32),
            reader_ptr=reader_ptr,
            readers=readers,
            source_ptr=np.searchsorted(readers[by_reader], np.arange(n + 1)).astype(np.int32),
            sources=producers[by_reader].astype(np.int32),
            merge_ptr=merge_ptr,
            merged=merged,
            merge_cost=np.array(merge_cost, np.float64),
        )
        run["masks"][: run.n_words].view(np.uint8)[: (n + 7) // 8] = np.packbits(np.ones(n, bool), bitorder="little")
        run["groups"]["parent"] = kernels.NOT_TAKEN
        sinks = [i for i in reversed(range(n)) if not self._readers[i]]
        run["states"]["end"][0] = run.n_cells = len(sinks)
        run["cells"]["operator"][: len(sinks)] = sinks
        while run.state < run.n_states:
            self._make_room("states", "cells")
            kernels.build_states(run)
            problem.check_time()
            if run.n_cells > max_transitions:  # each is an ending of one operator
                raise TooLargeError("max_transitions")
        run["values"] = np.zeros(run.n_states, kernels.StateValue.dtype)
        run["values"]["count"][-1] = run["values"]["count_modulo"][-1] = 1

    def _names_of(self, stage: Sequence[Sequence[int]]) -> Groups:
        return tuple(tuple(self._names[k] for k in group) for group in stage)

    def _make_room(self, *growing: str) -> None:
        """Double the columns that are nearly full."""
        run = self._run
        for what in growing:
            room = getattr(run, f"{what}_room")
            if getattr(run, f"n_{what}") + run.n_ops < room:
                continue
            for name in ("masks", "states") if what == "states" else (what,):
                old = run[name]
                if 2 * old.nbytes > _MOST_NBYTES:
                    raise TooLargeError("memory")
                more = np.empty(old.nbytes, np.uint8)  # rows are copied as bytes, not field after field
                run[name] = np.concatenate([old.view(np.uint8), more]).view(old.dtype)
            setattr(run, f"{what}_room", 2 * room)
            if what == "nodes":
                run["slots"] = np.zeros(2 * run.nodes_room, np.int32)
                kernels.fill_slots(run)

    def _search(self, mode: int) -> None:
        """Go through all endings."""
        run = self._run
        left = self._max_transitions
        run.mode = mode
        run.state = run.n_states - 2
        run.depth = -1
        run.n_endings = 0
        while run.state >= 0:
            if left == 0:
                raise TooLargeError("max_transitions")
            self._make_room("nodes", "written")
            run.left = steps = min(left, _STEPS)
            kernels.search_endings(run)
            self._problem.check_time()
            left -= steps - run.left
            if run.n_asked > self._max_stages:
                raise TooLargeError("max_stages")

    def solution(self, reason: str | None) -> Solution:
        """Return a fastest sequence of stages, with the reason why its block was cut.

        Raises
        ------
        TooLargeError
            If there are more endings, or looks of stages to ask for, than the budget allows.
        StoppedError
            If the deadline is over.
        """
        run = self._run
        formula = self._problem.formula
        if formula is None:
            run.n_nodes = kernels.FIRST_NODE
            self._search(kernels.COLLECT)
            costs = np.array([inf, *map(self._problem.ask, self._questions())])
            nodes = run["nodes"][: run.n_nodes]
            nodes["cost"] = costs[nodes["asked"]]
            self._search(kernels.LOOK_UP)
        else:
            run["factor"] = 1.0 + formula.slowdown * (np.arange(run.n_ops + 1) - 1.0)
            run["factor"][0] = formula.constant
            self._search(kernels.FORMULA)
        whole = run.values[0]
        masks = run["masks"].reshape(-1, run.n_words)
        require_finite("ios", whole.cost)
        stages: list[tuple[Groups, bool]] = []
        state = 0
        while state < run.n_states - 1:
            value = run.values[state]
            ending = np.unpackbits((masks[state] & ~masks[value.next]).view(np.uint8), bitorder="little")
            groups = [self._merges[value.merge]] if value.merge >= 0 else self._groups(np.flatnonzero(ending).tolist())
            stages.append((self._names_of(groups), value.merge >= 0))
            state = value.next
        transitions = run.n_endings + run.n_merged_endings
        # an upper bound of the rounding error: additions one after the other, stage after stage
        exact = whole.count * (run.n_ops + 1) * (transitions + 1) * 2.0**-52 < _EXACT_BELOW
        schedules = int(whole.count) if whole.count < inf else None
        if exact and schedules is not None:  # the closest number that is the same modulo 2^64
            schedules += (whole.count_modulo - schedules + 2**63) % 2**64 - 2**63
        return Solution(
            tuple(reversed(stages)),
            run.n_states - 1,
            transitions,
            run.n_merged_endings,
            schedules,
            exact,
            run.n_stages,
            reason,
        )

    def _questions(self) -> Iterator[Groups]:
        """Yield the stages to ask the cost of."""
        stage: list[list[int]] = [[]]
        for drafted in self._run["written"][: self._run.n_written].tolist():
            if drafted == kernels.END_OF_STAGE:
                yield self._names_of(stage[:-1])
                stage = [[]]
                continue
            stage[-1].append(drafted >> 1)
            if not drafted & 1:
                stage.append([])

    def _groups(self, ops: Sequence[int]) -> list[list[int]]:
        """Return the groups of a stage: rising operators that edges connect, by their classes, then first operators."""
        group_of: dict[int, list[int]] = {}
        for x in reversed(ops):
            group = group_of[x] = [x]
            for u in self._readers[x]:
                if u in group_of and group_of[u] is not group:
                    group += group_of[u]
                    group_of |= dict.fromkeys(group_of[u], group)
        groups = [sorted(group_of[x]) for x in ops if min(group_of[x]) == x]
        return sorted(groups, key=lambda group: [self._classes[x] for x in group])


def least_transitions(readers: Sequence[Sequence[int]]) -> int:
    """Return how many endings of one operator there are at least.

    The first operators of w chains do not read from each other: there is a state for each set of them, and each subset
    ends its state.
    """
    steps = [0] * len(readers)
    for x, reading in enumerate(readers):
        for u in reading:
            steps[u] = max(steps[u], steps[x] + 1)
    width = max(Counter(steps).values())
    return int(width * 2 ** (width - 1))


def _join_rows(rows: Sequence[Sequence[int]]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Return where each row begins, and the numbers of all."""
    ptr = np.array([0, *accumulate(map(len, rows))], np.int32)
    return ptr, np.array([i for row in rows for i in row], np.int32)


def blocks_of(graph: OpGraph, blocks: str) -> list[list[int]]:
    """Return the operators of each block, in topological order; no block reads from a later one.

    Labels that read from each other in a circle are one block.
    """
    if blocks == "none":
        return [graph.order_index.tolist()]
    bare = graph if blocks == "labels" else OpGraph.from_columns(graph.names, graph.src, graph.dst)
    block_of = {graph.index[name]: k for k, names in enumerate(bare.blocks) for name in names}
    circle = [0]
    while circle:
        members: dict[int, list[int]] = {}  # blocks in the order of their first operators
        for i in graph.order_index.tolist():
            members.setdefault(block_of[i], []).append(i)
        number = np.empty(len(graph), np.int64)
        for k, ops in enumerate(members.values()):
            number[ops] = k
        src = number[graph.src]
        dst = number[graph.dst]
        order, circle = topological_order(len(members), src[src != dst], dst[src != dst])
        block_of = {i: circle[0] if k in circle else k for i, k in enumerate(number.tolist())}
    labelled = list(members.values())
    return [labelled[k] for k in order.tolist()]


_MOST_TOGETHER: Final = 10_000
"""Operators of a part: what it takes to write down who depends on whom grows with their square."""
_MOST_BITS: Final = 12_960  # bits of a count: Python refuses numbers of more than 4,300 digits as text


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
    stage_latency: StageLatencyOption = "executed",
    mode: Mode = "paper",
    time_limit: Seconds | None = None,
) -> Schedule:
    """Cut each block into stages of groups side by side, by dynamic programming over all ways to do so.

    Parameters
    ----------
    graph, cluster
        The graph to run, and the cluster; its first device is used.
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
        ``"exact"``: a stage may be any operators that no other operator still to be scheduled reads from; edges connect
        its groups. ``"single_root"``: in each group all operators but one have readers in the stage, as in the released
        code, which made the figures of the paper. None: chosen by `mode`.
    blocks
        The parts that are optimised separately: ``"labels"``, the blocks of `OpGraph.blocks` (labels that read from
        each other in a circle are one); ``"dominators"``, the pieces between operators that every path passes, whatever
        the labels; ``"none"``, the graph as a whole.
    max_part
        Most operators that are optimised together, 10,000 at most; larger blocks are cut topologically into equal
        pieces.
    max_transitions
        Budget of a block, in endings looked at, including endings that `r` and `s` rule out. A block that needs more is
        cut topologically in halves, each with half the budget, and so on; a block whose search would take gigabytes is
        cut likewise.
    max_stages
        Budget of a block likewise, in stages to ask `stage_latency` for; none are asked with a formula.
    stage_latency
        Latency of a stage in us: ``"executed"``, with launches and barrier, as the paper measures stages on the device;
        ``"simulated"``, without both; ``"hios-sim"``; a `StageFormula`, which is evaluated in native code; a function
        of (groups, merged=False); or a table from groups to us. Groups are a tuple of tuples of operator names: groups
        by their first operators, operators in topological order. Operators to merge are one group, whose operators do
        not read from each other.
    mode
        ``"paper"`` or ``"impl"``, which makes ``endings="single_root"`` the default.
    time_limit
        Wall time in s, a cap: blocks that are not done by then run one operator after the other. So does Ctrl-C.

    Returns
    -------
    Schedule
        A schedule with `execution="stages"`, group k of a stage on stream k; `estimate` is the sum of the stage
        latencies. With executed stages it is one operator after the other on one stream, if the simulation of that is
        faster than the best stages. Its graph is the given one, or where operators were merged one rewritten by
        `simsched.rewriting.merge`. `search` holds: blocks and parts (blocks, cut ones in pieces), cut_blocks (number,
        operators, parts and reason of each), states, transitions (endings within `r` and `s`, including endings that
        merge), merged_transitions, feasible_schedules (sequences of stages; the product over parts; exact if
        feasible_schedules_exact; None beyond 1e308 for a part or 1e3900 for all, or if stopped), distinct_stages and
        asked_stages (stages of different classes; both 0 with a formula), merged (operators merged), merging_lacks
        (convolutions whose merging could not be considered, each with the field that is missing), one_stream (whether
        one stream was faster), stopped and time_s.

    Raises
    ------
    SchedulerError
        If an option is out of range, or with ``strategy="merge"`` no operator has the data that merging needs.
    UnknownNameError
        If `stage_latency` is a name that is not known.

    Notes
    -----
    IOS [1]_, Algorithm 1 with the pruning of section 4.3. The program is run bottom-up over all sets that contain the
    producers of their operators: the fastest way to run a set is the fastest way to run the set without an ending, and
    then the ending. In a part of n operators and width d there are at most C(n/d + 2, 2)^d transitions; each costs
    about 30 ns. Sets are bit masks of any length. Equal costs keep the ending that is tried first: by falling last
    operator, without merges before with them, so that merges without gain are not made.

    A stage is asked for once, and stages that look the same are one: with the simulator, operators that differ
    in names alone are.

    Where the text leaves it open: merged operators of a stage read the same tensor in the same way
    (`simsched.rewriting.can_merge`), and the time of the split counts. Any set of them up to 10 is tried, of more only
    neighbours in topological order. The released code limits endings (above), tries a merge before the same without,
    merges kernels that do not align, and does not count the split; ``mode="impl"`` follows only the first of these, and
    never its wrong results. It cuts blocks every `max_part` operators.

    References
    ----------
    .. [1] Ding, Zhu, Jia, Pekhimenko, Han, "IOS: inter-operator scheduler for CNN acceleration",
       MLSys 2021, arXiv:2011.01302.
    """
    deadline = Deadline("ios", time_limit)
    start = running_time()
    problem = Problem(graph, cluster, cost, stage_latency, tools, strategy, deadline)
    if strategy == "merge":
        r = s = 1
    single_root = (endings or ("exact" if mode == "paper" else "single_root")) == "single_root"

    def solve(ops: Sequence[int], share: int = 1, reason: str | None = None) -> list[Solution]:
        """Return the solution of a block or of a piece with that part of the budget, or the solutions of its pieces."""
        n = -(-len(ops) // min(max_part, _MOST_TOGETHER))
        if n > 1:
            reason = "max_part"
        else:
            budget = max(1, max_transitions // share), max(1, max_stages // share)
            try:
                return [BlockPart(problem, ops, r, s, single_root, *budget).solution(reason)]
            except StoppedError:
                return [Solution(tuple((((graph.names[i],),), False) for i in ops), reason=reason)]
            except TooLargeError as error:
                n = 2
                reason = str(error)
        pieces = pairwise(len(ops) * k // n for k in range(n + 1))
        return [solution for begin, end in pieces for solution in solve(ops[begin:end], n * share, reason)]

    with deadline:
        solved = [solve(ops) for ops in blocks_of(graph, blocks)]
    plan = _schedule(problem, cluster.devices[0].name, solved, start)
    if stage_latency != "executed":
        return plan
    alone = _on_one_stream(problem, plan)
    if tools.makespan(plan, cluster, cost) <= tools.makespan(alone, cluster, cost):
        return plan
    return alone


def _on_one_stream(problem: Problem, plan: Schedule) -> Schedule:
    """Return stages of one operator of the graph each, with the statistics of the search for another schedule."""
    graph = problem.graph
    order = graph.order_index
    nowhere = np.zeros(len(graph), np.int64)
    estimate = require_finite("ios", sum_in_order(problem.latency(((graph.names[i],),)) for i in order.tolist()))
    return Schedule.from_columns(
        graph,
        order,
        plan.devices,
        stream=nowhere,
        stage=np.arange(len(graph)),
        group=nowhere,
        execution="stages",
        estimate=estimate,
        scheduler="ios",
        search={**plan.search, "merged": 0, "one_stream": True},
    )


def _schedule(problem: Problem, device: str, solved: Sequence[Sequence[Solution]], start: float) -> Schedule:
    """Put the stages of all pieces one after the other, with the statistics of the search."""
    n_asked = sum(not merged for _, merged in problem.latency.known)
    solutions = [solution for block in solved for solution in block]
    stages = [stage for solution in solutions for stage in solution.stages]
    estimate = require_finite("ios", sum_in_order(problem.latency(groups, merged) for groups, merged in stages))
    sets = [groups[0] for groups, merged in stages if merged]
    rewritten, replaced = merge(problem.graph, sets) if sets else (problem.graph, [])
    new = iter(replaced)
    rows = [
        (rewritten.index[name], k, g)
        for k, (groups, merged) in enumerate(stages)
        for g, group in enumerate((next(new),) if merged else groups)
        for name in group
    ]
    op, stage, group = zip(*rows, strict=True)
    counts = [solution.schedules for solution in solutions if solution.schedules is not None]
    written = len(counts) == len(solutions) and sum(count.bit_length() for count in counts) <= _MOST_BITS
    search: dict[str, Any] = {
        "blocks": len(solved),
        "parts": len(solutions),
        "cut_blocks": [
            {"block": k, "operators": sum(map(len, block)), "parts": len(block), "reason": block[-1].reason}
            for k, block in enumerate(solved)
            if len(block) > 1
        ],
        "states": sum(solution.states for solution in solutions),
        "transitions": sum(solution.transitions for solution in solutions),
        "merged_transitions": sum(solution.merged_transitions for solution in solutions),
        "feasible_schedules": prod(counts) if written else None,
        "feasible_schedules_exact": all(solution.schedules_exact for solution in solutions),
        "distinct_stages": sum(solution.distinct_stages for solution in solutions),
        "asked_stages": n_asked,
        "merged": sum(len(names) for names in sets),
        "merging_lacks": problem.lacking,
        "one_stream": False,
        "stopped": problem.deadline.reason,
        "time_s": running_time() - start,
    }
    return Schedule.from_columns(
        rewritten,
        op,
        [device],
        stream=group,
        stage=stage,
        group=group,
        execution="stages",
        estimate=estimate,
        scheduler="ios",
        search=search,
        rewriting=merging_of(sets),
    )
