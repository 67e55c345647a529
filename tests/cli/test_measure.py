"""backends, profile, calibrate, replay, validate, and --cluster: what they print and write."""

import json
from contextlib import chdir
from pathlib import Path

import pytest

import simsched as ss
from hwbackend import BACKENDS, available
from simsched.calibration import Calibration
from simsched.cli.run import run
from simsched.experiments.accuracy import Accuracy
from simsched.model.profile import Profile, Replay

SMALL = "random:layered,n_ops=5,n_layers=3"
PICTURES = {"png": b"\x89PNG", "pdf": b"%PDF"}
BACKEND = "--backend stand_ins:make"  # an A100 of other times


@pytest.fixture(scope="module")
def files(files):
    """What the commands write, made once: profile, calibration, schedules."""
    with chdir(files):
        for line in (
            f"profile {SMALL} {BACKEND} --no-microbenchmarks --in-situ 2 --seed 3 -o p.json",
            "calibrate p.json -o c.json",
            f"schedule {SMALL} --cluster c.json --scheduler heft -o s.json",
            f"schedule {SMALL} --scheduler heft -o plain.json",
        ):
            assert run(line.split()) == 0, line
    return files


def test_list_backends_says_of_each_whether_it_can_be_used(said):
    out = said("list backends")
    for entry in available():
        (line,) = (line for line in out.splitlines() if line.startswith(f"{entry.name} "))
        assert line.split()[1] == ("yes" if entry.usable else "no")
    assert [entry.name for entry in available()] == list(BACKENDS)
    assert "surrogate" in out


def test_a_profile_has_the_runs_that_were_asked_for(said):
    """Five sequential runs, and two more with --in-situ 2; it is printed if no file is named."""
    found = Profile.load("p.json")
    assert (len(found.runs), len(found.graph), found.cluster.devices[0].model) == (7, 5, "a100")
    assert found.runs[-1].name == "in-situ/streams-1"
    bare = Profile.from_dict(json.loads(said(f"profile {SMALL} {BACKEND} --no-microbenchmarks --in-situ 0")))
    assert {run.name.partition("-")[0] for run in bare.runs} == {"solo/loop"}
    assert len(bare) == len(bare.runs) == 5


def test_microbenchmarks_and_several_profiles(said):
    """The graph that is meant is named; the runs of both profiles are fitted."""
    said(f"profile {SMALL} {BACKEND} --in-situ 0 -o more.json --backend-option gpus=1")
    runs = {run.name for name in ("p", "more") for run in Profile.load(f"{name}.json").runs}
    assert any(name.startswith("overhead/") for name in runs)
    found = Calibration.from_dict(json.loads(said(f"calibrate p.json more.json --graph {SMALL} --gpu a100 --json")))
    assert found.graph.name == "layered-5"
    assert {row.name for row in found.residuals} == runs


def test_compare_on_a_calibration_or_a_cluster(said):
    """As the library: times of the one, devices of either, of which there can be more; the plain preset differs."""
    ss.Cluster.preset("h200", 2).save("two.json")
    measured = Calibration.load("c.json")

    def makespan(options, scheduler="lios"):
        found = json.loads(said(f"compare {SMALL} {options} --schedulers {scheduler} --json"))
        return found["rows"][0]["makespan_us"], found["cluster"]["devices"]

    expected = ss.compare(measured.graph, measured, ["lios"]).rows[0].makespan_us
    assert makespan("--cluster c.json") == makespan("--cluster c.json --gpus 1") == (pytest.approx(expected), ["a100"])
    assert makespan("--gpu a100")[0] != pytest.approx(expected, rel=0.01)
    assert makespan("--cluster c.json --gpus 2", "round-robin")[1] == ["a100", "a100"]
    assert makespan("--cluster two.json") == makespan("--gpu h200 --gpus 2")


@pytest.mark.parametrize("suffix", PICTURES)
def test_replay_beside_the_prediction(said, suffix):
    out = said(f"replay s.json {BACKEND} --repeats 5 --cluster c.json -o run.json --gantt run.{suffix}")
    assert len(Replay.load("run.json").latency) == 5
    names = ["graph", "backend", "device", "measured", "predicted", "error", "run", "trace"]
    assert {*names} <= {line.split()[0] for line in out.splitlines()}
    assert Path(f"run.{suffix}").read_bytes().startswith(PICTURES[suffix])


def test_replay_alone(said):
    out = json.loads(said(f"replay plain.json {BACKEND} --repeats 4 --warmup 0 --json"))
    assert "predicted_us" not in out
    assert out["repeats"] == 4
    assert out["measured_p10_us"] <= out["measured_us"] <= out["measured_p90_us"]


def test_validate_goes_on_where_it_was(said):
    """One scheduler refuses the graph; what was measured is neither measured nor written again."""
    Path("plan.py").write_text(
        "from simsched.schedulers import SCHEDULERS\nmine = lambda *given: SCHEDULERS['heft'](*given)"
    )
    line = (
        f"validate {SMALL} {BACKEND} --schedulers heft,autograph,plan:mine --rounds 1 --training 0 "
        "--held-out 2 --repeats 2 --scatter s.png --gantt g.pdf --resume kept -o fitted.json"
    )
    out = said(line)
    assert "autograph: not measured: autograph: operator 'op0' has no shapes" in out
    assert "scatter plot written to s.png" in out
    assert Calibration.load("fitted.json").graph.name == "layered-5"
    assert Path("s.png").read_bytes().startswith(PICTURES["png"])
    assert Path("g.pdf").read_bytes().startswith(PICTURES["pdf"])
    kept = {path: path.read_bytes() for path in Path("kept").iterdir()}
    found = json.loads(said(f"{line} --json"))
    assert {path: path.read_bytes() for path in Path("kept").iterdir()} == kept
    assert found.pop("verdict")
    again = Accuracy.load("kept")
    (each,) = again.rounds
    said = json.loads(json.dumps(again.to_dict()))
    assert found == {name: said[name] for name in ("graph", "backend", "device", "environment", "seed", "rounds")}
    trace, run = again.traces["heft"]
    assert (trace.makespan, run.summary.median) == (each.schedules[0].predicted_us, each.schedules[0].measured_us)
    names = [row.scheduler for row in each.schedules]
    assert names == ["heft", "autograph", "plan:mine", "random-1", "random-2"]


def test_the_interrupted_leave_nothing_half_written(refused, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("hwbackend.synthetic.backend.SyntheticBackend.profile", interrupted)
    said = refused(f"profile {SMALL} --backend synthetic -o q.json", ends=130)
    assert said == "interrupted; no file was left half-written"
