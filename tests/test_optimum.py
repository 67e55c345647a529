"""The exact optimum: by hand, against all schedules there are, and what ends a search."""

import os
import signal
import sys
import threading
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from schedulers.brute_force import best_makespan
from schedulers.listing_oracle import last
from small import DEEP, UNEQUAL, WIDE, made, operators
from strategies import graphs

from simsched.base.errors import MissingDependencyError, SchedulerError
from simsched.bounds import lower_bound
from simsched.model import Cluster, Link, OpGraph
from simsched.optimum import _run, instance_of, optimal, whole_of
from simsched.schedulers import schedule
from workloads.random_dags import random_layered

pytest.importorskip("ortools")

ONE, TWO, THREE = (Cluster.preset("a100", n) for n in (1, 2, 3))
# gpu0 - gpu1 - gpu2 in a row: copies pass through no other device, so nothing gets from gpu0 to gpu2
ROW = Cluster(THREE.devices, (("gpu0", "gpu1", Link(2.5e5, 1.0)), ("gpu1", "gpu2", Link(1e5, 3.0))))


FIVE = made("a=3 b=3 c=2 d=2 e=2")


APART = made("a=3 b=3 c=4 d=2")
PAIR = made(operators("a=7 b=7", kernels=WIDE))
PAIRWISE = made("a=4 b=5 c=9 d=1", "ab:5 ac:0 ad:5")


def own(op, device):
    return {"a": (9.0, 2.0), "b": (3.0, 8.0)}[op.name][int(device.name[-1])]


BY_HAND = {
    # 3 + 3 us beside 4 + 2: six on each of two devices or streams, and twelve on one
    "one by one": (APART, ONE, {}, 12.0),
    "two devices share what does not depend": (APART, TWO, {}, 6.0),
    "two streams": (APART, ONE, {"streams": 2}, 6.0),
    "two streams of two devices": (APART, TWO, {"streams": 2}, 4.0),
    # a of 2 us feeds b and c of 5: on one device 12. With c moved for 4 us 2 + 4 + 5 = 11, for 6 us 13
    "a transfer is worth it": (made("a=2 b=5 c=5", "ab ac", 4.0), TWO, {}, 11.0),
    "or not": (made("a=2 b=5 c=5", "ab ac", 6.0), TWO, {}, 12.0),
    # a takes 9 us on gpu0 and 2 on gpu1, b 3 and 8, and 5 us lie between: 2 + 5 + 3 = 10 = 2 + 8
    **{
        f"each device in its own time, {transfer} us apart": (made("a=0 b=0", "ab", transfer), TWO, {"cost": own}, us)
        for transfer, us in ((5.0, 10.0), (4.0, 9.0), (7.0, 10.0))
    },
    # both ask for the shared memory of gpu1: one after the other there
    "kernels that fit one device only": (PAIR, UNEQUAL, {}, 14.0),
    # nothing can be moved: 10 us on one device; with d, which needs nothing, 10 beside 4
    "devices without links": (made("a=2 b=5 c=3 d=4", "ab ac", nbytes=1e6), Cluster(TWO.devices), {}, 10.0),
    # c moves for nothing, b and d for 5: a, then b and d beside c
    "each pair of devices has its own moves": (PAIRWISE, TWO, {}, 13.0),
    "of three devices, too": (PAIRWISE, THREE, {}, 13.0),
    "what takes longer than the horizon is out of the question": (made("a=1 b=2", "ab:1e15"), TWO, {}, 3.0),
    # longest first gives 3+2+2 = 7 beside 3+2, the best is 3+3 beside 2+2+2
    "better than list scheduling": (FIVE, TWO, {}, 6.0),
}


@pytest.mark.parametrize("case", BY_HAND.values(), ids=BY_HAND)
def test_by_hand(case):
    graph, cluster, options, makespan = case
    found = optimal(graph, cluster, **options)
    assert (found.makespan, found.bound, found.gap, found.proved) == (makespan, makespan, 0.0, True)


@pytest.mark.parametrize(
    ("graph", "devices", "message"),
    [
        (PAIR, TWO.devices, "operator 'a' has a kernel of which no block fits on any device"),
        # a fits gpu1 only, b, which reads from it, gpu0 only, and no link leads there
        (made([PAIR["a"], *operators("b=1", kernels=DEEP)], "ab=1"), UNEQUAL.devices, "give links"),
    ],
)
def test_operators_that_cannot_run(graph, devices, message):
    with pytest.raises(SchedulerError, match=message):
        optimal(graph, Cluster(devices))


def test_tiny_and_huge_times():
    """b of 1e-9 us beside c of 1 us, moved for 1e-6 us."""
    found = optimal(made("a=1e9 b=1e-9 c=1", "ab ac", 1e-6), TWO)
    assert found.makespan == pytest.approx(1e9 + 1.0, rel=1e-15)
    assert found.proved


@settings(deadline=None, max_examples=60)
@given(
    graph=graphs(max_ops=5, timed=True),
    cluster=st.sampled_from([ONE, TWO, THREE, ROW]),
    streams=st.sampled_from([1, 1, 2]),
    factors=st.tuples(*[st.sampled_from([1.0, 1.0, 0.1, 1 / 3])] * 3),
)
def test_as_good_as_the_best_of_all_schedules(graph, cluster, streams, factors):
    """On equal devices and others; whatever operators need of them, no more run at a time than there are streams.

    The bound of the model, by which the search starts, is one; the schedule runs in the time it says.
    """

    def cost(op, device):
        return op.time * factors[cluster.index[device.name]]

    times = [[cost(op, device) for op in graph.operators] for device in cluster.devices]
    truth = best_makespan(graph, cluster, streams, times)
    found = optimal(graph, cluster, cost=cost, streams=streams, workers=1)
    assert found.makespan == pytest.approx(truth, rel=1e-9, abs=1e-9)
    rounded = 1.000001 * (len(graph) + len(graph.src))  # times and moves, each down by the unit at most, 1e-9 us
    assert found.bound == pytest.approx(truth, rel=1e-9, abs=1e-9 * rounded)
    assert instance_of(graph, cluster, cost, streams).bound <= truth * (1 + 1e-9)
    plan = found.schedule.check(cluster)
    assert (plan.graph, plan.execution, plan.scheduler) == (graph, "events", "optimal")
    assert plan.estimate == found.makespan == last(found.schedule, cluster, cost)
    assert plan.stream.max() < streams
    unbound = cluster.without_overheads().replace_devices(contention=False)
    assert found.makespan >= lower_bound(graph, unbound, cost) * (1 - 1e-9)


@pytest.mark.parametrize(
    ("times", "unit", "exact"),
    [((2.0, 4.0), 2.0, True), ((0.5, 0.75), 0.25, True), ((0.1, 0.7), 0.1, True), ((1 / 3, 1.0), 1e-9, False)],
)
def test_units(times, unit, exact):
    """The largest in which all times are whole; a third has none of six decimals."""
    instance = instance_of(made("a={!r} b={!r}".format(*times)), ONE, None, 1)
    whole = whole_of(instance, sum(times))
    assert (float(whole.unit), whole.exact) == (unit, exact)
    units = whole.times[0] * unit
    assert units == pytest.approx(times, rel=1e-15, abs=0 if exact else 1.1e-9)
    assert (units <= np.array(times) * (1 + 1e-15)).all()


@pytest.mark.parametrize("cluster", [TWO, THREE])
def test_the_bound_knows_the_moves_of_each_pair(cluster):
    assert instance_of(PAIRWISE, cluster, None, 1).bound == 13.0


def test_times_of_many_digits_are_feasible():
    """The presolve of OR-tools 9.15 denied it of these, where the work of each device was bounded as well."""
    graph = random_layered(n_ops=10, n_layers=3, comm_ratio=0.8, rng=3)
    assert optimal(graph, Cluster.preset("a40", 2), streams=2).makespan == pytest.approx(5731.3986, rel=1e-6)


def test_what_takes_longer_than_the_horizon_is_out_of_the_question():
    whole = whole_of(instance_of(made("a=1 b=2", "ab:1e15"), TWO, None, 1), 3.0)
    assert whole.moves[0].tolist() == [[0.0, inf], [inf, 0.0]]


# Options, ends ---------------------------------------------------------------------------


def test_the_search_begins_with_a_list_schedule():
    assert optimal(FIVE, TWO).search["start_us"] == 7.0


def test_ortools_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "ortools.sat.python", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'simsched\[exact\]'"):
        optimal(made("a=1"), ONE)


HARD = random_layered(60, 15, rng=0)


def test_a_budget_ends_a_search_the_same_way_each_time():
    """A hundredth of a deterministic second: a gap is left, and nothing depends on the clock."""
    found, again = (optimal(HARD, TWO, None, budget=0.01, workers=1) for _ in range(2))
    assert found.schedule == again.schedule
    assert (found.bound, found.search["branches"]) == (again.bound, again.search["branches"])
    assert 0 < found.gap < 0.5
    assert not found.proved
    assert found.bound <= found.makespan <= found.search["start_us"]
    assert found.search["stopped"] is None
    assert dict(found.schedule.search) == dict(found.search)


def test_a_time_limit_returns_the_best_so_far(caplog):
    found = optimal(HARD, TWO, 0.3)
    assert found.search["stopped"] == "time limit"
    assert found.search["search_s"] < 20.0
    assert "optimal: stopped (time limit); this is the best schedule so far" in caplog.text
    assert found.bound <= found.makespan <= schedule(HARD, TWO, "inter-lp").estimate * (1 + 1e-9)
    assert last(found.schedule, TWO) == found.makespan


def test_ctrl_c_returns_the_best_so_far(caplog):
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    found = optimal(HARD, TWO, 120.0)
    timer.join()
    assert found.search["stopped"] == "interrupted"
    assert "optimal: stopped (interrupted)" in caplog.text
    assert found.bound <= found.makespan


def test_a_second_ctrl_c_leaves_no_solver_behind():
    class Solver:
        stopped = threading.Event()
        stop_search = stopped.set

        def solve(self, _program):
            assert self.stopped.wait(60.0)

    class Interrupted:
        def over(self):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _run(Solver(), None, Interrupted())
    assert Solver.stopped.is_set()


def test_long_and_wide():
    """A chain of 1000 and a fork of 1000 equal operators of no transfer: list schedules that are proved at once."""
    names, behind = [f"o{i}" for i in range(1000)], np.arange(1, 1000)
    chain = OpGraph.from_columns(names, behind - 1, behind, time=2.0)
    fork = OpGraph.from_columns(names, np.zeros(999, int), behind, time=2.0, edge_transfer=np.zeros(999))
    assert optimal(chain, TWO).makespan == 2000.0
    wide = optimal(fork, TWO)
    assert (wide.makespan, wide.bound) == (2.0 + 1000.0, 1002.0)
