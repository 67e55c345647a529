"""Measured runs, simulated on one cluster after the other as fits do."""

import numpy as np
import pytest

import simsched as ss
from simsched.calibration.evidence import MeasuredRun
from simsched.model import operator_times
from simsched.model.trace import spans_of
from workloads import random_layered

TWO = ss.Cluster.preset("a40", 2)


CLUSTERS = [
    TWO,
    TWO.replace_devices(launch=9.0),
    TWO.replace_devices(contention=False),
    TWO.replace_devices(connections=1),
    TWO.replace_devices(gap=3.0, interference=((1.2, 1.1), (1.1, 1.0))),
    TWO,
]


@pytest.mark.parametrize("execution", ["events", "graph", "stages"])
@pytest.mark.parametrize("devices", [1, 2])
def test_a_run_on_one_cluster_after_the_other_is_a_run_on_each(execution, devices):
    """With copies, which links carry, and without."""
    graph = random_layered(n_ops=24, n_layers=4, rng=2)
    order = np.arange(len(graph))
    plan = ss.Schedule.from_columns(
        graph,
        order,
        [device.name for device in TWO.devices],
        device=order % devices,
        stream=order % 3,
        execution=execution,
        **({"stage": order} if execution == "stages" else {}),
    )
    run = MeasuredRun.of(ss.Replay((100.0,), ss.simulate(plan, TWO), name="run"))
    for cluster in CLUSTERS:
        times = operator_times(graph, cluster.devices[0])
        usual = ss.simulate(run.program, cluster)
        spans = run.simulate_on(cluster, times)
        assert run.makespan(cluster, times) == spans.makespan == usual.makespan
        assert spans.launches.tolist() == spans_of(usual).launches.tolist()
