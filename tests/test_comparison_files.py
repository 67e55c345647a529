"""Comparisons as files: what is read back runs as it did, and what was spoilt is refused in one line."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import graphs

import workloads
from simsched.base.errors import SchedulerError, SimschedError
from simsched.calibration import Calibration
from simsched.experiments.comparison import Comparison, Draws, compare
from simsched.model import Cluster, Edge, Operator, OpGraph

FREE = Cluster.preset("a100", 2).without_overheads()
FORK = OpGraph(
    [Operator("a", time=10.0)] + [Operator(n, time=20.0) for n in "bcd"], [Edge("a", n, transfer=5.0) for n in "bcd"]
)


def refuses(graph, cluster, cost):
    raise SchedulerError("refuses: too many")


def again(comparison):
    """What a file of it holds."""
    return Comparison.from_dict(json.loads(json.dumps(comparison.to_dict(), allow_nan=False)))


def require_same(first, second):
    assert (second.graph, second.cluster) == (first.graph, first.cluster)
    assert (second.rows, second.sampling, second.draws) == (first.rows, first.sampling, first.draws)
    assert second.summary() == first.summary()
    assert str(second) == str(first)
    assert list(second.plans) == list(first.plans)
    assert list(second.traces) == list(first.traces)
    for name, trace in first.traces.items():
        other = second.traces[name]
        assert list(second.plans[name].placements) == list(first.plans[name].placements)
        for column in ("kind", "op", "device", "stream"):
            assert getattr(other, column).tolist() == getattr(trace, column).tolist()
        for column in ("start", "end", "ready", "solo"):
            np.testing.assert_allclose(getattr(other, column), getattr(trace, column), rtol=1e-9, atol=1e-9)
    assert list(second.samples) == list(first.samples)
    for name, drawn in first.samples.items():
        assert second.samples[name].values.tolist() == drawn.values.tolist()


def test_what_is_written_by_hand():
    """sequential takes 10 + 3 x 20 = 70 us, lios 10 + 20 = 30 us; both run the one graph, which stands there once."""
    comparison = compare(FORK, FREE, ["sequential", "lios", refuses])
    data = comparison.to_dict()
    assert (data["format"], data["version"], data["graph"]) == ("simsched.comparison", 1, 0)
    assert [row["makespan_us"] for row in data["rows"]] == [70.0, 30.0, None]
    assert data["graphs"] == [FORK.to_dict()]
    assert data["cluster"] == FREE.to_dict()
    assert {name: plan["graph"] for name, plan in data["plans"].items()} == {"sequential": 0, "lios": 0}
    assert (data["sampling"], data["draws"], data["samples"]) == (None, None, {})
    found = again(comparison)
    require_same(comparison, found)
    assert found.plans["lios"].graph is found.plans["sequential"].graph is found.graph
    assert found.best().scheduler == "lios"


def test_rewritten_graphs_are_written_too():
    """AutoGraph runs a network of other operators than those that were compared."""
    graph = workloads.load("tiny_inception")
    comparison = compare(graph, FREE, ["lios", "autograph"])
    data = comparison.to_dict()
    assert [len(each["operators"]) for each in data["graphs"]] == [
        len(graph), len(comparison.plans["autograph"].graph)
    ]  # fmt: skip
    require_same(comparison, again(comparison))


@pytest.mark.parametrize("jitter", [0.2, np.float32(0.5), {"b": 1}])
@pytest.mark.parametrize("rng", [3, np.random.default_rng(4)])
def test_jitter_of_traces_is_drawn_again(jitter, rng):
    comparison = compare(FORK, FREE, ["sequential", "lios"], jitter=jitter, rng=rng)
    assert isinstance(comparison.draws, Draws)
    require_same(comparison, again(comparison))


@pytest.mark.parametrize("n", [7, 10_001])
def test_samples_are_kept_or_drawn_again(n):
    """Those of up to 10,000 are in the file, those of more come from the seed: the same either way."""
    comparison = compare(FORK, FREE, ["lios"], jitter=0.2, rng=np.random.default_rng(0), samples=n)
    assert comparison.sampling.seed is None
    data = comparison.to_dict()
    assert [len(values) for values in data["samples"].values()] == ([7] if n == 7 else [])
    require_same(comparison, again(comparison))


def test_times_of_a_cost_model_are_written():
    """Operators take 1 us on gpu0 and 3 us on gpu1, which no `time` of the compared graph can say.

    Dealt out in turn, a and c run on gpu0, b and d on gpu1: that graph is written with 1, 3, 1, 3 us, the one that
    sequential runs with 1 us each, and the graph that was compared as it was.
    """

    def cost(op, device):
        return 1.0 if device.name == "gpu0" else 3.0

    comparison = compare(FORK, FREE, ["sequential", "round-robin", "lios"], cost)
    data = comparison.to_dict()
    times = [[op["time"] for op in graph["operators"]] for graph in data["graphs"]]
    assert times[:3] == [[10.0, 20.0, 20.0, 20.0], [1.0, 1.0, 1.0, 1.0], [1.0, 3.0, 1.0, 3.0]]
    assert [plan["graph"] for plan in data["plans"].values()] == [1, 2, 1]
    require_same(comparison, again(comparison))


def test_times_of_a_calibration_are_written():
    """Measured at 7 us where the graph says 10: the file needs no calibration to say so."""
    cluster = Cluster.preset("a100", 2)
    measured = Calibration(cluster, cluster, FORK, {"a": 7.0, "b": 21.0, "c": 19.0, "d": 20.0}, {}, (), ())
    comparison = compare(FORK, measured, ["sequential", "lios"])
    assert comparison.rows[0].makespan_us != compare(FORK, cluster, ["sequential"]).rows[0].makespan_us
    data = comparison.to_dict()
    assert [op["time"] for op in data["graphs"][0]["operators"]] == [7.0, 21.0, 19.0, 20.0]
    assert len(data["graphs"]) == 1
    require_same(comparison, again(comparison))
    with_cost = compare(FORK, measured, ["lios"], lambda op, device: 2.0)
    require_same(with_cost, again(with_cost))


@settings(max_examples=8)
@given(
    graph=graphs(max_ops=6),
    n=st.integers(1, 3),
    jitter=st.sampled_from([None, 0.3]),
    samples=st.sampled_from([None, 4]),
)
def test_any_comparison_comes_back(graph, n, jitter, samples):
    comparison = compare(
        graph, Cluster.preset("a40", n), ["sequential", "lios", "round-robin", refuses],
        jitter=jitter, rng=1, samples=samples if jitter else None,
    )  # fmt: skip
    require_same(comparison, again(comparison))


def spoilt(change):
    data = compare(FORK, FREE, ["lios", refuses], jitter=0.1, rng=0, samples=3).to_dict()
    change(data)
    return data


def test_reading_simulates_nothing():
    """A file of another release opens, whatever its model said: traces are simulated when somebody asks for them."""
    data = spoilt(lambda d: d["rows"][0].update(makespan_us=31.0))
    found = Comparison.from_dict(data)
    assert found.rows[0].makespan_us == 31.0
    assert "31.0" in repr(found)
    assert found.traces["lios"].makespan == pytest.approx(30.0, rel=0.5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d["rows"][0].update(makespan_us=None), "there is either a makespan_us or a reason"),
        (lambda d: d["rows"][1].update(scheduler="lios"), "one schedule for each row"),
        (lambda d: d["plans"].clear(), "one schedule for each row"),
        (lambda d: d["plans"]["lios"].update(graph=1), "there is no graph 1; the file has 1"),
        (lambda d: d["plans"]["lios"]["placements"].pop(), "is placed nowhere"),
        (lambda d: d.update(graphs=[]), "there is no graph 0; the file has 0"),
        (lambda d: d.update(draws=None), "'draws' the jitter of 'sampling'"),
        (lambda d: d["samples"]["lios"].pop(), "as many makespans as 'sampling' says"),
        (lambda d: d["samples"].update(nobody=[1.0] * 3), "'samples' must hold those of schedules"),
    ],
)
def test_what_was_spoilt_is_refused(change, message):
    with pytest.raises(SimschedError, match=message) as refused:
        Comparison.from_dict(spoilt(change), "c.json")
    assert "\n" not in str(refused.value)
