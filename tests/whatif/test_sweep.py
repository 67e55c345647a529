"""Makespans over one parameter or two."""

import numpy as np
import pytest
from small import made, placements

import simsched as ss
from simsched.experiments.whatif.sweep import sweep
from simsched.experiments.whatif.whatif import what_if

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
    assert [label.get_text() for label in found.plot().get_xticklabels()] == ["events", "graph"]
    assert sweep(asked, "device", ["a40", "h100"]).values == ("a40", "h100")


def test_values_are_told_with_their_units():
    """Absolute values in the unit that reads best, factors bare; and it is said where nothing changed."""
    asked = what_if(made("a=3"), ss.Cluster.preset("a100", 2))
    text = repr(asked.sweep("link.bandwidth", [ss.absolute(12e3), 2.0], "overhead.wait", [ss.absolute(5.0)]))
    assert "12 GB/s" in text
    assert "overhead.wait 5 us" in text
    assert "link.bandwidth and overhead.wait changed nothing" in text
    assert "changed nothing" not in repr(asked.sweep("overhead.launch", [1.0, 2.0]))
    drawn = asked.sweep("link.bandwidth", [ss.absolute(12e3), ss.absolute(24e3)]).plot()
    assert drawn.get_xlabel() == "link.bandwidth (GB/s)"
    assert [12.0, 24.0] in [list(line.get_xdata()) for line in drawn.lines]
