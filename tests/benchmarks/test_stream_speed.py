"""How long Opara and Nimble take to assign streams; the target on GoogLeNet by single operators is 1 ms each."""

import numpy as np
import pytest

from simsched.model import Cluster, OpGraph
from simsched.schedulers import schedule
from simsched.schedulers.nimble import assign_streams, nimble
from simsched.schedulers.opara import allocate_streams, opara
from workloads import load

ONE = Cluster.preset("a100")


@pytest.fixture(scope="module")
def googlenet():
    """197 operators; the columns and scipy are there before the clock starts."""
    graph = load("googlenet", granularity="operator")
    allocate_streams(graph, graph.order_index.tolist(), "journal")
    assign_streams(graph, "reuse")
    return graph


@pytest.fixture(scope="module")
def layered():
    """10,000 operators, each with two producers among the 20 before it."""
    rng = np.random.default_rng(0)
    dst = np.repeat(np.arange(20, 10_000), 2)
    src = dst - rng.integers(1, 20, len(dst))
    names = [f"o{i}" for i in range(10_000)]
    return OpGraph.from_columns(names, src, dst, time=rng.uniform(1, 20, 10_000), utilization=0.5)


@pytest.mark.parametrize("allocation", ["journal", "conference"])
def test_opara_streams(benchmark, googlenet, allocation):
    """Released: 0.59 ms, Python."""
    order = googlenet.order_index.tolist()
    streams = benchmark(allocate_streams, googlenet, order, allocation)
    assert max(streams) + 1 == 28


@pytest.mark.parametrize(("streams", "count"), [("chains", 28), ("reuse", 4), ("dilworth", 4)])
def test_nimble_streams(benchmark, googlenet, streams, count):
    """Released: 0.39 ms, C++, reading and writing files included."""
    found = benchmark(assign_streams, googlenet, streams)
    assert (max(found.stream) + 1, found.chains) == (count, 28)


@pytest.mark.parametrize("mode", ["paper", "impl"])
@pytest.mark.parametrize("scheduler", [opara, nimble], ids=["opara", "nimble"])
def test_whole_schedule(benchmark, googlenet, scheduler, mode):
    """Launch order, estimate and the proof that it runs included."""
    plan = benchmark(schedule, googlenet, ONE, scheduler, mode=mode)
    assert plan.search["waits"] == 54


@pytest.mark.parametrize(
    ("scheduler", "options", "fewest", "most"),
    [
        (opara, {}, 2168, 2168),
        (opara, {"mode": "impl"}, 2125, 2125),
        (nimble, {}, 1659, 1659),
        (nimble, {"mode": "impl"}, 1306, 1658),  # depends on which of the largest matchings scipy finds
        (nimble, {"streams": "dilworth"}, 1306, 1306),
    ],
    ids=["opara", "opara-impl", "nimble", "nimble-impl", "nimble-dilworth"],
)
def test_ten_thousand_operators(benchmark, layered, scheduler, options, fewest, most):
    plan = benchmark.pedantic(schedule, (layered, ONE, scheduler), options, rounds=1)
    assert fewest <= plan.n_streams <= most
