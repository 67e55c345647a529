"""What follows from predicted and measured makespans, worked by hand."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simsched.base.codec import write
from simsched.experiments.accuracy import Accuracy, Outcome, Round

ROUND = {"mean_error", "p90_error", "no_contention_error", "uncalibrated_error", "kendall_tau", "regret", "schedules"}
SCHEDULE = {
    "scheduler", "predicted_us", "measured_us", "measured_p10_us", "measured_p90_us", "error", "no_contention_us",
    "uncalibrated_us", "rank_predicted", "rank_measured", "held_out", "max_relative_error",
}  # fmt: skip


def row(name, predicted, measured, held_out=True, **more):
    spread = {"measured_p10_us": 0.9 * measured, "measured_p90_us": 1.1 * measured}
    usual = {"no_contention_us": 0.5 * measured, "uncalibrated_us": 0.8 * measured}
    return Outcome(name, predicted, measured, held_out=held_out, **spread, **(usual | more))


def accuracy(*rounds):
    return Accuracy("net", "hidden", "Hidden A100", {"date": "2026-01-01"}, 0, rounds, None, {})


@pytest.mark.parametrize(
    ("times", "figures"),
    [
        # |90-100|/100 = 0.1, |120-100|/100 = 0.2, |206-200|/200 = 0.03: their mean is 0.11, and their 90th percentile
        # 0.8 of the way from 0.1 to 0.2; half as long as measured is an error of 0.5, 0.8 of it one of 0.2
        ({"a": (90, 100), "b": (120, 100), "c": (206, 200)},
         {"mean_error": 0.11, "p90_error": 0.18, "no_contention_error": 0.5, "uncalibrated_error": 0.2}),
        # without b, which a fit has seen: (0.1 + 0.03) / 2; b still is what was chosen
        ({"a": (90, 100), "b": (80, 100, False), "c": (206, 200)}, {"mean_error": 0.065, "chosen": "b"}),
        # of the six pairs of four schedules one is swapped, b and c: (5 - 1) / 6
        ({"a": (1, 1), "b": (2, 3), "c": (3, 2), "d": (4, 4)}, {"kendall_tau": 4 / 6}),
        # predicted 1 1 2, measured 1 2 3: two pairs agree, one is tied: tau-b is 2 / sqrt(2 * 3)
        ({"a": (1, 1), "b": (1, 2), "c": (2, 3)}, {"kendall_tau": 2 / 6**0.5}),
        ({"a": (1, 1), "b": (2, 1, False)}, {"kendall_tau": None}),
        ({"a": (1, 1), "b": (1, 2)}, {"kendall_tau": None}),
        # b is predicted to be the fastest of the schedulers and takes 10 % more; what is at random is nobody's choice
        ({"a": (105, 100), "b": (95, 110), "random-1": (50, 40)}, {"chosen": "b", "regret": 0.1}),
        ({"a": (10, 12), "b": (10, 10)}, {"chosen": "a", "regret": 0.2}),  # of equal predictions the first
    ],
)  # fmt: skip
def test_figures_by_hand(times, figures):
    """Of times predicted and measured, by scheduler."""
    found = Round.of([row(name, *pair) for name, pair in times.items()])
    said = write(found) | {"chosen": found.chosen.scheduler}
    assert {name: said[name] for name in figures} == pytest.approx(figures)


def test_ranks_are_over_the_round_and_equal_times_share_one():
    """Predicted 3 1 1 5 is ranked 3 1 1 4, measured 2 4 1 3 as it stands; what was not measured has none."""
    rows = [
        row("a", 3.0, 2.0),
        row("b", 1.0, 4.0),
        Outcome("refuses", reason="no"),
        row("random-1", 1.0, 1.0),
        row("c", 5.0, 3.0),
    ]
    found = Round.of(rows).schedules
    assert [each.rank_predicted for each in found] == [3, 1, None, 1, 4]
    assert [each.rank_measured for each in found] == [2, 4, None, 1, 3]


def test_nothing_is_defined_where_nothing_was_measured():
    found = Round.of([Outcome("a", reason="no kernels"), Outcome("b", reason="no memory")])
    said = write(found)
    assert [said[name] for name in sorted(ROUND - {"schedules"})] == [None] * 6
    assert found.chosen is None


@given(
    st.lists(
        st.tuples(st.floats(0.1, 1e6), st.floats(0.1, 1e6), st.booleans(), st.sampled_from(["lios", "random-1"])),
        max_size=8,
    )
)
def test_figures_are_numbers_or_null(rows):
    """Whatever was measured, the document is JSON without NaN, in the ranges that its figures have."""
    found = write(Round.of([row(name, p, m, held_out) for p, m, held_out, name in rows]))
    said = json.loads(json.dumps(found, allow_nan=False))
    assert said["kendall_tau"] is None or -1 - 1e-9 <= said["kendall_tau"] <= 1 + 1e-9
    assert said["regret"] is None or said["regret"] >= 0
    errors = [each["error"] for each in said["schedules"] if each["held_out"]]
    assert (said["mean_error"] is None) == (not errors)
    if errors:
        assert min(errors) - 1e-9 <= said["mean_error"] <= max(errors) + 1e-9
        assert min(errors) - 1e-9 <= said["p90_error"] <= max(errors) + 1e-9


def test_the_document():
    first = Round.of([row("lios", 90.0, 100.0, max_relative_error=1e-6), Outcome("autograph", reason="no shapes")])
    found = json.loads(json.dumps(accuracy(first, first).to_dict(), allow_nan=False))
    assert found.keys() == {"graph", "backend", "device", "environment", "seed", "rounds"}
    assert (found["graph"], found["backend"], found["device"], found["seed"]) == ("net", "hidden", "Hidden A100", 0)
    assert found["environment"] == {"date": "2026-01-01"}
    for each in found["rounds"]:
        assert each.keys() == ROUND
        measured, refused = each["schedules"]
        assert measured.keys() == SCHEDULE
        assert refused.keys() == SCHEDULE | {"reason"}
        assert refused["reason"] == "no shapes"
        assert measured["error"] == pytest.approx(0.1)


def test_the_table():
    """Times of a millisecond and more are in ms; what is not defined is a dash; the last round's rows, a line each."""
    first = Round.of([row("lios", 900.0, 1000.0)])
    last = Round.of([row("lios", 990.0, 1000.0), row("heft", 2000.0, 2000.0), Outcome("ios", reason="too [large]")])
    lines = repr(accuracy(first, last)).splitlines()
    assert lines[0].startswith("net on hidden (Hidden A100), round 2 of 2")
    lios = next(line for line in lines if line.startswith("│ lios"))
    for text in ("0.990", "1.000", "0.900 - 1.100", "1.0 %", "50.0 %", "20.0 %", "yes"):
        assert text in lios
    assert any("ios: not measured: too [large]" in line for line in lines)
    first_line, last_line = ([line for line in lines if f"│ {number}     │" in line] for number in (1, 2))
    assert "10.0 %" in first_line[0]
    assert "0.5 %" in last_line[0]
    assert "1.00" in last_line[0]


def test_the_data_frame():
    first = Round.of([row("lios", 90.0, 100.0), row("heft", 90.0, 100.0)])
    frame = accuracy(first, first).to_pandas()
    assert list(frame["round"]) == [1, 1, 2, 2]
    assert list(frame["error"]) == pytest.approx([0.1] * 4)


def outcome(name, predicted, measured, spread=0.02):
    p10, p90 = measured * (1 - spread / 2), measured * (1 + spread / 2)
    return Outcome(name, predicted, measured, p10, p90, 1.0, 1.0, held_out=True)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (  # 0 to 1.8 % off; nimble is predicted within 2 % of greedy, and the choice is right
            [outcome("greedy", 100.0, 100.0), outcome("nimble", 101.0, 102.0), outcome("lios", 110.0, 112.0)],
            ["Trust its latencies", "Trust it to choose a scheduler: its choice, greedy, takes 0.0 % more",
             "It does not tell greedy from nimble: measure those. It is furthest off on lios, 1.8 %"],
        ),
        (  # lios is predicted to lead and is 25 % slower than greedy; its runs vary by 60 %
            [outcome("greedy", 100.0, 100.0), outcome("lios", 70.0, 125.0, spread=0.6)],
            ["Do not trust its latencies", "Do not trust it to choose a scheduler: its choice, lios, takes 25.0 % more",
             "furthest off on lios, 44.0 %, whose runs vary by more: repeat them more often"],
        ),
    ],
)  # fmt: skip
def test_verdicts(rows, said):
    found = Accuracy("net", "hidden", "Hidden A100", {}, 0, (Round.of(rows),), None, {})
    assert all(part in " ".join(found.verdict()) for part in said)


def test_no_verdict_where_nothing_was_held_out():
    row = Outcome("lios", 10.0, 10.0, 9.0, 11.0)
    found = Accuracy("net", "hidden", "Hidden A100", {}, 0, (Round.of([row]),), None, {})
    assert found.verdict() == (
        "No verdict: nothing was held out, or no scheduler's schedule was measured; measure some.",
    )
