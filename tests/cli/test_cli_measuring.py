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
from simsched.model.schedule import Schedule

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
def folder(made, tmp_path, monkeypatch):
    """A copy of it, which the commands run in."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    (tmp_path / "mine.py").write_text(BACKEND)
    (tmp_path / "torn.json").write_text((tmp_path / "c.json").read_text()[:90])
    (tmp_path / "graph.json").write_text(json.dumps(ss.OpGraph([ss.Operator("a", time=10.0)]).to_dict()))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield tmp_path
    sys.modules.pop("mine", None)


@pytest.fixture
def said(capsys):
    def say(line):
        status = run(line.split())
        out, err = capsys.readouterr()
        assert (status, err) == (0, "")
        return out

    return say


@pytest.fixture
def refused(folder, capsys):
    def refuse(line):
        before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        status = run(line.split())
        out, err = capsys.readouterr()
        assert (status, out, err.count("\n")) == (2, "", 1)
        assert err.startswith("error: ")
        assert not err.startswith("error: unexpected "), err
        assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
        return err.removeprefix("error: ")

    return refuse


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


def test_simulate_on_a_calibration(said):
    schedule, calibration = Schedule.load("s.json"), Calibration.load("c.json")
    told = json.loads(said("simulate s.json --cluster c.json --json"))
    assert told["makespan_us"] == ss.simulate(schedule, calibration).makespan


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


def test_replay_of_a_schedule_on_two_devices(said):
    out = json.loads(said("replay s2.json --backend synthetic --backend-option gpus=2 --repeats 2 --json"))
    assert out["repeats"] == 2


def test_replay_of_a_program(said):
    said(f"schedule {SMALL} --scheduler heft -o x.json --program program.json --gpu a40")
    said("replay x.json --backend synthetic -o run.json --repeats 2")
    Replay.load("run.json").program.save("lowered.json")
    assert json.loads(said("replay lowered.json --backend synthetic --repeats 2 --json"))["repeats"] == 2


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
    assert found.keys() == {"graph", "backend", "device", "environment", "seed", "rounds"}
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


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("profile", "Missing argument 'GRAPH'"),
        (f"profile {SMALL}", "Missing option '--backend'"),
        (f"profile {SMALL} --backend nonsense", "unknown backend 'nonsense'; known are: cupy, torch, synthetic"),
        (f"profile {SMALL} --backend synthetic --backend-option gpu", "--backend-option 'gpu': expected name=value"),
        (
            f"profile {SMALL} --backend synthetic --virtual-devices 2 --backend-option virtual-devices=2",
            "--virtual-devices is given twice",
        ),
        (f"profile {SMALL} --backend synthetic --in-situ -1", "Invalid value for '--in-situ'"),
        (f"profile {SMALL} --backend synthetic -o nowhere/p.json", "cannot write nowhere/p.json"),
        ("calibrate torn.json", "torn.json: not valid JSON"),
        ("calibrate graph.json", "graph.json: not a profile, as `simsched profile GRAPH --backend NAME -o FILE`"),
        ("calibrate p.json -o p.json", "cannot write p.json: this command already uses the file"),
        ("calibrate p.json --graph graph.json", "graph"),
        (
            "replay graph.json --backend synthetic",
            "graph.json: a graph does not say what runs where; `simsched schedule",
        ),
        ("replay p.json --backend synthetic", "p.json: a profile holds times, not a graph or schedule"),
        ("replay s.json --backend synthetic --repeats 0", "Invalid value for '--repeats'"),
        ("replay s.json --backend synthetic --gantt x.jpg", "cannot draw 'x.jpg'"),
        (
            "replay s.json --backend synthetic --cluster s.json",
            "s.json: field 'format' is 'simsched.schedule'; expected",
        ),
        ("replay s.json --backend synthetic --cluster c.json -o c.json", "cannot write c.json"),
        (
            "replay s.json --backend synthetic --backend-option gpu=v100 --cluster c.json",
            "c.json is of gpu0 with 84 SMs, but the backend 'synthetic' runs on gpu0 with 80 SMs",
        ),
        (
            "replay s.json --backend synthetic --backend-option gpus=2 --cluster c.json",
            "but the backend 'synthetic' runs on gpu0 with 84 SMs, gpu1 with 84 SMs",
        ),
        (f"validate {SMALL} --backend synthetic --schedulers heff", "unknown scheduler 'heff'"),
        (f"validate {SMALL} --backend synthetic --scatter x.jpg", "cannot draw 'x.jpg'"),
        (f"validate {SMALL} --backend synthetic --resume graph.json", "cannot make folder graph.json"),
        (f"validate {SMALL} --backend synthetic --resume=", "cannot keep measurements in a folder without a name"),
        (f"compare {SMALL} --cluster torn.json", "torn.json: not valid JSON"),
        (f"compare {SMALL} --cluster c.json --gpu a40", "--gpu a40 is part of the preset that --cluster c.json"),
        (f"compare {SMALL} --cluster c.json --link nvlink", "--link nvlink is part of the preset"),
    ],
)
def test_refused(refused, line, message):
    assert message in refused(line)


def test_a_cluster_wired_like_a_preset_has_other_numbers_of_devices(said):
    """What --gpus does with a file is what it does with the preset that the file holds."""
    ss.Cluster.preset("h200", 2).save("two.json")
    for n in (1, 3):
        in_file = json.loads(said(f"compare {SMALL} --cluster two.json --gpus {n} --schedulers heft --json"))
        of_preset = json.loads(said(f"compare {SMALL} --gpu h200 --gpus {n} --schedulers heft --json"))
        assert in_file["rows"][0]["makespan_us"] == of_preset["rows"][0]["makespan_us"]


def test_devices_joined_as_no_preset_is_are_not_multiplied(refused):
    ss.Cluster.preset("h200", 2).replace_links(bandwidth=1.0).save("two.json")
    said = refused(f"compare {SMALL} --cluster two.json --gpus 3")
    assert "--gpus 3: two.json: 3 devices: those of '2 x h200' are 'h200', joined as no preset is" in said


def test_a_device_of_no_preset_is_not_multiplied(refused):
    ss.Cluster.preset("h200").replace_devices(model="mine").save("one.json")
    assert "2 devices: those of 'h200' are of no preset, 'mine'" in refused(
        f"compare {SMALL} --cluster one.json --gpus 2"
    )


def test_times_of_operators_alone_calibrate_nothing_without_a_device(refused):
    """A profile of operators without runs, graph or cluster: what was imported from a profiler."""
    from simsched.model.profile import MeasuredOperator

    Profile((MeasuredOperator("a", (10.0,)),)).save("times.json")
    assert refused("calibrate times.json")


@pytest.mark.skipif(any(e.usable for e in available() if e.name == "cupy"), reason="there is a GPU")
def test_no_gpu_is_one_line(refused):
    assert "cupy" in refused(f"profile {SMALL} --backend cupy").lower()


def test_the_interrupted_leave_nothing_half_written(folder, capsys, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("hwbackend.synthetic_backend.SyntheticBackend.profile", interrupted)
    before = sorted(path.name for path in folder.iterdir())
    assert run(f"profile {SMALL} --backend synthetic -o q.json".split()) == 2
    assert capsys.readouterr().err == "error: interrupted; no file was left half-written\n"
    assert sorted(path.name for path in folder.iterdir()) == before
