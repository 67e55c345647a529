"""What the fuzz campaign has found in readers: each document that was no refusal, made small."""

import json

import pytest

import simsched as ss
from simsched.base.errors import BackendError, ClusterError, FormatError
from simsched.cli.run import run
from simsched.experiments.accuracy.accuracy import Accuracy
from simsched.experiments.study import Results
from simsched.experiments.whatif import Answer
from validation import fuzz_readers


@pytest.mark.parametrize(
    ("field", "value"),
    [("makespan_us", "1e999"), ("speedup", "NaN"), ("wall.search_s", "-Infinity"), ("wall.row_s", "1e301")],
)
def test_a_row_of_a_study_without_a_finite_number(field, value, tmp_path):
    """Means and standard deviations would be of nothing, or beyond what a float holds."""
    (study,), (rows,) = fuzz_readers.study_files(), fuzz_readers.rows()
    first, *others = rows.decode().splitlines()
    row = json.loads(first) | {field: "@"}
    del row["digest"]
    (tmp_path / "study.json").write_bytes(study)
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join([json.dumps(row).replace('"@"', value), *others, ""]))
    with pytest.raises(FormatError, match=r"rows\.jsonl: line 1 is no row of a study"):
        Results.open(tmp_path)
    path.write_text("\n".join([json.dumps(row).replace('"@"', "1e300"), *others, ""]))
    found = Results.open(tmp_path)
    assert len(found) == found.table().row_count * 2


@pytest.mark.parametrize("command", [["status"], ["table"], ["plot"], ["resume"], ["merge", "-o", "t"]])
@pytest.mark.parametrize("name", ["x" * 5000, "x" * 300 + "/y"])
def test_a_folder_with_a_name_that_is_too_long(command, name, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(["study", *command, name]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: cannot read {'x' * 300}")
    assert "File name too long" in error
    assert error.count("\n") == 1


def test_numbers_beyond_floats(tmp_path):
    """They became infinities, which some readers took and no file can hold."""
    document = ss.Cluster.preset("a100").to_dict()
    document["devices"][0]["saturating_warps"] = "@"
    path = tmp_path / "net.json"
    path.write_text(json.dumps(document).replace('"@"', "-12.5e+999"))
    with pytest.raises(FormatError, match=r"net\.json: -12\.5e\+999 is too large a number$"):
        ss.Cluster.load(path)
    path.write_text(json.dumps(document).replace('"@"', "1.7e308"))
    assert ss.Cluster.load(path).devices[0].saturating_warps == 1.7e308


def test_a_replay_of_fewer_launches_than_its_program_has():
    (content,) = fuzz_readers.replays()
    document = json.loads(content)
    del document["launches"][-1]
    with pytest.raises(BackendError, match=r"^run\.json: two: 3 launches ran, but 2 were measured$"):
        ss.Replay.from_dict(document, "run.json")


def without_links(document):
    """The document with each cluster in it torn apart."""
    return json.loads(json.dumps(document), object_hook=lambda one: one | {"links": []} if "links" in one else one)


def test_what_is_simulated_on_a_cluster_that_lacks_a_link():
    """Files are read without simulating; what asks for a trace is told why there is none."""
    (answer,), (comparison, _) = fuzz_readers.questions()["Answer"], fuzz_readers.comparisons()
    with pytest.raises(ClusterError, match="no links lead from gpu"):
        _ = Answer.from_dict(without_links(json.loads(answer)), "net.json").makespan
    document = without_links(json.loads(comparison))
    for at, name in enumerate(["gpu0", "gpu1"]):
        document["plans"]["lios"]["placements"][-at]["device"] = name
    found = ss.Comparison.from_dict(document, "net.json")
    with pytest.raises(ClusterError, match="no links lead from gpu"):
        _ = found.traces["lios"]


def test_a_row_of_a_study_that_does_not_say_why(tmp_path):
    (study,), (rows,) = fuzz_readers.study_files(), fuzz_readers.rows()
    first, *others = rows.decode().splitlines()
    row = json.loads(first)
    del row["reason"], row["digest"]
    (tmp_path / "study.json").write_bytes(study)
    (tmp_path / "rows.jsonl").write_text("\n".join([json.dumps(row), *others, ""]))
    with pytest.raises(FormatError, match=r"rows\.jsonl: line 1 is no row of a study"):
        Results.open(tmp_path)


@pytest.mark.parametrize("rounds", [[], "of nothing"])
def test_a_validation_without_a_round(rounds, tmp_path):
    (content,) = fuzz_readers.accuracies()
    document = json.loads(content)
    document["rounds"] = [document["rounds"][0] | {"schedules": []}] if rounds else []
    (tmp_path / "accuracy.json").write_text(json.dumps(document))
    with pytest.raises(BackendError, match=r"accuracy\.json: validation: rounds must"):
        Accuracy.load(tmp_path)
