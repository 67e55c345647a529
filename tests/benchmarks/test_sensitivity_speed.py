"""Speed of analyses: ``pytest -m benchmark --benchmark-enable tests/benchmarks/test_sensitivity_speed.py -s``."""

import pytest

import simsched as ss
import workloads
from simsched.experiments.whatif.sensitivity import sensitivity
from simsched.experiments.whatif.throughput import throughput
from simsched.experiments.whatif.whatif import what_if

A100 = ss.Cluster.preset("a100")


@pytest.fixture(scope="module")
def plan():
    return ss.schedule(workloads.load("inception_v3"), A100, "lios")


@pytest.mark.parametrize("per_operator", [False, True])
def test_sensitivity_of_inception_v3(benchmark, plan, per_operator):
    """All parameters, and with those of its 119 operators: at most 2 s."""
    found = benchmark(lambda: sensitivity(what_if(plan, A100), per_operator=per_operator))
    benchmark.extra_info["parameters"] = len(found.rows)
    print(f"{len(found.rows)} parameters in {benchmark.stats['mean']:.3f} s")
    assert found.rows[0].parameter == "operators.speed"


@pytest.mark.parametrize("in_flight", [1, 4, 8])
def test_throughput_of_inception_v3(benchmark, plan, in_flight):
    found = benchmark.pedantic(lambda: throughput(plan, A100, in_flight), rounds=3)
    print(f"{found.requests} requests, {found.requests_per_s:.1f} per s in {benchmark.stats['mean']:.3f} s")
    assert found.in_flight == in_flight
