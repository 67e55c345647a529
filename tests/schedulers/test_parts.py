"""AutoGraph: parts and their cost, the search within one, where a graph is cut, and how runs of parts are chosen."""

from dataclasses import replace
from itertools import pairwise, product

import pytest
from autograph_cases import drop, forked, pair
from hypothesis import given, settings
from hypothesis import strategies as st
from small import made, operators
from strategies import shapes

from simsched.model import Cluster, Operator, default_cost
from simsched.model.rewriting import Step
from simsched.rewriting import DraftRow, GraphDraft, Read, Source
from simsched.rewriting.parts import READER, part_of, put_together
from simsched.schedulers.autograph import atoms, intervals
from simsched.schedulers.autograph.parts import (
    Backtracking,
    DraftCost,
    MixedCost,
    Variant,
    best_choices,
)
from simsched.schedulers.protocol import Deadline

DEVICE = Cluster.preset("a100").devices[0]


# Parts -------------------------------------------------------------------------------------------


def test_a_part_knows_who_reads_from_it():
    """Of a b c d in a row, b c is a part: it reads a from outside, and c is read outside, which takes no time."""
    whole = GraphDraft.from_graph(made("a=1 b=2 c=3 d=4", "ab bc cd"))
    part = part_of(whole, "bc")
    assert (list(part.rows), list(part.outside)) == (["b", "c", READER], ["a"])
    assert part.rows[READER].reads == (Read("c"),)
    assert "c" not in part.kept
    assert MixedCost(DEVICE, default_cost, 1.0)(part) == DraftCost(10.0, 5.0)


def test_a_part_that_leads_an_outside_tensor_on():
    """a, n, d in a row, each a part; n goes: who read it reads a, and where a is part of another tensor, that part."""
    kinds = {"x": "op", "a": "half", "b": "half", "n": "nothing", "d": "op"}
    whole = GraphDraft.from_graph(made([Operator(*row, time=1.0) for row in kinds.items()], "xa xb an nd bd"))
    parts = [part_of(whole, names) for names in ("xab", "n", "d")]
    after = [pair(1.0).apply(parts[0], ("a", "b")), drop().apply(parts[1], ("n",)), parts[2]]
    together = put_together(whole, zip(parts, after, strict=True))
    assert together.rows["d"].reads == (Read("a+b", (1, 0, 1)), Read("a+b", (1, 1, 2)))


def test_parts_that_do_not_fit():
    """a has become a slice along axis 1 where somebody reads it along axis 2: there is no such slice."""
    whole = GraphDraft([DraftRow(Operator("a")), DraftRow(Operator("b"), [Read("a")])])
    parts = [part_of(whole, "a"), part_of(whole, "b")]
    first = parts[0].replace(["a"], [DraftRow(Operator("aa"))], {"a": Source("aa", (1, 0, 1))})
    second = GraphDraft([DraftRow(Operator("b"), [Read("a", (2, 0, 1))])], outside=parts[1].outside)
    assert put_together(whole, [(parts[0], first), (parts[1], second)]) is None


# Backtracking ------------------------------------------------------------------------------------


def explored(draft, rules, alpha=0.25, beta=1.1, budget=1000, top=20, settled=()):
    """The variants of a draft, and how many graphs were derived."""
    costs = MixedCost(DEVICE, default_cost, alpha)
    with Deadline("autograph") as deadline:
        search = Backtracking({rule.name: rule for rule in rules}, costs, beta, budget, top, deadline)
        search.begin()
        return search.best([Variant(draft, costs(draft), settled=settled)]), search.candidates


def test_steps_are_made_again_as_far_as_they_can_be():
    """Three pairs; of the second one operator is gone: its step and those behind it are left out."""
    whole = GraphDraft.from_graph(forked(pairs=3))
    other = whole.replace(["c2"], redirect={"c2": Source("b2")})
    steps = tuple(Step("pair", (f"b{i}", f"c{i}")) for i in (1, 2, 3))
    with Deadline("autograph") as deadline:
        search = Backtracking({"pair": pair(15.0)}, MixedCost(DEVICE, default_cost, 0.25), 1.1, 100, 20, deadline)
        start = search.join_parts(other, [(whole, Variant(whole, search.costs(whole), steps))])
    assert start.steps == steps[:1]
    assert list(start.draft.rows) == ["d0", "b1+c1", "d1", "b2", "d2", "b3", "c3", "d3"]
    assert start.settled == ({*whole.rows, "b1+c1"},)


def test_a_graph_that_costs_a_little_more_may_lead_to_a_better_one():
    """Fusing b and c in 21 us costs 1 + 0.25 x 11 more than 25: 28.75. Only then can what is left between them and d
    go, which takes 20 us. With beta 1.1 of 46.25 + ... the way is open; with beta 1 it is closed."""

    kinds = {"a": "op", "b": "half", "c": "half", "n": "nothing", "d": "op"}
    rows = [replace(op, kind=kinds[op.name]) for op in operators("a=1 b=10 c=10 n=20 d=1")]
    draft = GraphDraft.from_graph(made(rows, "ab ac bn cd nd"))
    rules = [pair(21.0), drop(lambda draft: "b+c" in draft.rows)]
    # start: 42 + 0.25 x 32 = 50; fused: 43 + 0.25 x 43 = 53.75 = 1.075 x 50; without n: 23 + 0.25 x 23 = 28.75
    assert explored(draft, rules, beta=1.1)[0][0].cost == DraftCost(28.75, 23.0)
    assert explored(draft, rules, beta=1.05)[0][0].cost == DraftCost(50.0, 42.0)


def test_substitutions_in_another_order_are_made_once():
    """Five independent ones: of 32 graphs, each is reached by one substitution from those before it in 5 x 2^4 = 80
    ways; each of the 31 others is derived once."""
    variants, candidates = explored(GraphDraft.from_graph(forked(pairs=5)), [pair(15.0)], beta=10.0)
    assert candidates == 31
    assert len(variants[0].steps) == 5
    assert len(variants) == 6  # one for each number of substitutions: the sums of the others are the same


def test_a_budget_is_kept_and_spent_on_the_best():
    """Ten of twenty pairs, each tried against all that are left: 20 + 19 + ... + 11 = 155 graphs; at 155 no more."""
    variants, candidates = explored(GraphDraft.from_graph(forked(pairs=20)), [pair(15.0)], budget=155)
    assert candidates == 155
    assert len(variants[0].steps) == 10


def test_what_is_settled_is_not_tried_again():
    """Four halves that read the same, the first two and the last two settled: 2 x 2 of the 6 pairs are left, and then
    what is left of each."""
    halves = operators("b=10 c=10 e=10 f=10", kind="half")
    draft = GraphDraft.from_graph(made([*halves, *operators("a=1 z=1")], "ab ac ae af bz cz ez fz"))
    settled = (frozenset("bc"), frozenset("ef"))
    variants, candidates = explored(draft, [pair(15.0)], alpha=0.0, beta=2.0, settled=settled)
    # of b e, b f, c e, c f two that share no operator go together, in two ways
    assert candidates == 4 + 2
    assert [len(variant.steps) for variant in variants] == [2, 1, 0]


def reads_of(graph):
    """What each operator reads, in topological order."""
    reads = {name: [] for name in graph.order}
    for edge in graph.edges:
        reads[edge.dst].append(edge.src)
    return reads


def chain(n):
    """Operators 0 to n-1, each reading from the one before it."""
    return {str(i): [str(i - 1)] if i else [] for i in range(n)}


# Partition ---------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=40)
@given(graph=shapes(max_ops=9), data=st.data())
def test_no_other_cut_is_smaller(graph, data):
    """All sets that hold what they read from are tried; of 8 operators the first and the last two are given."""
    reads = reads_of(graph)
    names = list(reads)
    matches = {name: data.draw(st.integers(1, 4)) for name in names}
    if len(names) < 2:
        return
    kept = max(1, len(names) // 4)

    def capacity(first):
        return sum(
            matches[name] for name in names if name in first and any(name in reads[r] for r in names if r not in first)
        )

    pieces = atoms(reads, matches, len(names), lambda: False)
    least = min(
        capacity(first)
        for chosen in product([False, True], repeat=len(names) - 2 * kept)
        for first in [set(names[:kept]) | {n for n, c in zip(names[kept:], chosen, strict=False) if c}]
        if all(producer in first for name in first for producer in reads[name])
    )
    cuts = [set().union(*pieces[:i]) for i in range(1, len(pieces))]
    assert [capacity(cut) for cut in cuts] == [least]


def test_a_long_chain_and_a_wide_fork():
    """Pieces of at least a quarter of 40: at most 100 of them, not one for each operator; in an order that can run."""
    n = 1001
    fork = {str(i): ["0"] if i else [] for i in range(n)}
    for reads in (chain(n), fork):
        pieces = atoms(reads, {}, 40, lambda: False)
        assert all(0 < len(piece) < 40 for piece in pieces)
        assert len(pieces) <= 101
        at = {name: i for i, piece in enumerate(pieces) for name in piece}
        assert sum(map(len, pieces)) == len(at) == n
        assert all(at[producer] <= at[name] for name in reads for producer in reads[name])


@pytest.mark.parametrize(
    ("sizes", "largest", "runs"),
    [
        # the seven subgraphs of the paper's Fig. 4: p1 to p4 in a row, p5 = p1 + p2, p6 = p2 + p3, p7 = p3 + p4
        ([40, 40, 40, 40], 80, [(0, 1), (1, 2), (2, 3), (3, 4), (0, 2), (1, 3), (2, 4)]),
        ([10, 20, 30], 30, [(0, 1), (1, 2), (2, 3), (0, 2)]),  # 10 + 20 = 30 fits, 20 + 30 = 50 and all three do not
        ([50, 60], 30, [(0, 1), (1, 2)]),  # a piece alone always does
    ],
)
def test_intervals_keep_to_the_largest_size(sizes, largest, runs):
    assert intervals(sizes, largest) == runs


# Dynamic programming -----------------------------------------------------------------------------


def variant(mixed, name="R"):
    """A variant of a cost, with a step to tell it by."""
    return Variant(GraphDraft([]), DraftCost(mixed, mixed), ((f"{name}{mixed}", ()),))


def test_the_best_cover_is_found():
    """Parts alone cost 10, 10, 10; the first two together 15, the last two 17. 15 + 10 = 25 < 10 + 17 < 30: p5, p3."""
    variants = {
        (0, 1): [variant(10.0)],
        (1, 2): [variant(10.0)],
        (2, 3): [variant(10.0)],
        (0, 2): [variant(15.0)],
        (1, 3): [variant(17.0)],
    }
    choices = best_choices(variants, 3, 20)
    assert [choice.cost.mixed for choice in choices] == [25.0, 27.0, 30.0]
    assert [run for run, _ in choices[0].parts] == [(0, 2), (2, 3)]


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_the_lists_hold_the_best_of_all_covers(data):
    """Against every cover and every combination of variants, one by one (costs drawn so that all sums differ)."""
    count = data.draw(st.integers(1, 4))
    runs = [run for run in intervals([1] * count, count) if run[1] - run[0] == 1 or data.draw(st.booleans())]
    weight = iter(2.0**k for k in range(40))
    variants = {
        run: sorted((variant(next(weight)) for _ in range(data.draw(st.integers(1, 3)))), key=lambda v: v.cost.mixed)
        for run in data.draw(st.permutations(runs))
    }

    def covers(first):
        if first == count:
            yield 0.0
        for run, found in variants.items():
            if run[0] == first:
                for rest in covers(run[1]):
                    yield from (v.cost.mixed + rest for v in found)

    choices = best_choices(variants, count, 5)
    assert [choice.cost.mixed for choice in choices] == sorted(covers(0))[:5]
    for choice in choices:
        ends = [run for run, _ in choice.parts]
        assert ends[0][0] == 0
        assert ends[-1][1] == count
        assert all(a[1] == b[0] for a, b in pairwise(ends))
