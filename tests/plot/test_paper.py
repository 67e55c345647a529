"""Lines, bars, boxes, maps and power laws from plain numbers: what is drawn is what was given."""

import math
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_hex

from simsched.base.errors import StudyError
from simsched.schedulers import SCHEDULERS
from simsched.show.chart import Axis, Chart, by_name, growth, looks_of
from simsched.show.paper import HATCHES, MARKERS, draw

SERIES = {"lios": {100: [1.0, 3.0], 200: [4.0]}, "heft": {200: [2.0, 2.0], 50: [5.0, 7.0]}}


def plotted(kind, series, path=None, *, xlabel="", ylabel="", logx=None, logy=None, **more):
    """Axes with a chart; values by name alone stand one by one."""
    alone = not all(isinstance(each, dict) for each in series.values())
    chart = Chart(kind, by_name(series) if alone else series, Axis(xlabel, logx), Axis(ylabel, logy), **more)
    return draw(chart, path)


line_plot, bar_plot, box_plot = (partial(plotted, kind) for kind in ("line", "bar", "box"))
heat_map = partial(plotted, "map", reference=1.0)
scaling_plot = partial(plotted, "line", logx=True, logy=True, geometric=True)
DRAWN = {"line": line_plot, "bar": bar_plot, "box": box_plot, "map": heat_map, "scaling": scaling_plot}


def labels(ax):
    """Texts of the legend of the figure."""
    return [text.get_text() for text in ax.figure.legends[0].get_texts()]


def looks(shapes):
    """Colours of the series, and their marks or hatches."""
    return [(colour, shapes[shape]) for colour, shape in looks_of(SERIES).values()]


def places(ax, axis="x"):
    """Texts of the places on an axis."""
    return [text.get_text() for text in getattr(ax, f"get_{axis}ticklabels")()]


def medians(ax):
    """Where the lines in the boxes are."""
    return [line.get_xdata()[0] for line in ax.lines if line.get_linewidth() == 1.2]


def test_lines_are_means_and_bands_deviations():
    """Of 1 and 3: mean 2, sample deviation sqrt(2); a single 4 has none; x in order whatever order it came in."""
    ax = line_plot(SERIES, xlabel="operators", ylabel="speedup", reference=1.0)
    lines = {line.get_label(): line for line in ax.lines if line.get_marker() not in ("None", "")}
    assert lines["lios"].get_xydata().tolist() == [[100.0, 2.0], [200.0, 4.0]]
    assert lines["heft"].get_xydata().tolist() == [[50.0, 6.0], [200.0, 2.0]]
    band = ax.collections[0].get_paths()[0].vertices
    assert band[:, 1].min() == pytest.approx(2 - math.sqrt(2))
    assert {round(y, 9) for x, y in band if x == 200.0} == {4.0}
    assert labels(ax) == ["lios", "heft"]
    assert [(to_hex(line.get_color()).upper(), line.get_marker()) for line in lines.values()] == looks(MARKERS)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("operators", "speedup")


def test_a_band_stays_on_a_logarithmic_axis():
    """Of 1 and 9: 5 +- 5.66 would pass 0; the band ends at 1."""
    ax = line_plot({"lios": {1: [1.0, 9.0], 10: [5.0, 5.0]}}, logx=True, logy=True)
    assert ax.collections[0].get_paths()[0].vertices[:, 1].min() == 1.0
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")


def test_categories_stand_side_by_side():
    ax = line_plot({"a": {"x": 1.0, "y": 2.0}, "b": {"z": 3.0, "x": 1.0}}, logx=True)
    assert places(ax) == ["x", "y", "z"]
    assert ax.get_xscale() == "linear"
    assert list(ax.lines[1].get_xdata()) == [0, 2]


def test_bars_in_groups():
    """A place of one is at most 0.6 wide; two share 0.84 around their category."""
    ax = bar_plot(SERIES, ylabel="speedup")
    assert places(ax, "y") == ["50", "100", "200"]
    bars = [bar for container in ax.containers if hasattr(container, "patches") for bar in container.patches]
    assert [bar.get_width() for bar in bars] == [2.0, 4.0, 6.0, 2.0]
    assert [bar.get_y() + bar.get_height() / 2 for bar in bars] == pytest.approx([0.79, 1.79, 0.21, 2.21])
    assert [(to_hex(bar.get_facecolor()).upper(), bar.get_hatch() or "") for bar in bars[::2]] == looks(HATCHES)
    assert labels(ax) == ["lios", "heft"]


def test_bars_alone():
    ax = bar_plot({"lios": [1.0, 3.0], "heft": 4.0})
    assert places(ax, "y") == ["lios", "heft"]
    assert [bar.get_width() for bar in ax.patches] == [2.0, 4.0]
    assert labels(ax) == []
    (bars,) = ax.collections  # the error, sqrt(2)
    assert bars.get_segments()[0][:, 0].tolist() == pytest.approx([2 - math.sqrt(2), 2 + math.sqrt(2)])


def test_boxes_of_plain_values():
    """In groups, and one by one."""
    ax = box_plot({"lios": {1: [1.0, 2.0, 3.0], 2: [5.0]}, "heft": {1: [4e4]}}, ylabel="speedup", reference=1.0)
    assert (len(ax.patches), ax.get_xlabel(), labels(ax)) == (3, "speedup", ["lios", "heft"])
    assert medians(ax) == [2.0, 5.0, 4e4]
    alone = box_plot({"lios": [1.0, 2.0], "heft": [1e6]}, ylabel="speedup", logy=True, note="small print")
    assert (len(alone.figure.axes), alone.get_xscale()) == (1, "log")


def test_boxes_whiskers_and_outliers():
    """Of 1 to 9 and 40: quartiles 3.25 and 7.75, whiskers at 1 and 9, and a point at 40."""
    ax = box_plot({"lios": [*range(1, 10), 40.0]})
    (box,) = ax.patches
    assert (sorted(set(box.get_path().vertices[:, 0])), medians(ax)) == ([3.25, 7.75], [5.5])
    assert {x for line in ax.lines if line.get_linewidth() == 0.7 for x in line.get_xdata()} == {1.0, 3.25, 7.75, 9.0}
    assert [list(line.get_xdata()) for line in ax.lines if line.get_marker() == "o"] == [[40.0]]


def test_names_are_legible():
    """Beside boxes on several lines; below lines level where they fit, else slanted; nothing of them is lost."""
    names = [*SCHEDULERS, "my_package.my_module:round_robin_by_depth", "x" * 50, "of some words", "$\\x$", *"abcdefgh"]
    beside = box_plot(dict.fromkeys(names, np.arange(5.0))).get_yticklabels()
    below = line_plot({"lios": dict.fromkeys(names, 1.0)}).get_xticklabels()
    for labels in (beside, below):
        assert [label.get_text().replace("\n", "") for label in labels] == names
        assert all(len(line) <= 22 for label in labels for line in label.get_text().split("\n"))
    assert {label.get_rotation() for label in below} == {40.0}
    few = line_plot({"lios": dict.fromkeys(["round-robin", "lios", "greedy"], 1.0)}).get_xticklabels()
    assert [label.get_rotation() for label in few] == [0.0] * 3


def test_a_map_of_ratios():
    """Numbers grow upwards; half and twice are as far from white; the missing cell is a dash."""
    ax = heat_map({2: {100: [0.5], 200: [1.0, 1.0]}, 4: {100: 2.0}}, xlabel="operators", ylabel="GPUs", label="speedup")
    assert places(ax, "y") == ["4", "2"]
    assert places(ax) == ["100", "200"]
    assert [text.get_text() for text in ax.texts[:4]] == ["2", "-", "0.5", "1"]
    (mesh,) = ax.collections
    assert mesh.get_clim() == (0.5, 2.0)
    assert [mesh.norm(value) for value in (0.5, 1.0, 2.0)] == pytest.approx([0.0, 0.5, 1.0])
    wide = heat_map({2: {100: 2.0}}, limits=(0.25, 1.0))
    assert wide.collections[0].get_clim() == (0.25, 4.0)


def test_a_map_without_a_centre():
    ax = heat_map({"lios": {1: [-3.0]}, "heft": {1: [400.0], 2: 25.0}}, reference=None)
    assert places(ax, "y") == ["lios", "heft"]
    assert ax.collections[0].get_clim() == (-3.0, 400.0)
    assert heat_map({"lios": {1: [0.0]}}, reference=None).collections[0].get_clim() == (0.0, 1.0)


@given(st.floats(0.2, 3), st.floats(1e-6, 1e3), st.sets(st.integers(1, 10**6), min_size=3, max_size=9))
def test_a_true_power_law_is_found(exponent, factor, sizes):
    found = growth({size: np.array([factor * size ** (exponent + 1e-6)]) for size in sizes})
    assert found == (pytest.approx(exponent, abs=1e-5) if max(sizes) >= 4 * min(sizes) else None)


def test_how_well_a_law_is_known():
    """Logarithms -e, 3 / 2 + 2 e, 3 - e over 0, 1, 2: slope 3 / 2, left over -e, 2 e, -e, error sqrt(6 e^2 / 1 / 2)."""
    for e, known in ((0.086, True), (0.087, False)):  # 0.15 / sqrt(3) lies between
        found = growth({10**k: np.array([10 ** (1.5 * k + left * e)]) for k, left in enumerate((-1, 2, -1))})
        assert found == (pytest.approx(1.5) if known else None)


def test_scaling_says_the_exponents():
    """The line goes through geometric means: 2 of 1 and 4. A single size has no law."""
    ax = scaling_plot({"lios": {10: [1.0], 100: [100.0], 1000: [1e4]}, "heft": {10: [1.0, 4.0]}})
    assert labels(ax) == ["lios O(n^2.00)", "heft"]
    assert ax.lines[-1].get_xydata().tolist() == [[10.0, pytest.approx(2.0)]]


@pytest.mark.parametrize(
    "times",
    [
        {10: [1.0], 100: [100.0]},  # two sizes lie on any law
        {10: [1.0], 11: [1.1], 12: [1.2]},  # sizes that are all but one
        {10: [1.0], 100: [1.01], 1000: [0.99]},  # it does not grow
        {10: [1.0], 100: [50.0], 1000: [3.0], 10000: [700.0]},  # by no power
    ],
)
def test_growth_is_said_only_where_it_is_known(times):
    assert labels(scaling_plot({"lios": times})) == ["lios"]


@pytest.mark.parametrize(
    ("sizes", "scale"), [((50, 200, 1000), "log"), ((100, 400, 800), "linear"), ((0, 10, 1000), "linear")]
)
def test_axes_are_logarithmic_where_values_span_decades(sizes, scale):
    """More than a factor of 8 along, of 30 upwards; 0 has no logarithm; what is told counts."""
    ax = line_plot({"lios": {size: [1.0 + size] for size in sizes}})
    assert ax.get_xscale() == scale
    assert line_plot({"lios": {1: 1.0, 2: 40.0}}).get_yscale() == "log"
    assert line_plot({"lios": {1: 1.0, 2: 20.0}}).get_yscale() == "linear"
    assert line_plot({"lios": {size: [1.0] for size in (1, 1000)}}, logx=False).get_xscale() == "linear"


@pytest.mark.parametrize(("kind", "form"), [("line", "png"), ("box", "pdf"), ("map", "svg")])
def test_files_repeat_to_the_byte(tmp_path, kind, form):
    for name in ("a", "b"):
        DRAWN[kind](SERIES, tmp_path / f"{name}.{form}", title="x $ y", note="of some instances")
    assert (tmp_path / f"a.{form}").read_bytes() == (tmp_path / f"b.{form}").read_bytes()


@pytest.mark.parametrize(("kind", "columns"), [("line", 1), ("bar", 2), ("box", 1), ("map", 2), ("scaling", 1)])
def test_nothing_leaves_the_page_or_covers_the_data(kind, columns):
    ax = DRAWN[kind](SERIES, title="a title " * 20, note="a note " * 40, columns=columns)
    _fits(ax)
    assert ax.figure.get_size_inches()[0] == (3.5, 7.2)[columns - 1]


@pytest.mark.parametrize(
    ("plot", "n"),
    [(line_plot, 1), (line_plot, len(SCHEDULERS)), (bar_plot, 6), (scaling_plot, 2)],
)
def test_legends_have_room(plot, n):
    names = [*list(SCHEDULERS)[: n - 1], "some_package.some_module:a_scheduler_of_a_long_name"]
    ax = plot({name: {x: [x, x + i] for x in (1, 2)} for i, name in enumerate(names, 1)})
    _fits(ax)
    assert all(text.replace("\n", "").startswith(name) for text, name in zip(labels(ax), names, strict=True))


def _fits(ax):
    """All within the page, the legend below the axes, the axes no stripe."""
    figure = ax.figure
    figure.draw_without_rendering()
    page = figure.bbox
    for box in (ax.get_tightbbox(), *(legend.get_window_extent() for legend in figure.legends)):
        assert min(box.x0, box.y0, page.x1 - box.x1, page.y1 - box.y1) >= -1
    for legend in figure.legends:
        assert legend.get_window_extent().y1 <= ax.get_tightbbox().y0 + 1
    assert min(ax.get_window_extent().height / 0.7, ax.get_window_extent().width / 0.5) > figure.dpi


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: line_plot({}), "nothing to draw"),
        (lambda: line_plot({"lios": {0: [1.0]}}, logx=True), "no place for 0 of the x axis"),
        (lambda: bar_plot({"lios": {1: [-1.0]}}, logy=True), "no place for -1 of 'lios' at 1: draw it on a linear one"),
        (lambda: scaling_plot({"lios": {"x": [1.0]}}), "sizes, which must be numbers"),
    ],
)
def test_refused(call, message):
    with pytest.raises(StudyError, match=message):
        call()


@pytest.mark.parametrize(
    ("places", "log"),
    [
        ([4.0, 352694274.7, 765435171.0], True),
        ([100.0, 200.0, 1000.0, 100000.0], False),
        ([0.00001, 0.5, 0.51, 1.0], False),
        ([7.0], True),
    ],
)
def test_numbers_at_axes_do_not_overlap(places, log):
    ax = line_plot({"lios": {x: [1.0, 2.0] for x in places}}, logx=log)
    ax.figure.draw_without_rendering()
    shown = [text for text in ax.get_xticklabels() if text.get_text()]
    boxes = [text.get_window_extent() for text in shown if ax.bbox.x0 - 1 <= text.get_window_extent().x1]
    assert len(boxes) >= min(2, len(places))
    within = [box for box in boxes if ax.bbox.x0 - 1 <= (box.x0 + box.x1) / 2 <= ax.bbox.x1 + 1]
    assert all(left.x1 <= right.x0 + 0.5 for left, right in pairwise(within))
