"""The scatter plot and the two traces above each other."""

import pytest
from hidden_backend import HiddenBackend
from matplotlib.colors import to_hex

import simsched as ss
import workloads
from simsched.base.errors import BackendError
from simsched.experiments.accuracy import Accuracy, Outcome, Round
from simsched.model.backend import prepared
from simsched.show.looks import looks_of


def accuracy(*rows):
    return Accuracy("net", "hidden", "Hidden A100", {}, 0, (Round.of(rows),), None, {})


def outcome(name, predicted, measured, held_out=True):
    return Outcome(name, predicted, measured, 0.9 * measured, 1.1 * measured, 1.0, 1.0, held_out=held_out)


def marks(ax):
    """Colour of each mark that the legend names."""
    return {line.get_label(): line for line in ax.get_lines() if not line.get_label().startswith("_")}


def test_a_mark_for_each_schedule_in_the_colour_of_its_scheduler():
    """All at random share a mark; hollow is what a fit has seen."""
    rows = [outcome("sequential", 20.0, 22.0), outcome("greedy", 10.0, 9.0), outcome("heft", 11.0, 9.0, held_out=False),
            outcome("random-1", 12.0, 12.0), outcome("random-2", 13.0, 12.0), Outcome("ios", reason="no")]  # fmt: skip
    ax = accuracy(*rows).plot()
    found = marks(ax)
    assert list(found) == ["predicted = measured", "sequential", "greedy", "heft", "random"]
    looks = looks_of(["sequential", "greedy", "heft", "random"])
    colours = {name: to_hex(line.get_markeredgecolor() if name == "heft" else line.get_color()).upper()
               for name, line in found.items() if name in looks}  # fmt: skip
    assert colours == {name: look.colour for name, look in looks.items()}
    assert found["heft"].get_color() == "none"
    assert (found["sequential"].get_xdata()[0], found["sequential"].get_ydata()[0]) == (22.0, 20.0)
    assert len([line for line in ax.get_lines() if line.get_label() == "random"]) == 2
    assert ax.get_xlabel() == "measured makespan (us)"
    assert ax.get_xlim() == ax.get_ylim()
    assert "net on hidden, round 1" in ax.get_title(loc="left")


def test_nothing_measured_is_not_drawn():
    with pytest.raises(BackendError, match="nothing was measured"):
        accuracy(Outcome("ios", reason="no")).plot()


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_the_scatter_plot_is_written_the_same_each_time(tmp_path, suffix):
    found = accuracy(outcome("lios", 1000.0, 1100.0), outcome("heft", 1200.0, 1300.0))
    paths = [tmp_path / f"{i}.{suffix}" for i in range(2)]
    for path in paths:
        found.plot(path)
    assert paths[0].read_bytes() == paths[1].read_bytes()


@pytest.fixture(scope="module")
def both():
    graph = workloads.random_layered(n_ops=10, n_layers=3, rng=0)
    backend = HiddenBackend()
    plan = ss.schedule(backend.realise(graph), backend.cluster, "heft")
    program = prepared(backend, plan)
    return ss.simulate(program, backend.cluster), backend.replay(program, repeats=3)


def test_measured_rows_stand_below_simulated_ones(both):
    """The measured run takes 1.1 to 1.6 times as long; the axis goes to its end, and a line stands at either."""
    simulated, measured = both
    ax = simulated.gantt(measured=measured.trace)
    assert measured.trace.makespan > simulated.makespan
    names = [text.get_text() for text in ax.get_yticklabels()]
    assert [name.rpartition(" ")[2] for name in names] == ["simulated", "measured"] * (len(names) // 2)
    ends = [1e3 * line.get_xdata()[0] for line in ax.lines]  # on an axis in ms
    assert ends == pytest.approx([simulated.makespan, measured.trace.makespan])
    last = max(path.vertices[:, 0].max() for bars in ax.collections for path in bars.get_paths())
    assert 1e3 * last == pytest.approx(measured.trace.makespan)
    assert "synth" in [text.get_text() for text in ax.get_legend().get_texts()]


def test_names_stand_within_their_bars(both):
    ax = both[0].gantt(measured=both[1].trace)
    names = [text for text in ax.texts if text.get_text().startswith("op")]
    assert names
    boxes = [path.get_extents(ax.transData) for bars in ax.collections for path in bars.get_paths()]
    for text in names:
        extent = text.get_window_extent()
        assert any(box.x0 <= extent.x0 and extent.x1 <= box.x1 for box in boxes), text.get_text()
