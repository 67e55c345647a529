"""`ios`: stages by dynamic programming over the endings of each block."""

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import Annotated, Any, Final

import numpy as np

from simsched.base.codec import Among, Size
from simsched.base.jit import running_time
from simsched.base.numeric import sum_in_order
from simsched.model import Cluster, CostModel, OpGraph, Schedule
from simsched.model.graph.columns import topological_order
from simsched.rewriting import merge
from simsched.rewriting.merging import merging_of
from simsched.schedulers.instance import require_finite
from simsched.schedulers.ios.endings import BlockPart, Solution
from simsched.schedulers.ios.problem import Problem, StoppedError, TooLargeError
from simsched.schedulers.protocol import Deadline, Mode, Seconds, Tools
from simsched.schedulers.stage_costs import StageLatencyOption

_MOST_TOGETHER: Final = 10_000
"""Operators of a part: what it takes to write down who depends on whom grows with their square."""
_MOST_BITS: Final = 12_960  # bits of a count: Python refuses numbers of more than 4,300 digits as text


def blocks_of(graph: OpGraph, blocks: str) -> list[list[int]]:
    """Return the operators of each block, in topological order; no block reads from a later one.

    Labels that read from each other in a circle are one block.
    """
    if blocks == "none":
        return [graph.order_index.tolist()]
    if blocks == "labels":
        bare = graph
    else:
        bare = OpGraph.from_columns(graph.names, graph.src, graph.dst)
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
    if sets:
        rewritten, replaced = merge(problem.graph, sets)
    else:
        rewritten = problem.graph
        replaced = []
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
