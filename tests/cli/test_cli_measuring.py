"""backends, profile, calibrate, replay, validate, and --cluster: what they print and write, and what they refuse."""

import json
import shutil
import sys

import pytest

import simsched as ss
from hwbackend import BACKENDS, available
from simsched.calibration import Calibration
from simsched.cli.run import run
from simsched.model.profile import Profile, Replay

SMALL = "random:layered,n_ops=8,n_layers=3"
PICTURES = {"png": b"\x89PNG", "pdf": b"%PDF"}
ROUND = {"mean_error", "p90_error", "no_contention_error", "uncalibrated_error", "kendall_tau", "regret", "schedules"}
BACKEND = '''
from dataclasses import replace
from hwbackend.microbenchmarks import schedules
from hwbackend.synthetic_backend import SyntheticBackend
from simsched.model.profile import MeasuredOperator, Profile

class Few(SyntheticBackend):
    """The surrogate with three microbenchmarks."""

    def microbenchmarks(self):
        plans = [plan for plan in schedules(self.cluster) if plan.scheduler.startswith("overhead/")][:3]
        runs = tuple(replace(self.replay(plan, repeats=3), name=plan.scheduler) for plan in plans)
        return Profile((MeasuredOperator("launch", (1.0,)),), runs=runs, cluster=self.cluster)

def not_one(): return object()
'''


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with what the commands write, made once: profile, calibration, schedule, run."""
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "path", list(sys.path))
        for line in (
            f"profile {SMALL} --backend synthetic --no-microbenchmarks --in-situ 2 -o p.json",
            "calibrate p.json -o c.json",
            f"schedule {SMALL} --cluster c.json --scheduler heft -o s.json",
            f"schedule {SMALL} --gpus 2 --scheduler round-robin -o s2.json",
            f"schedule {SMALL} --scheduler heft -o plain.json",
        ):
            assert run(line.split()) == 0, line
    return folder


@pytest.fixture(autouse=True)
def folder(_folder, made, tmp_path):
    """A copy of it, which the commands run in."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    (tmp_path / "mine.py").write_text(BACKEND)
    (tmp_path / "torn.json").write_text((tmp_path / "c.json").read_text()[:90])
    (tmp_path / "graph.json").write_text(json.dumps(ss.OpGraph([ss.Operator("a", time=10.0)]).to_dict()))
    yield tmp_path
    sys.modules.pop("mine", None)


def test_list_backends_says_of_each_whether_it_can_be_used(said):
    out = said("list backends")
    for entry in available():
        (line,) = (line for line in out.splitlines() if line.startswith(f"{entry.name} "))
        assert line.split()[1] == ("yes" if entry.usable else "no")
    assert [entry.name for entry in available()] == list(BACKENDS)
    assert "surrogate" in out


def test_profile_writes_what_was_measured(said):
    """Five sequential runs, and one more with --in-situ 1."""
    out = said(f"profile {SMALL} --backend synthetic --no-microbenchmarks --in-situ 1 --seed 3 -o q.json")
    assert out == "Profile(8 operators from synthetic), 6 runs of surrogate a40, written to q.json\n"
    found = Profile.load("q.json")
    assert [run.name for run in found.runs][-1] == "in-situ/streams-0"
    assert len(found.graph) == 8
    assert found.cluster.devices[0].model == "a40"


def test_profile_without_a_file_is_printed(said):
    found = Profile.from_dict(json.loads(said(f"profile {SMALL} --backend synthetic --no-microbenchmarks --in-situ 0")))
    assert len(found) == len(found.runs) == 8
    assert {name.name.partition("-")[0] for name in found.runs} == {"solo/loop"}


def test_profile_has_microbenchmarks_too(said):
    out = said(f"profile {SMALL} --backend mine:Few --in-situ 0 -o q.json --backend-option gpu=v100")
    assert "11 runs of surrogate v100" in out
    assert sum(run.name.startswith("overhead/") for run in Profile.load("q.json").runs) == 3


def test_calibrate_prints_parameters(said, folder):
    out = said("calibrate p.json -o again.json")
    lines = out.splitlines()
    assert lines[1].split()[:3] == ["parameter", "value", "prior"]
    for name in ("launch", "saturating_warps", "interference.memory.memory"):
        assert sum(line.startswith(f"{name} ") for line in lines) == 1
    assert "calibration written to again.json" in lines
    assert any(line.startswith("error") for line in lines)
    assert (folder / "again.json").read_bytes() == (folder / "c.json").read_bytes()


def test_calibrate_of_several_profiles_and_the_graph_that_is_meant(said):
    said(f"profile {SMALL} --backend mine:Few --in-situ 0 -o more.json")
    found = Calibration.from_dict(json.loads(said(f"calibrate p.json more.json --graph {SMALL} --gpu a40 --json")))
    assert found.graph.name == "layered-8"
    assert "overhead/launch-1" in [row.name for row in found.residuals]


def test_compare_on_a_calibration(said):
    """As the library: its times, its cluster; the plain preset says something else."""
    row = ss.compare(Calibration.load("c.json").graph, Calibration.load("c.json"), ["lios"]).rows[0]
    out = json.loads(said(f"compare {SMALL} --cluster c.json --schedulers lios --json"))
    assert out["rows"][0]["makespan_us"] == pytest.approx(row.makespan_us)
    plain = json.loads(said(f"compare {SMALL} --gpu a40 --schedulers lios --json"))
    assert plain["rows"][0]["makespan_us"] != pytest.approx(row.makespan_us, rel=0.01)


def test_a_cluster_is_as_good_as_a_calibration(said):
    ss.Cluster.preset("h200", 2).save("two.json")
    lines = [
        f"compare {SMALL} {where} --schedulers lios --json" for where in ("--cluster two.json", "--gpu h200 --gpus 2")
    ]
    first, second = (json.loads(said(line))["rows"][0]["makespan_us"] for line in lines)
    assert first == second


def test_more_devices_like_the_calibrated_one(said):
    """An a40 has a bridge to its neighbour; the devices have what was fitted."""
    found = json.loads(said(f"compare {SMALL} --cluster c.json --gpus 2 --schedulers round-robin --json"))
    assert found["cluster"]["devices"] == ["a40", "a40"]
    assert found["rows"][0]["devices"] == 2
    same = json.loads(said(f"compare {SMALL} --cluster c.json --gpus 1 --schedulers lios --json"))
    assert same["cluster"]["devices"] == ["a40"]


@pytest.mark.parametrize("suffix", PICTURES)
def test_replay_beside_the_prediction(said, folder, suffix):
    out = said(f"replay s.json --backend synthetic --repeats 5 --cluster c.json -o run.json --gantt run.{suffix}")
    found = Replay.load("run.json")
    assert len(found.latency) == 5
    told = dict(line.split(None, 1) for line in out.splitlines())
    assert set(told) >= {"graph", "backend", "device", "measured", "predicted", "error", "run", "trace"}
    assert told["backend"] == "synthetic"
    assert told["predicted"].endswith("% of measured")
    assert (folder / f"run.{suffix}").read_bytes().startswith(PICTURES[suffix])


def test_replay_alone(said, folder):
    out = json.loads(said("replay plain.json --backend synthetic --repeats 4 --warmup 0 --json --gantt run.svg"))
    assert "predicted_us" not in out
    assert out["repeats"] == 4
    assert out["measured_p10_us"] <= out["measured_us"] <= out["measured_p90_us"]
    assert (folder / "run.svg").read_text().startswith("<?xml")


def test_validate_prints_the_whole_loop(said, folder):
    (folder / "plan.py").write_text(
        "from simsched.schedulers.heft import heft\ndef mine(graph, cluster, cost): return heft(graph, cluster, cost)\n"
    )
    line = (
        f"validate {SMALL} --backend mine:Few --schedulers heft,autograph,plan:mine --rounds 2 --training 0 "
        "--held-out 2 --repeats 2 --scatter s.png --gantt g.pdf --resume kept -o fitted.json"
    )
    out = said(line)
    table, _, summary = out.partition("\nrounds\n")
    assert table.startswith("layered-8 on synthetic (surrogate a40), round 2 of 2")
    for name in ("heft", "autograph", "plan:mine", "random-1", "random-2"):
        assert sum(each.startswith(f"{name} ") for each in table.splitlines()) == 1
    assert "autograph: not measured: autograph: operator 'op0' has no shapes" in out
    lines = summary.splitlines()
    assert [each.split()[0] for each in lines if each.endswith(" %")] == ["1", "2"]
    assert "scatter plot written to s.png" in lines
    assert "calibration written to fitted.json" in lines
    assert json.loads((folder / "fitted.json").read_text())["format"] == "simsched.calibration"
    assert (folder / "s.png").read_bytes().startswith(PICTURES["png"])
    assert (folder / "g.pdf").read_bytes().startswith(PICTURES["pdf"])
    kept = {path: path.read_bytes() for path in (folder / "kept").iterdir()}
    found = json.loads(said(f"{line} --json"))
    assert {path: path.read_bytes() for path in (folder / "kept").iterdir()} == kept
    assert found.keys() == {"graph", "backend", "device", "environment", "seed", "rounds", "verdict"}
    assert len(found["rounds"]) == 2
    for each in found["rounds"]:
        assert each.keys() == ROUND
        assert [row["scheduler"] for row in each["schedules"]] == [
            "heft",
            "autograph",
            "plan:mine",
            "random-1",
            "random-2",
        ]
        assert "reason" in each["schedules"][1]
        assert each["uncalibrated_error"] >= 0


def test_the_interrupted_leave_nothing_half_written(folder, capsys, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("hwbackend.synthetic_backend.SyntheticBackend.profile", interrupted)
    before = sorted(path.name for path in folder.iterdir())
    assert run(f"profile {SMALL} --backend synthetic -o q.json".split()) == 2
    assert capsys.readouterr().err == "error: interrupted; no file was left half-written\n"
    assert sorted(path.name for path in folder.iterdir()) == before
