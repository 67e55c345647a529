"""AutoGraph: what a graph costs, parts of it and how they are put together, and the search within one."""

from dataclasses import replace

from autograph_cases import Drop, Pair, forked
from small import made, operators

from simsched.model import Cluster, Operator, default_cost
from simsched.rewriting import Draft, Read, Row, Source
from simsched.schedulers.autograph.backtracking import (
    Backtracking,
    Cost,
    Lineage,
    MixedCost,
    Start,
    names_of,
    part_of,
    put_together,
    replayed,
    structure,
)
from simsched.schedulers.deadline import Deadline

DEVICE = Cluster.preset("a100").devices[0]


# Cost --------------------------------------------------------------------------------------------


def test_a_cost_model_is_asked_once_per_description():
    """Operators of the graph by name; two new ones that differ in name and block alone, once."""
    asked = []

    def cost(op, _device):
        asked.append(op.name)
        return 1.0

    draft = Draft.from_graph(made("a=1 b=1"))
    costs = MixedCost(draft, DEVICE, cost, 0.25)
    costs(draft)
    assert asked == ["a", "b"]
    new = [Row(Operator(name, kind="conv", block=name)) for name in ("x", "y")]
    assert [costs.time(row) for row in (*new, *new)] == [1.0] * 4
    assert asked == ["a", "b", "x"]


# Parts -------------------------------------------------------------------------------------------


def test_a_part_that_leads_an_outside_tensor_on():
    """a, n, d in a row, each a part; n goes: who read it reads a, and where a is part of another tensor, that part."""
    kinds = {"x": "op", "a": "half", "b": "half", "n": "nothing", "d": "op"}
    whole = Draft.from_graph(made([Operator(*row, time=1.0) for row in kinds.items()], "xa xb an nd bd"))
    parts = [part_of(whole, names) for names in ("xab", "n", "d")]
    after = [Pair(1.0).apply(parts[0], ("a", "b")), Drop().apply(parts[1], ("n",)), parts[2]]
    together = put_together(whole, zip(parts, after, strict=True))
    assert together.rows["d"].reads == (Read("a+b", (1, 0, 1)), Read("a+b", (1, 1, 2)))


def test_parts_that_do_not_fit():
    """a has become a slice along axis 1 where somebody reads it along axis 2: there is no such slice."""
    whole = Draft([Row(Operator("a")), Row(Operator("b"), [Read("a")])])
    parts = [part_of(whole, "a"), part_of(whole, "b")]
    first = parts[0].replace(["a"], [Row(Operator("aa"))], {"a": Source("aa", (1, 0, 1))})
    second = Draft([Row(Operator("b"), [Read("a", (2, 0, 1))])], outside=parts[1].outside)
    assert put_together(whole, [(parts[0], first), (parts[1], second)]) is None


def test_structure_sees_what_the_cost_model_sees():
    """Three operators that differ in name alone, of one of which a profile knows another time."""
    whole = Draft.from_graph(made("a=1 b=2 c=2 x=2 d=1", "ab ac ax bd cd xd"))
    costs = MixedCost(whole, DEVICE, lambda op, _: 7.0 if op.name == "x" else 2.0, 0.25)
    b, c, x = (structure(part_of(whole, [name]), costs) for name in "bcx")
    assert b == c != x


# Backtracking ------------------------------------------------------------------------------------


def explored(draft, rules, alpha=0.25, beta=1.1, budget=1000, top=20):
    """The variants of a draft, and how many graphs were derived."""
    costs = MixedCost(draft, DEVICE, default_cost, alpha)
    with Deadline("autograph") as deadline:
        search = Backtracking({rule.name: rule for rule in rules}, costs, beta, budget, top, deadline)
        search.begin()
        return search([Start(Lineage.of(draft))]), search.candidates


def test_a_graph_that_costs_a_little_more_may_lead_to_a_better_one():
    """Fusing b and c in 21 us costs 1 + 0.25 x 11 more than 25: 28.75. Only then can what is left between them and d
    go, which takes 20 us. With beta 1.1 of 46.25 + ... the way is open; with beta 1 it is closed."""

    class After(Drop):
        def matches(self, draft):
            if "b+c" in draft.rows:
                yield from super().matches(draft)

    kinds = {"a": "op", "b": "half", "c": "half", "n": "nothing", "d": "op"}
    rows = [replace(op, kind=kinds[op.name]) for op in operators("a=1 b=10 c=10 n=20 d=1")]
    draft = Draft.from_graph(made(rows, "ab ac bn cd nd"))
    rules = [Pair(21.0), After()]
    # start: 42 + 0.25 x 32 = 50; fused: 43 + 0.25 x 43 = 53.75 = 1.075 x 50; without n: 23 + 0.25 x 23 = 28.75
    assert explored(draft, rules, beta=1.1)[0][0].cost == Cost(28.75, 23.0)
    assert explored(draft, rules, beta=1.05)[0][0].cost == Cost(50.0, 42.0)


def test_substitutions_in_another_order_are_made_once():
    """Five independent ones: of 32 graphs, each is reached by one substitution from those before it in 5 x 2^4 = 80
    ways; each of the 31 others is derived once."""
    variants, candidates = explored(Draft.from_graph(forked(pairs=5)), [Pair(15.0)], beta=10.0)
    assert candidates == 31
    assert len(variants[0].steps) == 5
    assert len(variants) == 6  # one for each number of substitutions: the sums of the others are the same


def test_a_budget_is_kept_and_spent_on_the_best():
    """Ten of twenty pairs, each tried against all that are left: 20 + 19 + ... + 11 = 155 graphs; at 155 no more."""
    variants, candidates = explored(Draft.from_graph(forked(pairs=20)), [Pair(15.0)], budget=155)
    assert candidates == 155
    assert len(variants[0].steps) == 10


def test_what_is_settled_is_not_tried_again():
    """Four halves that read the same, the first two and the last two settled: 2 x 2 of the 6 pairs are left, and then
    what is left of each."""
    halves = operators("b=10 c=10 e=10 f=10", kind="half")
    draft = Draft.from_graph(made([*halves, *operators("a=1 z=1")], "ab ac ae af bz cz ez fz"))
    costs = MixedCost(draft, DEVICE, default_cost, 0.0)
    with Deadline("autograph") as deadline:
        search = Backtracking({"pair": Pair(15.0)}, costs, 2.0, 1000, 20, deadline)
        search.begin()
        variants = search([Start(Lineage.of(draft), (frozenset("bc"), frozenset("ef")))])
    # of b e, b f, c e, c f two that share no operator go together, in two ways
    assert search.candidates == 4 + 2
    assert [len(variant.steps) for variant in variants] == [2, 1, 0]


def test_steps_are_made_again_as_far_as_they_can_be():
    """Three pairs; of the second an operator is gone: its step and those behind it are left out."""
    whole = Draft.from_graph(forked(pairs=3))
    rules = {"pair": Pair(15.0)}
    found = Lineage.of(whole)
    for match in (("b1", "c1"), ("b2", "c2"), ("b3", "c3")):
        found = found.then("pair", match, rules["pair"].apply(found.draft, match))
    other = rules["pair"].apply(whole, ("b2", "c2"))
    again = replayed(Lineage(other, ()), names_of(whole), found.numbered(), rules)
    assert again.steps == (("pair", ("b1", "c1")),)
    assert list(again.draft.rows) == ["d0", "b1+c1", "d1", "b2+c2", "d2", "b3", "c3", "d3"]
