"""`simsched study`: every command, and how each refuses."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from simsched.experiments.study import Results

STUDY = """
name = "small"
schedulers = ["sequential", "lios"]
seeds = 2
[workload]
kind = "layered"
n_ops = [12, 16]
n_layers = 4
[cluster]
gpu = "a40"
"""
MINE = """
from simsched.schedulers import schedule

def mine(graph, cluster, cost):
    return schedule(graph, cluster, "lios")
"""


@pytest.fixture(autouse=True)
def _study(_folder, tmp_path):
    (tmp_path / "study.toml").write_text(STUDY)


@pytest.fixture
def said(said):
    """Run a command that succeeds; return what it printed on stdout."""
    return lambda *arguments: said("study", *arguments, loud=True)


@pytest.fixture
def done(said):
    """A finished study, by the name of its folder."""
    said("run", "study.toml", "-o", "done", "--serial")
    return "done"


def n_lines(folder, name="rows.jsonl"):
    return len(Path(folder, name).read_text().splitlines())


def test_run_prints_means_and_where_its_rows_are(said):
    out = said("run", "study.toml", "-o", "f", "--serial")
    assert out.startswith("small: 8 of 8 rows")
    assert out.endswith("rows    8 of 8\nfolder  f\n")
    assert [row["status"] for row in Results.open("f").rows] == ["ok"] * 8


def test_what_is_done_is_not_run_again(said, done):
    for command in (("run", "study.toml", "-o", done), ("resume", done), ("resume", done, "--retry")):
        said(*command, "--serial")
        assert n_lines(done) == 8


def test_resume_from_another_folder(said, done, tmp_path, monkeypatch):
    """The last 3 of 8 rows are lost; files of the study are found where they were."""
    table = said("table", done, "--csv")
    rows = tmp_path / done / "rows.jsonl"
    rows.write_text("".join(rows.read_text().splitlines(keepends=True)[:5]))
    (tmp_path / "else").mkdir()
    monkeypatch.chdir(tmp_path / "else")
    assert said("status", "../done").startswith("small: 5 of 8 rows")
    said("resume", "../done", "--serial")
    assert said("table", "../done", "--csv") == table


def test_table(said, done):
    assert said("table", done).startswith("small: 8 of 8 rows")
    header, *lines = said("table", done, "--csv").splitlines()
    assert len(lines) == 8
    assert header.startswith("key,unit,index,status,reason,workload.kind,")
    assert "wall." not in header


def test_table_in_other_forms(said, refused, done):
    """Every row as JSON on stdout, and in files of three kinds."""
    rows = json.loads(said("table", done, "--json"))["rows"]
    assert [row["index"] for row in rows] == list(range(8))
    for name in ("rows.csv", "rows.json", "rows.parquet"):
        assert said("table", done, "-o", name).endswith(f"rows written to {name}\n")
    assert json.loads(Path("rows.json").read_text())["rows"] == rows
    assert len(Path("rows.csv").read_text().splitlines()) == 9
    assert pq.read_table("rows.parquet").num_rows == 8
    assert "must end in one of .csv, .json, .parquet" in refused("study", "table", done, "-o", "rows.xls")


def test_status(said, done):
    heading, columns, *rows = said("status", done).splitlines()
    assert heading.strip() == "small: 8 of 8 rows"
    assert columns.split() == ["scheduler", "rows", "missing", "ok", "refused", "failed", "timeout", "wall", "s"]
    assert [row.split()[:4] for row in rows] == [["sequential", "4", "-", "4"], ["lios", "4", "-", "4"]]


@pytest.mark.parametrize("form", ["svg", "pdf"])
def test_plot(said, done, form):
    out = said("plot", done, "-o", "figures", "--format", form)
    paths = [Path(line.removeprefix("figure written to ")) for line in out.splitlines()]
    assert paths
    assert all(path.parent == Path("figures") and path.stat().st_size > 1000 for path in paths)


def test_shards_merged(said, done):
    for part in ("1/2", "2/2"):
        said("run", "study.toml", "-o", "parts", "--serial", "--shard", part)
    assert n_lines("parts", "rows.shard-1-of-2.jsonl") == 4
    assert said("merge", "parts", "-o", "all") == "8 rows of small written to all\n"
    assert said("table", "all", "--csv") == said("table", done, "--csv")


def test_a_scheduler_beside_the_study_file(said, refused, tmp_path, monkeypatch):
    """It is found in the current folder, and in that of the file: a console script has neither in its path."""
    (tmp_path / "beside.py").write_text(MINE)
    (tmp_path / "study.toml").write_text(STUDY.replace('"lios"', '"beside:mine"'))
    (tmp_path / "else").mkdir()
    monkeypatch.chdir(tmp_path / "else")
    said("run", "../study.toml", "-o", "f", "--serial")
    assert [row["status"] for row in Results.open("f").rows] == ["ok"] * 8
    (tmp_path / "study.toml").write_text(STUDY.replace('"lios"', '"nowhere:mine"'))
    assert refused("study", "run", "../study.toml", "-o", "g", "--serial").startswith(
        "../study.toml: cannot import scheduler 'nowhere:mine'"
    )
    assert not Path("g").exists()
