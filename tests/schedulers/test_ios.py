"""IOS by hand: its stages, what limits them, merging, blocks, budgets, and what it refuses."""

import os
import signal
from threading import Timer
from time import process_time, sleep

import numpy as np
import pytest
from rewriting.rewritten import of_text, with_changes
from small import made, written
from strategies import by_operator

import simsched as ss
import workloads
from simsched.model.graph import Operator, OpGraph
from simsched.schedulers import schedule
from simsched.schedulers.ios import blocks_of, ios
from simsched.schedulers.stage_costs import StageFormula

ONE = ss.Cluster.preset("a100")
PLAIN = StageFormula(slowdown=0.0, constant=0.0)


def planned(graph, stage_latency=PLAIN, **options):
    return schedule(graph, ONE, ios, stage_latency=stage_latency, **options)


def test_a_join_within_a_stage():
    """a -> c <- b, 2 us each: a | b and then c take 4 us. Exactly, all three are an ending as well, of one group.

    In the released code an operator takes all that follows it along: {a, c} and {b, c} overlap, so a stage never
    holds all three; here that is because a and b are two roots. One ending less, and one schedule.
    """
    graph = made("a=2 b=2 c=2", "ac bc")
    common = {"r": None, "s": None, "blocks": "none"}
    assert written(planned(graph, **common)) == "a b/1 c.1"
    exact, single = (planned(graph, endings=e, **common).search for e in ("exact", "single_root"))
    assert exact["transitions"] == single["transitions"] + 1
    assert exact["feasible_schedules"] == single["feasible_schedules"] + 1
    alone = {(("a", "b", "c"),): 1.0}
    table = {
        (("a",),): 9.0,
        (("b",),): 9.0,
        (("c",),): 9.0,
        (("a",), ("b",)): 9.0,
        (("a", "c"),): 9.0,
        (("b", "c"),): 9.0,
        (("a",), ("b", "c")): 9.0,
        (("b",), ("a", "c")): 9.0,
    }
    assert written(planned(graph, table | alone, **common)) == "a b c"
    assert planned(graph, table | alone, **common).estimate == 1.0
    assert planned(graph, table, endings="single_root", **common).estimate == 18.0
    assert planned(graph, table, mode="impl", **common) == planned(graph, table, endings="single_root", **common)


def test_limits():
    """Five operators of 1 us side by side: with at most 2 groups three stages, with 1 five."""
    graph = made("a=1 b=1 c=1 d=1 e=1")
    assert [planned(graph, s=s, blocks="none").estimate for s in (None, 5, 4, 2, 1)] == [1.0, 1.0, 2.0, 3.0, 5.0]
    chain = made("a=1 b=1 c=1 d=1", "ab bc cd")
    counted = StageFormula(0.0, 10.0)  # a stage is dear: a chain is one group if it may
    assert [planned(chain, counted, r=r, blocks="none").estimate for r in (None, 4, 3, 1)] == [14.0, 14.0, 24.0, 44.0]


# Merging -----------------------------------------------------------------------------------------


def convolutions(batch=1, **kernels):
    """Convolutions of x to 4 channels, each of a kernel, padding and stride, and an operator that reads each."""
    rows = [f"{name} = conv(x, 4, {k}, padding={p}, stride={s})" for name, (k, p, s) in kernels.items()]
    rows += [f"{name}_read = activation({name})" for name in kernels]
    return of_text("; ".join(rows), "unit", x=(batch, 3, 8, 8))


def merging_is_cheap(groups, merged=False):
    return 1.0 if merged else 10.0 * sum(map(len, groups))


@pytest.mark.parametrize("batch", [1, 2])
def test_merging_where_it_pays(batch):
    """Each operator costs 10 us, several merged ones 1: x, all three as one, three readers; 10 + 1 + 30 us.

    For two images the parts of the merged output do not lie in one piece: copies stand behind it in its group.
    """
    graph = convolutions(batch, a=(1, 0, 1), b=(3, 1, 1), c=(5, 2, 1))
    plan = planned(graph, merging_is_cheap, blocks="none")
    assert plan.estimate == 41.0
    assert plan.search["merged"] == 3
    assert plan.search["merged_transitions"] > 0
    assert plan.graph is not graph
    at = by_operator(plan)
    assert "a+b+c" in at
    assert not {"a", "b", "c"} & set(at) or batch == 2
    assert plan.graph["a+b+c"].output_shape == (batch, 12, 8, 8)
    behind = [row.op for row in plan.placements if row.stage == at["a+b+c"].stage and row.op != "a+b+c"]
    assert behind == ([] if batch == 1 else ["a", "b", "c"])
    assert all(plan.graph[name].kind == "slice" for name in behind)
    assert ss.simulate(plan, ONE).makespan > 0
    assert planned(graph, merging_is_cheap, strategy="parallel").graph is graph


def test_what_hides_a_merge_is_named():
    """Without the shape of what they read, or without a size of their own, nobody knows whether convolutions merge."""
    graph = convolutions(a=(1, 0, 1), b=(3, 1, 1))
    assert planned(graph, merging_is_cheap, blocks="none").search["merging_lacks"] == {}
    for name, without, lacks in (
        ("x", {"output_shape": None}, {"a": "output_shape of 'x'", "b": "output_shape of 'x'"}),
        ("b", {"input_shapes": ()}, {"b": "input_shapes of 'b'"}),
        ("b", {"attributes": {}}, {"b": "kernel of 'b'"}),
    ):
        plan = planned(with_changes(graph, name, **without), merging_is_cheap, blocks="none")
        assert (plan.search["merging_lacks"], plan.search["merged"]) == (lacks, 0)


def test_a_dense_graph_without_convolutions():
    """1,415 operators with a million edges: what merges is not looked for where nothing can, and parts are limited."""
    src, dst = np.triu_indices(1415, 1)
    graph = ss.OpGraph.from_columns([f"o{i}" for i in range(1415)], src, dst, time=1.0)
    began = process_time()
    assert len(schedule(graph, ONE, ios)) == 1415
    assert process_time() - began < 6.0


def test_many_convolutions_of_one_tensor():
    """Of 11 only those that stand next to each other are tried: all at once among them."""
    graph = convolutions(**{f"c{k}": (1, 0, 1) for k in range(11)})
    plan = planned(graph, merging_is_cheap, blocks="none", strategy="merge")
    assert plan.search["merged"] == 11
    assert plan.estimate == 10.0 + 1.0 + 110.0


def test_merging_alone():
    """Stages of one operator: the estimate is the sum of what runs, and no more than without merging."""
    graph = workloads.load("squeezenet")
    plan = planned(graph, "simulated", strategy="merge")
    assert plan.n_streams == 1
    assert plan.search["merged"] > 0
    total = sum(ss.default_cost(op, ONE.devices[0]) for op in plan.graph.operators)
    assert plan.estimate == pytest.approx(total, rel=1e-9)
    assert plan.estimate < sum(ss.default_cost(op, ONE.devices[0]) for op in graph.operators)
    with_both = planned(graph, StageFormula(), strategy="both")
    assert with_both.search["merged"] > 0
    assert with_both.estimate < planned(graph, StageFormula(), strategy="parallel").estimate


# Blocks and budgets ------------------------------------------------------------------------------


def named(graph, blocks):
    return ["".join(graph.names[i] for i in block) for block in blocks_of(graph, blocks)]


def test_blocks():
    """a -> b, c -> d -> e: every path passes a and d. Labels: P of a b c, Q of d e."""
    graph = made("a=1 b=1 c=1 d=1 e=1", "ab ac bd cd de", P="abc", Q="de")
    assert named(graph, "labels") == ["abc", "de"]
    assert named(graph, "dominators") == ["a", "bcd", "e"]
    assert named(graph, "none") == ["abcde"]
    assert written(planned(graph)) == "a b.1 c/1.1 d.2 e.3"  # as good as de, and found first
    assert planned(graph).search["blocks"] == 2


def test_labels_in_a_circle():
    """P of a and c, Q of b and d, a -> b -> c: neither can be first. R, which e alone has, comes where it must."""
    graph = made("e=1 a=1 b=1 c=1 d=1", "ab bc de ae", P="ac", Q="bd", R="e")
    assert named(graph, "labels") == ["abcd", "e"]
    planned(graph).check(ONE)
    apart = made("a=1 b=1 c=1 d=1", "ca db", P="ab", Q="cd")
    assert named(apart, "labels") == ["cd", "ab"]


def test_equal_blocks_are_solved_once():
    """Two blocks that look the same: twice the counts, no stage simulated again."""
    first = made("a=3 b=5 c=7 d=2", "ab ac bd cd", P="abcd")
    twice = made("a=3 b=5 c=7 d=2 A=3 B=5 C=7 D=2", "ab ac bd cd dA AB AC BD CD", P="abcd", Q="ABCD")
    one, two = (planned(graph, "simulated") for graph in (first, twice))
    assert two.estimate == 2 * one.estimate
    assert two.search["transitions"] == 2 * one.search["transitions"]
    assert two.search["distinct_stages"] == 2 * one.search["distinct_stages"]
    assert two.op.tolist() == [*one.op, *(4 + one.op)]
    assert two.stage.tolist() == [*one.stage, *(1 + one.stage.max() + one.stage)]


EQUAL, UNEQUAL = (made(" ".join(f"{name}={1 + k * d}" for k, name in enumerate("abcdefghijkl"))) for d in (0, 1))
THIRDS = "a b/1 c/2 d/3 e.1 f/1.1 g/2.1 h/3.1 i.2 j/1.2 k/2.2 l/3.2"
QUARTERS = "a b/1 c/2 d.1 e/1.1 f/2.1 g.2 h/1.2 i/2.2 j.3 k/1.3 l/2.3"
CUT = [  # of 12 operators in one block: parts and why, what the search says else, and the stages
    # in three pieces of 4, side by side within them; ordered partitions of 4
    (
        EQUAL,
        PLAIN,
        {"max_part": 5, "s": None},
        3,
        "max_part",
        {"blocks": 1, "parts": 3, "feasible_schedules": 75**3},
        THIRDS,
    ),
    # n operators without edges have 3^n - 2^n transitions: 527,345 of 12, 665 of 6, 19 of 3. With 100 for the block
    # halves have 50 and quarters 25, so quarters fit. Stages to ask for are 2^n - 1: 7 of 3, of which 28 are enough.
    (UNEQUAL, PLAIN, {"max_transitions": 100}, 4, "max_transitions", {"transitions": 4 * 19}, QUARTERS),
    (UNEQUAL, "simulated", {"max_stages": 28}, 4, "max_stages", {"transitions": 4 * 19}, None),
]


@pytest.mark.parametrize(("graph", "latency", "options", "parts", "reason", "said", "text"), CUT)
def test_blocks_that_are_too_large_are_cut(graph, latency, options, parts, reason, said, text):
    plan = planned(graph, latency, blocks="none", **options)
    assert plan.search["cut_blocks"] == [{"block": 0, "operators": 12, "parts": parts, "reason": reason}]
    assert plan.search.items() >= said.items()
    assert text in (None, written(plan))


def test_a_search_that_takes_too_much_memory_is_cut(monkeypatch):
    """12 side by side have 12 x 2^11 endings of one operator, of 16 bytes each: 384 KB. Halves of 6 have 192: 3 KB."""
    assert planned(UNEQUAL, blocks="none", s=None).search["cut_blocks"] == []
    monkeypatch.setattr("simsched.schedulers.ios.endings._MOST_NBYTES", 2**15)
    plan = planned(UNEQUAL, blocks="none", s=None)
    assert plan.search["cut_blocks"] == [{"block": 0, "operators": 12, "parts": 2, "reason": "memory"}]
    assert plan.estimate == 6.0 + 12.0


def test_convolutions_that_are_too_many_to_try():
    """w side by side have w x 2^(w - 1) endings of one operator. Of 67, 33 and 16 that is more than a third of
    5,000,000, half and a quarter of that: cut before anything is asked about sets of them. 8 are not cut.
    """
    sizes = []

    def latency(groups, merged=False):
        sizes.append(len(groups[0]) * merged)
        return 1.0 if merged else 10.0

    plan = planned(convolutions(**{f"c{k}": (1, 0, 1) for k in range(100)}), latency, blocks="none", max_stages=10**9)
    assert plan.search["cut_blocks"][0]["reason"] == "max_transitions"
    assert plan.search["merged"] > 90
    assert 8 <= max(sizes) < 16


def test_no_stage_is_asked_for_when_the_time_is_over():
    """Stages of 8 operators of which no two are alike, each asked for in 10 ms, within 50."""
    graph, asked = made(" ".join(f"o{i}={i + 1}" for i in range(8))), []

    def slow(groups, merged=False):
        sleep(0.01)
        asked.append(groups)
        return 1.0

    plan = planned(graph, slow, time_limit=0.05)
    assert (plan.search["stopped"], plan.search["feasible_schedules"], len(plan)) == ("time limit", None, 8)
    assert len(asked) < 30


def test_more_schedules_than_can_be_written():
    """12 side by side have 28,091,567,595 orders of stages; 400 times that is a number of 4,180 digits."""
    rows = [Operator(f"o{k}.{i}", time=1.0, block=str(k)) for k in range(400) for i in range(12)]
    plan = planned(OpGraph(rows), r=None, s=None)
    assert plan.search["feasible_schedules"] is None
    assert plan.estimate == 400.0
    few = planned(OpGraph(rows[:24]), r=None, s=None)
    assert few.search["feasible_schedules"] == 28_091_567_595**2


# Stopping ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage_latency", [PLAIN, "simulated"])
def test_an_interruption_leaves_a_schedule(caplog, stage_latency):
    """A block that is done in no time, and one of 3^18 transitions, which Ctrl-C cuts short."""
    wide = [f"w{k}" for k in range(18)]
    graph = made(" ".join(["a=2", "b=2", *(f"{name}={k + 1}" for k, name in enumerate(wide))]), first="ab", wide=wide)
    schedule(graph, ONE, ios, max_part=2)  # nothing is left to be compiled
    Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    plan = planned(graph, stage_latency, r=None, s=None, max_transitions=10**12, max_stages=10**9)
    assert "ios: stopped (interrupted)" in caplog.text
    assert plan.search["stopped"] == "interrupted"
    assert written(plan).startswith("a b/1 w0.1 ")
    assert plan.stage.max() == 18


def test_an_interruption_while_merged_operators_are_measured(caplog):
    """A user's function may take its time with each of them: after Ctrl-C it is asked about no more."""
    asked = []

    def latency(groups, merged=False):
        asked.append(merged)
        if merged and sum(asked) == 3:
            signal.raise_signal(signal.SIGINT)
        return 10.0

    graph = convolutions(**{f"c{k}": (1, 0, 1) for k in range(8)})
    plan = planned(graph, latency, blocks="none")
    assert plan.search["stopped"] == "interrupted"
    assert sum(asked) == 3
    assert plan.estimate == 10.0 * len(graph)
