"""The command `report`: what its sources may be, what it prints and writes, and what it refuses."""

import json
import sys

import pytest

import hwbackend
import simsched as ss
import workloads
from simsched.base.errors import FileError, FormatError
from simsched.calibration import Calibration, ParameterRow
from simsched.experiments.accuracy import Accuracy, validate
from simsched.model.profile import MeasuredOperator

GRAPH = "random:layered,n_ops=12,n_layers=4"


def test_a_graph_is_compared_and_a_scheduler_recommended(tmp_path, said):
    out = said("report", GRAPH, "-o", "r.html", "--schedulers", "sequential,lios", "--samples", "5", "--title", "T <i>")
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "report written to r.html, " in out
    assert f"simsched advise {GRAPH} --plan plan.json" in " ".join(out.split())
    assert "<title>T &lt;i&gt;</title>" in page
    assert page.index("What to deploy") < page.index("lios is simulated fastest")


def test_files_are_told_apart_by_what_they_hold(tmp_path, said):
    """A schedule, a replay alone and beside a prediction, a comparison, a what-if and a sweep, all in one page."""
    graph, cluster = workloads.from_spec(GRAPH), ss.Cluster.preset("a100")
    plan = ss.schedule(graph, cluster, "lios")
    plan.save("plan.json")
    cluster.save("cluster.json")
    ss.compare(graph, cluster, ["lios"]).save("comparison.json")
    asked = ss.what_if(plan, cluster).overhead(launch=0)
    asked.answer().save("answer.json")
    asked.sweep("overhead.launch", [0.5, 2.0]).save("sweep.json")
    backend = hwbackend.get("synthetic", gpu="a100")
    backend.replay(ss.schedule(backend.realise(graph), backend.cluster, "lios"), repeats=2).save("run.json")
    said("report", "plan.json", "comparison.json", "answer.json", "sweep.json", "run.json", "-o", "r.html")
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    told = "lios is simulated fastest"
    for part in ("What if: overhead.launch*=0", "Makespans: layered-12 on a100", "What was measured", told):
        assert part in page
    assert "Simulated over measured" not in page
    said("report", "run.json", "-o", "r.html", "--cluster", "cluster.json")
    assert "Simulated over measured" in (tmp_path / "r.html").read_text(encoding="utf-8")


def believed(cluster, profiles, graph):
    """A calibration that takes the cluster for what it is said to be, and every operator for 50 us long."""
    times = dict.fromkeys(graph.names, 50.0)
    row = ParameterRow("launch", 4.0, 4.0, 3.0, 5.0, False, "not measured")
    return Calibration(cluster, cluster, graph, times, {}, (row,), ())


def test_folders_of_studies_and_validations(tmp_path, said, monkeypatch):
    """A validation is read without measuring: what is read says the same as what was returned."""
    study = ss.Study(
        "small", ["sequential", "lios"], {"kind": "layered", "n_ops": [12, 16], "n_layers": 4}, {"gpu": "a40"}
    )
    ss.run_study(study, "rows", load=workloads.load_kind, executor="serial")
    backend = hwbackend.get("synthetic", gpu="a40")
    graph = workloads.random_layered(n_ops=8, n_layers=3, rng=0)
    monkeypatch.setattr("simsched.experiments.accuracy.rounds.calibrate", believed)  # fits nothing, in no time
    nothing = ss.Profile((MeasuredOperator("op", (50.0,)),))
    monkeypatch.setattr(type(backend), "profile", lambda self, graph, **given: nothing)
    monkeypatch.setattr(type(backend), "microbenchmarks", lambda self: nothing)
    names, few = ["sequential", "lios"], {"rounds": 1, "training": 0, "random_held_out": 2, "repeats": 2}
    made = validate(graph, backend, names, folder="val", **few)
    read = Accuracy.load("val")
    assert read.to_dict() == made.to_dict()
    assert {name: trace.makespan for name, (trace, _) in read.traces.items()} == {
        name: trace.makespan for name, (trace, _) in made.traces.items()
    }
    said("report", "rows", "val", "-o", "r.html")
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    for part in ("has the best mean speedup", "After 1 round predictions", "predicted against measured",
                 "simulated over measured"):  # fmt: skip
        assert part in page
    broken = json.loads((tmp_path / "val" / "accuracy.json").read_text())
    broken["runs"]["lios"] = "../elsewhere.json"
    (tmp_path / "val" / "accuracy.json").write_text(json.dumps(broken))
    with pytest.raises(FormatError, match="must be a file beside it"):
        Accuracy.load("val")
    with pytest.raises(FileError, match="not the folder of a finished validation"):
        Accuracy.load("rows")


def test_without_plotly_nothing_is_compared_in_vain(refused, monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    monkeypatch.setattr("simsched.experiments.comparison.compare", None)  # would be a traceback
    assert "a report needs plotly: pip install" in refused("report", GRAPH, "-o", "r.html")
