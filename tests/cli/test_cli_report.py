"""The command `report`: what its sources may be, what it prints and writes, and what it refuses."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from documents import accuracy, calibration, document, replay

import simsched as ss
import workloads
from simsched.base.errors import BackendError, FileError
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
    """A schedule, a comparison, a what-if, a sweep and a replay, alone and beside a prediction, all in one page."""
    names = ("schedule", "comparison", "whatif", "sweep", "replay", "cluster")
    for name in names:
        Path(f"{name}.json").write_text(json.dumps(document(f"simsched.{name}")))
    _, page = reported(*(f"{name}.json" for name in names[:-1]), "--gpu", "a40", "--gpus", "2")
    for part in (
        "by hand",
        "what if link.bandwidth*=2",
        "Makespans: two on 2 x a40",
        "What was measured",
        "is simulated fastest",
    ):
        assert part in page
    assert "Simulated over measured" not in page
    assert "Simulated over measured" in reported("replay.json", "--cluster", "cluster.json")[1]


def test_folders_of_studies_and_validations(reported):
    grid = {"kind": "layered", "n_ops": [12, 16], "n_layers": 4}
    study = ss.Study("small", ["sequential", "lios"], grid, {"gpu": "a40"})
    ss.run_study(study, "rows", load=workloads.load_kind, executor="serial")
    Path("val").mkdir()
    replace(accuracy(), traces={"lios": (ss.simulate(replay().program, calibration()), replay())}).save("val")
    _, page = reported("rows", "val")
    for part in (
        "has the best mean speedup",
        "After 2 rounds predictions",
        "predicted against measured",
        "simulated over measured",
    ):
        assert part in page
    broken = json.loads(Path("val/accuracy.json").read_text())
    broken["runs"]["lios"] = "../elsewhere.json"
    Path("val/accuracy.json").write_text(json.dumps(broken))
    with pytest.raises(BackendError, match="must be a file beside it"):
        Accuracy.load("val")
    with pytest.raises(FileError, match=r"accuracy\.json"):
        Accuracy.load("rows")


def test_without_plotly_nothing_is_compared_in_vain(refused, monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    monkeypatch.setattr("simsched.experiments.comparison.compare", None)  # would be a traceback
    assert "a report needs plotly: pip install" in refused("report", GRAPH, "-o", "r.html")
