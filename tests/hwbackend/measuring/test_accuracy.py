"""Calibrate, schedule, predict, replay, compare, recalibrate, on a backend that hides its parameters; what follows from
predicted and measured makespans, worked by hand; and the pictures of it."""

import json
from pathlib import Path

import pytest
from documents import calibration
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_hex
from stand_ins import SimulatedBackend, measured

import simsched as ss
import workloads
from simsched.base.codec import write
from simsched.base.errors import BackendError, FileError, SchedulerError, UnknownNameError
from simsched.experiments.accuracy import Accuracy, digest, validate
from simsched.experiments.rounds import FIGURES, Outcome, Round
from simsched.model import LAUNCH, Schedule
from simsched.model.backend import prepare
from simsched.show.chart import looks_of

SCHEDULERS = ("sequential", "heft", "greedy", "opara")
QUICK = {"rounds": 2, "training": 1, "random_held_out": 2, "repeats": 3}
ONCE = QUICK | {"rounds": 1}
NO_COUNTS = [("rounds", True), ("training", -1), ("random_held_out", 1.5), ("repeats", 0)]


@pytest.fixture
def at_once(monkeypatch):
    """Let operators be taken to last 1.3 times as long, after recalibration 1.35 times; say what each has learned."""
    learned = []

    def calibrate(cluster, profiles, graph):
        learned.append([run.name for profile in profiles for run in profile.runs])
        return measured(graph, cluster, 1.3)

    def recalibrate(calibration, replays):
        learned.append([run.name for run in replays])
        return measured(calibration.graph, calibration.cluster, 1.35)

    monkeypatch.setattr("simsched.experiments.accuracy.calibrate", calibrate)
    monkeypatch.setattr("simsched.experiments.accuracy.recalibrate", recalibrate)
    return learned


@pytest.fixture
def graph():
    return workloads.random_layered(n_ops=5, n_layers=3, n_edges=6, rng=3)


@pytest.fixture(scope="module")
def found():
    """The whole loop once, with the real calibration; what it knows of operators at first was measured on warm data."""
    graph = workloads.random_layered(n_ops=10, n_layers=4, rng=3)
    return validate(graph, SimulatedBackend(), SCHEDULERS, rounds=2, training=0, random_held_out=4, repeats=4, rng=0)


def rows(accuracy):
    return [[write(each) for each in found.schedules] for found in accuracy.rounds]


def test_calibration_knows_better_than_the_datasheet(found):
    """Operators take 1.1 to 1.6 times as long as they are said to: uncalibrated predictions are 10 % off and more."""
    for each in found.rounds:
        assert each.uncalibrated_error > 0.1
        assert each.mean_error < each.uncalibrated_error
        assert each.kendall_tau > 0.5


def test_recalibration_lowers_the_error(found):
    """Round 1 thinks that operators take 1 / 1.25 of their time; the replays are of cold data, and teach it better."""
    first, last = found.rounds
    assert first.mean_error > 0.1
    assert last.mean_error < 0.05


def test_schedules_of_schedulers_are_held_out_in_every_round(found):
    """What is learned after a round are its schedules at random, and each round draws others."""
    for each in found.rounds:
        names = [row.scheduler for row in each.schedules]
        assert names == [*SCHEDULERS, "random-1", "random-2", "random-3", "random-4"]
        assert all(row.held_out for row in each.schedules)
    drawn = [[row.measured_us for row in each.schedules if row.is_random] for each in found.rounds]
    assert drawn[0] != drawn[1]


def test_what_is_said_besides(found):
    assert (found.graph, found.backend, found.device, found.seed) == ("layered-10", "simulated", "Simulated A100", 0)
    assert found.environment["backend"] == "simulated"
    assert found.rounds[0].schedules[0].max_relative_error == 0.0
    trace, run = found.traces["heft"]
    assert trace.makespan == found.rounds[-1].schedules[1].predicted_us
    assert run.median == found.rounds[-1].schedules[1].measured_us


def test_schedulers_plan_with_what_was_learned(graph, at_once):
    """A round predicts with what the one before it taught, and its schedulers are given that, too."""
    given = []

    def watches(graph, cluster, cost):
        given.append(graph.time[0])
        return Schedule.from_columns(graph, range(len(graph)), [device.name for device in cluster.devices])

    found = validate(graph, SimulatedBackend(), [watches], **QUICK)
    assert given == pytest.approx([1.3 * graph.time[0], 1.35 * graph.time[0]])
    first, last = (each.schedules[0] for each in found.rounds)
    assert first.uncalibrated_us == last.uncalibrated_us < first.predicted_us < last.predicted_us
    assert at_once[1] == ["round-1/random-1", "round-1/random-2"]
    assert {name.partition("/")[0] for name in at_once[0]} == {"overhead", "in-situ"}


def test_a_schedule_that_a_fit_has_seen_is_not_held_out(graph, at_once):
    """One that answers as the first training schedule: in the table and in the regret, but its error does not count."""
    backend = SimulatedBackend()

    def copies(graph, cluster, cost):
        program = next(program for program in backend.ran if program.graph.name == graph.name)
        order = list(dict.fromkeys(program.launches.op[program.argument[program.action == LAUNCH]].tolist()))
        return Schedule.from_columns(graph, order, [device.name for device in cluster.devices])

    found = validate(graph, backend, [copies, "heft"], **QUICK)
    for each in found.rounds:
        copied, heft, *_ = each.schedules
        assert (copied.scheduler, copied.held_out, heft.held_out) == ("copies", False, True)
        assert copied.error is not None
        assert copied not in each.held_out
        assert copied.rank_measured is not None


def test_what_cannot_be_made_or_run_has_a_row_with_the_reason(graph, at_once):
    """A scheduler that refuses, and one whose execution the backend refuses."""

    def refuses(graph, cluster, cost):
        raise SchedulerError("refuses: this graph has [too] many operators")

    def before(program):
        if program.execution == "stages" and program.graph.name == graph.name:
            raise BackendError("stages is not for me")

    found = validate(graph, SimulatedBackend(before=before), [refuses, "ios", "heft"], **ONCE)
    made, run, heft, *_ = found.rounds[0].schedules
    assert (made.scheduler, made.reason) == ("refuses", "refuses: this graph has [too] many operators")
    assert (run.scheduler, run.measured_us, run.reason) == ("ios", None, "stages is not for me")
    assert heft.reason is None
    assert "refuses: not measured: refuses: this graph has [too] many operators" in repr(found)
    with pytest.raises(BackendError, match="stages is not for me"):
        validate(graph, SimulatedBackend(before=before), ["ios"], **ONCE | {"random_held_out": 0})


def test_without_schedules_at_random_nothing_is_learned(graph, at_once):
    """Then rounds repeat each other, but for what a backend makes of it: this one is deterministic."""
    found = validate(graph, SimulatedBackend(), ["heft", "greedy"], **(QUICK | {"random_held_out": 0}))
    assert rows(found)[0] == rows(found)[1]


def test_two_schedulers_that_agree_are_measured_once(graph, at_once):
    backend, once = SimulatedBackend(), ONCE | {"random_held_out": 0}
    found = validate(graph, backend, ["heft", "simsched.schedulers.heft:heft"], **once)
    first, second = found.rounds[0].schedules
    assert first.measured_us == second.measured_us
    measured = digest(found.traces["heft"][1].program)
    assert [digest(program) for program in backend.ran].count(measured) == 1


def test_a_killed_run_goes_on_where_it_stopped(graph, at_once, tmp_path):
    """Killed at the second replay of round 2: what is on disk is not measured again, and the result is the same.

    With other repeats microbenchmarks and profile are read, each replay is measured anew; another seed draws others.
    """
    whole = SimulatedBackend()
    expected = validate(graph, whole, SCHEDULERS[:2], folder=tmp_path / "whole", **QUICK)
    left = [len(whole.ran) - 4]

    def before(program):
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt

    folder = tmp_path / "killed"
    with pytest.raises(KeyboardInterrupt):
        validate(graph, SimulatedBackend(before=before), SCHEDULERS[:2], folder=folder, **QUICK)
    kept = {path.name: path.read_bytes() for path in folder.iterdir()}
    after = SimulatedBackend()
    assert rows(validate(graph, after, SCHEDULERS[:2], folder=folder, **QUICK)) == rows(expected)
    assert len(after.ran) == 4
    found = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert kept.items() < found.items()
    assert found.keys() == {path.name for path in (tmp_path / "whole").iterdir()}
    again, other = SimulatedBackend(), SimulatedBackend()
    validate(graph, again, ["heft"], folder=folder, **ONCE | {"repeats": 5})
    assert len(again.ran) == 3  # heft and two at random
    validate(graph, other, ["heft"], folder=folder, rng=1, **ONCE)
    assert len(other.ran) == 6 + 2  # the profile's, and two at random


def test_a_folder_that_cannot_be_written_to_is_found_before_anything_is_measured(graph, at_once, tmp_path, monkeypatch):
    def refuse(dir):
        raise PermissionError(13, "Permission denied", str(dir))

    monkeypatch.setattr("simsched.experiments.accuracy.TemporaryFile", refuse)
    backend = SimulatedBackend()
    with pytest.raises(FileError, match=r"cannot write .*microbenchmarks-.*\.json: Permission denied"):
        validate(graph, backend, ["heft"], folder=tmp_path, **QUICK)
    assert backend.ran == []


@pytest.mark.parametrize(
    ("options", "kind", "says"),
    [
        ({"schedulers": ["heft", "heff"]}, UnknownNameError, "unknown scheduler 'heff'"),
        ({"folder": Path(__file__)}, FileError, "cannot make folder"),
        *(({name: value}, BackendError, f"{name} must be a whole number of at least") for name, value in NO_COUNTS),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_measured(graph, at_once, options, kind, says):
    backend = SimulatedBackend()
    with pytest.raises(kind, match=says):
        validate(graph, backend, **({"schedulers": ["heft"]} | QUICK | options))
    assert backend.ran == []


def test_several_devices(graph, at_once):
    """Two devices and copies between them; the measured trace has the same copies."""
    found = validate(graph, SimulatedBackend(gpus=2), ["round-robin", "hios-lp"], **ONCE)
    assert all(row.measured_us for row in found.rounds[0].schedules)
    trace, run = found.traces["round-robin"]
    assert len(run.program.copies.op) == len(trace.program.copies.op) > 0


# What follows from makespans


def row(name, predicted, measured, held_out=True, spread=0.02):
    p10, p90 = measured * (1 - spread / 2), measured * (1 + spread / 2)
    alone, uncalibrated = 0.5 * measured, 0.8 * measured
    return Outcome(name, predicted, measured, p10, p90, alone, uncalibrated, held_out=held_out)


def accuracy(*rounds):
    rounds = tuple(Round.of(rows) for rows in rounds)
    return Accuracy("net", "hidden", "Hidden A100", {"date": "2026-01-01"}, 0, rounds, {}, calibration(), {})


@pytest.mark.parametrize(
    ("times", "figures"),
    [
        # |90-100|/100 = 0.1, |120-100|/100 = 0.2, |206-200|/200 = 0.03: their mean is 0.11, and their 90th percentile
        # 0.8 of the way from 0.1 to 0.2; half as long as measured is an error of 0.5, 0.8 of it one of 0.2
        (
            {"a": (90, 100), "b": (120, 100), "c": (206, 200)},
            {"mean_error": 0.11, "p90_error": 0.18, "no_contention_error": 0.5, "uncalibrated_error": 0.2},
        ),
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
)
def test_figures_by_hand(times, figures):
    """Of times predicted and measured, by scheduler."""
    found = Round.of([row(name, *pair) for name, pair in times.items()])
    said = write(found) | {"chosen": found.chosen.scheduler}
    assert {name: said[name] for name in figures} == pytest.approx(figures)


def test_ranks_are_over_the_round_and_equal_times_share_one():
    """Predicted 3 1 1 5 is ranked 3 1 1 4, measured 2 4 1 3 as it stands; what was not measured has none."""
    rows = [row("a", 3.0, 2.0), row("b", 1.0, 4.0), Outcome("refuses", reason="no"), row("random-1", 1.0, 1.0)]
    found = Round.of([*rows, row("c", 5.0, 3.0)]).schedules
    assert [each.rank_predicted for each in found] == [3, 1, None, 1, 4]
    assert [each.rank_measured for each in found] == [2, 4, None, 1, 3]


def test_nothing_is_defined_where_nothing_was_measured():
    rows = [Outcome("a", reason="no kernels"), Outcome("b", reason="no memory")]
    said = write(Round.of(rows))
    assert [said[name] for name in FIGURES] == [None] * 6
    assert Round.of(rows).chosen is None
    assert accuracy(rows).verdict()[0].startswith("No verdict: nothing was held out, or no scheduler's schedule")
    with pytest.raises(BackendError, match="nothing was measured"):
        accuracy(rows).plot()


us = st.floats(0.1, 1e6)


@given(st.lists(st.tuples(us, us, st.booleans(), st.sampled_from(["lios", "random-1"])), max_size=8))
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


def test_the_table():
    """Times of a millisecond and more are in ms; what is not defined is a dash; the last round's rows, a line each."""
    first = [row("lios", 900.0, 1000.0)]
    last = [row("lios", 990.0, 1000.0), row("heft", 2000.0, 2000.0), Outcome("ios", reason="too [large]")]
    lines = repr(accuracy(first, last)).splitlines()
    assert lines[0].startswith("net on hidden (Hidden A100), round 2 of 2")
    lios = next(line for line in lines if line.startswith("lios "))
    for text in ("0.990", "1.000", "0.990 - 1.010", "1.0 %", "50.0 %", "20.0 %", "yes"):
        assert text in lios
    assert any("ios: not measured: too [large]" in line for line in lines)
    first_line, last_line = ([line for line in lines if line.startswith(f"{number} ")] for number in (1, 2))
    assert "10.0 %" in first_line[0]
    assert "0.5 %" in last_line[0]
    assert "1.00" in last_line[0]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (  # 0 to 1.8 % off; nimble is predicted within 2 % of greedy, and the choice is right
            [row("greedy", 100.0, 100.0), row("nimble", 101.0, 102.0), row("lios", 110.0, 112.0)],
            [
                "Trust its latencies",
                "Trust it to choose a scheduler: its choice, greedy, takes 0.0 % more",
                "It does not tell greedy from nimble: measure those. It is furthest off on lios, 1.8 %",
            ],
        ),
        (  # lios is predicted to lead and is 25 % slower than greedy; its runs vary by 60 %
            [row("greedy", 100.0, 100.0), row("lios", 70.0, 125.0, spread=0.6)],
            [
                "Do not trust its latencies",
                "Do not trust it to choose a scheduler: its choice, lios, takes 25.0 % more",
                "furthest off on lios, 44.0 %, whose runs vary by more: repeat them more often",
            ],
        ),
    ],
)
def test_verdicts(rows, said):
    assert all(part in " ".join(accuracy(rows).verdict()) for part in said)


# Pictures


def test_a_mark_for_each_schedule_in_the_colour_of_its_scheduler():
    """All at random share a mark; hollow is what a fit has seen."""
    rows = [
        row("sequential", 20.0, 22.0),
        row("greedy", 10.0, 9.0),
        row("heft", 11.0, 9.0, held_out=False),
        row("random-1", 12.0, 12.0),
        row("random-2", 13.0, 12.0),
        Outcome("ios", reason="no"),
    ]
    ax = accuracy(rows).plot()
    found = {marks.get_label(): marks for marks in ax.collections if not marks.get_label().startswith("_")}
    assert list(found) == ["within 10 %", "sequential", "greedy", "heft", "random"]
    for name, look in looks_of(["sequential", "greedy", "heft", "random"]).items():
        colours = found[name].get_edgecolors() if name == "heft" else found[name].get_facecolors()
        assert to_hex(colours[0]).upper() == look.colour
    assert found["heft"].get_facecolors()[0, 3] == 0.0
    assert found["sequential"].get_offsets().tolist() == [[22.0, 20.0]]
    assert len(found["random"].get_offsets()) == 2
    assert ax.get_xlabel() == "measured makespan (us)"
    assert ax.figure.get_suptitle().startswith("net on hidden, round 1\n")
    assert ax.get_xlim() == ax.get_ylim()


def test_measured_rows_stand_below_simulated_ones():
    """The measured run takes 1.1 to 1.6 times as long; the axis goes to its end, and a line stands at either."""
    backend = SimulatedBackend()
    graph = backend.realise(workloads.random_layered(n_ops=10, n_layers=3, rng=0))
    program = prepare(backend, ss.schedule(graph, backend.cluster, "heft"))
    simulated, measured = ss.simulate(program, backend.cluster), backend.replay(program, repeats=3).trace
    ax = simulated.gantt(measured=measured)
    assert measured.makespan > simulated.makespan
    names = [text.get_text() for text in ax.get_yticklabels()]
    assert [name.rpartition(" ")[2] for name in names] == ["simulated", "measured"] * (len(names) // 2)
    ends = [1e3 * line.get_xdata()[0] for line in ax.lines]  # on an axis in ms
    assert ends == pytest.approx([simulated.makespan, measured.makespan])
    paths = [path for bars in ax.collections for path in bars.get_paths()]
    assert 1e3 * max(path.vertices[:, 0].max() for path in paths) == pytest.approx(measured.makespan)
    assert "synth" in [text.get_text() for text in ax.figure.legends[0].get_texts()]
    within = [path.get_extents(ax.transData) for path in paths]
    names = [text.get_window_extent() for text in ax.texts if text.get_text().startswith("op")]
    assert names
    assert all(any(box.x0 <= name.x0 and name.x1 <= box.x1 for box in within) for name in names)
