"""Who wins a study: wins, ranks, ratios, tests, profiles and critical differences, worked by hand."""

import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from study_cases import fork, study

from simsched.base.errors import StudyError
from simsched.experiments.study import run_study
from simsched.experiments.study.rank import cliques_of, critical_difference, friedman, holm, rank, ranks_of, wilcoxon
from simsched.show.ranking import steps_of

COSTS = [(10, 20, 40), (10, 10, 20), (30, 15, 60), (10, 20, 20)]
"""By block, of schedulers a, b and c."""


def rows_of(costs, column="makespan_us", names="abc", **more):
    """The rows of blocks; None is one without a result."""
    return [
        {
            "unit": f"u{i}",
            "seed": i,
            "scheduler": name,
            "cluster.gpu": "a40",
            "workload.kind": ("odd", "even")[i % 2],
            "status": "refused" if value is None else "ok",
            **({} if value is None else {column: float(value)}),
            **more,
        }
        for i, block in enumerate(costs)
        for name, value in zip(names, block, strict=True)
    ]


def ranked(costs=COSTS, names="abc", **options):
    return rank("s", rows_of(costs, names=names), list(names), **options)


def by_name(group):
    return {row.scheduler: row for row in group.rows}


def test_wins_ranks_and_ratios():
    """Ranks 1 2 3, 1.5 1.5 3, 2 1 3, 1 2.5 2.5. Over the best: a 1 1 2 1, b 2 1 1 2, c 4 2 4 2; b over a 2 1 1/2 2."""
    (group,) = ranked().groups
    a, b, c = (by_name(group)[name] for name in "abc")
    assert [(row.wins, row.shared) for row in (a, b, c)] == [(2, 1), (1, 1), (0, 0)]
    assert [row.mean_rank for row in (a, b, c)] == [5.5 / 4, 7 / 4, 11.5 / 4]
    assert [row.to_best for row in (a, b, c)] == pytest.approx([2**0.25, 2**0.5, 2**1.5])
    assert [row.to_baseline for row in (a, b, c)] == pytest.approx([1, 2**0.25, 2**1.25])
    assert (group.blocks, group.complete, [row.scheduler for row in group.rows]) == (4, 4, ["a", "b", "c"])


def normal(z):
    """Both tails of the normal distribution."""
    return math.erfc(abs(z) / math.sqrt(2))


def test_tests():
    """Logarithms of ratios, in units of ln 2, are all or partly of one size: the normal distribution, ties corrected.

    a - b: -1 0 1 -1: three of rank 2, W+ = 2 of mean 3, variance 3 x 4 x 7 / 24 - 24 / 48 = 3.
    a - c: -2 -1 -1 -1: ranks 4 2 2 2, W+ = 0 of mean 5, variance 4 x 5 x 9 / 24 - 24 / 48 = 7.
    b - c: -1 -1 -2 0: ranks 1.5 1.5 3, W+ = 0 of mean 3, variance 3.5 - 6 / 48 = 3.375.
    Friedman: rank sums 5.5, 7 and 11.5: (12 / 48 x 211.5 - 48) / (1 - 12 / 96), of which exp(-x / 2) is the tail.
    """
    (group,) = ranked().groups
    p = [normal(1 / 3**0.5), normal(5 / 7**0.5), normal(3 / 3.375**0.5)]
    assert [(pair.first + pair.second, pair.wins, pair.losses, pair.ties) for pair in group.pairs] == [
        ("ab", 2, 1, 1),
        ("ac", 4, 0, 0),
        ("bc", 3, 0, 1),
    ]
    assert [pair.p for pair in group.pairs] == pytest.approx(p)
    assert [pair.p_holm for pair in group.pairs] == pytest.approx([p[0], 3 * p[1], 2 * p[2]])
    assert [row.p for row in group.rows] == [None, group.pairs[0].p_holm, group.pairs[1].p_holm]
    assert group.friedman == pytest.approx((4.875 / 0.875, math.exp(-4.875 / 0.875 / 2)))


def test_exact_signed_ranks():
    """Of 2^n signs: all alike 2; with the least one turned round also those two, and so on; zeros are left out."""
    assert wilcoxon(np.array([1.0, 2, 3, 4, 5, 0])) == pytest.approx(2 / 32)
    assert wilcoxon(np.array([-1.0, 2, 3, 4, 5])) == pytest.approx(4 / 32)
    assert wilcoxon(np.array([0.0, 0.0])) == 1.0


def test_holm():
    """4 x .01; 3 x .02, and no less than that; 2 x .04, 1 at most."""
    assert holm([0.04, 0.01, 0.02, 0.9]) == pytest.approx([0.08, 0.04, 0.06, 0.9])
    assert holm([0.01, 0.0101]) == pytest.approx([0.02, 0.02])
    assert holm([0.7, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def test_critical_differences():
    """q of 5 % as Demšar's table 5 has it; 2.569 (4 x 5 / (6 x 14))^1/2 = 1.25 is his example."""
    for n, q in ((2, 1.960), (3, 2.343), (4, 2.569), (5, 2.728), (10, 3.164)):
        assert critical_difference(n, 7) == pytest.approx(q * math.sqrt(n * (n + 1) / 42), rel=5e-4)
    assert round(critical_difference(4, 14), 2) == 1.25
    (group,) = ranked().groups  # 2.343 / 2^1/2 = 1.657, more than 2.875 - 1.375
    assert group.critical_difference == pytest.approx(2.343 / 2**0.5, rel=5e-4)
    assert group.cliques == (("a", "b", "c"),)
    assert cliques_of([("a", 1.0), ("b", 2.0), ("c", 4.0)], 1.0) == ()


def test_friedman_of_equal_ranks():
    assert friedman(np.full((3, 4), 2.5)) == (0.0, 1.0)
    assert friedman(np.array([[1.0, 2.0]])) is None


def test_profiles():
    """a is best in three of four blocks and within twice the best in all; where there is no result it never counts."""
    (group,) = ranked().groups
    assert steps_of(group.ratios[:, 0]) == ([1.0, 2.0], [0.75, 1.0])
    (group,) = ranked([(10, 20, None), (None, 5, 10), (None, None, None), (1, 1, 1)]).groups
    column = {row.scheduler: group.ratios[:, i] for i, row in enumerate(group.rows)}
    assert steps_of(column["a"]) == ([1.0], [2 / 3])
    assert steps_of(column["b"]) == ([1.0, 2.0], [2 / 3, 1.0])


def test_blocks_that_are_not_complete():
    """Two of six count: one scheduler refused, one has no row, one a makespan of 0, and none has a result."""
    rows = rows_of([*COSTS[:2], (None, 5, 5), (1, 2, 3), (0, 1, 1), (None,) * 3])
    rows = [row for row in rows if (row["unit"], row["scheduler"]) != ("u3", "b")]
    found = rank("s", rows, ["a", "b", "c", "d"])
    (group,) = found.groups
    assert (group.blocks, group.complete, len(group.ratios)) == (6, 2, 5)
    assert {row.scheduler: row.no_result for row in group.rows} == {"a": 3, "b": 2, "c": 1}
    assert by_name(group)["a"].mean_rank == 1.25
    assert any("2 of 6 blocks are complete, others are left out" in note for note in found.notes())
    assert "without rows yet, and not ranked: d" in found.notes()


def test_no_complete_block():
    """There are no ranks, no ratios and no tests; the profile is there."""
    found = ranked([(10, None, 20), (None, 10, 20)])
    (group,) = found.groups
    assert [(row.wins, row.mean_rank, row.to_best, row.low, row.p) for row in group.rows] == [
        (0, None, None, None, None)
    ] * 3
    assert (group.pairs, group.friedman, group.critical_difference) == ((), None, None)
    assert len(found.table().rows) == 3
    found.plot()


def test_blocks_are_told_apart_by_cluster_and_simulation():
    """The same unit on two clusters is two blocks; rows of options differ in their label alone."""
    rows = [{**row, "option.w": 2} for row in rows_of(COSTS[:1])]
    rows += [{**row, "cluster.gpu": "v100"} for row in rows_of(COSTS[:1])]
    assert rank("s", rows, "abc").groups[0].complete == 2


def test_groups():
    """By the last part of a column, each with its own blocks: u0 and u2, u1 and u3."""
    found = ranked(by=["kind"])
    assert [(dict(group.by), group.complete) for group in found.groups] == [
        ({"workload.kind": "odd"}, 2),
        ({"workload.kind": "even"}, 2),
    ]
    assert [by_name(group)["a"].mean_rank for group in found.groups] == [1.5, 1.25]
    assert found.records()[0]["workload.kind"] == "odd"
    assert found.table().headings[:2] == ("kind", "scheduler")


def test_the_larger_speedup_wins():
    """Speedups are the inverse of costs: all figures are those of the costs."""
    speedups = [tuple(1 / value for value in block) for block in COSTS]
    (group,) = rank("s", rows_of(speedups, "speedup"), "abc", metric="speedup").groups
    (expected,) = ranked().groups
    assert [row.mean_rank for row in group.rows] == [row.mean_rank for row in expected.rows]
    assert [row.to_baseline for row in group.rows] == pytest.approx([row.to_baseline for row in expected.rows])


def test_baselines():
    """Sequential if it is there, else the first, or another."""
    assert ranked().baseline == "a"
    assert ranked(baseline="c").baseline == "c"
    assert by_name(ranked(baseline="c").groups[0])["a"].to_baseline == pytest.approx(2**-1.25)
    assert ranked([(1, 2), (2, 1)], names=["x", "sequential"]).baseline == "sequential"


def test_what_cannot_be_ranked():
    for options, message in [
        ({"metric": "makespans"}, "unknown metric 'makespans'"),
        ({"baseline": "d"}, "unknown baseline 'd'"),
        ({"by": ["n_op"]}, "rank: unknown column 'n_op'"),
    ]:
        with pytest.raises(StudyError, match=message):
            ranked(**options)
    with pytest.raises(StudyError, match="there are no rows to rank yet; run the study first"):
        rank("s", [], "abc")


blocks = st.lists(st.tuples(*[st.floats(1e-3, 1e9)] * 3), min_size=1, max_size=12)


@given(costs=blocks, scale=st.floats(1e-3, 1e3))
def test_properties(costs, scale):
    """Ranks add up, wins are at most the blocks, intervals hold the point, and units do not matter."""
    (group,) = ranked(costs).groups
    n = len(costs)
    assert sum(row.mean_rank for row in group.rows) == pytest.approx(6)
    assert sum(row.wins for row in group.rows) <= n <= sum(row.wins + row.shared for row in group.rows)
    tight = 1 + 1e-9
    for row in group.rows:
        assert row.to_best >= 1 / tight
        assert 0 <= row.no_result == 0
        assert row.p is None or 0 <= row.p <= 1
        low, high = (pick(block["abc".index(row.scheduler)] / block[0] for block in costs) for pick in (min, max))
        assert low / tight <= row.low <= row.high * tight <= high * tight**2
    (scaled,) = ranked([tuple(scale * value for value in block) for block in costs]).groups
    assert [row.wins for row in scaled.rows] == [row.wins for row in group.rows]


def test_bootstrap():
    """It is that of its seed. Of one block the interval is the point.

    Of ratios 2 and 1/2 in equal parts of 400 blocks the mean logarithm has the standard deviation ln 2 / 20: the ends
    are 2^(-1.96 / 20) and 2^(1.96 / 20), within what 2000 resamples leave open.
    """
    costs = [(1.0, 2.0, 1.0 + i) if i % 2 else (2.0, 1.0, 1.0 + i) for i in range(400)]
    one, same, other = (by_name(ranked(costs, rng=seed).groups[0])["b"] for seed in (0, 0, 1))
    assert one == same
    for row in (one, other):
        assert [math.log2(row.low), math.log2(row.high)] == pytest.approx([-1.96 / 20, 1.96 / 20], abs=0.01)
    c, d = (by_name(ranked(costs, rng=seed).groups[0])["c"] for seed in (0, 1))
    assert (c.low, c.high) != (d.low, d.high)
    (single,) = ranked(COSTS[:1]).groups
    assert [(row.low, row.high) for row in single.rows] == [
        pytest.approx((row.to_baseline,) * 2) for row in single.rows
    ]


def test_nearly_equal_costs_are_ties():
    """A relative difference of 1e-10 wins nothing."""
    assert [(row.wins, row.shared) for row in ranked([(1.0, 1.0 + 1e-10, 2.0)]).groups[0].rows] == [
        (0, 1),
        (0, 1),
        (0, 0),
    ]
    assert ranks_of(np.array([[2.0, 1.0, 2.0]])).tolist() == [[2.5, 1.0, 2.5]]


def test_tex():
    """Rules around the head and between groups, special characters escaped, as many cells as columns."""
    found = ranked(names=["a_b", "50%", "c&{}"], by=["kind"])
    text = found.to_tex()
    assert text.count(r"\midrule") == 2
    assert all(special in text for special in (r"a\_b", r"50\%", r"c\&\{\}"))
    (columns,) = re.findall(r"\\begin\{tabular\}\{([lr]+)\}", text)
    rows = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert len(rows) == 7
    assert {len(re.split(r"(?<!\\)&", row)) for row in rows} == {len(columns)}


def test_pictures(tmp_path):
    """A profile and ranks for each group: the line of a scheduler, and its name and mean rank."""
    figure = ranked(by=["kind"]).plot(tmp_path / "rank.svg")
    assert (tmp_path / "rank.svg").exists()
    assert len(figure.axes) == 4
    profile, ranks = figure.axes[:2]
    assert [line.get_label() for line in profile.get_lines()] == ["a", "b", "c"]
    assert {"a  1.50", "b  1.50", "c  3.00"} <= {text.get_text() for text in ranks.texts}
    with pytest.raises(StudyError, match="nothing to draw: no row has a makespan"):
        ranked([(None, None, None)]).plot()
    ranked([(1,), (2,)], names="a").plot()


@pytest.mark.parametrize("names", [["a$b$", "_c", "d{"], ["n" * 300, "m m " * 60, ""], ["\x1b[2J", "\u202e", "\n"]])
def test_names_of_any_kind(names, tmp_path):
    """Each is there, cut if it is long; as many lines of LaTeX as ever."""
    found = ranked(names=names)
    figure = found.plot(tmp_path / "rank.svg")
    assert len(figure.axes[0].get_lines()) == 3
    assert len(found.to_tex().splitlines()) == len(ranked().to_tex().splitlines())


def test_of_a_study(tmp_path):
    """70 us in a row and 30 us side by side in each of 3 instances."""
    found = run_study(study(seeds=3), tmp_path, load=fork, executor="serial").rank()
    assert found.baseline == "sequential"
    assert by_name(found.groups[0])["lios"].to_baseline == pytest.approx(3 / 7)
    assert by_name(found.groups[0])["lios"].wins == 3
