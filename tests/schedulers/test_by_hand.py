"""Worked examples: what schedulers place where, and when it ends; above each the arithmetic."""

from dataclasses import replace

import pytest
from small import made, numbered, operators, written

from simsched.model import Cluster, Kernel, Operator
from simsched.schedulers import schedule
from simsched.schedulers.stage_costs import StageFormula
from simsched.simulator import simulate

ONE, TWO, THREE = (Cluster.preset("a100", n).without_overheads().replace_devices(contention=False) for n in (1, 2, 3))
UNLINKED = Cluster(TWO.devices)
BESIDE = Cluster(THREE.devices, (("gpu1", "gpu2", THREE.links[0][2]),))
"""Three devices of which only the last two are linked."""
MIXED = Cluster((TWO.devices[0], replace(TWO.devices[1], sms=1)), TWO.links)


def by_hand(schedulers, graph, text, makespan, cluster=ONE, *, search=None, simulated=None, **options):
    """What each scheduler makes of a graph, and how long that takes; in truth `simulated`, if it does not know."""
    return schedulers.split(), graph, text, makespan, cluster, search or {}, simulated or makespan, options


def slow(on, us):
    """A cost model: all operators take `us` on one device, what they say elsewhere."""
    return lambda op, device: us if device.name == on else op.time


def by_size(groups):
    """Together two operators take 3.5 us, three 3, four 8."""
    return {2: 3.5, 3: 3.0, 4: 8.0}[len(groups)]


PAPERS_EXAMPLE = "1-2 1-3 1-4 2-5 3-6 5-7 4-8 6-8 7-9 7-10 8-11 8-12 9-13 10-13 11-13 12-13"
NEEDS = made(
    [Operator(str(i), time=10.0, kernels=(Kernel(1, 128, 16, need),)) for i, need in ((1, 0), (2, 4096), (3, 1024))],
    "12 13",
)
TWICE = numbered("1-2 4-2 1-3 4-3", 4, utilization=0.5)
FOUR = made("a=2 b=2 c=2 d=2")
GROUPS = made("a=4 b=1 c=2 d=9", "bc")
FORKS, JOIN = numbered("1-2 1-3 1-4 2-4 3-4 4-5 4-6 5-7 6-7", 7), numbered("1-2 2-3 4-3 4-2", 4)
PARALLEL, THROUGH = numbered("1-2 1-2 1-3 1-3", 3), numbered("1-3 2-3 3-4 3-5", 5)
SEVEN = operators("a=4 b=4 c=4 d=4 e=4 f=4 g=4", utilization=0.5)
FIVE = [Operator("a", time=1.0), Operator("b", time=8.0), Operator("c", time=1.0, kernels=(Kernel(1, share=0.2),) * 5)]


BY_HAND = {
    # In topological order on one stream: b is given first but reads from a.
    "sequential": by_hand("sequential", made("b=2 a=1 c=4", "ab"), "a b c", 7.0),
    # Device i mod 2, stream i div 2 mod 2.
    "round-robin": by_hand(
        "round-robin", made("a=1 b=1 c=1 d=1 e=1 f=1"), "a b@1 c/1 d/1@1 e f@1", 2.0, TWO, streams=2
    ),
    # a; then b, c, d, which it releases and which last 5 us together; then e, which reads from all.
    "greedy": by_hand("greedy", made("a=1 b=2 c=5 d=3 e=1", "ab ac ad be ce de"), "a b.1 c/1.1 d/2.1 e.2", 7.0, TWO),
    # Two at a time: b, c, then d and what was released meanwhile behind it.
    "greedy, the first ready ones": by_hand(
        "greedy", made("a=1 b=1 c=1 d=1 e=1", "ab ac ad be"), "a b.1 c/1.1 d.2 e/1.2", 3.0, streams=2
    ),
    "one device is enough": by_hand("sequential lios", made("a=1 b=2 c=3", "ab bc"), "a b c", 6.0, TWO),
    # LIOS: b and c were released before d, which a later operator released; equal ends: the lowest stream.
    "lios, ties": by_hand("lios", made("a=1 b=2 c=2 d=2", "ab ac bd"), "a b c/1 d", 5.0, streams=2),
    "lios, a chain stays on a stream": by_hand("lios", made("a=1 b=1 c=1", "ab bc"), "a b c", 3.0, streams=100),
    # By time, two streams: b 5 on 0, c 3 on 1, a 3-5 on 1, d 5-14 on 0. Upward: a 11 first, 0-2; then d 9, which ends
    # first on stream 0, 2-11; b on 1, 0-5, c 5-8.
    "lios, by time": by_hand("lios", made("a=2 b=5 c=3 d=9", "ad"), "b c/1 a/1 d", 14.0, streams=2),
    "lios, by upward rank": by_hand(
        "lios", made("a=2 b=5 c=3 d=9", "ad"), "a d b/1 c/1", 11.0, streams=2, rank="upward"
    ),
    # Launch 4, wait 1, record 2, hop 3, gap 0.5; b and c read from a. a: issued at 4, runs 4-14. b on stream 0: issued
    # at 8, behind a and a gap 14.5-20.5; on stream 1: record and wait, issued at 4 + 3 + 4 = 11, a hop behind a 17-23.
    # Stream 0. c on stream 0: 21-26; on stream 1: issued at 8 + 3 + 4 = 15, 17-22. Stream 1. In truth the record is
    # issued behind a rather than behind b: b is launched at 4 + 2 + 4 = 10, which delays nothing.
    "lios, overheads": by_hand(
        "lios",
        made("a=10 b=6 c=5", "ab ac"),
        "a b c/1",
        22.0,
        ONE.replace_devices(launch=4.0, wait=1.0, record=2.0, hop=3.0, gap=0.5),
        streams=2,
        overheads=True,
    ),
    # Launched in 4 us each, operators of 1 us are as good on one stream as on eight.
    "lios, overheads keep short operators together": by_hand(
        "lios", made("a=1 b=1 c=1 d=1 e=1"), "a b c d e", 21.0, ONE.replace_devices(launch=4.0), overheads=True
    ),
    "lios, what costs nothing uses all streams": by_hand(
        "lios", made("a=1 b=1 c=1 d=1 e=1"), "a b/1 c/2 d/3 e/4", 1.0, ONE
    ),
    # c of five kernels in 1 us; b and c read from a; launch 2, wait 3. a: issued at 2, 2-3. b on stream 0: issued at 4,
    # 4-12. c on 0: issued from 4 to 14, starts behind b at 12; its last kernel, of 0.2 us, is launched at 14 and ends
    # at 14.2. On 1: a wait, issued from 7 to 17, starts at 9 and ends at 17.2. Stream 0: later start, first end.
    "lios, the host may be what an operator ends by": by_hand(
        "lios", made(FIVE, "ab ac"), "a b c", 14.2, ONE.replace_devices(launch=2.0, wait=3.0), streams=2, overheads=True
    ),
    # HEFT: x, z 1 and 2 us, y of 4 reads both by edges of 9 us, w of 3 reads nothing. Ranks: z 2 + 9 + 4 = 15, x 14,
    # y 4, w 3. z: gpu0 0-2. x: gpu0 2-3, gpu1 0-1: gpu1. y: gpu0 when x's data is there, 10-14; gpu1 behind z's, 11-15:
    # gpu0. w: gpu0 in the idle 2-10, 2-5; gpu1 1-4.
    "heft weighs waiting against moving": by_hand(
        "heft", made("x=1 z=2 y=4 w=3", "xy:9 zy:9"), "x@1 z w@1 y", 14.0, TWO, streams=1
    ),
    # gpu1 takes 1 us for x and 20 us for all others; y reads from x by an edge of 9 us. Ranks: y (4 + 20) / 2 = 12,
    # x (30 + 1) / 2 + 9 + 12 = 36.5, w (3 + 20) / 2 = 11.5, z (2 + 20) / 2 = 11. x: gpu1 0-1. y: gpu0 10-14 (gpu1:
    # 1-21). w: gpu0 in the idle 0-10, 0-3. z: 3-5, in what is left of it. Without insertion: w 14-17, z 17-19.
    "heft, with insertion": by_hand(
        "heft",
        made("x=30 y=4 w=3 z=2", "xy:9"),
        "x@1 w z y",
        14.0,
        TWO,
        streams=1,
        cost=lambda op, device: op.time if device.name == "gpu0" else 1.0 if op.name == "x" else 20.0,
    ),
    "heft, without insertion": by_hand(
        "heft",
        made("x=30 y=4 w=3 z=2", "xy:9"),
        "x@1 y w z",
        19.0,
        TWO,
        streams=1,
        insertion=False,
        cost=lambda op, device: op.time if device.name == "gpu0" else 1.0 if op.name == "x" else 20.0,
    ),
    # ETF: levels a 9, b 5, c 4, d 1. At 0: a before b by level, gpu0 0-5; b gpu1 0-4. d could start on gpu1 at 4, c on
    # gpu0 at 5: d first, 4-5. c: gpu0 at 5, gpu1 at 8: gpu0 5-9.
    "etf takes what can start first": by_hand(
        "etf", made("a=5 b=4 c=4 d=1", "ac:3 bd:3"), "b@1 a d@1 c", 9.0, TWO, streams=1
    ),
    # Both can start a at 0: the first device, though it takes ten times as long there.
    "etf does not see that a device is fast": by_hand("etf", made("a=1"), "a", 10.0, TWO, cost=slow("gpu0", 10.0)),
    # Two operators of 5 us that read from one of 1 us, by an edge of 100 us between devices: two streams, 1 + 5.
    "streams of a device move nothing": by_hand(
        "heft peft etf", made("a=1 b=5 c=5", "ab:100 ac:100"), "a b c/1", 6.0, TWO, streams=2
    ),
    "exact transfers need no link": by_hand(
        "heft peft etf", made("a=1 b=5 c=5", "ab:1 ac:1"), "a b c@1", 7.0, UNLINKED, streams=1
    ),
    # a and b read nothing, but gpu1 has no link with gpu0 (though with gpu2).
    "the first device and those linked with it": by_hand(
        "heft peft etf", made("a=1 b=1 c=1", "ac bc", nbytes=8.0), "a b c", 3.0, BESIDE, streams=1
    ),
    # HIOS: b and c of 1 us, transfers of 10 us: all on gpu0, 4 us; moving c would take 1 + 10 + 1 + 10 + 1.
    "inter-lp keeps what is not worth moving": by_hand(
        "inter-lp", made("a=1 b=1 c=1 d=1", "ab:10 ac:10 bd:10 cd:10"), "a b.1 c.2 d.3", 4.0, TWO
    ),
    # gpu0 needs 10 us for an operator: a goes to gpu0 as the first path does, b to gpu1 (10 < 20), c as well.
    "inter-lp on unequal devices": by_hand(
        "inter-lp", made("a=1 b=1 c=1"), "a b@1 c@1.1", 10.0, TWO, search={"paths": 3}, cost=slow("gpu0", 10.0)
    ),
    # P1 = v1 v2 v4 v6 v8: 4 + 1 + 2 + 1 + 3 + 1 + 4 + 1 + 2 = 19, on gpu0. Of what is left, v3 v5 v7 with the edges to
    # v1 and v8 is 1 + 2 + 1 + 1 + 1 + 2 + 1 = 9, but v5 in its middle is read by v6, which is mapped. v3 v5 is
    # 1 + 2 + 1 + 1 + 2 = 7, v5 v7 (v5 is its first) 1 + 1 + 2 + 1 = 5: P2 = v3 v5, then P3 = v7. Priorities: v1 19,
    # v2 14, v3 13, v4 11, v5 10, v6 7, v7 5, v8 2. P1 alone takes 15. P2 on gpu0: 18; on gpu1: v3 5-7, v5 7-8, so v6 at
    # 10-14 and v8 14-16. P3 on gpu0 behind v6: 18; on gpu1 8-10: 16.
    "inter-lp, figure 4 of HIOS": by_hand(
        "inter-lp",
        made(
            "v1=4 v2=2 v3=2 v4=3 v5=1 v6=4 v7=2 v8=2",
            "v1-v2:1 v1-v3:1 v2-v4:1 v3-v5:1 v4-v6:1 v5-v6:2 v5-v7:1 v6-v8:1 v7-v8:1",
        ),
        "v1 v2.1 v3@1 v4.2 v5@1.1 v6.3 v7@1.2 v8.4",
        16.0,
        TWO,
        search={"paths": 3},
    ),
    # A chain, the first path, is as quick anywhere: gpu1 of two. An operator without edges goes to gpu0.
    "inter-lp as released gives ties to the last device": by_hand(
        "inter-lp", made("a=1 b=1 c=1", "ab:1"), "a@1 b@1.1 c", 2.0, TWO, search={"paths": 1}, mode="impl"
    ),
    # a, b, c, d of 2 us each. With w=2: 3.5 + 3.5; with w=3 or 4: 3 + 2.
    "hios-lp, no window": by_hand("hios-lp", FOUR, "a b.1 c.2 d.3", 8.0, w=1, stage_latency=by_size),
    "hios-lp, a window of two": by_hand(
        "hios-lp", FOUR, "a b/1 c.1 d/1.1", 7.0, simulated=4.0, w=2, stage_latency=by_size
    ),
    "hios-lp, a wider window takes the best stage": by_hand(
        "hios-lp",
        FOUR,
        "a b/1 c/2 d.1",
        5.0,
        simulated=4.0,
        w=4,
        stage_latency=by_size,
        search={"paths": 4, "stages_tried": 3, "stages_merged": 1, "stages_refused": 0},
    ),
    "a stage must be better": by_hand("hios-mr", made("a=2 b=2"), "a b.1", 4.0, stage_latency=lambda groups: 4.0),
    # Priorities: a 4 + 1 + 3 = 8, b 3, c 3, d 2. a can only be on gpu0, the first device for the first operator: 4.
    # b: gpu0 7, gpu1 4 + 1 + 3 = 8. c: on gpu0 7 if b is on gpu1 (else 10), on gpu1 8 if b is on gpu0 (else 11). d on
    # gpu0: 9 after either, so the first, b on gpu1 and c on gpu0; on gpu1: 10.
    "inter-mr": by_hand("inter-mr", made("a=4 b=3 c=3 d=2", "ab:1 ac:1"), "a b@1 c.1 d.2", 9.0, TWO),
    # c reads from b, then from a; order a, b, c. As released a takes no time: 0 on gpu0. b: 4 on gpu0, 4 on gpu1. c: on
    # gpu0 behind b there 6 (b on gpu1: 4 + 1 + 2), on gpu1 behind b there 6 as well. The first: all on gpu0, in truth
    # 4 + 4 + 2. As printed a ends at 4, b on gpu0 at 8, on gpu1 at 4, and c then on gpu0 at 4 + 1 + 2 = 7.
    "inter-mr as released waits for the first producer alone": by_hand(
        "inter-mr", made("a=4 b=4 c=2", "bc:1 ac:1"), "a b.1 c.2", 10.0, TWO, mode="impl"
    ),
    "inter-mr as printed": by_hand("inter-mr", made("a=4 b=4 c=2", "bc:1 ac:1"), "a b@1 c.1", 7.0, TWO),
    # With hios-sim: of 4 us alone, two take 4 + 0.5 * 4 = 6; on gpu1, which takes twice as long, 8 and 12. gpu1's three
    # take 24 us one by one, and with the first two together 20; then gpu0's four of 16 may stay apart.
    "each kind of device is asked for its own stages": by_hand(
        "hios-mr",
        made(SEVEN),
        "a c.1 b@1 d/1@1 e.2 f@1.1 g.3",
        20.0,
        MIXED,
        simulated=16.0,
        cost=slow("gpu1", 8.0),
        stage_latency="hios-sim",
    ),
    # IOS: in three groups 9 us x 1.2, which a group less would not beat: d alone and then a | bc is 9 + 4 x 1.1.
    "ios, a stage of groups": by_hand(
        "ios", GROUPS, "a b/1 c/1 d/2", 1.2 * 9, simulated=9.0, stage_latency=StageFormula(0.1, 0.0), blocks="none"
    ),
    "ios, one group at a time": by_hand(
        "ios", GROUPS, "a b.1 c.2 d.3", 16.0, stage_latency=StageFormula(0.1, 0.0), blocks="none", s=1
    ),
    # Opara: 2 goes on from 1; 3 from 4 by the journal's rule, as nobody has yet. By the conference's rule it cannot, as
    # 2 comes first among the consumers of both.
    "opara by the journal": by_hand("opara", TWICE, "1 4/1 2 3/1", 20.0, search={"waits": 2}, order="graph"),
    "opara by the conference": by_hand(
        "opara", TWICE, "1 4/1 2 3/2", 20.0, search={"waits": 3}, order="graph", allocation="conference"
    ),
    # 8 lists 4 before 6, and goes on from 4.
    "opara, the order of arguments counts": by_hand(
        "opara", numbered(PAPERS_EXAMPLE, 13), "1 2 3/1 4/2 5 6/1 7 8/2 9 10/3 11/2 12/4 13", 60.0, order="graph"
    ),
    # 1 -> 2 and 1 -> 3, where 3 needs less and so is launched first: it goes on from 1 in the released code.
    "opara, streams in the order of the graph": by_hand("opara", NEEDS, "1 3/1 2", 20.0, metric="shared_memory"),
    "opara as released, streams in launch order": by_hand(
        "opara", NEEDS, "1 3 2/1", 20.0, metric="shared_memory", mode="impl"
    ),
    # A fork into 3 on a pool of 2: 4 opens the third logical stream, which is stream 0 again, behind 2.
    "opara, a pool of streams": by_hand(
        "opara",
        numbered("1-2 1-3 1-4", 4),
        "1 2 3/1 4",
        30.0,
        order="graph",
        max_streams=2,
        search={"logical_streams": 3, "streams": 2, "waits": 1},
    ),
    # Nimble: 1 -> 2, 3 -> 4 -> 5, 6 -> 7, and 1 -> 4, which 2 implies: 8 edges are left, of which 4 can be matched, one
    # of 1-2 and 1-3, of 2-4 and 3-4, of 4-5 and 4-6, of 5-7 and 6-7: 7 - 4 = 3 chains, 8 - 4 = 4 waits. One has 5
    # operators, the others one each, of which the later goes on in the stream of the earlier: 2 streams. 1 and 4 are on
    # one stream, so the released plan, which waits for every edge between streams, has no more waits.
    "nimble, two forks in a row": by_hand(
        "nimble",
        FORKS,
        "1 2 3/1 4 5 6/2 7",
        50.0,
        search={"chains": 3, "matching": 4, "meg_edges": 8, "syncs": 4, "streams": 3, "waits": 4},
    ),
    "nimble as released, two forks in a row": by_hand(
        "nimble", FORKS, "1 2 3/1 4 5 6/1 7", 50.0, search={"chains": 3, "syncs": 4, "waits": 4}, mode="impl"
    ),
    # 1 -> 2 -> 3, 4 -> 2 and 4 -> 3. Left are 1-2, 2-3, 4-2; two are matched, and one of 1-2 and 4-2 is waited for.
    # scipy matches 1-2-3, so 4 is alone, and the released plan waits for 4-2 and for 4-3, which others imply.
    "nimble": by_hand("nimble", JOIN, "1 4/1 2 3", 30.0, search={"syncs": 1}),
    "nimble as released": by_hand("nimble", JOIN, "1 4/1 2 3", 30.0, search={"syncs": 2, "waits": 2}, mode="impl"),
    # 1 -> 2 twice and 1 -> 3 twice: one of them goes on behind 1, the released plan counts the other's two edges; a
    # second wait for the same event changes nothing, and none is lowered.
    "nimble, parallel edges": by_hand("nimble", PARALLEL, "1 2 3/1", 20.0, search={"syncs": 1, "waits": 1}),
    "nimble as released, parallel edges": by_hand(
        "nimble", PARALLEL, "1 2 3/1", 20.0, search={"syncs": 2, "waits": 1}, mode="impl"
    ),
    # 1, 2 -> 3 -> 4, 5, no edge of which can be matched but one into 3 and one out of it: 3 chains, 1 3 4, 2 and 5. 2
    # leads to 5 by 3, so they share a stream, and two are at work at most.
    "nimble, chains": by_hand("nimble", THROUGH, "1 2/1 3 4 5/2", 30.0),
    "nimble, fewer streams": by_hand("nimble", THROUGH, "1 2/1 3 4 5/1", 30.0, streams="reuse"),
    "nimble, the fewest streams": by_hand("nimble", THROUGH, "1 2/1 3 4 5/1", 30.0, streams="dilworth"),
}


@pytest.mark.parametrize("case", BY_HAND.values(), ids=BY_HAND)
def test_by_hand(case):
    schedulers, graph, text, makespan, cluster, search, simulated, options = case
    for name in schedulers:
        plan = schedule(graph, cluster, name, **options)
        assert written(plan) == text
        assert plan.estimate in (None, makespan)
        assert plan.search.items() >= search.items()
        assert simulate(plan, cluster, options.get("cost")).makespan == simulated
