"""`simsched study`: every command, in the folder of a study that has finished or is torn."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from simsched.cli.run import run
from simsched.experiments.study import Results

STUDY = """
name = "small"
schedulers = ["sequential", "lios"]
seeds = 2
workload = {kind = "layered", n_ops = [12, 16], n_layers = 4}
cluster = {gpu = "a40"}
"""


@pytest.fixture(scope="module")
def files(files):
    """The file of a study and the folder of its rows."""
    (files / "study.toml").write_text(STUDY)
    assert run(["study", "run", str(files / "study.toml"), "-o", str(files / "done"), "--serial"]) == 0
    return files


@pytest.fixture
def said(said):
    """Run a command that succeeds, given as a line; return what it printed on stdout."""
    return lambda line: said("study", *line.split(), loud=True)


def n_lines(path):
    return len(Path(path).read_text().splitlines())


def test_run_prints_means_and_where_its_rows_are(said):
    out = said("run study.toml -o f --serial")
    assert out.startswith("small: 8 of 8 rows")
    assert out.endswith("rows    8 of 8\nfolder  f\n")
    assert [row["status"] for row in Results.open("f").rows] == ["ok"] * 8


def test_resume_from_another_folder(said, monkeypatch):
    """The last 3 of 8 rows are lost; files of the study are found where they were."""
    table, rows = said("table done --csv"), Path("done/rows.jsonl")
    rows.write_text("".join(rows.read_text().splitlines(keepends=True)[:5]))
    Path("else").mkdir()
    monkeypatch.chdir("else")
    assert said("status ../done").startswith("small: 5 of 8 rows")
    said("resume ../done --retry --serial")
    assert said("table ../done --csv") == table


def test_table(said, refused):
    """Means as a table; every row as CSV, or in files."""
    found = Results.open("done")
    assert said("table done").startswith("small: 8 of 8 rows")
    assert said("table done --csv") == found.to_csv()
    for name in ("rows.csv", "rows.json", "rows.parquet"):
        said(f"table done -o {name}")
    assert Path("rows.csv").read_text() == found.to_csv(deterministic=False)
    assert json.loads(Path("rows.json").read_text())["rows"] == list(found.rows)
    assert pq.read_table("rows.parquet").num_rows == 8
    assert "must end in one of .csv, .json, .parquet" in refused("study table done -o rows.xls")


def test_status(said):
    heading, columns, *rows = said("status done").splitlines()
    assert heading.strip() == "small: 8 of 8 rows"
    assert columns.split() == ["scheduler", "rows", "missing", "ok", "refused", "failed", "timeout", "wall", "s"]
    assert [row.split()[:4] for row in rows] == [["sequential", "4", "-", "4"], ["lios", "4", "-", "4"]]


def test_plot(said):
    out = said("plot done -o new --format pdf")
    assert sorted(out.splitlines()) == [f"figure written to {path}" for path in sorted(Path("new").iterdir())]
    assert out.count(".pdf\n") == 2


def test_shards_merged(said):
    for part in ("1/2", "2/2"):
        said(f"run study.toml -o parts --serial --shard {part}")
    assert n_lines("parts/rows.shard-1-of-2.jsonl") == 4
    assert said("merge parts -o all") == "8 rows of small written to all\n"
    assert said("table all --csv") == said("table done --csv")


def test_a_scheduler_beside_the_study_file(said, refused, monkeypatch):
    """It is found in the current folder, and in that of the file: a console script has neither in its path."""
    Path("beside.py").write_text("from simsched.schedulers.lios import lios as mine")
    for name in ("beside", "nowhere"):
        Path(f"{name}.toml").write_text(STUDY.replace('"lios"', f'"{name}:mine"'))
    Path("else").mkdir()
    monkeypatch.chdir("else")
    said("run ../beside.toml -o f --serial")
    assert [row["status"] for row in Results.open("f").rows] == ["ok"] * 8
    assert "nowhere.toml: cannot import scheduler" in refused("study run ../nowhere.toml -o g --serial")
    assert not Path("g").exists()


def test_a_study_that_grew(said):
    """It says how many rows it ran, how many were there, and how many count no more."""
    Path("more.toml").write_text(STUDY.replace('"sequential", "lios"', '"lios", "heft"'))
    out = said("run more.toml -o done --serial")
    left_over = "4 more rows in the folder, of parts that the study no longer has or of code that changed"
    ends = f"run now    4, and 4 were there\nrows       8 of 8\nleft over  {left_over}\nfolder     done\n"
    assert out.endswith(ends)
    assert left_over in said("status done")


def test_rank(said, refused):
    """A table, pairs, JSON, LaTeX and a picture; what cannot be ranked is said in a line."""
    out = said("rank done --by n_ops --pairs --tex t.tex --plot p.svg")
    assert out.startswith("small: schedulers by makespan")
    assert "all 2 blocks are complete" in out
    assert "small: pairs by makespan" in out
    assert out.endswith("table written to t.tex\npicture written to p.svg\n")
    assert r"\toprule" in Path("t.tex").read_text()
    assert Path("p.svg").read_text().startswith("<?xml")
    found = json.loads(said("rank done --metric speedup --baseline lios --json"))
    assert (found["metric"], found["baseline"], len(found["rows"]), len(found["pairs"])) == ("speedup", "lios", 2, 1)
    assert "unknown metric 'x'" in refused("study rank done --metric x")
    assert "unknown column 'y'" in refused("study rank done --by y")
