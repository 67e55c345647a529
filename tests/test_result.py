"""What the results of all experiments can do: one contract, whatever was asked."""

import csv
import json
from dataclasses import replace
from io import BytesIO, StringIO

import pyarrow.parquet as pq
import pytest
from documents import CLUSTER, THINGS, accuracy, calibration, plan, replay

import simsched as ss
import workloads
from simsched.base.errors import FileError
from simsched.experiments.result import Result
from simsched.show import results
from simsched.show.report import page


def study(folder):
    """Two rows."""
    small = ss.Study("small", ["lios", "sequential"], {"kind": "layered", "n_ops": 8, "n_layers": 3}, {"gpu": "a40"})
    return ss.run_study(small, folder / "study", load=workloads.load_kind, executor="serial")


def kinds(cls=Result):
    """The name of every class of results that has no class below it."""
    return {name for below in cls.__subclasses__() for name in kinds(below)} or {cls.__name__}


NAMES = (
    "comparison",
    "whatif",
    "sweep",
    "sensitivity",
    "breakeven",
    "explanation",
    "robustness",
    "advice",
    "throughput",
    "duel",
    "overlap",
)
RESULTS = {name: lambda _, name=name: THINGS[name]() for name in NAMES} | {
    "study": study,
    "accuracy": lambda _: replace(
        accuracy(), traces={"lios": (ss.simulate(replay().program, calibration()), replay())}
    ),
    "overlap": lambda _: ss.overlap(workloads.load("tiny_inception", image_size=16), CLUSTER),
    "question": lambda _: ss.what_if(plan(), CLUSTER, reschedule=True).link(bandwidth=2.0),
}
each = pytest.mark.parametrize("name", RESULTS)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    found = {}

    def get(name):
        if name not in found:
            found[name] = RESULTS[name](tmp_path_factory.mktemp(name))
        return found[name]

    return get


def test_every_kind_is_here(made):
    """A ranking has no file of its own; `tests/study/test_rank.py` has what it can do."""
    assert {type(made(name)).__name__ for name in RESULTS} >= kinds() - {"Ranking"}  # imported when they are made


@each
def test_it_goes_to_files_and_back(name, made, tmp_path):
    """A study and a validation are folders, all else is a file; what is read says the same."""
    result = made(name)
    path = result.folder if name == "study" else tmp_path if name == "accuracy" else tmp_path / "result.json"
    result.save(path)
    back = type(result).load(path)
    assert back.records() == result.records()
    assert back.table() == result.table()
    if hasattr(result, "to_dict"):
        assert back.to_dict() == result.to_dict() == json.loads(json.dumps(result.to_dict(), allow_nan=False))


@each
def test_its_rows_are_read_by_others(name, made):
    result = made(name)
    rows = result.records()
    assert len(rows) == len(result.to_pandas()) == len(list(csv.DictReader(StringIO(result.to_csv())))) > 0
    assert json.loads(result.to_json()) == {"rows": json.loads(json.dumps(list(rows)))}
    table = pq.read_table(BytesIO(result.to_parquet()))
    assert (table.num_rows, tuple(table.column_names)) == (len(rows), tuple(result.columns))


@each
def test_it_is_seen(name, made, tmp_path):
    result = made(name)
    assert result.table().title.split("\n")[0] in result._repr_html_()
    assert "<html" in ss.write_report(result)
    if name == "study":  # several pictures, in a folder
        assert all(path.stat().st_size > 1000 for path in result.plot(tmp_path))
        return
    result.plot(tmp_path / "result.png")
    assert (tmp_path / "result.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(FileError, match="must end in one of"):
        result.plot("picture.gif")


def test_every_kind_of_result_names_its_view():
    """Charts and sections of reports are found by that name, whatever the class is called."""
    below = [Result]
    for cls in below:
        below += cls.__subclasses__()
    views = {cls.VIEW for cls in below if cls.__module__.startswith("simsched.") and "VIEW" in vars(cls)}
    assert "" in views
    assert {*results._CHARTS, *page._MAKERS, *page._HEADINGS} <= views
    leaves = [cls for cls in below if not cls.__subclasses__() and cls.__module__.startswith("simsched.")]
    assert all("VIEW" in vars(cls) for cls in leaves)


def test_a_result_under_another_name_is_shown_as_before(made):
    sweep = made("sweep")
    other = type("MakespansByFactor", (type(sweep),), {})(**vars(sweep))
    assert results.chart_of(other) == results.chart_of(sweep)
    assert [vars(part) for part in page.sections_of(other)] == [vars(part) for part in page.sections_of(sweep)]
