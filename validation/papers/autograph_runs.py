"""The networks of AutoGraph's Table 2 on an RTX 2080 Ti under what stands for its columns, each simulated once.

- *Nimble*: its streams and waits by its paper, captured, over single operators with normalisations folded into
  convolutions and chains of elementwise operators made one, as Nimble does before it assigns streams.
- *TASO+Nimble*: the same graph, rewritten by the sum of the times alone (``objective="sum"``), on Nimble's streams. The
  rules are ours: those of TASO's that AutoGraph needs.
- *Ours*: what the paper calls so; the same graph, rewritten by the mixed critical path cost.
- *IOS*: units of IOS in stages launched by the host, as its own engine runs them, and the classifier, which its units
  leave out, behind them.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import simsched as ss
import workloads
from simsched.base.units import MS
from simsched.model.costmodel import CostModel
from simsched.rewriting import RULES, Draft, Rule
from simsched.rewriting.rule import Match, Substitution
from simsched.schedulers.autograph.rewriter import intervals
from validation.papers.claims import Run, Values
from validation.processes import each

GPU: Final = "rtx2080ti"
NETWORKS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "Inception-v3": "inception_v3",
        "ResNet-50": "resnet50",
        "ResNeXt-50": "resnext50",
        "NasNet-A": "autograph_nasnet_a",
        "NasNet-Mobile": "nasnet_mobile",
        "RNNTC-SRU": "rnntc_sru",
        "BERT": "autograph_bert",
    }
)
IOS, NIMBLE, TASO, OURS = "IOS", "Nimble", "TASO+Nimble", "Ours"
_OBJECTIVES: Final[Mapping[str, str]] = MappingProxyType({OURS: "mixed", TASO: "sum"})
_SUBSTITUTED: Final = "NasNet-A"
_KINDS: Final[Mapping[str, tuple[str, int]]] = MappingProxyType(
    {"depthwise 3x3": ("R5", 3), "depthwise 5x5": ("R5", 5), "average pools": ("R7", 3)}
)  # pairs of these made one: rule, window


GROUPED: Final = "ResNeXt-50"
SLOW_GROUP_US: Final = 1e3 * (7.708 - 2.144) / (16 * 32)
"""Of 32 groups in 16 convolutions each: Nimble's printed ms on ResNeXt-50 beyond those on ResNet-50, as large."""


class Searched(NamedTuple):
    """What a search came to: makespan in ms, and the numbers of groups of convolutions that have several."""

    ms: float
    groups: tuple[int, ...]


@cache
def latency(name: str, column: str, run: Run) -> float:
    """Return a simulated latency of Table 2 in ms."""
    cluster = ss.Cluster.preset(GPU)
    if column == IOS:
        units = workloads.load(NETWORKS[name], granularity="unit", device=GPU)
        linear = (op for op in prepared(name).operators if op.kind == "linear")
        classifier = sum(ss.default_cost(op, cluster.devices[0]) for op in linear)
        return (ss.simulate(ss.schedule(units, cluster, "ios"), cluster).makespan + classifier) / MS
    if column == NIMBLE:
        return ss.simulate(ss.schedule(prepared(name), cluster, "nimble"), cluster).makespan / MS
    return searched(name, run)[column].ms


@cache
def searched(name: str, run: Run) -> Mapping[str, Searched]:
    """Return what each search makes of a network, several at a time."""
    columns = list(_OBJECTIVES)
    return dict(zip(columns, each(partial(_search, name, quick=run.quick), columns, run.workers), strict=True))


def _search(name: str, column: str, quick: bool, cost: CostModel | None = None) -> Searched:
    cluster, objective = ss.Cluster.preset(GPU), _OBJECTIVES[column]
    plan = ss.schedule(prepared(name), cluster, "autograph", cost, objective=objective, **_limits(quick))
    found = (int(op.attributes.get("groups", 1)) for op in plan.graph.operators if op.kind == "conv")
    return Searched(ss.simulate(plan, cluster, cost).makespan / MS, tuple(n for n in found if n > 1))


def _limits(quick: bool) -> dict[str, Any]:
    return {"budget": 3, "rounds": 1, "size_u": 40} if quick else {}


@cache
def prepared(name: str) -> ss.OpGraph:
    """Return a network by single operators, folded and fused as far as Nimble does that."""
    graph = workloads.load(NETWORKS[name], granularity="operator", device=GPU)
    folded = _everywhere(RULES["R1"], Draft.from_graph(graph), _folds)
    return _everywhere(RULES["R13"], folded, lambda _draft, _match: True).to_graph()


def _folds(draft: Draft, match: Match) -> bool:
    return draft.operator(match[1]).kind == "batch_norm"


def _everywhere(rule: Rule, draft: Draft, wanted: Callable[[Draft, Match], bool]) -> Draft:
    """Return a draft with a rule applied until no wanted match is left."""
    changed = True
    while changed:
        changed = False
        for match in tuple(rule.matches(draft)):
            if all(name in draft.rows for name in match) and wanted(draft, match):
                after = rule.apply(draft, match)
                if after is not None:
                    draft, changed = after, True
    return draft


def subgraphs() -> Values:
    """Return how many runs of adjacent atoms there are of four atoms of which two, but not three, fit together."""
    return {"subgraphs": float(len(intervals([40, 40, 40, 40], 80)))}


def kinds_taken(run: Run) -> Values:
    """Return of three kinds of substitutions in NasNet-A, each searched alone, how many are taken and how many not.

    Of each kind also how many substitutions the mixed cost takes, and the sum of times.
    """
    asked = [(kind, objective) for objective in ("mixed", "sum") for kind in _KINDS]
    found = dict(zip(asked, each(partial(_taken, quick=run.quick), asked, run.workers), strict=True))
    taken = sum(found[kind, "mixed"] > 0 for kind in _KINDS)
    return {"taken": float(taken), "refused": float(len(_KINDS) - taken)} | {
        f"{kind}, {objective}": float(n) for (kind, objective), n in found.items()
    }


def _taken(asked: tuple[str, str], quick: bool) -> int:
    """Return how many substitutions of a kind an objective takes where no others may be made."""
    kind, objective = asked
    rule, window = _KINDS[kind]

    def find(draft: Draft) -> Iterator[Match]:
        return (match for match in RULES[rule].matches(draft) if _window(draft, match[0]) == window)

    alone = Substitution(kind, find, RULES[rule].apply)
    plan = ss.schedule(
        prepared(_SUBSTITUTED), ss.Cluster.preset(GPU), "autograph", rules=(alone,), objective=objective,
        **_limits(quick),
    )  # fmt: skip
    return int(sum(plan.search["substitutions"].values()))


def _window(draft: Draft, name: str) -> int:
    window: int = draft.operator(name).attributes["kernel"][0]
    return window


def group_counts(run: Run) -> Values:
    """Return the most and the fewest groups of the grouped convolutions of the rewritten ResNeXt-50."""
    found = {"most": searched(GROUPED, run)[OURS], "most, slow groups": _with_slow_groups(run)}
    return {name: float(max(each.groups)) for name, each in found.items()} | {
        name.replace("most", "fewest"): float(min(each.groups)) for name, each in found.items()
    }


def with_slow_groups(us: float) -> CostModel:
    """Return the times of a roofline, and so many us more for each group of a convolution that has several."""

    def cost(op: ss.Operator, device: ss.Device) -> float:
        groups = int(op.attributes.get("groups", 1)) if op.kind == "conv" else 1
        return ss.default_cost(op, device) + (us * groups if groups > 1 else 0.0)

    return cost


def slow_groups(run: Run) -> dict[str, float]:
    """Return latencies of ResNeXt-50 in ms where a group costs what the printed latencies make it cost."""
    cluster, cost = ss.Cluster.preset(GPU), with_slow_groups(SLOW_GROUP_US)
    nimble = ss.simulate(ss.schedule(prepared(GROUPED), cluster, "nimble", cost), cluster, cost).makespan / MS
    return {f"{NIMBLE}, slow groups": nimble, f"{OURS}, slow groups": _with_slow_groups(run).ms}


@cache
def _with_slow_groups(run: Run) -> Searched:
    return _search(GROUPED, OURS, run.quick, with_slow_groups(SLOW_GROUP_US))
