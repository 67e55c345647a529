"""How long a launch is on its way to the device, and host times of operators and of instructions, by hand."""

import numpy as np
import pytest
from hand_made import assert_blame, assert_times, copies, hand_made, run, simulate
from small import made, placements

import simsched as ss
from simsched.base.errors import ProgramError
from simsched.model.program import Program

pytestmark = pytest.mark.usefixtures("both_engines")

LINK = ss.Link(100.0, latency=2.0)
NAN = np.nan


def ops(**host):
    """a and b of 1 us, with those host times."""
    return [ss.Operator(name, time=1.0, host=host.get(name, 0.0)) for name in "ab"]


def chain(cluster, execution="events", operators=None, **host):
    """a and b one behind the other on a stream."""
    return run(operators or ops(**host), "ab", "a b", cluster, execution)


def timed(lead, own, cluster=None, execution="events", **host):
    """The program of this chain with host times of its instructions."""
    schedule = ss.Schedule(made(ops(**host), "ab"), placements("a b"), execution)
    return schedule.lower(cluster or hand_made()).timed(lead, own)


def across(cluster, lead=None, own=None):
    """a of 10 us on gpu0 sends 1,000 bytes to b, of 5 us on gpu1, while hosts wait; with those host times."""
    plan = ss.Schedule(made("a=10 b=5", "ab=1000"), placements("a b@1"))
    program = plan.lower(cluster, transfers="blocking")
    actions = [row.do for thread in program.threads for row in thread]
    assert actions == ["launch", "record", "sync", "copy", "record", "sync", "launch"]
    return simulate(program.timed(lead, own), cluster)


# The way to the device -----------------------------------------------------------------------------


def test_only_the_first_of_kernels_back_to_back_is_late():
    """Calls 0-4 and 4-8, known at 6 and 10. Of 10 us each: a 6-16, and b, known long ago, right behind it, 16-26."""
    trace = chain(hand_made(launch=4.0, launch_latency=6.0), operators="a=10 b=10")
    assert_times(trace, a=(6, 16), b=(16, 26))
    assert_blame(trace, launch=6.0, compute=20.0)


def test_kernels_quicker_than_calls_are_all_late():
    """Calls 0-4 and 4-8, known 2 us later: a 6-7, b 10-11. The host accounts for all but one kernel."""
    trace = chain(hand_made(launch=4.0, launch_latency=6.0))
    assert_times(trace, a=(6, 7), b=(10, 11))
    assert_blame(trace, launch=10.0, compute=1.0)


def test_a_call_longer_than_the_latency_is_all_there_is():
    assert_times(chain(hand_made(launch=4.0, launch_latency=3.0)), a=(4, 5), b=(8, 9))


def test_a_captured_graph_is_known_when_it_is_launched():
    """One launch of 5 us, then nodes 1 us apart."""
    trace = chain(hand_made(launch=4.0, launch_latency=9.0, graph_launch=5.0, graph_node=1.0), "graph")
    assert_times(trace, a=(5, 6), b=(7, 8))


def test_a_copy_is_on_its_way_too():
    """a is known at 6 and runs 6-16; gpu0's host, held until 16, sends 16-19; the copy begins at 16 + 6, takes 12 us.

    gpu1's host launches b at 34-38, of which the device knows at 40.
    """
    trace = across(hand_made(2, link=LINK, launch=4.0, copy=3.0, launch_latency=6.0))
    assert copies(trace) == [(22, 34)]
    assert_times(trace, a=(6, 16), b=(40, 45))
    assert_blame(trace, launch=18.0, compute=15.0, transfer=12.0)


# Host times ----------------------------------------------------------------------------------------


def test_an_operator_has_host_time_before_its_first_launch():
    """5 us pass before the call of a, 0-5-9, and 7 before that of b, 9-16-20."""
    trace = chain(hand_made(launch=4.0), a=5.0, b=7.0)
    assert_times(trace, a=(9, 10), b=(20, 21))
    assert_blame(trace, launch=20.0, compute=1.0)


def test_host_time_passes_once_whatever_an_operator_launches():
    """Kernels of 5 us each, issued at 3 + 4 and at 11."""
    op = ss.Operator("a", time=10.0, host=3.0, kernels=(ss.Kernel(1, share=0.5), ss.Kernel(1, share=0.5)))
    trace = run([op], [], "a", hand_made(launch=4.0))
    assert [(s.start, s.end) for s in trace.spans if s.kind == "kernel"] == [(7, 12), (12, 17)]


def test_a_captured_graph_has_no_host_time():
    trace = chain(hand_made(launch=4.0, graph_launch=5.0, graph_node=1.0), "graph", a=5.0, b=7.0)
    assert_times(trace, a=(5, 6), b=(7, 8))


def test_host_time_shows_where_calls_take_none():
    """5 us before a, 5-6, and 7 more before b, 12-13."""
    trace = chain(hand_made(), a=5.0, b=7.0)
    assert_times(trace, a=(5, 6), b=(12, 13))
    assert_blame(trace, launch=12.0, compute=1.0)


def test_what_leads_to_a_sync_passes_before_it_blocks():
    """a runs 0-10. 6 us before the sync pass while it does: the copy begins at 10. Of 14 us 4 are left: at 14."""
    cluster = hand_made(2, link=LINK)
    for lead, sent in ((6.0, 10.0), (14.0, 14.0)):
        trace = across(cluster, lead=[0, 0, lead, 0, 0, 0, 0])
        assert copies(trace) == [(sent, sent + 12)]
        assert_times(trace, a=(0, 10), b=(sent + 12, sent + 17))


def test_a_sync_takes_its_own_time_once_it_is_released():
    """a runs 0-10, then 3 us of the sync in place of the device's 4: the copy 13-25. On gpu1 the 4 us: b 29-34."""
    trace = across(hand_made(2, link=LINK, barrier=4.0), own=[NAN, NAN, 3.0, NAN, NAN, NAN, NAN])
    assert copies(trace) == [(13, 25)]
    assert_times(trace, b=(29, 34))
    assert_blame(trace, compute=15.0, transfer=12.0, sync=7.0)


def test_a_launch_of_its_own_time_is_as_long_on_its_way_as_any():
    """Calls of 4 us, known 2 us later. One of 1 us: known at 3, and the next, 1-5, at 7."""
    cluster = hand_made(launch=4.0, launch_latency=6.0)
    assert_times(simulate(timed(None, [1.0, NAN], cluster), cluster), a=(3, 4), b=(7, 8))


def test_requests_in_flight_keep_their_host_times():
    """6 us before each of two launches of 1 us, and 2 us of the second's own: 15 us a request, however many run."""
    cluster = hand_made(launch=1.0)
    found = ss.throughput(timed([6.0, 6.0], [NAN, 2.0], cluster), cluster, in_flight=3)
    assert found.period_us == pytest.approx(15.0)
    assert found.bound_by == "host thread (100% busy)"


# What is refused, and what comes back from files ---------------------------------------------------


@pytest.mark.parametrize(
    ("lead", "own", "message"),
    [
        ([0.0, -1.0], None, "'lead' of an instruction must be finite and not negative, not -1.0"),
        (None, [np.inf, 0.0], "'own' of an instruction must be finite and not negative, not inf"),
        ([NAN, 0.0], None, "'lead' of an instruction must be finite and not negative, not nan"),
        ([0.0], None, "column 'lead' must have one row per instruction"),
        (None, [0.0, 1.0, 2.0], "column 'own' must have one row per instruction"),
    ],
)
def test_host_times_that_cannot_be(lead, own, message):
    with pytest.raises(ProgramError, match=message):
        timed(lead, own)


def test_a_captured_graph_takes_no_host_times():
    assert timed(None, None, execution="graph", a=1.5).lead is None
    with pytest.raises(ProgramError, match="instructions of a captured graph have no host time, and so no 'own'"):
        timed(None, [NAN, 1.0], execution="graph")


def test_host_times_come_back_from_files():
    """Those of the operators by the graph, those of the program by its instructions, the latency by the device."""
    written = timed([2.0, 0.0], [NAN, 0.0], a=1.5)
    again = Program.from_dict(written.to_dict())
    assert (again.lead.tolist(), again.own.tolist()[1]) == ([2.0, 0.0], 0.0)
    assert np.isnan(again.own[0])
    assert again.to_dict() == written.to_dict()
    assert again.graph.host.tolist() == [1.5, 0.0]
    assert [row.lead for row in again.threads[0]] == [2.0, 0.0]
    assert [row.own for row in again.threads[0]] == [None, 0.0]
    data = hand_made(launch_latency=7.5).to_dict()
    assert ss.Cluster.from_dict(data).devices[0].launch_latency == 7.5
    for device in data["devices"]:
        del device["launch_latency"]
    assert ss.Cluster.from_dict(data).devices[0].launch_latency == 0.0
