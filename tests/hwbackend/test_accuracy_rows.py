"""What follows from predicted and measured makespans, worked by hand; and the pictures of it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_hex
from stand_ins import SimulatedBackend

import simsched as ss
import workloads
from simsched.base.codec import write
from simsched.base.errors import BackendError
from simsched.experiments.accuracy import Accuracy, Outcome, Round
from simsched.model.backend import prepared
from simsched.show.looks import looks_of

ROUND = {"mean_error", "p90_error", "no_contention_error", "uncalibrated_error", "kendall_tau", "regret", "schedules"}
SCHEDULE = {
    "scheduler", "predicted_us", "measured_us", "measured_p10_us", "measured_p90_us", "error", "no_contention_us",
    "uncalibrated_us", "rank_predicted", "rank_measured", "held_out", "max_relative_error",
}  # fmt: skip


def row(name, predicted, measured, held_out=True, spread=0.02):
    p10, p90 = measured * (1 - spread / 2), measured * (1 + spread / 2)
    alone, uncalibrated = 0.5 * measured, 0.8 * measured
    return Outcome(name, predicted, measured, p10, p90, alone, uncalibrated, held_out=held_out)


def accuracy(*rounds):
    rounds = tuple(Round.of(rows) for rows in rounds)
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
    rows = [Outcome("a", reason="no kernels"), Outcome("b", reason="no memory")]
    said = write(Round.of(rows))
    assert [said[name] for name in sorted(ROUND - {"schedules"})] == [None] * 6
    assert Round.of(rows).chosen is None
    assert accuracy(rows).verdict()[0].startswith("No verdict: nothing was held out, or no scheduler's schedule")
    with pytest.raises(BackendError, match="nothing was measured"):
        accuracy(rows).plot()


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
    rows = [row("lios", 90.0, 100.0), Outcome("autograph", reason="no shapes")]
    found = json.loads(json.dumps(accuracy(rows).to_dict(), allow_nan=False))
    (each,) = found.pop("rounds")
    assert found == {
        "graph": "net", "backend": "hidden", "device": "Hidden A100", "environment": {"date": "2026-01-01"}, "seed": 0,
    }  # fmt: skip
    assert each.keys() == ROUND
    measured, refused = each["schedules"]
    assert measured.keys() == SCHEDULE
    assert refused.keys() == SCHEDULE | {"reason"}


def test_the_table():
    """Times of a millisecond and more are in ms; what is not defined is a dash; the last round's rows, a line each."""
    first = [row("lios", 900.0, 1000.0)]
    last = [row("lios", 990.0, 1000.0), row("heft", 2000.0, 2000.0), Outcome("ios", reason="too [large]")]
    lines = repr(accuracy(first, last)).splitlines()
    assert lines[0].startswith("net on hidden (Hidden A100), round 2 of 2")
    lios = next(line for line in lines if line.startswith("│ lios"))
    for text in ("0.990", "1.000", "0.990 - 1.010", "1.0 %", "50.0 %", "20.0 %", "yes"):
        assert text in lios
    assert any("ios: not measured: too [large]" in line for line in lines)
    first_line, last_line = ([line for line in lines if f"│ {number}     │" in line] for number in (1, 2))
    assert "10.0 %" in first_line[0]
    assert "0.5 %" in last_line[0]
    assert "1.00" in last_line[0]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (  # 0 to 1.8 % off; nimble is predicted within 2 % of greedy, and the choice is right
            [row("greedy", 100.0, 100.0), row("nimble", 101.0, 102.0), row("lios", 110.0, 112.0)],
            ["Trust its latencies", "Trust it to choose a scheduler: its choice, greedy, takes 0.0 % more",
             "It does not tell greedy from nimble: measure those. It is furthest off on lios, 1.8 %"],
        ),
        (  # lios is predicted to lead and is 25 % slower than greedy; its runs vary by 60 %
            [row("greedy", 100.0, 100.0), row("lios", 70.0, 125.0, spread=0.6)],
            ["Do not trust its latencies", "Do not trust it to choose a scheduler: its choice, lios, takes 25.0 % more",
             "furthest off on lios, 44.0 %, whose runs vary by more: repeat them more often"],
        ),
    ],
)  # fmt: skip
def test_verdicts(rows, said):
    assert all(part in " ".join(accuracy(rows).verdict()) for part in said)


# Pictures


def test_a_mark_for_each_schedule_in_the_colour_of_its_scheduler():
    """All at random share a mark; hollow is what a fit has seen."""
    rows = [row("sequential", 20.0, 22.0), row("greedy", 10.0, 9.0), row("heft", 11.0, 9.0, held_out=False),
            row("random-1", 12.0, 12.0), row("random-2", 13.0, 12.0), Outcome("ios", reason="no")]  # fmt: skip
    ax = accuracy(rows).plot()
    found = {line.get_label(): line for line in ax.get_lines() if not line.get_label().startswith("_")}
    assert list(found) == ["predicted = measured", "sequential", "greedy", "heft", "random"]
    for name, look in looks_of(["sequential", "greedy", "heft", "random"]).items():
        colour = found[name].get_markeredgecolor() if name == "heft" else found[name].get_color()
        assert to_hex(colour).upper() == look.colour
    assert found["heft"].get_color() == "none"
    assert (found["sequential"].get_xdata()[0], found["sequential"].get_ydata()[0]) == (22.0, 20.0)
    assert len([line for line in ax.get_lines() if line.get_label() == "random"]) == 2
    assert (ax.get_xlabel(), ax.get_title(loc="left").split("\n")[0]) == (
        "measured makespan (us)",
        "net on hidden, round 1",
    )
    assert ax.get_xlim() == ax.get_ylim()


def test_measured_rows_stand_below_simulated_ones():
    """The measured run takes 1.1 to 1.6 times as long; the axis goes to its end, and a line stands at either."""
    backend = SimulatedBackend()
    graph = backend.realise(workloads.random_layered(n_ops=10, n_layers=3, rng=0))
    program = prepared(backend, ss.schedule(graph, backend.cluster, "heft"))
    simulated, measured = ss.simulate(program, backend.cluster), backend.replay(program, repeats=3).trace
    ax = simulated.gantt(measured=measured)
    assert measured.makespan > simulated.makespan
    names = [text.get_text() for text in ax.get_yticklabels()]
    assert [name.rpartition(" ")[2] for name in names] == ["simulated", "measured"] * (len(names) // 2)
    ends = [1e3 * line.get_xdata()[0] for line in ax.lines]  # on an axis in ms
    assert ends == pytest.approx([simulated.makespan, measured.makespan])
    paths = [path for bars in ax.collections for path in bars.get_paths()]
    assert 1e3 * max(path.vertices[:, 0].max() for path in paths) == pytest.approx(measured.makespan)
    assert "synth" in [text.get_text() for text in ax.get_legend().get_texts()]
    within = [path.get_extents(ax.transData) for path in paths]
    names = [text.get_window_extent() for text in ax.texts if text.get_text().startswith("op")]
    assert names
    assert all(any(box.x0 <= name.x0 and name.x1 <= box.x1 for box in within) for name in names)
