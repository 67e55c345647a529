"""How long a launch is on its way to the device, and host times of operators and of instructions, by hand."""

import numpy as np
import pytest
from hand_made import case, hand_made, lower, run

import simsched as ss
from simsched.base.errors import ProgramError
from simsched.model.program import Program

pytestmark = pytest.mark.usefixtures("both_engines")

LINK = ss.Link(100.0, latency=2.0)
LATE = hand_made(launch=4.0, launch_latency=6.0)
"""A call takes 4 us, and the device knows of it 2 us later."""
NAN = np.nan


def ops(**host):
    """a and b of 1 us, with those host times."""
    return [ss.Operator(name, time=1.0, host=host.get(name, 0.0)) for name in "ab"]


def chain(cluster, execution="events", operators=None, host={}, **expected):  # noqa: B006 - read only
    """a and b one behind the other on a stream."""
    return case(operators or ops(**host), cluster, "a b", "ab", execution, **expected)


def timed(lead, own, cluster=None, execution="events", **host):
    """The program of this chain with host times of its instructions."""
    return lower(ops(**host), "ab", "a b", cluster or hand_made(), execution, (lead, own))


def across(cluster, lead=None, own=None, **expected):
    """a of 10 us on gpu0 sends 1,000 bytes to b, of 5 us on gpu1, while hosts wait; with those host times.

    Threads: launch, record, sync, copy, record of gpu0 and sync, launch of gpu1.
    """
    return case(
        "a=10 b=5", cluster, "a b@1", "ab=1000", lowered={"transfers": "blocking"}, timed=(lead, own), **expected
    )


CAPTURED = hand_made(launch=4.0, launch_latency=9.0, graph_launch=5.0, graph_node=1.0)
CASES = {
    # Calls 0-4 and 4-8, known at 6 and 10. Of 10 us each: a 6-16, and b, known long ago, right behind it, 16-26.
    "only the first of kernels back to back is late": chain(
        LATE, operators="a=10 b=10", a=(6, 16), b=(16, 26), blame={"launch": 6.0, "compute": 20.0}
    ),
    # Calls 0-4 and 4-8, known 2 us later: a 6-7, b 10-11. The host accounts for all but one kernel.
    "kernels quicker than calls are late": chain(LATE, a=(6, 7), b=(10, 11), blame={"launch": 10.0, "compute": 1.0}),
    "a call longer than the latency": chain(hand_made(launch=4.0, launch_latency=3.0), a=(4, 5), b=(8, 9)),
    # One launch of 5 us, then nodes 1 us apart: it is known when it is launched, and has no host time.
    "a captured graph": chain(CAPTURED, "graph", host={"a": 5.0, "b": 7.0}, a=(5, 6), b=(7, 8)),
    # 5 us pass before the call of a, 0-5-9, and 7 before that of b, 9-16-20.
    "host times": chain(
        hand_made(launch=4.0), host={"a": 5.0, "b": 7.0}, a=(9, 10), b=(20, 21), blame={"launch": 20.0, "compute": 1.0}
    ),
    # 5 us before a, 5-6, and 7 more before b, 12-13.
    "host times where calls take none": chain(
        hand_made(), host={"a": 5.0, "b": 7.0}, a=(5, 6), b=(12, 13), blame={"launch": 12.0, "compute": 1.0}
    ),
    # a is known at 6 and runs 6-16; gpu0's host, held until 16, sends 16-19; the copy begins at 16 + 6, takes 12 us.
    # gpu1's host launches b at 34-38, of which the device knows at 40.
    "a copy is on its way too": across(
        hand_made(2, link=LINK, launch=4.0, copy=3.0, launch_latency=6.0),
        sent=[(22, 34)],
        a=(6, 16),
        b=(40, 45),
        blame={"launch": 18.0, "compute": 15.0, "transfer": 12.0},
    ),
    # a runs 0-10. 6 us before the sync pass while it does: the copy begins at 10. Of 14 us 4 are left: at 14.
    **{
        f"{lead} us before a sync": across(
            hand_made(2, link=LINK), [0, 0, lead, 0, 0, 0, 0], sent=[(at, at + 12)], a=(0, 10), b=(at + 12, at + 17)
        )
        for lead, at in ((6, 10), (14, 14))
    },
    # a runs 0-10, then 3 us of the sync in place of the device's 4: the copy 13-25. On gpu1 the 4 us: b 29-34.
    "a sync's own time": across(
        hand_made(2, link=LINK, barrier=4.0),
        None,
        [NAN, NAN, 3.0, NAN, NAN, NAN, NAN],
        sent=[(13, 25)],
        b=(29, 34),
        blame={"compute": 15.0, "transfer": 12.0, "sync": 7.0},
    ),
    # Calls of 4 us, known 2 us later. One of 1 us: known at 3, and the next, 1-5, at 7.
    "a launch's own time is no shorter way": chain(LATE, timed=(None, [1.0, NAN]), a=(3, 4), b=(7, 8)),
}


@pytest.mark.parametrize("check", CASES.values(), ids=CASES)
def test_by_hand(check):
    check()


def test_host_time_passes_once_whatever_an_operator_launches():
    """Kernels of 5 us each, issued at 3 + 4 and at 11."""
    op = ss.Operator("a", time=10.0, host=3.0, kernels=(ss.Kernel(1, share=0.5), ss.Kernel(1, share=0.5)))
    trace = run([op], [], "a", hand_made(launch=4.0))
    assert [(s.start, s.end) for s in trace.spans if s.kind == "kernel"] == [(7, 12), (12, 17)]


def test_requests_in_flight_keep_their_host_times():
    """6 us before each of two launches of 1 us, and 2 us of the second's own: 15 us a request, however many run."""
    cluster = hand_made(launch=1.0)
    found = ss.throughput(timed([6.0, 6.0], [NAN, 2.0], cluster), cluster, in_flight=3)
    assert found.period_us == pytest.approx(15.0)


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
    assert again == written
    assert again.graph.host.tolist() == [1.5, 0.0]
    assert [(row.lead, row.own) for row in again.threads[0]] == [(2.0, None), (0.0, 0.0)]
    data = hand_made(launch_latency=7.5).to_dict()
    assert ss.Cluster.from_dict(data).devices[0].launch_latency == 7.5
    del data["devices"][0]["launch_latency"]
    assert ss.Cluster.from_dict(data).devices[0].launch_latency == 0.0
