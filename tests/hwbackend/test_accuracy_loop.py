"""Calibrate, schedule, predict, replay, compare, recalibrate: the whole loop on a backend that hides its parameters."""

from pathlib import Path

import pytest
from stand_ins import SimulatedBackend, measured

import workloads
from simsched.base.codec import write
from simsched.base.errors import BackendError, FileError, SchedulerError, UnknownNameError
from simsched.experiments.accuracy import validate
from simsched.experiments.accuracy.measurements import digest
from simsched.model import LAUNCH, Schedule

SCHEDULERS = ("sequential", "heft", "greedy", "opara")
QUICK = {"rounds": 2, "training": 1, "random_held_out": 2, "repeats": 3}
ONCE = QUICK | {"rounds": 1}


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

    monkeypatch.setattr("simsched.experiments.accuracy.rounds.calibrate", calibrate)
    monkeypatch.setattr("simsched.experiments.accuracy.rounds.recalibrate", recalibrate)
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
        order = list(dict.fromkeys(program.launch_op[program.argument[program.action == LAUNCH]].tolist()))
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

    monkeypatch.setattr("simsched.experiments.accuracy.measurements.TemporaryFile", refuse)
    backend = SimulatedBackend()
    with pytest.raises(FileError, match=r"cannot write .*microbenchmarks-.*\.json: Permission denied"):
        validate(graph, backend, ["heft"], folder=tmp_path, **QUICK)
    assert backend.ran == []


@pytest.mark.parametrize(
    ("options", "kind", "says"),
    [
        ({"schedulers": ["heft", "heff"]}, UnknownNameError, "unknown scheduler 'heff'"),
        ({"folder": Path(__file__)}, FileError, "cannot make folder"),
        *(
            ({option: value}, BackendError, f"{option} must be a whole number of at least")
            for option, value in {"rounds": True, "training": -1, "random_held_out": 1.5, "repeats": 0}.items()
        ),
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
