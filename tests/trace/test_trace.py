"""Traces whose spans are made when something asks for them."""

import copy
import pickle

import pytest
from hand_spans import simulated
from small import made

import simsched as ss
from simsched.model.trace.timeline import Load

COLUMNS = ("kind", "item", "op", "device", "stream", "start", "end", "ready", "solo", "cause")


def pair():
    """Two operators of 10 us, one after the other, on one device without overheads."""
    return simulated(made("a=10 b=10", "ab"), "a b", ss.Cluster.preset("a100").without_overheads())


@pytest.fixture
def deferred():
    """A trace of a known makespan, and a list that grows by one whenever its spans are made."""
    whole, calls = pair(), []

    def spans():
        calls.append(1)
        return {name: getattr(whole, name) for name in COLUMNS}, whole.loads

    return ss.Trace.deferred(whole.program, whole.cluster, 20.0, spans), calls


def test_what_needs_no_spans(deferred):
    trace, calls = deferred
    assert repr(trace) == "Trace('graph', makespan 20 us)"
    assert trace.makespan == 20.0
    assert (trace.graph.name, trace.program.graph, trace.cluster.name) == ("graph", trace.graph, "a100")
    assert not hasattr(trace, "nothing")
    assert calls == []


@pytest.mark.parametrize("name", [*COLUMNS, "loads", "spans"])
def test_what_needs_them_makes_them_once(deferred, name):
    trace, calls = deferred
    found = getattr(trace, name)
    assert len(found) == (1 if name == "loads" else 2)
    assert calls == [1]
    assert len(trace) == len(trace.spans) == len(trace.kind) == 2
    assert isinstance(trace.loads[0], Load)
    assert repr(trace) == "Trace('graph', 2 spans, makespan 20 us)"
    trace.critical_path(), trace.peak_memory(), trace.sm_utilization()
    assert calls == [1]


@pytest.mark.parametrize("double", [copy.copy, copy.deepcopy, lambda trace: pickle.loads(pickle.dumps(trace))])
def test_copies_are_whole(deferred, double):
    """Of spans that were not made yet, of spans that were, and of spans that never had to be."""
    trace, calls = deferred
    assert double(trace) == trace == double(double(trace))
    assert double(trace).makespan == 20.0
    assert calls == [1]
    fresh = pair()
    assert double(fresh) == fresh


@pytest.mark.parametrize("already", [False, True])
def test_unknown_names_are_attribute_errors(deferred, already):
    trace, calls = deferred
    if already:
        _ = trace.kind
    for name in ("nothing", "_nothing", "__nothing__", "_spans_", "Kind"):
        with pytest.raises(AttributeError, match=f"a Trace has no attribute '{name}'"):
            getattr(trace, name)
    assert calls == [1] * already


def test_spans_that_cannot_be_made_may_be_asked_for_again(deferred):
    trace, calls = deferred

    def fail():
        calls.append(1)
        raise MemoryError

    stubborn = ss.Trace.deferred(trace.program, trace.cluster, 20.0, fail)
    for _ in range(2):
        with pytest.raises(MemoryError):
            _ = stubborn.start
    assert calls == [1, 1]
    assert stubborn.makespan == 20.0
