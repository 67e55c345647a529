"""Programs: instructions by hand, and what they promise about order."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from program_order import broken, made, plan
from strategies import graphs, schedules, shapes

from simsched.base.errors import ProgramError, ScheduleError, SimulationError
from simsched.base.io import dump_json, parse_json
from simsched.model import Cluster, Edge, Kernel, Operator, OpGraph, Placement, Schedule
from simsched.model.lowering import OPTIONS
from simsched.model.program import ACTIONS, BARRIER, LAUNCH, WAIT, Copies, Program
from simsched.simulator import simulate

TRIO = Cluster.preset("a100", 3)


def listing(program):
    """The instructions of each thread as text: ``a@0.1`` is a launch on stream 1 of gpu0, ``+2``, ``?2`` and ``!2``
    are record, wait and sync of event 2, ``a>gpu1`` a copy, ``|`` a barrier."""

    def word(row):
        what = {
            "launch": row.op,
            "copy": f"{row.op}>{row.to}",
            "barrier": "|",
            "record": f"+{row.event}",
            "wait": f"?{row.event}",
            "sync": f"!{row.event}",
        }[row.do]
        stream = f".{row.stream}" if row.stream >= 0 else ""
        return what if row.do == "sync" else f"{what}@{row.device[3:]}{stream}"

    return [" ".join(map(word, thread)) for thread in program.threads]


# By hand -----------------------------------------------------------------------------------------


FORK = "ab ac bd cd"
BY_HAND = {  # edges, placements, how, then the instructions of each host thread; what is literal has all waits
    "a fork and its join: c waits for a, d for c; a before b and d on their own stream": (
        FORK,
        "a 0 0, b 0 0, c 0 1, d 0 0",
        {},
        ["a@0.0 +0@0.0 b@0.0 ?0@0.1 c@0.1 +1@0.1 ?1@0.0 d@0.0"],
    ),
    "once c has waited for a, d behind it need not": (
        "ac ad",
        "a 0 0, c 0 1, d 0 1",
        {},
        ["a@0.0 +0@0.0 ?0@0.1 c@0.1 d@0.1"],
    ),
    "c reads from a and then b of a stream: b ends after a": (
        "ac bc",
        "a 0 0, b 0 0, c 0 1",
        {},
        ["a@0.0 b@0.0 +0@0.0 ?0@0.1 c@0.1"],
    ),
    "b waited for a; c waits for b and so, without saying so, for a": (
        "ab bc ac",
        "a 0 0, b 0 1, c 0 2",
        {},
        ["a@0.0 +0@0.0 ?0@0.1 b@0.1 +1@0.1 ?1@0.2 c@0.2"],
    ),
    "parallel edges are one wait": ("ab ab", "a 0 0, b 0 1", {}, ["a@0.0 +0@0.0 ?0@0.1 b@0.1"]),
    "a copy on a stream behind the compute streams, its event; the thread of gpu1 waits for it": (
        "ab",
        "a 0 3, b 1 0",
        {},
        ["a@0.3 +0@0.3 ?0@0.4 a>gpu1@0.4 +1@0.4", "?1@1.0 b@1.0"],
    ),
    "b and c on gpu1 read the same tensor": (
        "ab ac",
        "a 0 0, b 1 0, c 1 0",
        {},
        ["a@0.0 +0@0.0 ?0@0.1 a>gpu1@0.1 +1@0.1", "?1@1.0 b@1.0 c@1.0"],
    ),
    "b and c on gpu1 read the same tensor, which is sent twice": (
        "ab ac",
        "a 0 0, b 1 0, c 1 0",
        {"events": "literal"},
        ["a@0.0 +0@0.0 ?0@0.1 a>gpu1@0.1 +1@0.1 ?0@0.1 a>gpu1@0.1 +2@0.1", "?1@1.0 b@1.0 ?2@1.0 c@1.0"],
    ),
    "edges of different size are different copies": (
        "ab=8 ac=16",
        "a 0 0, b 1 0, c 1 1",
        {},
        ["a@0.0 +0@0.0 ?0@0.1 a>gpu1@0.1 +1@0.1 ?0@0.1 a>gpu1@0.1 +2@0.1", "?1@1.0 b@1.0 ?2@1.1 c@1.1"],
    ),
    "one host thread for all, in launch order, whatever the device": (
        "ab bc",
        "a 0 0, b 1 0, c 0 0",
        {"threads": "one"},
        ["a@0.0 +0@0.0 ?0@0.1 a>gpu1@0.1 +2@0.1 ?2@1.0 b@1.0 +1@1.0 ?1@1.1 b>gpu0@1.1 +3@1.1 ?3@0.0 c@0.0"],
    ),
    "the host of gpu0 waits for a before it sends, that of gpu1 for the data before it launches b": (
        "ab",
        "a 0 0, b 1 0",
        {"transfers": "blocking"},
        ["a@0.0 +0@0.0 !0 a>gpu1@0.1 +1@0.1", "!1 b@1.0"],
    ),
    "a captured graph has one thread": (
        "ab",
        "a 0 0, b 1 0",
        {"execution": "graph"},
        ["a@0.0 +0@0.0 ?0@0.1 a>gpu1@0.1 +1@0.1 ?1@1.0 b@1.0"],
    ),
    "a | b and c side by side | d: within stages no events": (
        FORK,
        "a 0 0 0 0, b 0 0 1 0, c 0 1 1 1, d 0 0 2 0",
        {"execution": "stages"},
        ["a@0.0 |@0 b@0.0 c@0.1 |@0 d@0.0"],
    ),
    "a, b, c are stages of one group on stream 0, d is on stream 1: only there a barrier is needed": (
        "ab bc cd",
        "a 0 0 0 0, b 0 0 1 0, c 0 0 2 0, d 0 1 3 0",
        {"execution": "stages"},
        ["a@0.0 b@0.0 c@0.0 |@0 d@0.1"],
    ),
    "gpu1 has one stage and no barrier; x needs a copy of a, which crosses gpu0's barrier on a stream of its own": (
        "ab ax",
        "a 0 0 0 0, b 0 1 1 0, x 1 0 0 0",
        {"execution": "stages"},
        ["a@0.0 +0@0.0 ?0@0.2 a>gpu1@0.2 +1@0.2 |@0 b@0.1", "?1@1.0 x@1.0"],
    ),
}


@pytest.mark.parametrize("case", BY_HAND)
def test_instructions_by_hand(case):
    edges, text, options, expected = BY_HAND[case]
    schedule = plan(made(edges, nbytes=8.0), text, options.get("execution", "events"))
    cluster = Cluster.preset("a100", len(schedule.devices_used))
    options = {name: value for name, value in options.items() if name != "execution"}
    program = schedule.lower(cluster, **options).check()
    assert listing(program) == expected
    assert program.n_syncs == sum(text.count(mark) for text in expected for mark in "?!|")


def test_kernels_of_an_operator_are_launched_in_order():
    """Two launches of each; the event is recorded behind both of a and waited for before the first of b."""
    twice = (Kernel(1, share=0.5), Kernel(1, share=0.5))
    graph = OpGraph([Operator("a", time=1.0, kernels=twice), Operator("b", time=1.0, kernels=twice)], [Edge("a", "b")])
    program = plan(graph, "a 0 0, b 0 1").lower(Cluster.preset("a100"))
    assert listing(program) == ["a@0.0 a@0.0 +0@0.0 ?0@0.1 b@0.1 b@0.1"]
    assert program.launches.kernel.tolist() == [0, 1, 0, 1]


def test_priorities_go_along():
    schedule = Schedule(made("", "ab"), [Placement("b", priority=-1), Placement("a", stream=1)])
    assert schedule.lower(TRIO).priority.tolist() == [0, -1]


# Errors ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "execution", "options", "message"),
    [
        *(
            ("a 0 0, b 0 0", "events", {option: "other"}, f"unknown {option} 'other'; known are: {', '.join(known)}")
            for option, known in OPTIONS.items()
        ),
        ("a 0 0, b 0 0", "graph", {"transfers": "blocking"}, "a captured graph cannot hold host-blocking transfers"),
        ("b 1 0, a 0 0", "events", {"threads": "one"}, "operator 'b': it is launched before 'a', which it reads from"),
    ],
)
def test_what_cannot_be_lowered(text, execution, options, message):
    schedule = plan(made("ab"), text, execution)
    assert len(schedule.lower(TRIO).threads) == (1 if execution == "graph" else 3)
    with pytest.raises(ScheduleError, match=message):
        schedule.lower(TRIO, **options)


def test_a_program_for_other_devices():
    program = plan(made("ab"), "a 0 0, b 0 0").lower(TRIO)
    with pytest.raises(SimulationError, match="made for devices gpu0, gpu1, gpu2, not gpu0"):
        simulate(program, Cluster.preset("a100"))


NOTHING = Copies(*(np.zeros(0, int) for _ in range(4)))
COLUMNS = [  # thread_ptr, action, device, stream, argument
    ("there is no instruction 9", [0, 1], [9], [0], [0], [0]),
    ("there is no device 3: the program has 1", [0, 1], [LAUNCH], [3], [0], [0]),
    ("there is no device -1", [0, 1], [LAUNCH], [-1], [0], [0]),
    ("an instruction other than barrier and sync needs a stream", [0, 1], [LAUNCH], [0], [-1], [0]),
    ("thread_ptr must rise from 0 to 1", [0, 2], [LAUNCH], [0], [0], [0]),
    ("thread_ptr must rise from 0", [0, 0], [LAUNCH], [0], [0], [0]),
    ("must have one row per instruction", [0, 1], [LAUNCH], [0, 0], [0], [0]),
    # a number that came out as another one, once short, could pass the check
    ("must hold whole numbers from", [0, 1], [2**32], [0], [0], [0]),
    ("must hold whole numbers from", [0, 1], [LAUNCH], [2**32], [0], [0]),
    ("must hold whole numbers from", [0, 1], [LAUNCH], [0], [2**32], [0]),
    ("must hold whole numbers from", [0, 1], [LAUNCH], [0], [0], [2**32]),
]


@pytest.mark.parametrize("row", COLUMNS)
def test_check_of_columns_made_by_hand(row):
    """`check` is all that stands between columns and the simulator: what it passes must run."""
    message, *columns = row
    with pytest.raises(ProgramError, match=message):
        Program(made("", "a"), ["gpu0"], "events", *columns, copies=NOTHING, n_events=0).check()


# Properties --------------------------------------------------------------------------------------


def lowerable(data, schedule):
    """A program of a schedule with options drawn, or None if it cannot run so."""
    options = {name: data.draw(st.sampled_from([known[0], *known])) for name, known in OPTIONS.items()}
    try:
        return schedule.lower(TRIO, **options)
    except ScheduleError:
        return None


@settings(deadline=None, max_examples=150)
@given(data=st.data())
def test_a_program_keeps_every_dependency(data):
    """Also with barriers, copies, blocking hosts, one thread and an order that only several sort out; it passes its
    own check."""
    schedule = data.draw(schedules(data.draw(graphs(max_ops=6)), valid_order=data.draw(st.sampled_from([True, None]))))
    program = lowerable(data, schedule)
    if program is not None:
        assert broken(program.check()) == []


@settings(deadline=None, max_examples=100)
@given(data=st.data(), streams=st.integers(2, 4))
def test_every_wait_of_a_minimal_program_is_needed(data, streams):
    """On one device: leave out any one wait, and a dependency is no longer kept."""
    graph = data.draw(shapes(max_ops=8))
    rows = [Placement(name, stream=data.draw(st.integers(0, streams - 1))) for name in graph.order]
    schedule = Schedule(graph, rows)
    program = schedule.lower(TRIO)
    assert broken(program) == []
    for i in np.flatnonzero(program.action == WAIT).tolist():
        assert broken(program, without=i), listing(program)


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_minimal_is_no_more_than_literal(data):
    """Fewer or equal waits, records and copies; the launches are the same."""
    schedule = data.draw(schedules(data.draw(graphs(max_ops=6)), valid_order=True))
    try:
        minimal, literal = (schedule.lower(TRIO, events=events) for events in ("minimal", "literal"))
    except ScheduleError:
        return
    for code in range(len(ACTIONS)):
        few, many = ((p.action == code).sum() for p in (minimal, literal))
        assert few == many if code in (LAUNCH, BARRIER) else few <= many


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_programs_survive_json(data):
    """Through text: the same instructions, the same text again, the same spans."""
    schedule = data.draw(schedules(data.draw(graphs(max_ops=5)), valid_order=True))
    program = lowerable(data, schedule)
    if program is None:
        return
    text = dump_json(program.to_dict())
    again = Program.from_dict(parse_json(text))
    assert dump_json(again.to_dict()) == text
    assert listing(again) == listing(program)
    assert again.priority.tolist() == program.priority.tolist()
    assert list(simulate(again, TRIO).spans) == list(simulate(program, TRIO).spans)
