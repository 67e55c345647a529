"""Claims of IOS (Ding, Zhu, Jia, Pekhimenko, Han, MLSys 2021, arXiv:2011.01302).

Its figures were made by the released search, whose groups have one root: that is what is run here, unless a claim says
otherwise. Latencies are simulated makespans.
"""

import os
from collections.abc import Callable
from functools import cache, partial
from itertools import pairwise
from typing import Any, Final

import simsched as ss
import workloads
from simsched.base.errors import SchedulerError
from simsched.base.units import MS
from simsched.rewriting import merge
from simsched.schedulers.stage_costs import StageFormula
from validation.hardware.graphs import part
from validation.papers.claims import Measures, Run, Values
from workloads.models.network import Network

# Networks under schedules of IOS

NETWORKS: Final = {
    "inception_v3": "Inception-v3",
    "randwire": "RandWire",
    "nasnet_a_large": "NASNet-A",
    "squeezenet": "SqueezeNet",
}
"""Title of each."""
ALL: Final = ("sequential", "greedy", "merge", "parallel", "both")
"""Series of Fig. 6 and 14: two baselines, and IOS with three sets of stages."""
_LARGE: Final = ("randwire", "nasnet_a_large")
_MOST_STREAMS: Final = 10  # contexts of the engine, and so the most ready operators that a greedy stage takes


@cache
def network(name: str, batch: int = 1) -> ss.OpGraph:
    """Return a network."""
    return workloads.load(name, batch=batch)


@cache
def device(gpu: str) -> ss.Cluster:
    """Return one device of a preset."""
    return ss.Cluster.preset(gpu)


def searched(graph: ss.OpGraph, cluster: ss.Cluster, **options: Any) -> ss.Schedule:
    """Return the schedule of IOS's released search, by default as its figures were made: r = 3, s = 8, one root."""
    defaults: dict[str, Any] = {"endings": "single_root"}
    return ss.schedule(graph, cluster, "ios", **defaults | options)


@cache
def ios_plan(name: str, gpu: str, batch: int = 1, *, quick: bool = False, **options: Any) -> ss.Schedule:
    """Return IOS's schedule of a network; a quick one of a large network has groups of one operator."""
    return searched(network(name, batch), device(gpu), **options | ({"r": 1} if quick and name in _LARGE else {}))


@cache
def plan(name: str, gpu: str, how: str, batch: int = 1, quick: bool = False) -> ss.Schedule:
    """Return the schedule of a network by one of `ALL`."""
    graph, cluster = network(name, batch), device(gpu)
    if how in ("sequential", "greedy"):
        streams: dict[str, Any] = {"streams": _MOST_STREAMS} if how == "greedy" else {}
        return ss.schedule(graph, cluster, how, **streams)
    both = ios_plan(name, gpu, batch, quick=quick)
    if how == "both" or (how == "parallel" and both.search["merged_transitions"] == 0):
        return both  # nothing can be merged: the same search
    try:
        return ios_plan(name, gpu, batch, quick=quick, strategy=how)
    except SchedulerError:  # nothing can be merged, so that only stages of one operator are left
        return plan(name, gpu, "sequential", batch)


def milliseconds(schedule: ss.Schedule, gpu: str) -> float:
    """Return the simulated latency of a schedule in ms."""
    return ss.simulate(schedule, device(gpu)).makespan / MS


def speedup(name: str, gpu: str, how: str, batch: int = 1, quick: bool = False) -> float:
    """Return by how much a schedule is faster than one operator after the other."""
    slow, fast = plan(name, gpu, "sequential", batch), plan(name, gpu, how, batch, quick)
    return milliseconds(slow, gpu) / milliseconds(fast, gpu)


def stages_of(schedule: ss.Schedule, original: ss.OpGraph) -> list[tuple[list[list[str]], bool]]:
    """Return the stages of a schedule by operators of the graph it was made for: groups, and whether they are merged.

    A reader of a part of a merged operator is itself in the new graph; it belongs to the merging.
    """
    rewritten = schedule.graph is not original
    stages: dict[int, dict[int, list[str]]] = {}
    merged: dict[int, bool] = {}
    for row in schedule.placements:
        groups = stages.setdefault(row.stage, {})
        if row.op not in original.index:
            groups[row.group] = row.op.split("+")
            merged[row.stage] = True
        elif not (rewritten and schedule.graph[row.op].kind == "slice"):
            groups.setdefault(row.group, []).append(row.op)
    return [(list(groups.values()), merged.get(stage, False)) for stage, groups in stages.items()]


def carried(schedule: ss.Schedule, original: ss.OpGraph, graph: ss.OpGraph) -> ss.Schedule:
    """Return a schedule for another graph of the same operators, as of another batch, the same ones merged."""
    stages = stages_of(schedule, original)
    rewritten, replaced = merge(graph, [groups[0] for groups, merged in stages if merged])
    new = iter(replaced)
    rows = [
        ss.Placement(name, schedule.devices[0], stream=g, stage=k, group=g)
        for k, (groups, merged) in enumerate(stages)
        for g, group in enumerate([list(next(new))] if merged else groups)
        for name in group
    ]
    return ss.Schedule(rewritten, rows, execution="stages", scheduler=schedule.scheduler)


@cache
def piece(name: str, batch: int, number: int) -> ss.OpGraph:
    """Return a block of a network behind the operator that it reads from, as a graph of its own."""
    graph = network(name, batch)
    inside = set(graph.blocks[number])
    return part(graph, inside.union(edge.src for edge in graph.edges if edge.dst in inside))


def time_behind(schedule: ss.Schedule, gpu: str) -> float:
    """Return the time in us of a `piece` under a schedule, without the operator that it reads from."""
    trace = ss.simulate(schedule, device(gpu))
    (entry,) = schedule.graph.inputs
    return trace.makespan - trace.operator_times()[entry][1]


V100, K80, RTX_2080_TI = "v100", "k80", "rtx2080ti"
WIRING: Final = "RANDWIRE_GRAPHS"
"""Environment variable that names a file with the wiring of RandWire; without it our own wiring is taken."""
_WIRED_HERE: Final = tuple(name for name in NETWORKS if name != "randwire")
_INCEPTION: Final = "inception_v3"
_BATCHES: Final = (1, 32, 128)
_CHAINS: Final = tuple((d, c) for d in (1, 2, 3, 4) for c in (1, 2, 3, 4, 6))
_PRUNED: Final = tuple((r, s) for s in (8, 3) for r in (3, 2, 1))
_MIXED: Final = range(1, 12)  # the blocks of Inception-v3 with more than one operator

# Counts


def counted(graph: ss.OpGraph, endings: str) -> ss.Schedule:
    """Return a schedule of IOS over all stages of groups side by side, whose search is as large as can be."""
    return ss.schedule(
        graph,
        device(V100),
        "ios",
        strategy="parallel",
        endings=endings,
        r=None,
        s=None,
        blocks="none",
        max_transitions=50_000_000,
        stage_latency=StageFormula(),
    )


@cache
def _blocks(name: str, endings: str) -> tuple[ss.Schedule, ...]:
    wiring = os.environ.get(WIRING)
    given: dict[str, Any] = {"graphs": wiring} if name == "randwire" and wiring else {}
    graph = workloads.load(name, **given)
    return tuple(counted(part(graph, block), endings) for block in graph.blocks)


def _transitions(name: str, endings: str) -> list[int]:
    return [int(plan.search["transitions"]) for plan in _blocks(name, endings)]


def rounded(value: float, digits: int) -> float:
    """Return a value with as many digits as a table prints.

    >>> rounded(4871, 2), rounded(51, 2)
    (4900.0, 51.0)
    """
    return float(f"{value:.{digits - 1}e}")


def _largest(name: str, _run: Run) -> Values:
    """Return a row of Table 1, of the block with the most transitions."""
    found = max(_blocks(name, "single_root"), key=lambda plan: int(plan.search["transitions"]))
    n, d, transitions = len(found.graph), found.graph.width, found.search["transitions"]
    bound = ((n / d + 2) * (n / d + 1) / 2) ** d
    return {
        "n": n,
        "d": d,
        "bound": rounded(bound, 4),
        "transitions": rounded(transitions, 2),
        "schedules": rounded(found.search["feasible_schedules"], 2),
        "unrounded transitions": transitions,
    }


def _each(value: Callable[[str], float], names: tuple[str, ...] = tuple(NETWORKS)) -> Values:
    """Return a value of each network, by its title."""
    return {NETWORKS[name]: value(name) for name in names}


def _giga_macs(name: str) -> float:
    """Return the multiply-adds of a network's convolutions, in G."""
    graph = workloads.load(name, granularity="operator")
    return sum(op.flops for op in graph.operators if op.kind == "conv") / 2e9


def chains(d: int, c: int) -> ss.OpGraph:
    """Return d chains of c operators, side by side."""
    names = [[f"{i}.{k}" for k in range(c)] for i in range(d)]
    edges = [ss.Edge(a, b) for chain in names for a, b in pairwise(chain)]
    return ss.OpGraph([ss.Operator(name, time=1.0) for chain in names for name in chain], edges)


def _pairs(_run: Run) -> Values:
    """Count pairs of a state and an ending, empty ones too: the search counts neither those nor the empty state."""
    found = {f"{d}x{c}": counted(chains(d, c), "exact").search for d, c in _CHAINS}
    return {name: search["transitions"] + search["states"] + 1 for name, search in found.items()}


# Latencies of networks


def _fig_6(name: str, run: Run) -> Values:
    """Return speedups, also of IOS-Both with all endings of its definition, and with stages valued without barriers."""
    found = {how: speedup(name, V100, how, quick=run.quick) for how in ALL[1:]}
    if not run.quick:
        sequential = milliseconds(plan(name, V100, "sequential"), V100)
        found["both, any ending"] = sequential / milliseconds(ios_plan(name, V100, endings="exact"), V100)
        ignored = ios_plan(name, V100, stage_latency="simulated")
        found["both, barriers ignored"] = sequential / milliseconds(ignored, V100)
    return found


def _fig_6_order(name: str, run: Run) -> Values:
    return {how: milliseconds(plan(name, V100, how, quick=run.quick), V100) for how in ALL}


def _fig_14(run: Run) -> Values:
    found = {
        f"{title} {how}": speedup(name, RTX_2080_TI, how, quick=run.quick)
        for name, title in NETWORKS.items()
        for how in ALL[1:]
    }
    both = [value for name, value in found.items() if name.endswith("both")]
    return {"least": min(both), "most": max(both)} | found


def _fig_9(name: str, ours: Callable[[ss.Schedule], float], run: Run) -> Values:
    return {f"r={r} s={s}": ours(ios_plan(name, V100, r=r, s=s, quick=run.quick)) for r, s in _PRUNED}


def _fig_11(run: Run) -> Values:
    return {f"batch {b}": speedup(_INCEPTION, V100, "both", b, run.quick) for b in (1, 16, 32, 64, 128)}


@cache
def _carried_ms(made: tuple[str, int], on: tuple[str, int]) -> float:
    """Return the latency in ms of Inception-v3 on a device and batch under IOS's schedule for another."""
    moved = carried(ios_plan(_INCEPTION, *made), network(_INCEPTION, made[1]), network(_INCEPTION, on[1]))
    return milliseconds(moved, on[0])


def _table_3(_run: Run) -> Values:
    """Return how much longer a batch takes under the schedule for another than under its own."""
    return {
        f"{b} by {other}'s": _carried_ms((V100, other), (V100, b)) / _carried_ms((V100, b), (V100, b))
        for b in _BATCHES
        for other in _BATCHES
        if other != b
    }


def _table_3_devices(_run: Run) -> Values:
    return {
        f"{gpu} by {other}'s": _carried_ms((other, 1), (gpu, 1)) / _carried_ms((gpu, 1), (gpu, 1))
        for gpu, other in ((K80, V100), (V100, K80))
    }


# Single models and blocks


def _model(title: str, channels: int, convolutions: str) -> ss.OpGraph:
    """Return 3x3 convolutions of images of 15 x 15, each a name, what it reads and multiples of the channels; joined.

    The last of `convolutions` names the operator that joins the others.
    """
    net = Network(title)
    made = {"x": net.input(1, channels, 15, 15)}
    *rows, (name, *joined) = [row.split() for row in convolutions.split(", ")]
    for op, read, times in rows:
        made[op] = net.conv(op, made[read], int(times) * channels, 3, padding=1)
    net.concat(name, [made[op] for op in joined])
    return net.graph()


@cache
def demonstration() -> ss.OpGraph:
    """Return the model of Fig. 2."""
    return _model("IOS Fig. 2", 384, "a x 1, b a 2, c x 1, d x 2, concat b c d")


@cache
def sample() -> ss.OpGraph:
    """Return the model of the released README."""
    return _model("IOS sample", 375, "1 x 1, 2 x 2, 3 x 1, 4 1 2, 5 4 2 3")


def _stages(graph: ss.OpGraph) -> Values:
    return {row.op: row.stage + 1 for row in searched(graph, device(V100), strategy="parallel").placements}


@cache
def _demonstrated(how: str) -> ss.Trace:
    graph, cluster = demonstration(), device(V100)
    plan = searched(graph, cluster, strategy="parallel") if how == "ios" else ss.schedule(graph, cluster, how)
    return ss.simulate(plan, cluster)


def _end(how: str, names: str) -> float:
    return max(_demonstrated(how).operator_times()[name][1] for name in names)


def _fig_2_utilization(_run: Run) -> Values:
    """Return the part of the peak rate in per cent that each stage reaches, by its operators."""
    peak, found = device(V100).devices[0].peak_rate("fp32"), {}
    for how, stages in (("sequential", "a b c d"), ("greedy", "acd b"), ("ios", "ad bc")):
        before = 0.0
        for names in stages.split():
            end = _end(how, names)
            flops = sum(demonstration()[name].flops for name in names)
            found[f"{how} {names}"] = 100 * flops / (end - before) / peak
            before = end
    return found


def _fig_2_speedups(_run: Run) -> Values:
    return {how: _end("sequential", "abcd") / _end(how, "abcd") for how in ("greedy", "ios")}


def _sample_latency(_run: Run) -> Values:
    latency = ss.StageLatency(sample(), device(V100))
    pairs = (("1", "2"), ("4", "3"))
    return {f"{a} | {b}": latency([[a], [b]]) / (latency([[a]]) + latency([[b]])) for a, b in pairs}


@cache
def _last_block(batch: int) -> tuple[ss.OpGraph, ss.Schedule]:
    graph = piece(_INCEPTION, batch, _MIXED[-1])
    return graph, searched(graph, device(V100))


def _last_time(made: int, batch: int) -> float:
    """Return the time of the last block at a batch under the schedule for another."""
    graph, plan = _last_block(made)
    return time_behind(carried(plan, graph, _last_block(batch)[0]), V100)


def _fig_10(_run: Run) -> Values:
    return {"batch 1": _last_time(32, 1) / _last_time(1, 1), "batch 32": _last_time(1, 32) / _last_time(32, 32)}


def _fig_10_stages(_run: Run) -> Values:
    """Return the operators of each stage of the last block at batch 1, the one before the block left out."""
    graph, plan = _last_block(1)
    stages = stages_of(plan, graph)[1:]
    return {f"stage {k}": sum(map(len, groups)) for k, (groups, _) in enumerate(stages, 1)}


def _fig_16(_run: Run) -> Values:
    found, cluster = {}, device(V100)
    for k in _MIXED:
        graph = piece(_INCEPTION, 1, k)
        sequential = time_behind(ss.schedule(graph, cluster, "sequential"), V100)
        label = network(_INCEPTION).blocks[k][0].partition(".")[0]
        found[label] = sequential / time_behind(searched(graph, cluster), V100)
    return {"most": max(found.values())} | found


def _active_warps(_run: Run) -> Values:
    return {"": _demonstrated("ios").active_warps() / _demonstrated("sequential").active_warps()}


def _n_blocks(_run: Run) -> Values:
    return _each(lambda name: len(workloads.load(name).blocks))


MEASURES: Final[Measures] = {
    **{f"ios-table1-{name}": partial(_largest, name) for name in NETWORKS},
    "ios-table1-definition": lambda _: _each(lambda name: max(_transitions(name, "exact")), _WIRED_HERE),
    "ios-code-transitions": lambda _: _each(lambda name: sum(_transitions(name, "single_root")), _WIRED_HERE),
    "ios-transitions-definition": lambda _: _each(lambda name: sum(_transitions(name, "exact")), _WIRED_HERE),
    "ios-table2-operators": lambda _: _each(lambda name: len(workloads.load(name))),
    "ios-code-macs": lambda _: _each(_giga_macs),
    "ios-table2-blocks": _n_blocks,
    "ios-code-units": _n_blocks,
    "ios-fig13": _pairs,
    **{f"ios-fig6-{name}": partial(_fig_6, name) for name in NETWORKS},
    **{f"ios-fig6-{name}-order": partial(_fig_6_order, name) for name in NETWORKS},
    "ios-fig14": _fig_14,
    **{
        f"ios-fig9-{name}{suffix}": partial(_fig_9, name, ours)
        for name in (_INCEPTION, "nasnet_a_large")
        for suffix, ours in {
            "": lambda plan: milliseconds(plan, V100),
            "-search": lambda plan: float(plan.search["distinct_stages"]),
        }.items()
    },
    "ios-fig11": _fig_11,
    "ios-fig11-order": _fig_11,
    "ios-fig2-stages": lambda _: _stages(demonstration()),
    "ios-fig2-speedup": _fig_2_speedups,
    "ios-fig2-utilization": _fig_2_utilization,
    "ios-fig8": _active_warps,
    "ios-readme-stages": lambda _: _stages(sample()),
    "ios-readme-latency": _sample_latency,
    "ios-table3-batch": _table_3,
    "ios-table3-device": _table_3_devices,
    "ios-fig10": _fig_10,
    "ios-fig10-merged": lambda _: {f"batch {b}": float(_last_block(b)[1].search["merged"]) for b in (1, 32)},
    "ios-fig10-stages": _fig_10_stages,
    "ios-fig16": _fig_16,
}
