"""The command `report`: what its sources may be, what it prints and writes, and what it refuses."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from documents import accuracy, calibration, replay

import hwbackend
import simsched as ss
import workloads
from simsched.base.errors import FileError, FormatError
from simsched.experiments.accuracy import Accuracy

GRAPH = "random:layered,n_ops=12,n_layers=4"


@pytest.fixture
def reported(said):
    """Make a report of some sources; return what is printed and the page."""

    def report(*sources):
        out = said("report", *sources, "-o", "r.html")
        assert "report written to r.html, " in out
        return " ".join(out.split()), Path("r.html").read_text(encoding="utf-8")

    return report


def test_a_graph_is_compared_and_a_scheduler_recommended(reported):
    out, page = reported(GRAPH, "--schedulers", "sequential,lios", "--samples", "5", "--title", "T <i>")
    assert f"simsched advise {GRAPH} --plan plan.json" in out
    assert "<title>T &lt;i&gt;</title>" in page
    assert page.index("What to deploy") < page.index("lios is simulated fastest")


def test_files_are_told_apart_by_what_they_hold(reported):
    """A schedule, a replay alone and beside a prediction, a comparison, a what-if and a sweep, all in one page."""
    graph, cluster = workloads.from_spec(GRAPH), ss.Cluster.preset("a100")
    plan = ss.schedule(graph, cluster, "lios")
    asked, backend = ss.what_if(plan, cluster).overhead(launch=0), hwbackend.get("synthetic", gpu="a100")
    run = backend.replay(ss.schedule(backend.realise(graph), backend.cluster, "lios"), repeats=2)
    made = {"plan": plan, "comparison": ss.compare(graph, cluster, ["lios"]), "answer": asked.answer(),
            "sweep": asked.sweep("overhead.launch", [0.5, 2.0]), "run": run}  # fmt: skip
    for name, each in made.items():
        each.save(f"{name}.json")
    cluster.save("cluster.json")
    _, page = reported(*(f"{name}.json" for name in made))
    for part in ("what if overhead.launch*=0", "Makespans: layered-12 on a100", "What was measured",
                 "lios is simulated fastest"):  # fmt: skip
        assert part in page
    assert "Simulated over measured" not in page
    assert "Simulated over measured" in reported("run.json", "--cluster", "cluster.json")[1]


def test_folders_of_studies_and_validations(reported):
    grid = {"kind": "layered", "n_ops": [12, 16], "n_layers": 4}
    study = ss.Study("small", ["sequential", "lios"], grid, {"gpu": "a40"})
    ss.run_study(study, "rows", load=workloads.load_kind, executor="serial")
    Path("val").mkdir()
    traces = {"lios": (ss.simulate(replay().program, calibration()), replay())}
    replace(accuracy(), traces=traces).save("val")
    _, page = reported("rows", "val")
    for part in ("has the best mean speedup", "After 2 rounds predictions", "predicted against measured",
                 "simulated over measured"):  # fmt: skip
        assert part in page
    broken = json.loads(Path("val/accuracy.json").read_text())
    broken["runs"]["lios"] = "../elsewhere.json"
    Path("val/accuracy.json").write_text(json.dumps(broken))
    with pytest.raises(FormatError, match="must be a file beside it"):
        Accuracy.load("val")
    with pytest.raises(FileError, match="not the folder of a finished validation"):
        Accuracy.load("rows")


def test_without_plotly_nothing_is_compared_in_vain(refused, monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    monkeypatch.setattr("simsched.experiments.comparison.compare", None)  # would be a traceback
    assert "a report needs plotly: pip install" in refused("report", GRAPH, "-o", "r.html")
