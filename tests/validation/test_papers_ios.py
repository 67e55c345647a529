"""The claims of IOS: the model of measured stages by hand, schedules carried over, and the cheap claims."""

import dataclasses
import math

import pytest

import simsched as ss
from simsched.rewriting import merge
from validation.papers import ios_counts, ios_details, ios_runs
from validation.papers.claims import Run
from validation.papers.ios import CLAIMS
from workloads.models.network import Network

QUICK = Run(quick=True, workers=1)
BY_KEY = {claim.key: claim for claim in CLAIMS}
REPRODUCED = (
    "ios-table1-inception_v3", "ios-table1-nasnet_a_large", "ios-table1-squeezenet", "ios-table2-operators",
    "ios-code-units", "ios-fig13", "ios-fig6-inception_v3", "ios-fig6-inception_v3-order", "ios-fig6-squeezenet",
    "ios-fig8", "ios-fig9-inception_v3", "ios-fig9-inception_v3-search",
    "ios-table3-device", "ios-fig2-speedup", "ios-readme-latency", "ios-fig10",
)  # fmt: skip
EXPLAINED = (
    "ios-fig6-squeezenet-order", "ios-table1-definition", "ios-table2-blocks", "ios-fig2-stages",
    "ios-fig2-utilization", "ios-readme-stages", "ios-fig10-merged", "ios-fig10-stages",
)  # fmt: skip


def one_device(**replaced):
    """A device whose streams cost nothing, with launches of 4 us and barriers of 10 us."""
    free = {"gap": 0.0, "launch": 4.0, "launch_latency": 0.0, "barrier": 10.0, "saturating_warps": 24.0}
    return ss.Cluster.preset("v100").replace_devices(**free | replaced)


def operators(**times):
    """Operators that load nothing, and so do not slow each other down."""
    return ss.OpGraph([ss.Operator(name, time=us) for name, us in times.items()])


def test_every_item_is_there():
    """The tables and figures that were asked for; what cannot be run says why."""
    wanted = {
        *(f"Fig. {k}" for k in (2, 6, 8, 9, 10, 11, 13, 14, 16)), *(f"Table {k}" for k in (1, 2, 3)),
    }  # fmt: skip
    assert wanted <= {claim.where for claim in CLAIMS if claim.measure is not None}
    assert len(BY_KEY) == len(CLAIMS)
    assert all(
        claim.missing.startswith(("source not available", "not reproducible here"))
        for claim in CLAIMS
        if claim.measure is None
    )


def test_a_measured_stage_of_one_group_hides_its_launches():
    """Kernels of 10 and 20 us hide two launches of 4; kernels of 1 and 2 us wait for theirs: 8 us."""
    graph = operators(a=10.0, b=20.0, c=1.0, d=2.0)
    stage = ios_runs.MeasuredStage(graph, one_device())
    assert stage((("a", "b"),)) == 30.0
    assert stage((("c", "d"),)) == 8.0
    assert ios_runs.MeasuredStage(graph, one_device(gap=1.0))((("a",),)) == 11.0


def test_a_measured_stage_of_several_groups_pays_launch_and_barrier():
    """a beside b: two launches of 4 before b, which takes 20, barrier 10. c, c2 and c3 of 10 us: the last is launched
    8 us after the first, so they end at 4 + 8 + 10, and the barrier is 10 more."""
    graph = operators(a=10.0, b=20.0, c=10.0, c2=10.0, c3=10.0)
    stage = ios_runs.MeasuredStage(graph, one_device())
    assert stage((("a",), ("b",))) == 38.0
    assert stage((("c",), ("c2",), ("c3",))) == 32.0


@pytest.mark.parametrize("stages", [["ab|c"], ["a|b|c"], ["a|b", "c"], ["abc"]], ids=str)
def test_measured_stages_are_simulated_ones(stages):
    """A single stage takes its measured latency and the launch that no repetition hides, without the barrier that
    nothing comes after; a stage of one group that follows a stage of several has its launch to itself too."""
    graph, cluster = operators(a=50.0, b=60.0, c=70.0), one_device(record=0.0, wait=0.0, hop=0.0)
    groups = [tuple(tuple(group) for group in stage.split("|")) for stage in stages]
    rows = [
        ss.Placement(name, stream=g, stage=k, group=g)
        for k, stage in enumerate(groups)
        for g, group in enumerate(stage)
        for name in group
    ]
    makespan = ss.simulate(ss.Schedule(graph, rows, execution="stages"), cluster).makespan
    measured = ios_runs.MeasuredStage(graph, cluster)
    extra = 4.0 if len(groups[-1]) == 1 else -10.0
    assert makespan == pytest.approx(sum(measured(stage) for stage in groups) + extra)


def wide(batch):
    """Two convolutions of one tensor that can be merged, joined."""
    net = Network("wide", device="v100")
    x = net.conv("x", net.input(batch, 8, 8, 8), 8, 1)
    net.concat("join", [net.conv("a", x, 8, 1), net.conv("b", x, 8, 3, padding=1)])
    return net.graph()


def test_merged_operators_are_measured_as_one():
    """One convolution of one kernel, longer than its launch: its solo time and a gap."""
    graph, cluster = wide(1), one_device(gap=1.0, launch=0.5)
    (a_and_b,) = merge(graph, [("a", "b")])[1]
    assert a_and_b == ("a+b",)
    rewritten = merge(graph, [("a", "b")])[0]
    alone = ss.StageLatency(rewritten, cluster)([["a+b"]])
    assert ios_runs.MeasuredStage(graph, cluster)((("a", "b"),), merged=True) == pytest.approx(alone + 1.0)


def test_a_schedule_is_carried_to_another_batch():
    """Of one image the parts of a merged convolution lie in one piece; of two each is copied by a slice."""
    one, two, cluster = wide(1), wide(2), one_device()
    plan = ios_runs.searched(
        one, cluster, strategy="merge", stage_latency=lambda groups, merged=False: float(not merged)
    )
    assert ios_runs.stages_of(plan, one) == [([["x"]], False), ([["a", "b"]], True), ([["join"]], False)]
    there = ios_runs.carried(plan, one, two).check(cluster)
    assert there.graph.names == ("x", "a+b", "a", "b", "join")
    assert ios_runs.stages_of(there, two) == ios_runs.stages_of(plan, one)
    back = ios_runs.carried(there, two, one)
    assert back.placements == plan.placements
    assert ss.simulate(back, cluster).makespan == ss.simulate(plan, cluster).makespan


def test_chains_reach_the_bound():
    """Of one chain of 2: from {1, 2} the endings {2} and {1, 2}, from {1} itself: 3 of C(4, 2) = 6 pairs. The other
    three have no ending: those of the states {1, 2}, {1} and {}."""
    search = ios_counts.counted(ios_counts.chains(1, 2), "exact").search
    assert (search["transitions"], search["states"]) == (3, 2)
    claim = BY_KEY["ios-fig13"]
    assert claim.published["1x2"] == 6
    assert claim.published["4x6"] == 28**4


def test_models_of_the_figures():
    """3x3 convolutions on 15 x 15 pixels: a has 2 * 225 * 384 * 384 * 9 = 0.6 GFLOP, b and d twice that."""
    gflops = {op.name: op.flops / 1e9 for op in ios_details.demonstration().operators}
    assert [round(gflops[name], 1) for name in "abcd"] == [0.6, 1.2, 0.6, 1.2]
    graph = ios_details.sample()
    assert [edge.src for edge in graph.edges if edge.dst == "5"] == ["4", "2", "3"]
    assert graph["5"].output_shape == (1, 1875, 15, 15)


def test_a_piece_reads_from_one_operator():
    """All eleven blocks of the middle of Inception-v3 do, and so can be timed behind it."""
    for k in range(1, 12):
        assert len(ios_runs.piece("inception_v3", "v100", 1, k).inputs) == 1


def test_stages_of_two_branches_from_times_alone():
    """What the README of IOS prints of its sample on a V100, us: operators alone, then two side by side."""
    alone = {"1": 110.7, "2": 126.0, "3": 106.0, "4": 125.5, "5": 17.9}
    timed = [dataclasses.replace(op, time=alone[op.name]) for op in ios_details.sample().operators]
    latency = ss.StageLatency(ss.OpGraph(timed, ios_details.sample().edges), ss.Cluster.preset("v100"))
    assert latency([["1"], ["2"]]) == pytest.approx(161.5, rel=0.05)
    assert latency([["4"], ["3"]]) == pytest.approx(154.5, rel=0.06)


@pytest.mark.parametrize("key", [*REPRODUCED, *EXPLAINED])
def test_claims(key):
    """Each is as published, or says in the claim why not; there are finite values under the published names."""
    claim = BY_KEY[key]
    assert claim.measure is not None
    ours = claim.measure(QUICK)
    assert all(math.isfinite(ours[name]) for name in claim.published)
    assert (claim.verdict(ours) == "reproduced") == (key in REPRODUCED)
    assert key in REPRODUCED or claim.because
