"""AutoGraph: substitutions that shorten the whole of a graph on many streams, not only the sum of its operators."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from math import inf
from typing import Annotated, Final

from simsched.base.codec import Among, Amount, Range, Size
from simsched.base.errors import SchedulerError
from simsched.base.jit import running_time
from simsched.base.numeric import is_number
from simsched.model import Cluster, CostModel, OpGraph, Schedule
from simsched.model.rewriting import Rewriting
from simsched.rewriting import RULES, GraphDraft, Rule
from simsched.rewriting.parts import part_of, put_together
from simsched.schedulers.autograph.parts import Backtracking, MixedCost, Variant, best_choices
from simsched.schedulers.protocol import Deadline, Seconds, Tools

_KEPT: Final = 4
"""One operator in so many, at either end of a piece, stays on its side of the cut."""


def atoms(
    reads: Mapping[str, Sequence[str]], matches: Mapping[str, int], size_l: int, stopped: Callable[[], bool]
) -> list[tuple[str, ...]]:
    """Cut a graph where the fewest substitution matches are, until every piece has fewer than `size_l` operators.

    Parameters
    ----------
    reads
        Names of each operator's producers, in topological order; names that are no keys are ignored.
    matches
        How many rule matches an operator takes part in; at least 1 is assumed.
    size_l
        Largest size of a piece that is not cut, at least 2.
    stopped
        Called before each cut; once it returns True the pieces stay unchanged.

    Returns
    -------
    list of tuple
        The pieces, each in topological order; no piece reads from one that follows it.

    Notes
    -----
    An operator of a piece becomes an edge of capacity `matches`, an edge of the graph becomes an edge without limit;
    Boykov and Kolmogorov's algorithm cuts the first operators from the last [1]_. Operators that are cut belong to the
    first side. Ours, where the paper is silent: the first and the last quarter of a piece stay on their sides, or a
    chain would be cut after its first operator; and edges may not lead back across the cut, so that pieces run one
    after the other.

    References
    ----------
    .. [1] Boykov, Kolmogorov, "An experimental comparison of min-cut/max-flow algorithms for energy
       minimization in vision", IEEE TPAMI 26(9), 2004, doi:10.1109/TPAMI.2004.60.
    """
    done: list[tuple[str, ...]] = []
    waiting = [tuple(reads)]
    while waiting:
        piece = waiting.pop()
        if len(piece) < size_l or stopped():
            done.append(piece)
            continue
        first = _first_side(piece, reads, matches)
        waiting.append(tuple(name for name in piece if name not in first))
        waiting.append(tuple(name for name in piece if name in first))
    return done


def _first_side(piece: Sequence[str], reads: Mapping[str, Sequence[str]], matches: Mapping[str, int]) -> set[str]:
    """Return the operators of a piece on the first side of its least cut."""
    import networkx as nx

    margin = max(1, len(piece) // _KEPT)
    source = -1
    sink = -2
    enters: dict[str, int] = dict.fromkeys(piece[:margin], source) | dict.fromkeys(piece[-margin:], sink)
    leaves: dict[str, int] = {}
    for i, name in enumerate(piece):
        enters.setdefault(name, 2 * i)
        if enters[name] != sink:
            leaves[name] = 2 * i + 1
    network: nx.DiGraph[int] = nx.DiGraph()
    network.add_nodes_from((source, sink))
    for name, out in leaves.items():
        network.add_edge(enters[name], out, capacity=max(1, matches.get(name, 0)))
        network.add_edge(out, enters[name])  # an edge without capacity has no limit
    for name in piece:
        for producer in reads[name]:
            if producer in leaves:
                network.add_edge(leaves[producer], enters[name])
                if enters[name] != sink:
                    network.add_edge(enters[name], enters[producer])  # inputs of the first side belong to it
    _, (first, _) = nx.minimum_cut(
        network, source, sink, flow_func=nx.algorithms.flow.boykov_kolmogorov
    )  # the side of the source is the largest there is: it does not depend on which flow was found
    return {name for name in piece if enters[name] in first}


def intervals(sizes: Sequence[int], size_u: int) -> list[tuple[int, int]]:
    """Return every run of adjacent pieces that has at most `size_u` operators, the shortest first.

    Parameters
    ----------
    sizes
        Operators of each piece, in order.

    Returns
    -------
    list of (int, int)
        First piece, and the piece after the last. A piece alone is always one of them.

    >>> intervals([30, 30, 30, 30], 60)
    [(0, 1), (1, 2), (2, 3), (3, 4), (0, 2), (1, 3), (2, 4)]
    """
    total = [0, *accumulate(sizes)]
    count = len(sizes)
    return [
        (first, first + length)
        for length in range(1, count + 1)
        for first in range(count - length + 1)
        if length == 1 or total[first + length] - total[first] <= size_u
    ]


def rewritten(
    start: Variant, search: Backtracking, size_l: int, size_u: int, progress: Callable[[str], None]
) -> list[Variant]:
    """Return the graphs of least cost that can be made from one, and the graphs that each rule makes alone.

    Parameters
    ----------
    start
        The graph to rewrite.
    size_l, size_u
        As for `autograph`.
    progress
        Called with the part that is searched.
    """
    pieces = _pieces(start.draft, search, size_l)
    runs = intervals([len(piece) for piece in pieces], size_u)
    parts: dict[tuple[int, int], GraphDraft] = {}
    best: dict[tuple[int, int], list[Variant]] = {}
    by_rule: list[dict[str, Variant]] = []
    for done, (first, end) in enumerate(runs):
        if end - first > 1 and search.deadline.over():
            break
        progress(f"part {done + 1} of {len(runs)}")
        part = parts[first, end] = part_of(start.draft, [name for piece in pieces[first:end] for name in piece])
        search.begin()
        if end - first == 1:
            unchanged = Variant(part, search.costs(part))
            by_rule.append(search.by_one_rule(unchanged))
            starts = [unchanged, *(variant for variant in by_rule[-1].values() if variant.steps)]
        else:  # the first parts and the last one; the first one and the others
            cuts = [((first, cut), (cut, end)) for cut in dict.fromkeys((end - 1, first + 1))]
            starts = [search.join_parts(part, [(parts[half], best[half][0]) for half in halves]) for halves in cuts]
        best[first, end] = search.best(starts)
    choices = [choice.parts for choice in best_choices(best, len(pieces), search.top)]
    choices += [
        tuple(((i, i + 1), variants_of[rule]) for i, variants_of in enumerate(by_rule)) for rule in search.rules
    ]
    distinct_: dict[int, Variant] = {}
    for chosen in choices:
        draft = put_together(start.draft, [(parts[run], variant.draft) for run, variant in chosen])
        if draft is not None:
            steps = tuple(step for _, variant in chosen for step in variant.steps)
            rewriting = Rewriting(tuple(variant.of_part(parts[run]) for run, variant in chosen))
            whole = Variant(draft, search.costs(draft), start.steps + steps, rewriting=(*start.rewriting, rewriting))
            distinct_.setdefault(draft.signature(), whole)
    return sorted(distinct_.values(), key=lambda variant: variant.cost.mixed)


def _pieces(draft: GraphDraft, search: Backtracking, size_l: int) -> list[tuple[str, ...]]:
    """Return the parts into which a draft is cut, in order."""
    matches = dict.fromkeys(draft.to_graph().order, 0)
    for rule in search.rules.values():
        for match in rule.matches(draft):
            if search.deadline.over():
                break
            for name in dict.fromkeys(match):
                matches[name] += 1
    reads = {name: [read.producer for read in draft.rows[name].reads] for name in matches}
    return atoms(reads, matches, size_l, search.deadline.over)


def chosen_rules(rules: Iterable[str | Rule] | None) -> dict[str, Rule]:
    """Return rules by name: all, some of the library, or the caller's own."""
    if isinstance(rules, str) or not isinstance(rules, Iterable | None):
        raise SchedulerError(f"autograph: rules must be a list of names, such as ['R1', 'R2'], not {rules!r}")
    rules_by_name: dict[str, Rule] = {}
    for entry in RULES if rules is None else rules:
        if isinstance(entry, str):
            rule = RULES.get(entry)
        else:
            rule = entry
        if not isinstance(rule, Rule):
            raise SchedulerError(f"autograph: rules has no {entry!r}; known are: {', '.join(RULES)}")
        rules_by_name[rule.name] = rule
    return rules_by_name


def autograph(
    graph: OpGraph,
    cluster: Cluster,
    cost: CostModel,
    *,
    tools: Tools,
    rules: Iterable[str | Rule] | None = None,
    dp: bool = True,
    objective: Annotated[str, Among(("mixed", "sum"))] = "mixed",
    alpha: Amount = 0.25,
    beta: Annotated[float, Range(1)] = 1.1,
    size_l: Annotated[int, Range(2)] = 40,
    size_u: Size = 120,
    top: Size = 20,
    budget: Size = 300,
    rounds: Size = 10,
    measure: Callable[[Schedule], float] | None = None,
    time_limit: Seconds | None = None,
    progress: Callable[[str], None] | None = None,
) -> Schedule:
    """Rewrite a graph into one that computes the same in less time on many streams of one device, and schedule that.

    Parameters
    ----------
    graph, cluster
        The graph to run, and the cluster; its first device is used.
    cost
        Time of an operator alone on a device, in us. It is asked about operators that substitutions make, too.
    rules
        Names of substitution rules (see `simsched.rewriting.RULES`), or other rules, for which the caller of
        `simsched.schedule` vouches; None for all, ``()`` for none, which leaves the graph unchanged.
    dp
        False: parts are rewritten each for itself, and never together with their neighbours.
    objective
        ``"mixed"``: sum of all times and `alpha` times the sum over the longest path; candidates are then measured.
        ``"sum"``: sum of the times alone, as in TASO and MetaFlow; the graph of the least sum is taken, unless
        `measure` is given.
    alpha
        Weight of the longest path, at least 0.
    beta
        A part is not rewritten further where it costs more than `beta` times the best found, at least 1.
    size_l, size_u
        The graph is cut until each piece has fewer than `size_l` operators; adjacent pieces are put together
        again as long as they have at most `size_u`.
    top
        How many of the graphs of least cost are measured per round.
    budget
        Most graphs derived from a part.
    rounds
        Most times that the best graph is rewritten again.
    measure
        Function from a schedule to its time in us, for example a hardware backend's; the simulated makespan by default.
    time_limit
        Cap in s; the best until then is returned.
    progress
        Called with the name of each step.

    Returns
    -------
    Schedule
        Schedule of the rewritten graph (of `graph` itself where no rewriting was better). Nimble gives it streams, so
        execution and `estimate` are Nimble's: a captured graph, and the list evaluation without contention. `search`
        holds ``"candidates"`` (graphs derived), ``"rounds"``, ``"subgraphs"`` (parts searched), ``"substitutions"`` (by
        rule, those that led to the result), ``"measured"`` (graphs), ``"cost"`` (of the result by the objective, us),
        ``"start_us"`` and ``"best_us"`` (as measured), ``"stopped"``, ``"time_s"``.

    Raises
    ------
    SchedulerError
        If an option is out of range, or no operator has shapes.

    Notes
    -----
    AutoGraph [1]_: the graph is cut where the fewest matches of rules cross (`atoms`). The best variants of each part,
    and of runs of adjacent parts, are searched (`Backtracking`) by the mixed critical path cost (`MixedCost`); a
    dynamic program with lists of the `top` best chooses from them (`best_choices`). The resulting `top` graphs are
    measured on their streams. The fastest is rewritten again until none is faster; the start is measured as well, so
    the result is never slower.

    There is no released code, and the text leaves the following open. The graph of least cost is tried next, up to
    `budget`; a run begins with the best of its first parts and its last one, and of its first one and the others. The
    search continues only from a strictly faster graph, and measures each graph once. Ours: the search also begins from
    the result of each rule alone on a part, and its result on all parts is measured, since substitutions that lower the
    cost most may bar the way to better ones, and since many that lower the cost make it slower on streams; of graphs
    with the same sum of times only the best is kept. Equal costs keep the order in which graphs were found.

    A cut takes O(V^2 E) at worst and a few milliseconds in practice; a graph derived from a part takes O(`size_u`),
    with at most `budget` graphs for each of O(V size_u / size_l^2) runs.

    References
    ----------
    .. [1] Zhao, Sun, He, Bai, Yu, "AutoGraph: optimizing DNN computation graph for parallel GPU kernel execution",
       AAAI 2023, doi:10.1609/aaai.v37i9.26343.
    """
    begin = running_time()
    deadline = Deadline("autograph", time_limit)
    used = chosen_rules(rules)
    if used and all(op.output_shape is None for op in graph.operators):
        raise SchedulerError(
            f"autograph: operator {graph.names[0]!r} has no shapes, and no other has: substitutions cannot be checked; "
            f"give operators `kind`, `attributes`, `input_shapes` and `output_shape`, or rules=() to rewrite nothing"
        )
    costs = MixedCost(cluster.devices[0], cost, 0.0 if objective == "sum" else alpha)
    search = Backtracking(used, costs, beta, budget, top, deadline)

    def tell(text: str) -> None:
        if progress is not None:
            progress(f"round {done}, {text}")

    def assess(variant: Variant, candidate: OpGraph) -> tuple[float, Schedule]:
        plan = tools.schedule(candidate, cluster, "nimble", cost)
        if measure is None:
            return variant.cost.total if objective == "sum" else tools.makespan(plan, cluster, cost), plan
        us = measure(plan)
        if not is_number(us) or not 0 <= us < inf:
            raise SchedulerError(f"autograph: measure must return a time in us, not {us!r}")
        return float(us), plan

    draft = GraphDraft.from_graph(graph)
    best = Variant(draft, costs(draft))
    start_us, plan = assess(best, graph)
    best_us = start_us
    seen = {best.draft.signature()}
    done = 0
    with deadline:
        improved = bool(used)
        while improved and done < rounds and not deadline.over():
            improved = False
            done += 1
            for variant in rewritten(best, search, size_l, size_u if dp else 1, tell):
                if variant.draft.signature() in seen or deadline.over():
                    continue
                seen.add(variant.draft.signature())
                us, streamed = assess(variant, variant.draft.to_graph())
                if us < best_us:
                    best = variant
                    best_us = us
                    plan = streamed
                    improved = True
    return plan.like(
        scheduler="autograph",
        estimate=plan.estimate,
        rewriting=best.rewriting,
        search={
            "candidates": search.candidates,
            "rounds": done,
            "subgraphs": search.parts,
            "substitutions": {name: n for name in used if (n := sum(step.rule == name for step in best.steps))},
            "measured": len(seen),
            "cost": best.cost.mixed,
            "start_us": start_us,
            "best_us": best_us,
            "stopped": deadline.reason,
            "time_s": running_time() - begin,
        },
    )
