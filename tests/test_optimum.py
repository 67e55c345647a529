"""The exact optimum: by hand, against all schedules there are, and what ends a search."""

import logging
import os
import signal
import sys
import threading
from dataclasses import replace
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from schedulers.brute_force import best_makespan
from schedulers.listing_oracle import listed
from small import made, placements
from strategies import graphs

from simsched.base.errors import MissingDependencyError, SchedulerError
from simsched.bounds import lower_bound
from simsched.model import Cluster, Edge, Kernel, Link, Operator, OpGraph, Schedule, default_cost
from simsched.optimum import optimal
from simsched.optimum.instance import instance_of, whole_of
from simsched.optimum.optimum import _run
from simsched.schedulers import schedule
from workloads.random_dags import random_layered

pytest.importorskip("ortools")

ONE, TWO, THREE = (Cluster.preset("a100", n) for n in (1, 2, 3))
# gpu0 - gpu1 - gpu2 in a row: copies pass through no other device, so nothing gets from gpu0 to gpu2
ROW = Cluster(THREE.devices, (("gpu0", "gpu1", Link(2.5e5, 1.0)), ("gpu1", "gpu2", Link(1e5, 3.0))))


FIVE = made("a=3 b=3 c=2 d=2 e=2")


def last(found, cluster, cost=default_cost):
    """When the last operator of a schedule ends at the earliest, in launch order."""
    return max(row[3] for row in listed(found.schedule, cluster, cost).values())


def test_two_devices_share_what_does_not_depend():
    """3 + 3 us beside 4 + 2: six on each of two devices, and twelve on one."""
    graph = made("a=3 b=3 c=4 d=2")
    assert [optimal(graph, cluster).makespan for cluster in (ONE, TWO)] == [12.0, 6.0]
    assert optimal(graph, ONE, streams=2).makespan == 6.0
    assert optimal(graph, TWO, streams=2).makespan == 4.0


def test_a_transfer_is_worth_it_or_not():
    """a of 2 us feeds b and c of 5: on one device 12. With c moved for 4 us 2 + 4 + 5 = 11, for 6 us 13."""
    moved, stayed = (optimal(made("a=2 b=5 c=5", "ab ac", transfer), TWO) for transfer in (4.0, 6.0))
    assert (moved.makespan, moved.bound, moved.gap, moved.proved) == (11.0, 11.0, 0.0, True)
    assert stayed.makespan == 12.0
    assert len(moved.schedule.devices_used) == 2
    assert len(stayed.schedule.devices_used) == 1


def test_better_than_list_scheduling():
    """Five operators on two devices: longest first gives 3+2+2 = 7 beside 3+2, the best is 3+3 beside 2+2+2."""
    found = optimal(FIVE, TWO)
    assert (found.makespan, found.bound, found.search["start_us"]) == (6.0, 6.0, 7.0)


def test_each_device_in_its_own_time():
    """a takes 9 us on gpu0 and 2 on gpu1, b the reverse of 8 and 3, and 5 us lie between: 2 + 5 + 3 = 10 = 2 + 8."""
    times = {"a": (9.0, 2.0), "b": (3.0, 8.0)}
    for transfer, makespan in ((5.0, 10.0), (4.0, 9.0), (7.0, 10.0)):
        graph = made("a=0 b=0", "ab", transfer)
        assert optimal(graph, TWO, cost=lambda op, d: times[op.name][int(d.name[-1])]).makespan == makespan


def test_a_kernel_that_fits_one_device_only():
    """Both operators ask for the shared memory of gpu1: one after the other there, 14 us."""
    other = replace(TWO.devices[1], shared_memory_per_sm=2**20, shared_memory_per_block=2**20)
    cluster = Cluster((TWO.devices[0], other), TWO.links)
    graph = OpGraph([Operator(n, time=7.0, kernels=(Kernel(1, 256, 32, 2**19),)) for n in "ab"])
    found = optimal(graph, cluster)
    assert (found.makespan, found.schedule.devices_used) == (14.0, ("gpu1",))
    with pytest.raises(SchedulerError, match="operator 'a' has a kernel of which no block fits on any device"):
        optimal(graph, TWO)


def test_devices_without_links():
    """Nothing can be moved: 10 us on one device; with d, which needs nothing, 10 beside 4."""
    apart = Cluster(TWO.devices)
    graph = made("a=2 b=5 c=3 d=4", "ab ac", nbytes=1e6)
    assert optimal(graph, apart).makespan == 10.0


def test_operators_that_no_link_joins():
    """a fits gpu1 only, b, which reads from it, gpu0 only, and no link leads there."""
    other = replace(TWO.devices[1], shared_memory_per_sm=2**20, shared_memory_per_block=2**20, registers_per_sm=2**15)
    a = Operator("a", time=7.0, kernels=(Kernel(1, 256, 32, 2**19),))
    b = Operator("b", time=1.0, kernels=(Kernel(1, 1024, 64),))
    with pytest.raises(SchedulerError, match="give links"):
        optimal(OpGraph([a, b], [Edge("a", "b", 1.0)]), Cluster((TWO.devices[0], other)))


SMALL = {
    "one of no time": made("a=0"),
    "some of no time": made("a=2 b=0 c=2 d=0", "ab cd ad", 1.0),
    "given backwards": made("d=1 c=2 b=3 a=4", "ab bc cd ad", nbytes=1e6),
    "parallel edges": made("a=1 b=2 c=3", "ab ab ac ac", nbytes=1e6),
    "tiny and huge": made("a=1e9 b=1e-9 c=1", "ab ac", 1e-6),
}


@pytest.mark.parametrize("graph", SMALL.values(), ids=SMALL)
@pytest.mark.parametrize(("cluster", "streams"), [(ONE, 2), (TWO, 1), (ROW, 1)], ids=["one", "two", "row"])
def test_small_graphs(graph, cluster, streams):
    found = optimal(graph, cluster, streams=streams)
    assert found.makespan == pytest.approx(best_makespan(graph, cluster, streams), rel=1e-9)
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
    rounded = len(graph) + len(graph.src)  # times and moves, each down by less than the unit, 1e-9 us
    assert found.bound == pytest.approx(truth, rel=1e-9, abs=1e-9 * rounded)
    assert instance_of(graph, cluster, cost, streams).bound <= truth * (1 + 1e-9)
    plan = found.schedule.check(cluster)
    assert (plan.graph, plan.execution, plan.scheduler) == (graph, "events", "optimal")
    assert plan.estimate == found.makespan == last(found, cluster, cost)
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
    last = whole_of(instance, sum(times))
    assert (float(last.unit), last.exact) == (unit, exact)
    units = last.instance.times[0] * unit
    assert units == pytest.approx(times, rel=1e-15, abs=0 if exact else 1.1e-9)
    assert (units <= np.array(times) * (1 + 1e-15)).all()


def test_each_pair_of_devices_has_its_own_moves():
    """a, 4 us, feeds b, c, d of 5, 9 and 1; c moves for nothing, b and d for 5: a, then b and d beside c, is 13 us."""
    graph = made("a=4 b=5 c=9 d=1", "ab:5 ac:0 ad:5")
    for cluster in (TWO, THREE):
        assert instance_of(graph, cluster, None, 1).bound == 13.0
        assert optimal(graph, cluster).makespan == 13.0


def test_times_of_many_digits_are_feasible():
    """The presolve of OR-tools 9.15 denied it of these, where the work of each device was bounded as well."""
    graph = random_layered(n_ops=10, n_layers=3, comm_ratio=0.8, rng=3)
    assert optimal(graph, Cluster.preset("a40", 2), streams=2).makespan == pytest.approx(5731.3986, rel=1e-6)


def test_what_takes_longer_than_the_horizon_is_out_of_the_question():
    graph = made("a=1 b=2", "ab:1e15")
    whole = whole_of(instance_of(graph, TWO, None, 1), 3.0)
    assert whole.instance.moves[0].tolist() == [[0.0, inf], [inf, 0.0]]
    assert optimal(graph, TWO).makespan == 3.0


# Starts, options, ends ---------------------------------------------------------------------------


def test_a_given_start_is_used():
    """The best schedule of five, given; the search has only to prove it."""
    best = Schedule(FIVE, placements("a b c@1 d@1 e@1"))
    for starts in ([best], best):
        found = optimal(FIVE, TWO, starts=starts)
        assert (found.search["start_us"], found.search["branches"]) == (6.0, 0)


def test_a_start_may_launch_in_an_order_of_its_own():
    """b on gpu1 is launched before a on gpu0, from which it reads."""
    graph = made("a=1 b=2", "ab:0")
    start = Schedule(graph, placements("b@1 a")).check(TWO)
    assert optimal(graph, TWO, starts=[start]).makespan == 3.0


@pytest.mark.parametrize("starts", [3, [None], [Schedule(made("z=1"), placements("z"))]])
def test_starts_that_cannot_be(starts):
    with pytest.raises(SchedulerError, match=r"^optimal: starts must be schedules of the graph itself"):
        optimal(made("a=1"), TWO, starts=starts)


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
    assert last(found, TWO) == found.makespan


def test_ctrl_c_returns_the_best_so_far(caplog):
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with caplog.at_level(logging.WARNING):
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
