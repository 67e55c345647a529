"""Answers from files; what a backend promises besides is in `test_backend_contract`."""

import logging
from dataclasses import replace

import pytest

import hwbackend
import workloads
from hwbackend.recorded_backend import RecordedBackend
from hwbackend.synthetic_backend import SyntheticBackend
from simsched import Edge, Operator, OpGraph, Placement, Schedule
from simsched.base.errors import BackendError, FileError
from simsched.model.profile import Profile, Replay


def chain(name="chain", time=50.0):
    operators = [Operator(op, time=time, utilization=0.5) for op in ("first", "second")]
    return OpGraph(operators, [Edge("first", "second", nbytes=1024.0)], name)


def plan(graph, streams=(0, 0), execution="events", name="plan"):
    placements = [Placement(op, "gpu0", stream) for op, stream in zip(graph.names, streams, strict=True)]
    return Schedule(graph, placements, execution=execution, scheduler=name)


def device(**options):
    return SyntheticBackend(gpu="k80", **options)


def one_replay(backend, schedule, repeats=3):
    return backend.replay(schedule, repeats=repeats, warmup=0)


@pytest.fixture
def folder(tmp_path):
    """A folder with a profile of the chain and a replay of it on two streams."""
    backend = device()
    backend.profile(chain(), in_situ=1).save(tmp_path / "profile.json")
    one_replay(backend, plan(chain(), (0, 1), name="two")).save(tmp_path / "two.json")
    return tmp_path


def test_it_returns_what_was_measured(folder):
    backend = hwbackend.get("recorded", folder=str(folder))
    kept = Replay.load(folder / "two.json")
    found = backend.replay(plan(chain(), (0, 1), name="another name"), repeats=20)
    assert found.latency == kept.latency  # no more than there are
    assert found.environment == kept.environment
    assert backend.replay(plan(chain(), (0, 1)), repeats=2).latency == kept.latency[:2]
    assert backend.profile(chain()).operators == Profile.load(folder / "profile.json").operators
    assert backend.cluster == device().cluster


def test_runs_of_a_profile_can_be_replayed(folder):
    backend = RecordedBackend(folder=folder)
    run = next(run for run in Profile.load(folder / "profile.json").runs if run.name == "in-situ/sequential-0")
    assert backend.replay(run.program).median > 0


def test_what_was_not_run_is_refused_with_what_was(folder):
    backend = RecordedBackend(folder=folder)
    with pytest.raises(BackendError) as error:
        backend.replay(plan(chain(), (0, 1), "graph", "nimble"))
    text = str(error.value)
    assert text.startswith("no run of 'nimble' of graph 'chain' with the same instructions is in ")
    assert "'in-situ/sequential-" in text
    assert "'two'" in text
    with pytest.raises(BackendError, match=r"no run of graph 'other' is in .*; there are runs of 'chain'$"):
        backend.replay(plan(chain("other", time=70.0)))


def test_what_was_not_profiled_is_refused_with_what_was(folder):
    """A graph of the same names whose operators take 80 us, not 50, is another one."""
    backend = RecordedBackend(folder=folder)
    with pytest.raises(BackendError, match=r"'squeezenet' was not profiled in .*; there are profiles of 'chain'$"):
        backend.profile(workloads.load("squeezenet"))
    with pytest.raises(BackendError, match=r"there are no microbenchmarks in .*; there are profiles of 'chain'$"):
        backend.microbenchmarks()
    with pytest.raises(BackendError, match="graph 'chain' was not profiled"):
        backend.profile(chain(time=80.0))
    with pytest.raises(BackendError, match="no run of 'plan' of graph 'chain'"):
        backend.replay(plan(chain(time=80.0), (0, 1)))


def test_operators_whose_kernels_the_device_chose_are_found(tmp_path):
    """The graph that is asked about has kernels of its own; those of the recorded one are what ran."""
    backend = device()
    graph = workloads.load("squeezenet")
    launched = OpGraph(
        [replace(op, kernels=tuple(replace(k, blocks=k.blocks + 1) for k in op.kernels)) for op in graph.operators],
        graph.edges,
        graph.name,
    )
    order = [graph.index[name] for name in graph.order]
    one_replay(backend, Schedule.from_columns(launched, order, ("gpu0",)), 2).save(tmp_path / "run.json")
    recorded = RecordedBackend(tmp_path / "run.json")
    assert recorded.realise(graph) == launched
    assert len(recorded.replay(Schedule.from_columns(graph, order, ("gpu0",))).latency) == 2


def test_microbenchmarks_are_the_profile_without_a_graph(tmp_path):
    backend = device()
    run = replace(one_replay(backend, plan(chain("overhead/x"))), name="overhead/x")
    profile = replace(backend.profile(chain(), in_situ=0), graph=None, runs=(run,))
    profile.save(tmp_path / "micro.json")
    assert RecordedBackend([tmp_path / "micro.json"]).microbenchmarks().runs[0].latency == run.latency


def test_of_several_runs_the_latest_counts(tmp_path):
    backend, schedule = device(), plan(chain())
    runs = [one_replay(backend, schedule) for _ in range(3)]
    dates = ("2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z", "2026-01-01T00:00:00Z")
    for i, (run, date) in enumerate(zip(runs, dates, strict=True)):
        replace(run, environment={**run.environment, "date": date}).save(tmp_path / f"{i}.json")
    assert RecordedBackend(folder=tmp_path).replay(schedule).latency == runs[1].latency


def test_measurements_of_two_devices_are_refused(tmp_path):
    for gpu in ("k80", "v100"):
        one_replay(SyntheticBackend(gpu=gpu), plan(chain())).save(tmp_path / f"{gpu}.json")
    with pytest.raises(
        BackendError, match=r"v100.json was measured on 1 x surrogate v100, .*k80.json on 1 x surrogate k80: "
    ):
        RecordedBackend(folder=tmp_path)
    (tmp_path / "k80.json").unlink()
    one_replay(SyntheticBackend(gpu="v100", gpus=2), plan(chain())).save(tmp_path / "two.json")
    with pytest.raises(BackendError, match=r"v100.json was measured on 1 x surrogate v100, .* on 2 x surrogate v100: "):
        RecordedBackend(folder=tmp_path)


def test_other_files_are_left_alone(folder, caplog):
    (folder / "below").mkdir()
    (folder / "two.json").rename(folder / "below" / "two.json")
    plan(chain()).save(folder / "schedule.json")
    (folder / "list.json").write_text("[1, 2]")
    (folder / "notes.txt").write_text("{")
    with caplog.at_level(logging.INFO, "hwbackend.recorded_backend"):
        backend = RecordedBackend(folder=folder)
    assert backend.replay(plan(chain(), (0, 1))).name == "two"
    assert [record.args[0].name for record in caplog.records] == ["list.json", "schedule.json"]


def test_files_that_hold_no_measurement_are_refused(tmp_path):
    with pytest.raises(BackendError, match="needs files of measurements; give folder= or paths="):
        hwbackend.get("recorded")
    with pytest.raises(BackendError, match=r"there is no folder .*missing"):
        RecordedBackend(folder=tmp_path / "missing")
    with pytest.raises(BackendError, match=r"there is no profile with runs and no replay in "):
        RecordedBackend(folder=tmp_path)
    with pytest.raises(FileError, match=r"cannot read .*run.json"):
        RecordedBackend(tmp_path / "run.json")
    plan(chain()).save(tmp_path / "schedule.json")
    with pytest.raises(BackendError, match=r"schedule.json is no profile and no replay"):
        RecordedBackend(tmp_path / "schedule.json")
