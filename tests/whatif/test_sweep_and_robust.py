"""Makespans over one parameter or two, and under operator times that vary; documents whose parts do not fit."""

import numpy as np
import pytest
from documents import asked, document
from small import made, placements

import simsched as ss
from simsched.base.errors import SimschedError
from simsched.experiments.documents import DOCUMENTS
from simsched.experiments.rows import Sampling
from simsched.experiments.whatif.robust import Robustness, robust
from simsched.experiments.whatif.whatif import sweep, what_if

BARE = ss.Cluster.preset("k80", 2).without_overheads().replace_links(bandwidth=100.0, latency=0.0)
CHAIN = made("a=30 b=10", "ab=1000")
SPLIT = ss.Schedule(CHAIN, placements("a b@1"))


def test_one_parameter():
    """30 us, a copy of 1000 bytes, 10 us: 40 + 10 / factor; 1000 / 50 at an absolute 50 bytes per us."""
    asked = what_if(SPLIT, BARE)
    found = sweep(asked, "link.bandwidth", [0.5, 1, 4, ss.absolute(50.0)])
    assert found.makespan_us.tolist() == [60.0, 50.0, 42.5, 60.0]
    assert found.values == (0.5, 1, 4, {"absolute": 50.0})
    assert found.base_us == 50.0
    assert found.reasons == ()
    with pytest.raises(ValueError, match="read-only"):
        found.makespan_us[0] = 1.0
    assert asked.sweep("link.bandwidth", [4]).makespan_us.tolist() == [42.5]


def test_two_parameters():
    """(30 + 10) / speed + 10 / bandwidth."""
    found = sweep(what_if(SPLIT, BARE), "operators.speed", [1, 2, 4], "link.bandwidth", [1, 2])
    assert found.makespan_us.tolist() == [[50.0, 45.0], [30.0, 25.0], [20.0, 15.0]]
    ax = found.plot()
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("operators.speed (factor)", "link.bandwidth (factor)")


def test_what_is_refused_is_left_open():
    found = sweep(what_if(SPLIT, BARE), "gpus", [1, 2])
    assert np.isnan(found.makespan_us).tolist() == [True, False]
    ((i, j, text),) = found.reasons
    assert (i, j) == (0, 0)
    assert "gpu1" in text
    assert "gpus 1: " in repr(found)
    assert found.records()[0] == {"gpus": 1, "makespan_us": None, "reason": text}


def test_presets_executions_and_rebuilt_graphs():
    def load(batch=1):
        return ss.OpGraph([ss.Operator("a", time=10.0 * batch)])

    assert what_if(load(), BARE, load=load).sweep("rebuild.batch", [1, 2, 8]).makespan_us.tolist() == [10.0, 20.0, 80.0]
    cluster = ss.Cluster.preset("a100")
    asked = what_if(ss.schedule(CHAIN, cluster, "sequential"), cluster)
    found = sweep(asked, "execution", ["events", "graph"])
    assert found.makespan_us.tolist() == [asked.makespan, asked.execution("graph").makespan]
    assert [label.get_text() for label in found.plot().get_yticklabels()] == ["events", "graph"]
    assert sweep(asked, "device", ["a40", "h100"]).values == ("a40", "h100")


def test_values_are_told_with_their_units():
    """Absolute values with it, factors bare."""
    asked = what_if(made("a=3"), ss.Cluster.preset("a100", 2))
    text = repr(asked.sweep("link.bandwidth", [ss.absolute(12e3), 2.0], "overhead.wait", [ss.absolute(5.0)]))
    assert "12 GB/s" in text
    assert "overhead.wait 5 us" in text
    drawn = asked.sweep("link.bandwidth", [ss.absolute(12e3), ss.absolute(24e3)]).plot()
    assert drawn.get_xlabel() == "link.bandwidth (GB/s)"
    assert [12.0, 24.0] in [list(line.get_xdata()) for line in drawn.lines]


CLUSTER = ss.Cluster.preset("a100").without_overheads()
GRAPH = made("a=10 b=10 c=10")


def test_draws_are_paired():
    """max(a + b, c), max(a, b + c) and a + b + c of the same draws: the last never wins, the others half the time."""
    streams = {"ab c": "a b c/1", "a bc": "a b/1 c/1", "abc": "a b c"}
    plans = {name: ss.Schedule(GRAPH, placements(text)) for name, text in streams.items()}
    found = robust(plans, CLUSTER, jitter=0.2, samples=400, rng=3)
    first, second, third = np.array(list(found.samples.values()))
    assert (third > np.maximum(first, second)).all()
    assert 0.4 < (first < second).mean() < 0.6
    seed = int(np.random.default_rng(3).integers(2**63))
    for row, (name, each) in zip(found.rows, plans.items(), strict=True):
        alone = ss.simulate_many(each, CLUSTER, 400, jitter=0.2, rng=seed)
        assert row == {"name": name, "p50_us": alone.p50, "p95_us": alone.p95, "p99_us": alone.p99}


def test_the_best_is_by_the_95th_percentile():
    """Of 101 draws percentile p is draw p in order: x has the lesser one at 94 and at 96, y at 95 and of all draws."""
    samples = {"x": (2.0, *[3.0] * 94, 6.0, *[9.0] * 5), "y": (1.0, *[4.0] * 94, 5.0, *[10.0] * 5)}
    found = Robustness("graph", "a100", Sampling(101, 0.1, 0), samples)
    assert [found.best(p) for p in (0, 1, 94, 95, 96, 100)] == ["y", "x", "x", "y", "x", "x"]
    assert found.best() == "y"
    assert found.table().best == 1


def test_the_first_of_equal_plans_is_best_and_they_are_named_apart():
    plans = [ss.schedule(GRAPH, CLUSTER, "sequential") for _ in range(3)]
    found = robust(plans, CLUSTER, jitter={"a": 0.1}, samples=20, rng=0, workers=2)
    assert list(found.samples) == ["sequential", "sequential (2)", "sequential (3)"]
    assert found.best() == "sequential"


ONE = asked().sweep("gpus", [1, 2]).to_dict()
TWO, ROBUST = document("simsched.sweep"), document("simsched.robustness")
EMPTY = {name: [] for name in ROBUST["samples"]}


@pytest.mark.parametrize(
    ("data", "edit", "message"),
    [
        (ONE, {"reasons": [[1, 0, "why"]]}, None),
        (ONE, {"reasons": [[2, 0, "why"]]}, "reasons must be"),
        (ONE, {"reasons": [[-1, 0, "why"]]}, r"reasons\[0\]\[0\] must be"),
        (ONE, {"reasons": [[0, 1, "why"]]}, "reasons must be"),
        (TWO, {"reasons": [[0, 0, "why"], [1, 1, "why"]]}, None),
        (TWO, {"reasons": [[0, 2, "why"]]}, "reasons must be"),
        (ROBUST, {"samples": {}}, "there must be samples of a schedule"),
        (ROBUST, {"samples": EMPTY}, "samples must not be empty"),
    ],
)
def test_parts_of_a_document_that_do_not_fit(data, edit, message):
    """Two values have places 0 and 1, none beyond; one parameter has a second place of 0."""
    load = DOCUMENTS[data["format"]].from_dict
    if message is None:
        assert repr(load(data | edit))
    else:
        with pytest.raises(SimschedError, match=message):
            load(data | edit, "x.json")
