"""The scatter plot and the two traces above each other."""

import pytest
from hidden_backend import HiddenBackend
from matplotlib.colors import to_hex

import simsched as ss
import workloads
from simsched.base.errors import BackendError, FileError
from simsched.experiments.accuracy import Accuracy, Outcome, Round
from simsched.model.backend import prepared
from simsched.show.accuracy import overlaid_gantt, scatter
from simsched.show.figure import PALETTE


def accuracy(*rows):
    return Accuracy("net", "hidden", "Hidden A100", {}, 0, (Round.of(rows),), None, {})


def outcome(name, predicted, measured, held_out=True):
    return Outcome(name, predicted, measured, 0.9 * measured, 1.1 * measured, 1.0, 1.0, held_out=held_out)


def marks(ax):
    """Colour of each mark that the legend names."""
    return {line.get_label(): line for line in ax.get_lines() if not line.get_label().startswith("_")}


def test_a_mark_for_each_schedule_in_the_colour_of_its_scheduler():
    """sequential is the first of the palette, greedy the third; heft the first again, told apart by its mark."""
    rows = [outcome("sequential", 20.0, 22.0), outcome("greedy", 10.0, 9.0), outcome("heft", 11.0, 9.0, held_out=False),
            outcome("random-1", 12.0, 12.0), outcome("random-2", 13.0, 13.0), Outcome("ios", reason="no")]  # fmt: skip
    ax = scatter(accuracy(*rows))
    found = marks(ax)
    assert list(found) == ["predicted = measured", "random", "sequential", "greedy", "heft"]
    colours = {name: to_hex(line.get_markeredgecolor() if name == "heft" else line.get_color()).upper()
               for name, line in found.items()}  # fmt: skip
    assert (colours["sequential"], colours["greedy"], colours["heft"]) == (PALETTE[0], PALETTE[2], PALETTE[0])
    assert found["sequential"].get_marker() != found["heft"].get_marker()
    assert found["heft"].get_color() == "none"  # hollow: a fit has seen it
    assert (found["sequential"].get_xdata()[0], found["sequential"].get_ydata()[0]) == (22.0, 20.0)
    assert ax.get_xlabel() == "measured makespan (us)"
    assert ax.get_xlim() == ax.get_ylim()
    assert "net on hidden, round 1" in ax.get_title(loc="left")


def test_nothing_measured_is_not_drawn():
    with pytest.raises(BackendError, match="nothing was measured"):
        scatter(accuracy(Outcome("ios", reason="no")))


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_the_scatter_plot_is_written_the_same_each_time(tmp_path, suffix):
    found = accuracy(outcome("lios", 1000.0, 1100.0), outcome("heft", 1200.0, 1300.0))
    paths = [tmp_path / f"{i}.{suffix}" for i in range(2)]
    for path in paths:
        scatter(found, path)
    assert paths[0].read_bytes() == paths[1].read_bytes()


@pytest.fixture(scope="module")
def both():
    graph = workloads.random_layered(n_ops=10, n_layers=3, rng=0)
    backend = HiddenBackend()
    plan = ss.schedule(backend.realise(graph), backend.cluster, "heft")
    program = prepared(backend, plan)
    return ss.simulate(program, backend.cluster), backend.replay(program, repeats=3)


def test_both_traces_end_on_one_axis(both):
    """The measured one takes 1.1 to 1.6 times as long; both panels go to its end."""
    simulated, measured = both
    figure = overlaid_gantt(simulated, measured)
    above, below = figure.axes
    assert measured.trace.makespan > simulated.makespan
    assert above.get_xlim() == pytest.approx(below.get_xlim())
    assert above.get_title(loc="left").endswith("simulated")
    assert below.get_title(loc="left") == "measured"
    assert [text.get_text() for text in above.get_yticklabels()] == [
        text.get_text() for text in below.get_yticklabels()
    ]
    ends = [
        max(path.vertices[:, 0].max() for bars in ax.collections for path in bars.get_paths()) for ax in figure.axes
    ]
    assert ends[0] < ends[1]
    assert below.get_xlabel().startswith("time (")
    (legend,) = figure.legends
    assert "synth" in [text.get_text() for text in legend.get_texts()]


def test_names_stand_within_their_bars(both):
    """Every name of either panel is narrower than the widest bar, and those of the shorter trace are smaller."""
    figure = overlaid_gantt(*both)
    sizes = []
    for ax in figure.axes:
        names = [text for text in ax.texts if text.get_text().startswith("op")]
        assert names
        sizes.append({text.get_fontsize() for text in names})
        boxes = [path.get_extents(ax.transData) for bars in ax.collections for path in bars.get_paths()]
        for text in names:
            extent = text.get_window_extent()
            assert any(box.x0 <= extent.x0 and extent.x1 <= box.x1 for box in boxes), text.get_text()
    assert max(sizes[0]) < min(sizes[1])


def test_pictures_of_unknown_formats_are_refused(both):
    with pytest.raises(FileError, match="must end in one of"):
        overlaid_gantt(*both, "trace.jpg")
    with pytest.raises(FileError, match="must end in one of"):
        scatter(accuracy(outcome("lios", 1.0, 1.0)), "scatter")
