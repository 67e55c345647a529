"""Whatever takes a cluster takes a calibration, and then uses its times and its fitted cluster."""

import numpy as np
import pytest
from quick import quick
from small import made
from stand_ins import measured

import simsched as ss
import workloads
from simsched.base.errors import CostError
from simsched.calibration import Calibration
from simsched.model import operator_times

A100 = ss.Cluster.preset("a100")


def setting(n_gpus=1, graph=None):
    """Everything takes twice as long as it is said to, and launches are free."""
    graph = graph or workloads.random_layered(n_ops=14, n_layers=4, rng=1)
    target = measured(graph, ss.Cluster.preset("a100", n_gpus).replace_devices(launch=0.0), 2.0)
    return graph, target, target.apply(graph)


@pytest.mark.parametrize("name", ss.SCHEDULERS)
def test_schedulers_and_simulator(name):
    """As if the graph had the measured times and the cluster were the fitted one."""
    graph, target, doubled = setting(2, workloads.load("tiny_inception") if name == "autograph" else None)
    plan = ss.schedule(graph, target, name, **quick(name, graph))
    if name not in ("autograph", "ios"):  # these two make operators of their own, which cost twice as much too
        assert plan.graph is doubled
        assert plan == ss.schedule(doubled, target.cluster, name, **quick(name, graph))
        assert ss.simulate(plan, target).makespan == ss.simulate(plan, target.cluster).makespan
    assert ss.simulate(plan, target).cluster == target.cluster


def test_a_schedule_made_before_takes_the_times_too():
    graph, target, doubled = setting()
    before = ss.schedule(graph, A100, "lios")
    expected = ss.simulate(before.over(doubled), target.cluster).makespan
    assert ss.simulate(before, target).makespan == expected
    assert ss.simulate(before, target, engine="reference").makespan == pytest.approx(expected, rel=1e-9)
    assert ss.simulate(before.lower(target), target).makespan == expected
    assert ss.simulate_batch([before, before], target).tolist() == [expected, expected]
    assert ss.Evaluator(before, target).makespan == expected
    drawn = [
        ss.simulate_many(p, c, 3, jitter=0.1, rng=0).values
        for p, c in ((before, target), (before.over(doubled), target.cluster))
    ]
    assert drawn[0].tolist() == drawn[1].tolist()
    assert before.check(target) is before


def test_bounds_stages_optimum_and_comparison():
    graph, target, doubled = setting()
    assert ss.lower_bound(graph, target) == ss.lower_bound(doubled, target.cluster)
    name = graph.names[0]
    assert ss.StageLatency(graph, target)([[name]]) == pytest.approx(doubled[name].time)
    table = ss.compare(graph, target, ["sequential", "heft"])
    assert table.cluster == target.cluster
    plain = ss.compare(doubled, target.cluster, ["sequential", "heft"])
    assert [row.makespan_us for row in table.rows] == [row.makespan_us for row in plain.rows]
    pytest.importorskip("ortools")
    small, target, _ = setting(graph=made("a=3 b=4", "ab"))
    assert ss.optimal(small, target).makespan == 14.0


def test_answers_that_are_no_times_are_refused():
    class Wrong(Calibration):
        def operator_times(self, graph, device, ops):
            return np.full(len(ops), np.nan)

    with pytest.raises(CostError, match="operator 'a' takes nan us on a100"):
        operator_times(made("a=1"), A100.devices[0], Wrong(A100, A100, None, {}, {}, (), ()))
