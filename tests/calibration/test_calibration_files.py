"""Calibrations in files: what is written comes back, and what is not whole is refused."""

import json
from copy import deepcopy
from dataclasses import replace

import pytest
from hidden_device import PRIOR, HiddenDevice

import simsched as ss
from simsched.base.errors import FileError, FormatError, SimschedError
from simsched.calibration import Calibration, calibrate, recalibrate
from simsched.calibration.evidence import runs_of
from simsched.calibration.training import random_schedule
from simsched.model.graph import OpGraph
from simsched.model.profile import Profile, Replay
from workloads.registry import load

DRAWN = load("random:layered", n_ops=8, n_layers=3, n_edges=12)
GRAPH = OpGraph([replace(op, time=op.time / 20) for op in DRAWN.operators], DRAWN.edges)


@pytest.fixture(scope="module")
def profile():
    return HiddenDevice(ss.Cluster.preset("a40", n_gpus=2), ss.Cluster.preset("a40", n_gpus=2)).profile(
        GRAPH, in_situ=4
    )


@pytest.fixture(scope="module")
def calibrated(profile):
    return calibrate(None, profile)


def test_a_calibration_comes_back_from_a_file(calibrated, tmp_path):
    path = tmp_path / "a40.json"
    calibrated.save(path)
    again = Calibration.load(path)
    assert again.to_dict() == calibrated.to_dict()
    assert again.cluster == calibrated.cluster
    assert dict(again.times) == dict(calibrated.times)
    assert again.error == calibrated.error
    assert again.parameters == calibrated.parameters


def test_one_from_a_file_can_be_refined(calibrated, profile):
    """Files hold times to a picosecond, and so does what is fitted to: nothing changes on the way."""
    again = Calibration.from_dict(json.loads(json.dumps(calibrated.to_dict())))
    run = profile.runs[0]
    read = Replay.from_dict(json.loads(json.dumps(run.to_dict())))
    expected = recalibrate(calibrated, [run]).to_dict()
    assert recalibrate(again, [read]).to_dict() == expected


def test_a_profile_from_a_file_is_fitted_alike(calibrated, profile):
    read = Profile.from_dict(json.loads(json.dumps(profile.to_dict())))
    assert calibrate(None, read).to_dict() == calibrated.to_dict()


BROKEN = {
    "time of a stranger": (lambda d: d["times"].update(stranger=5.0), "'stranger', which is not in the graph"),
    "no time at all": (lambda d: d["runs"][0].update(latency=[0.0]), "is said to have taken no time"),
    "unknown parameter": (lambda d: d["parameters"][0].update(name="speed"), "name must be one of launch"),
    "half a run": (lambda d: d["runs"][0]["launches"].pop(), "start and end of"),
    "broken program": (lambda d: d["runs"][0]["argument"].pop(), "one row per instruction"),
    "held out": (lambda d: d["held_out"].pop(), "held_out must say of each of the"),
    "runs without a graph": (lambda d: d.update(graph=None), "field 'graph' is missing"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_broken_is_refused_in_one_line(calibrated, case):
    breaks, words = BROKEN[case]
    data = json.loads(json.dumps(calibrated.to_dict()))
    breaks(data)
    with pytest.raises(SimschedError) as caught:
        Calibration.from_dict(deepcopy(data), "h200.json")
    assert words in str(caught.value)
    assert str(caught.value).startswith("h200.json")
    assert "\n" not in str(caught.value)


def test_a_truncated_file_is_refused(calibrated, tmp_path):
    path = tmp_path / "half.json"
    calibrated.save(path)
    path.write_text(path.read_text()[:1000])
    with pytest.raises(FormatError, match=r"half\.json: not valid JSON"):
        Calibration.load(path)
    with pytest.raises(FileError, match="nowhere"):
        Calibration.load(tmp_path / "nowhere.json")


def test_many_runs_make_a_small_file():
    """40 runs of 120 operators on six streams stay below 2 MB."""
    graph = load("random:layered", n_ops=120, n_layers=12, n_edges=240)
    graph = OpGraph([replace(op, time=op.time / 20) for op in graph.operators], graph.edges)
    device = HiddenDevice(noise=0.0)
    plan = random_schedule(device.realise(graph), PRIOR, rng=0, streams=6, execution="events")
    runs = runs_of([device.replay(plan, repeats=6)] * 40)
    found = Calibration(PRIOR, PRIOR, device.realise(graph), {}, {}, (), (), runs=runs, held_out=(False,) * 40)
    assert len(json.dumps(found.to_dict())) < 2_000_000
