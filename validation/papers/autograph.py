"""AutoGraph's claims: AAAI 2023, doi:10.1609/aaai.v37i9.26343; measured on an RTX 2080 Ti at batch 1 (BERT 16).

Schedules for the columns of its Table 2, each simulated once:

- *Nimble*: its streams and waits by its paper, captured, over single operators with normalisations folded into
  convolutions and chains of elementwise operators made one, as Nimble does before it assigns streams.
- *TASO+Nimble*: the same graph, rewritten by the sum of the times alone (``objective="sum"``), on Nimble's streams. The
  rules are ours: the rules of TASO that AutoGraph needs.
- *Ours*: the paper's name of it; the same graph, rewritten by the mixed critical path cost.
- *IOS*: units of IOS in stages launched by the host, as its own engine runs them, and the classifier, which its units
  leave out, behind them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from typing import Any, Final, NamedTuple

import simsched as ss
import workloads
from simsched.base.units import MS
from simsched.model.costmodel import CostModel
from simsched.rewriting import RULES, GraphDraft, Rule
from simsched.rewriting.rule import Match
from simsched.schedulers.autograph import intervals
from validation.evidence import each
from validation.papers.claims import Measures, Run, Values

GPU: Final = "rtx2080ti"
NETWORKS: Final[Mapping[str, str]] = {
    "Inception-v3": "inception_v3",
    "ResNet-50": "resnet50",
    "ResNeXt-50": "resnext50",
    "NasNet-A": "autograph_nasnet_a",
    "NasNet-Mobile": "nasnet_mobile",
    "RNNTC-SRU": "rnntc_sru",
    "BERT": "autograph_bert",
}
IOS = "IOS"
NIMBLE = "Nimble"
TASO = "TASO+Nimble"
OURS = "Ours"
_NOT_IN_IOS: Final = ("RNNTC-SRU", "BERT")
_OBJECTIVES: Final[Mapping[str, str]] = {OURS: "mixed", TASO: "sum"}
_KINDS: Final[Mapping[str, tuple[str, int]]] = {
    "depthwise 3x3": ("R5", 3),
    "depthwise 5x5": ("R5", 5),
    "average pools": ("R7", 3),
}  # pairs of these made one: rule, window
_GROUPED: Final = "ResNeXt-50"
SLOW_GROUP_US: Final = 1e3 * (7.708 - 2.144) / (16 * 32)
"""Of 32 groups in 16 convolutions each: Nimble's printed ms on ResNeXt-50 beyond those on ResNet-50, as large."""


class Searched(NamedTuple):
    """Result of a search: makespan in ms, and the numbers of groups of convolutions that have several."""

    ms: float
    groups: tuple[int, ...]


@cache
def latency(name: str, column: str, run: Run) -> float:
    """Return a simulated latency of Table 2 in ms."""
    cluster = ss.Cluster.preset(GPU)
    if column == IOS:
        units = workloads.load(NETWORKS[name], granularity="unit")
        linear = (op for op in prepared(name).operators if op.kind == "linear")
        classifier = sum(ss.default_cost(op, cluster.devices[0]) for op in linear)
        return (ss.simulate(ss.schedule(units, cluster, "ios"), cluster).makespan + classifier) / MS
    return _nimble(name) if column == NIMBLE else searched(name, run)[column].ms


def _nimble(name: str, cost: CostModel | None = None) -> float:
    cluster = ss.Cluster.preset(GPU)
    return ss.simulate(ss.schedule(prepared(name), cluster, "nimble", cost), cluster, cost).makespan / MS


@cache
def searched(name: str, run: Run) -> Mapping[str, Searched]:
    """Return the result of each search for a network, several at a time."""
    columns = list(_OBJECTIVES)
    return dict(zip(columns, each(partial(_search, name, quick=run.quick), columns, run.workers), strict=True))


def _search(name: str, column: str, quick: bool, cost: CostModel | None = None) -> Searched:
    plan = _rewritten(name, quick, cost, objective=_OBJECTIVES[column])
    found = (int(op.attributes.get("groups", 1)) for op in plan.graph.operators if op.kind == "conv")
    return Searched(ss.simulate(plan, ss.Cluster.preset(GPU), cost).makespan / MS, tuple(n for n in found if n > 1))


def _rewritten(name: str, quick: bool, cost: CostModel | None = None, **options: Any) -> ss.Schedule:
    limits: dict[str, Any] = {"budget": 3, "rounds": 1, "size_u": 40} if quick else {}
    return ss.schedule(prepared(name), ss.Cluster.preset(GPU), "autograph", cost, **limits, **options)


@cache
def prepared(name: str) -> ss.OpGraph:
    """Return a network by single operators, folded and fused as far as Nimble does that."""
    graph = workloads.load(NETWORKS[name], granularity="operator")
    folded = _everywhere(
        RULES["R1"], GraphDraft.from_graph(graph), lambda draft, match: draft.operator(match[1]).kind == "batch_norm"
    )
    return _everywhere(RULES["R13"], folded, lambda _draft, _match: True).to_graph()


def _everywhere(rule: Rule, draft: GraphDraft, wanted: Callable[[GraphDraft, Match], bool]) -> GraphDraft:
    """Return a draft with a rule applied until no wanted match is left."""
    changed = True
    while changed:
        changed = False
        for match in tuple(rule.matches(draft)):
            if all(name in draft.rows for name in match) and wanted(draft, match):
                after = rule.apply(draft, match)
                if after is not None:
                    draft = after
                    changed = True
    return draft


def with_slow_groups(us: float) -> CostModel:
    """Return the times of a roofline, and so many us more for each group of a convolution that has several."""

    def cost(op: ss.Operator, device: ss.Device) -> float:
        groups = int(op.attributes.get("groups", 1)) if op.kind == "conv" else 1
        return ss.default_cost(op, device) + (us * groups if groups > 1 else 0.0)

    return cost


@cache
def _with_slow_groups(run: Run) -> Searched:
    return _search(_GROUPED, OURS, run.quick, with_slow_groups(SLOW_GROUP_US))


def _table_2(name: str, run: Run) -> Values:
    """Return the latencies in ms; of ResNeXt-50 also where a group costs what the printed latencies make it cost."""
    found = {column: latency(name, column, run) for column in _columns(name)}
    if name == _GROUPED:
        found[f"{NIMBLE}, slow groups"] = _nimble(name, with_slow_groups(SLOW_GROUP_US))
        found[f"{OURS}, slow groups"] = _with_slow_groups(run).ms
    return found


def _columns(name: str) -> tuple[str, ...]:
    return (NIMBLE, TASO, OURS) if name in _NOT_IN_IOS else (IOS, NIMBLE, TASO, OURS)


def _ratios(column: str, base: str, names: Iterable[str] = NETWORKS) -> Callable[[Run], Values]:
    """Return the function that measures latencies relative to another column."""
    return lambda run: {name: latency(name, column, run) / latency(name, base, run) for name in names}


def _best_launcher(run: Run) -> Values:
    """Return the latency of the better of IOS and Nimble relative to the rewritten network's."""
    best = {name: min(latency(name, column, run) for column in _columns(name)[:-2]) for name in NETWORKS}
    return {name: ms / latency(name, OURS, run) for name, ms in best.items()}


def _kinds_taken(run: Run) -> Values:
    """Return of three kinds of substitutions in NasNet-A, each searched alone, how many are taken and how many not.

    Of each kind also how many substitutions the mixed cost takes, and the sum of times.
    """
    asked = [(kind, objective) for objective in ("mixed", "sum") for kind in _KINDS]
    found = dict(zip(asked, each(partial(_taken, quick=run.quick), asked, run.workers), strict=True))
    taken = sum(found[kind, "mixed"] > 0 for kind in _KINDS)
    counts = {f"{kind}, {objective}": float(n) for (kind, objective), n in found.items()}
    return {"taken": float(taken), "refused": float(len(_KINDS) - taken)} | counts


def _taken(asked: tuple[str, str], quick: bool) -> int:
    """Return how many substitutions of a kind an objective takes where no others may be made."""
    kind, objective = asked
    rule, window = _KINDS[kind]

    def find(draft: GraphDraft) -> Iterator[Match]:
        matches = RULES[rule].matches(draft)
        return (match for match in matches if draft.operator(match[0]).attributes["kernel"][0] == window)

    alone = Rule(kind, find, RULES[rule].apply)
    plan = _rewritten("NasNet-A", quick, rules=(alone,), objective=objective)
    return int(sum(plan.search["substitutions"].values()))


def _group_counts(run: Run) -> Values:
    """Return the most and the fewest groups of the grouped convolutions of the rewritten ResNeXt-50."""
    found = {"": searched(_GROUPED, run)[OURS].groups, ", slow groups": _with_slow_groups(run).groups}
    ends: Mapping[str, Callable[[Iterable[int]], int]] = {"most": max, "fewest": min}
    return {f"{name}{suffix}": float(end(groups)) for name, end in ends.items() for suffix, groups in found.items()}


MEASURES: Final[Measures] = {
    "autograph-fig4": lambda _: {"subgraphs": len(intervals([40, 40, 40, 40], 80))},
    **{f"autograph-table2-{name.lower()}": partial(_table_2, name) for name in NETWORKS},
    "autograph-table2-gain": _ratios(NIMBLE, OURS),
    "autograph-table2-nimble": _ratios(NIMBLE, OURS),
    "autograph-table2-launch": _best_launcher,
    "autograph-table2-taso": _ratios(TASO, OURS, [name for name in NETWORKS if name != "RNNTC-SRU"]),
    "autograph-table2-sum-fails": _ratios(TASO, NIMBLE, ["NasNet-A", "NasNet-Mobile"]),
    "autograph-table2-sum": _ratios(TASO, NIMBLE),
    "autograph-fig8": _kinds_taken,
    "autograph-fig9": _group_counts,
}
