"""Studies that grow: parts are added, left out, renamed or reordered, code is edited; only new rows run."""

import json
import logging
import shutil
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from study_cases import fork, study

from simsched.base.errors import StudyError
from simsched.experiments.study import Results, merge, run_study
from simsched.experiments.study.code import code_of
from simsched.experiments.study.growth import Places, join_studies
from simsched.experiments.study.study import Study, points, rows_of

SMALL = {"schedulers": ["sequential", "lios"], "workload": {"kind": "fork", "width": [2, 3]}, "seeds": 2}
LP = {"scheduler": "hios-lp", "w": [2, 3]}


def of(fields):
    """The study of some fields."""
    given = {**SMALL, **fields}
    return study(*given.pop("schedulers"), **given)


def ran(folder, fields, **options):
    return run_study(of(fields), folder, **{"load": fork, "executor": "serial", **options})


def results_of(found):
    """All columns but wall times, in whatever order."""
    return [{k: v for k, v in row.items() if not k.startswith("wall.")} for row in found.rows]


@pytest.fixture
def base(tmp_path):
    """The folder of a finished study of 2 widths x 2 seeds x 2 schedulers."""
    assert ran(tmp_path / "base", {}).n_new == 8
    return tmp_path / "base"


@pytest.mark.parametrize(
    ("fields", "n_new", "left_over"),
    [
        ({"schedulers": ["sequential", "lios", "heft"]}, 4, 0),
        ({"schedulers": [LP, "lios", "sequential"]}, 8, 0),
        ({"schedulers": ["heft"]}, 4, 8),
        ({"seeds": 3}, 4, 0),
        ({"seeds": [5, 1]}, 4, 4),
        ({"workload": {"kind": "fork", "width": [4, 3, 2]}}, 4, 0),
        ({"workload": [{"kind": "other"}, {"kind": "fork", "width": [2, 3]}]}, 4, 0),
        ({"workload": {"width": [2, 3], "kind": "fork"}}, 0, 0),  # other units, the same graphs
        ({"cluster": [{"gpu": "v100"}, {"gpu": "a100", "overheads": False}]}, 8, 0),
        ({"cluster": {"overheads": False, "gpu": "a100"}}, 0, 0),
        (
            {"cluster": {"gpu": "a100", "overheads": False, "device": {"launch": 0.0}}},
            0,
            0,
        ),  # it is 0 without overheads
        ({"simulation": {"engine": ["reference", "compiled"]}}, 8, 0),
        ({"schedulers": ["sequential", {"scheduler": "lios", "label": "theirs"}]}, 0, 0),
        ({"seed": 1}, 8, 8),
        ({"schedulers": ["sequential", "lios", "heft"], "seeds": 4, "workload": {"kind": "fork", "width": [3]}}, 8, 4),
    ],
)
def test_only_new_rows_run(base, tmp_path, fields, n_new, left_over):
    """The rows are then those of a new folder, in its order, and what was written stays as it was."""
    before = (base / "rows.jsonl").read_text()
    grown = ran(base, fields)
    assert grown.n_new == n_new
    assert results_of(grown) == results_of(ran(tmp_path / "new", fields))
    assert (base / "rows.jsonl").read_text().startswith(before)
    assert len(grown.others) == left_over
    assert ran(base, fields).n_new == 0
    again = ran(base, {})
    assert again.n_new == 0
    assert len(again.rows) == 8


def test_a_folder_that_was_not_finished_grows(base):
    """Of 12 rows then 3 are there."""
    rows = base / "rows.jsonl"
    rows.write_text("".join(rows.read_text().splitlines(keepends=True)[:3]))
    assert ran(base, {"seeds": 3}).n_new == 9


def test_rows_that_are_left_over_are_said(base):
    left = ran(base, {"schedulers": ["lios"]})
    assert left.left_over == "4 more rows in the folder, of parts that the study no longer has or of code that changed"
    assert left.left_over in left.status().note
    assert ran(base, {}).left_over == ""


parts = st.fixed_dictionaries(
    {
        "schedulers": st.lists(st.sampled_from(["sequential", "lios", "heft", "etf"]), min_size=1, unique=True),
        "workload": st.lists(st.integers(1, 4), min_size=1, unique=True).map(lambda v: {"kind": "fork", "width": v}),
        "cluster": st.lists(st.sampled_from(["a40", "v100"]), min_size=1, unique=True).map(lambda v: {"gpu": v}),
        "seeds": st.lists(st.integers(0, 4), min_size=1, unique=True),
    }
)


@given(one=parts, other=parts)
def test_rows_of_one_study_in_another(one, other):
    """A row has a place in the other just if that names its workload, seed, cluster and scheduler; and it is that."""
    places, rows = Places(of(other)), rows_of(of(other))
    for row in rows_of(of(one)):
        numbers, scheduler = places.of({"unit": row.unit, **row.columns()})
        named = row.choice.label in other["schedulers"] and row.instance in other["seeds"]
        named = (
            named
            and row.workload["width"] in other["workload"]["width"]
            and row.cluster["gpu"] in other["cluster"]["gpu"]
        )
        assert len(numbers) == named
        assert [rows[number].columns() for number in numbers] == [row.columns()] * named
        assert scheduler == (row.choice.label if row.choice.label in other["schedulers"] else "")


@given(one=parts, other=parts)
def test_joined_studies(one, other):
    """All parts of both, those of the first one first, and nothing besides."""
    whole = join_studies([of(one), of(other)])
    for mine, theirs, values in (
        (one["schedulers"], other["schedulers"], [choice.label for choice in whole.choices]),
        (one["workload"]["width"], other["workload"]["width"], [point["width"] for point in points(*whole.workload)]),
        (one["cluster"]["gpu"], other["cluster"]["gpu"], [point["gpu"] for point in points(*whole.cluster)]),
        (one["seeds"], other["seeds"], list(whole.instances)),
    ):
        assert sorted(values) == sorted({*mine, *theirs})
    assert join_studies([of(one), of(one)]) == of(one)
    assert Study.from_dict(whole.to_dict()) == whole


def test_joined_options_and_nested_fields():
    """Swept options, a label, none, lists as values and tables inside come through."""
    one = of({"schedulers": [LP], "cluster": {"gpu": "a100", "device": {"launch": [0.0, 1.0]}}})
    other = of(
        {
            "schedulers": [
                {"scheduler": "hios-lp", "w": [3, 4]},
                {"scheduler": "ios", "label": "i", "r": ["none", 2]},
                {"scheduler": "autograph", "rules": [["R2", "R3"]]},
            ],
            "cluster": {"gpu": "a100", "device": {"launch": [1.0, 2.0]}, "gpus": [1, 2]},
        }
    )
    whole = join_studies([one, other])
    assert [choice.label for choice in whole.choices] == [
        "hios-lp w=2",
        "hios-lp w=3",
        "hios-lp w=4",
        "i r=none",
        "i r=2",
        "autograph rules=R2,R3",
    ]
    assert [choice.options for choice in whole.choices[3:]] == [(("r", None),), (("r", 2),), (("rules", ("R2", "R3")),)]
    found = [(point["device.launch"], point["gpus"]) for point in points(*whole.cluster)]
    assert found == [(0.0, 1), (1.0, 1), (1.0, 2), (2.0, 1), (2.0, 2)]


def test_merge_of_studies_with_added_parts(base, tmp_path):
    """4 rows of heft and 4 of a third and fourth seed; the merged study lacks those of heft on these seeds: 4."""
    ran(tmp_path / "heft", {"schedulers": ["heft"]})
    ran(tmp_path / "seeds", {"seeds": 4})
    merged = merge([base, tmp_path / "heft", tmp_path / "seeds"], tmp_path / "all")
    assert (len(merged.rows), len(merged)) == (20, 24)
    whole = {"schedulers": ["sequential", "lios", "heft"], "seeds": 4}
    rest = ran(tmp_path / "all", whole)
    assert rest.n_new == 4
    assert rest.to_csv() == ran(tmp_path / "new", whole).to_csv()
    again = merge([tmp_path / "heft"], tmp_path / "all")  # what is there is kept, and the study does not shrink
    assert again.to_csv() == rest.to_csv()


def test_left_over_rows_are_merged_too(base, tmp_path):
    ran(base, {"schedulers": ["lios"]})
    merged = merge([base], tmp_path / "all")
    assert (len(merged.rows), len(merged.others)) == (4, 4)
    assert ran(tmp_path / "all", {}).n_new == 0


# Code of one's own -------------------------------------------------------------------------------

MODULE = """
from own_helper import STREAMS
from simsched.schedulers import schedule

def first(graph, cluster, cost):
    return schedule(graph, cluster, "sequential")
"""
FIELDS = {"schedulers": ["lios", "own_scheduler:first"]}


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Write a module and what it imports, as if in a new process; called again with other texts."""
    monkeypatch.syspath_prepend(tmp_path / "code")

    def write(text=MODULE, helper="STREAMS = 1", loaded=False):
        folder = tmp_path / "code"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for name, content in (("own_scheduler", text), ("own_helper", helper), ("unrelated", "")):
            (folder / f"{name}.py").write_text(content)
            if not loaded:
                sys.modules.pop(name, None)

    yield write
    for name in ("own_scheduler", "own_helper"):
        sys.modules.pop(name, None)


def test_edited_code_is_told_and_run_again(own, tmp_path, caplog):
    """Its 4 rows, not those of lios; the module or what it imports; and those of code that comes back are there."""
    own()
    first = ran(tmp_path / "rows", FIELDS)
    assert {row.get("code") for row in first.rows} == {None, code_of("own_scheduler:first")}
    edits = [{"text": MODULE + "\n# edited\n"}, {"helper": "STREAMS = 2"}]
    for edit in edits:
        own(**edit)
        caplog.clear()
        assert ran(tmp_path / "rows", FIELDS).n_new == 4
        assert [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING] == [
            f"{tmp_path / 'rows'}: the code of scheduler 'own_scheduler:first' has changed: its rows, 4, are run again"
        ] or edit is edits[1]
    own()
    again = ran(tmp_path / "rows", FIELDS)
    assert again.n_new == 0
    assert again.to_csv() == first.to_csv()


def test_rows_of_edited_code_do_not_count_until_they_are_run(own, tmp_path):
    """Of 8 rows those of lios count, when a run was stopped before it had run the others."""
    own()
    ran(tmp_path / "rows", FIELDS)
    whole = tmp_path / "rows" / "rows.jsonl"
    text = whole.read_text()
    own(MODULE + "\n# edited\n")
    ran(tmp_path / "rows", FIELDS)
    whole.write_text(text)
    stopped = Results.open(tmp_path / "rows")
    assert [row["scheduler"] for row in stopped.rows] == ["lios"] * 4
    assert len(stopped.others) == 4


def test_rows_of_earlier_releases_are_read_and_run_again(own, tmp_path, caplog):
    """They have no code: what they are of is not known."""
    own()
    folder = tmp_path / "rows"
    ran(folder, FIELDS)
    described = json.loads((folder / "study.json").read_text())
    (folder / "study.json").write_text(json.dumps({k: v for k, v in described.items() if k != "code"}))
    rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    old = [{k: v for k, v in row.items() if k not in ("code", "digest")} for row in rows]
    old = [{**row, "key": row["key"] if "code" not in new else "old"} for row, new in zip(old, rows, strict=True)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in old))
    assert len(Results.open(folder).rows) == 8
    assert ran(folder, FIELDS).n_new == 4
    assert "the code of scheduler 'own_scheduler:first' was not recorded: its rows, 4, are run again" in caplog.text


def test_code_that_was_edited_under_a_running_process(own, tmp_path):
    own()
    ran(tmp_path / "rows", FIELDS)
    own(MODULE + "\n# edited\n", loaded=True)
    with pytest.raises(StudyError, match="was edited after this process had imported it; start Python again"):
        ran(tmp_path / "rows", FIELDS)


def test_other_code_is_not_merged(own, tmp_path):
    for name, helper in (("one", "STREAMS = 1"), ("two", "STREAMS = 2")):
        own(helper=helper)
        ran(tmp_path / name, FIELDS)
    with pytest.raises(StudyError, match="two: rows of 'own_scheduler:first' are of other code"):
        merge([tmp_path / "one", tmp_path / "two"], tmp_path / "all")


def test_what_belongs_to_code(tmp_path, monkeypatch):
    """The module, what it imports nearby, and so on, in functions too; no more, and nothing of this library."""
    package = tmp_path / "own_package"
    (package / "inner").mkdir(parents=True)
    files = {
        "__init__.py": "VALUE = 1",
        "inner/__init__.py": "",
        "unused.py": "",
        "deep.py": "",
        "last.py": "",
        "start.py": "from .inner import part\ndef first(graph, cluster, cost):\n from own_package import deep",
        "inner/part.py": "from .. import last",
    }
    for name, text in files.items():
        (package / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    known = code_of("own_package.start:first")
    for name in files:
        (package / name).write_text(files[name] + "\n#\n")
        is_part = name in ("start.py", "inner/part.py", "deep.py", "last.py")
        assert (code_of("own_package.start:first") != known) == is_part, name
        (package / name).write_text(files[name])
    assert code_of("lios") is code_of("simsched.schedulers.lios:lios") is None
