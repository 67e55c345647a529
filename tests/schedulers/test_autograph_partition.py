"""AutoGraph: where a graph is cut, and how runs of adjacent parts are chosen."""

from itertools import pairwise, product

from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import shapes

from simsched.schedulers.autograph.backtracking import Cost, Variant
from simsched.schedulers.autograph.search import atoms, best_choices, intervals


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

    pieces = atoms(reads, matches, len(names))
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
        pieces = atoms(reads, {}, 40)
        assert all(0 < len(piece) < 40 for piece in pieces)
        assert len(pieces) <= 101
        at = {name: i for i, piece in enumerate(pieces) for name in piece}
        assert sum(map(len, pieces)) == len(at) == n
        assert all(at[producer] <= at[name] for name in reads for producer in reads[name])


def test_four_atoms_give_the_seven_subgraphs_of_the_paper():
    """Its Fig. 4: p1 to p4 in a row, p5 = p1 + p2, p6 = p2 + p3, p7 = p3 + p4; three together are too large."""
    runs = intervals([40, 40, 40, 40], 80)
    names = {run: f"p{i}" for i, run in enumerate(runs, 1)}
    assert names == {(0, 1): "p1", (1, 2): "p2", (2, 3): "p3", (3, 4): "p4", (0, 2): "p5", (1, 3): "p6", (2, 4): "p7"}


def test_intervals_keep_to_the_largest_size():
    """10 + 20 = 30 fits, 20 + 30 = 50 and all three, 60, do not; a piece alone always does."""
    assert intervals([10, 20, 30], 30) == [(0, 1), (1, 2), (2, 3), (0, 2)]
    assert intervals([50, 60], 30) == [(0, 1), (1, 2)]
    assert len(intervals([1] * 5, 5)) == 15


# Dynamic programming -----------------------------------------------------------------------------


def variant(mixed, name="R"):
    """A variant of a cost, with a step to tell it by."""
    return Variant(Cost(mixed, mixed), ((f"{name}{mixed}", ()),))


def test_the_best_cover_is_found():
    """Parts alone cost 10, 10, 10; the first two together 15, the last two 17. 15 + 10 = 25 < 10 + 17 < 30: p5, p3."""
    variants = {
        (0, 1): [variant(10.0)], (1, 2): [variant(10.0)], (2, 3): [variant(10.0)],
        (0, 2): [variant(15.0)], (1, 3): [variant(17.0)],
    }  # fmt: skip
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
