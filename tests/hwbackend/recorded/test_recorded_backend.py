"""Answers from files; what a backend promises besides is in `test_backend_contract`."""

import logging
from dataclasses import replace
from functools import partial

import pytest
from shortened import in_order

import hwbackend
import workloads
from hwbackend.recorded.backend import RecordedBackend
from hwbackend.synthetic.backend import SyntheticBackend
from simsched import Cluster, Edge, Operator, OpGraph
from simsched.base.errors import BackendError, FileError
from simsched.model.launches import with_kernels
from simsched.model.profile import Profile, Replay

DEVICE = partial(SyntheticBackend, gpu="k80")


def chain(name="chain", time=50.0):
    operators = [Operator(op, time=time, utilization=0.5) for op in ("first", "second")]
    return OpGraph(operators, [Edge("first", "second", nbytes=1024.0)], name)


ONE, TWO = (in_order(chain(), stream=[0, n], scheduler="plan") for n in (0, 1))


def run_of(schedule, backend=None, **changed):
    return replace((backend or DEVICE()).replay(schedule, repeats=3, warmup=0), **changed)


@pytest.fixture
def folder(tmp_path):
    """A folder with a profile of the chain and a replay of it on two streams."""
    DEVICE().profile(chain(), in_situ=1).save(tmp_path / "profile.json")
    run_of(TWO, name="two").save(tmp_path / "two.json")
    return tmp_path


def test_it_returns_what_was_measured(folder):
    backend = hwbackend.get("recorded", folder=str(folder))
    kept, profile = Replay.load(folder / "two.json"), Profile.load(folder / "profile.json")
    found = backend.replay(in_order(chain(), stream=[0, 1], scheduler="another name"), repeats=20)
    assert (found.latency, found.environment) == (kept.latency, kept.environment)  # no more than there are
    assert backend.replay(TWO, repeats=2).latency == kept.latency[:2]
    assert backend.profile(chain()).operators == profile.operators
    assert backend.cluster == DEVICE().cluster
    assert backend.replay(profile.runs[0].program).latency in [run.latency for run in profile.runs]


def test_what_was_not_measured_is_refused_with_what_was(folder):
    """A graph of the same names whose operators take 80 us, not 50, is another one."""
    backend, other = RecordedBackend(folder=folder), chain(time=80.0)
    there = r".*; there are profiles of 'chain'$"
    for ask, says in (
        (
            lambda: backend.replay(in_order(chain(), stream=[0, 1], execution="graph", scheduler="nimble")),
            "^no run of 'nimble' of graph 'chain' with the same instructions is in .*'in-situ/sequential-.*'two'",
        ),
        (
            lambda: backend.replay(in_order(chain("other", 70.0))),
            "no run of graph 'other' is in .*; there are runs of 'chain'$",
        ),
        (lambda: backend.replay(in_order(other, stream=[0, 1], scheduler="plan")), "no run of 'plan' of graph 'chain'"),
        (lambda: backend.profile(chain("other", 70.0)), "'other' was not profiled in " + there),
        (lambda: backend.profile(other), "graph 'chain' was not profiled"),
        (backend.microbenchmarks, "there are no microbenchmarks in " + there),
    ):
        with pytest.raises(BackendError, match=says):
            ask()


def test_operators_whose_kernels_the_device_chose_are_found(tmp_path):
    """The graph that is asked about has kernels of its own; those of the recorded one are what ran."""
    graph = workloads.load("squeezenet")
    chosen = with_kernels(graph, Cluster.preset("a40").devices[0])
    operators = [
        replace(op, kernels=tuple(replace(k, blocks=k.blocks + 1) for k in op.kernels)) for op in chosen.operators
    ]
    launched = OpGraph(operators, graph.edges, graph.name)
    run_of(in_order(launched)).save(tmp_path / "run.json")
    recorded = RecordedBackend(tmp_path / "run.json")
    assert recorded.realise(graph) == launched
    assert len(recorded.replay(in_order(graph)).latency) == 3


def test_microbenchmarks_are_the_profile_without_a_graph(tmp_path):
    run = run_of(in_order(chain("overhead/x")), name="overhead/x")
    replace(DEVICE().profile(chain(), in_situ=0), graph=None, runs=(run,)).save(tmp_path / "micro.json")
    assert RecordedBackend([tmp_path / "micro.json"]).microbenchmarks().runs[0].latency == run.latency


def test_of_several_runs_the_latest_counts(tmp_path):
    backend, runs = DEVICE(), []
    for month in (2, 3, 1):
        runs.append(run_of(ONE, backend, environment={"date": f"2026-0{month}-01T00:00:00Z", "device": "x"}))
        runs[-1].save(tmp_path / f"{len(runs)}.json")
    assert RecordedBackend(folder=tmp_path).replay(ONE).latency == runs[1].latency


def test_measurements_of_two_devices_are_refused(tmp_path):
    for options, other in (({"gpu": "v100"}, "1 x surrogate v100"), ({"gpus": 2}, "2 x surrogate k80")):
        run_of(ONE).save(tmp_path / "one.json")
        run_of(ONE, DEVICE(**options)).save(tmp_path / "other.json")
        says = f"other.json was measured on {other}, .*one.json on 1 x surrogate k80: "
        with pytest.raises(BackendError, match=says):
            RecordedBackend(folder=tmp_path)


def test_other_files_are_left_alone(folder, caplog):
    (folder / "below").mkdir()
    (folder / "two.json").rename(folder / "below" / "two.json")
    ONE.save(folder / "schedule.json")
    (folder / "list.json").write_text("[1, 2]")
    (folder / "notes.txt").write_text("{")
    with caplog.at_level(logging.INFO, "hwbackend.recorded.backend"):
        backend = RecordedBackend(folder=folder)
    assert backend.replay(TWO).name == "two"
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
    ONE.save(tmp_path / "schedule.json")
    with pytest.raises(BackendError, match=r"schedule.json is no profile and no replay"):
        RecordedBackend(tmp_path / "schedule.json")
