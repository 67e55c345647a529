"""AutoGraph: substitutions that shorten the whole of a graph on many streams, not only the sum of its operators."""

from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import Annotated

from simsched.base.errors import SchedulerError
from simsched.base.jit import running_time
from simsched.base.kinds import Among, Amount, Range, Size
from simsched.base.numeric import is_number
from simsched.model import Cluster, CostModel, OpGraph, Schedule
from simsched.rewriting import RULES, Draft, Rule
from simsched.schedulers.autograph.backtracking import Backtracking, MixedCost
from simsched.schedulers.autograph.rewriter import Rewriter, Rewritten
from simsched.schedulers.deadline import Deadline
from simsched.schedulers.options import Seconds
from simsched.schedulers.protocol import Tools


def chosen_rules(rules: Iterable[str | Rule] | None) -> dict[str, Rule]:
    """Return rules by name: all, those of the library that are named, or somebody's own."""
    if isinstance(rules, str) or not isinstance(rules, Iterable | None):
        raise SchedulerError(f"autograph: rules must be a list of names, such as ['R1', 'R2'], not {rules!r}")
    found: dict[str, Rule] = {}
    for given in RULES if rules is None else rules:
        rule = RULES.get(given) if isinstance(given, str) else given
        if rule is None:
            raise SchedulerError(f"autograph: rules has no {given!r}; known are: {', '.join(RULES)}")
        if not all(hasattr(rule, what) for what in ("name", "matches", "apply")):
            raise SchedulerError(
                f"autograph: rules must hold names or rules with `name`, `matches` and `apply`, not {given!r}"
            )
        found[rule.name] = rule
    return found


def require_shapes(graph: OpGraph, rules: Mapping[str, Rule]) -> None:
    """Refuse a graph of which no operator says what it computes on, unless no rule is to be tried anyway."""
    if rules and all(op.output_shape is None for op in graph.operators):
        raise SchedulerError(
            f"autograph: operator {graph.names[0]!r} has no shapes, and no other has: substitutions cannot be checked; "
            f"give operators `kind`, `attributes`, `input_shapes` and `output_shape`, or rules=() to rewrite nothing"
        )


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
        What to run, and on what; the first device is used.
    cost
        Time of an operator alone on a device, in us. It is asked about operators that substitutions make, too.
    rules
        Names of substitution rules (see `simsched.rewriting.RULES`), or rules of one's own; None for all,
        ``()`` for none, which leaves the graph as it is.
    dp
        False: parts are rewritten each for itself, and never together with their neighbours.
    objective
        ``"mixed"``: sum of all times and `alpha` times that of the longest path; candidates are then measured.
        ``"sum"``: sum of the times alone, as TASO and MetaFlow have it; the graph of the least sum is taken,
        unless `measure` is given.
    alpha
        At least 0.
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
        From a schedule to us, such as a hardware backend's; the simulated makespan by default.
    time_limit
        Cap in s; the best until then is returned.
    progress
        Called with what is being done.

    Returns
    -------
    Schedule
        Of the rewritten graph (`graph` itself where nothing was better); execution and `estimate` are those of
        Nimble, which gives it streams: a captured graph, and the list evaluation without contention. `search` holds
        ``"candidates"`` (graphs derived), ``"rounds"``, ``"subgraphs"`` (parts searched; equal ones once),
        ``"substitutions"`` (by rule, those that led to the result), ``"measured"`` (graphs), ``"cost"`` (of the
        result by the objective, us), ``"start_us"`` and ``"best_us"`` (as measured), ``"stopped"``, ``"time_s"``.

    Raises
    ------
    SchedulerError
        If an option is out of range, or no operator has shapes.

    Notes
    -----
    AutoGraph [1]_: the graph is cut where the fewest matches of rules cross (`atoms`), the best variants of
    each part are searched (`Backtracking`) by the mixed critical path cost (`MixedCost`), runs of adjacent parts too,
    which a dynamic program with lists of the `top` best chooses from (`best_choices`), and the `top` graphs that come
    out are measured on their streams. The fastest is rewritten again until none is faster; the start is measured
    as well, so what is returned is never slower.

    There is no released code, and the text leaves open what follows. The graph of least cost is tried next, up to
    `budget`; a run begins with the best of its first parts and its last one, and of its first one and the others.
    A graph has to be strictly faster to be gone on with, and is measured once. Ours: what each rule alone makes of
    a part is searched from, too, and what it makes of all of them is measured, since substitutions that lower the
    cost most may bar the way to better ones, and since many that lower the cost make it slower on streams; equal
    parts are searched once; of graphs whose times add up to the same only the best is kept. Equal costs keep the
    order in which graphs were found.

    A cut takes O(V^2 E) at worst and a few milliseconds in practice; a graph derived from a part O(`size_u`), of
    which there are at most `budget` for each of O(V size_u / size_l^2) runs.

    References
    ----------
    .. [1] Zhao, Sun, He, Bai, Yu, "AutoGraph: optimizing DNN computation graph for parallel GPU kernel execution",
       AAAI 2023, doi:10.1609/aaai.v37i9.26343.
    """
    begin = running_time()
    deadline = Deadline("autograph", time_limit)
    if objective == "sum":
        alpha = 0.0
    used = chosen_rules(rules)
    require_shapes(graph, used)

    draft = Draft.from_graph(graph)
    costs = MixedCost(draft, cluster.devices[0], cost, alpha)

    def assess(rewritten: Rewritten, candidate: OpGraph) -> tuple[float, Schedule]:
        plan = tools.schedule(candidate, cluster, "nimble", cost)
        if measure is None:
            return rewritten.cost.total if objective == "sum" else tools.makespan(plan, cluster, cost), plan
        us = measure(plan)
        if not is_number(us) or not 0 <= us < inf:
            raise SchedulerError(f"autograph: measure must return a time in us, not {us!r}")
        return float(us), plan

    best, best_graph = Rewritten(draft, (), costs(draft)), graph
    start_us, plan = assess(best, graph)
    best_us, seen, done = start_us, {draft.signature()}, 0
    with deadline:
        search = Backtracking(used, costs, beta, budget, top, deadline)
        rewrite = Rewriter(search, dp=dp, size_l=size_l, size_u=size_u, progress=progress or (lambda _: None))
        improved = bool(used)
        while improved and done < rounds and not deadline.over():
            improved = False
            done += 1
            for rewritten in rewrite(best, best_graph, f"round {done}"):
                if rewritten.draft.signature() in seen or deadline.over():
                    continue
                seen.add(rewritten.draft.signature())
                candidate = rewritten.draft.to_graph()
                us, found = assess(rewritten, candidate)
                if us < best_us:
                    best, best_graph, best_us, plan, improved = rewritten, candidate, us, found, True
    return plan.like(scheduler="autograph", estimate=plan.estimate, search={
        "candidates": search.candidates,
        "rounds": done,
        "subgraphs": rewrite.subgraphs,
        "substitutions": {name: n for name in used if (n := best.rules.count(name))},
        "measured": len(seen),
        "cost": best.cost.mixed,
        "start_us": start_us,
        "best_us": best_us,
        "stopped": deadline.reason,
        "time_s": running_time() - begin,
    })  # fmt: skip
