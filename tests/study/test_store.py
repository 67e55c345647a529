"""The folder of a study: rows that are there whole or not at all, once, and of this study."""

import json
import math
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from study_cases import fork, study

import simsched as ss
import workloads
from simsched.base.errors import FileError, FormatError, GraphError, StudyError, UnknownNameError
from simsched.experiments.study import Results, merge, run_study
from simsched.experiments.study.store import appending, prepare, read_rows, read_study

STUDY = study("sequential", "lios", {"scheduler": "hios-lp", "w": [2, 3]}, seeds=3)


def ran(folder, whole=STUDY, **options):
    return run_study(whole, folder, **{"load": fork, "executor": "serial", **options})


def lines(folder, name="rows.jsonl"):
    return (folder / name).read_text().splitlines(keepends=True)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A finished study."""
    folder = tmp_path_factory.mktemp("done")
    ran(folder)
    return folder


def changed(done, number, **change):
    """A line as releases before wrote it, without a digest, with something changed, or gone (`...`)."""
    row = json.loads(lines(done)[number]) | {"digest": ...} | change
    return json.dumps({name: value for name, value in row.items() if value is not ...}) + "\n"


def copied(done, folder, n, tail=""):
    """A folder with the first n rows of a finished study, and the beginning of another line."""
    folder.mkdir(exist_ok=True)
    (folder / "study.json").write_text((done / "study.json").read_text())
    (folder / "rows.jsonl").write_text("".join(lines(done)[:n]) + tail)
    return folder


def test_a_finished_folder(done):
    results = Results.open(done)
    assert len(results.rows) == len(results) == 12
    assert [row["index"] for row in results.rows] == list(range(12))
    assert repr(results) == "Results('forks', 12 of 12 rows)"
    assert (done / "rows.csv").read_text() == results.to_csv(deterministic=False)
    assert (done / "rows.parquet").exists()
    assert read_study(done) == (results.study, ss.__version__, {}) == (STUDY, ss.__version__, {})


@pytest.mark.parametrize("n", [0, 1, 5, 11])
@pytest.mark.parametrize("tail", ["", '{"key":"12', "\0\0"])
def test_a_torn_last_line_is_cut_off_and_what_is_missing_is_run(done, tmp_path, n, tail):
    folder = copied(done, tmp_path, n, tail)
    assert len(Results.open(folder).rows) == n
    resumed = ran(folder)
    assert lines(folder)[:n] == lines(done)[:n]
    assert len(lines(folder)) == 12
    assert resumed.to_csv() == Results.open(done).to_csv()


def test_progress(done, tmp_path):
    """Rows of before are done from the start; the last call says that all are, and how many have no result."""

    def told(folder, whole=STUDY):
        found = []
        ran(folder, whole, progress=lambda *numbers: found.append(numbers))
        assert [done for done, _, _ in found] == sorted({done for done, _, _ in found})
        return found

    new, half = told(tmp_path / "new"), told(copied(done, tmp_path / "half", 6))
    assert half[0][0] > 6
    assert new[-1] == half[-1] == (12, 12, 0)
    assert told(tmp_path / "half") == [(12, 12, 0)]
    for _ in range(2):
        assert told(tmp_path / "failing", study("study_cases:fails", "lios"))[-1] == (2, 2, 1)


def test_another_study_in_the_folder(done):
    """A study may change, see `test_growth`, but not its name."""
    other = ss.Study("other", STUDY.schedulers, STUDY.workload, STUDY.cluster)
    with pytest.raises(StudyError, match="holds the study 'forks', not 'other'; give it that name to extend it"):
        ran(done, other)
    assert len(lines(done)) == 12


def test_figures_may_be_added(done, tmp_path):
    folder = copied(done, tmp_path, 12)
    ran(folder, study(*STUDY.schedulers, seeds=3, figure={"kind": "bar"}, execution={"time_limit": 9}))
    again = Results.open(folder).study
    assert (again.figure, again.execution) == (({"kind": "bar"},), {"time_limit": 9})
    assert len(lines(folder)) == 12


def test_rows_of_another_version(done, tmp_path):
    folder = copied(done, tmp_path, 3)
    content = json.loads((folder / "study.json").read_text())
    (folder / "study.json").write_text(json.dumps({**content, "simsched": "0.0.1"}))
    with pytest.raises(StudyError, match=r"its rows are of simsched 0\.0\.1, not "):
        ran(folder)


def test_folders_that_are_none(tmp_path):
    with pytest.raises(StudyError, match=r"not the folder of a study; run one into it: cannot read .*study\.json"):
        Results.open(tmp_path)
    (tmp_path / "rows.jsonl").write_text("{}\n")
    with pytest.raises(StudyError, match=r"there are rows but no study\.json"):
        ran(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="cannot make folder"):
        ran(tmp_path / "file" / "inside")


def test_two_runs_in_one_folder(tmp_path):
    """The second is refused, in this process and in another, and may go on when the first has ended."""
    path = tmp_path / "rows.jsonl"
    code = "from pathlib import Path; from simsched.experiments.study.store import appending\n"
    command = [sys.executable, "-c", f"{code}with appending(Path({str(path)!r})): print('open')"]
    environment = {**os.environ, "PYTHONPATH": str(Path(ss.__file__).parent.parent)}
    other = partial(subprocess.run, command, capture_output=True, text=True, env=environment)
    with appending(path):
        with pytest.raises(StudyError, match="another run is writing to it"), appending(path):
            pass
        assert "StudyError: " in (refused := other().stderr)
        assert "another run is writing to it; wait for its end, or use another folder" in refused
    assert other().stdout == "open\n"
    with appending(path):
        pass


def test_rows_that_are_refused(done, tmp_path):
    """There are 12 rows, and rows 1, 5 and 9 are of lios. Of inf, nan and 1e301 there are no means and deviations."""
    fields = (
        {"index": "1"},
        {"index": -1},
        {"index": True},
        {"key": 1},
        {"scheduler": None},
        {"status": "good"},
        {"makespan_us": "1"},
        {"makespan_us": math.inf},
        {"speedup": math.nan},
        {"wall.row_s": [1]},
        {"wall.row_s": 1e301},
        {"reason": ...},
    )
    none = ["nonsense\n", "[1]\n", "[" * 100_000 + "\n", '{"index": 1}\n', *(changed(done, 1, **f) for f in fields)]
    signed = json.dumps({**json.loads(lines(done)[1]), "makespan_us": 9.0}) + "\n"
    other = changed(done, 1, makespan_us=9.0)
    for n, texts, message in [
        (2, none, r"rows\.jsonl: line 3 is not as it was written; delete the line, then"),
        (1, [signed], r"rows\.jsonl: line 2 is not as it was written"),
        (12, [other], r"row 1 \(lios\) stands twice, with different results"),
    ]:
        for text in texts:
            with pytest.raises((FormatError, StudyError), match=message):
                Results.open(copied(done, tmp_path, n, text))


def test_rows_are_placed_by_what_they_are_of(done, tmp_path):
    """Not by their number, which changes when a study grows; what the study does not name is left over."""
    for index in (2, 12):
        folder = copied(done, tmp_path, 1, changed(done, 1, index=index))
        assert [row["index"] for row in Results.open(folder).rows] == [0, 1]
    found = Results.open(copied(done, tmp_path, 1, changed(done, 1, scheduler="heft")))
    assert [len(found.rows), len(found.others)] == [1, 1]


def test_rows_that_stand_twice(done, tmp_path):
    """Alike but for wall times one counts once, and one that came to its end takes the place of one that did not."""
    folder = copied(done, tmp_path, 12, changed(done, 1, **{"wall.row_s": 9.0}))
    (folder / "rows.shard-1-of-2.jsonl").write_text(changed(done, 2, status="timeout", key="x"))
    assert Results.open(folder).to_csv() == Results.open(done).to_csv()


def test_rows_that_cannot_be_written_leave_nothing_behind(tmp_path, monkeypatch):
    path = tmp_path / "rows.jsonl"
    row = {"key": "a", "unit": "u", "scheduler": "lios", "status": "ok", "reason": None}
    with appending(path) as append:
        append([{"index": 0, **row}])
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
            with pytest.raises(FileError, match=r"cannot write .*: No space left on device"):
                append([{"index": 1, **row}])
        append([{"index": 2, **row}])
    assert [row["index"] for row in read_rows(path)] == [0, 2]


def test_retry_runs_what_has_no_result_and_nothing_else(tmp_path):
    whole = study("lios", "study_cases:fails", {"scheduler": "lios", "streams": 0})
    assert [row["status"] for row in ran(tmp_path, whole).rows] == ["ok", "failed", "refused"]
    first = lines(tmp_path)
    assert len(ran(tmp_path, whole).rows) == 3
    assert lines(tmp_path) == first
    again = ran(tmp_path, whole, retry=True).rows
    assert lines(tmp_path)[:3] == first
    last = [json.loads(line) for line in lines(tmp_path)[3:]]
    assert [(row["index"], row["wall.row_s"]) for row in last] == [(i, again[i]["wall.row_s"]) for i in (1, 2)]


def test_a_file_of_the_study_that_changes(tmp_path):
    """Rows are run again; the new ones count."""
    whole = study(workload={"kind": "net.json"}, folder=str(tmp_path))
    fork("net", seed=0).save(str(tmp_path / "net.json"))
    assert ran(tmp_path / "rows", whole, load=workloads.load_kind).rows[0]["makespan_us"] == 70.0
    fork("net", seed=0, width=2).save(str(tmp_path / "net.json"))
    again = ran(tmp_path / "rows", whole, load=workloads.load_kind)
    assert [row["makespan_us"] for row in again.rows] == [50.0, 30.0]
    assert len(lines(tmp_path / "rows")) == 4


@pytest.mark.parametrize("n", [2, 5])
def test_shards_merged(done, tmp_path, n):
    """Into folders of their own or into one, by processes or not, with units for each or without: the same rows."""
    for i in range(1, n + 1):
        ran(tmp_path / "one", shard=(i, n), executor="processes", workers=2)
        ran(tmp_path / f"own{i}", shard=f"{i}/{n}")
    assert 0 < len(Results.open(tmp_path / "own1").rows) < 12
    expected = Results.open(done).to_csv()
    assert Results.open(tmp_path / "one").to_csv() == expected
    assert merge([tmp_path / "one"], tmp_path / "one").to_csv() == expected
    assert merge([tmp_path / f"own{i}" for i in range(1, n + 1)], tmp_path / "all").to_csv() == expected
    assert len(lines(tmp_path / "one")) == len(lines(tmp_path / "all")) == 12
    merge([tmp_path / "all", tmp_path / "own1"], tmp_path / "all")
    assert len(lines(tmp_path / "all")) == 12


def test_rows_of_shards_are_not_run_again(tmp_path):
    ran(tmp_path, shard=(1, 3))
    ran(tmp_path)
    assert len(lines(tmp_path, "rows.shard-1-of-3.jsonl")) == 4
    assert len(lines(tmp_path)) == 8


def test_what_cannot_be_merged(done, tmp_path):
    ran(tmp_path / "other", study("lios", seed=1))
    wrong = copied(done, tmp_path / "wrong", 0, changed(done, 0, syncs=99))
    for folders, out, message in [
        (
            [done, tmp_path / "other"],
            tmp_path / "all",
            "other/study.json: cannot be joined with .*: 'seed' is 1, not 0",
        ),
        ([done, wrong], tmp_path / "all", r"row 0 \(sequential\) stands twice, with different"),
        ([], tmp_path / "all", "there are no folders to merge"),
    ]:
        with pytest.raises(StudyError, match=message):
            merge(folders, out)


def test_shards_are_counted_from_one_or_from_nought(tmp_path):
    """Parts 1, 2 and 3 of 3 are parts 1, 2 and 0: a batch system counts as it likes."""
    found = [ran(tmp_path / str(i), shard=part) for i, part in enumerate(("0/3", "3/3", (3, 3)))]
    assert len({tuple(row["index"] for row in results.rows) for results in found}) == 1
    assert all((results.folder / "rows.shard-3-of-3.jsonl").exists() for results in found)


def test_shards_that_are_none(tmp_path):
    for shard in ("-1/3", "4/3", "x", "1", (1, 0), (0, 0), (3, 2), "1/2/3"):
        with pytest.raises(StudyError, match="a shard is i/n, part i of n with i from 1 to n, not "):
            ran(tmp_path, shard=shard)


def test_what_is_refused_before_any_row_runs(tmp_path):
    checked = {"load": workloads.load_kind, "check": workloads.check_kind}
    for fields, message in [
        ({"workload": {"kind": ["layered", "layred"]}}, r"study: \[workload\]: unknown workload 'layred'"),
        ({"workload": {"kind": "layered", "n_op": 3}}, "has no parameter 'n_op'; known are: n_ops"),
        ({"workload": {"kind": "layered", "time": "5"}}, "time must be a range low:high, not '5'"),
        ({"workload": {"kind": "none.onnx"}}, r"study: \[workload\]: there is no file .*none\.onnx"),
        ({"cluster": {"file": "none.json"}}, r"study: \[cluster\]: cannot read .*none\.json"),
        ({"cluster": {"gpu": "a40", "device": {"lunch": 0.0}}}, r"\[cluster\]: Device has no field 'lunch'; known"),
        ({"cluster": {"gpu": "a40", "device": {"launch": "x"}}}, r"\[cluster\]: "),
    ]:
        with pytest.raises(StudyError, match=message):
            ran(tmp_path / "none", study("lios", **fields), **checked)
    with pytest.raises(StudyError, match=r"^study: cannot import scheduler 'nowhere:at_all'"):
        ran(tmp_path / "none", study("lios", "nowhere:at_all"))
    assert not (tmp_path / "none").exists()


def test_kinds(tmp_path):
    expected = workloads.random_layered(20, 4, time=(1.0, 2.0), utilization=None, rng=3)
    for time in ("1:2", (1.0, 2.0)):
        assert workloads.load_kind("layered", n_ops=20, n_layers=4, time=time, utilization="none", seed=3) == expected
    assert workloads.load_kind("random:layered", seed=1) == workloads.load("random:layered", seed=1)
    assert workloads.load_kind("squeezenet", seed=1, batch=2) == workloads.load("squeezenet", batch=2)
    graph = fork("net", seed=0)
    graph.save(str(tmp_path / "net.json"))
    assert workloads.load_kind(str(tmp_path / "net.json"), seed=1) == graph
    for kind, parameter, message in (
        ("layred", "seed", "unknown workload 'layred'"),
        ("layered", "rng", "has no parameter 'rng'"),
        (str(tmp_path / "net.json"), "batch", "has no parameter 'batch'; known are: none"),
    ):
        for check in (workloads.load_kind, workloads.check_kind):
            with pytest.raises((GraphError, UnknownNameError), match=message):
                check(kind, **{parameter: 2})
    workloads.check_kind("layered", n_ops=-1)  # only names and texts are looked at


def test_what_a_killed_run_left_is_cleared_by_the_next(tmp_path):
    """Also where the run has nothing to write."""
    for name in ("study.json", "rows.csv", "rows.parquet"):
        (tmp_path / f".{name}.0123abcd").write_text("half")
    prepare(STUDY, tmp_path, "1")
    assert [path.name for path in tmp_path.iterdir()] == ["study.json"]
    (tmp_path / ".study.json.0123abcd").write_text("half")
    prepare(STUDY, tmp_path, "1")
    assert [path.name for path in tmp_path.iterdir()] == ["study.json"]
