"""`Results`: CSV, Parquet, data frame and tables of rows."""

import io
import math
import sys

import pyarrow.parquet as pq
import pytest
from rich.console import Console
from study_cases import fork, study

from simsched.base.errors import MissingDependencyError
from simsched.experiments.study import Results, run_study
from simsched.experiments.study.results import means
from simsched.experiments.study.study import swept_columns

STUDY = study(
    "lios",
    {"scheduler": "lios", "streams": [1, 0]},
    "study_cases:fails",
    workload={"kind": "fork", "width": [2, 3], "time": 20.0},
    seeds=2,
    simulation={"jitter": 0.01},
)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return run_study(STUDY, tmp_path_factory.mktemp("rows"), load=fork, executor="serial")


def printed(table):
    console = Console(width=160, color_system=None, force_terminal=False)
    with console.capture() as capture:
        console.print(table)
    return capture.get()


def test_columns(results):
    """What the row is, what it is of, results, counts of searches, wall times, whatever row names them first."""
    names = list(results.columns)
    assert names[:24] == [
        "key",
        "unit",
        "index",
        "status",
        "reason",
        "workload.kind",
        "workload.width",
        "workload.time",
        "seed",
        "cluster.gpu",
        "cluster.overheads",
        "cluster.gpus",
        "simulation.engine",
        "simulation.jitter",
        "simulation.threads",
        "simulation.transfers",
        "simulation.bound",
        "scheduler",
        "option.streams",
        "code",
        "graph",
        "ops",
        "edges",
        "makespan_us",
    ]
    assert sorted(names[-3:]) == ["wall.row_s", "wall.search_s", "wall.simulate_s"]
    assert len(set(names)) == len(names)
    plain, whole = (results.to_csv(deterministic=each).partition("\n")[0].split(",") for each in (True, False))
    assert (plain, whole) == (names[:-3], names)


def test_parquet_of_columns_of_several_kinds():
    """Whole numbers among floats are floats, among texts texts; too large ones floats, or texts if none is so large."""
    rows = [
        {"key": "a", "x": 1, "y": 1.5, "z": 2**70, "w": 10**400},
        {"key": "b", "x": "5:9", "y": 2},
        {"key": "c", "z": 3, "w": 3},
    ]
    table = pq.read_table(io.BytesIO(Results(STUDY, tuple(rows)).to_parquet()))
    assert table.column("x").to_pylist() == ["1", "5:9", None]
    assert table.column("y").to_pylist() == [1.5, 2.0, None]
    assert table.column("z").to_pylist() == [float(2**70), None, 3.0]
    assert table.column("w").to_pylist() == [str(10**400), None, "3"]


def test_parquet_without_pyarrow(results, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'simsched\[parquet\]'"):
        results.to_parquet()
    results.save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["rows.csv"]


def test_means(results):
    """Four schedulers at two widths, over two instances each: mean and standard deviation of the two."""
    rows = means(results.columns, results.rows)
    said = ("workload.width", "scheduler", "rows", "done", "failed")
    assert [tuple(row[name] for name in said) for row in rows[:5]] == [
        (2, "lios", 2, 2, 0),
        (2, "lios streams=1", 2, 2, 0),
        (2, "lios streams=0", 2, 0, 2),
        (2, "study_cases:fails", 2, 0, 2),
        (3, "lios", 2, 2, 0),
    ]
    a, b = (row["makespan_us"] for row in results.rows if row["scheduler"] == "lios" and row["workload.width"] == 2)
    mean, deviation = rows[0]["makespan_us"]
    assert mean == pytest.approx((a + b) / 2)
    assert deviation == pytest.approx(math.sqrt((a - b) ** 2 / 2))  # of a sample of two
    assert rows[2]["makespan_us"] is None
    assert "jitter 0.01" in printed(results.table())  # the same for all: said once


def test_status(results):
    """4 rows each; without the last row one is missing."""
    rows = Results(STUDY, results.rows[:-1]).counts()
    assert [list(row.values())[:7] for row in rows] == [
        ["lios", 4, 0, 4, 0, 0, 0],
        ["lios streams=1", 4, 0, 4, 0, 0, 0],
        ["lios streams=0", 4, 0, 0, 4, 0, 0],
        ["study_cases:fails", 3, 1, 0, 0, 3, 0],
    ]
    assert list(rows[0])[:7] == ["scheduler", "rows", "missing", "ok", "refused", "failed", "timeout"]
    assert rows[0]["wall_s"] == sum(row["wall.row_s"] for row in results.rows if row["scheduler"] == "lios")
    assert rows[2]["reasons"] == ["lios: streams must be a whole number of at least 1, not 0"]
    text = printed(results.status())
    assert "lios streams=0: lios: streams must be a whole number of at least 1, not 0" in text


def test_a_study_of_which_there_are_no_rows_yet():
    empty = Results(STUDY, ())
    assert (empty.columns, empty.to_csv(), len(empty.to_pandas())) == ((), "\n", 0)
    assert "0 of 16 rows" in printed(empty.table())
    assert [row["missing"] for row in empty.counts()] == [4, 4, 4, 4]


def test_columns_that_are_swept():
    assert swept_columns(STUDY) == ["workload.width"]
    several = study(
        workload=[{"kind": "fork", "width": 2}, {"kind": "fork"}, {"kind": "spoon", "width": 2}],
        cluster={"gpu": "a100", "device": {"launch": [0.0, 1.0]}},
        simulation={"jitter": [0.1, 0.2]},
    )
    swept = ["workload.kind", "workload.width", "cluster.device.launch", "simulation.jitter"]
    assert swept_columns(several) == swept
