"""Figures of a study's rows: which columns, what is left out and said so, and which figures suit a study."""

import logging

import pytest

from simsched.base.errors import FileError, StudyError
from simsched.experiments.study.columns import column_of
from simsched.show.chart import Axis
from simsched.show.paper import draw
from simsched.show.study import charts_of, check_figures, default_figures, draw_study, in_units, pick


def row(scheduler, seed=0, *, ops=100, gpus=2, status="ok", **more):
    """A row as a study writes it."""
    found = {
        "status": status,
        "workload.kind": "layered",
        "workload.n_ops": ops,
        "cluster.gpus": gpus,
        "seed": seed,
        "scheduler": scheduler,
        "ops": ops,
        "reason": None,
    }
    if status == "ok":
        found |= {"makespan_us": 2000.0, "speedup": 2.0, "wall.search_s": 0.01 * ops}
    return found | more


def grid(schedulers=("sequential", "lios"), ops=(100, 200), gpus=(2,), seeds=2, **more):
    return [row(s, seed, ops=n, gpus=g, **more) for n in ops for seed in range(seeds) for g in gpus for s in schedulers]


def values(chart):
    return {name: {x: row.tolist() for x, row in given.items()} for name, given in chart.series.items()}


def test_names_of_columns():
    rows = [*grid(), {"option.w": 2, "search.states": 4}]
    names = ("workload.n_ops", "n_ops", "gpus", "makespan", "search", "states")
    columns = ["workload.n_ops", "workload.n_ops", "cluster.gpus", "makespan_us", "wall.search_s", "search.states"]
    assert [column_of(name, rows, "f") for name in names] == columns


def test_units_by_size():
    for column, largest, unit, label in (
        ("makespan_us", 2500.0, 1e3, "makespan (ms)"),
        ("makespan_us", 25.0, 1.0, "makespan (us)"),
        ("p99_us", 3e6, 1e6, "makespan, 99th percentile (s)"),
        ("speedup", 3.0, 1.0, "speedup over one stream captured"),
        ("peak_memory_bytes", 3 * 2.0**20, 2.0**20, "peak memory (MiB)"),
        ("search.dp_states", 3.0, 1.0, "dp states"),
    ):
        assert in_units(column, largest) == (unit, label)


def test_rows_without_a_result_are_counted():
    """Of 10 rows of 2 schedulers on 2 sizes one failed, one ran out of time, and a third has no baseline."""
    rows = [*grid(), row("lios", 3, status="failed"), row("late", 3, status="timeout")]
    rows[1] = row("lios", 0, speedup=None)  # it stays where it was
    found, of, left_out = pick(rows, "workload.n_ops", "speedup", "scheduler", ["workload.n_ops"])
    assert found == {"sequential": {100: [2.0, 2.0], 200: [2.0, 2.0]}, "lios": {100: [2.0], 200: [2.0, 2.0]}}
    assert left_out == "3 of 10 rows left out: 1 without speedup over one stream captured, 1 failed, 1 timeout"
    assert of == "1 to 2 instances a point"


def test_what_is_averaged_over_is_said():
    rows = grid(gpus=(2, 4))
    swept = ["workload.n_ops", "cluster.gpus", "option.w"]
    many = grid(ops=tuple(range(1, 8)), seeds=1)
    for given, x, by, only, of in (
        (rows, "workload.n_ops", "scheduler", None, "4 values a point: instances, and GPUs 2, 4"),
        (rows, "workload.n_ops", "cluster.gpus", "lios", "2 instances a point"),
        (many, None, "scheduler", None, "7 values a point: instances, and 7 values of operators"),
        (rows[:1], None, "scheduler", None, "one instance a point"),
    ):
        assert pick(given, x, "speedup", by, swept, scheduler=only)[1] == of


def test_filters():
    """Two sizes and two instances on four GPUs; two of each of the first instance."""
    rows = grid(("lios", "hios-lp w=2", "hios-lp w=4"), gpus=(2, 4))

    def drawn(**table):
        ((_, chart),) = charts_of(rows, [{"kind": "bar"} | table], [])
        return values(chart)

    assert drawn(y="gpus", where={"gpus": 4})["lios"] == {None: [4.0] * 4}
    assert drawn(y="seed", where={"gpus": [2, 4], "seed": 0})["lios"] == {None: [0.0] * 4}
    assert list(drawn(schedulers=["hios-lp", "lios"])) == ["hios-lp w=2", "hios-lp w=4", "lios"]
    assert list(drawn(schedulers=["hios-lp w=4"])) == ["hios-lp w=4"]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({}, r"\[\[figure\]\] 1: field 'kind' is missing"),
        ({"kind": "pie"}, r"\[\[figure\]\] 1: .*kind must be one of line, .*, not 'pie'"),
        ({"kind": "line"}, "x is missing; it is a column"),
        ({"kind": "bar", "color": "red"}, "unknown field 'color'; known are: kind, x, y"),
        ({"kind": "bar", "y": 3}, "y must be"),
        ({"kind": "bar", "columns": 3}, r"columns must be .* from 1 to 2"),
        ({"kind": "bar", "scale": 0}, "scale must be finite and positive"),
        ({"kind": "bar", "schedulers": []}, "schedulers must not be empty"),
        ("bar", "expected an object"),
    ],
)
def test_tables_that_are_no_figures(table, message):
    with pytest.raises(StudyError, match=f"^study.toml: .*{message}"):
        check_figures([table], "study.toml")


N_OPS, GPUS = "workload.n_ops", "cluster.gpus"
SUITABLE = {
    "one point": (grid(ops=(100,)), [], "bar:speedup"),
    "no baseline": (grid(ops=(100,), speedup=None), ["seed"], "bar:makespan"),
    "no result": ([row("lios", status="failed")], [], ""),
    "names": ([row("lios", **{"workload.kind": kind}) for kind in "ab"], ["workload.kind"], "bar:speedup-kind"),
    "a number": (grid(), [N_OPS], "line:speedup-n_ops search-time:search-time"),
    # a line over each, for each value of the other, a map of both, and the search time
    "two numbers": (
        grid(gpus=(2, 4, 8)),
        [N_OPS, GPUS, "option.w"],
        """
        line:speedup-n_ops-gpus=2 line:speedup-n_ops-gpus=4 line:speedup-n_ops-gpus=8 line:speedup-gpus-n_ops=100
        line:speedup-gpus-n_ops=200 heatmap:speedup-map search-time:search-time""",
    ),
    # two sweeps that meet in one point: one line over each, at the value that the other keeps, and no map
    "a cross": (
        grid(ops=(100, 200, 300), gpus=(2,)) + grid(ops=(100,), gpus=(4, 8, 16)),
        [N_OPS, GPUS],
        "line:speedup-n_ops-gpus=2 line:speedup-gpus-n_ops=100 search-time:search-time",
    ),
    # of more than six settings one averages
    "many settings": (
        grid(gpus=tuple(range(1, 8)), seeds=1),
        [N_OPS, GPUS],
        """
        line:speedup-n_ops line:speedup-gpus-n_ops=100 line:speedup-gpus-n_ops=200 heatmap:speedup-map
        search-time:search-time""",
    ),
}


@pytest.mark.parametrize(("rows", "swept", "names"), SUITABLE.values(), ids=SUITABLE)
def test_figures_that_suit_a_study(rows, swept, names):
    assert [f"{figure.kind}:{figure.name}" for figure in default_figures(rows, swept)] == names.split()


def test_what_figures_that_suit_a_study_show():
    """Over a wide range the axis is logarithmic; lists of options are names."""
    found = default_figures(grid(gpus=(2, 4, 8)), [N_OPS, GPUS])
    assert (found[0].x, found[0].where, found[0].title) == (N_OPS, {GPUS: 2}, "GPUs = 2")
    assert (found[-2].x, found[-2].by, found[-2].schedulers) == (N_OPS, GPUS, ("lios",))
    assert (found[-1].x, found[-1].y) == ("ops", "wall.search_s")
    charts = [charts_of(grid(ops=ops), [], [N_OPS])[0][1] for ops in ((100, 200), (100, 3000))]
    assert [chart.x.log for chart in charts] == [False, True]
    rows = [row("ios", **{"option.rules": rules}) for rules in (["R2"], ["R2", "R3"])]
    ((_, chart),) = charts_of(rows, [{"kind": "bar", "x": "rules"}], [])
    assert values(chart) == {"ios": {"['R2']": [2.0], "['R2', 'R3']": [2.0]}}


def test_a_line_of_a_study():
    """Makespans of 2000 us are 2 ms; the note says of what the points are means, and what is missing."""
    rows = [*grid(), row("lios", 2, status="timeout")]
    table = {"kind": "line", "x": "n_ops", "y": "makespan", "title": "T", "logx": True}
    ((name, chart),) = charts_of(rows, [table], ["workload.n_ops"])
    assert (name, chart.kind) == ("line-makespan-n_ops", "line")
    assert values(chart) == {s: {100: [2.0, 2.0], 200: [2.0, 2.0]} for s in ("sequential", "lios")}
    assert (chart.x, chart.y, chart.title) == (Axis("operators", True), Axis("makespan (ms)"), "T")
    assert (chart.reference, chart.columns) == (None, 1)
    assert chart.note == "mean and standard deviation of 2 instances a point; 1 of 9 rows left out: 1 timeout"


def test_what_a_scheduler_does_not_tell_apart_is_drawn_for_each():
    table = {"kind": "line", "x": "gpus", "by": "n_ops", "name": "mine", "title": "T"}
    charts = charts_of(grid(("lios", "hios-lp w=2"), gpus=(2, 4)), [table], [])
    assert [name for name, _ in charts] == ["mine-lios", "mine-hios-lp-w=2"]
    assert [chart.title for _, chart in charts] == ["T\nlios", "T\nhios-lp w=2"]
    assert list(charts[0][1].series) == ["operators = 100", "operators = 200"]
    assert charts[0][1].reference == 1.0


def test_maps_have_their_colours_in_common():
    rows = [row("sequential"), row("lios", speedup=0.5), row("lios", gpus=4), row("heft", speedup=4.0)]
    table = {"kind": "heatmap", "x": "n_ops", "by": "gpus", "schedulers": ["lios", "heft"]}
    (_, lios), (_, heft) = charts_of(rows, [table], [])
    assert values(lios) == {2: {100: [0.5]}, 4: {100: [2.0]}}
    assert values(heft) == {2: {100: [4.0]}}
    assert lios.limits == heft.limits == (0.5, 4.0)
    assert (lios.reference, lios.x.label, lios.y.label) == (1.0, "operators", "GPUs")
    assert lios.label == "speedup over one stream captured"
    ((_, chart),) = charts_of(rows, [{"kind": "heatmap", "x": "n_ops", "y": "makespan"}], [])
    assert (chart.y.label, chart.reference) == ("", None)


def test_bars_and_boxes_without_x(tmp_path):
    """By scheduler alone; scaled and as wide as told."""
    rows = grid(tuple(f"s{i}" for i in range(17)), ops=(100,), seeds=1)
    scaled = {"kind": "bar", "scale": 10, "ylabel": "tenths", "logy": True}
    (_, bars), (_, boxes) = charts_of(rows, [scaled, {"kind": "box", "columns": 2}], [])
    assert values(bars)["s3"] == {None: pytest.approx([20.0])}
    assert values(boxes)["s3"] == {None: [2.0]}
    assert (bars.y, bars.reference, bars.note) == (Axis("tenths", True), None, "one instance a point")
    assert (boxes.reference, boxes.columns, boxes.x.label) == (1.0, 2, "")
    assert draw(bars).figure.get_size_inches()[0] < 4 < draw(boxes).figure.get_size_inches()[0]


def test_search_times():
    ((_, chart),) = charts_of(grid(), [{"kind": "search-time", "schedulers": ["lios"]}], [])
    assert (chart.kind, chart.geometric, values(chart)) == ("line", True, {"lios": {100: [1.0, 1.0], 200: [2.0, 2.0]}})
    assert chart.y == Axis("search time (s)", True)


def test_names_of_files_differ(tmp_path):
    """Whatever they are called, they lie in the folder."""
    tables = [{"kind": "bar"}, {"kind": "bar", "where": {"n_ops": 100}}, {"kind": "bar", "name": "../x"}]
    paths = draw_study(grid(), tables, [], tmp_path / "a" / "b")
    assert [path.name for path in paths] == ["bar-speedup.png", "bar-speedup-2.png", "..-x.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)


def test_a_scheduler_without_a_result_is_logged(caplog):
    rows = [*grid(("lios",)), row("heft", status="refused")]
    with caplog.at_level(logging.WARNING):
        charts = charts_of(rows, [{"kind": "line", "x": "n_ops", "by": "gpus"}], [])
    assert [name for name, _ in charts] == ["line-speedup-n_ops-lios"]
    assert "figure 1: nothing to draw of heft: 1 of 1 rows left out: 1 refused" in caplog.text


@pytest.mark.parametrize(
    ("rows", "table", "message"),
    [
        ([], {}, "the study has no rows yet; run it first"),
        (
            [row("lios", status="failed", speedup=None)],
            {"y": "speedup", "name": "b"},
            "there is nothing to draw: 1 of 1 rows left out: 1 failed",
        ),
        (grid(), {"y": "speed"}, r"unknown column 'speed'; known are: status, .*cluster\.gpus"),
        ([row("lios", **{f"column{i}": 0 for i in range(40)})], {"y": "column41"}, ".*closest of 51 known: column4"),
        (grid(**{"option.n_ops": 3}), {"y": "n_ops"}, r"'n_ops' may be workload\.n_ops or option\.n_ops: write the"),
        (grid(gpus=(2, 4)), {"where": {"gpus": 8}}, r"no row is left with cluster\.gpus = 8; there are: 2, 4"),
        (grid(("lios", "hios-lp w=2")), {"schedulers": ["hios"]}, "no row is of scheduler 'hios'; there are: lios, h"),
        (grid(speedup=-1.0), {"logy": True}, "a logarithmic axis has no place for -1"),
        (grid(), {"y": "kind"}, "column workload.kind holds 'layered', which is no number"),
    ],
)
def test_figures_that_cannot_be_drawn(rows, table, message, tmp_path):
    with pytest.raises(StudyError, match=f"^figure (1|'b'): {message}"):
        draw_study(rows, [{"kind": "bar"} | table], [], tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_where_nothing_can_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StudyError, match="nothing to draw: none of 1 rows has a result"):
        draw_study([row("lios", status="failed")], [], [], tmp_path)
    with pytest.raises(FileError, match="cannot make folder"):
        draw_study(grid(), [], [], tmp_path / "file")
    with pytest.raises(FileError, match="must end in one of"):
        draw_study(grid(), [], [], tmp_path, "gif")
