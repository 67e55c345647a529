"""The public door: one line for an argument of a wrong kind, and nothing else changes."""

import pickle

import numpy as np
import pytest
from documents import CLUSTER, GRAPH, plan

import simsched as ss
from simsched.base.arguments import door
from simsched.base.errors import ArgumentError

CALLS = {
    "simulate: schedule takes Schedule or Program, not OpGraph ": lambda: ss.simulate(GRAPH, CLUSTER),
    "simulate: cluster takes Cluster or Calibrated, not NoneType None": lambda: ss.simulate(plan(), None),
    "schedule: graph takes OpGraph, not Schedule ": lambda: ss.schedule(plan(), CLUSTER, "lios"),
    "compare: graph takes OpGraph, not str 'x'": lambda: ss.compare("x", CLUSTER),
    "compare: workers takes int, not float 1.5": lambda: ss.compare(GRAPH, CLUSTER, workers=1.5),
    "lower_bound: cluster takes ": lambda: ss.lower_bound(GRAPH, 3),
}


@pytest.mark.parametrize("message", CALLS)
def test_an_argument_of_another_kind(message):
    with pytest.raises(ArgumentError) as caught:
        CALLS[message]()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_fits_goes_through():
    """Numpy's numbers are numbers, a float may be a whole number, and a calibration stands for a cluster."""

    @door
    def f(a: float, b: int | None = None, *, c: "list[int] | str" = "") -> tuple[float, int | None, object]:
        """Doc."""
        return a, b, c

    assert f(1) == (1, None, "")
    assert f(np.float32(1.5), np.int64(2), c=[1]) == (1.5, 2, [1])
    assert f.__doc__ == "Doc."
    with pytest.raises(ArgumentError, match="f: b takes int or None, not bool True"):
        f(1.0, True)
    with pytest.raises(TypeError, match="missing"):
        f()


def test_cost_models_can_be_sent_elsewhere():
    assert pickle.loads(pickle.dumps(ss.roofline)) is ss.roofline
