"""Single models and blocks of IOS: Fig. 2, 8, 10 and 16, and the specialised schedules of Table 3."""

from functools import cache
from math import inf
from typing import Final

import simsched as ss
from validation.papers.claims import ACROSS_HARDWARE, EXACT, Between, Claim, Run, Values
from validation.papers.ios_latency import V100
from validation.papers.ios_runs import (
    carried,
    carried_milliseconds,
    device,
    network,
    piece,
    searched,
    stages_of,
    time_behind,
)
from workloads.models.network import Network

K80: Final = "k80"
_INCEPTION: Final = "inception_v3"
_BATCHES: Final = (1, 32, 128)
# Inception-v3, ms: a row per batch that is run, a column per batch that the schedule is for
_TABLE_3: Final = {1: (4.03, 4.50, 4.63), 32: (29.21, 27.44, 27.93), 128: (105.98, 103.74, 103.29)}
_TABLE_3_DEVICES: Final = {K80: (13.87, 14.65), V100: (4.49, 4.03)}  # schedule for K80, for V100
_LAST: Final = 11  # the last of the 13 blocks of Inception-v3 with more than one operator
_MIXED: Final = range(1, 12)  # all of these


def demonstration() -> ss.OpGraph:
    """Return the model of Fig. 2: 3x3 convolutions on 384 channels of 15 x 15, b on a; b, c and d joined."""
    net = Network("IOS Fig. 2", device=V100)
    x = net.input(1, 384, 15, 15)
    a = net.conv("a", x, 384, 3, padding=1)
    b = net.conv("b", a, 768, 3, padding=1)
    c = net.conv("c", x, 384, 3, padding=1)
    d = net.conv("d", x, 768, 3, padding=1)
    net.concat("concat", [b, c, d])
    return net.graph()


def sample() -> ss.OpGraph:
    """Return the model of the released README: convolutions on 375 channels of 15 x 15, 4 on 1; 4, 2 and 3 joined."""
    net = Network("IOS sample", device=V100)
    x = net.input(1, 375, 15, 15)
    one = net.conv("1", x, 375, 3, padding=1)
    two = net.conv("2", x, 750, 3, padding=1)
    three = net.conv("3", x, 375, 3, padding=1)
    four = net.conv("4", one, 750, 3, padding=1)
    net.concat("5", [four, two, three])
    return net.graph()


@cache
def _demonstrated(how: str) -> ss.Trace:
    graph, cluster = demonstration(), device(V100)
    plan = searched(graph, cluster, strategy="parallel") if how == "ios" else ss.schedule(graph, cluster, how)
    return ss.simulate(plan, cluster)


def _end(trace: ss.Trace, names: str) -> float:
    return max(trace.operator_times()[name][1] for name in names)


def _fig_2_stages(run: Run) -> Values:  # noqa: ARG001
    plan = searched(demonstration(), device(V100), strategy="parallel")
    return {row.op: row.stage + 1 for row in plan.placements}


def _fig_2_speedups(run: Run) -> Values:  # noqa: ARG001
    sequential = _end(_demonstrated("sequential"), "abcd")
    return {how: sequential / _end(_demonstrated(how), "abcd") for how in ("greedy", "ios")}


def _fig_2_utilization(run: Run) -> Values:  # noqa: ARG001
    graph, peak = demonstration(), device(V100).devices[0].peak_rate("fp32")
    found = {}
    for how, stages in (("sequential", ("a", "b", "c", "d")), ("greedy", ("acd", "b")), ("ios", ("ad", "bc"))):
        before = 0.0
        for names in stages:
            end = _end(_demonstrated(how), names)
            found[f"{how} {names}"] = 100 * sum(graph[name].flops for name in names) / (end - before) / peak
            before = end
    return found


def _fig_8(run: Run) -> Values:  # noqa: ARG001
    warps = {how: _demonstrated(how).active_warps() for how in ("sequential", "ios")}
    return {"": warps["ios"] / warps["sequential"]}


def _sample_stages(run: Run) -> Values:  # noqa: ARG001
    plan = searched(sample(), device(V100), strategy="parallel")
    return {row.op: row.stage + 1 for row in plan.placements}


def _sample_latency(run: Run) -> Values:  # noqa: ARG001
    latency = ss.StageLatency(sample(), device(V100))
    pairs = (("1", "2"), ("4", "3"))
    return {f"{a} | {b}": latency([[a], [b]]) / (latency([[a]]) + latency([[b]])) for a, b in pairs}


def _table_3(run: Run) -> Values:  # noqa: ARG001
    """Return how much longer a batch takes under the schedule for another than under its own."""
    found = {}
    for b in _BATCHES:
        own = carried_milliseconds(_INCEPTION, (V100, b), (V100, b))
        for other in _BATCHES:
            if other != b:
                found[f"{b} by {other}'s"] = carried_milliseconds(_INCEPTION, (V100, other), (V100, b)) / own
    return found


def _table_3_devices(run: Run) -> Values:  # noqa: ARG001
    found = {}
    for gpu, other in ((K80, V100), (V100, K80)):
        own = carried_milliseconds(_INCEPTION, (gpu, 1), (gpu, 1))
        found[f"{gpu} by {other}'s"] = carried_milliseconds(_INCEPTION, (other, 1), (gpu, 1)) / own
    return found


@cache
def _last_block(batch: int) -> ss.Schedule:
    return searched(piece(_INCEPTION, V100, batch, _LAST), device(V100))


def _last_time(made: int, run: int) -> float:
    """Return the time of the last block at a batch under the schedule for another."""
    pieces = [piece(_INCEPTION, V100, batch, _LAST) for batch in (made, run)]
    return time_behind(carried(_last_block(made), *pieces), V100)


def _fig_10(run: Run) -> Values:  # noqa: ARG001
    return {"batch 1": _last_time(32, 1) / _last_time(1, 1), "batch 32": _last_time(1, 32) / _last_time(32, 32)}


def _fig_10_merged(run: Run) -> Values:  # noqa: ARG001
    return {f"batch {batch}": float(_last_block(batch).search["merged"]) for batch in (1, 32)}


def _fig_10_stages(run: Run) -> Values:  # noqa: ARG001
    """Return the operators of each stage of the last block at batch 1, the one before the block left out."""
    stages = stages_of(_last_block(1), piece(_INCEPTION, V100, 1, _LAST))[1:]
    return {f"stage {k}": sum(map(len, groups)) for k, (groups, _) in enumerate(stages, 1)}


def _fig_16(run: Run) -> Values:  # noqa: ARG001
    found = {}
    cluster = device(V100)
    for k in _MIXED:
        graph = piece(_INCEPTION, V100, 1, k)
        sequential = time_behind(ss.schedule(graph, cluster, "sequential"), V100)
        label = network(_INCEPTION, V100).blocks[k][0].partition(".")[0]
        found[label] = sequential / time_behind(searched(graph, cluster), V100)
    return {"most": max(found.values())} | found


DETAILS: Final = (
    Claim(
        "ios-fig2-stages", "IOS", "Fig. 2",
        "stages that IOS finds for the model of the figure on V100: a beside d, then b beside c",
        {"a": 1, "d": 1, "b": 2, "c": 2}, "figure", EXACT, _fig_2_stages,
        because="ours has all four in one stage, b behind a in a group, which saves a barrier",
    ),
    Claim(
        "ios-fig2-speedup", "IOS", "Fig. 2", "the model of the figure on V100: speedup over sequential",
        {"greedy": 0.48 / 0.37, "ios": 0.48 / 0.33}, "end times printed in the figure", ACROSS_HARDWARE,
        _fig_2_speedups, unit="x",
    ),
    Claim(
        "ios-fig2-utilization", "IOS", "Fig. 2",
        "the model of the figure on V100: part of the peak FLOP rate that each stage reaches (the figure prints 0.6 "
        "GFLOP for b under greedy; the 1.2 under sequential are right)",
        {"sequential a": 33, "sequential b": 59, "sequential c": 35, "sequential d": 59, "greedy acd": 62,
         "greedy b": 60, "ios ad": 69, "ios bc": 71},
        "printed in the figure", ACROSS_HARDWARE, _fig_2_utilization, unit="%",
        because="alone ours reach 33, 70, 35 and 70 %; together they are in one stage (row above), so that what "
        "ends with d, and then with c, is not what the figure shows",
    ),
    Claim(
        "ios-fig8", "IOS", "Fig. 8",
        "active warps of the model of Fig. 2 on V100, IOS over sequential (our stages are not theirs, see Fig. 2)",
        {"": 1.58}, "text: 2.7e8 against 1.7e8 warps per ms", ACROSS_HARDWARE, _fig_8, unit="x",
    ),
    Claim(
        "ios-readme-stages", "IOS", "README 3",
        "stages that IOS finds for the sample of the README on V100: 1 beside 2, 4 beside 3, 5",
        {"1": 1, "2": 1, "3": 2, "4": 2, "5": 3}, "printed output", EXACT, _sample_stages,
        because="3 stands beside 1 and 2 here, not beside 4",
    ),
    Claim(
        "ios-readme-latency", "IOS", "README 3",
        "sample of the README on V100: latency of two convolutions side by side over one after the other",
        {"1 | 2": 0.682, "4 | 3": 0.667}, "latencies of stages in the printed output", ACROSS_HARDWARE,
        _sample_latency,
    ),
    Claim(
        "ios-table3-batch", "IOS", "Table 3",
        "Inception-v3 on V100: latency of a batch by the schedule for another over that by its own; at least 1",
        {f"{b} by {other}'s": row[k] / row[_BATCHES.index(b)]
         for b, row in _TABLE_3.items() for k, other in enumerate(_BATCHES) if other != b},
        "table", Between(1.0, inf), _table_3, unit="x",
    ),
    Claim(
        "ios-table3-device", "IOS", "Table 3",
        "Inception-v3, batch 1: latency on a device by the schedule for another over that by its own; at least 1",
        {f"{K80} by {V100}'s": _TABLE_3_DEVICES[K80][1] / _TABLE_3_DEVICES[K80][0],
         f"{V100} by {K80}'s": _TABLE_3_DEVICES[V100][0] / _TABLE_3_DEVICES[V100][1]},
        "table", Between(1.0, inf), _table_3_devices, unit="x",
    ),
    Claim(
        "ios-fig10", "IOS", "Fig. 10",
        "last block of Inception-v3 on V100: latency by the schedule for the other batch, 1 or 32, over by its own",
        {"batch 1": 1.28, "batch 32": 1.08}, "text of section 7.2", ACROSS_HARDWARE, _fig_10, unit="x",
    ),
    Claim(
        "ios-fig10-merged", "IOS", "Fig. 10",
        "last block of Inception-v3 on V100: convolutions merged, for batch 1 and 32",
        {"batch 1": 0, "batch 32": 2}, "merged ones listed of the released schedules; f & g of the figure", EXACT,
        _fig_10_merged,
        because="at batch 1 three 1x1 take 145 us merged, side by side or one alone, so small are their grids, and "
        "merged they need no barrier. 1x3 and 3x1 padded to 3x3 have three times the FLOP: at batch 32 1,159 us by the "
        "roofline, 390 us one after the other",
    ),
    Claim(
        "ios-fig10-stages", "IOS", "Fig. 10", "last block of Inception-v3 on V100, batch 1: operators of each stage",
        {"stage 1": 6, "stage 2": 4, "stage 3": 1}, "released schedule", EXACT, _fig_10_stages,
        because="the first stage here is the merged convolutions of the row above, which nothing can stand beside",
    ),
    Claim(
        "ios-fig16", "IOS", "Fig. 16",
        "blocks of Inception-v3 on V100, batch 1, one by one: largest speedup of IOS over sequential; ours of each too",
        {"most": 2.3}, "text of the appendix", ACROSS_HARDWARE, _fig_16, unit="x",
    ),
)  # fmt: skip
"""The claims about single models and blocks."""
